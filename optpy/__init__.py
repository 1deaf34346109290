"""optpy: nonlinear least squares over images, meshes and graphs, written in ten lines, solved by generated code."""

from __future__ import annotations

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
from .energy.gradient_check import check_gradients
from .energy.graph import Graph
from .energy.index import Dim, Index, dims, indices
from .energy.manifolds.se2 import SE2
from .energy.manifolds.se3 import SE3
from .energy.manifolds.so2 import SO2
from .energy.manifolds.so3 import SO3
from .energy.manifolds.unit_vector import UnitVector
from .energy.robust import robust
from .energy.rotations import rotate2d, rotate3d, rotate_axis_angle, rotate_quaternion
from .errors import (
    CompileError,
    DataError,
    DeviceError,
    DeviceMemoryError,
    EnergyError,
    InternalError,
    OptionError,
    OptpyError,
    PrecisionWarning,
)
from .plan import Solver, compile, solve
from .session import Session
from .solver.options import SolveOptions
from .solver.result import IntermediateResult, IterationRecord, SolveResult, Status

__version__ = "0.1.0"

__all__ = [
    "SE2",
    "SE3",
    "SO2",
    "SO3",
    "Array",
    "CompileError",
    "DataError",
    "DeviceError",
    "DeviceMemoryError",
    "Dim",
    "Energy",
    "EnergyError",
    "Expression",
    "Graph",
    "Index",
    "IntermediateResult",
    "InternalError",
    "IterationRecord",
    "OptionError",
    "OptpyError",
    "Param",
    "PrecisionWarning",
    "Session",
    "SolveOptions",
    "SolveResult",
    "Solver",
    "Status",
    "UnitVector",
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
    "robust",
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
