"""The protocol of a GPU: memory, compiled modules, launches.

The one implementation for use is ``cupy_device``; tests run the same kernels on an emulated device, with no GPU.
"""

from __future__ import annotations

import ctypes
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class LoadedKernel(Protocol):
    """A kernel, a ``__global__`` function, on a device.

    Attributes:
        name: in the source.
        registers: of each thread.
        local_bytes: of each thread in local memory: spilled registers.
    """

    name: str
    registers: int
    local_bytes: int


class Module(Protocol):
    """A compiled source on a device.

    Attributes:
        seconds: that compiling, or finding it in the cache, and loading took.
        cache_hit: whether it was in the cache.
    """

    seconds: float
    cache_hit: bool

    def kernel(self, name: str) -> LoadedKernel:
        """A kernel by its name in the source (``extern "C"``)."""


class Mark(Protocol):
    """A place in the queue of a device's work."""

    def wait(self) -> None:
        """Return when all work before it is done."""


class Device(Protocol):
    """A GPU. Work is queued on the caller's current stream, in order; nothing waits for it unless it says so.

    Attributes:
        name: "NVIDIA H200".
        number: of the device, as the driver counts.
        architecture: "sm_90".
        multiprocessors: how many.
        xp: the module of its arrays, with NumPy's names: CuPy.
    """

    name: str
    number: int
    architecture: str
    multiprocessors: int
    xp: Any

    def current(self) -> AbstractContextManager[None]:
        """Within it, this is the current device of the thread: what ``xp`` allocates and computes is on it.

        Everything else but ``load`` is called within it; only launches and copies also find the device by themselves.
        """

    def load(self, source: str) -> Module:
        """Compile CUDA C++ for this device, or take it from the cache.

        Raises:
            CompileError: the compiler refuses it.
        """

    def launch(
        self, kernel: LoadedKernel, blocks: int, threads: int, context: ctypes.Structure, cooperative: bool = False
    ) -> None:
        """Queue a kernel, whose one argument is a structure that is passed by value.

        Args:
            blocks, threads: blocks, and threads in each; both in one dimension.
            context: copied at the call.
            cooperative: all blocks run at the same time, so that they may wait for one another;
                there must be no more than ``resident_blocks``.
        """

    def resident_blocks(self, kernel: LoadedKernel, threads: int) -> int:
        """The number of blocks of a kernel that the whole device holds at once."""

    def address(self, array: Any) -> int:
        """The address of an array of ``xp`` in the device's memory."""

    def to_host(self, array: Any) -> NDArray[Any]:
        """A copy in main memory, after all queued work."""

    def shared_with_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
        """Pinned main memory that kernels can write: as an array of zeros, and its address on the device."""

    def mark(self) -> Mark:
        """A mark behind all work queued so far."""

    def free_memory(self) -> int:
        """Bytes that could be allocated now, those that the array module's pool keeps unused included."""
