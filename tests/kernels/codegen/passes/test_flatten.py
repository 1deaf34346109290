"""Addresses: rows a pitch apart, interleaved channels, boxes of local memory."""

from __future__ import annotations

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.flatten import flatten
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE
from tests.kernels.codegen.passes.routines import GRID, OUT, conventions, gather, read, statements, stencil


def addresses(routine: ir.Routine, cuda: bool = False) -> set[str]:
    function = flatten(guard_reads(build_loops(lower(routine))), conventions(routine, cuda=cuda))
    reads = [load.operand for s in statements(function.body, loops.Evaluate) for _, load in s.reads]
    return {str(p.address) for p in reads if isinstance(p, loops.MemoryOperand)}


def test_rows_are_a_pitch_apart() -> None:
    points = (("i0", "i1"), ("i0", "i1 + 1"), ("i0 - 2", "i1"))
    assert addresses(stencil()) == {f"({i}) * pitch(H, W) + {j}" for i, j in points}


def test_points_have_the_stride_of_their_target() -> None:
    assert addresses(gather()) == {"(i0) * 3", "(edges[k, 1]) * 3"}
    assert addresses(gather(), cuda=True) == {"(i0) * 3", "(edges[k, 1]) * 4"}  # padded where gathered


def test_local_memory_has_extents_of_its_own() -> None:
    tile = ir.Field("tile", OUT.dims, 1, ir.REAL, ir.Role.STORED)
    i, j = GRID
    body = (loops.Alloc(tile, (4, 6)), loops.Store(loops.MemoryOperand(read(tile, i, Affine.of(j) + 1)), ONE))
    (store,) = statements(flatten(loops.Function("f", body), conventions()).body, loops.Store)
    assert isinstance(store.operand, loops.MemoryOperand)
    assert str(store.operand.address) == "(i0) * 6 + i1 + 1"
