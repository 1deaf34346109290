"""Records: three numbers side by side are one load; those that are alone stay as they are."""

from __future__ import annotations

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.pack_channels import pack_channels
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import var
from tests.kernels.codegen.passes.routines import (
    EDGES,
    GRAPH,
    G,
    X,
    conventions,
    gather,
    read,
    scatter,
    statements,
)


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


def scatter_points() -> ir.Routine:
    """g[first end of e + 1] += X[first end of e], for every edge e and channel."""
    (e,) = EDGES
    (here,), (there,) = GRAPH.at(0, Affine.of(e)), GRAPH.at(0, Affine.of(e) + 1)
    adds = (ir.AtomicAdd(read(G, there, channel=c), var(read(X, here, channel=c))) for c in range(3))
    return ir.Routine("scatter_points", EDGES, atomic_adds=tuple(adds))


def test_what_is_added_to_a_padded_point_is_one_vector() -> None:
    where = conventions(scatter_points(), cuda=True)
    function = guard_reads(build_loops(lower(scatter_points())))
    assert not statements(pack_channels(function, where).body, loops.PackAdd)  # its points are not padded
    where.symbols.added.add(G)
    packed = pack_channels(function, where)
    (add,), (zeros,) = statements(packed.body, loops.PackAdd), statements(packed.body, loops.Zeros)
    assert (add.operand.field, add.operand.access.channel, add.width, add.lanes) == (G, 0, 4, (0, 1, 2))
    assert {add.guards} == {s.guards for s in statements(function.body, loops.Store)}
    assert (zeros.name, zeros.length) == (add.name, 4)
    lanes = [s for s in statements(packed.body, loops.Store) if isinstance(s.operand, loops.Lane)]
    assert len(lanes) == 3
    assert not any(s.atomic or s.guards or s.update != "=" for s in lanes)


def test_one_channel_of_a_point_takes_no_vector() -> None:
    function = guard_reads(build_loops(lower(scatter())))
    assert pack_channels(function, conventions(scatter(), cuda=True)) == function
