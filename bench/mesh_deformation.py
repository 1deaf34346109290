"""As-rigid-as-possible deformation of a mesh, with Euler angles: an energy of problems/mesh_deformation.py."""

from __future__ import annotations

from bench.case import Case, CeresProgram, Data, Famous
from bench.torus import torus, vertices_and_edges
from bench.traffic import Operand, Traffic
from problems import mesh_deformation as problem
from problems import meshes


def bent_torus(size: int) -> Data:
    """A torus of `size` x `size` vertices that stands upright."""
    return problem.deformation(torus(size)).data("euler")


def koala() -> Data | None:
    """49,999 vertices, 149,991 edges; None without its file."""
    mesh = meshes.data_mesh("koala.obj")
    return None if mesh is None else problem.deformation(mesh).data("euler")


CASE = Case(
    name="mesh_deformation",
    energy=problem.euler,
    data=bent_torus,
    # J depends on Offset and Constraints nowhere.
    traffic=Traffic(
        unknown_channels=6,
        operands=(Operand("Angle", 3), Operand("UrShape", 3), Operand("Handle", kind="uint8")),
        damped=True,
        edge_slots=2,
    ),
    method="lm",
    ceres=CeresProgram(
        "ceres_mesh_deformation.cc",
        ("w_fit", "w_reg", "Offset", "Angle", "UrShape", "Constraints", "Handle", "edges"),
    ),
    famous=Famous("koala", koala),
    elements=vertices_and_edges,
    unit="edge",
    largest=1024,
)
