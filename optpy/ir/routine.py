"""Routines: maps over an index space that store values into fields and add up sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from optpy.errors import InternalError
from optpy.ir.fields import REAL, Field, Role
from optpy.ir.leaves import Access, LocalName, atoms_of, indices_of
from optpy.ir.spaces import Domain, Incidence, LoopVariable, SumLoop, loop_variable, point
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


@final
@dataclass(frozen=True, slots=True)
class Assignment:
    """``target = value`` at every point of the routine's domain; the target's index is the point itself."""

    target: Access
    value: Expr


@final
@dataclass(frozen=True, slots=True)
class AtomicAdd:
    """``target += value`` at every point of the routine's domain, in one atomic addition, in whatever order.

    The target's index is whatever the point determines: what the slots of an edge point at, a point at an offset.
    Several points may add to one element. Where the target is outside its field nothing is added.
    """

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
    """``names[n] = sum of values[n] over loops``, at every point of the domain where the condition holds, else 0.

    Over no loops it is the value itself, of one term, which is 0 anyway where the condition fails.
    """

    names: tuple[str, ...]
    loops: tuple[SumLoop, ...]
    condition: Expr
    values: tuple[Expr, ...]

    @property
    def variables(self) -> Domain:
        """The loop variables."""
        return tuple(map(loop_variable, self.loops))


@final
@dataclass(frozen=True, slots=True)
class Routine:
    """A map over a domain: local sums, then assignments and atomic additions, then reductions.

    At each point every value is read before any assignment.

    Attributes:
        atomic_adds: additions to elements of the solver's vectors that other points may add to as well; a routine
            neither reads nor stores the fields that it adds to. It visits its whole domain.
        prepares: whether later routines of its group read, or add to, what it stores or adds up, also where nothing is
            solved for: all of it, and all routines before it, must be done before the next one begins.
    """

    name: str
    domain: Domain
    assignments: tuple[Assignment, ...] = ()
    reductions: tuple[Reduce, ...] = ()
    locals: tuple[LocalSum, ...] = ()
    prepares: bool = False
    atomic_adds: tuple[AtomicAdd, ...] = ()

    @property
    def roots(self) -> list[Expr]:
        """All expressions: of assignments, atomic additions, reductions, and conditions and values of local sums."""
        outer = [s.value for s in self.assignments] + [x.value for x in self.atomic_adds]
        outer += [r.value for r in self.reductions]
        return outer + [e for x in self.locals for e in (x.condition, *x.values)]

    @property
    def keys(self) -> list[object]:
        """The leaves of all expressions, and what is added to."""
        return [*(v.key for v in variables(self.roots)), *(x.target for x in self.atomic_adds)]

    def accesses(self) -> list[Access]:
        """The accesses that are read."""
        return [v.key for v in variables(self.roots) if isinstance(v.key, Access)]

    def __str__(self) -> str:
        lines = [f"{self.name} over ({_loops_text(self.domain)})"]
        for x in self.locals:
            lines.append(f"  where {x.condition!r}, sum over ({_loops_text(x.loops)})")
            lines += [f"    {name} += {value!r}" for name, value in zip(x.names, x.values, strict=True)]
        lines += [f"  {s.target} = {s.value!r}" for s in self.assignments]
        lines += [f"  {x.target} += {x.value!r}" for x in self.atomic_adds]
        lines += [f"  {'max' if r.maximum else 'sum'} {r.name}: {r.value!r}" for r in self.reductions]
        return "\n".join(lines)


def in_phases(routines: Iterable[Routine]) -> list[list[Routine]]:
    """A group of routines, cut wherever one must wait until earlier ones are done at all their points.

    Within a phase routines may run side by side: none reads or stores what another one writes; several may add to the
    same field, which none of them stores.
    """
    found: list[list[Routine]] = []
    for routine in routines:
        if found and not any(_must_wait(routine, earlier) for earlier in found[-1]):
            found[-1].append(routine)
        else:
            found.append([routine])
    return found


def _must_wait(later: Routine, earlier: Routine) -> bool:
    reads, stores, adds = _fields_used(earlier)
    own_reads, own_stores, own_adds = _fields_used(later)
    first = (stores | adds) & (own_reads | own_stores) | stores & own_adds
    return bool(first | reads & (own_stores | own_adds))


def _fields_used(routine: Routine) -> tuple[set[Field], set[Field], set[Field]]:
    """(read, stored, added to)."""
    return (
        {a.field for a in routine.accesses()},
        {s.target.field for s in routine.assignments},
        {x.target.field for x in routine.atomic_adds},
    )


def _loops_text(loops: Iterable[SumLoop]) -> str:
    return ", ".join(f"{k}: {k.dim}" if isinstance(k, LoopVariable) else str(k) for k in loops)


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
        if any(a not in routine.domain for a in atoms_of(loop.at) if isinstance(a, LoopVariable)):
            raise InternalError(f"{routine.name} loops over the edges at a point outside its domain: {loop}")
    if len({r.maximum for r in routine.reductions}) > 1:
        raise InternalError(f"{routine.name} has both sums and maxima")
    targets = [s.target for s in routine.assignments]
    if len(set(targets)) != len(targets):
        raise InternalError(f"{routine.name} stores the same element twice")
    for target in targets:
        if target.index != point(routine.domain):
            raise InternalError(f"{routine.name} stores {target} away from its own point")
    _verify_atomic_adds(routine)


def _verify_atomic_adds(routine: Routine) -> None:
    targets = [x.target for x in routine.atomic_adds]
    if len(set(targets)) != len(targets):
        raise InternalError(f"{routine.name} adds to the same element twice")
    used = {a.field for a in routine.accesses()} | {s.target.field for s in routine.assignments}
    for target in targets:
        if target.field.role is not Role.VECTOR or target.field.dtype != REAL:
            raise InternalError(f"{routine.name} adds to {target}, which is no vector of the solver")
        if target.field in used:
            raise InternalError(f"{routine.name} adds to {target.field}, which it reads or stores as well")
        if any(i not in routine.domain for i in indices_of(target)):
            raise InternalError(f"{routine.name} adds to {target}, which its point does not determine")
