"""The energies by which a mesh follows its handles in the demo, and what each makes of handles, weights and places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, final

import numpy as np
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op

from .. import embedded_deformation
from ..mesh_deformation import ENERGIES, deformation

Places = NDArray[np.float64]


class MeshModel(Protocol):
    """A mesh with an energy."""

    @property
    def energy(self) -> op.Energy:
        """Whose unknowns have the places of the vertices."""

    @property
    def data(self) -> dict[str, Any]:
        """All that the energy needs, of the mesh at rest and without handles."""

    def pulled(self, handle: NDArray[np.bool_], targets: Places) -> dict[str, Any]:
        """The data that handles change: (V,) which vertices are pulled, (V, 3) where to."""

    def weights(self, w_fit: float, w_reg: float, w_rot: float) -> dict[str, Any]:
        """The weights by the names that the energy has for them."""

    def standing(self, places: Places) -> dict[str, Any]:
        """The unknowns of a mesh that stands at places (V, 3)."""

    def places(self, session: op.Session) -> Places:
        """(V, 3): where a session has the vertices."""


@final
@dataclass(frozen=True, slots=True)
class AsRigid:
    """Each vertex keeps the vectors to its neighbours, up to a rotation: `problems.mesh_deformation`.

    Attributes:
        mesh: at rest.
        rotations: a key of `ENERGIES`.
    """

    mesh: Trimesh
    rotations: str

    @property
    def energy(self) -> op.Energy:
        """By its rotations."""
        return ENERGIES[self.rotations]

    @property
    def data(self) -> dict[str, Any]:
        """See `MeshModel`."""
        return deformation(self.mesh).data(self.rotations)

    def pulled(self, handle: NDArray[np.bool_], targets: Places) -> dict[str, Any]:
        """See `MeshModel`."""
        return dict(Handle=handle, Constraints=targets)

    def weights(self, w_fit: float, w_reg: float, w_rot: float) -> dict[str, Any]:
        """`w_rot` is not used: rotations are exact."""
        return dict(w_fit=w_fit, w_reg=w_reg)

    def standing(self, places: Places) -> dict[str, Any]:
        """See `MeshModel`; rotations stay."""
        return dict(Offset=places.astype(np.float32))

    def places(self, session: op.Session) -> Places:
        """See `MeshModel`."""
        return np.asarray(session["Offset"], np.float64)


@final
class Embedded:
    """Each vertex has an affine map near a rotation: `problems.embedded_deformation`.

    Args:
        mesh: at rest. It is scaled to edges of mean length 1, at which the weights mean the same for all meshes.
    """

    def __init__(self, mesh: Trimesh) -> None:
        self._task = embedded_deformation.deformation(mesh)
        self._rest = np.asarray(self._task.mesh.vertices, np.float64)
        self._scale = 1.0 / float(np.mean(mesh.edges_unique_length))

    @property
    def energy(self) -> op.Energy:
        """See `MeshModel`."""
        return embedded_deformation.energy

    @property
    def data(self) -> dict[str, Any]:
        """See `MeshModel`."""
        return self._task.data

    def pulled(self, handle: NDArray[np.bool_], targets: Places) -> dict[str, Any]:
        """See `MeshModel`."""
        return dict(Handle=handle, Constraints=targets * self._scale)

    def weights(self, w_fit: float, w_reg: float, w_rot: float) -> dict[str, Any]:
        """See `MeshModel`."""
        return dict(w_con=w_fit, w_reg=w_reg, w_rot=w_rot)

    def standing(self, places: Places) -> dict[str, Any]:
        """See `MeshModel`; matrices stay."""
        return dict(Translation=(places * self._scale - self._rest).astype(np.float32))

    def places(self, session: op.Session) -> Places:
        """See `MeshModel`."""
        return (self._rest + np.asarray(session["Translation"], np.float64)) / self._scale


MODELS: Final[dict[str, Callable[[Trimesh], MeshModel]]] = {
    "euler": partial(AsRigid, rotations="euler"),
    "so3": partial(AsRigid, rotations="so3"),
    "embedded": Embedded,
}
"""By the name of their choice."""
