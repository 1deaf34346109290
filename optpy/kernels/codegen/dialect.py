"""Spellings of types and functions in the C family of languages.

A back end is a dialect and a harness; the bodies are the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

from optpy.ir import REAL


@final
@dataclass(frozen=True, slots=True)
class Dialect:
    """The spellings of one target and one precision.

    Attributes:
        dtype: of the solver's numbers, "float32" or "float64".
        real: their type.
        suffix: of floating literals.
        lanes: numbers in the widest vector register (64 bytes; narrower machines use several registers).
        functions: spelling of each operation that is a function call, by the name in the table of operations.
        types: storage type of each dtype.
        clamped: spelling of the whole number inside a range that is nearest to a number.
        index, unsigned: the types of loop variables and addresses, and what bounds are checked in.
        restrict: says that a pointer's memory is reached through no other.
    """

    dtype: str
    real: str
    suffix: str
    lanes: int
    functions: dict[str, str]
    types: dict[str, str] = field(default_factory=dict)
    clamped: str = "optpy_clamped"
    index: str = "int64_t"
    unsigned: str = "uint64_t"
    restrict: str = "restrict"


# Those of optpy's own (kernels/c/vecmath.h) vectorise with every compiler; the others are libm's.
_C_NAMES = {
    "sin": "optpy_sin", "cos": "optpy_cos", "exp": "optpy_exp", "log": "optpy_log",
    "expm1": "optpy_expm1", "log1p": "optpy_log1p", "hypot": "optpy_hypot", "cbrt": "cbrt",
    "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "asinh", "acosh": "acosh", "atanh": "atanh",
    "pow": "pow", "abs": "fabs", "floor": "floor", "sqrt": "sqrt",
    "minimum": "optpy_min", "maximum": "optpy_max", "sign": "optpy_sign",
}  # fmt: skip

ONE_BY_ONE = frozenset(op for op, name in _C_NAMES.items() if not name.startswith("optpy_")) - {"abs", "floor", "sqrt"}
"""Functions of libm: a loop that calls one computes one point after the other."""


def c_dialect(dtype: str) -> Dialect:
    """C11 for the CPU, in float32 or float64."""
    single = dtype == "float32"
    suffix = "f" if single else ""
    functions = {op: name + suffix for op, name in _C_NAMES.items()}
    real = "float" if single else "double"
    types = {
        REAL: real, "float32": "float", "float64": "double", "uint8": "uint8_t", "int32": "int32_t", "bool": "uint8_t",
    }  # fmt: skip
    return Dialect(dtype, real, suffix, 16 if single else 8, functions, types, f"optpy_clamped{suffix}")


def cuda_dialect(dtype: str) -> Dialect:
    """CUDA C++ for GPUs: the same functions; one number is a lane of its own."""
    c = c_dialect(dtype)
    return replace(c, lanes=1, index="optpy_index", unsigned="optpy_uindex", restrict="")
