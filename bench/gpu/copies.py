"""The copy bandwidth of a GPU, the yardstick of every kernel: the best of two ways to copy."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from bench.bandwidth import Copy
from optpy.kernels.runtime.cuda.device import Device

MEMORY_BYTES = 4 * 2**30
"""Moved by one copy: far more than any cache of a GPU holds."""

SECONDS = 0.02
"""Of copying in one measurement."""
_RUNS = 3
_THREADS = 256
_BLOCKS = 32  # for each multiprocessor, at most: more than are resident

SOURCE = r"""
struct Context { const float *from; float *to; long long quads; };
struct alignas(16) Quad { float value[4]; };
extern "C" __global__ void __launch_bounds__(256) copy(const __grid_constant__ Context c) {
    const long long stride = (long long)gridDim.x * blockDim.x;
    for (long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x; n < c.quads; n += stride)
        ((Quad *)c.to)[n] = ((const Quad *)c.from)[n];
}
"""


class _Context(ctypes.Structure):
    _fields_ = (("from_", ctypes.c_void_p), ("to", ctypes.c_void_p), ("quads", ctypes.c_longlong))


@final
class GpuCopyMeter:
    """Measures copies on a device.

    Args:
        memory_bytes: that the copy which no cache holds moves; less where not so much is free.
        seconds: of copying in one measurement.
    """

    def __init__(self, device: Device, memory_bytes: int = MEMORY_BYTES, seconds: float = SECONDS) -> None:
        self._device = device
        self._seconds = seconds
        self.memory_bytes = min(memory_bytes, device.free_memory() // 4) // 32 * 32
        xp = device.xp
        self.source = xp.ones(self.memory_bytes // 8, np.float32)
        self.target = xp.zeros_like(self.source)
        self._kernel = device.load(SOURCE).kernel("copy")
        self._best: dict[int, Copy] = {}

    def measure(self, bytes_moved: int) -> Copy:
        """The best copy so far that reads and writes so many bytes in all; larger ones count as memory's.

        Each call measures again, so that calls before and after a kernel's measurement share its noise.
        """
        bytes_moved = min(max(bytes_moved, 4096), self.memory_bytes) // 32 * 32
        copies = [self._timed(bytes_moved, way) for way in ("kernel", "copyto")]
        known = self._best.get(bytes_moved)
        best = min([*copies, *([known] if known else [])], key=lambda copy: copy.seconds)
        self._best[bytes_moved] = best
        return best

    def memory(self) -> Copy:
        """The best copy so far that no cache can hold."""
        return self.measure(self.memory_bytes)

    def _timed(self, bytes_moved: int, way: str) -> Copy:
        floats = bytes_moved // 8
        copy = self.by_kernel(floats) if way == "kernel" else self._by_copyto(floats)

        def run(repeat: int) -> float:
            self._device.mark().wait()
            begin = time.perf_counter()
            for _ in range(repeat):
                copy()
            self._device.mark().wait()
            return (time.perf_counter() - begin) / repeat

        run(1)
        repeat = max(1, min(2000, round(self._seconds / run(3))))
        return Copy(8 * floats, min(run(repeat) for _ in range(_RUNS)), way)

    # What is launched is made ready beforehand: small copies take no longer than launches.

    def by_kernel(self, floats: int) -> Callable[[], object]:
        """Copies so many floats by a kernel of one load and one store of 16 bytes for each thread and turn."""
        device = self._device
        quads = floats // 4
        blocks = max(1, min(-(-quads // _THREADS), _BLOCKS * device.multiprocessors))
        context: Any = _Context(device.address(self.source), device.address(self.target), quads)
        return lambda: device.launch(self._kernel, blocks, _THREADS, context)

    def _by_copyto(self, floats: int) -> Callable[[], object]:
        target, source = self.target[:floats], self.source[:floats]
        return lambda: self._device.xp.copyto(target, source)
