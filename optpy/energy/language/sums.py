"""Sums over whole dims: ``op.sum(Im[i - k] * K[k], over=k)``.

A sum is an intermediate without a name of the user's: its summand is a formula at each point of the indices that are
left, and of those that it is summed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from optpy import ir
from optpy.energy.language.canonical import canonical_definition, loop_variables, refuse_summed
from optpy.energy.language.expression import Expression, Operand, as_expression
from optpy.energy.language.index import DeclaredIndex, Index, describe
from optpy.energy.language.naming import shown
from optpy.energy.language.robust import refuse_robust
from optpy.errors import EnergyError, Location
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import var


def sum(e: Operand, over: Index | Iterable[Index]) -> Expression:
    """The sum over whole dims, by a loop: ``op.sum(w[k] * B[v, k], over=k)``.

    Sizes are those of the data: another size compiles nothing anew. Where the summand reads outside an array and does
    not ask ``op.in_bounds`` itself, it is 0. A residual, a Func and another sum may read the sum, but not with an index
    of the same loop.

    The diagonal of J^T J, by which Levenberg-Marquardt damps and Jacobi's method preconditions, is that of each read by
    itself: where several reads of a residual meet in one element of an unknown, at several points of a sum, in several
    sums or beside one, the products of two of them are left out of it.

    Args:
        e: the summand, of any shape.
        over: a loop variable, or several, that stand in it.

    Raises:
        EnergyError: they do not, or are none.
    """
    summand = as_expression(e)
    refuse_robust("the summand of op.sum", summand)
    loops = _loops(summand, over)
    axes = [v for v in loop_variables(summand.components) if v not in loops]
    refuse_summed("op.sum", summand.components, [*axes, *loops], summand.location)
    field = _summed(summand, axes, loops)
    index = tuple(Affine.of(v) for v in axes)
    components = tuple(var(ir.Access(field, index, c)) for c in range(field.channels))
    return Expression(summand.shape, components, summand.sources)


def _loops(summand: Expression, over: Any) -> list[DeclaredIndex]:
    given = list(over) if isinstance(over, Iterable) and not isinstance(over, str) else [over]
    if not given or not all(isinstance(k, Index) for k in given):
        got = ", ".join(shown(k.affine) if hasattr(k, "affine") else describe(k) for k in given) or "nothing"
        message = f"op.sum goes over loop variables, over=k with k = op.indices(K), or over=(k, l); got {got}"
        raise EnergyError(message, Location.of_caller())
    loops = [k.variable for k in given]
    if len(set(loops)) < len(loops):
        raise EnergyError(f"op.sum goes over {shown(loops[0])} twice", Location.of_caller())
    inside = loop_variables(summand.components)
    for k in loops:
        if k not in inside:
            cure = f"a sum of equal terms is {k.dim} times one of them, op.value({k.dim}) * ..."
            raise EnergyError(f"op.sum goes over {shown(k)}, which the summand does not use; {cure}", summand.location)
    return loops


def _summed(e: Expression, axes: list[DeclaredIndex], loops: list[DeclaredIndex]) -> ir.Field:
    dims = tuple(v.dim for v in axes)
    definition = canonical_definition(e, axes, e.location, loops)
    finite = all(v.finite for v in definition.values)
    channel_axis = len(definition.values) > 1
    return ir.Field(
        _name(definition, dims), dims, len(definition.values), ir.REAL, ir.Role.FUNC, channel_axis, e.location, finite,
        definition=definition,
    )  # fmt: skip


def _name(definition: ir.Definition, dims: Iterable[ir.Extent]) -> str:
    """A name that is the same in every process, and another for another sum."""
    parts = [*(e.digest for e in definition.linearised), *(str(d).encode() for d in (*dims, *_dims(definition)))]
    return f"sum_{blake2b(b' '.join(parts), digest_size=4).hexdigest()}"


def _dims(definition: ir.Definition) -> list[ir.Extent]:
    return [k.dim for k in definition.loops]
