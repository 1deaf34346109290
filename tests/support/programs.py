"""Random expressions with an independent meaning: programs that are built as a DAG, and run on numbers
directly.

Running takes only the arm of a ``where`` that its condition selects, and knows no simplification: it says
what the DAG must evaluate to. Variables take multiples of 1/4 and conditions compare linear forms, so that
comparisons are exact whatever the order of the additions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from optpy.symbolic.expr import (
    Expr,
    Var,
    add,
    call,
    const,
    logical_and,
    logical_not,
    logical_or,
    mul,
    power,
    subtract,
    var,
    where,
)
from optpy.symbolic.operations import OPERATIONS, equal, less, less_equal

Program = tuple[Any, ...]
"""An operator's name and its arguments."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A named variable."""

    name: str
    boolean: bool = False
    finite: bool = False

    def __str__(self) -> str:
        return self.name


REALS = ("x", "y", "z", "u")
BOOLEANS = ("a", "b", "c")


def real(name: str) -> Var:
    """A variable that is a number; u alone is known to be finite."""
    return var(Leaf(name, finite=name == "u"))


def boolean(name: str) -> Var:
    """A variable that is 0 or 1."""
    return var(Leaf(name, boolean=True))


# -- making programs -----------------------------------------------------------------------------------------

NUMBERS = st.sampled_from([0, 1, -1, 2, -2, 3, Fraction(1, 2), Fraction(-1, 3), Fraction(3, 4), 0.1])
SMOOTH_CALLS = ("sin", "cos", "atan", "tanh", "exp", "expm1")
PARTIAL_CALLS = ("log", "log1p", "asin")
ROUGH_CALLS = ("abs", "minimum", "maximum")
_UNARY = {*SMOOTH_CALLS, *PARTIAL_CALLS, "abs"}


def linear_forms() -> st.SearchStrategy[Program]:
    """Small integers times variables: exact in floating point."""
    variable = st.sampled_from(REALS).map(lambda n: ("var", n))
    scaled = st.tuples(st.just("mul"), st.sampled_from([-2, -1, 1, 3]).map(lambda n: ("const", n)), variable)
    number = st.sampled_from([-1, 0, 1, 2]).map(lambda n: ("const", n))
    return st.one_of(variable, number, scaled, st.tuples(st.just("add"), scaled, st.one_of(variable, number)))


def conditions() -> st.SearchStrategy[Program]:
    """Comparisons and boolean variables under and, or, not."""
    comparison = st.tuples(st.sampled_from(["less", "less_equal", "equal"]), linear_forms(), linear_forms())
    leaf = st.one_of(st.sampled_from(BOOLEANS).map(lambda n: ("bool", n)), comparison)
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner), st.tuples(st.sampled_from(["and", "or"]), inner, inner)
        ),
        max_leaves=5,
    )


def programs(*, partial: bool = True, rough: bool = True, select: bool = True) -> st.SearchStrategy[Program]:
    """Programs of a number.

    Args:
        partial: with functions that are undefined somewhere: quotients, roots, logarithms.
        rough: with functions that are not differentiable somewhere.
        select: with conditions.
    """
    leaf = st.one_of(st.sampled_from(REALS).map(lambda n: ("var", n)), NUMBERS.map(lambda n: ("const", n)))
    names = SMOOTH_CALLS + (PARTIAL_CALLS if partial else ()) + (ROUGH_CALLS if rough else ())
    exponents = [2, 3] + ([-1, -2, Fraction(1, 2), Fraction(-1, 2), Fraction(3, 2), 0.7] if partial else [])

    def extend(inner: st.SearchStrategy[Program]) -> st.SearchStrategy[Program]:
        choices = [
            st.tuples(st.sampled_from(["add", "mul", "mul", "sub"]), inner, inner),
            st.tuples(st.just("pow"), inner, st.sampled_from(exponents)),
            st.sampled_from(names).flatmap(lambda n: st.tuples(st.just("call"), st.just(n), *[inner] * _arity(n))),
        ]
        if select:
            choices.append(st.tuples(st.just("where"), conditions(), inner, inner))
            choices.append(st.tuples(st.just("where"), conditions(), inner, st.just(("const", 0))))
        return st.one_of(choices)

    return st.recursive(leaf, extend, max_leaves=12)


