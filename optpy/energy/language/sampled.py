"""Images read at real coordinates: ``I2 = op.Sampled(I)``, then ``I2(y, x)``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, final

from optpy import ir
from optpy.energy.language.declarations import Array, GridArray, Unknown, shape_text
from optpy.energy.language.entries import constant
from optpy.energy.language.expression import Expression, Operand, as_expression, merged
from optpy.energy.language.index import IndexExpression, describe
from optpy.energy.language.interpolation import BOUNDARIES, METHODS, interpolated
from optpy.energy.language.refusal import Refusal, Symbol
from optpy.energy.language.robust import refuse_robust
from optpy.errors import EnergyError, Location
from optpy.symbolic.elements import given_slopes
from optpy.symbolic.expr import Expr

Interpolation = Literal["linear", "cubic"]
Boundary = Literal["nearest", "constant", "mirror", "wrap"]


@final
class Sampled(Symbol):
    """An array of data that is read at real coordinates, ``I2(y, x)``: interpolated between its elements.

    The element [i, j] stands at (i, j). Coordinates may depend on anything: indices by ``op.value(i)``, unknowns, other
    arrays. The derivative by them is that of the interpolant, where it has a kink that at the next larger coordinate;
    or sampled from arrays that are given. Where a coordinate is infinite or NaN the value is NaN.

    Args:
        array: an ``op.Array``; a vector at each point gives a vector.
        method: "linear", also in two and three dimensions; "cubic", whose derivative is continuous (Catmull-Rom's
            spline, Keys' a = -1/2).
        boundary: what stands beyond the array: "nearest", the element at its end, again and again; "constant", a
            value; "mirror", the array backward from its last element (2 1 0 1 2); "wrap", the array again (1 2 0 1 2).
        value: of the boundary "constant".
        gradient: for each axis, an ``op.Array`` of the shape of ``array``: its derivative along the axis, read as the
            array is, but 0 beyond a constant boundary. ``op.check_gradients`` then tells how far it is from that of
            the interpolant.

    Raises:
        EnergyError: the array is none, or unknown; an option is none.

    Reference: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981.
    """

    __slots__ = ("_boundary", "_field", "_gradient", "_method", "_value")

    def __init__(
        self,
        array: Array,
        method: Interpolation = "linear",
        boundary: Boundary = "nearest",
        value: float = 0.0,
        gradient: Iterable[Array] | None = None,
    ) -> None:
        self._field = _data(array, "op.Sampled")
        self._method: str = _chosen("method", method, tuple(METHODS))
        self._boundary: str = _chosen("boundary", boundary, BOUNDARIES)
        self._value = constant(value)
        if boundary != "constant" and value != 0.0:
            message = f"value={describe(value)} is that of the boundary 'constant', and the boundary is {boundary!r}"
            raise EnergyError(message, Location.of_caller())
        self._gradient = () if gradient is None else self._slopes(gradient)

    def _slopes(self, gradient: Any) -> tuple[ir.Field, ...]:
        f = self._field
        given = tuple(gradient) if isinstance(gradient, list | tuple) else (gradient,)
        example = f"gradient=({', '.join(f'G{n}' for n in range(len(f.dims)))}{',' if len(f.dims) == 1 else ''})"
        if len(given) != len(f.dims):
            message = f"'{f}' has {len(f.dims)} axes, and {len(given)} arrays are given as its gradient: {example}"
            raise EnergyError(message, Location.of_caller())
        slopes = tuple(_data(a, "gradient of op.Sampled") for a in given)
        for g in slopes:
            if (g.dims, g.channels) != (f.dims, f.channels):
                message = f"the gradient '{g}' has shape {shape_text(g)}, and '{f}' has {shape_text(f)}"
                raise EnergyError(f"{message}: they must be equal", Location.of_caller())
        return slopes

    def __call__(self, *coordinates: Operand) -> Expression:
        """The value at real coordinates, one for each axis.

        Raises:
            EnergyError: they are none, or not as many as the axes.
        """
        f = self._field
        if len(coordinates) != len(f.dims):
            raise EnergyError(
                f"{self} takes {len(f.dims)} coordinates, one for each axis of '{f}', got {len(coordinates)}: write "
                f"{self._example}" + ("; those of a vector v are *v" if len(coordinates) == 1 else ""),
                Location.of_caller(),
            )
        at = [self._coordinate(n, c) for n, c in enumerate(coordinates)]
        places = [e.components[0] for e in at]
        values = tuple(self._at(c, places) for c in range(f.channels))
        sources = dict.fromkeys((f, *self._gradient, *merged(at)))
        return Expression((f.channels,) if f.channel_axis else (), values, tuple(sources))

    def _coordinate(self, axis: int, value: Operand) -> Expression:
        if isinstance(value, IndexExpression):
            cure = f"for the value of an index write op.value({value}); at whole numbers '{self._field}' itself is read"
            raise EnergyError(f"coordinate {axis} of {self} is an index: {cure}", Location.of_caller())
        e = as_expression(value)
        refuse_robust(f"coordinate {axis} of {self}", e)
        if e.shape:
            cure = f"each coordinate is a number, {self._example}"
            raise EnergyError(f"coordinate {axis} of {self} has shape {e.shape}: {cure}", Location.of_caller())
        return e

    def _at(self, channel: int, places: list[Expr]) -> Expr:
        def read(field: ir.Field, beyond: Expr) -> Expr:
            return interpolated(field, channel, places, self._method, self._boundary, beyond)

        value = read(self._field, self._value)
        if not self._gradient:
            return value
        return given_slopes(value, [(x, read(g, constant(0))) for x, g in zip(places, self._gradient, strict=True)])

    @property
    def _example(self) -> str:
        return f"S({', '.join('zyx'[-len(self._field.dims) :]) if len(self._field.dims) <= 3 else '...'}), S = {self}"

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
        return f"op.Sampled({self._field})"


def _data(array: object, what: str) -> ir.Field:
    """The field of an array of data.

    Raises:
        EnergyError: it is no array, or depends on unknowns.
    """
    if isinstance(array, Array) and array.field.dims and array.field.manifold is None:
        return array.field
    if isinstance(array, Unknown):
        name = array.name
        cure = (
            f"sample a copy, {name}0 = op.Array('{name}0', ...), bound to the values of '{name}', and bring it up to "
            f"date between solves, session.update({name}0=session['{name}'])"
        )
        raise EnergyError(
            f"{what} reads the unknown '{name}' at computed places: which elements a residual depends on would change "
            f"with every step, which no stencil or graph holds; {cure}",
            Location.of_caller(),
        )
    if isinstance(array, GridArray) and array.field.role is ir.Role.FUNC:
        cure = f"sample what it is made of, or bind its values as op.Array('{array.name}0', ...)"
        raise EnergyError(f"{what} takes arrays of data, and '{array.name}' is a Func: {cure}", Location.of_caller())
    if isinstance(array, Array):
        manifold = array.field.manifold
        reason = "has no axis" if manifold is None else f"lives on {manifold}, where a mean of elements does not"
        raise EnergyError(f"{what} interpolates along axes, and '{array.name}' {reason}", Location.of_caller())
    cure = "declare I = op.Array('I', (H, W)), write op.Sampled(I), and bind the numbers as I when solving"
    raise EnergyError(f"{what} takes an op.Array, got {describe(array)}: {cure}", Location.of_caller())


def _chosen(option: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        message = f"{option}={describe(value)} is none of op.Sampled: choose {', '.join(map(repr, known))}"
        raise EnergyError(message, Location.of_caller())
    return value
