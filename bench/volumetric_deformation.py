"""As-rigid-as-possible deformation of a lattice: the energy of problems/volumetric_deformation.py."""

from __future__ import annotations

import numpy as np
import trimesh

from bench.case import Case, CeresProgram, Data
from bench.traffic import Operand, Traffic
from problems import volumetric_deformation as problem


def turned_block(size: int) -> Data:
    """A block of `size` x `size` points in all, nearly a cube; its top is moved and turned."""
    depth = max(d for d in divisors(size**2) if d**3 <= size**2)
    height = max(d for d in divisors(size**2 // depth) if d**2 <= size**2 // depth)
    sides = np.array([size**2 // (depth * height), height, depth])
    box = trimesh.creation.box(extents=sides - 2)  # of cells of length 1, and half of one around it
    return problem.deformation(box, cells=int(sides.max()) - 2).data


def divisors(number: int) -> list[int]:
    """All of them."""
    return [d for d in range(1, number + 1) if number % d == 0]


def points(data: Data) -> tuple[int, int]:
    """Of the lattice, and no edges."""
    return int(np.prod(data["Handle"].shape)), 0


CASE = Case(
    name="volumetric_deformation",
    energy=problem.energy,
    data=turned_block,
    # J depends on Offset and Constraints nowhere.
    traffic=Traffic(
        unknown_channels=6,
        operands=(Operand("Angle", 3), Operand("UrShape", 3), Operand("Handle", kind="uint8")),
        damped=True,
    ),
    method="lm",
    ceres=CeresProgram(
        "ceres_volumetric_deformation.cc",
        ("w_fit", "w_reg", "Offset", "Angle", "UrShape", "Constraints", "Handle"),
    ),
    elements=points,
    unit="point",
)
