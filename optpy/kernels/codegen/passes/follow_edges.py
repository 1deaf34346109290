"""Loops over the edges at a point become loops over positions in the tables that are sorted by a slot."""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import Incidence, loops
from optpy.kernels.codegen.tables import Offsets, Sorted, edges_by_number
from optpy.symbolic.affine import Affine


def follow_edges(function: loops.Function) -> loops.Function:
    """Lower every ``Edges``: its position ``k_q`` runs over the row of offsets at ``k_at``; the edge's own number is
    fetched where something asks for it."""

    def rule(s: loops.Statement) -> loops.Block:
        return _positions(s.loop, s.body) if isinstance(s, loops.Edges) else (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def _positions(loop: Incidence, body: loops.Block) -> loops.Block:
    offsets, at, position = Offsets(loop.graph, loop.slot), f"{loop.edge}_at", loops.Variable(f"{loop.edge}_q")
    begin = Affine.of(loops.Variable(at))
    extents = tuple(map(Affine.of, loop.graph.slots[loop.slot][1:]))
    number: loops.Block = ()
    leaves = [key for s in loops.walk(body) if isinstance(s, loops.Evaluate) for key in s.leaves]
    if edges_by_number(leaves, {loop.edge: loop}):
        fetched = loops.TableLoad(Sorted(loop.graph, loop.slot, None), Affine.of(position))
        number = (loops.Let(str(loop.edge), fetched),)
    return (
        loops.Let(at, loops.Flat(loop.at, extents)),
        loops.Loop(position, loops.TableLoad(offsets, begin), loops.TableLoad(offsets, begin + 1), (*number, *body)),
    )
