"""optpy: nonlinear least squares over images, written in ten lines, solved by generated code."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from .energy.declarations import Array, Param, Unknown, params
from .energy.energy import Energy
from .energy.expression import Expression
from .energy.functions import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    cross,
    dot,
    exp,
    floor,
    in_bounds,
    log,
    matrix,
    maximum,
    minimum,
    norm,
    normalize,
    sign,
    sin,
    sinh,
    sqrt,
    stop_gradient,
    tan,
    tanh,
    value,
    vector,
    where,
)
from .energy.index import Dim, Index, dims, indices
from .energy.rotations import rotate2d, rotate3d, rotate_axis_angle, rotate_quaternion
from .errors import CompileError, DataError, EnergyError, InternalError, OptionError, OptpyError

if TYPE_CHECKING:
    from .energy.gradient_check import check_gradients
    from .plan import compile, solve
    from .solver.result import SolveResult

__version__ = "0.1.0"

# Solving is loaded when it is first used: writing an energy needs none of it.
_LAZY: Final = {
    "SolveResult": ".solver.result",
    "check_gradients": ".energy.gradient_check",
    "compile": ".plan",
    "solve": ".plan",
}

__all__ = [
    "Array",
    "CompileError",
    "DataError",
    "Dim",
    "Energy",
    "EnergyError",
    "Expression",
    "Index",
    "InternalError",
    "OptionError",
    "OptpyError",
    "Param",
    "SolveResult",
    "Unknown",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "check_gradients",
    "compile",
    "cos",
    "cosh",
    "cross",
    "dims",
    "dot",
    "exp",
    "floor",
    "in_bounds",
    "indices",
    "log",
    "matrix",
    "maximum",
    "minimum",
    "norm",
    "normalize",
    "params",
    "rotate2d",
    "rotate3d",
    "rotate_axis_angle",
    "rotate_quaternion",
    "sign",
    "sin",
    "sinh",
    "solve",
    "sqrt",
    "stop_gradient",
    "tan",
    "tanh",
    "value",
    "vector",
    "where",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'optpy' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_LAZY[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
