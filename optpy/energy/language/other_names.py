"""Advice for names of other libraries that optpy does not have.

One table for each way to meet them: ``op.einsum``, ``np.einsum(x, ...)`` and ``x.einsum``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

NUMPY: Final[dict[str, str]] = {
    "add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y", "true_divide": "x / y",
    "floor_divide": "op.floor(x / y)", "divmod": "op.floor(x / y) and x % y", "float_power": "x**y",
    "modf": "op.trunc(x) and op.fmod(x, 1)", "around": "op.round",
    "less": "x < y", "less_equal": "x <= y", "greater": "x > y", "greater_equal": "x >= y", "equal": "x == y",
    "not_equal": "x != y", "isclose": "op.abs(x - y) < 1e-8", "isnan": "x != x", "signbit": "x < 0",
    "logical_and": "a & b", "logical_or": "a | b", "logical_not": "~a", "logical_xor": "a != b",
    "bitwise_and": "a & b", "bitwise_or": "a | b", "invert": "~a", "bitwise_xor": "a != b",

    "mean": "v.sum() / len(v)", "average": "(w * v).sum()", "all": "v.all()", "any": "v.any()",
    "prod": "v[0] * v[1]", "var": "((v - m) ** 2).sum() / len(v)", "max": "op.maximum(v[0], v[1])",
    "min": "op.minimum(v[0], v[1])", "amax": "op.maximum(v[0], v[1])", "amin": "op.minimum(v[0], v[1])",
    "transpose": "m.T", "trace": "m[0, 0] + m[1, 1]", "matmul": "a @ b", "inner": "op.dot", "vdot": "op.dot",
    "outer": "op.matrix([u[0] * v, u[1] * v])", "einsum": "a @ b, (u * v).sum(), op.dot, op.cross or op.matrix",
    "tensordot": "a @ b", "kron": "op.matrix of the products",
    "linalg.norm": "op.norm", "linalg.cross": "op.cross", "linalg.det": "the formula: m[0, 0] * m[1, 1] - ...",
    "linalg.inv": "the formula; of a rotation R.inverse()", "linalg.solve": "a residual: A @ x - b with x unknown",
    "array": "op.vector(x, y), or op.Array for data", "asarray": "op.vector(x, y), or op.Array for data",
    "stack": "op.vector(x, y), or op.matrix of rows", "concatenate": "op.vector(*a, *b)",
    "hstack": "op.vector(*a, *b)", "vstack": "op.matrix([a, b])", "column_stack": "op.matrix([a, b]).T",
    "zeros": "0, which stands for a vector of zeros, too", "ones": "1, which stands for a vector of ones, too",
    "eye": "op.matrix([[1, 0], [0, 1]])", "identity": "op.matrix([[1, 0], [0, 1]])",
    "diag": "op.matrix([[a, 0], [0, b]])", "diff": "X[i + 1] - X[i]",
    "gradient": "X[i + 1] - X[i] (derivatives of pipelines are not there yet)",
    "roll": "X[i + 1]", "pad": "X[i + 1]: beyond the border a residual is 0; op.in_bounds asks",
    "convolve": "op.sum(w[k] * X[i - k], over=k)", "take": "op.Graph, whose slots are indices",
    "arange": "i = op.indices(N), and op.value(i) for its value", "meshgrid": "i, j = op.indices(H, W)",
    "ndindex": "i, j = op.indices(H, W)", "select": "op.where in op.where", "piecewise": "op.where in op.where",
    "interp": "a where of the pieces", "dtype": "np.float32 or np.float64", "float32": "np.float32",
    "float64": "np.float64",
}  # fmt: skip
"""Functions and types of NumPy; those of its packages as "linalg.norm"."""

OTHER_MEANING: Final[dict[str, str]] = {"sum": "v.sum(), or over an index op.sum(e, over=k)"}
"""Functions of NumPy whose names are those of other functions here."""

OTHERS: Final[dict[str, str]] = {
    "pi": "np.pi", "e": "np.e", "E": "np.e", "inf": "np.inf, though no constant in a formula is infinite",
    "linalg": "op.norm, op.dot, op.cross, a @ b, m.T", "random": "np.random, for the data",
    # SymPy
    "Abs": "op.abs", "Max": "op.maximum", "Min": "op.minimum", "Mod": "op.mod", "Pow": "x**y", "Add": "x + y",
    "Mul": "x * y", "ln": "op.log", "ceiling": "op.ceil", "root": "x ** (1 / n)", "real_root": "op.cbrt, x ** (1 / n)",
    "Piecewise": "op.where(condition, x, y)", "Heaviside": "op.heaviside", "Matrix": "op.matrix([[a, b], [c, d]])",
    "Vector": "op.vector(x, y)", "And": "a & b", "Or": "a | b", "Not": "~a", "Xor": "a != b", "Eq": "x == y",
    "Ne": "x != y", "Lt": "x < y", "Le": "x <= y", "Gt": "x > y", "Ge": "x >= y", "ITE": "op.where",
    "Rational": "fractions.Fraction", "Integer": "a number as it is", "Float": "a number as it is",
    "Symbol": 'op.Unknown("x", ()), read as x[()], or op.params', "symbols": 'op.params("a b"), op.dims or op.Unknown',
    "Function": "op.Unknown over a grid, read as X[i]", "IndexedBase": "op.Array or op.Unknown", "Idx": "op.indices",
    "Sum": "op.sum(e, over=k); op.Energy itself sums squares", "simplify": "nothing: energies are simplified",
    "Derivative": "nothing: op.Energy differentiates",
    "solveset": "op.solve(energy, data)", "nsolve": "op.solve(energy, data)",
    "dsolve": "the equation as residuals on a grid: X[i + 1] - X[i] - h * f, and op.solve",
    "integrate": "the sum as residuals on a grid, and op.solve", "lambdify": "op.compile(energy)",
    # SciPy, PyTorch, JAX, Ceres, GTSAM
    "least_squares": "op.solve(energy, data)", "leastsq": "op.solve(energy, data)",
    "curve_fit": "op.solve(energy, data)", "optimize": "op.solve(energy, data)",
    "minimise": "op.solve(energy, data)",
    "minimize": "op.solve(energy, data): other objectives than sums of squares are not there yet",
    "Rotation": "op.SO3; in the data it may be SciPy's Rotation", "RigidTransform": "op.SE3", "Pose3": "op.SE3",
    "Pose2": "op.SE2", "Rot3": "op.SO3", "Rot2": "op.SO2", "Sphere": "op.UnitVector(3)", "Unit3": "op.UnitVector(3)",
    "relu": "op.maximum(x, 0)", "sigmoid": "1 / (1 + op.exp(-x))",
    "softplus": "op.logaddexp(x, 0)", "clamp": "op.clip", "huber": 'op.robust(r, "huber")',
    "cauchy": 'op.robust(r, "cauchy")', "tukey": 'op.robust(r, "tukey")', "loss": 'op.robust(r, "huber")',
    "detach": "op.stop_gradient", "no_grad": "op.stop_gradient", "tensor": "op.Array for data, op.vector in a formula",
    "Tensor": "op.Array for data, op.vector in a formula", "Parameter": "op.Unknown", "Variable": "op.Unknown",
    "grad": "energy.jacobian(data), if it is needed", "jacobian": "energy.jacobian(data)",
    "jit": "op.compile(energy)", "vmap": "nothing: a residual runs over all its indices", "Problem": "op.Energy",
    "covariance": "energy.jacobian(data): the covariance itself is not there yet",
    "grid_sample": "op.Sampled(I)(y, x)", "map_coordinates": "op.Sampled(I)(y, x)", "remap": "op.Sampled(I)(y, x)",
    "SampledImage": "op.Sampled(I)(y, x)", "BiCubicInterpolator": 'op.Sampled(I, method="cubic")(y, x)',
    "Pipeline": "op.Energy: pipelines of images are not there yet", "Solve": "op.solve",
    "Residual": "a keyword of op.Energy", "index": "op.indices(N)", "dim": 'op.dims("N")',
    "param": 'op.params("w")', "Image": "op.Array", "Mesh": 'op.Graph("edges", E, (V, V))', "Edges": "op.Graph",
}  # fmt: skip
"""Names of SymPy, SciPy, PyTorch, JAX, Ceres and others, and nearly those of optpy."""


def in_place_of(name: str) -> str | None:
    """The name to write for one of another library, or None."""
    own = f"op.{name}" if name in language() else None
    return NUMPY.get(name) or OTHER_MEANING.get(name) or OTHERS.get(name) or own


def language() -> Set[str]:
    """The functions of the language, by name."""
    return _LANGUAGE.keys()


def enter_functions(module: str, names: Mapping[str, object]) -> None:
    """Enter the functions that a module of the language has: its own, and those that it takes from others entered.

    Args:
        module: its name.
        names: all of its names, and what they are.
    """
    own = {module, *_LANGUAGE.values()}
    found = {name: getattr(f, "__module__", None) for name, f in names.items() if not name.startswith("_")}
    _LANGUAGE.update({name: home for name, home in found.items() if home in own})


_LANGUAGE: Final[dict[str, str]] = {}
"""Of each function, the module that defines it."""
