"""Expressions that users calculate with: scalars, vectors and matrices of symbols, by NumPy's rules."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from optpy import ir
from optpy.energy.language.entries import Shape, broadcast, common_shape, constant, product
from optpy.energy.language.index import describe
from optpy.energy.language.naming import shown
from optpy.energy.language.other_names import in_place_of
from optpy.energy.language.refusal import Refusal, Refusing, Symbol, instead_of, missing_attribute, numpy_refusal
from optpy.errors import EnergyError, Location
from optpy.symbolic import expr as sym
from optpy.symbolic.expr import Expr
from optpy.symbolic.operations import absolute, equal, less, less_equal, modulo
from optpy.symbolic.order import topological

Source = ir.Field | ir.Scalar | ir.Hypergraph
"""A declaration that an expression reads."""

Operand = Any
"""Operands of formulas beside expressions: numbers, NumPy arrays and sequences of constants."""


class Expression(metaclass=Refusing):
    """A scalar, a vector or a matrix of symbolic expressions at one point of a domain.

    Attributes:
        shape: (), (n,) or (n, m).
        components: the entries in C order.
        sources: the declarations mentioned, in the order in which the text mentions them.
        location: the user's line.
    """

    __slots__ = ("components", "location", "shape", "sources")

    def __init__(
        self,
        shape: Shape,
        components: tuple[Expr, ...],
        sources: tuple[Source, ...] = (),
        location: Location | None = None,
    ) -> None:
        self.shape = shape
        self.components = components
        self.sources = sources
        self.location = Location.of_caller() if location is None else location

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Expression:
        return elementwise("+", sym.add, self, other)

    def __radd__(self, other: Operand) -> Expression:
        return elementwise("+", sym.add, other, self)

    def __sub__(self, other: Operand) -> Expression:
        return elementwise("-", sym.subtract, self, other)

    def __rsub__(self, other: Operand) -> Expression:
        return elementwise("-", sym.subtract, other, self)

    def __mul__(self, other: Operand) -> Expression:
        return elementwise("*", sym.mul, self, other)

    def __rmul__(self, other: Operand) -> Expression:
        return elementwise("*", sym.mul, other, self)

    def __truediv__(self, other: Operand) -> Expression:
        return elementwise("/", _divide, self, other)

    def __rtruediv__(self, other: Operand) -> Expression:
        return elementwise("/", _divide, other, self)

    def __pow__(self, other: Operand) -> Expression:
        return elementwise("**", sym.power, self, other)

    def __rpow__(self, other: Operand) -> Expression:
        return elementwise("**", sym.power, other, self)

    def __mod__(self, other: Operand) -> Expression:
        return elementwise("%", modulo, self, other)

    def __rmod__(self, other: Operand) -> Expression:
        return elementwise("%", modulo, other, self)

    def __neg__(self) -> Expression:
        return elementwise("-", sym.negate, self)

    def __pos__(self) -> Expression:
        return self

    def __abs__(self) -> Expression:
        return elementwise("abs", absolute, self)

    def __matmul__(self, other: Operand) -> Expression:
        return matrix_product(self, as_expression(other))

    def __rmatmul__(self, other: Operand) -> Expression:
        return matrix_product(as_expression(other), self)

    # -- conditions ------------------------------------------------------------------------------------------------

    def __lt__(self, other: Operand) -> Expression:
        return elementwise("<", less, self, other)

    def __le__(self, other: Operand) -> Expression:
        return elementwise("<=", less_equal, self, other)

    def __gt__(self, other: Operand) -> Expression:
        return elementwise(">", lambda x, y: less(y, x), self, other)

    def __ge__(self, other: Operand) -> Expression:
        return elementwise(">=", lambda x, y: less_equal(y, x), self, other)

    def __eq__(self, other: Operand) -> Expression:  # type: ignore[override]
        return elementwise("==", equal, self, other)

    def __ne__(self, other: Operand) -> Expression:  # type: ignore[override]
        return elementwise("!=", lambda x, y: sym.logical_not(equal(x, y)), self, other)

    __hash__ = object.__hash__

    def __and__(self, other: Operand) -> Expression:
        return elementwise("&", sym.logical_and, as_condition(self, "&"), as_condition(other, "&"))

    def __rand__(self, other: Operand) -> Expression:
        return elementwise("&", sym.logical_and, as_condition(other, "&"), as_condition(self, "&"))

    def __or__(self, other: Operand) -> Expression:
        return elementwise("|", sym.logical_or, as_condition(self, "|"), as_condition(other, "|"))

    def __ror__(self, other: Operand) -> Expression:
        return elementwise("|", sym.logical_or, as_condition(other, "|"), as_condition(self, "|"))

    def __invert__(self) -> Expression:
        return elementwise("~", sym.logical_not, as_condition(self, "~"))

    @property
    def is_condition(self) -> bool:
        """Whether every entry is 0 or 1 by construction."""
        return all(c.boolean for c in self.components)

    # -- entries ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise EnergyError(
                "a scalar expression has neither length nor entries; an array of vectors is declared with its number "
                "of channels, as in op.Array('A', (H, W), 2)",
                Location.of_caller(),
            )
        return self.shape[0]

    def __iter__(self) -> Iterator[Expression]:
        return iter([self[k] for k in range(len(self))])

    def __getitem__(self, key: Any) -> Expression:
        if not self.shape:
            raise EnergyError(
                f"a scalar expression has no entry [{describe(key)}]; an array of vectors is declared with its "
                "number of channels, as in op.Array('A', (H, W), 2)",
                Location.of_caller(),
            )
        for k in key if isinstance(key, tuple) else (key,):
            if isinstance(k, bool) or not (isinstance(k, int | np.integer | slice)):
                raise EnergyError(
                    f"an entry of a vector or matrix is chosen by whole numbers or slices, not by {describe(k)}",
                    Location.of_caller(),
                )
        try:
            chosen = np.arange(len(self.components)).reshape(self.shape)[key]
        except IndexError as error:
            raise EnergyError(
                f"no entry [{describe(key)}] in an expression of shape {self.shape}: {error}", Location.of_caller()
            ) from None
        return Expression(np.shape(chosen), tuple(self.components[int(n)] for n in np.ravel(chosen)), self.sources)

    @property
    def T(self) -> Expression:  # noqa: N802 (NumPy's name)
        """The transpose of a matrix; scalars and vectors stay as they are."""
        order = np.arange(len(self.components)).reshape(self.shape).T
        return Expression(order.shape, tuple(self.components[int(n)] for n in order.ravel()), self.sources)

    def sum(self) -> Expression:
        """The sum of all entries."""
        return Expression((), (sym.add(*self.components),), self.sources)

    def all(self) -> Expression:
        """1 where every entry's condition holds."""
        return Expression((), (sym.logical_and(*as_condition(self, ".all()").components),), self.sources)

    def any(self) -> Expression:
        """1 where some entry's condition holds."""
        return Expression((), (sym.logical_or(*as_condition(self, ".any()").components),), self.sources)

    # -- what an expression is not ---------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # or every attribute would have a type

        def __getattr__(self, name: str) -> NoReturn:
            attributes = (".T", ".all()", ".any()", ".sum()", ".shape")
            raise missing_attribute("an expression", name, {name: in_place_of(name)}, attributes)

    __bool__ = Refusal(
        "an expression has no truth value while the energy is written: use op.where(condition, x, y) for if, "
        "& | ~ for and, or, not, and (a < x) & (x < b) for a < x < b"
    )
    __float__ = __complex__ = Refusal(
        "an expression has no value while the energy is written: write op.sin, op.sqrt, ... in place of those of math"
    )
    __int__ = Refusal("an expression has no value while the energy is written: for its whole part write op.floor(x)")
    __index__ = Refusal("an expression is no whole number that could count or choose: indices are made by op.indices")
    __floordiv__ = __rfloordiv__ = instead_of("//", "op.floor(x / y), whose derivative is 0")
    __divmod__ = __rdivmod__ = instead_of("divmod", "op.floor(x / y) and x % y")
    __round__ = instead_of("round", "op.round(x)")
    __floor__ = instead_of("math.floor", "op.floor(x)")
    __ceil__ = instead_of("math.ceil", "op.ceil(x)")
    __trunc__ = instead_of("math.trunc", "op.trunc(x)")
    __xor__ = __rxor__ = instead_of("^", "x**y for a power, a != b for conditions of which one holds")
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = instead_of("a shift", "x * 2**n")
    __array__ = Refusal("an expression is no NumPy array: vectors are made by op.vector(x, y), matrices by op.matrix")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Expression:
        """NumPy's arrays and numbers on the left of an operator come here."""
        operation = _NUMPY_OPERATORS.get(ufunc.__name__)
        if method == "__call__" and not options and operation is not None:
            result: Expression = operation(*map(as_expression, inputs))
            return result
        raise numpy_refusal(ufunc.__name__)

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        package = function.__module__.removeprefix("numpy").removeprefix(".")
        raise numpy_refusal(f"{package}.{function.__name__}" if package else function.__name__)

    def __repr__(self) -> str:
        size = len(topological(self.components))
        if size > 200:
            return f"<expression of shape {self.shape}, {size} nodes>"
        texts = [shown(repr(c)) for c in self.components]
        return texts[0] if not self.shape else f"[{', '.join(texts)}]"


