"""Conditions of ``fixed``: which elements of an unknown keep their initial value."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from optpy import ir
from optpy.energy.language.canonical import loop_variables, rename
from optpy.energy.language.declarations import shape_text
from optpy.energy.language.expression import Expression
from optpy.energy.language.index import DeclaredIndex
from optpy.energy.language.robust import refuse_robust
from optpy.energy.language.written_out import func_accesses, written_out
from optpy.errors import EnergyError
from optpy.symbolic.affine import Affine, Atom
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


def canonical_fixed(field: ir.Field, condition: Expression) -> Expr:
    """The condition over the canonical loop variables of the unknown's grid.

    Its indices stand for the axes that run over the same dim, in the order of their declaration.

    Raises:
        EnergyError: it is a number or a vector, reads unknowns, or uses indices that are no axes of the unknown.
    """
    what = f"the condition fixed for '{field}'"
    refuse_robust(what, condition)
    if not condition.is_condition:
        raise EnergyError(f"{what} is a number: compare it, for example Mask[i, j] != 0", condition.location)
    if condition.shape:
        raise EnergyError(
            f"{what} has shape {condition.shape}, but the channels of an element are fixed together: use .all() or "
            ".any()",
            condition.location,
        )
    components = written_out(condition.components, attrgetter("values"))
    if func_accesses(components):
        raise EnergyError(f"{what} contains op.sum, which conditions of fixed cannot: bind a mask", condition.location)
    for v in variables(components):
        if isinstance(v.key, ir.Access) and v.key.field.role is ir.Role.UNKNOWN:
            raise EnergyError(
                f"{what} reads the unknown '{v.key.field}': what is fixed may depend on data only", condition.location
            )
    domain = ir.canonical_domain(field.dims)
    loops = loop_variables(components)
    renaming: dict[Atom, Affine] = {}
    for dim in dict.fromkeys(v.dim for v in loops):
        same = [v for v in loops if v.dim == dim]
        axes = [i for i in domain if i.dim == dim]
        _check_axes(what, field, dim, same, axes, condition)
        renaming |= {v: Affine.of(i) for v, i in zip(same, axes, strict=True)}
    return rename(components, renaming)[0]


def _check_axes(
    what: str,
    field: ir.Field,
    dim: ir.Extent,
    loops: Sequence[DeclaredIndex],
    axes: Sequence[ir.LoopVariable],
    condition: Expression,
) -> None:
    if len(loops) == len(axes):
        return
    shape = f"'{field}' of shape {shape_text(field)} has {len(axes)} such axes"
    if len(loops) > len(axes):
        problem = f"uses {len(loops)} indices over {dim}, but {shape}"
    else:
        problem = f"uses {len(loops)} of the indices over {dim}, but {shape}: give the axes different dims"
    raise EnergyError(f"{what} {problem}", condition.location)
