"""Inversion of affine indices: the loop variables at which an index has a given value.

A residual that reads ``X[2*i + 1, j - 1]`` touches, seen from the unknown ``X[y, x]``, the residuals at
``i = (y - 1) / 2`` (where that divides) and ``j = x + 1``. ``invert`` finds them: this is what turns
scatters into gathers, for stencils (shifts), for strides and dilations, and for quotients: ``X[i // 2]``
is read at ``i = 2*y + r`` with a remainder r of 0 or 1, ``X[i % 3]`` at ``i = 3*q + y`` for all quotients q.

References: Tile language (PlaidML) on contraction index polynomials; Li et al., "Differentiable Programming
for Image Processing and Deep Learning in Halide", 2018, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any, TypeGuard, final

from optpy.symbolic.affine import Affine, Atom, FloorDiv, TableEntry, floor_divide


@final
@dataclass(frozen=True, slots=True)
class Divides:
    """The condition that ``denominator`` divides ``numerator``."""

    numerator: Affine
    denominator: int

    def evaluate(self, value: Mapping[Atom, Any]) -> Any:
        """The truth of the condition where atoms have these values: numbers, or arrays of one shape."""
        return self.numerator.evaluate(value) % self.denominator == 0


@final
@dataclass(frozen=True, slots=True)
class IsZero:
    """The condition ``value == 0``."""

    value: Affine

    def evaluate(self, value: Mapping[Atom, Any]) -> Any:
        """The truth of the condition where atoms have these values: numbers, or arrays of one shape."""
        return self.value.evaluate(value) == 0


@final
@dataclass(frozen=True, slots=True)
class Below:
    """The condition ``0 <= value < bound``."""

    value: Affine
    bound: int

    def evaluate(self, value: Mapping[Atom, Any]) -> Any:
        """The truth of the condition where atoms have these values: numbers, or arrays of one shape."""
        found = self.value.evaluate(value)
        return (found >= 0) & (found < self.bound)


SolutionCondition = Divides | IsZero


@final
@dataclass(frozen=True, slots=True)
class Quotient:
    """The value of a floor division, as an unknown of a system of equations."""

    of: FloorDiv

    def __str__(self) -> str:
        return f"quotient{self.of}"


@final
@dataclass(frozen=True, slots=True)
class Remainder:
    """The rest of a floor division, from 0 to its denominator - 1, as an unknown of a system of equations."""

    of: FloorDiv

    def __str__(self) -> str:
        return f"remainder{self.of}"


@final
@dataclass(frozen=True, slots=True)
class Inverse:
    """All solutions of an affine system.

    Attributes:
        solution: each solved loop variable in terms of the targets and of what is free; each floor division, too.
        free: loop variables that stay loops (the unknown is touched by many residuals), quotients and remainders.
        conditions: what must hold for a solution to exist.
    """

    solution: dict[Atom, Affine]
    free: tuple[Atom, ...]
    conditions: tuple[SolutionCondition | Below, ...]


def invert(rows: Sequence[Affine], targets: Sequence[Affine], variables: Sequence[Atom]) -> Inverse:
    """Solve ``rows[n](variables) == targets[n]`` for the variables, over the integers.

    Gauss-Jordan elimination without fractions: each pivot variable v ends in an equation ``a*v = rest``
    whose rest has targets and free variables only. So v is the quotient, under the condition that ``a``
    divides; a row left without variables is a condition by itself. Pivots of coefficient +-1 come first, as
    they need no condition. A floor division ``n // d`` of variables is two more unknowns, its quotient and its
    remainder, and one more equation, ``n = d * quotient + remainder``. A row with a variable inside an entry is
    a condition on the others' solution.

    Every integer point with ``rows == targets`` is found exactly once: for the free variables at its own
    values.
    """
    pending: list[Affine] = []
    opaque: list[Affine] = []
    divisions = _Divisions(variables)
    for row, target in zip(rows, targets, strict=True):
        inside = any(isinstance(a, TableEntry) and a.row.reads(variables) for a in _atoms_within(row))
        (opaque if inside else pending).append((row if inside else divisions.split(row)) - target)
    quotients, remainders = divisions.quotients, [Remainder(q.of) for q in divisions.quotients]
    # Of a division both are wanted: its quotient first, so that loops run over remainders, which are few.
    order: list[Atom] = [*quotients, *variables, *remainders]
    solved, left = _gauss_jordan([*pending, *divisions.equations], order)
    conditions: list[SolutionCondition | Below] = [IsZero(row) for row in left]
    solution: dict[Atom, Affine] = {}
    for v in sorted(solved, key=order.index):
        a = solved[v].coefficient(v)
        rest = (solved[v] - Affine.of(v) * a) * (-1 if a > 0 else 1)
        if abs(a) != 1:
            conditions.append(Divides(rest, abs(a)))
        found = floor_divide(rest, abs(a))
        if isinstance(v, Remainder):
            conditions.append(Below(found, v.of.denominator))
        else:
            solution[v] = found
    free = tuple(v for v in order if v not in solved)
    for q in quotients:
        solution[q.of] = solution.pop(q, Affine.of(q))
    conditions += [IsZero(row.substitute(solution)) for row in opaque]
    return Inverse(solution, free, tuple(conditions))


@final
class _Divisions:
    """The floor divisions of variables in the rows of a system.

    Attributes:
        quotients: of each division.
        equations: for each division, 0 where its quotient and its remainder are what they are.
    """

    def __init__(self, variables: Sequence[Atom]) -> None:
        self._variables = variables
        self.quotients: list[Quotient] = []
        self.equations: list[Affine] = []

    def split(self, row: Affine) -> Affine:
        """The row with quotients in the place of its floor divisions."""
        found: dict[Atom, Affine] = {a: Affine.of(self._quotient(a)) for a in row.atoms if self._divides_variables(a)}
        return row.substitute(found) if found else row

    def _divides_variables(self, atom: Atom) -> TypeGuard[FloorDiv]:
        return isinstance(atom, FloorDiv) and atom.numerator.reads(self._variables)

    def _quotient(self, division: FloorDiv) -> Quotient:
        made = Quotient(division)
        if made not in self.quotients:
            numerator = self.split(division.numerator)
            self.quotients.append(made)
            value = Affine.of(made) * division.denominator + Affine.of(Remainder(division))
            self.equations.append(numerator - value)
        return made


def _atoms_within(index: Affine) -> Iterable[Atom]:
    """All atoms, also those inside floor divisions."""
    for a in index.atoms:
        yield a
        if isinstance(a, FloorDiv):
            yield from _atoms_within(a.numerator)


def _gauss_jordan(rows: list[Affine], variables: Sequence[Atom]) -> tuple[dict[Atom, Affine], list[Affine]]:
    """The equations ``row == 0`` solved: an equation for each pivot variable, which no other one reads; and those left
    without variables, but for 0 == 0."""
    solved: dict[Atom, Affine] = {}
    while pivots := [
        (abs(row.coefficient(v)), n, m)
        for m, row in enumerate(rows)
        for n, v in enumerate(variables)
        if row.coefficient(v)
    ]:
        _, n, m = min(pivots)
        v, pivot = variables[n], rows[m]
        rows = [_eliminate(row, pivot, v) for k, row in enumerate(rows) if k != m]
        solved = {other: _eliminate(row, pivot, v) for other, row in solved.items()}
        solved[v] = _primitive(pivot)
    return solved, [row for row in map(_primitive, rows) if row != Affine(0)]


def _eliminate(row: Affine, pivot: Affine, variable: Atom) -> Affine:
    """The row times a number plus the pivot row times a number, so that the variable vanishes."""
    a, b = pivot.coefficient(variable), row.coefficient(variable)
    if b == 0:
        return row
    common = lcm(a, b)
    return _primitive(row * (common // b) - pivot * (common // a))


def _primitive(row: Affine) -> Affine:
    """The same equation ``row == 0`` with its common divisor taken out."""
    common = gcd(row.constant, *(c for _, c in row.terms))
    return Affine(row.constant // common, tuple((a, c // common) for a, c in row.terms)) if common > 1 else row
