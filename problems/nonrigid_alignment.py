"""Alignment of one mesh with another that has its own shape and triangles: `python -m problems.nonrigid_alignment`.

Every vertex of the source gets a place, a rotation and a weight. It is pulled onto the plane that touches the target at
the point nearest to it; the weight turns pulls off that would cost too much; the vector to each neighbour shall stay
what it was, up to the vertex's own rotation. After each nonlinear iteration the nearest points are found anew, and the
mesh gets softer. With the best weights a pull of the length d costs 1/2 w_fit^2 d^2 (1 - d^2 / (2 reach^2)), where
reach = sqrt(2) w_conf / w_fit, and nothing pulls farther than that.

Reference: Z. DeVito et al.: Opt, ACM Transactions on Graphics 36(5), 2017 (robust mesh deformation); C. Zach: Robust
Bundle Adjustment Revisited, ECCV 2014 (the weights); O. Sorkine, M. Alexa: As-Rigid-As-Possible Surface Modeling,
SGP 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op

from . import meshes, pictures
from .mesh_command import MeshSettings, leave, mesh_command
from .surface import Surface, vertex_normals

# ---- the energy --------------------------------------------------------------------------------------------

V, E = op.dims("V E")
v, e = op.indices(V, E)

X = op.Unknown("X", (V,), 3)  # where the vertex goes
Rotation = op.Unknown("Rotation", (V,), op.SO3)  # how its surroundings turn
Weight = op.Unknown("Weight", (V,))  # 1: the target pulls, 0: it does not
UrShape = op.Array("UrShape", (V,), 3)  # where the vertex was
Target = op.Array("Target", (V,), 3)  # the point of the target that is nearest
Normal = op.Array("Normal", (V,), 3)  # of the target at that point
Matched = op.Array("Matched", (V,), dtype=bool)  # whether it is a match at all
edges = op.Graph("edges", E, (V, V))  # each edge of the source from both its ends
w_fit, w_conf, w_reg = op.params("w_fit w_conf w_reg")

a, b = edges[e]

energy = op.Energy(
    fit=op.where(Matched[v], w_fit * Weight[v] * op.dot(Normal[v], X[v] - Target[v]), 0),
    conf=op.where(Matched[v], w_conf * (1 - Weight[v] ** 2), 0),
    reg=w_reg * ((X[a] - X[b]) - Rotation[a] @ (UrShape[a] - UrShape[b])),
    fixed={Weight: ~Matched[v]},
)

# ---- its data ----------------------------------------------------------------------------------------------

REACH = 0.1
"""Nothing pulls from farther away, in diagonals of the target's bounding box."""
STEEPEST = 60.0
"""Degrees between the normals of a vertex and of its match, at most."""
STIFFNESS = (10.0, 0.1)
"""The weight of rigidity at the first and at the last iteration; that of the pulls is 1."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """A mesh, and the surface that it shall lie on."""

    source: Trimesh
    target: Surface

    @property
    def reach(self) -> float:
        """The length from which on nothing is pulled."""
        return REACH * float(np.linalg.norm(self.target.mesh.extents))

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name; the solve starts from the source as it is."""
        vertices = np.asarray(self.source.vertices, np.float64)
        count = len(vertices)
        return dict(
            X=vertices,
            Rotation=np.tile([0.0, 0.0, 0.0, 1.0], (count, 1)),
            Weight=np.ones(count),
            UrShape=vertices,
            edges=meshes.directed_edges(self.source),
            w_fit=1.0,
            w_conf=self.reach / 2**0.5,
            w_reg=STIFFNESS[0],
            **self.matches(vertices),
        )

    def matches(self, vertices: NDArray[Any]) -> dict[str, Any]:
        """What changes with the places of the vertices, (V, 3): the nearest points, by name in the energy."""
        nearest = self.target.nearest(vertices)
        facing = (vertex_normals(self.source, vertices) * nearest.normals).sum(axis=1) > np.cos(np.deg2rad(STEEPEST))
        close = nearest.distances < self.reach
        return dict(Target=nearest.points, Normal=nearest.normals, Matched=facing & close)

    def distance(self, vertices: NDArray[Any]) -> float:
        """The mean distance of vertices, (V, 3), to the target."""
        return float(self.target.nearest(vertices).distances.mean())


def default_alignment() -> Alignment:
    """A man and a woman where the data folder is there, a pebble and a bent one elsewhere."""
    return human_alignment() or Alignment(meshes.pebble(3), Surface(bent(meshes.pebble())))


def human_alignment() -> Alignment | None:
    """A man and a woman; None where the data folder is missing."""
    man, woman = (pictures.data_file(f"nonrigid_registration/human_{name}.obj") for name in ("man", "woman"))
    if man is None or woman is None:
        return None
    return Alignment(meshes.read_mesh(man), Surface(meshes.read_mesh(woman)))


def bent(mesh: Trimesh, degrees: float = 40.0, scale: float = 1.1) -> Trimesh:
    """The mesh wound around an axis along z, so that its highest and lowest normals differ by an angle, and scaled."""
    x, y, z = np.asarray(mesh.vertices, np.float64).T
    radius = float(np.ptp(y)) / np.deg2rad(degrees)
    angle = y / radius
    wound = np.stack([radius - (radius - x) * np.cos(angle), (radius - x) * np.sin(angle), z], axis=1)
    return meshes.moved(mesh, scale * wound)


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlignmentSettings(MeshSettings):
    """The choices of one run."""

    target: Path | None
    """The file of the mesh to align with; None: the problem's own."""


def chosen(settings: AlignmentSettings) -> Alignment:
    """The meshes of the command line.

    Raises:
        UsageError: one is given without the other.
    """
    if settings.mesh is None and settings.target is None:
        return default_alignment()
    if settings.mesh is None or settings.target is None:
        raise click.UsageError("--mesh and --target go together")
    return Alignment(meshes.read_mesh(settings.mesh), Surface(meshes.read_mesh(settings.target)))


def align(task: Alignment, settings: AlignmentSettings) -> NDArray[Any]:
    """Iterates, with new matches and a softer mesh after each step; returns the places of the vertices, (V, 3)."""
    solver = op.compile(energy, device=settings.device, dtype=settings.dtype)
    session = solver.start(task.data, method=settings.method)
    for iteration, w_reg in enumerate(np.geomspace(*STIFFNESS, settings.iterations)):
        session.update(w_reg=float(w_reg), **task.matches(session["X"]))
        record = session.step()
        if not settings.quiet:
            facts = f"w_reg {w_reg:7.3f}  cost {record.cost:.6e}  linear {record.linear_iterations:4d}"
            click.echo(f"{iteration + 1:4d}  {facts}  distance {task.distance(session['X']):.6f}")
    return np.asarray(session["X"])


@mesh_command(
    AlignmentSettings,
    [
        click.Option(
            ["--target"],
            type=click.Path(dir_okay=False, path_type=Path),
            help="The mesh to align with; goes with --mesh.  [default: the problem's own]",
        )
    ],
    output="nonrigid_alignment.png",
    method="lm",
    iterations=40,
)
def main(settings: AlignmentSettings) -> None:
    """Deforms a mesh until it lies on another; writes it, and draws it, the other, and the result."""
    task = chosen(settings)
    vertices = align(task, settings)
    if not settings.quiet:
        before, after = task.distance(np.asarray(task.source.vertices)), task.distance(vertices)
        click.echo(f"\nmean distance to the target: {before:.6f} before, {after:.6f} after")
    leave(settings, task.source, [task.target.mesh, meshes.moved(task.source, vertices)])


if __name__ == "__main__":
    main()
