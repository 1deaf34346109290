"""SymPy's functions by the names of our operations; SymPy is imported when one is asked for."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

SAME_NAME: Final = (
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "exp", "log", "sign", "floor",
)  # fmt: skip
"""Functions that SymPy spells as we do."""

NAME_IN_C: Final = ("expm1", "log1p", "hypot")
"""Functions that SymPy has for the sake of C, in ``sympy.codegen.cfunctions``."""


@cache
def stopped() -> Any:
    """``stop_gradient``: x itself, whose derivative is 0."""
    import sympy

    def fdiff(self: Any, argindex: int = 1) -> Any:
        return sympy.Integer(0)

    return type("stop_gradient", (sympy.Function,), {"nargs": 1, "is_real": True, "fdiff": fdiff})


@cache
def _cube_root() -> Any:
    """The real one; SymPy's own of a negative number is complex."""
    import sympy

    def fdiff(self: Any, argindex: int = 1) -> Any:
        return 1 / (3 * self**2)

    def as_power(self: Any, x: Any, **_: Any) -> Any:
        return sympy.sign(x) * sympy.Abs(x) ** sympy.Rational(1, 3)

    def evalf(self: Any, precision: int) -> Any:
        return as_power(self, *self.args)._eval_evalf(precision)

    methods = {"fdiff": fdiff, "_eval_rewrite_as_Pow": as_power, "_eval_evalf": evalf}
    return type("cbrt", (sympy.Function,), {"nargs": 1, "is_real": True, **methods})


def function(name: str) -> Any:
    """The function of SymPy that an operation is."""
    import sympy
    from sympy.codegen import cfunctions

    if name in SAME_NAME:
        return getattr(sympy, name)
    if name in NAME_IN_C:
        return getattr(cfunctions, name)
    return {
        "abs": sympy.Abs,
        "minimum": sympy.Min,
        "maximum": sympy.Max,
        "pow": sympy.Pow,
        "cbrt": _cube_root(),
        "stop_gradient": stopped(),
        "whole": lambda x: x,
    }[name]
