"""As-rigid-as-possible image warping: the energy of problems/image_warping.py.

The kernels are measured on a photograph of which every pixel takes part, so that no time is saved by a mask.
"""

from __future__ import annotations

from bench.case import Case, CeresProgram, CeresRun, Data, Famous
from bench.traffic import Operand, Traffic
from problems import image_warping as problem
from problems.pictures import data_file


def astronaut(size: int) -> Data:
    """All pixels active; four discs of handles, and the border stays."""
    return problem.astronaut(size).data


def cat512() -> Data | None:
    """9 handles moved at once from the identity, 101,406 active pixels of 512 x 512; None without its files."""
    if data_file("image_warping/cat512.png") is None:
        return None
    return problem.cat512().data


CERES_RUNS = (
    CeresRun("cholesky", max_iterations=30),
    CeresRun("cg", max_iterations=30),
    CeresRun("cg", eta=1e-3, max_iterations=30),
)

CASE = Case(
    name="image_warping",
    energy=problem.energy,
    data=astronaut,
    # J depends on Offset nowhere; on Constraints and Mask because they say which residuals there are.
    traffic=Traffic(
        unknown_channels=3,
        operands=(
            Operand("Angle"),
            Operand("UrShape", 2),
            Operand("Constraints", 2),
            Operand("Mask", kind="uint8"),
        ),
        damped=True,
    ),
    method="lm",
    ceres=CeresProgram(
        "ceres_image_warping.cc", ("w_reg", "Offset", "Angle", "UrShape", "Mask", "w_fit", "Constraints")
    ),
    famous=Famous("cat512", cat512, targets=(38.2,), runs=CERES_RUNS),
)
