"""Shape from shading, whose brightness is an intermediate: the energy of problems/shape_from_shading.py."""

from __future__ import annotations

from bench.case import Case, CeresProgram, CeresRun, Data, Famous
from bench.traffic import Operand, Traffic
from problems import shape_from_shading as problem
from problems.pictures import data_file


def relief(size: int) -> Data:
    """A made relief, most of whose pixels take part."""
    return problem.relief(size).data


def statue() -> Data | None:
    """The scan of 640 x 480 pixels; None without its files."""
    if data_file("shape_from_shading/default.npz") is None:
        return None
    return problem.statue().data


CERES_RUNS = (CeresRun("cg"), CeresRun("cholesky", max_iterations=12))

CASE = Case(
    name="shape_from_shading",
    energy=problem.energy,
    data=relief,
    traffic=Traffic(
        unknown_channels=1,
        operands=(Operand("X"), Operand("D"), Operand("across", kind="uint8"), Operand("down", kind="uint8")),
        damped=True,
    ),
    method="lm",
    ceres=CeresProgram(
        "ceres_shape_from_shading.cc",
        (
            *("X", "D", "Im", "across", "down", "w_fit", "w_smooth", "w_shade"),
            *("focal_x", "focal_y", "centre_x", "centre_y"),
            *(f"light{n}" for n in range(9)),
        ),
    ),
    # Ceres' costs after 12 iterations: with its conjugate gradients 70.2184, with sparse Cholesky 67.6047.
    famous=Famous("statue", statue, targets=(70.2185, 67.605), runs=CERES_RUNS),
)
