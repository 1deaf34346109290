"""J^T J itself in memory: at each element of the unknowns, the entries that couple it with its neighbours.

Where a residual reads unknowns of one grid at constant distances from one another, what it adds to J^T J is a stencil,
whether it is read once at each element, along a loop, or over the edges there. The stencils of all such residuals are
added up once for each linearisation, and a product with J^T J is one pass that reads the sum: no residual is visited.
Where it reads several slots of edges, each of these is a stencil, and what couples them is kept at the edge
(``normal_edges``).
J^T J is symmetric, so that one half is stored: an element's entry with the neighbour at d is the neighbour's with -d.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Final, final

from optpy.energy.derive.gather import GatheredSum, SummandContribution, moving_part
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import MOST_STORES, over_edges
from optpy.energy.derive.vectors import AP, P, vector
from optpy.energy.derive.views import LoopNames, View, shift, views
from optpy.ir import (
    REAL,
    Access,
    Assignment,
    Extent,
    Field,
    FieldChannel,
    Group,
    InBounds,
    Role,
    Routine,
    Scalar,
    canonical_domain,
    point,
)
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr, add, const, mul, split_content, var
from optpy.symbolic.factor import factor
from optpy.symbolic.traverse import variables

MOST_READS: Final = 64
"""Elements that a component of a residual reads at most: each pair of them is a product of its own. As for an assembled
matrix (``normal_matrix``)."""

Offset = tuple[int, ...]
Entry = tuple[FieldChannel, FieldChannel, Offset]
"""An entry of J^T J: the channel of its row's element, that of its column's, and how far that is from the row's."""


def stencil_obstacle(source: LinearisedResidual) -> str | None:
    """The reason why what a residual adds to J^T J is no stencil; None: it is one."""
    if not source.accesses:
        return "it reads no unknown"
    if any(a.field.role is Role.STORED for a in source.accesses):
        return "it reads an op.sum of unknowns, which couples all that is summed"
    if len({a.field.dims for a in source.accesses}) > 1:
        return "it reads unknowns of several grids"
    if any(len({moving_part(a.index) for a in p}) > 1 for p in source.partials):
        return "it reads elements whose distances from one another are not the same everywhere"
    most = max(len({a.index for a in p}) for p in source.partials)
    return f"it reads {most} elements, and the most is {MOST_READS}" if most > MOST_READS else None


@final
@dataclass(frozen=True, slots=True)
class NormalStencil:
    """The sum of the parts of some residuals in J^T J, read from memory.

    Attributes:
        dims: of the unknowns' grid.
        entries: one half of the stencil, at the row's point ``canonical_domain(dims)``.
        stores: the routines that put it into memory, at each linearisation.
        summands: where the pass that gathers J^T F there puts it into memory instead, since it visits the same edges:
            what residuals add to each entry, to be gathered.
        places: the entries that this pass stores, each divided by a number.
    """

    dims: tuple[Extent, ...]
    entries: Mapping[Entry, Expr]
    stores: tuple[Routine, ...]
    summands: tuple[tuple[LinearisedResidual, SummandContribution], ...] = ()
    places: Mapping[Access, tuple[Entry, Fraction]] = field(default_factory=dict)

    def stored_with(self, total: GatheredSum) -> dict[Access, Expr]:
        """The values at each place, once its summands have been added up."""
        return {place: mul(const(1 / c), total.total(entry)) for place, (entry, c) in self.places.items()}

    @property
    def product(self) -> dict[Hashable, Expr]:
        """Its part of J^T J p at a point, by the keys of ``TIMES_JVP``."""
        parts: dict[Hashable, list[Expr]] = {}
        for (row, column, offset), e in self.entries.items():
            parts.setdefault((AP, *row), []).append(mul(e, self._p(column, offset)))
            if any(offset) or row != column:
                back = tuple(-d for d in offset)
                (there,) = shift([e], dict(zip(canonical_domain(self.dims), self._at(back), strict=True)))
                parts.setdefault((AP, *column), []).append(mul(there, self._p(row, back)))
        return {key: add(*es) for key, es in parts.items()}

    def _at(self, offset: Offset) -> tuple[Affine, ...]:
        return tuple(y + d for y, d in zip(point(canonical_domain(self.dims)), offset, strict=True))

    def _p(self, element: FieldChannel, offset: Offset) -> Expr:
        unknown, channel = element
        return var(Access(vector(P, unknown), self._at(offset), channel))


