"""Routines that add to what other points add to, on their way to a kernel."""

from __future__ import annotations

import pytest

import optpy as op
from optpy import ir
from optpy.energy.derive.vectors import vector
from optpy.errors import InternalError
from optpy.ir import VectorKind
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.over_segments import over_segments
from optpy.kernels.codegen.rewrite import map_routine
from optpy.kernels.codegen.store import store_values
from optpy.kernels.codegen.symbol_table import SymbolTable, gathered_grids, segment_list
from optpy.kernels.codegen.tables import Column, tables_of
from optpy.scheduling.values import storage_candidates, stored_values
from optpy.symbolic.expr import Expr, var
from optpy.symbolic.traverse import variables
from tests.support.schedules import SCATTERS, routines_of

V, E = op.dims("V E")
v, e = op.indices(V, E)
X, U = op.Unknown("X", (V,), 2), op.Unknown("U", (E,))
a, b = op.Graph("g", E, (V, V))[e]
ENERGY = op.Energy(r=U[e] * op.sin(X[a][0]) - X[b][1], s=U[e + 1] * X[a][1], fixed={U: op.value(e) == 0})


def edges(energy: op.Energy = ENERGY, group: ir.Group = ir.Group.PRODUCT) -> ir.Routine:
    (found,) = (r for r in routines_of(energy, SCATTERS[0]).groups[group] if r.atomic_adds)
    return found


def test_every_edge_is_visited_also_where_its_own_unknown_is_fixed() -> None:
    assert ir.Task.PRODUCT.over_unknowns
    assert not segment_list(edges(), solved_only=True).solved_only


def test_what_is_added_to_is_numbered_with_its_tables() -> None:
    routine = edges()
    symbols = SymbolTable()
    symbols.add(routine, solved_only=True)
    assert {vector(VectorKind.AP, u) for u in ENERGY.problem.unknowns} <= symbols.fields.keys()
    graph = ENERGY.graphs[0]
    assert {Column(graph, 0), Column(graph, 1)} == symbols.tables.keys() == set(tables_of(routine))


def test_tables_and_grids_that_are_only_added_to_count() -> None:
    routine = edges()
    domain, row = routine.domain, ir.point(routine.domain)[0]
    graph, target = ENERGY.graphs[0], vector(VectorKind.AP, ENERGY.problem.unknowns[0])
    only = ir.Routine("only", domain, atomic_adds=(ir.AtomicAdd(ir.Access(target, graph.at(1, row), 0), var(
        ir.IndexValue(row))),))  # fmt: skip
    assert tables_of(only) == [Column(graph, 1)]
    assert gathered_grids([only]) == {target.dims}


def test_the_interior_is_where_what_is_added_to_lies_inside() -> None:
    routine = edges()
    targets = [x.target for x in routine.atomic_adds if x.target.field.name == "Ap.U"]
    assert sorted(t.index[0].constant for t in targets) == [0, 1]
    assert lower(routine).margins == ((0, 1),)
    bare = ir.Routine("bare", routine.domain, atomic_adds=tuple(ir.AtomicAdd(t, var(ir.IndexValue(
        ir.point(routine.domain)[0]))) for t in targets))  # fmt: skip
    assert lower(bare).margins == ((0, 1),)


def test_values_are_rewritten_and_scheduled_like_all_others() -> None:
    routine = edges()
    same = map_routine(routine, lambda roots: roots)
    assert same == routine
    found = storage_candidates([routine])
    apart, packed = (stored_values(found, grids) for grids in ((), gathered_grids([routine])))
    assert {v.memory.field.dims[0].name for v in packed} == {"V"}  # sin(X) and cos(X), at the vertices
    group = ir.Group.PRODUCT
    (scheduled,), (moved,) = (store_values({group: [routine]}, values)[group] for values in (apart, packed))
    assert [x.target for x in scheduled.atomic_adds] == [x.target for x in routine.atomic_adds]

    def read(routine: ir.Routine) -> set[str]:
        roots: list[Expr] = [x.value for x in routine.atomic_adds]
        keys = [k.key for k in variables(roots) if isinstance(k.key, ir.Access) and k.key.field.role is ir.Role.STORED]
        return {k.field.name for k in keys}

    assert read(scheduled) == {"stored.0", "stored.1", "free.U"}
    assert read(moved) == {"stored.0", "free.U"}
    ir.verify(moved)


def test_there_is_no_c_for_atomic_additions() -> None:
    with pytest.raises(InternalError, match="atomic"):
        over_segments(guard_reads(build_loops(lower(edges()))), 0, 0)
