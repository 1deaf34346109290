"""A mesh deformed with the space around it: `python -m problems.volumetric_deformation`.

The mesh lies in a lattice. Every point of the lattice gets a place and a rotation; handles pull the lowest and the
highest layer; elsewhere the vector to each of six neighbours shall stay what it was, up to the point's own rotation.
The mesh follows the eight corners of the cell that each of its vertices is in. So what costs is the lattice, however
fine the mesh is, and even a mesh that is torn or self-intersecting deforms as one body.

Reference: Z. DeVito et al.: Opt, ACM Transactions on Graphics 36(5), 2017 (volumetric mesh deformation); O. Sorkine,
M. Alexa: As-Rigid-As-Possible Surface Modeling, SGP 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op

from . import meshes
from .command import solve
from .mesh_command import MeshSettings, leave, mesh_command
from .mesh_handles import Handles, top_and_foot

# ---- the energy --------------------------------------------------------------------------------------------

D, H, W = op.dims("D H W")
k, i, j = op.indices(D, H, W)

Offset = op.Unknown("Offset", (D, H, W), 3)  # where the point goes
Angle = op.Unknown("Angle", (D, H, W), 3)  # how its surroundings turn: about x, then y, then z, in radians
UrShape = op.Array("UrShape", (D, H, W), 3)  # where the point was
Constraints = op.Array("Constraints", (D, H, W), 3)  # where a handle pulls it
Handle = op.Array("Handle", (D, H, W), dtype=bool)  # whether one does
w_fit, w_reg = op.params("w_fit w_reg")

here = (k, i, j)


def rigid(dk: int, di: int, dj: int) -> Any:
    """The vector to a neighbour stays what it was, but for the point's rotation."""
    there = (k + dk, i + di, j + dj)
    now, rest = Offset[here] - Offset[there], UrShape[here] - UrShape[there]
    return w_reg * (now - op.rotate3d(Angle[here], rest))


NEIGHBOURS = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]

energy = op.Energy(
    fit=op.where(Handle[here], w_fit * (Offset[here] - Constraints[here]), 0),
    reg=[rigid(*n) for n in NEIGHBOURS],
)

# ---- its data ----------------------------------------------------------------------------------------------

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Lattice:
    """Points in cubes around a mesh, and where in it the mesh's vertices are."""

    points: Floats
    """(D, H, W, 3): z, y and x grow along the axes."""
    corners: NDArray[np.int64]
    """(V, 8): of the cell that a vertex is in, as numbers of points in C order."""
    shares: Floats
    """(V, 8): of each corner; the sums are 1."""

    def interpolated(self, values: NDArray[Any]) -> Floats:
        """(V, 3): what a vertex has of values (D, H, W, 3) at the points."""
        corners = np.asarray(values, np.float64).reshape(-1, 3)[self.corners]
        return np.asarray((self.shares[:, :, None] * corners).sum(axis=1))


def lattice_around(vertices: Floats, cells: int) -> Lattice:
    """A lattice of cubes that is a little larger than all vertices.

    Args:
        vertices: (V, 3).
        cells: along the longest side of the box around the vertices.
    """
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    side = max(float((high - low).max()), 1e-9) / cells
    counts = np.floor((high - low) / side).astype(int) + 1  # cells; the last is never left empty
    start = (low + high) / 2 - side * counts / 2
    points = start + side * np.stack(np.meshgrid(*map(np.arange, counts[::-1] + 1), indexing="ij")[::-1], axis=-1)
    inside = np.clip((vertices - start) / side, 0, counts)
    cell = np.minimum(np.floor(inside).astype(int), counts - 1)
    within = inside - cell
    corners, shares = [], []
    for corner in np.ndindex(2, 2, 2):
        chosen = np.array(corner)
        shares.append(np.where(chosen, within, 1 - within).prod(axis=1))
        corners.append(np.ravel_multi_index((cell + chosen).T[::-1], tuple(counts[::-1] + 1)))
    return Lattice(points, np.stack(corners, axis=1), np.stack(shares, axis=1))


@dataclass(frozen=True, slots=True)
class Deformation:
    """A mesh, the lattice around it, and what pulls that."""

    mesh: Trimesh
    lattice: Lattice
    handles: Handles
    """Of the lattice's points, in C order."""

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name; the solve starts from the lattice as it is."""
        points = self.lattice.points
        return dict(
            Offset=points,
            Angle=np.zeros_like(points),
            UrShape=points,
            Constraints=self.handles.target.reshape(points.shape),
            Handle=self.handles.pulled.reshape(points.shape[:3]),
            w_fit=10.0,
            w_reg=1.0,
        )

    def moved_by(self, points: NDArray[Any]) -> Trimesh:
        """The mesh in the lattice as it has become, (D, H, W, 3)."""
        return meshes.moved(self.mesh, self.lattice.interpolated(points))


def deformation(mesh: Trimesh, cells: int = 32) -> Deformation:
    """The foot of the lattice around a mesh is held, and its top is moved and turned.

    Args:
        mesh: what is deformed.
        cells: along the longest side of the box around it.
    """
    lattice = lattice_around(np.asarray(mesh.vertices, np.float64), cells)
    return Deformation(mesh, lattice, top_and_foot(lattice.points.reshape(-1, 3)))


def default_mesh() -> Trimesh:
    """Spot, the cow, where the data folder is there; a pebble elsewhere."""
    spot = meshes.data_mesh("spot.obj")
    return meshes.pebble() if spot is None else spot


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LatticeSettings(MeshSettings):
    """The choices of one run."""

    cells: int
    """Along the longest side of the box around the mesh."""


_CELLS = click.Option(
    ["--cells"],
    type=click.IntRange(min=2),
    default=32,
    show_default=True,
    help="Of the lattice, along the longest side of the box around the mesh.",
)


@mesh_command(LatticeSettings, [_CELLS], output="volumetric_deformation.png", method="lm", iterations=60)
def main(settings: LatticeSettings) -> None:
    """Deforms a mesh with the lattice around it; writes the mesh, and draws it before and after."""
    mesh = default_mesh() if settings.mesh is None else meshes.read_mesh(settings.mesh)
    task = deformation(mesh, settings.cells)
    result = solve(energy, task.data, settings)
    leave(settings, mesh, [task.moved_by(result.x["Offset"])])


if __name__ == "__main__":
    main()
