"""``show_residuals``: maps of how large each term is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optpy.drawing.residual_maps import residuals_figure
from optpy.energy.energy import Energy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def show_residuals(energy: Energy, data: Mapping[str, Any], *, mesh: tuple[Any, Any] | None = None) -> Figure:
    """Draw ``|r|`` of each term at each point of its domain, a map for each term and domain.

    Over two axes the map is a picture; over more, the largest value along the first ones; over one axis a curve.
    Terms over the vertices of a mesh, or over edges between them, are drawn on the mesh where that is given; a vertex
    has the mean of its edges. The residuals are those of the cost, from the NumPy interpreter in float64.

    Args:
        energy: whose terms.
        data: as for ``op.solve``; ``{**data, **result.x}`` shows a result.
        mesh: positions of the vertices, (V, 3), and triangles as three vertices each, (F, 3).

    Returns:
        A figure of Matplotlib: notebooks show it, ``savefig`` writes it to a file.

    Raises:
        DataError: the data does not fit the energy.
        OptionError: the mesh is none.
        OptpyError: Matplotlib is not installed (``optpy[plot]``).
    """
    return residuals_figure(energy.problem, data, mesh)
