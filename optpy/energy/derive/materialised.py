"""Residuals over hyper-edges with J, or J p, read from memory; and the passes over the edges that put it there.

The entries of J may be computed in every product, or once at the linearisation point and stored for each edge. The
product J p may be computed anew at each of an edge's vertices, or in a pass over the edges that stores it, followed by
the pass over the vertices that gathers it. An ``ir.ResidualSchedule`` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from optpy.energy.derive.linearised import LinearisedResidual, along
from optpy.energy.derive.vectors import P
from optpy.ir import REAL, Access, Assignment, Field, Residual, Role, Routine, graphs_in, is_unknown, point
from optpy.symbolic.expr import ONE, Expr, add, const, mul, split_content, var
from optpy.symbolic.factor import factor
from optpy.symbolic.traverse import variables


def over_edges(residual: Residual) -> bool:
    """Whether a residual reads unknowns through a graph."""
    return bool(graphs_in([v for v in variables(residual.linearised) if is_unknown(v.key)]))


def store_jacobian(source: LinearisedResidual) -> tuple[LinearisedResidual, list[Assignment]]:
    """The residual with its value and the entries of J read from memory, and the stores that put them there.

    Entries that are equal up to a number are stored once, those without reads not at all.
    """
    domain = source.residual.domain
    entries = [*source.values, *(d for p in source.partials for d in p.values())]
    kept = list(dict.fromkeys(rest for _, rest in map(split_content, entries) if _reads_memory(rest)))
    name = f"J.{source.residual.label}"
    finite = all(e.finite for e in kept)
    memory = Field(name, tuple(i.dim for i in domain), len(kept), REAL, Role.STORED, finite=finite)
    accesses = {e: Access(memory, point(domain), n) for n, e in enumerate(kept)}

    def stored(e: Expr) -> Expr:
        c, rest = split_content(e)
        return mul(const(c), var(accesses[rest])) if rest in accesses else e

    partials = tuple({a: stored(d) for a, d in p.items()} for p in source.partials)
    jvps = factor(add(*(mul(d, var(along(a, P))) for a, d in p.items())) for p in partials)
    values = tuple(map(stored, source.values))
    stores = [Assignment(accesses[e], value) for e, value in zip(kept, factor(kept), strict=True)]
    return replace(source, values=values, partials=partials, jvps=tuple(jvps)), stores


def _reads_memory(e: Expr) -> bool:
    return e is not ONE and any(isinstance(v.key, Access) for v in variables([e]))


def store_product(source: LinearisedResidual) -> tuple[LinearisedResidual, list[Assignment]]:
    """The residual with J p read from memory, and the stores that put it there."""
    domain = source.residual.domain
    dims = tuple(i.dim for i in domain)
    memory = Field(f"Jp.{source.residual.label}", dims, len(source.jvps), REAL, Role.VECTOR)
    targets = [Access(memory, point(domain), n) for n in range(len(source.jvps))]
    stores = [Assignment(t, e) for t, e in zip(targets, factor(source.jvps), strict=True)]
    return replace(source, jvps=tuple(map(var, targets))), stores


def passes(name: str, stores: Iterable[tuple[Residual, Sequence[Assignment]]], prepares: bool) -> list[Routine]:
    """The stores of several residuals as routines: one for each domain."""
    by_domain: dict[tuple[object, ...], tuple[Residual, list[Assignment]]] = {}
    for residual, own in stores:
        by_domain.setdefault(residual.domain, (residual, []))[1].extend(own)
    return [
        Routine(f"{name}_{n}", residual.domain, tuple(group), prepares=prepares)
        for n, (residual, group) in enumerate(by_domain.values())
        if group
    ]
