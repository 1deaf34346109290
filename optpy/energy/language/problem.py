"""From the terms of an energy to the problem: each made canonical, all that they read collected and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from optpy import ir
from optpy.energy.language.canonical import canonical_residual
from optpy.energy.language.declarations import GridArray, Unknown, shape_text
from optpy.energy.language.expression import Expression, Source, as_expression
from optpy.energy.language.fixed import canonical_fixed
from optpy.energy.language.graph import Graph, slots_text
from optpy.energy.language.index import check_name, describe
from optpy.energy.language.robust import scales_of
from optpy.errors import EnergyError, Location
from optpy.symbolic.expr import Expr
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
    residuals = tuple(canonical_residual(*e) for e in entries)
    scales = tuple(s for _, label, e in entries for s in scales_of(label, e))
    conditions = _conditions(fixed, location)
    mentioned = _mentioned([e for _, _, e in entries], conditions)
    as_written = {u.field: repr(c) for u, c in conditions.items()}
    canonical = {u.field: canonical_fixed(u.field, c) for u, c in conditions.items()}
    read = _read([c for r in residuals for c in r.components])
    read_at_all = [s for s in mentioned if s in read | _read(canonical.values())]
    fields = tuple(s for s in read_at_all if isinstance(s, ir.Field))
    unknowns = tuple(f for f in fields if f.role is ir.Role.UNKNOWN and f in read)
    _check_fixed(canonical, unknowns, location)
    graphs = tuple(s for s in read_at_all if isinstance(s, ir.Hypergraph))
    params = tuple(s for s in read_at_all if isinstance(s, ir.Scalar))
    problem = ir.Problem(residuals, unknowns, canonical, as_written, fields, graphs, params, scales, location)
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
    roots = [(r.label, r.location, r.domain, r.components) for r in problem.residuals]
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
        for d in g.columns:
            if d not in dims:
                raise EnergyError(
                    f"the size {d}, which a slot of the graph '{g}' points into, is bound by no data: no array or "
                    f"unknown that the energy reads has an axis over {d}",
                    g.location,
                )


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
    kind = "an unknown" if s.role is ir.Role.UNKNOWN else f"an array of dtype {s.dtype}"
    return f"{kind} of shape {shape_text(s)} ({s.location})"


def _read(roots: Iterable[Expr]) -> set[Source]:
    roots = list(roots)
    keys = [v.key for v in variables(roots)]
    declared = {k.field if isinstance(k, ir.Access) else k for k in keys if isinstance(k, ir.Access | ir.Scalar)}
    return {*declared, *ir.graphs_in(roots)}


def _sizes(roots: Iterable[Expr]) -> list[ir.Extent]:
    """The sizes that stand inside indices and bounds checks."""
    found = []
    for v in variables(roots):
        found += [a for a in ir.atoms_of(ir.affines_of(v.key)) if isinstance(a, ir.Extent)]
        if isinstance(v.key, ir.InBounds):
            found.append(v.key.dim)
    return found
