"""Embedded deformation of a mesh, with 12 unknowns at every vertex: `python -m problems.embedded_deformation`.

Every vertex has an affine map of its own, a matrix R and a translation t, that acts around the vertex g: a point p goes
to R (p - g) + g + t. The matrices shall be near rotations, the maps of neighbours shall agree on where each other's
vertices go, and handles pull some vertices to given places. All terms but the first are linear.

Reference: R. W. Sumner, J. Schmid, M. Pauly: Embedded Deformation for Shape Manipulation, SIGGRAPH 2007, equations 4,
6 and 7; here each vertex is a node of the deformation graph, as in Z. DeVito et al.: Opt, ACM Transactions on Graphics
36(5), 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from trimesh import Trimesh

import optpy as op

from . import meshes
from .command import solve
from .mesh_command import MeshSettings, leave, mesh_command
from .mesh_handles import Handles, top_and_foot

# ---- the energy --------------------------------------------------------------------------------------------

V, E = op.dims("V E")
v, e = op.indices(V, E)

Matrix = op.Unknown("Matrix", (V,), 9)  # row by row
Translation = op.Unknown("Translation", (V,), 3)
UrShape = op.Array("UrShape", (V,), 3)  # the vertex, g
Constraints = op.Array("Constraints", (V,), 3)  # where a handle pulls it
Handle = op.Array("Handle", (V,), dtype=bool)  # whether one does
edges = op.Graph("edges", E, (V, V))  # each edge of the mesh from both its ends
w_rot, w_reg, w_con = op.params("w_rot w_reg w_con")


def matrix(n: Any) -> Any:
    """R of vertex n, (3, 3)."""
    return op.matrix([[Matrix[n][3 * row + column] for column in range(3)] for row in range(3)])


def orthonormality(n: Any) -> Any:
    """The scalar products of the columns of R, less those of a rotation: 6 numbers."""
    x, y, z = (op.vector(*(Matrix[n][3 * row + column] for row in range(3))) for column in range(3))
    return op.vector(
        op.dot(x, y), op.dot(x, z), op.dot(y, z), op.dot(x, x) - 1, op.dot(y, y) - 1, op.dot(z, z) - 1
    )  # fmt: skip


a, b = edges[e]
place_by_a = matrix(a) @ (UrShape[b] - UrShape[a]) + UrShape[a] + Translation[a]  # where a's map takes b

energy = op.Energy(
    rot=w_rot * orthonormality(v),
    reg=w_reg * (place_by_a - (UrShape[b] + Translation[b])),
    con=op.where(Handle[v], w_con * (UrShape[v] + Translation[v] - Constraints[v]), 0),
)

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deformation:
    """A mesh and what pulls it."""

    mesh: Trimesh
    handles: Handles

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name; the solve starts from the mesh as it is. The weights are the paper's."""
        vertices = np.asarray(self.mesh.vertices, np.float64)
        return dict(
            Matrix=np.tile(np.eye(3).ravel(), (len(vertices), 1)),
            Translation=np.zeros_like(vertices),
            UrShape=vertices,
            Constraints=self.handles.target,
            Handle=self.handles.pulled,
            edges=meshes.directed_edges(self.mesh),
            w_rot=1.0,
            w_reg=10.0**0.5,
            w_con=10.0,
        )

    def moved_by(self, translation: Any) -> Trimesh:
        """The mesh with each vertex moved by its own map: g + t."""
        return meshes.moved(self.mesh, np.asarray(self.mesh.vertices) + translation)


def deformation(mesh: Trimesh) -> Deformation:
    """The foot of a mesh is held, and its top is moved and turned.

    The mesh is scaled to edges of mean length 1, so that the weights, of which one stands at numbers without a unit and
    two at lengths, mean the same on every mesh.
    """
    scaled = meshes.moved(mesh, np.asarray(mesh.vertices) / float(np.mean(mesh.edges_unique_length)))
    return Deformation(scaled, top_and_foot(scaled.vertices))


def default_mesh() -> Trimesh:
    """The penguin where the data folder is there, a pebble elsewhere."""
    penguin = meshes.data_mesh("penguin.obj")
    return meshes.pebble() if penguin is None else penguin


# ---- the program -------------------------------------------------------------------------------------------


@mesh_command(MeshSettings, output="embedded_deformation.png", method="lm", iterations=100)
def main(settings: MeshSettings) -> None:
    """Deforms a mesh by handles, with an affine map at every vertex; writes it, and draws it before and after."""
    task = deformation(default_mesh() if settings.mesh is None else meshes.read_mesh(settings.mesh))
    result = solve(energy, task.data, settings)
    colours = task.handles.colours(task.mesh)
    leave(settings, task.mesh, [task.moved_by(result.x["Translation"])], [colours, colours])


if __name__ == "__main__":
    main()