def guarded_sums() -> st.SearchStrategy[Program]:
    """Sums of products of few factors under few conditions, so that factors and conditions are shared."""
    condition = st.one_of(
        st.sampled_from(BOOLEANS).map(lambda n: ("bool", n)),
        st.sampled_from(BOOLEANS).map(lambda n: ("not", ("bool", n))),
        st.just(("less", ("const", 0), ("var", "x"))),
    )
    x, y, u = ("var", "x"), ("var", "y"), ("var", "u")
    factor = st.sampled_from(
        [x, y, u, ("pow", u, 2), ("call", "sin", u), ("pow", x, -1), ("pow", x, Fraction(1, 2)), ("pow", y,
        -2), ("call", "log", x), ("sub", x, y), ("sub", y, x),
         ("pow", ("add", x, y), Fraction(-1, 2)), ("const", 2), ("const", Fraction(1, 3)), ("add", y,
         ("const", 1))]
    )  # fmt: skip

    def term(conditions: list[Program], factors: list[Program]) -> Program:
        value = factors[0]
        for f in factors[1:]:
            value = ("mul", value, f)
        for c in conditions:
            value = ("where", c, value, ("const", 0))
        return value

    terms = st.lists(
        st.builds(term, st.lists(condition, max_size=2), st.lists(factor, min_size=1, max_size=3)),
        min_size=2,
        max_size=5,
    )

    def total(parts: list[Program]) -> Program:
        value = parts[0]
        for p in parts[1:]:
            value = ("add", value, p)
        return value

    return terms.map(total)


def _arity(name: str) -> int:
    return 1 if name in _UNARY else 2


def points() -> st.SearchStrategy[dict[str, float]]:
    """A value for every variable."""
    quarter = st.one_of(st.just(0.0), st.integers(-12, 12).map(lambda n: n / 4))
    return st.fixed_dictionaries(dict.fromkeys(REALS, quarter) | {n: st.sampled_from([0.0, 1.0]) for n in BOOLEANS})


# -- building them -------------------------------------------------------------------------------------------

_BUILD: dict[str, Callable[..., Expr]] = {
    "add": add, "sub": subtract, "mul": mul, "where": where, "and": logical_and, "or": logical_or, "not":
    logical_not, "less": less, "less_equal": less_equal, "equal": equal,
}  # fmt: skip


class Undefined(Exception):
    """The program has no finite real value."""


def build(program: Program) -> Expr:
    """The program as an expression."""
    kind, *args = program
    if kind == "const":
        return const(args[0])
    if kind in ("var", "bool"):
        return real(args[0]) if kind == "var" else boolean(args[0])
    if kind == "pow":
        try:
            return power(build(args[0]), args[1])
        except (ZeroDivisionError, ValueError):  # of a constant
            raise Undefined from None
    if kind == "call":
        return call(OPERATIONS[args[0]], *map(build, args[1:]))
    return _BUILD[kind](*map(build, args))


# -- running them --------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What was met on the way."""

    largest: float = 1.0
    """The largest magnitude: rounding errors are relative to it."""
    margin: float = math.inf
    """How far the closest comparison was from a tie."""
    singular: bool = False
    """Whether a function was met where its slope is infinite, like a root at 0."""


def run(program: Program, point: Mapping[str, float], record: Run) -> float:
    """The program's value.

    Raises:
        Undefined: something that contributes is no finite real number.
    """
    try:
        value = _run(program, point, record)
    except (ZeroDivisionError, ValueError, OverflowError):
        raise Undefined from None
    return value


def _run(program: Program, point: Mapping[str, float], record: Run) -> float:
    kind, *args = program
    if kind == "const":
        return float(args[0])
    if kind in ("var", "bool"):
        return point[args[0]]
    if kind == "where":
        chosen = args[1] if _run(args[0], point, record) else args[2]
        return _run(chosen, point, record)
    values = [a if isinstance(a, str) else _run(a, point, record) for a in args[: 1 if kind == "pow" else None]]
    result = _apply(kind, values, args, record)
    if isinstance(result, complex) or not math.isfinite(result):
        raise Undefined
    record.largest = max(record.largest, abs(result))
    return float(result)


def _apply(kind: str, values: list[Any], args: list[Any], record: Run) -> Any:
    match kind:
        case "add":
            return values[0] + values[1]
        case "sub":
            return values[0] - values[1]
        case "mul":
            return values[0] * values[1]
        case "pow":
            record.singular |= values[0] == 0 and 0 < args[1] < 1
            return values[0] ** (args[1] if isinstance(args[1], int) else float(args[1]))
        case "and":
            return float(values[0] and values[1])
        case "or":
            return float(values[0] or values[1])
        case "not":
            return 1.0 - values[0]
        case "less" | "less_equal" | "equal":
            x, y = values
            record.margin = min(record.margin, abs(x - y))
            return float({"less": x < y, "less_equal": x <= y, "equal": x == y}[kind])
        case "call":
            return _call(values[0], values[1:], record)
    raise AssertionError(kind)


def _call(name: str, values: list[float], record: Run) -> float:
    if name in ("abs", "minimum", "maximum"):
        record.margin = min(record.margin, abs(values[0] - (values[1] if len(values) > 1 else 0)))
        return abs(values[0]) if name == "abs" else min(values) if name == "minimum" else max(values)
    record.singular |= name == "asin" and abs(values[0]) == 1
    result: float = getattr(math, name)(*values)
    return result
