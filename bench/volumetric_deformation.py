"""As-rigid-as-possible deformation of a lattice: the energy of problems/volumetric_deformation.py."""

from __future__ import annotations

import numpy as np
import trimesh

from bench.case import Case, Data
from bench.traffic import Operand, Traffic
from problems import volumetric_deformation as problem


def turned_cube(size: int) -> Data:
    """A cube of about as many points as a picture of `size` x `size`; its top is moved and turned."""
    points = max(4, round(size ** (2 / 3)))
    return problem.deformation(trimesh.creation.box(), cells=points - 2).data


def points(data: Data) -> tuple[int, int]:
    """Of the lattice, and no edges."""
    return int(np.prod(data["Handle"].shape)), 0


CASE = Case(
    name="volumetric_deformation",
    energy=problem.energy,
    data=turned_cube,
    # J depends on Offset and Constraints nowhere.
    traffic=Traffic(
        unknown_channels=6,
        operands=(Operand("Angle", 3), Operand("UrShape", 3), Operand("Handle", kind="uint8")),
        damped=True,
    ),
    method="lm",
    elements=points,
    unit="point",
)