_NUMPY_OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "power": operator.pow, "negative": operator.neg, "matmul": operator.matmul, "less": operator.lt,
    "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq,
    "not_equal": operator.ne, "bitwise_and": operator.and_, "bitwise_or": operator.or_, "invert": operator.invert,
    "remainder": operator.mod, "floor_divide": operator.floordiv, "divmod": divmod, "bitwise_xor": operator.xor,
}  # fmt: skip


# -- from what users write to expressions --------------------------------------------------------------------------

_MOST_CONSTANTS: Final = 36
"""A constant array in a formula may have so many entries, as a matrix over poses: a longer one is data."""


def as_expression(value: Operand) -> Expression:
    """Numbers, NumPy arrays of constants and sequences, as expressions.

    Raises:
        EnergyError: it is none of them, or not finite.
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, numbers.Number | np.generic):
        return Expression((), (constant(value),))
    if isinstance(value, np.ndarray):
        if value.ndim > 2:
            raise EnergyError(f"a constant of shape {value.shape}: at most matrices are possible", Location.of_caller())
        if value.size > _MOST_CONSTANTS:
            cure = "declare it as A = op.Array('A', (H, W)), read A[i, j] in the formula, and bind it when solving"
            message = f"an array of shape {value.shape} stands in a formula, a constant at each point: {cure}"
            raise EnergyError(message, Location.of_caller())
        return Expression(value.shape, tuple(constant(v) for v in value.ravel().tolist()))
    if isinstance(value, list | tuple) and value:
        return stack([as_expression(v) for v in value])
    raise EnergyError(_not_an_expression(value), Location.of_caller())


def _not_an_expression(value: object) -> str:
    if isinstance(value, Symbol):
        return value.number_message
    return f"{describe(value)} cannot stand in a formula: only expressions, real numbers and arrays of them can"


def stack(rows: Sequence[Expression]) -> Expression:
    """Scalars to a vector, vectors to a matrix.

    Raises:
        EnergyError: their shapes differ, or they are matrices.
    """
    shape = rows[0].shape
    for n, row in enumerate(rows):
        if row.shape != shape or len(shape) > 1:
            cure = "all must be scalars, or all vectors of one length"
            raise EnergyError(
                f"entry 0 has shape {shape}, entry {n} has shape {row.shape}: {cure}", Location.of_caller()
            )
    return Expression((len(rows), *shape), tuple(c for r in rows for c in r.components), merged(rows))


def as_condition(value: Operand, what: str) -> Expression:
    """The value if it is a condition.

    Raises:
        EnergyError: it is a number.
    """
    e = as_expression(value)
    if not e.is_condition:
        raise EnergyError(
            f"{what} needs a condition, and {_short(e)} is a number: compare it, for example with != 0",
            Location.of_caller(),
        )
    return e


def _short(e: Expression) -> str:
    text = repr(e)
    return text if len(text) <= 60 else f"an expression of shape {e.shape}"


# -- entry by entry ------------------------------------------------------------------------------------------------


def elementwise(what: str, function: Callable[..., Expr], *operands: Operand) -> Expression:
    """Apply a symbolic function entry by entry, with NumPy's broadcasting."""
    parts = [as_expression(o) for o in operands]
    shape = common_shape(what, [p.shape for p in parts])
    columns = [broadcast(p.components, p.shape, shape) for p in parts]
    try:
        components = tuple(function(*entries) for entries in zip(*columns, strict=True))
    except (ArithmeticError, ValueError) as error:
        raise EnergyError(f"{what}: {error}", Location.of_caller()) from None
    return Expression(shape, components, merged(parts))


def merged(parts: Iterable[Expression]) -> tuple[Source, ...]:
    """The sources of all parts, each once, in order."""
    return tuple(dict.fromkeys(s for p in parts for s in p.sources))


def _divide(a: Expr, b: Expr) -> Expr:
    return sym.mul(a, sym.power(b, -1))


def matrix_product(a: Expression, b: Expression) -> Expression:
    """``a @ b`` with NumPy's rules for vectors and matrices."""
    if not a.shape or not b.shape or a.shape[-1] != b.shape[0]:
        raise EnergyError(
            f"@: shapes {a.shape} and {b.shape} do not fit together (the last axis of the first must be as long as the "
            "first axis of the second)",
            Location.of_caller(),
        )
    entries = product(a.components, a.shape[-1], b.components)
    return Expression((*a.shape[:-1], *b.shape[1:]), entries, merged((a, b)))
