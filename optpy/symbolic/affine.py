"""Integer index algebra: affine expressions of loop variables and sizes, and their inversion.

A residual that reads ``X[2*i + 1, j - 1]`` touches, seen from the unknown ``X[y, x]``, the residuals at
``i = (y - 1) / 2`` (where that divides) and ``j = x + 1``. ``invert`` finds them: this is what turns scatters into gathers,
for stencils (shifts) and for strides and dilations alike.

References: Tile language (PlaidML) on contraction index polynomials; Li et al., "Differentiable Programming for Image
Processing and Deep Learning in Halide", 2018, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, final


class Atom(Protocol):
    """A loop variable, a symbolic size, or a floor division. ``str(atom)`` is unique."""

    def __hash__(self) -> int: ...


@final
@dataclass(frozen=True, slots=True)
class Affine:
    """``constant + sum(c * atom)`` with integer coefficients; terms sorted by the atoms' names."""

    constant: int
    terms: tuple[tuple[Atom, int], ...] = ()

    @staticmethod
    def of(value: Affine | Atom | int) -> Affine:
        if isinstance(value, Affine):
            return value
        if isinstance(value, int):
            return Affine(value)
        return Affine(0, ((value, 1),))

    @staticmethod
    def collect(constant: int, terms: Iterable[tuple[Atom, int]]) -> Affine:
        total: dict[Atom, int] = {}
        for atom, c in terms:
            total[atom] = total.get(atom, 0) + c
        return Affine(constant, tuple(sorted(((a, c) for a, c in total.items() if c), key=lambda t: str(t[0]))))

    def __add__(self, other: Affine | int) -> Affine:
        other = Affine.of(other)
        return Affine.collect(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: Affine | int) -> Affine:
        return self + Affine.of(other) * -1

    def __mul__(self, factor: int) -> Affine:
        return Affine.collect(self.constant * factor, ((a, c * factor) for a, c in self.terms))

    def coefficient(self, atom: Atom) -> int:
        return dict(self.terms).get(atom, 0)

    @property
    def atoms(self) -> tuple[Atom, ...]:
        return tuple(a for a, _ in self.terms)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def offset_from(self, atom: Atom) -> int | None:
        """d if this is ``atom + d``, else None."""
        return self.constant if self.terms == ((atom, 1),) else None

    def substitute(self, replacement: Mapping[Atom, Affine]) -> Affine:
        result = Affine(self.constant)
        for atom, c in self.terms:
            if isinstance(atom, FloorDiv):
                inner = atom.numerator.substitute(replacement)
                result = result + floor_divide(inner, atom.denominator) * c
            else:
                result = result + replacement.get(atom, Affine.of(atom)) * c
        return result

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

    def __str__(self) -> str:
        return f"(({self.numerator}) // {self.denominator})"


def floor_divide(numerator: Affine, denominator: int) -> Affine:
    """Folded when every coefficient divides."""
    if denominator < 0:
        numerator, denominator = numerator * -1, -denominator
    if all(c % denominator == 0 for _, c in numerator.terms):
        return Affine(numerator.constant // denominator, tuple((a, c // denominator) for a, c in numerator.terms))
    return Affine.of(FloorDiv(numerator, denominator))


@final
@dataclass(frozen=True, slots=True)
class Divides:
    """The condition that ``denominator`` divides ``numerator``."""

    numerator: Affine
    denominator: int


@final
@dataclass(frozen=True, slots=True)
class IsZero:
    """The condition ``value == 0``."""

    value: Affine


Condition = Divides | IsZero


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
    conditions: tuple[Condition, ...]


def invert(rows: Sequence[Affine], targets: Sequence[Affine], variables: Sequence[Atom]) -> Inverse:
    """Solve ``rows[n](variables) == targets[n]`` for the variables, by integer elimination.

    A row with a coefficient of +-1 gives its variable directly; otherwise the variable is the quotient, under the
    condition that it divides; rows without variables left become conditions.
    """
    solution: dict[Atom, Affine] = {}
    conditions: list[Condition] = []
    # Rows with unit coefficients first: a variable found without division needs no condition.
    pending = sorted(zip(rows, targets, strict=True), key=lambda r: not _has_unit(r[0], variables))
    for row, target in pending:
        row = row.substitute(solution)
        candidates = [(abs(row.coefficient(v)) != 1, n, v) for n, v in enumerate(variables) if v not in solution and row.coefficient(v)]
        if not candidates:
            difference = row - target
            if difference != Affine(0):
                conditions.append(IsZero(difference))
            continue
        variable = min(candidates)[2]
        a = row.coefficient(variable)
        rest = target - (row - Affine.of(variable) * a)
        if abs(a) != 1:
            conditions.append(Divides(rest, abs(a)))
        value = floor_divide(rest, a) if abs(a) != 1 else rest * a
        solution = {v: s.substitute({variable: value}) for v, s in solution.items()}
        conditions = [_substitute_condition(c, {variable: value}) for c in conditions]
        solution[variable] = value
    free = tuple(v for v in variables if v not in solution)
    return Inverse(solution, free, tuple(conditions))


def _has_unit(row: Affine, variables: Sequence[Atom]) -> bool:
    return any(abs(row.coefficient(v)) == 1 for v in variables)


def _substitute_condition(c: Condition, replacement: Mapping[Atom, Affine]) -> Condition:
    if isinstance(c, Divides):
        return Divides(c.numerator.substitute(replacement), c.denominator)
    return IsZero(c.value.substitute(replacement))
