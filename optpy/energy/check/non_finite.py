"""Explanations of values that are not finite where a solve starts: a residual, a derivative, or the gradient."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.check.at_point import AtPoint
from optpy.energy.check.diagnosis import GridIndex, Read
from optpy.energy.check.jacobian import Columns, Partials
from optpy.energy.check.steep import steep_operation
from optpy.energy.data.binding import BoundData
from optpy.symbolic.expr import Var

_READS: Final = 8
"""So many of the numbers read are shown."""


def explain_values(
    problem: ir.Problem, values: Mapping[str, NDArray[Any]], terms: Collection[str], bound: BoundData
) -> str:
    """Names the residual that is not finite, its element, and what it reads there, intermediates among it.

    Args:
        problem: the problem.
        values: each residual by its label, (*domain, components).
        terms: those whose cost is not finite.
        bound: the data, in main memory.
    """
    for r, with_funcs in zip(problem.residuals, problem.with_funcs, strict=True):
        bad = ~np.isfinite(values[r.label])
        if r.term in terms and bad.any():
            at = tuple(map(int, np.argwhere(bad)[0]))
            here = AtPoint(r.domain, bound, at[:-1])
            read = _shown([*here.reads([with_funcs.components[at[-1]]]), *here.reads([r.components[at[-1]]])])
            return (
                f"the residual {_named(r)} is {values[r.label][at]} at {_place(r, at[:-1], at[-1])}; it reads {read}. "
                f"{int(bad.sum())} of its {bad.size} values are not finite at the initial values. "
                "Guard the expression with op.where, or start elsewhere"
            )
    return f"the squares of the term(s) {', '.join(terms)} overflow {bound.dtype}: scale the energy"


def explain_gradient(
    residuals: Sequence[ir.Residual],
    columns: Columns,
    bound: BoundData,
    gradient: Mapping[str, NDArray[Any]],
    dtype: str,
) -> str:
    """Explains why the gradient J^T F is not finite though F is.

    Args:
        residuals: of the energy.
        columns: of J.
        bound: the data, in main memory.
        gradient: of each unknown by its name, (*dims, coordinates).
        dtype: of the solve.
    """
    # In float64: what is finite there may yet overflow the solve's own precision.
    for largest in sorted({np.inf, float(np.finfo(dtype).max)}, reverse=True):
        for r in residuals:
            found = _first_beyond(largest, r, columns, bound)
            if found is not None:
                return _infinite_text(found, bound) if largest == np.inf else _overflow_text(found, bound, dtype)
    name, values = next((name, g) for name, g in gradient.items() if not np.isfinite(g).all())
    at = tuple(map(int, np.argwhere(~np.isfinite(values))[0]))
    return (
        f"the gradient J^T F by {_element(name, at[:-1], at[-1], values.shape[-1])} is {values[at]}: every derivative "
        f"is finite, but something on the way to their sum overflows {dtype}, or is rounded to 0 there and divided by. "
        f"{_scale(dtype)}"
    )


@final
@dataclass(frozen=True, slots=True)
class _Slope:
    """The first derivative of a residual that is too large, and how many there are."""

    residual: ir.Residual
    index: GridIndex
    component: int
    by: Var
    value: float
    count: int
    total: int

    @property
    def place(self) -> str:
        return _place(self.residual, self.index, self.component)

    def at(self, bound: BoundData) -> AtPoint:
        return AtPoint(self.residual.domain, bound, self.index)


def _first_beyond(largest: float, residual: ir.Residual, columns: Columns, bound: BoundData) -> _Slope | None:
    """The first derivative beyond a magnitude, or NaN; None if there is none."""
    partials, components = Partials(residual), len(residual.components)
    first: tuple[tuple[int, int], int, ir.Slab, float] | None = None  # its row and column, which one, slab, value
    count = total = 0
    for slab in ir.slabs(residual.domain, bound.sizes):
        begun = count > 0
        for k, (rows, column, values) in enumerate(partials.entries(slab, bound, columns, 0)):
            fits = np.isfinite(values) if largest == np.inf else np.abs(values) <= largest
            bad = np.flatnonzero(~fits)
            count, total = count + bad.size, total + values.size
            if bad.size and not begun:
                n = bad[0]
                place = int(rows[n]), int(column[n])
                if first is None or place < first[0]:
                    first = place, k, slab, float(values[n])
    if first is None:
        return None
    (row, _), k, slab, value = first
    at = [int(n) for n in np.unravel_index(row // components, slab.shape)] if slab.shape else []
    if at:
        at[0] += slab.start
    component, by = partials.pairs[k]
    return _Slope(residual, tuple(at), component, by, value, count, total)


# -- texts -----------------------------------------------------------------------------------------------------------


def _infinite_text(slope: _Slope, bound: BoundData) -> str:
    here = slope.at(bound)
    root = slope.residual.linearised[slope.component]
    steep = steep_operation(root, slope.by, here)
    cause = steep.cause if steep else "their product along the way overflows"
    shown = _shown(here.reads([steep.node if steep else root]))
    cure = f"{steep.cure}, guard" if steep and steep.cure else "Guard"
    return (
        f"{_beginning(slope, here)}: {cause}; it reads {shown}. {slope.count} of its {slope.total} derivatives are not "
        f"finite at the initial values. {cure} the expression with op.where, or start elsewhere"
    )


def _shown(reads: Iterable[Read]) -> str:
    """The first of what is read, each once; what is not finite, which only intermediates can be, comes first."""
    found = sorted(set(reads), key=lambda r: (np.isfinite(r.value), r.name, r.index or (), r.channel or 0))
    return ", ".join(map(str, found[:_READS])) + (", ..." if len(found) > _READS else "")


def _overflow_text(slope: _Slope, bound: BoundData, dtype: str) -> str:
    return (
        f"{_beginning(slope, slope.at(bound))}, which does not fit {dtype}; {slope.count} of its {slope.total} "
        f"derivatives do not. {_scale(dtype)}"
    )


def _beginning(slope: _Slope, here: AtPoint) -> str:
    access: ir.Access = slope.by.key
    field, element = access.field, here.element(access) or ()
    if field.role is ir.Role.TANGENT:
        by = f"coordinate {access.channel} of {_element(field.name, element, 0, 1)}"
    else:
        by = _element(field.name, element, access.channel, field.channels)
    return f"the derivative of the residual {_named(slope.residual)} by {by} is {slope.value} at {slope.place}"


def _scale(dtype: str) -> str:
    return "Scale the energy" + (", or solve with dtype=np.float64" if dtype == "float32" else "")


def _named(residual: ir.Residual) -> str:
    return f"'{residual.label}'" + (f" (written at {residual.location})" if residual.location else "")


def _place(residual: ir.Residual, index: GridIndex, component: int) -> str:
    where = ", ".join(f"{i.dim}={n}" for i, n in zip(residual.domain, index, strict=True))
    return f"[{where}], component {component}"


def _element(name: str, index: GridIndex, channel: int, channels: int) -> str:
    return f"{name}[{', '.join(map(str, index)) or '()'}]" + (f"[{channel}]" if channels > 1 else "")
