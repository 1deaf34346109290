"""From an expression as the user wrote it to a residual over canonical loop variables, boundary rule applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from optpy import ir
from optpy.energy.language.boundary import always_inside, boundary_guards
from optpy.energy.language.expression import Expression
from optpy.energy.language.index import DeclaredIndex
from optpy.energy.language.naming import shown
from optpy.energy.language.robust import split
from optpy.errors import EnergyError, Location
from optpy.symbolic.affine import Affine, Atom
from optpy.symbolic.expr import ONE, Const, Expr, Var, mul, var
from optpy.symbolic.traverse import map_variables, variables

Renaming = Mapping[Atom, Affine]
"""The affine index in place of each of the user's indices."""


def canonical_residual(term: str, label: str, expression: Expression) -> ir.Residual:
    """One residual of an energy.

    Its domain is that of the indices in it, in the order of their declaration. If it asks ``in_bounds`` itself, its
    guards are the user's; else it is zero wherever it reads outside an array.

    Raises:
        EnergyError: it is a condition, or uses ``op.robust`` as a number.
    """
    _check(label, expression)
    loops = loop_variables(expression.components)
    refuse_summed(f"the residual '{label}'", expression.components, loops, expression.location)
    domain = ir.canonical_domain(v.dim for v in loops)
    renaming: dict[Atom, Affine] = {v: Affine.of(i) for v, i in zip(loops, domain, strict=True)}
    components = with_boundary_rule(expression.components, renaming)
    summed, linearised = split(label, components, expression.location)
    return ir.Residual(
        term,
        label,
        domain,
        tuple(ir.at_zero(summed)),
        tuple(linearised),
        expression.shape,
        expression.location,
        tuple(loops),
    )


def with_boundary_rule(components: Iterable[Expr], renaming: Renaming) -> list[Expr]:
    """Components over canonical loop variables: 0 where they read outside an array, unless they ask that themselves."""
    components = list(components)
    renamed = rename(components, renaming)
    if any(isinstance(v.key, ir.InBounds) for v in variables(components)):
        return renamed
    guards = boundary_guards(renamed)
    return [mul(*guards, c) for c in renamed]


def canonical_definition(
    e: Expression, axes: Sequence[DeclaredIndex], location: Location | None, loops: Sequence[DeclaredIndex] = ()
) -> ir.Definition:
    """The formula of an intermediate, with the boundary rule applied.

    Args:
        e: as the user wrote it.
        axes: its indices that stand for the axes of the intermediate.
        location: the user's line.
        loops: its indices over which it is summed.
    """
    domain = ir.canonical_domain(v.dim for v in axes)
    own = tuple(ir.LoopVariable(f"s{n}", k.dim) for n, k in enumerate(loops))
    renaming: dict[Atom, Affine] = {v: Affine.of(i) for v, i in zip([*axes, *loops], [*domain, *own], strict=True)}
    linearised = with_boundary_rule(e.components, renaming)
    values, funcs = tuple(ir.at_zero(linearised)), ir.funcs_read(linearised)
    return ir.Definition(values, tuple(linearised), funcs, own, location, tuple(loops))


def _check(label: str, e: Expression) -> None:
    if e.is_condition and not all(isinstance(c, Const) for c in e.components):
        raise EnergyError(
            f"the residual '{label}' is a condition, 0 or 1 everywhere, and cannot be minimised: use it in "
            "op.where(condition, residual, 0)",
            e.location,
        )


def refuse_summed(what: str, roots: Iterable[Expr], free: Iterable[DeclaredIndex], location: Location | None) -> None:
    """Raise where a loop variable stands outside a sum over it.

    Raises:
        EnergyError: it does.
    """
    used = set(free)
    for v in variables(roots):
        if not isinstance(v.key, ir.Access) or v.key.field.definition is None:
            continue
        for k in v.key.field.definition.written:
            if k in used:
                assert isinstance(k, DeclaredIndex)
                raise EnergyError(
                    f"{what} uses {shown(k)} outside a sum over {shown(k)}: each sum has an index of its own, "
                    f"k = op.indices({k.dim})",
                    location,
                )


def loop_variables(roots: Iterable[Expr]) -> list[DeclaredIndex]:
    """The user's indices in expressions, in the order of their declaration."""
    atoms = {a for v in variables(roots) for a in ir.atoms_of(ir.affines_of(v.key))}
    return sorted((a for a in atoms if isinstance(a, DeclaredIndex)), key=lambda a: a.serial)


def rename(roots: Iterable[Expr], renaming: Renaming) -> list[Expr]:
    """Replace the user's indices; bounds checks that always hold vanish."""

    def leaf(v: Var) -> Expr:
        key = v.key
        if isinstance(key, ir.Access):
            index = tuple(a.substitute(renaming) for a in key.index)
            return var(ir.Access(_canonical(key.field), index, key.channel))
        if isinstance(key, ir.InBounds):
            affine = key.index.substitute(renaming)
            return ONE if always_inside(affine, key.dim) else var(ir.InBounds(affine, key.dim))
        if isinstance(key, ir.IndexValue):
            return ir.index_value(key.index.substitute(renaming))
        return v

    return map_variables(roots, leaf)


def _canonical(field: ir.Field) -> ir.Field:
    if field.definition is None or not field.definition.written:
        return field
    return replace(field, definition=replace(field.definition, written=()))
