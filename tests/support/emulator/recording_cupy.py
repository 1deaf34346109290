"""A CuPy without a GPU: it writes down what is asked of it, and refuses what a driver refuses."""

from __future__ import annotations

import ctypes
import threading
from types import ModuleType, SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class _StatusError(RuntimeError):
    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class FakeRuntimeError(_StatusError):
    pass


class FakeDriverError(_StatusError):
    pass


class _Thread(threading.local):
    device = 0
    has_context = False
    stack: tuple[int, ...] = ()


class FakeArray:
    """Memory of a device is main memory that NumPy does not see as such."""

    def __init__(self, fake: RecordingCupy, values: NDArray[Any], device: int) -> None:
        self.fake = fake
        self.values = values
        self.flags = values.flags
        self.device = SimpleNamespace(id=device)
        self.data = SimpleNamespace(ptr=values.ctypes.data)
        self.shape, self.dtype, self.size, self.nbytes = values.shape, values.dtype, values.size, values.nbytes

    def get(self, out: NDArray[Any]) -> None:
        """On the current stream; what is not contiguous, or not of the same shape, is refused."""
        if not self.flags.c_contiguous or out.shape != self.shape or out.dtype != self.dtype:
            raise RuntimeError("`out` cannot be specified")
        self.fake.fail(FakeRuntimeError)
        self.fake.write("get")
        out[...] = self.values


