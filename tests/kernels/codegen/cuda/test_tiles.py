"""How the points of a grid are shared among the blocks of a GPU: each of them is the work of one thread."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.kernels.runtime.cuda.device import Device
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.warping import arap_data, arap_energy

pytestmark = [pytest.mark.emulated, pytest.mark.whole_blocks]

NATIVE = Path(op.__file__).parent / "kernels/cuda"

# Every point counts who visits it; `seen` has the rows of the strip that the block takes at a time.
SOURCE = r"""
struct Context { int *visits; int *seen; int rows, columns; };
extern "C" __global__ void __launch_bounds__(OPTPY_THREADS) visit(const __grid_constant__ Context c) {
    const optpy_index rows = c.rows, columns = c.columns;
    const Tiles tiles = optpy_tiles(rows, columns);
    if (blockIdx.x == 0 && threadIdx.x == 0) c.seen[0] = (int)tiles.height, c.seen[1] = (int)tiles.tall;
    for (optpy_uindex strip = blockIdx.x; strip < tiles.strips; strip += gridDim.x) {
        const optpy_index column = optpy_tile_column(&tiles, strip), top = optpy_tile_row(&tiles, strip);
        if (column >= columns) continue;
        const optpy_index end = top + tiles.height < rows ? top + tiles.height : rows;
        for (optpy_index row = top + (threadIdx.x >> tiles.shift); row < end; row += tiles.tall)
            atomicAdd((unsigned *)&c.visits[row * columns + column], 1u);
    }
}
"""


class Context(ctypes.Structure):
    _fields_ = (
        ("visits", ctypes.c_void_p),
        ("seen", ctypes.c_void_p),
        ("rows", ctypes.c_int),
        ("columns", ctypes.c_int),
    )


def source(index: str) -> str:
    headers = ((NATIVE / name).read_text(encoding="utf-8") for name in ("prelude.cuh", "tiles.cuh"))
    return "\n".join([f"#define OPTPY_INDEX {index}", *headers, SOURCE])


@pytest.mark.parametrize("index", ["int", "long long"])
@pytest.mark.parametrize(
    ("rows", "columns", "blocks", "strip_rows", "tile_rows"),
    [
        (1, 1, 1, 256, 256),
        (7, 5, 3, 32, 32),
        (33, 64, 4, 4, 4),
        (33, 65, 4, 4, 4),
        (300, 130, 2, 56, 4),  # three strips side by side; 225 tiles, of which 14 below one another
        (129, 64, 1, 16, 4),
        (5000, 3, 2, 256, 64),
        (9000, 2, 1, 1024, 128),
        (2000, 200, 1, 128, 4),  # not taller than 32 tiles
    ],
)
def test_every_point_is_visited_once(
    gpu: Device, index: str, rows: int, columns: int, blocks: int, strip_rows: int, tile_rows: int
) -> None:
    visits, seen = gpu.xp.zeros((rows, columns), np.int32), gpu.xp.zeros(2, np.int32)
    kernel = gpu.load(source(index)).kernel("visit")
    gpu.launch(kernel, blocks, 256, Context(gpu.address(visits), gpu.address(seen), rows, columns))
    np.testing.assert_array_equal(gpu.to_host(visits), 1)
    assert gpu.to_host(seen).tolist() == [strip_rows, tile_rows]


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
