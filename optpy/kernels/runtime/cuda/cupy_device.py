"""A GPU through CuPy: its arrays, its current stream, and the driver's own calls for modules and launches.

CuPy keeps, for each thread, a current device and for each device a current stream. Work goes to the current stream of
this device, whatever device is current in the thread that asks.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optpy.errors import CompileError, DataError, DeviceError, InternalError
from optpy.kernels.runtime.cuda.device import LoadedKernel
from optpy.kernels.toolchain.cubin import read_cubin, read_ptx_parameters
from optpy.kernels.toolchain.nvrtc import CompiledCuda, compile_cuda, import_cupy

_OneParameter = ctypes.c_void_p * 1
_LOST = frozenset({214, 220, 226, 700, 702, 710, *range(714, 720)})
"""The driver's and the runtime's numbers of what a context does not outlive: accesses where no memory is, a watchdog's
time limit, memory that has failed. Every later call returns them, too."""


@dataclass(slots=True, eq=False)
class CupyKernel:
    """A kernel on one GPU.

    Attributes:
        parameter_bytes: what the driver copies from the structure at a launch.
        image: kept loaded.
        pointer: the driver's handle.
    """

    name: str
    registers: int
    local_bytes: int
    parameter_bytes: int
    device: CupyDevice
    image: _LoadedImage
    pointer: int


@dataclass(slots=True, eq=False)
class _LoadedImage:
    """A module to unload when nobody has it any more: CuPy asks that of the context which is current then, and
    that may be another device's, or none where a thread without any work on GPUs comes to collect it."""

    device: CupyDevice
    module: Any

    def __del__(self) -> None:
        with suppress(Exception), self.device.current():
            self.module = None


@dataclass(slots=True, eq=False)
class CupyModule:
    """A loaded image with its kernels."""

    seconds: float
    cache_hit: bool
    device: CupyDevice
    parameter_bytes: dict[str, int]
    image: _LoadedImage

    def kernel(self, name: str) -> CupyKernel:
        """A kernel by its name in the source (``extern "C"``).

        Raises:
            InternalError: the source has none of this name whose argument is one structure.
        """
        if name not in self.parameter_bytes:
            raise InternalError(f"no kernel {name!r} in a module with {', '.join(sorted(self.parameter_bytes))}")
        driver = self.device.driver
        with self.device.current():
            pointer: int = self.image.module.get_function(name).ptr  # CuPy's function itself would keep the module
            registers = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, pointer)
            local_bytes = driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, pointer)
        return CupyKernel(name, registers, local_bytes, self.parameter_bytes[name], self.device, self.image, pointer)


@dataclass(slots=True, eq=False)
class CupyMark:
    """An event in a stream."""

    device: CupyDevice
    event: Any

    def wait(self) -> None:
        """Return when all work before it is done; other threads of Python run meanwhile.

        Raises:
            DeviceError: a kernel before it has failed.
        """
        try:
            self.event.synchronize()
        except self.device.errors as error:
            self.device.tell(error)
            raise


class _Thread(threading.local):
    has_context = False


