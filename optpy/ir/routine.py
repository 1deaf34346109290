"""Routines: maps over an index space that store values into fields and add up sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from ..errors import InternalError
from ..symbolic.expr import Expr
from ..symbolic.traverse import variables
from .leaves import Access, LocalName, atoms_of, indices_of
from .spaces import Domain, Incidence, Index, Loop, loop_variable, point


@final
@dataclass(frozen=True, slots=True)
class Store:
    """``target = value`` at every point of the routine's domain; the target's index is the point itself."""

    target: Access
    value: Expr


@final
@dataclass(frozen=True, slots=True)
class Reduce:
    """``total[name] += value`` over the domain, accumulated in float64. ``maximum``: the largest magnitude instead."""

    name: str
    value: Expr
    maximum: bool = False


@final
@dataclass(frozen=True, slots=True)
class LocalSum:
    """``names[n] = sum of values[n] over loops``, at every point of the domain where the condition holds, else 0."""

    names: tuple[str, ...]
    loops: tuple[Loop, ...]
    condition: Expr
    values: tuple[Expr, ...]

    @property
    def variables(self) -> Domain:
        """The loop variables."""
        return tuple(map(loop_variable, self.loops))


@final
@dataclass(frozen=True, slots=True)
class Routine:
    """A map over a domain: local sums, then stores, then reductions. Every value is read before any store.

    Attributes:
        prepares: whether later routines of its group read what it stores, also where nothing is solved for.
    """

    name: str
    domain: Domain
    stores: tuple[Store, ...] = ()
    reductions: tuple[Reduce, ...] = ()
    locals: tuple[LocalSum, ...] = ()
    prepares: bool = False

    @property
    def roots(self) -> list[Expr]:
        outer = [s.value for s in self.stores] + [r.value for r in self.reductions]
        return outer + [e for x in self.locals for e in (x.condition, *x.values)]

    def accesses(self) -> list[Access]:
        return [v.key for v in variables(self.roots) if isinstance(v.key, Access)]

    def __str__(self) -> str:
        lines = [f"{self.name} over ({_loops_text(self.domain)})"]
        for x in self.locals:
            lines.append(f"  where {x.condition!r}, sum over ({_loops_text(x.loops)})")
            lines += [f"    {name} += {value!r}" for name, value in zip(x.names, x.values, strict=True)]
        lines += [f"  {s.target} = {s.value!r}" for s in self.stores]
        lines += [f"  {'max' if r.maximum else 'sum'} {r.name}: {r.value!r}" for r in self.reductions]
        return "\n".join(lines)


def _loops_text(loops: Iterable[Loop]) -> str:
    return ", ".join(f"{k}: {k.dim}" if isinstance(k, Index) else str(k) for k in loops)


def verify(routine: Routine) -> None:
    """Check what later stages rely on; a failure is a mistake of optpy, not of the user."""
    inner = {i for x in routine.locals for i in x.variables}
    allowed = {*routine.domain, *inner}
    names = {name for x in routine.locals for name in x.names}
    for v in variables(routine.roots):
        key = v.key
        if isinstance(key, LocalName) and key.name not in names:
            raise InternalError(f"{routine.name} reads the local {key.name}, which it does not compute")
        for index in indices_of(key):
            if index not in allowed:
                raise InternalError(f"{routine.name}: {key} uses the loop variable {index} from outside its domain")
    for loop in (k for x in routine.locals for k in x.loops if isinstance(k, Incidence)):
        if any(a not in routine.domain for a in atoms_of(loop.at) if isinstance(a, Index)):
            raise InternalError(f"{routine.name} loops over the edges at a point outside its domain: {loop}")
    if len({r.maximum for r in routine.reductions}) > 1:
        raise InternalError(f"{routine.name} has both sums and maxima")
    targets = [s.target for s in routine.stores]
    if len(set(targets)) != len(targets):
        raise InternalError(f"{routine.name} stores the same element twice")
    for target in targets:
        if target.index != point(routine.domain):
            raise InternalError(f"{routine.name} stores {target} away from its own point")
