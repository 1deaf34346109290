"""Graphs: domains of hyper-edges, each with a fixed number of slots that point into other domains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, final

from optpy import ir
from optpy.energy.language.index import DeclaredIndex, Dim, IndexExpression, check_name, describe
from optpy.energy.language.naming import shown, unpacked_count
from optpy.energy.language.refusal import Refusal, Symbol
from optpy.errors import EnergyError, Location, callers_frame
from optpy.symbolic.affine import Affine, RowNumber, TableEntry

MOST_AXES = 3
"""Of the grid that a slot points into."""


@final
class Graph(Symbol):
    """Hyper-edges, such as the edges or triangles of a mesh: ``a, b = edges[e]`` are the indices of edge e's ends.

    Args:
        name: its key in the data: an integer array of shape (edges, columns), with one column for each axis of each
            slot; of shape (*edges, columns) where several dims count the edges.
        edges: the dim that counts the edges, which may be 0 in the data; or a tuple of 2 or 3, for an edge at each
            point of a grid: ``near = op.Graph("near", (V, K), (V,))``, ``(n,) = near[v, k]``.
        slots: what each slot points into: a dim, or a tuple of up to 3 for a grid: ``(V, V)``, ``((H, W), V)``.

    Raises:
        EnergyError: the name, the edges or the slots are none.
    """

    __slots__ = ("graph",)

    def __init__(self, name: str, edges: Dim | Iterable[Dim], slots: Dim | Iterable[Dim | Iterable[Dim]]) -> None:
        check_name(name, "a graph")
        location = Location.of_caller()
        counted = _counted(name, edges, location)
        given = (slots,) if isinstance(slots, Dim) or not isinstance(slots, Iterable) else tuple(slots)
        if not given:
            raise EnergyError(f"the graph {name!r} has no slots: op.Graph({name!r}, E, (V, V))", location)
        pointed = tuple(_slot(name, s, location) for s in given)
        single = len(counted) == 1
        number = counted[0] if single else ir.Extent(slot_text(counted))  # named as no dim of a user's can be
        self.graph = ir.Hypergraph(name, number, pointed, location, () if single else counted)

    @property
    def name(self) -> str:
        """Its key in the data."""
        return self.graph.name

    def __getitem__(self, key: Any) -> tuple[Any, ...]:
        """The indices that the slots of an edge point at, in their order: for a slot on a grid a tuple of indices.

        Args:
            key: a loop variable over the edges, ``e = op.indices(E)``; one for each of several dims.
        """
        keys = key if isinstance(key, tuple) and len(key) == len(self.graph.counted) else (key,)
        if len(keys) != len(self.graph.counted):
            self._refuse_key(key)
        edge = self.graph.row([self._along(k, dim) for k, dim in zip(keys, self.graph.counted, strict=True)])
        self._check_unpacked(unpacked_count(callers_frame()), edge)
        slots = []
        for slot in range(len(self.graph.slots)):
            at = tuple(IndexExpression(a) for a in self.graph.at(slot, edge))
            slots.append(at if len(at) > 1 else at[0])
        return Slots(slots)

    def _along(self, key: Any, dim: ir.Extent) -> Affine:
        """A loop variable over one of the dims that count the edges."""
        edge = key.affine if isinstance(key, IndexExpression) else None
        atom = edge.atoms[0] if edge is not None and len(edge.atoms) == 1 else None
        if edge is None or not isinstance(atom, DeclaredIndex) or edge.offset_from(atom) != 0:
            self._refuse_key(key)
        if atom.dim != dim:
            raise EnergyError(
                f"the edges of '{self.name}' are counted by {self.graph.edges}, but the index {shown(edge)} runs over "
                f"{atom.dim}: index it by {self._edge} = op.indices({self._dims})",
                Location.of_caller(),
            )
        return edge

    def _refuse_key(self, key: Any) -> NoReturn:
        what = "a loop variable over its edges" if not self.graph.grid else "a loop variable over each of its dims"
        raise EnergyError(
            f"the graph '{self.name}' takes {what}: {self._names} = {self.name}[{self._edge}] with {self._edge} = "
            f"op.indices({self._dims}); got {key if isinstance(key, IndexExpression) else describe(key)}",
            Location.of_caller(),
        )

    @property
    def _dims(self) -> str:
        return ", ".join(map(str, self.graph.counted))

    @property
    def _edge(self) -> str:
        """The names of loop variables over the edges."""
        return ", ".join(d.name.lower() for d in self.graph.grid) or "e"

    def _check_unpacked(self, count: int | None, edge: Affine) -> None:
        """Python itself would only count the values, and does not know which graph they come from."""
        n = len(self.graph.slots)
        if count not in (None, n):
            raise EnergyError(
                f"an edge of '{self.name}' has {n} {'slot' if n == 1 else 'slots'}, {slots_text(self.graph)}, but is "
                f"unpacked into {count}: write {self._names} = {self.name}[{row_text(edge)}]",
                Location.of_caller(),
            )

    @property
    def _names(self) -> str:
        return _slot_names(self.graph)

    @property
    def number_message(self) -> str:
        """The message where the graph is used like an expression."""
        return (
            f"'{self.name}' stands for the whole graph: take what an edge's slots point at, as in "
            f"{self._names} = {self.name}[{self._edge}] with {self._edge} = op.indices({self._dims})"
        )

    _unindexed = Refusal("{0.number_message}")
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _unindexed
    __call__ = __iter__ = __len__ = __bool__ = __array__ = __array_ufunc__ = __array_function__ = _unindexed

    def __eq__(self, other: object) -> bool:
        return self.graph == other.graph if isinstance(other, Graph) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.graph)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {self.graph.edges}, {slots_text(self.graph)})"


@final
class Slots(tuple[Any, ...]):
    """The indices that the slots of an edge point at: a tuple to unpack, which says so where it is used as a whole."""

    @property
    def _entry(self) -> TableEntry:
        first = self[0][0] if isinstance(self[0], tuple) else self[0]
        entry = first.affine.atoms[0]
        assert isinstance(entry, TableEntry)
        return entry

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except IndexError:
            graph, n = self._entry.table, len(self)
            raise EnergyError(
                f"an edge of '{graph}' has {n} {'slot' if n == 1 else 'slots'}, {slots_text(graph)}, but slot {key} is "
                f"asked for: they are numbered from 0 to {n - 1}, or unpacked by {self._unpacking}",
                Location.of_caller(),
            ) from None

    @property
    def _unpacking(self) -> str:
        entry = self._entry
        return f"{_slot_names(entry.table)} = {entry.table}[{row_text(entry.row)}]"

    def refused_by(self, field: ir.Field) -> EnergyError:
        """The error of a field indexed by all slots at once."""
        graph: ir.Hypergraph = self._entry.table
        reads = [f"{field}[{a}]" for a, slot in zip(_LETTERS, graph.slots, strict=False) if slot == field.dims]
        cure = f"write {', '.join(reads)}" if reads else f"none of them points into {slot_text(field.dims)}"
        return EnergyError(
            f"'{field}' is indexed by all slots of an edge of '{graph}' at once, {slots_text(graph)}: unpack them, "
            f"{self._unpacking}, and {cure}",
            Location.of_caller(),
        )


_LETTERS = "abcdefgh"


def _slot_names(graph: ir.Hypergraph) -> str:
    """``a, b``; ``a,`` for a single slot."""
    names = _LETTERS[: len(graph.slots)]
    return ", ".join(names) if len(names) > 1 else f"{names},"


def _slot(name: str, slot: Any, location: Location) -> tuple[ir.Extent, ...]:
    axes = (slot,) if isinstance(slot, Dim) or not isinstance(slot, Iterable) else tuple(slot)
    for d in axes:
        if not isinstance(d, Dim):
            raise EnergyError(
                f"a slot of the graph {name!r} points into a dim, V, or into a grid of dims, (H, W); got {describe(d)}",
                location,
            )
    if not 1 <= len(axes) <= MOST_AXES:
        raise EnergyError(
            f"a slot of the graph {name!r} points into a grid of {len(axes)} axes; from 1 to {MOST_AXES} are possible",
            location,
        )
    return tuple(d.size for d in axes)


def row_text(row: Affine) -> str:
    """``e``, ``f, p``: the index of an edge."""
    (atom,) = row.atoms
    return ", ".join(map(shown, atom.index)) if isinstance(atom, RowNumber) else shown(row)


def _counted(name: str, edges: Any, location: Location) -> tuple[ir.Extent, ...]:
    dims = tuple(edges) if isinstance(edges, tuple | list) else (edges,)
    if not all(isinstance(d, Dim) for d in dims) or not 1 <= len(dims) <= MOST_AXES:
        raise EnergyError(
            f"the edges of the graph {name!r} are counted by a dim, as in op.Graph({name!r}, E, (V, V)), or by up to "
            f"{MOST_AXES}, where there is one at each point of a grid, op.Graph({name!r}, (V, K), (V,)); got "
            f"{describe(edges) if not isinstance(edges, tuple | list) else list(edges)}",
            location,
        )
    return tuple(d.size for d in dims)


def slots_text(graph: ir.Hypergraph) -> str:
    """``(V, V)``, ``((H, W), V)``."""
    texts = [slot_text(s) for s in graph.slots]
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def slot_text(slot: tuple[ir.Extent, ...]) -> str:
    """``V``, ``(H, W)``."""
    return str(slot[0]) if len(slot) == 1 else f"({', '.join(map(str, slot))})"
