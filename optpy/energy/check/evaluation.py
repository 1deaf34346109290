"""An energy's residuals by the NumPy interpreter, in float64: the reference for all generated code.

Domains are worked through in slabs of their first axis, so that intermediate arrays stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.check.unrolled import unrolled, without_sums
from optpy.energy.data.binding import BoundData, bind
from optpy.energy.language.manifold import Floats
from optpy.energy.language.written_out import written_out
from optpy.errors import InternalError
from optpy.ir.points import Integers
from optpy.symbolic.expr import Expr
from optpy.symbolic.interpret import Value, evaluate

Booleans = NDArray[np.bool_]

Evaluator = Callable[[Sequence[Expr], Callable[[Any], Value]], list[Value]]
"""Evaluates expressions, given the values of the leaves."""


@final
class LeafValues:
    """The values of leaves over a slab."""

    def __init__(self, bound: BoundData, slab: ir.Slab) -> None:
        self._bound = bound
        self._slab = slab

    def __call__(self, key: Any) -> Value:
        sizes = self._bound.sizes
        match key:
            case ir.Access():
                return self.read(key, self._bound.arrays[key.field.name])
            case ir.Plane():
                plane = sampled_values(key.field, self._bound)
                return plane[..., key.channel] if key.field.channel_axis else plane
            case ir.InBounds():
                index_value = self._slab.index(key.index, self._bound)
                return ((index_value >= 0) & (index_value < sizes[key.dim])).astype(np.float64)
            case ir.IndexValue():
                return self._slab.index(key.index, self._bound).astype(np.float64)
            case ir.Scalar():
                return self._bound.params[key.name]
        raise InternalError(f"no value for the leaf {key}")

    def read(self, access: ir.Access, array: NDArray[Any]) -> Value:
        """The numbers that an access reads of an array: (..., *dims), or (..., *dims, channels).

        Further axes in front, as of several arrays at a time, are those of the result, too.
        """
        index, inside = self.position(access)
        if not array.size:  # a point of a graph without edges: outside
            return np.zeros((1,) * len(self._slab.shape))
        element: tuple[Any, ...] = (..., *index, access.channel) if access.field.channel_axis else (..., *index)
        values: Value = array[element]
        if not index:  # one element for all points
            values = np.reshape(values, (*np.shape(values), *(1 for _ in self._slab.shape)))
        return np.where(inside, values, 0).astype(np.float64)

    def position(self, access: ir.Access) -> tuple[tuple[Integers, ...], Booleans]:
        """The elements that an access reads, moved inside the array, and a mask of those that truly are inside."""
        inside: Booleans = np.ones((1,) * len(self._slab.shape), np.bool_)
        index = []
        for affine, dim in zip(access.index, access.field.dims, strict=True):
            n = self._bound.sizes[dim]
            values = self._slab.index(affine, self._bound)
            inside = inside & (values >= 0) & (values < n)
            index.append(np.minimum(np.maximum(values, 0), n - 1))
        return tuple(index), inside


def sampled_values(field: ir.Field, bound: BoundData) -> NDArray[Any]:
    """An array that is read at computed places: the data's, or an intermediate's, which is computed once."""
    if not field.is_sampled:
        array: NDArray[Any] = bound.arrays[field.name]
        return array
    known = _SAMPLED.setdefault(bound, {})
    if field not in known:
        assert field.definition is not None
        components = without_sums(written_out([*field.definition.values], attrgetter("values")), bound.sizes)
        shape = (field.channels,) if field.channel_axis else ()
        domain = ir.canonical_domain(field.dims)
        formula = ir.Residual(field.name, field.name, domain, tuple(components), tuple(components), shape)
        values = residual_values(formula, bound.sizes, lambda slab: LeafValues(bound, slab))
        known[field] = values.reshape(bound.shape(field))
    return known[field]


_SAMPLED: Final[WeakKeyDictionary[BoundData, dict[ir.Field, Floats]]] = WeakKeyDictionary()


def residuals(problem: ir.Problem, data: Mapping[str, Any], linearised: bool) -> dict[str, Floats]:
    """See ``Energy.residuals``."""
    bound = bind(problem, data, np.float64)
    found = {}
    for r in unrolled(problem, bound.sizes).residuals:
        if linearised:
            r = replace(r, components=tuple(ir.at_zero(r.linearised)))
        grid = tuple(bound.sizes[i.dim] for i in r.domain)
        values = residual_values(r, bound.sizes, lambda slab: LeafValues(bound, slab))
        found[r.label] = values.reshape((*grid, *r.shape))
    return found


def residual_values(
    residual: ir.Residual,
    sizes: Mapping[ir.Extent, int],
    leaf_values: Callable[[ir.Slab], Callable[[Any], Value]],
    evaluate: Evaluator = evaluate,
    points: tuple[int, ...] = (),
) -> Floats:
    """One residual over its whole domain, or what else is to be evaluated of it: (*points, *domain, components).

    Args:
        residual: the residual.
        sizes: of the domain.
        leaf_values: the values of the leaves over a slab, for several points x at a time if they have axes for that.
        evaluate: makes numbers of the components.
        points: the shape of those axes.
    """
    parts = []
    for slab in ir.slabs(residual.domain, sizes):
        values = evaluate(residual.components, leaf_values(slab))
        parts.append(np.stack([np.broadcast_to(v, (*points, *slab.shape)) for v in values], axis=-1))
    return np.concatenate(parts, axis=len(points)) if residual.domain else parts[0]


def solved_elements(problem: ir.Problem, unknown: ir.Field, bound: BoundData) -> Booleans:
    """The mask of an unknown's elements that are solved for: (*dims)."""
    shape = tuple(bound.sizes[d] for d in unknown.dims)
    condition = problem.fixed.get(unknown)
    if condition is None:
        return np.ones(shape, np.bool_)
    domain = ir.canonical_domain(unknown.dims)
    parts = []
    for slab in ir.slabs(domain, bound.sizes):
        (value,) = evaluate([condition], LeafValues(bound, slab))
        parts.append(np.broadcast_to(np.asarray(value) == 0, slab.shape))
    return np.concatenate(parts) if domain else np.array(parts[0])
