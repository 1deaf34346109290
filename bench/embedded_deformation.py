"""Embedded deformation of a mesh: the energy of problems/embedded_deformation.py, 12 unknowns at every vertex."""

from __future__ import annotations

from bench.case import Case, CeresProgram, Data, Famous
from bench.torus import torus, vertices_and_edges
from bench.traffic import Operand, Traffic
from problems import embedded_deformation as problem
from problems import meshes


def bent_torus(size: int) -> Data:
    """A torus of `size` x `size` vertices that stands upright."""
    return problem.deformation(torus(size)).data


def fish() -> Data | None:
    """10,786 vertices, 32,352 edges; None without its file."""
    mesh = meshes.data_mesh("fish.obj")
    return None if mesh is None else problem.deformation(mesh).data


CASE = Case(
    name="embedded_deformation",
    energy=problem.energy,
    data=bent_torus,
    # J depends on Translation and Constraints nowhere.
    traffic=Traffic(
        unknown_channels=12,
        operands=(Operand("Matrix", 9), Operand("UrShape", 3), Operand("Handle", kind="uint8")),
        damped=True,
        edge_slots=2,
    ),
    method="lm",
    ceres=CeresProgram(
        "ceres_embedded_deformation.cc",
        ("w_rot", "w_reg", "w_con", "Matrix", "Translation", "UrShape", "Constraints", "Handle", "edges"),
    ),
    famous=Famous("fish", fish),
    elements=vertices_and_edges,
    unit="edge",
    largest=1024,
)
