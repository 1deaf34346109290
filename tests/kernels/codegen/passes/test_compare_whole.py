"""Comparisons of whole numbers: in integers, fractions rounded to the side that decides alike."""

from __future__ import annotations

from fractions import Fraction

import pytest

from optpy import ir
from optpy.kernels.codegen.passes.compare_whole import compare_whole
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr, Number, add, call, const, var
from optpy.symbolic.operations import OPERATIONS
from tests.kernels.codegen.passes.expressions import assert_computes_the_same, counts, through, x
from tests.kernels.codegen.passes.routines import GRID, read

BYTES = ir.Field("bytes", tuple(i.dim for i in GRID), 1, "uint8", ir.Role.DATA)
byte, row = var(read(BYTES, *GRID)), var(ir.IndexValue(Affine.of(GRID[0])))


def compared(sign: str, a: Expr, b: Expr) -> Expr:
    (found,) = through([in_order, compare_whole], call(OPERATIONS[sign], a, b))
    return found


@pytest.mark.parametrize("sign", ["less", "less_equal", "equal"])
@pytest.mark.parametrize("number", [2, Fraction(5, 2), 2.25, -0.5])
@pytest.mark.parametrize("turned", [False, True])
def test_a_constant_becomes_whole(sign: str, number: Number, turned: bool) -> None:
    pair = (const(number), byte) if turned else (byte, const(number))
    before, after = call(OPERATIONS[sign], *pair), compared(sign, *pair)
    assert set(counts(after)) <= {f"whole_{sign}", "never"}
    for value in range(5):
        assert_computes_the_same([before], [after], {byte.key: value})


def test_two_whole_leaves() -> None:
    assert counts(compared("less", byte, row)) == {"whole_less": 1}
    assert counts(compared("less_equal", byte, byte)) == {"always": 1}
    assert counts(compared("equal", row, row)) == {"always": 1}


@pytest.mark.parametrize("other", [x, add(row, const(1)), const(2.0**70)])
def test_others_are_compared_as_numbers(other: Expr) -> None:
    assert "less" in counts(compared("less", byte, other))
