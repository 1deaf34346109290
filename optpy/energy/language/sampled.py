"""Images read at real coordinates: ``I2 = op.Sampled(I)``, then ``I2(y, x)``."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Literal, final

from optpy import ir
from optpy.energy.language.declarations import Array, GridArray, Unknown, shape_text
from optpy.energy.language.entries import constant
from optpy.energy.language.expression import Expression, Operand, as_expression, merged
from optpy.energy.language.func import Func
from optpy.energy.language.index import IndexExpression, describe
from optpy.energy.language.interpolation import BOUNDARIES, METHODS, Coordinate, interpolated
from optpy.energy.language.refusal import Refusal, Symbol
from optpy.energy.language.robust import refuse_robust
from optpy.energy.language.written_out import with_summands, written_out
from optpy.errors import EnergyError, Location
from optpy.symbolic.elements import given_slopes
from optpy.symbolic.expr import Expr

Interpolation = Literal["linear", "cubic"]
Boundary = Literal["nearest", "constant", "mirror", "wrap"]


@final
class Sampled(Symbol):
    """An array of data that is read at real coordinates, ``I2(y, x)``: interpolated between its elements.

    The element [i, j] stands at (i, j). Coordinates may depend on anything: indices by ``op.value(i)``, unknowns, other
    arrays. An index in the place of one, ``Depth(k, y, x)``, reads the k-th picture of a stack: nothing is interpolated
    along that axis. The derivative by coordinates is that of the interpolant, where it has a kink that at the next
    larger coordinate; or sampled from arrays that are given. Where a coordinate is infinite or NaN the value is NaN.

    Args:
        array: an ``op.Array``, or an ``op.Func`` that reads no unknown, which is stored when data are bound. A vector
            at each point gives a vector.
        method: "linear", also in two and three dimensions; "cubic", whose derivative is continuous (Catmull-Rom's
            spline, Keys' a = -1/2).
        boundary: what stands beyond the array: "nearest", the element at its end, again and again; "constant", a
            value; "mirror", the array backward from its last element (2 1 0 1 2); "wrap", the array again (1 2 0 1 2).
        value: of the boundary "constant".
        gradient: for each axis, an array or a Func of the shape of ``array``: its derivative along the axis, read as
            the array is, but 0 beyond a constant boundary; None for an axis that is read at indices.
            ``op.check_gradients`` then tells how far it is from that of the interpolant.

    Raises:
        EnergyError: the array is none, or depends on unknowns; an option is none.

    Reference: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
    """

    __slots__ = ("_array", "_boundary", "_gradient", "_method", "_value")

    def __init__(
        self,
        array: Array | Func,
        method: Interpolation = "linear",
        boundary: Boundary = "nearest",
        value: float = 0.0,
        gradient: Iterable[Array | Func | None] | None = None,
    ) -> None:
        self._array = _data(array, "op.Sampled")
        self._method: str = _chosen("method", method, tuple(METHODS))
        self._boundary: str = _chosen("boundary", boundary, BOUNDARIES)
        self._value = constant(value)
        if boundary != "constant" and value != 0.0:
            message = f"value={describe(value)} is that of the boundary 'constant', and the boundary is {boundary!r}"
            raise EnergyError(message, Location.of_caller())
        self._gradient = () if gradient is None else self._slopes(gradient)

    def _slopes(self, gradient: Any) -> tuple[Array | Func | None, ...]:
        f = self._array.field
        given = tuple(gradient) if isinstance(gradient, list | tuple) else (gradient,)
        example = f"gradient=({', '.join(f'G{n}' for n in range(len(f.dims)))}{',' if len(f.dims) == 1 else ''})"
        if len(given) != len(f.dims):
            message = f"'{f}' has {len(f.dims)} axes, and {len(given)} arrays are given as its gradient: {example}"
            raise EnergyError(message, Location.of_caller())
        slopes = tuple(None if a is None else _data(a, "gradient of op.Sampled") for a in given)
        for g in (a.field for a in slopes if a is not None):
            if (g.dims, g.channels) != (f.dims, f.channels):
                message = f"the gradient '{g}' has shape {shape_text(g)}, and '{f}' has {shape_text(f)}"
                raise EnergyError(f"{message}: they must be equal", Location.of_caller())
        return slopes

    def __call__(self, *coordinates: Operand | IndexExpression) -> Expression:
        """The value at real coordinates, or indices, one for each axis.

        Raises:
            EnergyError: they are none, or not as many as the axes.
        """
        f = self._array.field
        if len(coordinates) != len(f.dims):
            raise EnergyError(
                f"{self} takes {len(f.dims)} coordinates, one for each axis of '{f}', got {len(coordinates)}: write "
                f"{self._example}" + ("; those of a vector v are *v" if len(coordinates) == 1 else ""),
                Location.of_caller(),
            )
        at = [self._coordinate(n, c) for n, c in enumerate(coordinates)]
        whole = [isinstance(c, IndexExpression) for c in coordinates]
        places = [Coordinate(e.components[0], w) for e, w in zip(at, whole, strict=True)]
        values = tuple(self._at(c, places) for c in range(f.channels))
        slopes = (g for g in self._gradient if g is not None)
        sources = dict.fromkeys((*(s for a in (self._array, *slopes) for s in a.sources), *merged(at)))
        return Expression((f.channels,) if f.channel_axis else (), values, tuple(sources))

    def _coordinate(self, axis: int, value: Operand | IndexExpression) -> Expression:
        if isinstance(value, IndexExpression):
            return self._array.index_along(axis, value)
        if self._gradient and self._gradient[axis] is None:
            cure = "its gradient has None there: give an array, or an index"
            raise EnergyError(f"coordinate {axis} of {self} is no index, and {cure}", Location.of_caller())
        e = as_expression(value)
        refuse_robust(f"coordinate {axis} of {self}", e)
        if e.shape:
            cure = f"each coordinate is a number, {self._example}"
            raise EnergyError(f"coordinate {axis} of {self} has shape {e.shape}: {cure}", Location.of_caller())
        return e

    def _at(self, channel: int, places: list[Coordinate]) -> Expr:
        def read(array: Array | Func, beyond: Expr) -> Expr:
            field = ir.sampled(array.field) if isinstance(array, Func) else array.field
            return interpolated(field, channel, places, self._method, self._boundary, beyond)

        value = read(self._array, self._value)
        if not self._gradient:
            return value
        by = [(x, g) for x, g in zip(places, self._gradient, strict=True) if g is not None and not x.whole]
        return given_slopes(value, [(x.value, read(g, constant(0))) for x, g in by])

    @property
    def _example(self) -> str:
        axes = len(self._array.field.dims)
        return f"S({', '.join('zyx'[-axes:]) if axes <= 3 else '...'}), S = {self}"

    @property
    def number_message(self) -> str:
        """The message where it is used like one of its values."""
        return f"{self} stands for the whole array: call it with coordinates, {self._example}"

    _not_called = Refusal("{0.number_message}")
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _not_called
    __pow__ = __rpow__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = __mod__ = __rmod__ = _not_called
    __bool__ = __float__ = __int__ = __index__ = __iter__ = __len__ = __array__ = __array_ufunc__ = _not_called
    __getitem__ = Refusal("{0} is called with coordinates, {0._example}; at whole numbers the array itself is read")

    def __repr__(self) -> str:
        return f"op.Sampled({self._array.name})"


def _data(array: object, what: str) -> Array | Func:
    """An array or a Func that is sampled.

    Raises:
        EnergyError: it is neither, or depends on unknowns.
    """
    if isinstance(array, Array) and array.field.dims and array.field.manifold is None:
        return array
    if isinstance(array, Func) and array.field.dims:
        _check_func(array, what)
        return array
    if isinstance(array, Unknown):
        raise _moving(what, f"the unknown '{array.name}'", array.name)
    if isinstance(array, GridArray):
        manifold = array.field.manifold
        reason = "has no axis" if manifold is None else f"lives on {manifold}, where a mean of elements does not"
        raise EnergyError(f"{what} interpolates along axes, and '{array.name}' {reason}", Location.of_caller())
    cure = "declare I = op.Array('I', (H, W)), write op.Sampled(I), and bind the numbers as I when solving"
    raise EnergyError(f"{what} takes an op.Array, got {describe(array)}: {cure}", Location.of_caller())


def _check_func(func: Func, what: str) -> None:
    """That a Func has a formula, which depends on no unknown."""
    definition = func.defined().definition
    assert definition is not None
    read = ir.declared_in(with_summands(written_out(definition.values, attrgetter("values"))))
    for name in sorted(d.name for d in read if isinstance(d, ir.Field) and d.role is ir.Role.UNKNOWN):
        raise _moving(what, f"the Func '{func.name}', which depends on the unknown '{name}',", func.name)


def _moving(what: str, named: str, name: str) -> EnergyError:
    """The error of what changes with the unknowns: J^T would add to elements that no table of the data knows."""
    cure = (
        f"sample a copy, {name}0 = op.Array('{name}0', ...), bound to the values of '{name}', and bring it up to "
        f"date between solves, as in session.update({name}0=...)"
    )
    return EnergyError(
        f"{what} reads {named} at computed places: which elements a residual depends on would change with every step, "
        f"which no stencil or graph holds; {cure}",
        Location.of_caller(),
    )


def _chosen(option: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        message = f"{option}={describe(value)} is none of op.Sampled: choose {', '.join(map(repr, known))}"
        raise EnergyError(message, Location.of_caller())
    return value
