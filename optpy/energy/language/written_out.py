"""Expressions with the formulas of intermediates in the place of what they read of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

from optpy.energy.language.boundary import outside_guards
from optpy.energy.language.canonical import rename
from optpy.ir import Access, Definition, Field, Role, canonical_domain, funcs_read
from optpy.symbolic.affine import Affine, Atom
from optpy.symbolic.expr import Expr, Var, mul
from optpy.symbolic.traverse import map_variables, variables

Formulas = Mapping[Field, tuple[Expr, ...]]
"""For each intermediate, a formula for each channel, over its own grid."""


def written_out(roots: Iterable[Expr], face: Callable[[Definition], tuple[Expr, ...]]) -> list[Expr]:
    """Expressions that read no intermediate but sums and what is sampled: 0 where one would be read outside its grid.

    Args:
        roots: over canonical loop variables.
        face: which formulas of a definition: its values, or what is differentiated.
    """
    roots = list(roots)
    formulas: dict[Field, tuple[Expr, ...]] = {}
    for func in funcs_read(roots):
        assert func.definition is not None
        if func.is_sum or func.is_sampled:
            continue
        formulas[func] = tuple(with_formulas(face(func.definition), formulas))
    return with_formulas(roots, formulas)


def with_formulas(roots: Iterable[Expr], formulas: Formulas) -> list[Expr]:
    """Expressions with formulas, moved to where each intermediate is read, in the place of what is read of it."""
    moved: dict[tuple[Field, tuple[Affine, ...]], list[Expr]] = {}

    def leaf(v: Var) -> Expr:
        if not isinstance(v.key, Access) or v.key.field not in formulas:
            return v
        at = v.key.field, v.key.index
        if at not in moved:
            moved[at] = moved_to(formulas[v.key.field], *at)
        return moved[at][v.key.channel]

    return map_variables(roots, leaf)


def moved_to(formulas: Iterable[Expr], field: Field, index: tuple[Affine, ...]) -> list[Expr]:
    """Formulas over a field's own grid at an index of it, 0 outside the grid."""
    guards = outside_guards(index, field.dims)
    return [mul(*guards, e) for e in rename(formulas, _moving(field, index))]


def moved_index(index: Iterable[Affine], access: Access) -> tuple[Affine, ...]:
    """An index in the formula of an intermediate, moved to where the intermediate is read."""
    moving = _moving(access.field, access.index)
    return tuple(a.substitute(moving) for a in index)


def _moving(field: Field, index: tuple[Affine, ...]) -> dict[Atom, Affine]:
    return dict(zip(canonical_domain(field.dims), index, strict=True))


def func_accesses(roots: Iterable[Expr]) -> list[Access]:
    """All that is read of intermediates."""
    keys = (v.key for v in variables(roots))
    return [k for k in keys if isinstance(k, Access) and k.field.role is Role.FUNC]


def with_summands(roots: Iterable[Expr]) -> list[Expr]:
    """Expressions, and the formulas of all sums and all that is sampled that they read, by themselves or within others;
    without Funcs."""
    found = list(roots)
    stored = [f for f in funcs_read(found) if f.is_sum or f.is_sampled]
    for field in stored:
        assert field.definition is not None
        found += written_out(field.definition.values, attrgetter("values"))
    return found
