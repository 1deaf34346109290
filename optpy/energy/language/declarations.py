"""Arrays, unknowns and params: the names that an energy reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from optpy import ir
from optpy.energy.language.expression import Expression, Source
from optpy.energy.language.graph import Slots, slots_text
from optpy.energy.language.index import DeclaredIndex, Dim, as_affine, check_name, describe, is_outside, one_or_more
from optpy.energy.language.manifold import Element, Manifold, as_manifold, zeros
from optpy.energy.language.naming import shown
from optpy.energy.language.refusal import Refusal, Symbol
from optpy.errors import EnergyError, Location
from optpy.symbolic.affine import Affine, FloorDiv, TableEntry
from optpy.symbolic.expr import var
from optpy.symbolic.traverse import variables

Channels = int | Manifold | type[Element] | None
"""The value at every point: a vector of so many numbers, an element of a manifold, or a scalar."""


class GridArray(Symbol):
    """Values on a grid, read at affine indices: the base of arrays and unknowns."""

    __slots__ = ("field",)
    field: ir.Field

    @property
    def name(self) -> str:
        """Its key in the data."""
        return self.field.name

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The sizes of its grid."""
        return tuple(Dim(d.name) for d in self.field.dims)

    @property
    def channels(self) -> int | None:
        """The length of the vector at every point, as stored; None for scalars."""
        return self.field.channels if self.field.channel_axis else None

    def __getitem__(self, key: Any) -> Any:
        """The value at an index: a scalar, a vector of the channels, or an element of the manifold."""
        stored = self.stored(key)
        manifold = self.field.manifold
        return manifold.read(stored, _displacement(self.field, stored)) if isinstance(manifold, Manifold) else stored

    def stored(self, key: Any) -> Expression:
        """The numbers at an index: a scalar, or a vector of the channels."""
        f = self.field
        entries = key if isinstance(key, tuple) else (key,)
        if isinstance(key, Slots) and (len(key) != len(f.dims) or any(isinstance(k, tuple) for k in key)):
            raise key.refused_by(f)
        if len(entries) != len(f.dims):
            raise EnergyError(
                f"{self._text} takes {_count(len(f.dims), 'index', 'indices')}, got {len(entries)}: write "
                f"{self._example}" + (f", and {self._example}[0] for a channel" if self._has_entries else ""),
                Location.of_caller(),
            )
        if any(isinstance(k, Expression) for k in entries):
            raise self._lookup_refused(entries)
        index = tuple(as_affine(k, f"axis {n} of '{f.name}'") for n, k in enumerate(entries))
        for n, (a, dim) in enumerate(zip(index, f.dims, strict=True)):
            self._check_axis(n, a, dim)
        components = tuple(var(ir.Access(f, index, c)) for c in range(f.channels))
        return Expression((f.channels,) if f.channel_axis else (), components, (f, *ir.graphs_of(index)))

    @property
    def sources(self) -> tuple[Source, ...]:
        """The declarations that reading it mentions."""
        return (self.field,)

    def index_along(self, axis: int, key: Any) -> Expression:
        """An index along one axis, checked as where the array is read, as a number."""
        index = as_affine(key, f"axis {axis} of '{self.name}'")
        self._check_axis(axis, index, self.field.dims[axis])
        return Expression((), (ir.index_value(index),), ir.graphs_of([index]))

    def _check_axis(self, axis: int, index: Affine, dim: ir.Extent) -> None:
        if is_outside(index, dim):
            raise EnergyError(
                f"axis {axis} of '{self.name}' is read at {shown(index)}, which is always outside: the last element is "
                f"{self._at(axis, f'{dim} - 1')}, the first {self._at(axis, '0')}",
                Location.of_caller(),
            )
        if any(isinstance(a, FloorDiv) for a in index.atoms):
            return  # coarser grids are meant, whatever runs over others
        for a in index.atoms:
            if isinstance(a, TableEntry) and ir.entry_dim(a) != dim:
                raise EnergyError(
                    f"axis {axis} of {self._text} runs over {dim}, but the index {shown(index)} there points into "
                    f"{ir.entry_dim(a)}: the slots of '{a.table}' point into {slots_text(a.table)}",
                    Location.of_caller(),
                )
        variables = [a for a in index.atoms if isinstance(a, DeclaredIndex)]
        # Strided and mirrored reads over another grid are meant; a plain neighbour over another grid is a mistake.
        if len(variables) == 1 and abs(index.coefficient(variables[0])) == 1 and dim not in index.atoms:
            over = variables[0].dim
            if over != dim:
                raise EnergyError(
                    f"axis {axis} of {self._text} runs over {dim}, but the index {shown(index)} there runs over "
                    f"{over}: index it by k = op.indices({dim}), or declare '{self.name}' over {over} if the two sizes "
                    "are one",
                    Location.of_caller(),
                )

    def _lookup_refused(self, entries: Sequence[Any]) -> EnergyError:
        """The error of ``P[I[n]]``, an index that is a value."""
        axis, value = next((n, k) for n, k in enumerate(entries) if isinstance(k, Expression))
        what = f"axis {axis} of '{self.name}' is indexed by {shown(repr(value))}, which is a value, not an index"
        keys = [v.key for v in variables(value.components)]
        if not keys or not all(isinstance(k, ir.Access) and k.field.dtype in _WHOLE for k in keys):
            cure = "indices are whole numbers, affine in loop variables: i, i + 1, 2*i - k, H - 1 - i, i // 2, 0"
            if self.field.role is ir.Role.DATA:
                cure += f"; at real coordinates it is op.Sampled({self.name})({', '.join('zyx'[-len(entries) :])})"
            return EnergyError(f"{what}; {cure}", Location.of_caller())
        table = keys[0].field
        dims = ", ".join(d.name for d in self.field.dims)
        pointed = f"({dims})" if len(self.field.dims) > 1 else dims
        columns = len(self.field.dims)
        edges = [d.name for d in table.dims]
        counted = edges[0] if len(edges) == 1 else f"({', '.join(edges)})"
        at = ", ".join(e.lower() for e in edges)
        lines = f'links = op.Graph("links", {counted}, ({pointed},)); (k,) = links[{at}]; {self.name}[k]'
        data = (
            f"of shape ({', '.join(edges)}, {columns}): the numbers in '{table.name}', as a[{':, ' * len(edges)}None]"
        )
        return EnergyError(
            f"{what}: a lookup through an array is a graph. Use a Graph: {lines}. Its data is an integer array {data}",
            Location.of_caller(),
        )

    def _at(self, axis: int, index: str) -> str:
        """The text of a read with an index along one axis."""
        letters = list("ijkl"[: len(self.field.dims)])
        letters[axis] = index
        return f"{self.name}[{', '.join(letters)}]"

    @property
    def _has_entries(self) -> bool:
        return self.field.channel_axis and self.field.manifold is None

    @property
    def _example(self) -> str:
        return f"{self.name}[{', '.join('ijkl'[: len(self.field.dims)]) or '()'}]"

    @property
    def _text(self) -> str:
        return f"'{self.name}' of shape {shape_text(self.field)}"

    @property
    def number_message(self) -> str:
        """The message where it is used like one of its values."""
        return f"'{self.name}' stands for the whole array: index it, as in {self._example}"

    @property
    def _called_message(self) -> str:
        cure = f"; at real coordinates it is op.Sampled({self.name})(...)" if self.field.role is ir.Role.DATA else ""
        return self.number_message + cure

    _unindexed = Refusal("{0.number_message}")
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _unindexed
    __pow__ = __rpow__ = __neg__ = __abs__ = __matmul__ = __rmatmul__ = __lt__ = __le__ = __gt__ = __ge__ = _unindexed
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __divmod__ = __rdivmod__ = _unindexed
    __round__ = __floor__ = __ceil__ = __trunc__ = __int__ = __float__ = __complex__ = __index__ = _unindexed
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = __bool__ = _unindexed
    __call__ = Refusal("{0._called_message}")
    __iter__ = __len__ = __array__ = __array_ufunc__ = __array_function__ = _unindexed

    def __eq__(self, other: object) -> bool:
        return self.field == other.field if isinstance(other, GridArray) else self._unindexed()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.field)

    def __repr__(self) -> str:
        dtype = "" if self.field.dtype == ir.REAL else f", dtype={self.field.dtype}"
        channels = f", {self.field.manifold or self.field.channels}" if self.field.channel_axis else ""
        dims = ", ".join(d.name for d in self.field.dims) + ("," if len(self.field.dims) == 1 else "")
        return f"{type(self).__name__}({self.name!r}, ({dims}){channels}{dtype})"


