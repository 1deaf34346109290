"""A residual at one point of its domain: the numbers that it reads there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, final

import numpy as np

from optpy import ir
from optpy.energy.check.diagnosis import GridIndex, Read
from optpy.energy.check.evaluation import LeafValues
from optpy.energy.data.binding import BoundData
from optpy.energy.language.written_out import written_out
from optpy.symbolic.expr import Expr, var
from optpy.symbolic.interpret import Value, evaluate
from optpy.symbolic.traverse import variables


@final
class AtPoint:
    """The values of leaves at a point, intermediates among them, where no unknown on a manifold has moved.

    Args:
        domain: of the residual.
        bound: the data.
        index: of the point in the domain.
    """

    def __init__(self, domain: ir.Domain, bound: BoundData, index: GridIndex) -> None:
        sizes = tuple(bound.sizes[i.dim] for i in domain)
        self._slab = ir.Slab(domain, index[0], (1, *sizes[1:])) if index else ir.Slab(domain, 0, ())
        self._at = (0, *index[1:]) if index else ()
        self._leaf_values = LeafValues(bound, self._slab)

    def _here(self, values: Any) -> Any:
        return np.broadcast_to(values, self._slab.shape)[self._at]

    def __call__(self, key: Any) -> Value:
        role = key.field.role if isinstance(key, ir.Access) else None
        if role is ir.Role.TANGENT:
            return 0.0
        if role is ir.Role.FUNC:
            return self.values(written_out([var(key)], attrgetter("values")))[0]
        value = self._leaf_values(key)
        return value if isinstance(key, ir.Plane) else float(self._here(value))

    def values(self, roots: Iterable[Expr]) -> list[float]:
        """Of expressions."""
        return [float(v) for v in evaluate(roots, self)]

    def element(self, access: ir.Access) -> GridIndex | None:
        """The element that an access reads; None outside."""
        position, inside = self._leaf_values.position(access)
        return tuple(int(self._here(n)) for n in position) if self._here(inside) else None

    def reads(self, roots: Iterable[Expr]) -> Iterator[Read]:
        """The elements that expressions read."""
        for v in variables(list(roots)):
            key = v.key
            if isinstance(key, ir.Scalar):
                yield Read(key.name, None, None, float(self(key)))
            elif isinstance(key, ir.Access) and key.field.role is not ir.Role.TANGENT:
                channel = key.channel if key.field.channels > 1 else None
                yield Read(key.field.name, self.element(key), channel, float(self(key)))
