"""Residuals over hyper-edges with J, or J p, read from memory; and the passes over the edges that put it there.

The entries of J may be computed in every product, or once at the linearisation point and stored for each edge. The
product J p may be computed anew at each of an edge's vertices, or in a pass over the edges that stores it, followed by
the pass over the vertices that gathers it. An ``ir.ResidualSchedule`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from optpy.energy.derive.linearised import LinearisedResidual, along
from optpy.energy.derive.vectors import P
from optpy.ir import (
    REAL,
    Access,
    Assignment,
    Domain,
    Field,
    FuncStorage,
    InBounds,
    Plane,
    Residual,
    Role,
    Routine,
    graphs_in,
    is_unknown,
    point,
)
from optpy.symbolic.expr import ONE, Expr, Product, Var, add, const, mul, split_content, var
from optpy.symbolic.factor import factor
from optpy.symbolic.traverse import variables

MOST_STORES = 128
"""Numbers that one routine stores at a point. Compilers take 1.1 s for 240 of them, 5 s for 480 in one loop; each store
has a pointer of its own."""


def over_edges(residual: Residual) -> bool:
    """Whether a residual reads unknowns through a graph."""
    return bool(graphs_in([v for v in variables(residual.linearised) if is_unknown(v.key)]))


def store_jacobian(source: LinearisedResidual) -> tuple[LinearisedResidual, list[Assignment]]:
    """The residual with its value and the entries of J read from memory, and the stores that put them there.

    An entry that is but a number of an array without dims, or 0 beyond some bounds, is read there.
    """
    entries = [*source.values, *(d for p in source.partials for d in p.values() if not _is_given(d))]
    stored, stores = in_memory(f"J.{source.residual.label}", source.residual.domain, entries)
    return _with_entries(source, stored, stored), stores


def store_func(
    name: str, source: LinearisedResidual, storage: FuncStorage
) -> tuple[LinearisedResidual, list[Assignment]]:
    """An intermediate with its value, and its derivatives where they are stored, read from memory; and the stores."""
    domain = source.residual.domain
    value, stores = in_memory(func_memory(name), domain, source.values, dtype_of(source.values))
    if storage is not FuncStorage.PARTIALS:
        return replace(source, values=tuple(map(value, source.values))), stores
    partial, own = in_memory(f"partials.{name}", domain, [d for p in source.partials for d in p.values()])
    return _with_entries(source, value, partial), stores + own


def func_memory(name: str) -> str:
    """The name of the field that holds the values of an intermediate."""
    return f"func.{name}"


def dtype_of(values: Iterable[Expr]) -> str:
    """The dtype of the memory of an intermediate: a byte for conditions."""
    return "bool" if all(v.boolean for v in values) else REAL


def _with_entries(
    source: LinearisedResidual, value: Callable[[Expr], Expr], entry: Callable[[Expr], Expr]
) -> LinearisedResidual:
    """A residual with other spellings of its values and of the entries of J."""
    partials = tuple({a: entry(d) for a, d in p.items()} for p in source.partials)
    jvps = factor(add(*(mul(d, var(along(a, P))) for a, d in p.items())) for p in partials)
    return replace(source, values=tuple(map(value, source.values)), partials=partials, jvps=tuple(jvps))


def in_memory(
    name: str, domain: Domain, entries: Iterable[Expr], dtype: str = REAL
) -> tuple[Callable[[Expr], Expr], list[Assignment]]:
    """Expressions over a domain read from memory, and the stores that put them there.

    Entries that are equal up to a number are stored once, those without reads not at all.

    Args:
        name: of the field that holds them.
        domain: of the points.
        entries: the expressions.
        dtype: of the field.

    Returns:
        A function from an entry to what reads it.
    """
    kept = list(dict.fromkeys(rest for _, rest in map(split_content, entries) if _reads_memory(rest)))
    finite = all(e.finite for e in kept)
    memory = Field(name, tuple(i.dim for i in domain), len(kept), dtype, Role.STORED, finite=finite)
    accesses = {e: Access(memory, point(domain), n) for n, e in enumerate(kept)}

    def read(e: Expr) -> Expr:
        c, rest = split_content(e)
        return mul(const(c), var(accesses[rest])) if rest in accesses else e

    return read, [Assignment(accesses[e], value) for e, value in zip(kept, factor(kept), strict=True)]


def _is_given(e: Expr) -> bool:
    """Whether an entry is a multiple of one number, the same at all points, or 0 where bounds say so."""
    rest = split_content(e)[1]
    factors = rest.factors if isinstance(rest, Product) else ((rest, 1),)
    own = [(b, x) for b, x in factors if not (isinstance(b, Var) and isinstance(b.key, InBounds))]
    return len(own) == 1 and own[0][1] == 1 and _is_number(own[0][0])


def _is_number(e: Expr) -> bool:
    return isinstance(e, Var) and isinstance(e.key, Access) and not e.key.field.dims


def _reads_memory(e: Expr) -> bool:
    return e is not ONE and any(isinstance(v.key, Access | Plane) for v in variables([e]))


def store_product(source: LinearisedResidual) -> tuple[LinearisedResidual, list[Assignment]]:
    """The residual with J p read from memory, and the stores that put it there."""
    domain = source.residual.domain
    dims = tuple(i.dim for i in domain)
    memory = Field(f"Jp.{source.residual.label}", dims, len(source.jvps), REAL, Role.VECTOR)
    targets = [Access(memory, point(domain), n) for n in range(len(source.jvps))]
    stores = [Assignment(t, e) for t, e in zip(targets, factor(source.jvps), strict=True)]
    return replace(source, jvps=tuple(map(var, targets))), stores


def passes(name: str, stores: Iterable[tuple[Residual, Sequence[Assignment]]], prepares: bool) -> list[Routine]:
    """The stores of several residuals as routines: one for each domain, or for so many stores there."""
    by_domain: dict[tuple[object, ...], tuple[Residual, list[Assignment]]] = {}
    for residual, own in stores:
        by_domain.setdefault(residual.domain, (residual, []))[1].extend(own)
    found = [
        (residual.domain, tuple(group[first : first + MOST_STORES]))
        for residual, group in by_domain.values()
        for first in range(0, max(len(group), 1), MOST_STORES)
    ]
    return [Routine(f"{name}_{n}", domain, own, prepares=prepares) for n, (domain, own) in enumerate(found) if own]
