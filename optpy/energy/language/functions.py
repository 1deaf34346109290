"""The functions that users write in formulas, under NumPy's names.

Functions of numbers act on vectors and matrices channel by channel (entry by entry), as NumPy's do; a number stands for
a vector of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from optpy import ir
from optpy.energy.language.declarations import GridArray
from optpy.energy.language.expression import Expression, Operand, as_condition, as_expression, elementwise, stack
from optpy.energy.language.index import DeclaredIndex, as_affine, describe
from optpy.energy.language.naming import shown
from optpy.energy.language.other_names import enter_functions
from optpy.errors import EnergyError, Location
from optpy.symbolic import expr as sym
from optpy.symbolic import operations
from optpy.symbolic.affine import Affine, FloorDiv, TableEntry
from optpy.symbolic.expr import var
from optpy.symbolic.operations import OPERATIONS

# -- entry by entry ------------------------------------------------------------------------------------------------


def _apply(name: str, *args: Operand) -> Expression:
    return elementwise(name, lambda *x: sym.call(OPERATIONS[name], *x), *args)


def abs(x: Operand) -> Expression:
    """The magnitude; its derivative at 0 is 0."""
    return elementwise("abs", operations.absolute, x)


def sqrt(x: Operand) -> Expression:
    """The square root; its derivative at 0 is infinite."""
    return elementwise("sqrt", operations.sqrt, x)


def exp(x: Operand) -> Expression:
    """e to the power of x."""
    return _apply("exp", x)


def log(x: Operand) -> Expression:
    """The natural logarithm."""
    return _apply("log", x)


def expm1(x: Operand) -> Expression:
    """``exp(x) - 1``, also of a small x to all digits."""
    return _apply("expm1", x)


def log1p(x: Operand) -> Expression:
    """``log(1 + x)``, also of a small x to all digits."""
    return _apply("log1p", x)


def cbrt(x: Operand) -> Expression:
    """The cube root, also of negative numbers; its derivative at 0 is infinite."""
    return _apply("cbrt", x)


def hypot(x: Operand, y: Operand) -> Expression:
    """``sqrt(x**2 + y**2)`` without overflow on the way; its derivatives are NaN where both are 0."""
    return _apply("hypot", x, y)


def sin(x: Operand) -> Expression:
    """The sine of an angle in radians."""
    return _apply("sin", x)


def cos(x: Operand) -> Expression:
    """The cosine of an angle in radians."""
    return _apply("cos", x)


def tan(x: Operand) -> Expression:
    """The tangent of an angle in radians."""
    return _apply("tan", x)


def asin(x: Operand) -> Expression:
    """The angle in [-pi/2, pi/2] whose sine is x."""
    return _apply("asin", x)


def acos(x: Operand) -> Expression:
    """The angle in [0, pi] whose cosine is x."""
    return _apply("acos", x)


def atan(x: Operand) -> Expression:
    """The angle in (-pi/2, pi/2) whose tangent is x."""
    return _apply("atan", x)


def atan2(y: Operand, x: Operand) -> Expression:
    """The angle of the point (x, y), in (-pi, pi]."""
    return _apply("atan2", y, x)


def sinh(x: Operand) -> Expression:
    """The hyperbolic sine."""
    return _apply("sinh", x)


def cosh(x: Operand) -> Expression:
    """The hyperbolic cosine."""
    return _apply("cosh", x)


def tanh(x: Operand) -> Expression:
    """The hyperbolic tangent."""
    return _apply("tanh", x)


def asinh(x: Operand) -> Expression:
    """The inverse of sinh."""
    return _apply("asinh", x)


def acosh(x: Operand) -> Expression:
    """The inverse of cosh, for x >= 1."""
    return _apply("acosh", x)


def atanh(x: Operand) -> Expression:
    """The inverse of tanh, for -1 < x < 1."""
    return _apply("atanh", x)


def minimum(x: Operand, y: Operand) -> Expression:
    """The smaller of the two; its derivative is that of the one taken (of x where they are equal)."""
    return _apply("minimum", x, y)


def maximum(x: Operand, y: Operand) -> Expression:
    """The larger of the two; its derivative is that of the one taken (of x where they are equal)."""
    return _apply("maximum", x, y)


def floor(x: Operand) -> Expression:
    """The largest whole number that is not above x; its derivative is 0."""
    return _apply("floor", x)


def sign(x: Operand) -> Expression:
    """-1, 0 or 1; its derivative is 0."""
    return _apply("sign", x)


def stop_gradient(x: Operand) -> Expression:
    """The value of x, taken as constant within an iteration: no derivative goes through it."""
    return elementwise("stop_gradient", operations.stop_gradient, x)


def where(condition: Operand, x: Operand, y: Operand) -> Expression:
    """x where the condition holds, else y.

    A selection: the arm that is not taken contributes nothing, in value or derivative, even where it is infinite or
    NaN, so ``op.where(z > 0, 1 / z, 0)`` is safe.

    Raises:
        EnergyError: the condition is a number, or the shapes do not fit together.
    """
    return elementwise("where", sym.where, as_condition(condition, "op.where"), x, y)


# -- vectors and matrices ------------------------------------------------------------------------------------------


def vector(*entries: Operand) -> Expression:
    """A vector of scalars: ``op.vector(x, y, z)``."""
    parts = [as_expression(e) for e in entries]
    if not parts or any(p.shape for p in parts):
        shapes = ", ".join(str(p.shape) for p in parts) or "nothing"
        raise EnergyError(f"op.vector takes scalars, got {shapes}; rows go to op.matrix", Location.of_caller())
    return stack(parts)


def matrix(rows: Iterable[Operand]) -> Expression:
    """A matrix of rows: ``op.matrix([[a, b], [c, d]])``; a row may be a vector."""
    parts = [as_expression(r) for r in rows]
    if not parts or any(len(p.shape) != 1 for p in parts):
        shapes = ", ".join(str(p.shape) for p in parts) or "nothing"
        raise EnergyError(f"op.matrix takes rows, op.matrix([[a, b], [c, d]]), got {shapes}", Location.of_caller())
    return stack(parts)


def dot(a: Operand, b: Operand) -> Expression:
    """The scalar product of two vectors."""
    u, v = as_expression(a), as_expression(b)
    if len(u.shape) != 1 or u.shape != v.shape:
        raise EnergyError(
            f"op.dot takes two vectors of one length, got shapes {u.shape} and {v.shape}", Location.of_caller()
        )
    return u @ v


def cross(a: Operand, b: Operand) -> Expression:
    """The vector product of two vectors of 3."""
    u, v = as_expression(a), as_expression(b)
    if u.shape != (3,) or v.shape != (3,):
        raise EnergyError(f"op.cross takes two vectors of 3, got shapes {u.shape} and {v.shape}", Location.of_caller())
    return vector(u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0])


def norm(v: Operand) -> Expression:
    """``sqrt(sum(v**2))``: the Euclidean norm (Frobenius' of a matrix). Its derivative is infinite or NaN at 0."""
    return sqrt((as_expression(v) ** 2).sum())


def normalize(v: Operand) -> Expression:
    """``v / norm(v)``; not finite at 0."""
    e = as_expression(v)
    return e / norm(e)


# -- indices -------------------------------------------------------------------------------------------------------


def value(index: object) -> Expression:
    """The value of an index or of a size as a number: ``op.value(i)``, ``op.value(H - 1 - i)``."""
    affine = as_affine(index, "op.value")
    return Expression((), (ir.index_value(affine),), ir.graphs_of([affine]))


def in_bounds(*indices: object, of: GridArray | None = None) -> Expression:
    """1 where every index lies inside its axis: ``op.in_bounds(i + 1, j)``.

    Args:
        indices: each is held against the dim that its loop variable runs over.
        of: an array whose axes they are held against instead, one index for each; needed for strided indices over
            another grid, as in ``op.in_bounds(2 * i, 2 * j, of=X)``.

    Raises:
        EnergyError: it is not clear which dim an index is held against.
    """
    if of is None:
        affines = [as_affine(k, f"argument {n} of op.in_bounds") for n, k in enumerate(indices)]
        axes = [_own_dim(a) for a in affines]
    else:
        if not isinstance(of, GridArray):
            raise EnergyError(f"of= takes an array or an unknown, not {describe(of)}", Location.of_caller())
        access = of.stored(indices)  # the checks of a read
        affines = list(access.components[0].key.index)  # type: ignore[attr-defined]
        axes = list(of.field.dims)
    if not affines:
        raise EnergyError("op.in_bounds takes indices: op.in_bounds(i + 1, j)", Location.of_caller())
    guards = [var(ir.InBounds(a, d)) for a, d in zip(affines, axes, strict=True)]
    return Expression((), (sym.logical_and(*guards),), ir.graphs_of(affines))


def _own_dim(index: Affine) -> ir.Extent:
    dims = {a.dim for a in index.atoms if isinstance(a, DeclaredIndex)}
    dims |= {ir.entry_dim(a) for a in index.atoms if isinstance(a, TableEntry)}
    if len(dims) != 1 or any(isinstance(a, FloorDiv) for a in index.atoms):
        raise EnergyError(
            f"op.in_bounds cannot tell which axis the index {shown(index)} belongs to: say op.in_bounds(..., of=X) "
            "with the array that is read there",
            Location.of_caller(),
        )
    return dims.pop()


enter_functions(__name__, globals())
