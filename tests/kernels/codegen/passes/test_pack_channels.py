"""Records: three numbers side by side are one load; those that are alone stay as they are."""

from __future__ import annotations

from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.pack_channels import pack_channels
from tests.kernels.codegen.passes.routines import conventions, gather, scatter, statements


def test_what_is_gathered_comes_in_one_load_each_before_anything_is_computed() -> None:
    function = pack_channels(guard_reads(build_loops(lower(gather()))), conventions(gather(), cuda=True))
    loads = statements(function.body, loops.PackLoad)
    assert [(s.operand.field.name, s.width) for s in loads] == [("p.X", 4)]  # those of X are not padded to whole loads
    (fold,) = statements(function.body, loops.Fold)
    (edges,) = fold.body
    assert isinstance(edges, loops.Edges)
    assert edges.body[:1] == tuple(loads)
    evaluate = edges.body[1]
    assert isinstance(evaluate, loops.Evaluate)
    lanes = [load.operand for a, load in evaluate.reads if a.field.name == "p.X"]
    assert {p.lane for p in lanes if isinstance(p, loops.Lane)} == {0, 1, 2}


def test_one_channel_of_a_point_and_atomic_additions_take_no_vector() -> None:
    function = guard_reads(build_loops(lower(scatter())))
    assert pack_channels(function, conventions(scatter(), cuda=True)) == function
