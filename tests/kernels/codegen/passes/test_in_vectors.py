"""Vectors: what touches its own point alone is loaded and stored by wide instructions."""

from __future__ import annotations

import pytest

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.in_vectors import in_vectors, is_elementwise
from tests.kernels.codegen.passes.routines import conventions, elementwise, gather, scatter, statements, stencil


@pytest.mark.parametrize(
    ("routine", "expected"), [(elementwise(), True), (stencil(), False), (gather(), False), (scatter(), False)]
)
def test_what_is_elementwise(routine: ir.Routine, expected: bool) -> None:
    assert is_elementwise(guard_reads(build_loops(lower(routine))), conventions(routine).symbols) is expected


def test_each_run_is_one_load_or_store_and_padding_joins_no_sum() -> None:
    where = conventions(elementwise(), cuda=True)
    (nest,) = in_vectors(guard_reads(build_loops(lower(elementwise()))), where, (0,), None, 4).body
    assert isinstance(nest, loops.Vectors)
    assert nest.width == 4
    assert [(s.step, s.stride) for s in statements(nest.body, loops.RunLoad)] == [(4, 1)]
    assert [(s.step, s.stride) for s in statements(nest.body, loops.RunStore)] == [(4, 1)]
    (loop,) = statements(nest.body, loops.Loop)
    assert loop.kind == "unrolled"
    (total,) = statements(loop.body, loops.Accumulate)
    assert total.guard == loops.Flag("valid")
    (evaluate,) = statements(loop.body, loops.Evaluate)
    assert all(isinstance(load.operand, loops.Lane) for _, load in evaluate.reads)
