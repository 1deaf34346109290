"""Data bound to an energy: names, shapes, sizes, dtypes and values are checked, and arrays made ready for solvers."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from optpy import ir
from optpy.energy.data.casting import cast
from optpy.energy.data.graph_binding import EdgeArray, checked_edges, edges_shape_text, graph_array
from optpy.energy.data.origin import Origin, first_true, is_rotation, to_array, to_host
from optpy.energy.data.precision import precision_for, warn_of_lost_values, warn_of_shifted_param
from optpy.energy.data.scales import check_scales, role_of
from optpy.energy.language.declarations import accepted_text, shape_text
from optpy.energy.language.expression import Source
from optpy.energy.language.index import describe
from optpy.energy.language.manifold import Manifold
from optpy.errors import DataError
from optpy.symbolic.number import nearest_float


@final
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class BoundData:
    """The data of one solve. Arrays may share memory with the user's: they are read, never written.

    Attributes:
        sizes: of every dim.
        arrays: by name, C-contiguous, as users lay them out, (*dims) or (*dims, channels); of their declared dtype
            or the solver's.
        params: by name.
        origins: where each array came from, by name.
        edges: of each graph, by name: every index inside what its slot points into.
        shapes: of each array, by name, also once they have been released.
        dtype: the solver's, float32 or float64.
        as_matrices: the manifolds of those that came in as matrices, by name; ``arrays`` has them as they are stored.
        xp: the module of ``arrays`` and ``edges``: NumPy, or CuPy.
    """

    sizes: dict[ir.Extent, int]
    arrays: dict[str, Any]
    params: dict[str, float]
    origins: dict[str, Origin]
    edges: dict[str, EdgeArray]
    shapes: dict[str, tuple[int, ...]]
    dtype: np.dtype[Any]
    as_matrices: dict[str, Manifold] = field(default_factory=dict)
    xp: Any = np

    def release(self) -> None:
        """Let go of the arrays, whose values have been copied: they may be the user's, or large on a GPU."""
        self.arrays.clear()

    def shape(self, field: ir.Field) -> tuple[int, ...]:
        """The shape in which users see a field."""
        grid = tuple(self.sizes[d] for d in field.dims)
        return (*grid, field.channels) if field.channel_axis else grid

    def give_back(self, name: str, array: Any) -> Any:
        """A result, an array of ``xp``, of the kind and shape in which the array of that name came in."""
        array = array.reshape(self.shapes[name])
        if name in self.as_matrices:
            array = self.as_matrices[name].to_matrices(array, self.xp)
        return self.origins[name].give(array)


def bind(problem: ir.Problem, data: Mapping[str, Any], dtype: DTypeLike | None = None, xp: Any = np) -> BoundData:
    """Check the data and bring it into shape.

    Args:
        problem: what the data is for.
        data: a value for every name that the energy reads: arrays of shape (*dims) or (*dims, channels), numbers for
            params.
        dtype: float32 or float64, of the unknowns and of arrays without a dtype of their own; None: float32 if that
            holds all values of the unknowns, by their dtypes, else float64.
        xp: the module of the arrays that solving works on: NumPy; or CuPy, to check the data on the current GPU, where
            it stays if it lies there, and is copied to once if it does not.

    Raises:
        DataError: names are missing or unknown, shapes or sizes do not fit, a domain is empty, a dtype would lose
            values, a value is not finite, a param that is the scale of a robust loss not positive, or an array lies on
            another GPU.
    """
    _check_names(problem, data)
    unknowns = {u.name: _read(u, data[u.name], xp) for u in problem.unknowns}
    solver = precision_for(raw.dtype for raw, _ in unknowns.values()) if dtype is None else np.dtype(dtype)
    sizes: dict[ir.Extent, int] = {}
    bound_by: BoundBy = {}
    arrays, origins = {}, {}
    may_be_empty = {d for g in problem.graphs for d in g.counted}
    as_matrices: dict[str, Manifold] = {}
    for f in problem.fields:
        raw, origins[f.name] = unknowns.pop(f.name) if f.name in unknowns else _read(f, data[f.name], xp)
        _bind_sizes(f, raw.shape, sizes, bound_by, may_be_empty)
        arrays[f.name] = _values(f, raw, solver, xp)
        as_matrices |= _manifold_of_matrices(f, raw)
    graphs = {g: graph_array(g, data[g.name], xp) for g in problem.graphs}
    for g, raw in graphs.items():
        _bind_edges(g, raw.shape[:-1], sizes, bound_by)
    _check_sampled(problem, sizes)
    edges = {g.name: checked_edges(g, raw, sizes, xp) for g, raw in graphs.items()}
    params = {p.name: _number(p, data[p.name], solver, role_of(p, problem.scales)) for p in problem.params}
    check_scales(problem.scales, params, solver)
    return BoundData(sizes, arrays, params, origins, edges, _shapes(arrays), solver, as_matrices, xp)