class RecordingCupy:
    """The state behind one fake module; `module` is what `import cupy` gives.

    Attributes:
        log: what was called, with the current device.
        properties: of each device.
        kernel_sizes: of the argument of each kernel, for copying it at a launch.
        launched: what a driver would have copied.
    """

    def __init__(self, devices: int = 2, runtime_version: int = 12090) -> None:
        self.thread = _Thread()
        self.log: list[tuple[Any, ...]] = []
        self.properties = [
            dict(name=f"GPU {k}".encode(), major=9, minor=k, multiProcessorCount=10 + k, totalGlobalMem=2**34)
            for k in range(devices)
        ]
        self.runtime_version = runtime_version
        self.refuses_devices: str | None = None
        self.refuses_images = False
        self.refuses_kernels: Exception | None = None
        self.failure: tuple[str, int] | None = None
        self.kernel_sizes: dict[str, int] = {}
        self.launched: list[bytes] = []
        self.freed: list[int] = []
        self.allocated: dict[int, Any] = {}
        self.pool = SimpleNamespace(free_bytes=lambda: 300, get_limit=lambda: 0, used_bytes=lambda: 500)
        self.module = self._module()

    @property
    def current(self) -> int:
        return self.thread.device

    def write(self, *entry: Any) -> None:
        self.log.append((self.current, *entry))

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        """What was called by this name: the current device, and the arguments."""
        return [(entry[0], *entry[2:]) for entry in self.log if entry[1] == name]

    def array(self, values: Any, device: int = 0) -> FakeArray:
        return FakeArray(self, np.asarray(values), device)

    def fail(self, error: type[_StatusError]) -> None:
        """As every call does once a kernel has failed."""
        if self.failure is not None:
            raise error(*self.failure)

    def need_context(self) -> None:
        if not self.thread.has_context:
            raise FakeDriverError("CUDA_ERROR_INVALID_CONTEXT: invalid device context")

    def _module(self) -> Any:
        module: Any = ModuleType("cupy")
        module.cuda = ModuleType("cupy.cuda")
        module.cuda.runtime = self._runtime()
        module.cuda.driver = self._driver()
        module.cuda.Device = self._device_class()
        module.cuda.Event = self._event_class()
        module.cuda.function = SimpleNamespace(Module=self._module_class())
        module.cuda.get_current_stream = lambda: SimpleNamespace(ptr=7000 + self.current)
        module.cuda.alloc_pinned_memory = self._alloc_pinned_memory
        module.get_default_memory_pool = lambda: self.pool
        module.ascontiguousarray = self._ascontiguousarray
        module.arange = self._arange
        return module

    def _arange(self, n: int) -> Any:
        """By a kernel of CuPy's own, which it compiles."""
        if self.refuses_kernels is not None:
            raise self.refuses_kernels
        self.write("arange", n)
        return np.arange(n)

    def _alloc_pinned_memory(self, size: int) -> bytearray:
        self.write("alloc_pinned_memory", size)
        return bytearray(-(-size // 512) * 512)  # CuPy rounds up

    def _ascontiguousarray(self, array: FakeArray) -> FakeArray:
        return FakeArray(self, np.ascontiguousarray(array.values), array.device.id)

    def _runtime(self) -> Any:
        def memory_info() -> tuple[int, int]:
            self.thread.has_context = True
            return 1000 + self.current, 4000

        def count() -> int:
            if self.refuses_devices is not None:
                raise FakeRuntimeError(self.refuses_devices)
            return len(self.properties)

        def allocate(size: int, flags: int) -> int:
            self.write("hostAlloc", size, flags)
            memory = (ctypes.c_ubyte * size)(*([255] * size))
            self.allocated[ctypes.addressof(memory)] = memory
            return ctypes.addressof(memory)

        def free(address: int) -> None:
            self.write("freeHost")
            self.freed.append(address)
            del self.allocated[address]

        return SimpleNamespace(
            CUDARuntimeError=FakeRuntimeError,
            is_hip=False,
            hostAllocPortable=1,
            hostAllocMapped=2,
            getDevice=lambda: self.current,
            getDeviceCount=count,
            getDeviceProperties=lambda number: self.properties[number],
            runtimeGetVersion=lambda: self.runtime_version,
            memGetInfo=memory_info,
            deviceSynchronize=lambda: self.write("deviceSynchronize"),
            hostAlloc=allocate,
            freeHost=free,
        )

    def _driver(self) -> Any:
        def launch(name: str) -> Any:
            def call(*arguments: int) -> None:
                self.need_context()
                self.fail(FakeDriverError)
                self.write(name, *arguments[:9], *arguments[10:])
                (pointer,) = (ctypes.c_void_p * 1).from_address(arguments[9])
                size = self.kernel_sizes[self.functions[arguments[0]]]
                self.launched.append(ctypes.string_at(pointer or 0, size))

            return call

        def attribute(which: int, pointer: int) -> int:
            self.need_context()
            return {4: 32, 3: 48}[which]

        def occupancy(pointer: int, threads: int, shared: int) -> int:
            self.need_context()
            return 2048 // threads

        self.functions: dict[int, str] = {}
        return SimpleNamespace(
            CUDADriverError=FakeDriverError,
            CU_FUNC_ATTRIBUTE_NUM_REGS=4,
            CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES=3,
            launchKernel=launch("launchKernel"),
            launchCooperativeKernel=launch("launchCooperativeKernel"),
            funcGetAttribute=attribute,
            occupancyMaxActiveBlocksPerMultiprocessor=occupancy,
        )

    def _device_class(self) -> type:
        fake, state = self, self.thread

        class Device:
            def __init__(self, number: int) -> None:
                self.id = number

            def __enter__(self) -> Self:
                state.stack = (*state.stack, state.device)
                state.device = self.id
                return self

            def __exit__(self, *error: object) -> None:
                *rest, state.device = state.stack
                state.stack = tuple(rest)
                fake.fail(FakeRuntimeError)

        return Device

    def _event_class(self) -> type:
        fake = self

        class Event:
            def __init__(self, disable_timing: bool = False) -> None:
                fake.write("Event", disable_timing)

            def record(self, stream: Any) -> None:
                fake.write("record", stream.ptr)

            def synchronize(self) -> None:
                fake.fail(FakeRuntimeError)
                fake.write("synchronize")

        return Event

    def _module_class(self) -> type:
        fake = self

        class Module:
            loaded = False

            def __del__(self) -> None:
                if self.loaded:
                    fake.need_context()
                    fake.write("moduleUnload")

            def load(self, image: bytes) -> None:
                fake.need_context()
                if fake.refuses_images:
                    raise FakeDriverError("CUDA_ERROR_NO_BINARY_FOR_GPU")
                fake.write("load", image)
                self.loaded = True

            def get_function(self, name: str) -> Any:
                fake.need_context()
                fake.write("get_function", name)
                pointer = 9000 + len(fake.functions)
                fake.functions[pointer] = name
                return SimpleNamespace(ptr=pointer)

        return Module
