"""The boundary rule: where a residual reads outside an array, it is zero."""

from __future__ import annotations

from collections.abc import Iterable

from optpy.ir import Access, Extent, InBounds, LoopVariable, entry_dim
from optpy.symbolic.affine import Affine, TableEntry
from optpy.symbolic.expr import Expr, var
from optpy.symbolic.traverse import variables

_MANY = 8
"""Checks along one line from which on only those of its ends are made. Fewer stay one for each distance, which other
residuals have, too, and share."""


def boundary_guards(components: Iterable[Expr]) -> list[Expr]:
    """A bounds check for every axis of every read that may lie outside."""
    guards: dict[Expr, None] = {}
    for v in variables(components):
        if isinstance(v.key, Access):
            guards |= dict.fromkeys(outside_guards(v.key.index, v.key.field.dims))
    return _outermost(guards)


def _outermost(guards: Iterable[Expr]) -> list[Expr]:
    """Checks that hold exactly where all of the given do: of many along one line, those of its two ends."""
    lines: dict[object, list[Expr]] = {}
    for g in guards:
        lines.setdefault((g.key.dim, g.key.index.terms), []).append(g)  # type: ignore[attr-defined]
    kept = set()
    for line in lines.values():
        line.sort(key=lambda g: g.key.index.constant)  # type: ignore[attr-defined]
        kept |= {line[0], line[-1]} if len(line) > _MANY else set(line)
    return [g for g in guards if g in kept]


def outside_guards(index: Iterable[Affine], dims: Iterable[Extent]) -> list[Expr]:
    """A bounds check for every axis of an index that may lie outside."""
    return [var(InBounds(a, d)) for a, d in zip(index, dims, strict=True) if not always_inside(a, d)]


def always_inside(index: Affine, dim: Extent) -> bool:
    """Whether ``0 <= index < dim`` holds for all values of its loop variables and for all sizes from 1 on."""
    return _never_negative(index) and _never_negative(Affine.of(dim) - 1 - index)


def _never_negative(index: Affine) -> bool:
    # Every loop variable at its worst end, 0 or D - 1; what is left is affine in the sizes, each of them 1 or more.
    worst = Affine(index.constant)
    for atom, c in index.terms:
        if isinstance(atom, Extent):
            worst = worst + Affine.of(atom) * c
        elif isinstance(atom, LoopVariable):
            worst = worst + (Affine.of(atom.dim) - 1) * min(c, 0)
        elif isinstance(atom, TableEntry):  # checked when the data is bound
            worst = worst + (Affine.of(entry_dim(atom)) - 1) * min(c, 0)
        else:
            return False
    at_size_1 = worst.constant + sum(c for _, c in worst.terms)
    return at_size_1 >= 0 and all(c >= 0 for _, c in worst.terms)
