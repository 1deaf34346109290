"""Integer index algebra: affine expressions of loop variables and sizes, their quotients, and entries of tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any, Protocol, final

import numpy as np

LARGEST = 2**31 - 1
"""Of the numbers in an index, so that generated code, which computes in 64 bits, never overflows."""


class Atom(Protocol):
    """A loop variable, a symbolic size, a floor division, an entry of a table or the number of one of its rows.
    ``str(atom)`` is unique."""

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
            elif new is None and isinstance(atom, RowNumber):
                new = row_number(atom.table, [a.substitute(replacement) for a in atom.index])
            if new is None:
                terms.append((atom, c))
            else:
                constant += c * new.constant
                terms.extend((a, c * k) for a, k in new.terms)
        return Affine.collect(constant, terms)

    def evaluate(self, value: Mapping[Any, Any]) -> Any:
        """The number, or array of numbers, given those of the atoms."""
        total: Any = self.constant
        for atom, c in self.terms:
            part = atom.numerator.evaluate(value) // atom.denominator if isinstance(atom, FloorDiv) else value[atom]
            total = total + c * part
        return total

    def reads(self, atoms: Iterable[Atom]) -> bool:
        """Whether any of the atoms occurs, also inside floor divisions and the rows of entries."""
        atoms = set(atoms)
        return any(a in atoms or any(inner.reads(atoms) for inner in inside(a)) for a in self.atoms)

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


class IndexTable(Protocol):
    """A table of whole numbers that the data brings; each of its columns points into an axis.

    Where its rows are counted by several axes, its last columns are each row's own index along them.
    """

    name: str

    @property
    def own_columns(self) -> range:
        """The columns that hold a row's own index; none where rows are counted by one axis."""

    def __hash__(self) -> int: ...


@final
@dataclass(frozen=True, slots=True)
class TableEntry:
    """``table[row, column]``: a whole number that only the data knows."""

    table: Any
    """An ``IndexTable``."""
    column: int
    row: Affine

    def __str__(self) -> str:
        return f"{self.table.name}[{self.row}, {self.column}]"


@final
@dataclass(frozen=True, slots=True)
class RowNumber:
    """The number, in C order, of the row of a table that stands at an index along several axes; -1 outside of them."""

    table: Any
    """An ``IndexTable`` whose rows are counted by several axes."""
    index: tuple[Affine, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.index))})"


def row_number(table: Any, index: Iterable[Affine]) -> Affine:
    """The row of a table at an index along several axes: a row itself where the index is its own."""
    index = tuple(index)
    first = index[0].atoms[0] if index[0].atoms else None
    if isinstance(first, TableEntry) and index == tuple(
        Affine.of(TableEntry(table, c, first.row)) for c in table.own_columns
    ):
        return first.row
    return Affine.of(RowNumber(table, index))


def inside(atom: Any) -> tuple[Affine, ...]:
    """The affine indices inside an atom that cannot be solved for them."""
    match atom:
        case FloorDiv():
            return (atom.numerator,)
        case TableEntry():
            return (atom.row,)
        case RowNumber():
            return atom.index
        case _:
            return ()


def floor_divide(numerator: Affine, denominator: int) -> Affine:
    """``floor(numerator / denominator)``, with what divides drawn out: ``(4*i + 3) // 2`` is ``2*i + 1``; one division
    in place of two: ``(i // 2 + 1) // 2`` is ``(i + 2) // 4``.

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
    if not rest:
        return whole
    fraction = Affine(remainder, rest)
    return whole + (_of_a_quotient(fraction, denominator) or Affine.of(FloorDiv(fraction, denominator)))


def _of_a_quotient(numerator: Affine, denominator: int) -> Affine | None:
    """``(n // a + rest) // b`` is ``(n + a*rest) // (a*b)``; None where it is none, or its numbers would be large."""
    for atom, c in numerator.terms:
        if isinstance(atom, FloorDiv) and c == 1:
            above = atom.numerator + (numerator - Affine.of(atom)) * atom.denominator
            below = atom.denominator * denominator
            if max(below, abs(above.constant), *(abs(k) for _, k in above.terms)) <= LARGEST:
                return floor_divide(above, below)
    return None
