"""Symbolic sizes and loop variables, and their algebra: ``i + 1``, ``2*i - k``, ``H - 1 - i``, ``i // 2``."""

from __future__ import annotations

import itertools
import math
import numbers
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, SupportsIndex, TypeGuard, final

import numpy as np

from optpy import ir
from optpy.energy.language.naming import assigned_names, numbered, shown
from optpy.energy.language.refusal import Refusal, Symbol, numpy_refusal
from optpy.errors import EnergyError, Location, callers_frame
from optpy.symbolic.affine import LARGEST, Affine, FloorDiv, TableEntry, floor_divide

_serials = itertools.count()

_DIGITS = 40
"""Longest text of a value that a message shows."""


@final
@dataclass(frozen=True, slots=True)
class DeclaredIndex:
    """A user's index: unique, ordered by declaration. Energies rename them to ``ir.LoopVariable`` term by term."""

    serial: int
    dim: ir.Extent
    name: str = field(compare=False)
    location: Location | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return numbered(self.name, self.serial)


class IndexExpression(Symbol):
    """An integer that is affine in loop variables, sizes, and quotients of such. Plain integers are ones, too."""

    __slots__ = ("affine",)

    def __init__(self, affine: Affine) -> None:
        self.affine = _in_range(affine)

    @property
    def number_message(self) -> str:
        """The message where it stands in a formula like a number."""
        return f"the index {self} stands in a formula: write op.value(i) for its value as a number"

    def __add__(self, other: object) -> IndexExpression:
        return IndexExpression(self.affine + _operand(other, "+"))

    __radd__ = __add__

    def __sub__(self, other: object) -> IndexExpression:
        return IndexExpression(self.affine - _operand(other, "-"))

    def __rsub__(self, other: object) -> IndexExpression:
        return IndexExpression(_operand(other, "-") - self.affine)

    def __mul__(self, other: object) -> IndexExpression:
        factor = _operand(other, "*")
        if not factor.is_constant:
            raise EnergyError(
                f"({self}) * ({shown(factor)}) is not affine: an index may be multiplied by whole numbers only",
                Location.of_caller(),
            )
        return IndexExpression(self.affine * factor.constant)

    __rmul__ = __mul__

    def __neg__(self) -> IndexExpression:
        return IndexExpression(self.affine * -1)

    def __pos__(self) -> IndexExpression:
        return self

    def __floordiv__(self, other: object) -> IndexExpression:
        return IndexExpression(floor_divide(self.affine, self._divisor(other, "//")))

    def __mod__(self, other: object) -> IndexExpression:
        divisor = self._divisor(other, "%")
        return self - IndexExpression(floor_divide(self.affine, divisor)) * divisor

    def __divmod__(self, other: object) -> tuple[IndexExpression, IndexExpression]:
        return self // other, self % other

    def _divisor(self, other: object, symbol: str) -> int:
        """The number that an index is divided by."""
        divisor = _operand(other, symbol)
        if divisor.is_constant and 0 < divisor.constant <= LARGEST:
            return divisor.constant
        cure = "an index may be divided by positive whole numbers only"
        if not divisor.is_constant:
            cure += "; the value of such a quotient as a number is op.floor(op.value(i) / op.value(k))"
        elif -LARGEST <= divisor.constant < 0:
            cure += f": {shown(self)} // {divisor.constant} is ({shown(-self)}) // {-divisor.constant}"
        got = f"({describe(divisor.constant) if divisor.is_constant else shown(divisor)})"
        raise EnergyError(f"({shown(self)}) {symbol} {got}: {cure}", Location.of_caller())

    def __rfloordiv__(self, other: object) -> IndexExpression:
        return IndexExpression(_operand(other, "//")) // self

    def __rmod__(self, other: object) -> IndexExpression:
        return IndexExpression(_operand(other, "%")) % self

    def __rdivmod__(self, other: object) -> tuple[IndexExpression, IndexExpression]:
        return divmod(IndexExpression(_operand(other, "//")), self)

    _not_affine = Refusal(
        "the index {0} allows + and -, and * and // and % by whole numbers only; for its value as a number write "
        "op.value(i)"
    )
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __abs__ = _not_affine
    __round__ = __floor__ = __ceil__ = __trunc__ = _not_affine
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _not_affine
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _not_affine

    _not_comparable = Refusal(
        "the index {0} cannot be compared as it is: write op.value(i), for example op.value(i) == 0"
    )
    __lt__ = __le__ = __gt__ = __ge__ = _not_comparable

    def __eq__(self, other: object) -> bool:
        return self._not_comparable(other)

    def __ne__(self, other: object) -> bool:
        return self._not_comparable(other)

    __hash__ = object.__hash__

    __bool__ = Refusal("the index {0} has no truth value: write a condition, for example op.value(i) != 0")
    __index__ = __int__ = __float__ = __complex__ = Refusal(
        "the index {0} is symbolic and has no value while the energy is written; in a formula its value is op.value(i)"
    )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> IndexExpression:
        """NumPy's integers on the left of an operator come here."""
        operation = _NUMPY_OPERATORS.get(ufunc.__name__)
        if method == "__call__" and not options and operation is not None:
            plain = [x[()] if isinstance(x, np.ndarray) else x for x in inputs]  # comparisons bring numbers as arrays
            left, right = (IndexExpression(_operand(x, ufunc.__name__)) for x in plain)
            result: IndexExpression = operation(left, right)
            return result
        raise numpy_refusal(ufunc.__name__, "indices (their value as a number is op.value(i))")

    __array__ = __array_function__ = __index__

    def __repr__(self) -> str:
        return shown(self.affine)