def bind_update(problem: ir.Problem, bound: BoundData, changes: Mapping[str, Any]) -> tuple[BoundData, dict[str, Any]]:
    """Change some of the data; sizes may change where all arrays that have them are given. The precision stays.

    Returns:
        The data after the change, and the changed arrays alone.

    Raises:
        DataError: as ``bind``.
    """
    _check_known(problem, changes)
    solver = bound.dtype
    raws = {f: _read(f, changes[f.name], bound.xp) for f in problem.fields if f.name in changes}
    graphs = {g: graph_array(g, changes[g.name], bound.xp) for g in problem.graphs if g.name in changes}
    sizes = _sizes_after(problem, bound, {f: raw for f, (raw, _) in raws.items()}, graphs)
    _check_sampled(problem, sizes)
    arrays = {f.name: _values(f, raw, solver, bound.xp) for f, (raw, _) in raws.items()}
    origins = {f.name: origin for f, (_, origin) in raws.items()}
    as_matrices = {name: m for name, m in bound.as_matrices.items() if name not in changes}
    for f, (raw, _) in raws.items():
        as_matrices |= _manifold_of_matrices(f, raw)
    edges = {
        g.name: checked_edges(g, graphs.get(g, bound.edges[g.name]), sizes, bound.xp)
        for g in problem.graphs
        if g in graphs or any(sizes[d] < bound.sizes[d] for d in g.given)
    }
    params = {
        p.name: _number(p, changes[p.name], solver, role_of(p, problem.scales))
        for p in problem.params
        if p.name in changes
    }
    check_scales(problem.scales, params, solver)
    new = BoundData(
        sizes,
        {**bound.arrays, **arrays},
        {**bound.params, **params},
        {**bound.origins, **origins},
        {**bound.edges, **edges},
        {**bound.shapes, **_shapes(arrays)},
        bound.dtype,
        as_matrices,
        bound.xp,
    )
    return new, arrays


def _read(f: ir.Field, value: Any, xp: Any) -> tuple[Any, Origin]:
    if is_rotation(value) and not (isinstance(f.manifold, Manifold) and f.manifold.scipy):
        raise DataError(
            f"{f.name!r} is given as SciPy's Rotation, but is not declared as one: "
            f"op.{'Unknown' if f.role is ir.Role.UNKNOWN else 'Array'}({f.name!r}, ..., op.SO3)",
            f.location,
        )
    return to_array(f.name, value, xp)


def _shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(a.shape) for name, a in arrays.items()}


def _sizes_after(
    problem: ir.Problem,
    bound: BoundData,
    arrays: Mapping[ir.Field, Any],
    graphs: Mapping[ir.Hypergraph, Any],
) -> dict[ir.Extent, int]:
    """All sizes after a change; what stays comes first, so that messages are about what changes."""
    sizes: dict[ir.Extent, int] = {}
    bound_by: BoundBy = {}
    may_be_empty = {d for g in problem.graphs for d in g.counted}
    for f in sorted(problem.fields, key=lambda f: f in arrays):
        _bind_sizes(f, arrays[f].shape if f in arrays else bound.shapes[f.name], sizes, bound_by, may_be_empty)
    for g in sorted(problem.graphs, key=lambda g: g in graphs):
        counts = graphs[g].shape[:-1] if g in graphs else tuple(bound.sizes[d] for d in g.counted)
        _bind_edges(g, counts, sizes, bound_by)
    return sizes


# -- names -----------------------------------------------------------------------------------------------------------


def _names(problem: ir.Problem) -> dict[str, Source]:
    sources: list[Source] = [*problem.fields, *problem.graphs, *problem.params]
    return {s.name: s for s in sources}


