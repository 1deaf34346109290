"""A device that counts what is asked of it: launches, and the times that the host waits."""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from optpy.kernels.runtime.cuda.device import Device, LoadedKernel, Mark, Module


@final
@dataclass(slots=True)
class Counts:
    """Since the last look.

    Attributes:
        launches: of kernels, the cooperative ones included.
        cooperative: launches whose blocks wait for one another.
        host_reads: copies to main memory, each of which waits for all work before it.
        marks: events queued.
        waits: for one of these.
    """

    launches: int = 0
    cooperative: int = 0
    host_reads: int = 0
    marks: int = 0
    waits: int = 0

    def __sub__(self, other: Self) -> Counts:
        return Counts(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def copy(self) -> Counts:
        """As it stands now."""
        return Counts(**asdict(self))


@final
class _CountedMark:
    def __init__(self, mark: Mark, counts: Counts) -> None:
        self._mark, self._counts = mark, counts

    def wait(self) -> None:
        self._counts.waits += 1
        self._mark.wait()


@final
class CountingDevice:
    """Another device, and `counts` of what it was asked; see `optpy.kernels.runtime.cuda.device.Device`."""

    def __init__(self, device: Device) -> None:
        self.inner = device
        self.name, self.number = device.name, device.number
        self.architecture, self.multiprocessors = device.architecture, device.multiprocessors
        self.xp: Any = device.xp
        self.counts = Counts()

    def current(self) -> AbstractContextManager[None]:
        """As the device does."""
        return self.inner.current()

    def load(self, source: str) -> Module:
        """As the device does."""
        return self.inner.load(source)

    def launch(
        self, kernel: LoadedKernel, blocks: int, threads: int, context: ctypes.Structure, cooperative: bool = False
    ) -> None:
        """Counted."""
        self.counts.launches += 1
        self.counts.cooperative += cooperative
        self.inner.launch(kernel, blocks, threads, context, cooperative)

    def resident_blocks(self, kernel: LoadedKernel, threads: int) -> int:
        """As the device does."""
        return self.inner.resident_blocks(kernel, threads)

    def address(self, array: Any) -> int:
        """As the device does."""
        return self.inner.address(array)

    def to_host(self, array: Any) -> NDArray[Any]:
        """Counted."""
        self.counts.host_reads += 1
        return self.inner.to_host(array)

    def shared_with_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
        """As the device does."""
        return self.inner.shared_with_host(shape, dtype)

    def mark(self) -> Mark:
        """Counted, and so is who waits for it."""
        self.counts.marks += 1
        return _CountedMark(self.inner.mark(), self.counts)

    def free_memory(self) -> int:
        """As the device does."""
        return self.inner.free_memory()
