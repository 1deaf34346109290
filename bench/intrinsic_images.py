"""A photograph taken apart into reflectance and shading: the energy of problems/intrinsic_images.py."""

from __future__ import annotations

from bench.case import Case, Data
from bench.traffic import Operand, Traffic
from problems import intrinsic_images as problem
from problems import pictures


def coffee(size: int) -> Data:
    """A photograph, square."""
    picture = pictures.resize(problem.default_photograph().picture, (size, size))
    return problem.Photograph(picture).data


CASE = Case(
    name="intrinsic_images",
    energy=problem.energy,
    data=coffee,
    # J depends on R and Chroma by the weights; on S and Image nowhere.
    traffic=Traffic(unknown_channels=4, operands=(Operand("R", 3), Operand("Chroma", 3)), damped=False),
    method="gn",
    reweighted=True,
)
