"""Shape from shading in unknown light: the energy of problems/shape_and_shading.py."""

from __future__ import annotations

from bench.case import Case, Data
from bench.traffic import Operand, Traffic
from problems import shape_and_shading as problem
from problems.shape_from_shading import relief


def unlit_relief(size: int) -> Data:
    """A made relief, most of whose pixels take part."""
    return problem.with_unknown_light(relief(size))


CASE = Case(
    name="shape_and_shading",
    energy=problem.energy,
    data=unlit_relief,
    traffic=Traffic(
        unknown_channels=1,
        operands=(
            Operand("X"),
            Operand("D"),
            Operand("across", kind="uint8"),
            Operand("down", kind="uint8"),
            Operand("L", 9, kind="shared"),
        ),
        damped=True,
    ),
    method="lm",
)