class CupyDevice:
    """The GPU of a number; see ``Device``. Any thread may use it.

    Args:
        number: as the driver counts, among those that CUDA_VISIBLE_DEVICES leaves.
    """

    def __init__(self, number: int) -> None:
        self.xp: Any = import_cupy()
        self.driver = self.xp.cuda.driver
        self.number = number
        self._runtime = self.xp.cuda.runtime
        properties = self._runtime.getDeviceProperties(number)
        self.name: str = properties["name"].decode()
        self.architecture = f"sm_{properties['major']}{properties['minor']}"
        self.multiprocessors: int = properties["multiProcessorCount"]
        self.errors = (self._runtime.CUDARuntimeError, self.driver.CUDADriverError)
        self._thread = _Thread()

    def __repr__(self) -> str:
        return f"<GPU {self.number}: {self.name}, {self.architecture}>"

    @contextmanager
    def current(self) -> Iterator[None]:
        """This is the current device, and its context the current one of the driver, in this thread.

        Raises:
            DeviceError: whatever was called within it, CuPy says that the device has failed.
        """
        try:
            with self.xp.cuda.Device(self.number):
                if not self._thread.has_context:
                    self._runtime.memGetInfo()  # any work of the runtime on the device makes its context current
                    self._thread.has_context = True
                yield
        except self.errors as error:
            self.tell(error)
            raise

    def tell(self, error: Any) -> None:
        """Raise a DeviceError if one of CuPy's ``errors`` says that the device has failed."""
        if error.status in _LOST:
            raise DeviceError(
                f"the GPU {self.name} has failed at work queued before ({error}); what lies in its memory is lost, and "
                "it can be used by another process only: start again"
            ) from error

    def load(self, source: str) -> CupyModule:
        """Compile CUDA C++ for this device, or take it from the cache.

        Raises:
            CompileError: NVRTC is not there or refuses it, or the driver does not load what NVRTC made.
        """
        started = time.perf_counter()
        compiled = compile_cuda(source, self.architecture)
        with self.current():
            module = self.xp.cuda.function.Module()
            try:
                module.load(compiled.image)
            except self.driver.CUDADriverError as error:
                raise CompileError(
                    f"the driver of {self.name} ({self.architecture}) does not load the {compiled.compiled_for.form} "
                    f"compiled with {compiled.compiled_for.option} from {compiled.source_path}: {error}"
                ) from error
        image = _LoadedImage(self, module)
        return CupyModule(time.perf_counter() - started, compiled.cache_hit, self, _parameter_bytes(compiled), image)

    def launch(
        self, kernel: LoadedKernel, blocks: int, threads: int, context: ctypes.Structure, cooperative: bool = False
    ) -> None:
        """Queue a kernel on the current stream of this device.

        Raises:
            InternalError: the kernel is of another device, or the structure is not of the size of its argument.
            cupy.cuda.driver.CUDADriverError: the driver refuses it, as it does a cooperative launch of too many blocks.
        """
        own = self._own(kernel)
        if ctypes.sizeof(context) != own.parameter_bytes:  # the driver would read beyond it
            raise InternalError(
                f"the kernel {own.name} takes {own.parameter_bytes} bytes, and the structure "
                f"{type(context).__name__} has {ctypes.sizeof(context)}"
            )
        if self._thread.has_context and self._runtime.getDevice() == self.number:
            self._queue(own.pointer, blocks, threads, context, cooperative)
        else:
            with self.current():
                self._queue(own.pointer, blocks, threads, context, cooperative)

    def _queue(self, pointer: int, blocks: int, threads: int, context: ctypes.Structure, cooperative: bool) -> None:
        stream = self.xp.cuda.get_current_stream().ptr
        parameters = _OneParameter(ctypes.addressof(context))
        where = ctypes.addressof(parameters)
        if cooperative:
            self.driver.launchCooperativeKernel(pointer, blocks, 1, 1, threads, 1, 1, 0, stream, where)
        else:
            self.driver.launchKernel(pointer, blocks, 1, 1, threads, 1, 1, 0, stream, where, 0)

    def resident_blocks(self, kernel: LoadedKernel, threads: int) -> int:
        """The number of blocks of a kernel that the whole device holds at once."""
        own = self._own(kernel)
        with self.current():
            blocks: int = self.driver.occupancyMaxActiveBlocksPerMultiprocessor(own.pointer, threads, 0)
        return blocks * self.multiprocessors

    def address(self, array: Any) -> int:
        """The address of an array in the memory of this device.

        Raises:
            DataError: it is on another device.
        """
        self._check_device(array)
        pointer: int = array.data.ptr
        return pointer

    def to_host(self, array: Any) -> NDArray[Any]:
        """A copy in main memory, after all work that is queued on the current stream.

        The memory is pinned, and goes back to CuPy's pool when nothing refers to the copy any more.

        Raises:
            DataError: the array is on another device.
            DeviceError: work that was queued before has failed.
        """
        self._check_device(array)
        if array.size == 0:
            return np.empty(array.shape, array.dtype)
        with self.current():
            memory = self.xp.cuda.alloc_pinned_memory(array.nbytes)
            host = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
            contiguous = array if array.flags.c_contiguous else self.xp.ascontiguousarray(array)
            contiguous.get(out=host)  # on the current stream, and waits for it
        return host

    def shared_with_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
        """Pinned main memory that kernels can write: as an array of zeros, and its address on the device.

        When nothing refers to the array any more, the memory is freed after all work queued on the device by then.
        """
        with self.current():
            memory = _HostMemory(self, shape, np.dtype(dtype))
        return np.asarray(memory), memory.address

    def mark(self) -> CupyMark:
        """A mark behind all work queued so far on the current stream."""
        with self.current():
            event = self.xp.cuda.Event(disable_timing=True)
            event.record(self.xp.cuda.get_current_stream())
        return CupyMark(self, event)

    def free_memory(self) -> int:
        """Bytes that could be allocated now: the driver's, and what CuPy's pool keeps unused, within its limit."""
        with self.current():
            free, _ = self._runtime.memGetInfo()
            pool = self.xp.get_default_memory_pool()
            available: int = free + pool.free_bytes()
            limit: int = pool.get_limit()  # 0: none
            return min(available, max(0, limit - pool.used_bytes())) if limit else available

    def _own(self, kernel: LoadedKernel) -> CupyKernel:
        if not isinstance(kernel, CupyKernel) or kernel.device is not self:
            raise InternalError(f"the kernel {kernel.name} was not loaded on {self!r}")
        return kernel

    def _check_device(self, array: Any) -> None:
        if array.device.id != self.number:
            raise DataError(
                f"an array on GPU {array.device.id}, where the solver works on GPU {self.number}: "
                f"copy it there, `with cupy.cuda.Device({self.number}): array = cupy.asarray(array)`"
            )


class _HostMemory:
    """Main memory that a device writes; NumPy's arrays of it keep it alive."""

    def __init__(self, device: CupyDevice, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.device = device
        self.runtime = device.xp.cuda.runtime
        size = max(1, math.prod(shape) * dtype.itemsize)
        # With unified addressing, which every 64-bit system has, the address is the same for the device. Not from
        # CuPy's pool, which would hand the memory on while a kernel still writes to it.
        flags = self.runtime.hostAllocPortable | self.runtime.hostAllocMapped
        self.address: int = self.runtime.hostAlloc(size, flags)
        ctypes.memset(self.address, 0, size)
        self.__array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": dtype.str,
            "data": (self.address, False),
        }

    def __del__(self) -> None:
        # Nothing can be done about a device that has failed, or at the end of the process about a driver that is gone.
        with suppress(Exception):
            address, self.address = self.address, 0
            with self.device.current():
                self.runtime.deviceSynchronize()
            self.runtime.freeHost(address)


def _parameter_bytes(compiled: CompiledCuda) -> dict[str, int]:
    if compiled.compiled_for.form == "ptx":
        return read_ptx_parameters(compiled.image.decode())
    return {name: kernel.parameter_bytes for name, kernel in read_cubin(compiled.image).items()}
