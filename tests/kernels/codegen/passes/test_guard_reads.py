"""Guards: at the border those that are needed, in the interior none."""

from __future__ import annotations

from optpy.ir import Access, InBounds, loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from tests.kernels.codegen.passes.routines import gather, points, scatter, statements, stencil


def guards(block: loops.Block) -> dict[str, tuple[InBounds, ...]]:
    reads: dict[Access, loops.Load] = {}
    for s in statements(block, loops.Evaluate):
        reads |= dict(s.reads)
    return {str(a): load.guards for a, load in reads.items()}


def test_reads_at_an_offset_are_guarded_at_the_border_alone() -> None:
    nest = points(guard_reads(build_loops(lower(stencil()))))
    assert set(guards(nest.interior).values()) == {()}
    border = guards(nest.border)
    assert {name: [str(g) for g in found] for name, found in border.items()} == {
        "A[i0, i1]": [],
        "A[i0, i1 + 1]": ["in_bounds(i1 + 1, W)"],
        "A[i0 - 2, i1]": ["in_bounds(i0 - 2, H)"],
    }


def test_what_slots_of_an_edge_point_at_was_checked_with_the_data() -> None:
    assert set(guards(guard_reads(build_loops(lower(gather()))).body).values()) == {()}


def test_an_addition_at_an_entry_that_may_be_outside_is_guarded() -> None:
    (store,) = statements(guard_reads(build_loops(lower(scatter()))).body, loops.Store)
    assert [str(g) for g in store.guards] == ["in_bounds(edges[i0 + 1, 0], V)"]