def normal_stencils(
    sources: Sequence[LinearisedResidual], implied: Collection[tuple[Access, Access]] = ()
) -> list[NormalStencil]:
    """The stencils that residuals add to J^T J, one for each grid: the entries of elements at constant distances.

    An entry that reads nothing at a point, but numbers alone and bounds, is not stored.

    Args:
        sources: without a ``stencil_obstacle``; or what they couple besides is kept elsewhere.
        implied: pairs of accesses whose entries follow from what is kept elsewhere.
    """
    by_grid: dict[tuple[Extent, ...], list[LinearisedResidual]] = {}
    for source in sources:
        for dims in dict.fromkeys(a.field.dims for a in source.accesses):
            by_grid.setdefault(dims, []).append(source)
    return [_stencil(n, dims, group, implied) for n, (dims, group) in enumerate(by_grid.items())]


def _stencil(
    number: int,
    dims: tuple[Extent, ...],
    sources: Sequence[LinearisedResidual],
    implied: Collection[tuple[Access, Access]],
) -> NormalStencil:
    total, names = GatheredSum(), LoopNames()
    found: dict[Entry, None] = {}
    for view in (v for s in sources for v in views(s, dims, names)):
        added = _summand(dims, implied, view)
        found |= dict.fromkeys(added)  # type: ignore[arg-type]
        total.add(view, added)
    entries = {entry: total.total(entry) for entry in found}
    kept = list(dict.fromkeys(split_content(e)[1] for e in entries.values() if _reads_points(e)))
    domain, finite = canonical_domain(dims), all(e.finite for e in kept)
    memory = Field(f"JTJ.{'.'.join(map(str, dims))}", dims, len(kept), REAL, Role.STORED, finite=finite)
    places = {e: Access(memory, point(domain), n) for n, e in enumerate(kept)}
    read = {entry: _read(e, places) for entry, e in entries.items()}
    if _is_gathered_with_gradient(sources, entries, len(kept)):
        own = partial(_summand, dims, implied)
        split = {entry: split_content(e) for entry, e in entries.items()}
        stored = {places[rest]: (entry, Fraction(c)) for entry, (c, rest) in split.items() if rest in places}
        return NormalStencil(dims, read, (), tuple((s, own) for s in sources), stored)
    return NormalStencil(dims, read, tuple(_stores(f"{Group.JACOBIAN}_stencil{number}", dims, total, places)))


def _is_gathered_with_gradient(sources: Iterable[LinearisedResidual], found: Iterable[Entry], numbers: int) -> bool:
    """Whether a pass over the points that are solved for may store it: products read each number at its own point."""
    at_points = all(not any(offset) for _, _, offset in found)
    return at_points and numbers <= MOST_STORES // 2 and any(over_edges(s.residual) for s in sources)


def _summand(dims: tuple[Extent, ...], implied: Collection[tuple[Access, Access]], view: View) -> dict[Hashable, Expr]:
    return {entry: add(*es) for entry, es in _added(view, dims, implied).items()}


def _added(view: View, dims: tuple[Extent, ...], implied: Collection[tuple[Access, Access]]) -> dict[Entry, list[Expr]]:
    """The products of two entries of J that a residual adds, seen from the row's element, in one half."""
    added: dict[Entry, list[Expr]] = {}
    moving = moving_part(view.index)
    for column, whole in zip(view.columns, view.source.partials, strict=True):
        partials = {a: d for a, d in whole.items() if a.field.dims == dims and moving_part(a.index) == moving}
        own = dict(zip(column, view.seen(column.values()), strict=True))
        others = dict(zip(partials, view.seen(partials.values()), strict=True) if column else ())
        for row, d in own.items():
            for a, e in others.items():
                if (Access(row[0], view.index, row[1]), a) in implied:
                    continue
                offset = tuple((x - y).constant for x, y in zip(a.index, view.index, strict=True))
                if (offset, *_place((a.field, a.channel))) >= ((0,) * len(offset), *_place(row)):
                    added.setdefault((row, (a.field, a.channel), offset), []).append(mul(d, e))
    return added


def _place(element: FieldChannel) -> tuple[str, int]:
    return element[0].name, element[1]


def _reads_points(e: Expr) -> bool:
    """Whether an entry is more than numbers that are the same everywhere, and bounds."""
    keys = [v.key for v in variables([e])]
    return not all(isinstance(k, InBounds | Scalar) or (isinstance(k, Access) and not k.field.dims) for k in keys)


def _read(e: Expr, places: Mapping[Expr, Access]) -> Expr:
    c, rest = split_content(e)
    return mul(const(c), var(places[rest])) if rest in places else e


def _stores(
    name: str, dims: tuple[Extent, ...], total: GatheredSum, places: Mapping[Expr, Access]
) -> Iterator[Routine]:
    kept = list(places)
    for first in range(0, len(kept), MOST_STORES):
        some = kept[first : first + MOST_STORES]
        values = factor(some)
        stores = tuple(Assignment(places[e], v) for e, v in zip(some, values, strict=True))
        number = first // MOST_STORES
        yield Routine(f"{name}_{number}", canonical_domain(dims), stores, locals=total.locals_of(values), prepares=True)
