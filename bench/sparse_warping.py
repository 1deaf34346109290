"""As-rigid-as-possible image warping by points between pixels: the energy of problems/sparse_warping.py.

Every pixel of the measured photograph takes part; its border is held by as many points.
"""

from __future__ import annotations

from bench.case import Case, CeresProgram, Data, Famous
from bench.traffic import Operand, Traffic
from problems import sparse_warping as problem
from problems.image_warping import ASTRONAUT_HANDLES, astronaut
from problems.pictures import data_file


def astronaut_by_points(size: int) -> Data:
    """All pixels active; 40 points for each of four discs, and the border stays."""
    handles = [handle.scaled(size / 512) for handle in ASTRONAUT_HANDLES]
    return problem.with_matches(astronaut(size), *problem.points(handles)).data


def cat256() -> Data | None:
    """9 points moved at once from the identity, a quarter of cat512's pixels; None without its files."""
    if data_file("image_warping/cat512.png") is None:
        return None
    return problem.default_warp(256).data


def pixels_and_matches(data: Data) -> tuple[int, int]:
    """The picture's pixels, and the points."""
    return data["Mask"].size, len(data["match"])


CASE = Case(
    name="sparse_warping",
    energy=problem.energy,
    data=astronaut_by_points,
    # J depends on Offset and Target nowhere.
    traffic=Traffic(
        unknown_channels=3,
        operands=(Operand("Angle"), Operand("UrShape", 2), Operand("Mask", kind="uint8")),
        damped=True,
        edge_slots=8,  # row and column of four pixels
        edge_operands=(Operand("Share", 4),),
    ),
    method="lm",
    ceres=CeresProgram(
        "ceres_sparse_warping.cc",
        ("w_reg", "Offset", "Angle", "UrShape", "Mask", "w_fit", "match", "Share", "Target"),
    ),
    famous=Famous("cat256", cat256),
    elements=pixels_and_matches,
)