_NUMPY_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip


@final
class Index(IndexExpression):
    """A loop variable over ``0 <= i < dim``. Make them with ``op.indices``."""

    __slots__ = ("variable",)

    def __init__(self, dim: ir.Extent, name: str, location: Location | None) -> None:
        self.variable = DeclaredIndex(next(_serials), dim, name, location)
        super().__init__(Affine.of(self.variable))


@final
class Dim(IndexExpression):
    """A symbolic size, bound from the data. Make them with ``op.dims``; two of the same name are the same."""

    __slots__ = ("size",)

    def __init__(self, name: str) -> None:
        check_name(name, "a dim")
        self.size = ir.Extent(name)
        super().__init__(Affine.of(self.size))

    @property
    def name(self) -> str:
        return self.size.name

    def __eq__(self, other: object) -> bool:
        return self.size == other.size if isinstance(other, Dim) else self._not_comparable(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.size)


def _in_range(index: Affine) -> Affine:
    for n in _numbers(index):
        if abs(n) > LARGEST:
            raise EnergyError(
                f"the number {describe(n)} in an index is out of range: offsets and factors are at most {LARGEST}; "
                "for arithmetic on the value of an index write op.value(i)",
                Location.of_caller(),
            )
    return index


def _numbers(index: Affine) -> Iterator[int]:
    """The numbers in an index; those within a quotient also as large as a factor of it makes them."""
    yield index.constant
    for atom, c in index.terms:
        yield c
        if isinstance(atom, FloorDiv):
            for n in _numbers(atom.numerator):
                yield n
                yield -(-abs(n * c) // atom.denominator)


def _operand(value: object, symbol: str) -> Affine:
    if isinstance(value, IndexExpression):
        return value.affine
    if not _is_whole(value):
        raise EnergyError(
            f"an index {symbol} {describe(value)} is not an index: indices are whole numbers. For the value of an "
            "index inside a formula write op.value(i)",
            Location.of_caller(),
        )
    return Affine(operator.index(value))


def _is_whole(value: object) -> TypeGuard[SupportsIndex]:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def as_affine(value: object, what: str) -> Affine:
    """The index that a user wrote.

    Args:
        value: an index, a size, an integer, or a sum of them.
        what: the start of the message, such as "axis 0 of 'X'".

    Raises:
        EnergyError: it is something else.
    """
    if isinstance(value, IndexExpression):
        return value.affine
    if _is_whole(value):
        return _in_range(Affine(operator.index(value)))
    if isinstance(value, slice) or value is Ellipsis:
        cure = "an energy is written for one point, so every axis takes one index, as in X[i, j]"
    elif isinstance(value, tuple | list) and any(isinstance(v, tuple | list) or _is_slot(v) for v in value):
        cure = "the slots of a graph are taken one by one: a, b = edges[e], then X[a] and X[b]"
    elif isinstance(value, tuple | list):
        cure = "indices of several axes stand side by side, as in X[i, j] or X[n] with n = (i, j)"
    else:
        cure = "indices are whole numbers, affine in loop variables: i, i + 1, 2*i - k, H - 1 - i, i // 2, 0"
    raise EnergyError(f"{what} is indexed by {describe(value)}; {cure}", Location.of_caller())


def is_outside(index: Affine, dim: ir.Extent) -> bool:
    """Whether an index is below 0 or beyond the last element, ``dim - 1``, whatever its variables and the sizes are."""
    least, most = ir.extremes(index)
    if any(isinstance(a, FloorDiv) for a in (*index.atoms, *least.atoms, *most.atoms)):
        return False  # not known
    beyond = least - Affine.of(dim)
    # Sizes are at least 1: a sum with no negative factor is least where all of them are 1, and the other way round.
    never_less = all(c >= 0 for _, c in beyond.terms) and _where_all_are_one(beyond) >= 0
    never_more = all(c <= 0 for _, c in most.terms) and _where_all_are_one(most) < 0
    return never_less or never_more


def _where_all_are_one(index: Affine) -> int:
    return index.constant + sum(c for _, c in index.terms)


def _is_slot(value: object) -> bool:
    """Whether it is an index that goes through a graph."""
    return isinstance(value, IndexExpression) and any(isinstance(a, TableEntry) for a in value.affine.atoms)


def describe(value: object) -> str:
    """A short text of any object, for messages."""
    if isinstance(value, slice | type(Ellipsis)):
        return "a slice" if isinstance(value, slice) else "..."
    if isinstance(value, int) and abs(value) >= 10**_DIGITS:
        return f"a whole number of some {round(value.bit_length() * math.log10(2))} digits"
    if isinstance(value, str | bytes | int | float | complex | tuple | list):
        text = repr(value)
        return text if len(text) <= _DIGITS else f"a {type(value).__name__}"
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    own = library in ("builtins", "fractions", "numpy", "optpy")
    text = kind.__qualname__ if own else f"{library} {kind.__qualname__}"
    return f"{'an' if text[0] in 'AEIOU' else 'a'} {text}"


def check_name(name: object, what: str) -> None:
    """Raise an EnergyError unless the name is an identifier."""
    if not isinstance(name, str) or not name.isidentifier():
        raise EnergyError(
            f'{describe(name)} cannot name {what}: names are words of letters, digits and _, as in "w_fit"',
            Location.of_caller(),
        )


def dims(names: str) -> Any:
    """Symbolic sizes.

    Args:
        names: separated by spaces or commas: ``H, W = op.dims("H W")``.

    Returns:
        A ``Dim`` for a single name, else a tuple of them (as ``sympy.symbols``; "N," gives a tuple of one).
    """
    return one_or_more(names, Dim, 'op.dims("H W")')


def one_or_more(names: object, make: Callable[[str], Any], example: str) -> Any:
    """Make something for each name in a string: the one made, or a tuple where there are several or a comma."""
    if not isinstance(names, str) or not names.replace(",", " ").split():
        raise EnergyError(f"names are given in one string: {example}; got {describe(names)}", Location.of_caller())
    each = names.replace(",", " ").split()
    if twice := next((n for n in each if each.count(n) > 1), None):
        raise EnergyError(f"the name {twice!r} is given twice in {names!r}; here is {example}", Location.of_caller())
    made = tuple(make(n) for n in each)
    return made[0] if len(made) == 1 and "," not in names else made


def indices(*dims: Dim) -> Any:
    """Loop variables, one over each dim: ``i, j = op.indices(H, W)``.

    Returns:
        An ``Index`` for a single dim, else a tuple of them. Every call makes new ones.
    """
    location = Location.of_caller()
    if not dims:
        raise EnergyError("op.indices takes the dims to run over: op.indices(H, W)", location)
    for d in dims:
        if not isinstance(d, Dim):
            raise EnergyError(f"op.indices takes dims, as in op.indices(H, W); got {describe(d)}", location)
    names = assigned_names(callers_frame(), len(dims)) or [d.name.lower() for d in dims]
    made = tuple(Index(d.size, name, location) for d, name in zip(dims, names, strict=True))
    return made[0] if len(made) == 1 else made
