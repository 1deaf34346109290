"""What CuPy and the driver are asked to do, with a CuPy that has no GPU; the images are those of the real NVRTC."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from optpy.errors import CompileError, DataError, DeviceError, InternalError
from optpy.kernels.runtime.cuda import cupy_device
from optpy.kernels.runtime.cuda.cupy_device import CupyDevice, CupyKernel
from optpy.kernels.toolchain.nvrtc import compile_cuda, nvrtc_version
from tests.support.emulator.recording_cupy import FakeDriverError, FakeRuntimeError, RecordingCupy

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.nvrtc

SOURCE = r"""
struct Context { double *x; int n; int m; };
extern "C" __global__ void fill(const __grid_constant__ Context c) { c.x[threadIdx.x] = c.n; }
extern "C" __global__ void other(const __grid_constant__ Context c) { c.x[threadIdx.x] = c.m; }
"""


class Context(ctypes.Structure):
    _fields_ = (("x", ctypes.c_void_p), ("n", ctypes.c_int), ("m", ctypes.c_int))


class TooSmall(ctypes.Structure):
    _fields_ = (("x", ctypes.c_void_p),)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> RecordingCupy:
    """In place of CuPy, but for NVRTC, which is the real one."""
    nvrtc_version()
    made = RecordingCupy()
    made.kernel_sizes = {"fill": 16, "other": 16}
    images = {k: compile_cuda(SOURCE, f"sm_9{k}") for k in range(2)}
    monkeypatch.setattr(cupy_device, "compile_cuda", lambda source, architecture: images[int(architecture[-1])])
    monkeypatch.setitem(sys.modules, "cupy", made.module)
    return made


def in_thread(work: Callable[[], Any]) -> Any:
    """What it returns in a thread that never used CUDA."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def kernel_of(device: CupyDevice, name: str = "fill") -> CupyKernel:
    return device.load(SOURCE).kernel(name)


def test_what_the_device_says_of_itself(fake: RecordingCupy) -> None:
    device = CupyDevice(1)
    assert (device.number, device.name, device.architecture, device.multiprocessors) == (1, "GPU 1", "sm_91", 11)
    assert device.xp is fake.module
    assert "GPU 1" in repr(device)


def test_a_module_and_its_kernels(fake: RecordingCupy) -> None:
    module = CupyDevice(0).load(SOURCE)
    ((current, image),) = fake.calls("load")
    assert current == 0
    assert image.startswith(b"\x7fELF")
    assert module.seconds > 0
    kernel = module.kernel("other")
    assert (kernel.name, kernel.registers, kernel.local_bytes, kernel.parameter_bytes) == ("other", 32, 48, 16)
    with pytest.raises(InternalError, match=r"no kernel 'missing' in a module with fill, other"):
        module.kernel("missing")


def test_a_module_is_unloaded_on_its_device_wherever_it_is_given_up(fake: RecordingCupy) -> None:
    """A thread that never used CUDA may be the last to let go."""
    kernels = [kernel_of(CupyDevice(1)), kernel_of(CupyDevice(0))]
    gc.collect()
    assert fake.calls("moduleUnload") == []
    in_thread(kernels.pop)
    in_thread(kernels.clear)
    gc.collect()
    assert fake.calls("moduleUnload") == [(0,), (1,)]


def test_a_gpu_that_nvrtc_does_not_know_loads_ptx(fake: RecordingCupy) -> None:
    kernel = kernel_of(CupyDevice(1))
    ((current, image),) = fake.calls("load")
    assert current == 1
    assert b".entry fill" in image
    assert kernel.parameter_bytes == 16


def test_an_image_that_the_driver_refuses(fake: RecordingCupy) -> None:
    fake.refuses_images = True
    with pytest.raises(CompileError, match=r"GPU 0 \(sm_90\) does not load the cubin .*-arch=sm_90.*NO_BINARY"):
        CupyDevice(0).load(SOURCE)


