"""How the points of a grid are shared among the blocks of a GPU: each of them is the work of one thread."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optpy as op
from optpy.kernels.codegen.cuda.context import DIVISOR, TILES, TileGeometry
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import THREADS
from optpy.kernels.runtime.cuda.tiles import tiles
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.warping import arap_data, arap_energy

pytestmark = [pytest.mark.emulated, pytest.mark.whole_blocks]

NATIVE = Path(op.__file__).parent / "kernels/cuda"

# Every point that is solved for counts who visits it.
SOURCE = r"""
struct Context { Tiles tiles; int *visits; const uint8_t *solved; int rows, columns; };
extern "C" __global__ void __launch_bounds__(OPTPY_THREADS) visit(const __grid_constant__ Context c) {
    const Tiles *const tiles = &c.tiles;
    const optpy_index rows = c.rows, columns = c.columns;
    for (uint32_t strip = blockIdx.x; strip < tiles->strips; strip += gridDim.x) {
        const optpy_index column = optpy_tile_column(tiles, strip), top = optpy_tile_row(tiles, strip);
        if (column >= columns) continue;
        const optpy_index end = top + tiles->height < rows ? top + tiles->height : rows;
        optpy_index row = top + (threadIdx.x >> tiles->shift);
        uint32_t left = optpy_rows_to_solve(tiles, c.solved + column, columns, row, end);
        for (; left && row < end; left >>= 1, row += tiles->tall)
            if (left & 1) atomicAdd((unsigned *)&c.visits[row * columns + column], 1u);
    }
}
"""


class Context(ctypes.Structure):
    _fields_ = (
        ("tiles", TileGeometry),
        ("visits", ctypes.c_void_p),
        ("solved", ctypes.c_void_p),
        ("rows", ctypes.c_int),
        ("columns", ctypes.c_int),
    )


def source(index: str) -> str:
    names = ("prelude.cuh", "divisor.cuh", "tiles.cuh")
    prelude, *headers = ((NATIVE / name).read_text(encoding="utf-8") for name in names)
    return "\n".join([f"#define OPTPY_INDEX {index}", prelude, DIVISOR.text, TILES.text, *headers, SOURCE])


@pytest.mark.parametrize("index", ["int", "long long"])
@pytest.mark.parametrize(
    ("rows", "columns", "blocks", "strip_rows", "tile_rows"),
    [
        (1, 1, 1, 256, 256),
        (7, 5, 3, 32, 32),
        (33, 64, 4, 4, 4),
        (33, 65, 4, 4, 4),
        (300, 130, 2, 52, 4),  # three strips side by side; 225 tiles, of which 13 below one another
        (129, 64, 1, 20, 4),
        (5000, 3, 2, 320, 64),
        (9000, 2, 1, 1152, 128),
        (2000, 200, 1, 128, 4),  # not taller than 32 tiles
    ],
)
def test_every_point_that_is_solved_for_is_visited_once(
    gpu: Device, index: str, rows: int, columns: int, blocks: int, strip_rows: int, tile_rows: int
) -> None:
    found = tiles(rows, columns, blocks, THREADS)
    assert (found.height, found.tall) == (strip_rows, tile_rows)
    visits = gpu.xp.zeros((rows, columns), np.int32)
    mask = np.random.default_rng(rows).random((rows, columns)) < 0.7
    solved = gpu.xp.asarray(mask.astype(np.uint8), blocking=True)
    context = Context(found, gpu.address(visits), gpu.address(solved), rows, columns)
    gpu.launch(gpu.load(source(index)).kernel("visit"), blocks, THREADS, context)
    np.testing.assert_array_equal(gpu.to_host(visits), mask)


@given(st.integers(1, 2**20), st.integers(1, 2**12), st.integers(1, 1056))
def test_strips_cover_a_grid(rows: int, columns: int, blocks: int) -> None:
    t = tiles(rows, columns, blocks, THREADS)
    assert t.tall << t.shift == THREADS
    assert t.height % t.tall == 0 < t.height <= 32 * t.tall
    assert (t.across - 1) << t.shift < columns <= t.across << t.shift
    above = t.strips // t.across
    assert above * t.across == t.strips
    assert (above - 1) * t.height < rows <= above * t.height


def balance(rows: int, columns: int, blocks: int) -> float:
    """The share of its time that a block works on average, if each tile takes as long."""
    t = tiles(rows, columns, blocks, THREADS)
    of_block = [0] * blocks
    for strip in range(t.strips):
        top = strip // t.across * t.height
        of_block[strip % blocks] += -(-(min(top + t.height, rows) - top) // t.tall)
    return sum(of_block) / (blocks * max(of_block))


@pytest.mark.parametrize("multiprocessors", [40, 84, 108, 132, 148])
@pytest.mark.parametrize("to_each", [3, 4, 5, 6, 8])
def test_blocks_end_at_nearly_the_same_time(multiprocessors: int, to_each: int) -> None:
    blocks = multiprocessors * to_each
    assert balance(4096, 4096, blocks) > 0.965
    assert balance(2048, 2048, blocks) > 0.93


@pytest.mark.parametrize("preconditioner", ["jacobi", "block_jacobi"])
def test_a_stencil_down_strips_of_several_tiles(
    emulated: EmulatedDevice, preconditioner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one block for all of 3 x 23 tiles: strips of 8 tiles, the last of them shorter; some points are fixed."""
    monkeypatch.setattr(emulated, "resident_blocks", lambda kernel, threads: 1)
    energy, data = arap_energy(), arap_data(90, 130)
    options: dict[str, Any] = dict(preconditioner=preconditioner, max_iterations=1, linear_iterations=3)
    expected = op.solve(energy, data, "cpu", np.float64, **options)
    ours = op.compile(energy, "cuda", np.float64).solve(data, **options)
    assert [r.cost for r in ours.iterations] == pytest.approx([r.cost for r in expected.iterations], rel=1e-9)
    for name, x in expected.x.items():
        np.testing.assert_allclose(ours.x[name], x, atol=1e-9)
