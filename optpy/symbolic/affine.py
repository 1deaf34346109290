"""Integer index algebra: affine expressions of loop variables and sizes, and their inversion.

A residual that reads ``X[2*i + 1, j - 1]`` touches, seen from the unknown ``X[y, x]``, the residuals at
``i = (y - 1) / 2`` (where that divides) and ``j = x + 1``. ``invert`` finds them: this is what turns
scatters into gathers, for stencils (shifts) and for strides and dilations alike.

References: Tile language (PlaidML) on contraction index polynomials; Li et al., "Differentiable Programming
for Image Processing and Deep Learning in Halide", 2018, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any, Protocol, TypeGuard, final

import numpy as np


class Atom(Protocol):
    """A loop variable, a symbolic size, a floor division or an entry of a table. ``str(atom)`` is unique."""

    def __hash__(self) -> int: ...


@final
@dataclass(frozen=True, slots=True)
class Affine:
    """``constant + sum(c * atom)`` with integer coefficients; terms sorted by the atoms' names."""

    constant: int
    terms: tuple[tuple[Atom, int], ...] = ()

    @staticmethod
    def of(value: Affine | Atom | int) -> Affine:
        """The affine expression that a number, or a single atom, is."""
        if isinstance(value, Affine):
            return value
        if isinstance(value, int | np.integer):
            return Affine(int(value))
        return Affine(0, ((value, 1),))

    @staticmethod
    def collect(constant: int, terms: Iterable[tuple[Atom, int]]) -> Affine:
        """A constant and terms, those of one atom added up, without those of coefficient 0."""
        total: dict[Atom, int] = {}
        for atom, c in terms:
            total[atom] = total.get(atom, 0) + c
        pairs = [(a, c) for a, c in total.items() if c]
        if len(pairs) > 1:
            pairs.sort(key=lambda t: str(t[0]))
        return Affine(constant, tuple(pairs))

    def __add__(self, other: Affine | int) -> Affine:
        other = Affine.of(other)
        if not other.terms:
            return Affine(self.constant + other.constant, self.terms)
        return Affine.collect(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: Affine | int) -> Affine:
        return self + Affine.of(other) * -1

    def __mul__(self, factor: int) -> Affine:
        return Affine.collect(self.constant * factor, ((a, c * factor) for a, c in self.terms))

    def coefficient(self, atom: Atom) -> int:
        """The integer that an atom is multiplied by; 0 where it is in no term."""
        return dict(self.terms).get(atom, 0)

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """The atoms of the terms, in their order."""
        return tuple([a for a, _ in self.terms])

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def offset_from(self, atom: Atom) -> int | None:
        """d if this is ``atom + d``, else None."""
        return self.constant if self.terms == ((atom, 1),) else None

    def substitute(self, replacement: Mapping[Atom, Affine]) -> Affine:
        """The index with atoms replaced, also inside floor divisions and the rows of entries."""
        constant = self.constant
        terms: list[tuple[Atom, int]] = []
        for atom, c in self.terms:
            new = replacement.get(atom)
            if new is None and isinstance(atom, FloorDiv):
                new = floor_divide(atom.numerator.substitute(replacement), atom.denominator)
            elif new is None and isinstance(atom, TableEntry):
                new = Affine.of(TableEntry(atom.table, atom.column, atom.row.substitute(replacement)))
            if new is None:
                terms.append((atom, c))
            else:
                constant += c * new.constant
                terms.extend((a, c * k) for a, k in new.terms)
        return Affine.collect(constant, terms)

    def evaluate(self, value: Mapping[Atom, Any]) -> Any:
        """The number, or array of numbers, given those of the atoms."""
        total: Any = self.constant
        for atom, c in self.terms:
            part = atom.numerator.evaluate(value) // atom.denominator if isinstance(atom, FloorDiv) else value[atom]
            total = total + c * part
        return total

    def reads(self, atoms: Iterable[Atom]) -> bool:
        """Whether any of the atoms occurs, also inside floor divisions and the rows of entries."""
        atoms = set(atoms)
        return any(a in atoms or (_is_opaque(a) and a.inner.reads(atoms)) for a in self.atoms)

    def __str__(self) -> str:
        text = ""
        for atom, c in self.terms:
            body = str(atom) if abs(c) == 1 else f"{abs(c)}*{atom}"
            text += (f" - {body}" if text else f"-{body}") if c < 0 else (f" + {body}" if text else body)
        if self.constant or not text:
            c = self.constant
            text += str(c) if not text else (f" + {c}" if c > 0 else f" - {-c}")
        return text


