"""From the terms of an energy to the problem: each made canonical, all that they read collected and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from optpy import ir
from optpy.energy.language.canonical import canonical_residual
from optpy.energy.language.declarations import GridArray, Unknown, shape_text
from optpy.energy.language.expression import Expression, Source, as_expression
from optpy.energy.language.fixed import canonical_fixed
from optpy.energy.language.graph import Graph, slots_text
from optpy.energy.language.index import check_name, describe
from optpy.energy.language.naming import shown
from optpy.energy.language.robust import scales_of
from optpy.energy.language.written_out import func_accesses, with_summands, written_out
from optpy.errors import EnergyError, Location
from optpy.symbolic.affine import Affine, Atom, TableEntry
from optpy.symbolic.expr import ZERO, Expr
from optpy.symbolic.traverse import variables


def written_problem(terms: Mapping[str, Any], fixed: Any, location: Location) -> ir.Problem:
    """The problem that a user has written.

    Args:
        terms: by name: an expression, or a list of them.
        fixed: for unknowns, a condition at each element; or None.
        location: the user's line.

    Raises:
        EnergyError: it makes no sense as written.
    """
    _check_terms(terms, location)
    entries = [e for name, value in terms.items() for e in _entries(name, value, location)]
    with_funcs = tuple(canonical_residual(*e) for e in entries)
    residuals = tuple(map(_without_funcs, with_funcs))
    for r in residuals:
        _check_reads_unknown(r)
        _check_slots(r)
    scales = tuple(s for _, label, e in entries for s in scales_of(label, e))
    conditions = _conditions(fixed, location)
    mentioned = _mentioned([e for _, _, e in entries], conditions)
    as_written = {u.field: repr(c) for u, c in conditions.items()}
    canonical = {u.field: canonical_fixed(u.field, c) for u, c in conditions.items()}
    read_roots = [*with_summands(e for r in residuals for e in (*r.components, *r.linearised)), *canonical.values()]
    read = _read(with_summands(c for r in residuals for c in r.components))
    read_at_all = [s for s in mentioned if s in _read(read_roots)]
    fields = tuple(s for s in read_at_all if isinstance(s, ir.Field))
    unknowns = tuple(f for f in fields if f.role is ir.Role.UNKNOWN and f in read)
    _check_fixed(canonical, unknowns, location)
    graphs = tuple(s for s in read_at_all if isinstance(s, ir.Hypergraph))
    params = tuple(s for s in read_at_all if isinstance(s, ir.Scalar))
    known = {*read_at_all, *(d for f in fields for d in f.dims), *(d for g in graphs for d in (g.edges, *g.grid))}
    reading = tuple(w if _mentions(w) <= known else r for w, r in zip(with_funcs, residuals, strict=True))
    planes = (v.key for v in variables(read_roots) if isinstance(v.key, ir.Plane))
    sampled = tuple(dict.fromkeys(p.field for p in planes))
    problem = ir.Problem(
        residuals, reading, unknowns, canonical, as_written, fields, graphs, params, scales, location, sampled
    )
    _check_sizes(problem)
    return problem


def _check_terms(terms: Mapping[str, Any], location: Location) -> None:
    if not terms:
        raise EnergyError("an energy needs a term: op.Energy(fit=X[i, j] - A[i, j])", location)
    for name, value in terms.items():  # **{...} may bring any text; "reg[0]" is what the entries of a list are called
        check_name(name, "a term")
        if name == "bounds" and isinstance(value, Mapping):
            cure = "a residual that is 0 between them, such as 100 * op.maximum(0, low - X[i])"
            raise EnergyError(f"bounds on unknowns are not there yet; {cure}, keeps them nearly", location)


def _check_fixed(fixed: Iterable[ir.Field], unknowns: tuple[ir.Field, ...], location: Location) -> None:
    for u in fixed:
        if u not in unknowns:
            known = ", ".join(x.name for x in unknowns)
            message = f"fixed names '{u.name}', which no term reads; the unknowns are {known}"
            raise EnergyError(message, location)


def _check_sizes(problem: ir.Problem) -> None:
    dims = problem.dims
    roots = [(r.label, r.location, _loops(r), with_summands(r.components)) for r in problem.residuals]
    fixed = [(f"fixed of '{f}'", problem.location, (), (c,)) for f, c in problem.fixed.items()]
    for label, location, domain, components in (*roots, *fixed):
        for d in [*(i.dim for i in domain), *_sizes(components)]:
            if d not in dims:
                raise EnergyError(
                    f"the size {d} in '{label}' is bound by no data: no array or unknown that the energy reads "
                    f"has an axis over {d}",
                    location,
                )
    for g in problem.graphs:
        for d in g.given:
            if d not in dims:
                raise EnergyError(
                    f"the size {d}, which a slot of the graph '{g}' points into, is bound by no data: no array or "
                    f"unknown that the energy reads has an axis over {d}",
                    g.location,
                )


def _loops(residual: ir.Residual) -> ir.Domain:
    """The loop variables of a residual, and those of the sums that it reads."""
    read = (f.definition for f in ir.funcs_read(residual.components))
    return (*residual.domain, *(k for d in read if d is not None for k in d.loops))


def _without_funcs(residual: ir.Residual) -> ir.Residual:
    """The residual with all intermediates written out."""
    if not func_accesses((*residual.components, *residual.linearised)):
        return residual
    components = written_out(residual.components, attrgetter("values"))
    linearised = written_out(residual.linearised, attrgetter("linearised"))
    return replace(residual, components=tuple(components), linearised=tuple(linearised))


def _mentions(with_funcs: ir.Residual) -> set[Source | ir.Extent]:
    """All declarations and sizes in the formulas of the intermediates that a residual reads, one through another.

    Some may be gone where those are written out: a channel that nobody reads, a product of conditions that exclude each
    other. Then they are no part of the problem, and intermediates that compute with them stay written out.
    """
    funcs = ir.funcs_read(with_funcs.components)
    formulas = [e for f in funcs if f.definition is not None for e in f.definition.values]
    return {*(_read(formulas) - {*funcs}), *_sizes(formulas), *(d for f in funcs for d in f.dims)}


def _check_reads_unknown(residual: ir.Residual) -> None:
    declared = ir.declared_in(with_summands(residual.components))
    if any(isinstance(d, ir.Field) and d.role is ir.Role.UNKNOWN for d in declared):
        return
    names = sorted({d.name for d in declared if not (isinstance(d, ir.Field) and d.definition is not None)})
    reads = f"it reads only {', '.join(names)}" if names else "it is constant"
    if all(c is ZERO for c in residual.components):
        reads = "it is 0 everywhere"
    raise EnergyError(
        f"the residual '{residual.label}' reads no unknown ({reads}): no solve can change it; what is solved for is "
        "declared by op.Unknown",
        residual.location,
    )


def _check_slots(residual: ir.Residual) -> None:
    """Unknowns are read at what a slot points at, not at one of its axes alone, nor at several slots.

    Raises:
        EnergyError: an unknown is read at a part of a slot, at a multiple of it, or at two.
    """
    for v in variables(residual.components):
        if isinstance(v.key, ir.Access) and v.key.field.role is ir.Role.UNKNOWN:
            graphs = ir.graphs_of(v.key.index)
            if graphs and ir.slot_read(v.key.index) is None:
                names: dict[Atom, Affine] = dict(zip(residual.domain, map(Affine.of, residual.written), strict=True))
                index = ", ".join(shown(a.substitute(names)) for a in v.key.index)
                raise EnergyError(
                    f"'{residual.label}' reads the unknown '{v.key.field}' at [{index}]: through a graph, an unknown "
                    f"is read at a whole slot (up to constant offsets), and at one only, X[a] or X[a, j] with a, b = "
                    f"{graphs[0]}[e]; slots of '{graphs[0]}' point into {slots_text(graphs[0])}"
                    + _slot_for(v.key.field, v.key.index),
                    residual.location,
                )


def _slot_for(field: ir.Field, index: tuple[Affine, ...]) -> str:
    """The end of the message, where another graph would do: of two graphs one, of slots on several axes one slot."""
    if len(ir.graphs_of(index)) > 1:
        return ". One graph, made of these where the data is made, has a slot that points there"
    axes = [n for n, i in enumerate(index) if any(isinstance(a, TableEntry) for a in ir.atoms_of([i]))]
    if len(axes) < 2:
        return ""
    grid = ", ".join(str(field.dims[n]) for n in axes)
    return f". A graph whose one slot points into ({grid}) has both indices"


_NO_LISTS = (Expression, np.ndarray, GridArray, Graph, str, Mapping)
"""Types that can be iterated over but are no lists of residuals."""


def _entries(name: str, value: Any, location: Location) -> list[tuple[str, str, Expression]]:
    if isinstance(value, Iterable) and not isinstance(value, _NO_LISTS):
        entries = list(value)
        if not entries:
            raise EnergyError(f"the term '{name}' is an empty list", location)
        labels = [f"{name}[{n}]" for n in range(len(entries))]
    else:
        entries, labels = [value], [name]
    for label, entry in zip(labels, entries, strict=True):
        if isinstance(entry, list | tuple):
            raise EnergyError(
                f"'{label}' is {describe(entry)}: the entries of a list of residuals are expressions; a vector is "
                "op.vector(...)",
                location,
            )
    return [(name, label, as_expression(e)) for label, e in zip(labels, entries, strict=True)]


def _conditions(fixed: Any, location: Location) -> dict[Unknown, Expression]:
    if fixed is None:
        return {}
    if not isinstance(fixed, Mapping):
        raise EnergyError(
            f"fixed is no term but says which elements keep their value: fixed={{X: condition}}; got {describe(fixed)}",
            location,
        )
    for key in fixed:
        if not isinstance(key, Unknown):
            what = f"'{key.name}', which is an array" if isinstance(key, GridArray) else describe(key)
            raise EnergyError(f"fixed takes unknowns themselves as keys, fixed={{X: condition}}; got {what}", location)
    return {u: as_expression(c) for u, c in fixed.items()}


def _mentioned(terms: list[Expression], conditions: Mapping[Unknown, Expression]) -> tuple[Source, ...]:
    """All declarations in the order of first mention, each name once."""
    every = [*terms, *conditions.values()]
    found: dict[str, Source] = {}
    for s in (s for e in every for s in e.sources):
        other = found.setdefault(s.name, s)
        if other != s:
            raise EnergyError(
                f"the name '{s.name}' is declared twice: as {_declaration(other)} and as {_declaration(s)}; names are "
                "the keys of the data, so choose another",
                s.location,
            )
    return tuple(found.values())


def _declaration(s: Source) -> str:
    if isinstance(s, ir.Scalar):
        return f"a param ({s.location})"
    if isinstance(s, ir.Hypergraph):
        return f"a graph with slots {slots_text(s)} ({s.location})"
    kinds = {ir.Role.UNKNOWN: "an unknown", ir.Role.FUNC: "a Func"}
    kind = kinds.get(s.role, f"an array of dtype {s.dtype}")
    return f"{kind} of shape {shape_text(s)} ({s.location})"


def _read(roots: Iterable[Expr]) -> set[Source]:
    roots = list(roots)
    return {*ir.declared_in(roots), *ir.graphs_in(roots)}


def _sizes(roots: Iterable[Expr]) -> list[ir.Extent]:
    """The sizes that stand inside indices and bounds checks."""
    found = []
    for v in variables(roots):
        found += [a for a in ir.atoms_of(ir.affines_of(v.key)) if isinstance(a, ir.Extent)]
        if isinstance(v.key, ir.InBounds):
            found.append(v.key.dim)
        if isinstance(v.key, ir.Plane):
            found += v.key.field.dims
    return found