def _check_names(problem: ir.Problem, data: Mapping[str, Any]) -> None:
    _check_known(problem, data)
    missing = [s for name, s in _names(problem).items() if name not in data]
    if missing:
        wanted = ", ".join(_wanted(s) for s in missing)
        given = ", ".join(repr(k) for k in data) or "nothing"
        raise DataError(f"the data lacks {wanted}; it has {given}", missing[0].location)


def _check_known(problem: ir.Problem, data: Mapping[str, Any]) -> None:
    if not isinstance(data, Mapping):
        raise DataError(f"data is a mapping from names to arrays and numbers, not a {type(data).__name__}")
    known = _names(problem)
    unknown = [k for k in data if k not in known]
    for func in problem.funcs if unknown else ():
        name = func.name.removeprefix(ir.SAMPLED)
        if name in unknown:
            what = f"{name!r} is a Func: it is computed by its formula, and not bound"
            raise DataError(f"{what}; numbers that are given are an op.Array", func.location)
    if unknown:
        lower = {name.lower(): name for name in known}
        close = difflib.get_close_matches(str(unknown[0]).lower(), lower, n=1)
        cure = f"did you mean {lower[close[0]]!r}?" if close else f"it reads {', '.join(map(repr, known))}"
        raise DataError(f"the energy reads no {', '.join(map(repr, unknown))}; {cure}")


def _wanted(s: Source) -> str:
    if isinstance(s, ir.Hypergraph):
        return f"{s.name!r} (an integer array of shape {edges_shape_text(s)})"
    return (
        f"{s.name!r} (a number)" if isinstance(s, ir.Scalar) else f"{s.name!r} (an array of shape {accepted_text(s)})"
    )


# -- shapes ----------------------------------------------------------------------------------------------------------


BoundBy = dict[ir.Extent, ir.Field | ir.Hypergraph]
"""The array or graph that gave each size."""


def _bind_edges(g: ir.Hypergraph, counts: tuple[int, ...], sizes: dict[ir.Extent, int], bound_by: BoundBy) -> None:
    for dim, edges in zip(g.counted, counts, strict=True):
        if sizes.setdefault(dim, edges) != edges:
            along = f" along {dim}" if g.grid else ""
            raise DataError(
                f"the graph {g.name!r} has {edges} edges{along}, but {dim} is {sizes[dim]} from {bound_by[dim].name!r}",
                g.location,
            )
        bound_by.setdefault(dim, g)
    sizes[g.edges] = math.prod(counts)


def _bind_sizes(
    f: ir.Field,
    shape: tuple[int, ...],
    sizes: dict[ir.Extent, int],
    bound_by: BoundBy,
    may_be_empty: Collection[ir.Extent],
) -> None:
    if len(shape) < len(f.dims) or shape[len(f.dims) :] not in _element_shapes(f):
        raise DataError(
            f"{f.name!r} must have shape {accepted_text(f, sizes)}, got {shape}{_hint(f, shape)}", f.location
        )
    for dim, n in zip(f.dims, shape, strict=False):
        if n == 0 and dim not in may_be_empty:
            raise DataError(
                f"{f.name!r} has shape {shape}: the size {dim} is 0; a domain must have a point", f.location
            )
        if sizes.setdefault(dim, n) != n:
            source = f" from {bound_by[dim].name!r}" if dim in bound_by else ""
            raise DataError(
                f"{f.name!r} must have shape {shape_text(f, sizes)}, got {shape}: {dim} is {sizes[dim]}{source}",
                f.location,
            )
        bound_by.setdefault(dim, f)


LONGEST_SAMPLED = 2**31 - 128
"""Elements along an axis of an array that is sampled: ``optpy_clampedf`` computes in 32 bits."""


def _check_sampled(problem: ir.Problem, sizes: Mapping[ir.Extent, int]) -> None:
    """Arrays that are sampled have elements everywhere, nearest to any place."""
    for f in problem.sampled:
        for dim in f.dims:
            if not 1 <= sizes[dim] <= LONGEST_SAMPLED:
                message = (
                    f"{f.name.removeprefix(ir.SAMPLED)!r} is read by op.Sampled, and the size {dim} is {sizes[dim]}"
                )
                raise DataError(f"{message}: it must be from 1 to {LONGEST_SAMPLED}", f.location)