@final
@dataclass(frozen=True, slots=True)
class FloorDiv:
    """``floor(numerator / denominator)``, denominator positive."""

    numerator: Affine
    denominator: int

    @property
    def inner(self) -> Affine:
        """The affine index inside."""
        return self.numerator

    def __str__(self) -> str:
        return f"(({self.numerator}) // {self.denominator})"


class IndexTable(Protocol):
    """A table of whole numbers that the data brings; each of its columns points into an axis."""

    name: str

    def __hash__(self) -> int: ...


@final
@dataclass(frozen=True, slots=True)
class TableEntry:
    """``table[row, column]``: a whole number that only the data knows."""

    table: Any
    """An ``IndexTable``."""
    column: int
    row: Affine

    @property
    def inner(self) -> Affine:
        """The affine index inside: that of the row."""
        return self.row

    def __str__(self) -> str:
        return f"{self.table.name}[{self.row}, {self.column}]"


def _is_opaque(atom: Any) -> TypeGuard[FloorDiv | TableEntry]:
    """Whether an atom is a function of an affine index that cannot be solved for what is inside it."""
    return isinstance(atom, FloorDiv | TableEntry)


def floor_divide(numerator: Affine, denominator: int) -> Affine:
    """``floor(numerator / denominator)``, with what divides drawn out: ``(4*i + 3) // 2`` is ``2*i + 1``.

    Raises:
        ZeroDivisionError: the denominator is 0.
    """
    if denominator == 0:
        raise ZeroDivisionError("an index is divided by zero")
    if denominator < 0:
        numerator, denominator = numerator * -1, -denominator
    common = gcd(denominator, *(c for _, c in numerator.terms))
    # floor(n / (a*b)) = floor(floor(n / a) / b), and the first division is exact but for the constant.
    numerator = Affine(numerator.constant // common, tuple((a, c // common) for a, c in numerator.terms))
    denominator //= common
    quotient, remainder = divmod(numerator.constant, denominator)
    whole = Affine(quotient, tuple((a, c // denominator) for a, c in numerator.terms if c % denominator == 0))
    rest = tuple((a, c) for a, c in numerator.terms if c % denominator)
    return whole + Affine.of(FloorDiv(Affine(remainder, rest), denominator)) if rest else whole


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


SolutionCondition = Divides | IsZero


@final
@dataclass(frozen=True, slots=True)
class Inverse:
    """All solutions of an affine system.

    Attributes:
        solution: each solved loop variable in terms of the targets and the free variables.
        free: loop variables that stay loops (the unknown is touched by many residuals).
        conditions: what must hold for a solution to exist.
    """

    solution: dict[Atom, Affine]
    free: tuple[Atom, ...]
    conditions: tuple[SolutionCondition, ...]


def invert(rows: Sequence[Affine], targets: Sequence[Affine], variables: Sequence[Atom]) -> Inverse:
    """Solve ``rows[n](variables) == targets[n]`` for the variables, over the integers.

    Gauss-Jordan elimination without fractions: each pivot variable v ends in an equation ``a*v = rest``
    whose rest has targets and free variables only. So v is the quotient, under the condition that ``a``
    divides; a row left without variables is a condition by itself. Pivots of coefficient +-1 come first, as
    they need no condition. A row with a variable inside a floor division or an entry is a condition on the
    others' solution.

    Every integer point with ``rows == targets`` is found exactly once: for the free variables at its own
    values.
    """
    pending: list[Affine] = []
    opaque: list[Affine] = []
    for row, target in zip(rows, targets, strict=True):
        inside = any(_is_opaque(a) and a.inner.reads(variables) for a in row.atoms)
        (opaque if inside else pending).append(row - target)
    solved, left = _gauss_jordan(pending, variables)
    conditions: list[SolutionCondition] = [IsZero(row) for row in left]
    solution: dict[Atom, Affine] = {}
    for v in sorted(solved, key=variables.index):
        a = solved[v].coefficient(v)
        rest = (solved[v] - Affine.of(v) * a) * (-1 if a > 0 else 1)
        if abs(a) != 1:
            conditions.append(Divides(rest, abs(a)))
        solution[v] = floor_divide(rest, abs(a))
    conditions += [IsZero(row.substitute(solution)) for row in opaque]
    return Inverse(solution, tuple(v for v in variables if v not in solution), tuple(conditions))


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
