"""Building: one nest, every value once, nothing placed."""

from __future__ import annotations

from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from tests.kernels.codegen.passes.routines import elementwise, gather, points, scatter, statements, stencil


def test_interior_and_border_are_apart_only_where_something_is_read_at_an_offset() -> None:
    nest = points(build_loops(lower(stencil())))
    assert nest.margins == ((2, 0), (0, 1))
    for block in (nest.interior, nest.border):
        assert [type(s) for s in block] == [loops.Evaluate, loops.Store, loops.Total]
    assert points(build_loops(lower(elementwise()))).border == ()


def test_every_local_sum_is_a_fold_of_its_loops() -> None:
    (fold,) = statements(build_loops(lower(gather())).body, loops.Fold)
    (edges,) = fold.body
    assert isinstance(edges, loops.Edges)
    assert [s.name for s in statements(edges.body, loops.Accumulate)] == list(fold.names)


def test_what_others_add_to_is_added_to_atomically() -> None:
    (store,) = statements(build_loops(lower(scatter())).body, loops.Store)
    assert store.atomic
    assert store.update == "+="
