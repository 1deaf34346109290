"""The tiles in which the points of a grid are shared among blocks: how wide, how tall, and how many to a strip."""

from __future__ import annotations

from optpy.errors import InternalError
from optpy.kernels.codegen.cuda.context import TileGeometry
from optpy.kernels.runtime.cuda.divisors import divisor

_WIDEST = 6
"""Two to this power: columns of a tile, at most."""
_TALLEST = 32
"""Tiles of a strip, at most: a thread has a bit for each in a word."""
_STRIPS = 8
"""Of a block, or nearly so many, where the grid has the tiles: what is solved for may lie in a part of the grid."""
_NEARLY = 1.02
"""Times the tiles of the block that has most, at best: such a difference is worth less than taller strips."""


def tiles(rows: int, columns: int, blocks: int, threads: int) -> TileGeometry:
    """The tiles of a grid for a launch.

    Strips are tall, so that few rows are read twice; but each block has enough of them, and all blocks end at nearly
    the same time.

    Args:
        rows: of the grid: all its dims but the last, together.
        columns: its last dim.
        blocks, threads: blocks of the launch, and threads of each.
    """
    shift = min(_WIDEST, (columns - 1).bit_length())
    tall, across = threads >> shift, -(-columns >> shift)
    down = -(-rows // tall)
    most = min(max(-(-across * down // (blocks * _STRIPS)), 1), _TALLEST)
    longest = {h: _longest(down, across, blocks, h) for h in range(1, most + 1)}
    height = max(h for h, tiles in longest.items() if tiles <= _NEARLY * min(longest.values()))
    strips = across * -(-down // height)
    if strips >= 2**31:  # no memory is so large
        raise InternalError(f"{strips} strips of tiles, for {rows} rows of {columns} columns")
    return TileGeometry(strips, across, divisor(across, "int"), shift, tall, height * tall)


def _longest(down: int, across: int, blocks: int, height: int) -> int:
    """Tiles of the block that has most, if strips are so high."""
    strips = across * -(-down // height)
    rounds = -(-strips // blocks)
    short = height * -(-down // height) - down  # the last strips of all columns end early
    return rounds * height - (short if strips - (rounds - 1) * blocks <= across else 0)
