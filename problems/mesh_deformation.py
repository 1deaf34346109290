"""As-rigid-as-possible deformation of a mesh by handles: `python -m problems.mesh_deformation`.

Every vertex gets a place and a rotation. Handles pull some vertices to given places; everywhere else the vector to
each neighbour shall stay what it was, up to the vertex's own rotation. The rotation is either three Euler angles, as in
the paper on Opt, or an element of SO(3), which has no angle at which it locks.

Reference: O. Sorkine, M. Alexa: As-Rigid-As-Possible Surface Modeling, SGP 2007; Z. DeVito et al.: Opt,
ACM Transactions on Graphics 36(5), 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from trimesh import Trimesh

import optpy as op

from . import meshes
from .command import choice, solve
from .mesh_command import MeshSettings, leave, mesh_command
from .mesh_handles import Handles, top_and_foot

# ---- the energy --------------------------------------------------------------------------------------------

V, E = op.dims("V E")
v, e = op.indices(V, E)

Offset = op.Unknown("Offset", (V,), 3)  # where the vertex goes
Angle = op.Unknown("Angle", (V,), 3)  # how its surroundings turn: about x, then y, then z, in radians
Rotation = op.Unknown("Rotation", (V,), op.SO3)  # the same, in the other version
UrShape = op.Array("UrShape", (V,), 3)  # where the vertex was
Constraints = op.Array("Constraints", (V,), 3)  # where a handle pulls it
Handle = op.Array("Handle", (V,), dtype=bool)  # whether one does
edges = op.Graph("edges", E, (V, V))  # each edge of the mesh from both its ends
w_fit, w_reg = op.params("w_fit w_reg")

a, b = edges[e]
now, rest = Offset[a] - Offset[b], UrShape[a] - UrShape[b]
fit = op.where(Handle[v], w_fit * (Offset[v] - Constraints[v]), 0)

euler = op.Energy(fit=fit, reg=w_reg * (now - op.rotate3d(Angle[a], rest)))
so3 = op.Energy(fit=fit, reg=w_reg * (now - Rotation[a] @ rest))

ENERGIES = {"euler": euler, "so3": so3}

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deformation:
    """A mesh and what pulls it."""

    mesh: Trimesh
    handles: Handles

    def data(self, rotations: str = "euler") -> dict[str, Any]:
        """What an energy of `ENERGIES` needs, by name; the solve starts from the mesh as it is."""
        vertices = np.asarray(self.mesh.vertices, np.float64)
        start: dict[str, Any] = {
            "euler": dict(Angle=np.zeros_like(vertices)),
            "so3": dict(Rotation=np.tile([0.0, 0.0, 0.0, 1.0], (len(vertices), 1))),
        }[rotations]
        return dict(
            Offset=vertices,
            UrShape=vertices,
            Constraints=self.handles.target,
            Handle=self.handles.pulled,
            edges=meshes.directed_edges(self.mesh),
            w_fit=10.0,
            w_reg=1.0,
            **start,
        )


def deformation(mesh: Trimesh) -> Deformation:
    """The foot of a mesh is held, and its top is moved and turned."""
    return Deformation(mesh, top_and_foot(mesh.vertices))


def default_mesh() -> Trimesh:
    """The penguin where the data folder is there, a pebble elsewhere."""
    penguin = meshes.data_mesh("penguin.obj")
    return meshes.pebble() if penguin is None else penguin


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeformationSettings(MeshSettings):
    """The choices of one run."""

    rotations: str
    """A key of `ENERGIES`."""


@mesh_command(
    DeformationSettings,
    [choice("--rotations", list(ENERGIES), "euler", "Three angles at each vertex, or an element of SO(3).")],
    output="mesh_deformation.png",
    method="lm",
    iterations=100,
)
def main(settings: DeformationSettings) -> None:
    """Deforms a mesh by handles, as rigidly as possible; writes it, and draws it before and after."""
    mesh = default_mesh() if settings.mesh is None else meshes.read_mesh(settings.mesh)
    task = deformation(mesh)
    result = solve(ENERGIES[settings.rotations], task.data(settings.rotations), settings)
    colours = task.handles.colours(mesh)
    leave(settings, mesh, [meshes.moved(mesh, result.x["Offset"])], [colours, colours])


if __name__ == "__main__":
    main()
