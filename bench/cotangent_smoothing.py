"""Smoothing of a mesh with cotangent weights: the energy of problems/cotangent_smoothing.py."""

from __future__ import annotations

from bench.case import Case, CeresProgram, Data, Famous
from bench.torus import torus
from bench.traffic import Operand, Traffic
from problems import cotangent_smoothing as problem
from problems import meshes


def noisy_torus(size: int) -> Data:
    """A torus of `size` x `size` vertices, with noise."""
    return problem.with_noise(torus(size)).data


def spot() -> Data | None:
    """11,533 vertices, 34,593 edges, with noise; None without its file."""
    mesh = meshes.data_mesh("spot.obj")
    return None if mesh is None else problem.with_noise(mesh).data


def vertices_and_edges(data: Data) -> tuple[int, int]:
    """The mesh's vertices, and its edges."""
    return len(data["X"]), len(data["wedges"]) + len(data["border"])


CASE = Case(
    name="cotangent_smoothing",
    energy=problem.energy,
    data=noisy_torus,
    traffic=Traffic(unknown_channels=3, operands=(Operand("X", 3),), damped=True, edge_slots=4),
    method="lm",
    ceres=CeresProgram("ceres_cotangent_smoothing.cc", ("w_fit", "w_reg", "X", "A", "wedges", "border")),
    famous=Famous("spot", spot),
    elements=vertices_and_edges,
    unit="edge",
    largest=1024,
)
