"""Problems with their sums written out, term by term, for the sizes of the data: what the interpreter evaluates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Final
from weakref import WeakKeyDictionary

from optpy.energy.language.canonical import rename
from optpy.energy.language.written_out import with_formulas, written_out
from optpy.errors import DataError
from optpy.ir import Definition, Extent, Field, Problem, Residual, funcs_read
from optpy.symbolic.affine import Affine, Atom
from optpy.symbolic.expr import ZERO, Expr, add

MOST_TERMS = 1 << 12
"""Of one sum: each term is an expression of its own here, of some microseconds for each of its nodes."""

_Face = Callable[[Definition], tuple[Expr, ...]]


def unrolled(problem: Problem, sizes: Mapping[Extent, int]) -> Problem:
    """The problem without sums; the same one where it has none.

    Args:
        problem: as it was written.
        sizes: of the data.

    Raises:
        DataError: a sum has too many terms to be written out.
    """
    sums = [f for f in problem.funcs if f.is_sum]
    if not sums:
        return problem
    key = tuple(sizes[k.dim] for f in sums for k in _definition(f).loops)
    known = _UNROLLED.setdefault(problem, {})
    if key not in known:
        for r in problem.with_funcs:
            _check_terms(r, sizes)
        known[key] = _unrolled(problem, sums, sizes)
    return known[key]


_UNROLLED: Final[WeakKeyDictionary[Problem, dict[tuple[int, ...], Problem]]] = WeakKeyDictionary()


def _check_terms(residual: Residual, sizes: Mapping[Extent, int]) -> None:
    for field in funcs_read(residual.components):
        terms = math.prod(sizes[k.dim] for k in _definition(field).loops)
        if terms > MOST_TERMS:
            raise DataError(
                f"op.sum in the residual '{residual.label}' (written at {residual.location}) has {terms} terms at each "
                f"point here; energy.cost, energy.residuals, energy.jacobian and the checks write out up to "
                f"{MOST_TERMS}: give them smaller data. op.solve has no such limit"
            )


def _unrolled(problem: Problem, sums: Iterable[Field], sizes: Mapping[Extent, int]) -> Problem:
    values = _formulas(sums, attrgetter("values"), sizes)
    linearised = _formulas(sums, attrgetter("linearised"), sizes)
    residuals = tuple(
        replace(
            r,
            components=tuple(with_formulas(r.components, values)),
            linearised=tuple(with_formulas(r.linearised, linearised)),
        )
        for r in problem.residuals
    )
    return replace(problem, residuals=residuals, with_funcs=residuals)


def _formulas(sums: Iterable[Field], face: _Face, sizes: Mapping[Extent, int]) -> dict[Field, tuple[Expr, ...]]:
    """The terms of each sum added up, sums within them included."""
    found: dict[Field, tuple[Expr, ...]] = {}
    for field in sums:
        definition = _definition(field)
        ranges = [range(sizes[k.dim]) for k in definition.loops]
        summands = with_formulas(written_out(face(definition), face), found)
        parts: list[list[Expr]] = []
        for at in product(*ranges):
            there: dict[Atom, Affine] = {k: Affine(n) for k, n in zip(definition.loops, at, strict=True)}
            parts.append(rename(summands, there))
        found[field] = tuple(add(*terms) for terms in zip(*parts, strict=True)) if parts else (ZERO,) * field.channels
    return found


def without_sums(roots: Iterable[Expr], sizes: Mapping[Extent, int]) -> list[Expr]:
    """Expressions with the values of their sums written out, term by term."""
    roots = list(roots)
    sums = [f for f in funcs_read(roots) if f.is_sum]
    return with_formulas(roots, _formulas(sums, attrgetter("values"), sizes)) if sums else roots


def _definition(field: Field) -> Definition:
    assert field.definition is not None
    return field.definition
