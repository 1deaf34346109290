"""Shape from shading, whose brightness is an intermediate: the energy of problems/shape_from_shading.py."""

from __future__ import annotations

from bench.case import Case, Data, Famous
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
    # Ceres' cost after 12 iterations with its conjugate gradients.
    famous=Famous("statue", statue, target=70.218),
)
