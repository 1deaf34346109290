"""Maps of residuals: how large each term is, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.drawing.figures import new_figure
from optpy.energy.check import evaluation
from optpy.energy.data.binding import BoundData, bind
from optpy.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats64 = NDArray[np.float64]
Mesh = tuple[Any, Any]
"""Positions of vertices, (V, 3), and triangles as their vertices, (F, 3)."""

_ACROSS: Final = 3
"""Maps beside each other."""


@final
@dataclass(frozen=True, slots=True)
class _TermMap:
    """The lengths of a term's residuals over one domain.

    Attributes:
        title: the term, and its share of the cost.
        domain: over which.
        lengths: ``sqrt(sum of squares)`` of all its residuals at each point, of the shape of the domain.
    """

    title: str
    domain: ir.Domain
    lengths: Floats64


def residuals_figure(problem: ir.Problem, data: Mapping[str, Any], mesh: Mesh | None) -> Figure:
    """See ``op.show_residuals``."""
    bound = bind(problem, data, np.dtype(np.float64))
    maps = _term_maps(problem, evaluation.residuals(problem, data, linearised=False))
    surface = None if mesh is None else _checked(mesh)
    rows = -(-len(maps) // _ACROSS)
    across = min(len(maps), _ACROSS)
    figure = new_figure(4.6 * across, 4.0 * rows)
    for number, found in enumerate(maps, 1):
        on_surface = None if surface is None else _at_vertices(problem, found, bound, len(surface[0]))
        if surface is None or on_surface is None:
            _draw(figure, figure.add_subplot(rows, across, number), found)
        else:
            axes = figure.add_subplot(rows, across, number, projection="3d")
            _draw_surface(figure, axes, surface, on_surface)
            axes.set_title(found.title)
    return figure


def _term_maps(problem: ir.Problem, values: Mapping[str, Floats64]) -> list[_TermMap]:
    """A map for each term and domain; the entries of a list that have the same domain are one."""
    squares: dict[tuple[str, ir.Domain], Floats64] = {}
    for r in problem.residuals:
        own = values[r.label]
        over_components = tuple(range(len(r.domain), own.ndim))
        key = (r.term, r.domain)
        squares[key] = squares.get(key, 0.0) + np.square(own).sum(axis=over_components)
    total = sum(float(s.sum()) for s in squares.values())
    titles = {key: f"{key[0]}: cost {s.sum() / 2:.4g}" + _share(float(s.sum()), total) for key, s in squares.items()}
    return [_TermMap(titles[key], key[1], np.sqrt(s)) for key, s in squares.items()]


def _share(part: float, total: float) -> str:
    return f" ({100 * part / total:.0f} %)" if total > 0 else ""


def _checked(mesh: Mesh) -> tuple[Floats64, NDArray[np.int64]]:
    vertices, faces = np.asarray(mesh[0], np.float64), np.asarray(mesh[1])
    if vertices.ndim != 2 or vertices.shape[1] != 3:
        raise OptionError(f"mesh=(vertices, faces): vertices have the shape (V, 3), not {vertices.shape}")
    if faces.ndim != 2 or faces.shape[1] != 3 or not np.issubdtype(faces.dtype, np.integer):
        raise OptionError(
            f"mesh=(vertices, faces): faces are whole numbers of the shape (F, 3), not {faces.shape} of {faces.dtype}"
        )
    if faces.size and (faces.min() < 0 or faces.max() >= len(vertices)):
        raise OptionError(f"mesh=(vertices, faces): faces point outside the {len(vertices)} vertices")
    return vertices, faces.astype(np.int64)


def _at_vertices(problem: ir.Problem, found: _TermMap, bound: BoundData, vertices: int) -> Floats64 | None:
    """The lengths at each vertex: as they are, or the mean over the edges at a vertex; None: over something else."""
    if len(found.domain) != 1:
        return None
    dim = found.domain[0].dim
    if bound.sizes[dim] == vertices:
        return found.lengths
    for graph in problem.graphs:
        columns = [n for n, d in enumerate(graph.columns) if bound.sizes[d] == vertices]
        if graph.edges == dim and columns:
            ends = np.asarray(bound.edges[graph.name])[:, columns]
            lengths = np.repeat(found.lengths, len(columns))
            summed = np.bincount(ends.ravel(), weights=lengths, minlength=vertices)
            counted: Floats64 = summed / np.maximum(np.bincount(ends.ravel(), minlength=vertices), 1)
            return counted
    return None


def _draw(figure: Any, axes: Any, found: _TermMap) -> None:
    """A picture over two axes; of more, the largest along the first ones; a curve over one; else a number."""
    axes.set_title(found.title)
    lengths, names = found.lengths, [v.dim.name for v in found.domain]
    if lengths.ndim == 0 or not lengths.size:
        axes.text(0.5, 0.5, f"{float(lengths):.4g}" if lengths.ndim == 0 else "no points", ha="center")
        axes.set_axis_off()
    elif lengths.ndim == 1:
        axes.plot(lengths, lw=0.8)
        axes.set(xlabel=names[0], ylabel="|residual|", ylim=(0, None))
    else:
        above = names[:-2]
        flat = lengths.max(axis=tuple(range(lengths.ndim - 2)))
        image = axes.imshow(flat, cmap="magma", vmin=0, interpolation="nearest")
        axes.set(xlabel=names[-1], ylabel=names[-2])
        label = "|residual|" + (f", largest over {', '.join(above)}" if above else "")
        figure.colorbar(image, ax=axes, shrink=0.8, label=label)


def _draw_surface(
    figure: Any, axes: Any, surface: tuple[Floats64, NDArray[np.int64]], lengths: Sequence[float] | Floats64
) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    vertices, faces = surface
    of_faces = np.asarray(lengths)[faces].mean(axis=1)
    scale = ScalarMappable(Normalize(0, float(np.max(lengths, initial=0.0)) or 1.0), colormaps["magma"])
    axes.add_collection3d(Poly3DCollection(vertices[faces], facecolors=scale.to_rgba(of_faces), linewidths=0))
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    axes.set(**{f"{a}lim": (x, y) for a, x, y in zip("xyz", low, high, strict=True)})
    axes.set_box_aspect(np.maximum(high - low, 1e-9 * max(float((high - low).max()), 1e-9)))
    axes.set_axis_off()
    figure.colorbar(scale, ax=axes, shrink=0.7, label="|residual|, mean over edges at a vertex")