def test_launch_passes_a_copy_of_the_structure(fake: RecordingCupy) -> None:
    device = CupyDevice(0)
    kernel = kernel_of(device)
    context = Context(123, 5, 6)
    device.launch(kernel, 20, 256, context)
    assert fake.calls("launchKernel") == [(0, kernel.pointer, 20, 1, 1, 256, 1, 1, 0, 7000, 0)]
    assert fake.launched == [bytes(context)]
    device.launch(kernel, 4, 128, context, cooperative=True)
    assert fake.calls("launchCooperativeKernel") == [(0, kernel.pointer, 4, 1, 1, 128, 1, 1, 0, 7000)]
    assert len(fake.launched) == 2


def test_work_goes_to_the_devices_own_stream_whatever_device_is_current(fake: RecordingCupy) -> None:
    device = CupyDevice(1)
    kernel = kernel_of(device)
    device.launch(kernel, 2, 32, Context())
    assert fake.current == 0
    with fake.module.cuda.Device(1):
        device.launch(kernel, 2, 32, Context())
        assert fake.current == 1
    assert [(call[0], call[9]) for call in fake.calls("launchKernel")] == [(1, 7001)] * 2
    device.mark()
    assert fake.calls("record") == [(1, 7001)]


def test_a_thread_that_never_used_cuda(fake: RecordingCupy) -> None:
    device = CupyDevice(0)
    kernel = kernel_of(device)
    assert isinstance(in_thread(lambda: fake.module.cuda.driver.funcGetAttribute(4, 1)), FakeDriverError)
    assert in_thread(lambda: device.launch(kernel, 1, 32, Context())) is None
    assert in_thread(lambda: device.resident_blocks(kernel, 256)) == 8 * 10
    assert in_thread(lambda: kernel_of(device).registers) == 32


def test_a_structure_of_another_size_is_not_launched(fake: RecordingCupy) -> None:
    device = CupyDevice(0)
    with pytest.raises(InternalError, match="fill takes 16 bytes, and the structure TooSmall has 8"):
        device.launch(kernel_of(device), 1, 32, TooSmall())
    assert fake.launched == []


def test_a_kernel_of_another_device_is_not_launched(fake: RecordingCupy) -> None:
    kernel = kernel_of(CupyDevice(0))
    with pytest.raises(InternalError, match="was not loaded on <GPU 1"):
        CupyDevice(1).launch(kernel, 1, 32, Context())
    with pytest.raises(InternalError, match="was not loaded on <GPU 1"):
        CupyDevice(1).resident_blocks(kernel, 32)
    assert fake.launched == []


def test_address_and_copy(fake: RecordingCupy) -> None:
    device = CupyDevice(0)
    values = np.arange(12.0).reshape(3, 4)
    array = fake.array(values)
    assert device.address(array) == values.ctypes.data
    host = device.to_host(array)
    np.testing.assert_array_equal(host, values)
    assert not np.shares_memory(host, values)
    assert fake.calls("alloc_pinned_memory") == [(0, 96)]
    assert fake.calls("get") == [(0,)]


@pytest.mark.parametrize(
    "values",
    [np.float64(3.5), np.arange(12, dtype=np.int32).reshape(3, 4).T, np.empty((0, 3), np.float32), np.array([True])],
    ids=["a number", "transposed", "empty", "one truth value"],
)
def test_copies_of_all_shapes(values: Any, fake: RecordingCupy) -> None:
    host = CupyDevice(0).to_host(fake.array(values))
    np.testing.assert_array_equal(host, values)
    assert (host.shape, host.dtype) == (np.shape(values), values.dtype)


def test_an_array_of_another_device_is_refused(fake: RecordingCupy) -> None:
    device, array = CupyDevice(0), fake.array([1.0], device=1)
    for use in (device.address, device.to_host):
        with pytest.raises(DataError, match=r"on GPU 1, where the solver works on GPU 0.*cupy\.cuda\.Device\(0\)"):
            use(array)


