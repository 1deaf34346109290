"""The copy bandwidth of this machine, the yardstick of every kernel: the best of several ways to copy."""

from __future__ import annotations

import ctypes
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

import numpy as np

from bench.build import BuildError, build, c_compiler

MEMORY_BYTES = 512 * 2**20
"""Moved by one copy: far more than any cache holds, so that this is the bandwidth of the memory."""

SECONDS = 0.05  # of copying in one measurement; many copies of a small buffer


@final
@dataclass(frozen=True, slots=True)
class Copy:
    """The best copy of so many bytes."""

    bytes_moved: int
    """Read and written."""
    seconds: float
    way: str

    @property
    def bandwidth(self) -> float:
        """Bytes read and written in a second."""
        return self.bytes_moved / self.seconds


@final
class CopyMeter:
    """Measures copies by all the ways there are; a native one where a C compiler is.

    Args:
        threads: of each copy.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.source, self.target = (np.ones(MEMORY_BYTES // 8, np.float32) for _ in range(2))
        self._native: Any = None
        self.note = ""
        try:
            self._native = _load_native()
        except BuildError as error:
            self.note = f"no native copy: {error}"
        self._best: dict[int, Copy] = {}

    def measure(self, bytes_moved: int) -> Copy:
        """The best copy so far that reads and writes `bytes_moved` bytes in all; larger ones count as memory's.

        Each call measures again, so that calls before and after a kernel's measurement share its noise.
        """
        bytes_moved = min(max(bytes_moved, 4096), MEMORY_BYTES)
        floats = bytes_moved // 8
        copies = [self._numpy(floats)]
        if self._native is not None:
            copies += [self._natively(floats, "memcpy"), self._natively(floats, "plain loop")]
        known = self._best.get(bytes_moved)
        best = min([*copies, *([known] if known else [])], key=lambda copy: copy.seconds)
        self._best[bytes_moved] = best
        return best

    def memory(self) -> Copy:
        """The best copy so far that no cache can hold."""
        return self.measure(MEMORY_BYTES)

    def _numpy(self, floats: int) -> Copy:
        bounds = np.linspace(0, floats, self._threads + 1).astype(int)
        pieces = [slice(a, b) for a, b in pairwise(bounds)]

        def copy(piece: slice) -> None:
            np.copyto(self.target[piece], self.source[piece])  # releases the lock of the interpreter

        best = np.inf
        with ThreadPoolExecutor(self._threads) as pool:
            until = time.perf_counter() + SECONDS
            while best == np.inf or time.perf_counter() < until:
                begin = time.perf_counter()
                list(pool.map(copy, pieces))
                best = min(best, time.perf_counter() - begin)
        return Copy(8 * floats, best, "np.copyto")

    def _natively(self, floats: int, way: str) -> Copy:
        def seconds(repeat: int) -> float:
            addresses = (a.ctypes.data_as(ctypes.c_void_p) for a in (self.source, self.target))
            taken: float = self._native.copy_seconds(
                *addresses, 4 * floats, self._threads, repeat, int(way == "plain loop")
            )
            if taken < 0:
                raise RuntimeError(f"cannot start {self._threads} threads")
            return taken

        repeat = max(1, round(SECONDS / 3 / seconds(1)))
        return Copy(8 * floats, min(seconds(repeat) for _ in range(3)), way)


def _load_native() -> Any:
    with TemporaryDirectory() as folder:
        built = build(c_compiler(), "copy.c", Path(folder, "copy.so"), "-shared", "-fPIC", "-pthread")
        library = ctypes.CDLL(str(built))
    library.copy_seconds.restype = ctypes.c_double
    library.copy_seconds.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int64, ctypes.c_int,
    ]  # fmt: skip
    return library
