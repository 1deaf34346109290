"""A photograph taken apart into reflectance and shading: the energy of problems/intrinsic_images.py."""

from __future__ import annotations

from bench.case import Case, CeresProgram, CeresRun, Data
from bench.traffic import Operand, Traffic
from problems import intrinsic_images as problem
from problems import pictures


def coffee(size: int) -> Data:
    """A photograph, square."""
    picture = pictures.resize(problem.default_photograph().picture, (size, size))
    return problem.Photograph(picture).data


# As many steps as the problem's program makes: then the costs by the weights of each point hardly fall any more.
CERES_RUNS = (CeresRun("cholesky", max_iterations=12), CeresRun("cg", max_iterations=12))

CASE = Case(
    name="intrinsic_images",
    energy=problem.energy,
    data=coffee,
    # J depends on R and Chroma by the weights; on S and Image nowhere.
    traffic=Traffic(unknown_channels=4, operands=(Operand("R", 3), Operand("Chroma", 3)), damped=False),
    method="gn",
    ceres=CeresProgram(
        "ceres_intrinsic_images.cc",
        ("R", "S", "Image", "Chroma", "w_fit", "w_reflectance", "w_shading", "w_level", "p", "steepness"),
        CERES_RUNS,
    ),
    reweighted=True,
)
