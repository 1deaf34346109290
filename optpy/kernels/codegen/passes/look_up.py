"""Entries of graphs' tables are looked up once, in the outermost block that determines them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import final

from optpy.ir import InBounds, Incidence, LoopVariable, affines_of, atoms_of, loops
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.codegen.tables import Sorted, loop_row, row_is_inside, table_of
from optpy.symbolic.affine import Affine, TableEntry


def look_up(function: loops.Function, symbols: SymbolTable) -> loops.Function:
    """Define every entry that the function's indices mention: at the point, or in a loop that its row needs."""
    names = _Names(symbols)

    (points,) = function.body
    assert isinstance(points, loops.Points)
    border = _defined(points.border, {*points.domain}, set(), {}, names)
    interior = _defined(points.interior, {*points.domain}, set(), {}, names)
    return replace(function, body=(replace(points, interior=interior, border=border),))


@final
@dataclass
class _Names:
    symbols: SymbolTable
    numbers: dict[TableEntry, int] = field(default_factory=dict)

    def lookup(self, e: TableEntry, around: dict[LoopVariable, Incidence]) -> loops.Lookup:
        key, row = table_of(e, around), loop_row(e)
        if row is None:
            name = f"entry{self.numbers.setdefault(e, len(self.numbers))}"
        else:
            name = f"table{self.symbols.tables[key]}_{row}"
        position = Affine.of(loops.Variable(f"{row}_q")) if isinstance(key, Sorted) else e.row
        guard = None if row_is_inside(e) else InBounds(e.row, e.table.edges)
        return loops.Lookup(e, name, loops.TableLoad(key, position), guard)


def _defined(
    block: loops.Block,
    known: set[LoopVariable],
    done: set[TableEntry],
    around: dict[LoopVariable, Incidence],
    names: _Names,
) -> loops.Block:
    """The block, and the blocks inside, with what they look up defined at their beginning.

    Args:
        block: of which the loop variables ``known`` are set.
        done: entries that blocks around have defined.
        around: the loops over edges around the block.
    """
    new = [e for e in entries_in(block) if e not in done and _rows(e) <= known]
    done = done.union(new)
    found: list[loops.Statement] = []
    for e in sorted(new, key=lambda e: len(atoms_of([e.row]))):  # those inside the rows of others come first
        found.append(names.lookup(e, around))
    for s in block:
        match s:
            case loops.Loop(variable=LoopVariable() as variable):
                found.append(replace(s, body=_defined(s.body, known | {variable}, done, around, names)))
            case loops.Edges():
                inner = {**around, s.loop.edge: s.loop}
                found.append(replace(s, body=_defined(s.body, known | {s.loop.edge}, done, inner, names)))
            case _:
                blocks = {name: _defined(b, known, done, around, names) for name, b in loops.blocks_of(s).items()}
                found.append(loops.with_blocks(s, blocks))
    return tuple(found)


def entries_in(block: loops.Block) -> Collection[TableEntry]:
    """The entries that a block and those inside it mention."""
    return dict.fromkeys(a for index in _indices(block) for a in atoms_of(index) if isinstance(a, TableEntry))


def _indices(block: loops.Block) -> Iterator[tuple[Affine, ...]]:
    """The indices that a block and those inside it mention."""
    for s in loops.walk(block):
        match s:
            case loops.Evaluate():
                yield from (affines_of(key) for key in s.leaves)
            case loops.Store(operand=loops.MemoryOperand(access=access)):
                yield access.index
            case loops.Edges():
                yield s.loop.at


def _rows(entry: TableEntry) -> set[LoopVariable]:
    """The loop variables inside an entry's row."""
    return {a for a in atoms_of([entry.row]) if isinstance(a, LoopVariable)}
