"""Routines by hand, one of each kind that passes treat differently, and what the tests count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.dialect import c_dialect, cuda_dialect
from optpy.kernels.codegen.layout import CPU, CUDA
from optpy.kernels.codegen.symbol_table import SymbolTable, gathered_fields, gathered_grids
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE, Expr, add, const, mul, var

H, W, V, E = ir.Extent("H"), ir.Extent("W"), ir.Extent("V"), ir.Extent("E")
GRID, VERTICES, EDGES = ir.canonical_domain((H, W)), ir.canonical_domain((V,)), ir.canonical_domain((E,))
A = ir.Field("A", (H, W), 1, ir.REAL, ir.Role.DATA)
OUT = ir.Field("out", (H, W), 1, ir.REAL, ir.Role.VECTOR)
X = ir.Field("X", (V,), 3, ir.REAL, ir.Role.DATA)
P, DELTA = (ir.Vector(kind, X).field for kind in (ir.VectorKind.P, ir.VectorKind.DELTA))
G = ir.Field("g", (V,), 3, ir.REAL, ir.Role.VECTOR)
LOOPS = ir.LoopVariable("k", V), ir.LoopVariable("l", E)
GRAPH = ir.Hypergraph("edges", E, ((V,), (V,)))


def read(field: ir.Field, *index: Affine | ir.LoopVariable, channel: int = 0) -> ir.Access:
    return ir.Access(field, tuple(map(Affine.of, index)), channel)


def stencil() -> ir.Routine:
    """out[i, j] = A[i, j] + A[i, j + 1] + A[i - 2, j], and the sum of A[i, j]."""
    i, j = map(Affine.of, GRID)
    reads = [read(A, i, j), read(A, i, j + 1), read(A, i + -2, j)]
    total = add(*map(var, reads))
    return ir.Routine("stencil", GRID, (ir.Assignment(read(OUT, i, j), total),), (ir.Reduce("s", var(reads[0])),))


def elementwise() -> ir.Routine:
    """out[i, j] = 2 A[i, j], and the largest magnitude of A[i, j]."""
    here = ir.point(GRID)
    value = var(read(A, *here))
    store = ir.Assignment(read(OUT, *here), mul(const(2), value))
    return ir.Routine("elementwise", GRID, (store,), (ir.Reduce("m", value, maximum=True),))


def gather() -> ir.Routine:
    """g[v] = the sum of X[v] - p[other end], over the edges whose first end is v."""
    (v,) = VERTICES
    edge = ir.LoopVariable("k", E)
    (other,) = GRAPH.at(1, Affine.of(edge))
    loop = ir.Incidence(edge, GRAPH, 0, (Affine.of(v),))
    names = tuple(f"local{c}" for c in range(3))
    values = tuple(add(var(read(X, v, channel=c)), mul(const(-1), var(read(P, other, channel=c)))) for c in range(3))
    stores = tuple(ir.Assignment(read(G, v, channel=c), var(ir.LocalName(name))) for c, name in enumerate(names))
    return ir.Routine("gather", VERTICES, stores, locals=(ir.LocalSum(names, (loop,), ONE, values),))


def scatter() -> ir.Routine:
    """g[first end of e + 1] += X[first end of e], for every edge e."""
    (e,) = EDGES
    (here,), (there,) = GRAPH.at(0, Affine.of(e)), GRAPH.at(0, Affine.of(e) + 1)
    return ir.Routine("scatter", EDGES, atomic_adds=(ir.AtomicAdd(read(G, there), var(read(X, here))),))


def dense(summand: Expr, *condition: Expr, local: str = "local0") -> ir.Routine:
    """out[i, j] = the sum of a summand over k and l, where a condition holds."""
    x = ir.LocalSum((local,), LOOPS, mul(*condition), (summand,))
    return ir.Routine("dense", GRID, (ir.Assignment(read(OUT, *GRID), var(ir.LocalName(local))),), locals=(x,))


def conventions(*routines: ir.Routine, cuda: bool = False) -> Conventions:
    """Where the routines run, with all that they use numbered."""
    grids = gathered_grids(routines)
    symbols = SymbolTable(interleaved=grids, padded=grids, gathered=gathered_fields(routines))
    for routine in routines:
        symbols.add(routine, solved_only=False)
    return Conventions(symbols, (cuda_dialect if cuda else c_dialect)("float32"), CUDA if cuda else CPU, ())


_S = TypeVar("_S")


def statements(block: loops.Block, kind: type[_S]) -> list[_S]:
    """All statements of a kind, also inside others."""
    found: Iterator[object] = loops.walk(block)
    return [s for s in found if isinstance(s, kind)]


def points(function: loops.Function) -> loops.Points:
    (nest,) = function.body
    assert isinstance(nest, loops.Points)
    return nest
