"""Conversions: explicit, one for each leaf or flag that something takes as a number."""

from __future__ import annotations

import pytest

from optpy import ir
from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.codegen.passes.compare_whole import compare_whole
from optpy.kernels.codegen.passes.convert import convert
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr, add, call, const, mul, var
from optpy.symbolic.operations import OPERATIONS
from tests.kernels.codegen.passes.expressions import VALUES, assert_computes_the_same, counts, through, x, y
from tests.kernels.codegen.passes.routines import GRID, read


def leaf(dtype: str) -> Expr:
    return var(read(ir.Field(dtype, tuple(i.dim for i in GRID), 1, dtype, ir.Role.DATA), *GRID))


LEAVES = [leaf(dtype) for dtype in (ir.REAL, "float32", "float64", "uint8", "int32", "bool")]
LOCAL, ROW = var(ir.LocalName("s")), var(ir.IndexValue(Affine.of(GRID[0])))


def converted(dtype: str, *values: Expr) -> tuple[Expr, ...]:
    return through([in_order, compare_whole, lambda f: convert(f, c_dialect(dtype))], *values)


@pytest.mark.parametrize(("dtype", "expected"), [("float32", 5), ("float64", 4)])
def test_leaves_of_other_types_become_numbers(dtype: str, expected: int) -> None:
    """Of float32: all but its own; of float64: a sum is in double already."""
    e = [add(x, f) for f in (*LEAVES, LOCAL, ROW)]
    found = converted(dtype, *e)
    numbers = 1 + expected  # the flag that a byte is, too
    assert counts(*found)["number"] == numbers
    assert counts(*found)["nonzero"] == 1


def test_flags_are_numbers_only_where_something_computes_with_them() -> None:
    less, more = call(OPERATIONS["less"], x, y), call(OPERATIONS["less"], y, x)
    e = [mul(less, more), mul(more, x), add(more, x)]
    found = converted("float64", *e)
    assert counts(*found)["number"] == 1
    assert_computes_the_same(e, found, VALUES)


def test_whole_numbers_are_compared_as_they_are() -> None:
    (found,) = converted("float32", call(OPERATIONS["less"], ROW, const(3)))
    assert counts(found) == {"whole_less": 1}