def _element_shapes(f: ir.Field) -> list[tuple[int, ...]]:
    """The shapes that may follow the axes of the grid."""
    size = f.manifold.matrix_size if isinstance(f.manifold, Manifold) else None
    return [(f.channels,) if f.channel_axis else (), *([(size, size)] if size is not None else [])]


def _manifold_of_matrices(f: ir.Field, raw: Any) -> dict[str, Manifold]:
    """The field's manifold by its name, if its elements came as matrices."""
    matrices = isinstance(f.manifold, Manifold) and raw.ndim == len(f.dims) + 2
    return {f.name: f.manifold} if matrices else {}  # type: ignore[dict-item]


def _hint(f: ir.Field, shape: tuple[int, ...]) -> str:
    grid = len(f.dims)
    if not f.channel_axis and len(shape) == grid + 1:
        return f"; for a vector at every point declare it with {shape[-1]} channels"
    if f.channel_axis and len(shape) == grid + 1 and shape[0] == f.channels:
        return "; channels come last: np.moveaxis(a, 0, -1)"
    if f.channel_axis and f.channels == 1 and len(shape) == grid:
        return "; add the axis of the channels: a[..., None]"
    return ""


# -- values ----------------------------------------------------------------------------------------------------------


def _values(f: ir.Field, raw: Any, solver: np.dtype[Any], xp: Any) -> Any:
    target = solver if f.dtype == ir.REAL else np.dtype(f.dtype)
    if isinstance(f.manifold, Manifold):
        return _on_manifold(f, f.manifold, raw, target, xp)
    array = cast(f, raw, target, xp)
    if target.kind == "f":
        _check_finite(f, raw, array, xp)
    return array


def _on_manifold(f: ir.Field, manifold: Manifold, raw: Any, target: np.dtype[Any], xp: Any) -> Any:
    """Elements of a manifold as they are stored, on it to within the rounding of the target's dtype."""
    wide = cast(f, raw, np.dtype(np.float64), xp)
    _check_finite(f, raw, wide, xp)
    if _manifold_of_matrices(f, raw):
        stored = manifold.from_matrices(f, wide, xp)
    else:
        stored = manifold.checked(f, wide, 4 * float(np.finfo(target).eps), xp)
    with np.errstate(over="ignore"):
        array = xp.ascontiguousarray(stored.astype(target))
    warn_of_lost_values(f, stored, array, xp)
    _check_finite(f, stored, array, xp)
    return array


def _check_finite(f: ir.Field, raw: Any, array: Any, xp: Any) -> None:
    finite = xp.isfinite(array)
    if finite.all():
        return
    first = first_true(~finite)
    n = int(finite.size - finite.sum())
    given = to_host(raw[first])[()]
    overflows = raw.dtype.kind == "f" and np.isfinite(given)
    reason = f"does not fit into {array.dtype}, dtype=np.float64 can hold it" if overflows else "is not finite"
    count = "the only such value" if n == 1 else f"the first of {n} such values"
    place = ", ".join(map(str, first))
    cure = "" if overflows else ". Put numbers there, and leave out what reads them: op.where(Known[...], residual, 0)"
    raise DataError(f"{f.name}[{place}] = {given} {reason}; it is {count}{cure}", f.location)


def _number(p: ir.Scalar, value: Any, solver: np.dtype[Any], role: str) -> float:
    if not isinstance(value, numbers.Real | np.bool_):
        value = _item(p, value)
    number = nearest_float(value)
    with np.errstate(over="ignore"):
        if not np.isfinite(solver.type(number)):
            exact = isinstance(value, numbers.Rational)
            reason = f"does not fit into {solver}" if exact or np.isfinite(number) else "is not finite"
            given = describe(value) if exact else number
            raise DataError(f"the param {p.name!r} is {given}, which {reason}{role}", p.location)
    if solver == np.float32:
        warn_of_shifted_param(p, number)
    return number


def _item(p: ir.Scalar, value: Any) -> Any:
    """The number in an array without axes."""
    shape = getattr(value, "shape", None)
    item = value.item() if shape is not None and len(shape) == 0 and hasattr(value, "item") else None
    if not isinstance(item, numbers.Real):
        what = f"a {type(value).__name__}" + (f" of shape {tuple(shape)}" if shape else "")
        raise DataError(f"the param {p.name!r} must be a real number, got {what}", p.location)
    return item