def test_memory_shared_with_the_device(fake: RecordingCupy) -> None:
    device = CupyDevice(1)
    array, address = device.shared_with_host((2, 3), np.dtype(np.float64))
    assert array.shape == (2, 3)
    assert array.dtype == np.float64
    assert not array.any()
    assert fake.calls("hostAlloc") == [(1, 48, 3)]
    ctypes.c_double.from_address(address + 8).value = 4.0  # as a kernel does
    assert array[0, 1] == 4.0
    view = array[1:]
    del array
    gc.collect()
    assert fake.freed == []
    view[...] = 1.0
    del view
    gc.collect()
    assert fake.freed == [address]
    # Freed only after the kernels that may write to it.
    assert [entry[:2] for entry in fake.log if entry[1] in ("deviceSynchronize", "freeHost")] == [
        (1, "deviceSynchronize"),
        (0, "freeHost"),
    ]


def test_empty_memory_shared_with_the_device(fake: RecordingCupy) -> None:
    array, _ = CupyDevice(0).shared_with_host((0, 2), np.dtype(np.float32))
    assert array.shape == (0, 2)


def test_marks_wait(fake: RecordingCupy) -> None:
    mark = CupyDevice(0).mark()
    assert fake.calls("Event") == [(0, True)]  # without times
    assert fake.calls("synchronize") == []
    mark.wait()
    assert fake.calls("synchronize") == [(0,)]


def test_a_device_that_has_failed(fake: RecordingCupy) -> None:
    device = CupyDevice(0)
    kernel, mark, array = kernel_of(device), device.mark(), fake.array([1.0])

    def launch() -> None:
        with device.current():
            device.launch(kernel, 1, 32, Context())

    calls = (mark.wait, launch, lambda: device.to_host(array))
    fake.failure = "cudaErrorIllegalAddress: an illegal memory access was encountered", 700
    for call in calls:
        with pytest.raises(DeviceError, match=r"GPU 0 has failed at work .*\(cudaErrorIllegalAddress: .*start"):
            call()
    fake.failure = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch", 701
    for call in calls:
        with pytest.raises((FakeDriverError, FakeRuntimeError), match="too many resources"):
            call()


def test_free_memory_includes_what_the_pool_keeps(fake: RecordingCupy) -> None:
    device = CupyDevice(1)
    assert device.free_memory() == 1001 + 300
    fake.pool.get_limit = lambda: 1400
    assert device.free_memory() == 1400 - 500
    fake.pool.get_limit = lambda: 400  # lowered since
    assert device.free_memory() == 0


def test_blocks_that_are_resident(fake: RecordingCupy) -> None:
    device = CupyDevice(1)
    assert device.resident_blocks(kernel_of(device), 512) == 4 * 11


def test_the_real_cupy_has_what_the_one_of_these_tests_has() -> None:
    real, fake = cupy.cuda, RecordingCupy().module.cuda
    for name in ("runtime", "driver", "function"):
        assert {key for key in vars(getattr(fake, name)) if not hasattr(getattr(real, name), key)} == set()
    assert all(hasattr(real, key) for key in vars(fake) if not key.startswith("__"))
    assert all(hasattr(cupy, key) for key in ("get_default_memory_pool", "ascontiguousarray"))
    driver, runtime = cupy.cuda.driver, cupy.cuda.runtime
    assert driver.launchKernel.__doc__.count(",") == 10
    assert driver.launchCooperativeKernel.__doc__.count(",") == 9
    assert driver.funcGetAttribute.__doc__.startswith("funcGetAttribute(int attribute, intptr_t f)")
    assert (driver.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, driver.CU_FUNC_ATTRIBUTE_NUM_REGS) == (3, 4)
    assert (runtime.hostAllocPortable, runtime.hostAllocMapped) == (1, 2)