@final
class Array(GridArray):
    """Data on a grid.

    Args:
        name: its key in the data.
        dims: of its grid, such as (H, W); () for a single value.
        channels: length of the vector at every point, the last axis of the data; None for a scalar; or the manifold
            that the values are checked to lie on when they are bound, as for ``op.Unknown``.
        dtype: float32, float64, uint8, int32 or bool: how the values are stored; None takes the solver's own
            precision, in which every expression is computed: float64 data in a float32 solve is rounded when used.
    """

    __slots__ = ()

    def __init__(
        self, name: str, dims: Dim | Iterable[Dim], channels: Channels = None, dtype: DTypeLike | None = None
    ) -> None:
        self.field = declared_field(name, dims, channels, _dtype_name(name, dtype), ir.Role.DATA)


@final
class Unknown(GridArray):
    """Values on a grid that are solved for, in the solver's own precision.

    Args:
        name: its key in the data (the initial values) and in the result.
        dims: of its grid, such as (H, W); () for a single global value.
        channels: length of the vector at every point, the last axis of the data; None for a scalar; or the manifold
            that the values live on: ``op.SO2``, ``op.SO3``, ``op.SE2``, ``op.SE3`` or ``op.UnitVector(n)``, which say
            how they are stored, and how a solve moves them.
        dtype: None; the precision of a solve is chosen for all unknowns together, by ``dtype`` of ``op.solve``.
    """

    __slots__ = ()

    def __init__(
        self, name: str, dims: Dim | Iterable[Dim], channels: Channels = None, dtype: DTypeLike | None = None
    ) -> None:
        if dtype is not None:
            raise EnergyError(
                f"the unknown {name!r} is declared with a dtype: unknowns have the solver's precision, "
                "op.solve(..., dtype=np.float64)",
                Location.of_caller(),
            )
        self.field = declared_field(name, dims, channels, ir.REAL, ir.Role.UNKNOWN)

    @classmethod
    def of(cls, field: ir.Field) -> Unknown:
        """The declaration of a field."""
        unknown = cls.__new__(cls)
        unknown.field = field
        return unknown


