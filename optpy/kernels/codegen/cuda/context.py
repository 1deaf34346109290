"""The structures of CUDA kernels, declared once for CUDA and Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from optpy.kernels.codegen.pcg_structures import PCG_ITERATION, PCG_LIMITS, PcgLimits
from optpy.kernels.codegen.structures import Structure, scalar_numbers
from optpy.kernels.codegen.symbol_table import SymbolTable

# What blocks count in when they wait for one another.
SYNC = Structure(
    "Sync",
    """
    unsigned arrived, barrier, halt;
""",
)

# A whole number by which threads divide without dividing: see divisor.cuh. The host computes it, once.
DIVISOR = Structure(
    "Divisor",
    """
    uint64_t multiplier; /* n / d is the upper half of 2 n * multiplier, ... */
    int places;          /* ... shifted right by so many */
""",
)


class Divisor(ctypes.Structure):
    """A whole number by which numbers of 31 or of 63 bits are divided."""

    _fields_ = DIVISOR.fields


# How the points of a grid are shared among blocks: see tiles.cuh. The host computes it, once for each number of blocks.
TILES = Structure(
    "Tiles",
    """
    unsigned strips, across; /* all strips, fewer than 2^31, and those side by side */
    Divisor by_across;
    int shift;               /* 2^shift columns of a tile */
    int tall, height;        /* rows of a tile, and of a strip: 32 tiles at most */
""",
    {"Divisor": Divisor},
)


class TileGeometry(ctypes.Structure):
    """The tiles and strips of a grid, for a number of blocks."""

    _fields_ = TILES.fields


def context_structure(symbols: SymbolTable, scalars: int, kernels: int) -> Structure:
    """The kernels' one argument.

    Args:
        symbols: the program's numbering.
        scalars, kernels: how many there are.
    """
    arrays = [
        ("void *field", len(symbols.fields)),
        ("int64_t plane", len(symbols.fields)),
        ("int64_t size", len(symbols.sizes)),
        ("Divisor by_size", len(symbols.sizes)),
        ("int64_t pitch", len(symbols.grids)),
        ("Divisor by_pitch", len(symbols.grids)),
        ("Tiles tiles", len(symbols.grids)),
        ("double param", len(symbols.params)),
        ("const int32_t *table", len(symbols.tables)),
        ("double scalar", scalars),
    ]
    members = [f"    {declaration}[{max(count, 1)}];" for declaration, count in arrays]
    text = "\n".join(["", *members, _POINTERS_AND_LIMITS.strip("\n"), _lanes(kernels)])
    return Structure("Context", text, {"PcgLimits": PcgLimits, "Tiles": TileGeometry, "Divisor": Divisor})


def _lanes(kernels: int) -> str:
    return f"    int lane_bits[{max(kernels, 1)}]; /* of each kernel with local sums: 2^lane_bits threads to a point */"


_POINTERS_AND_LIMITS = """
    double *partial, *total;        /* of each sum: one number for each block; all totals */
    struct Sync *sync;
    PcgIteration *pcg;
    struct PcgRow *trace;           /* of each iteration; or null */
    int64_t *progress;              /* in the host's memory: iterations done, -1 at the end; or null */
    double *omega;                  /* of the sweeps that smooth a stored z; or null */
    PcgLimits limits;
    double reduced;                 /* r.z over that of the start, where another preconditioner goes on */
    double factor;                  /* of what pcg_power makes of omega */
    int64_t pause;                  /* iterations after which pcg_solve returns, ended or not */
    int64_t slice;                  /* nanoseconds after which pcg_solve returns; 0: never */
    int fresh;                      /* whether pcg_solve begins, or goes on */
    int ahead;                      /* whether kernels do nothing while conjugate gradients have not ended */
"""


def structures_source(symbols: SymbolTable, scalars: Sequence[str], kernels: int) -> str:
    """All of them in CUDA, and the numbers of the run-time scalars."""
    texts = [
        SYNC.text,
        DIVISOR.text,
        TILES.text,
        PCG_LIMITS.text,
        PCG_ITERATION.text,
        context_structure(symbols, len(scalars), kernels).text,
    ]
    return "\n".join([*texts, scalar_numbers(scalars)])