@final
class Param(Expression):
    """A number given with the data, changeable between solves. Make them with ``op.params``."""

    __slots__ = ("scalar",)

    def __init__(self, name: str) -> None:
        check_name(name, "a param")
        self.scalar = ir.Scalar(name, Location.of_caller())
        super().__init__((), (var(self.scalar),), (self.scalar,))

    @property
    def name(self) -> str:
        return self.scalar.name


def params(names: str) -> Any:
    """Numbers given with the data.

    Args:
        names: separated by spaces or commas: ``w_fit, w_reg = op.params("w_fit w_reg")``.

    Returns:
        A ``Param`` for a single name, else a tuple of them.
    """
    return one_or_more(names, Param, 'op.params("w_fit w_reg")')


def declared_field(name: str, dims: Dim | Iterable[Dim], channels: Channels, dtype: str, role: ir.Role) -> ir.Field:
    """The field that a user has declared.

    Raises:
        EnergyError: name, dims, channels or dtype are none.
    """
    check_name(name, "an array")
    location = Location.of_caller()
    grid: tuple[Any, ...] = tuple(dims) if isinstance(dims, Iterable) else (dims,)
    for d in grid:
        if not isinstance(d, Dim):
            raise EnergyError(
                f"the dims of {name!r} are symbolic sizes, as in (H, W) with H, W = op.dims('H W'), then the number of "
                f"channels by itself; got {describe(d)}",
                location,
            )
    sizes = tuple(d.size for d in grid)
    manifold = as_manifold(channels)
    if manifold is not None:
        if dtype not in (ir.REAL, "float32", "float64"):
            message = f"the array {name!r} of {manifold.name} cannot have dtype {dtype}: it holds real numbers"
            raise EnergyError(message, location)
        return ir.Field(name, sizes, manifold.channels, dtype, role, True, location, manifold=manifold)
    if channels is not None and not _is_count(channels):
        raise EnergyError(
            f"the number of channels of {name!r} is a whole number from 1 on, None for a scalar, or a manifold such "
            f"as op.SO3 or op.UnitVector(3); got {describe(channels)}",
            location,
        )
    n = int(channels) if channels is not None else 1  # type: ignore[arg-type]
    return ir.Field(name, sizes, n, dtype, role, channels is not None, location)


_WHOLE = ("uint8", "int32")
"""Dtypes of arrays that may hold indices."""


def _displacement(field: ir.Field, stored: Expression) -> Expression:
    """The displacement of an element of a manifold from its stored value: 0 if it is data."""
    tangent = ir.tangent(field)
    if field.role is not ir.Role.UNKNOWN:
        return zeros(tangent.channels)
    access = stored.components[0].key  # type: ignore[attr-defined]
    moved = tuple(var(replace(access, field=tangent, channel=k)) for k in range(tangent.channels))
    return Expression((len(moved),), moved, (field,))


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 1


def _dtype_name(name: str, dtype: DTypeLike | None) -> str:
    if dtype is None:
        return ir.REAL
    try:
        found = np.dtype(dtype).name
    except TypeError:
        found = describe(dtype)
    if found not in ir.DTYPES or found == ir.REAL:
        known = ", ".join(d for d in ir.DTYPES if d != ir.REAL)
        raise EnergyError(
            f"the array {name!r} cannot have dtype {found}: choose {known}, or None for the solver's own precision",
            Location.of_caller(),
        )
    return found


def shape_text(field: ir.Field, sizes: dict[ir.Extent, int] | None = None) -> str:
    """``(H, W, 2)``, or ``(H=512, W=512, 2)`` where the sizes are known."""
    return _shape_text(field, sizes, (field.channels,) if field.channel_axis else ())


def accepted_text(field: ir.Field, sizes: dict[ir.Extent, int] | None = None) -> str:
    """The shapes in which data is taken: ``(V, 4): unit quaternions (x, y, z, w), or (V, 3, 3): matrices``."""
    text = shape_text(field, sizes)
    if not isinstance(field.manifold, Manifold):
        return text
    size = field.manifold.matrix_size
    matrices = f", or {_shape_text(field, sizes, (size, size))}: matrices" if size is not None else ""
    return f"{text}: {field.manifold.layout}{matrices}"


def _shape_text(field: ir.Field, sizes: dict[ir.Extent, int] | None, own: tuple[int, ...]) -> str:
    parts = [d.name if sizes is None or d not in sizes else f"{d}={sizes[d]}" for d in field.dims]
    parts += map(str, own)
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
