"""The device of this machine, where there is one: launches, streams, threads, barriers between blocks, host memory."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from optpy.errors import DataError
from optpy.kernels.runtime.cuda.available import cuda_or_reason
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.toolchain.cubin import read_cubin
from optpy.kernels.toolchain.nvrtc import compile_cuda

DEVICE, REASON = cuda_or_reason()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(DEVICE is None, reason=REASON)]

# `meet` counts the blocks in x[0], waits until all have come, and writes how many each saw.
SOURCE = r"""
struct Context { double *x; int n; float scale; };
extern "C" __global__ void __launch_bounds__(256) scale(const __grid_constant__ Context c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < c.n) c.x[i] *= c.scale;
}
extern "C" __global__ void __launch_bounds__(256) meet(const __grid_constant__ Context c) {
    if (threadIdx.x == 0) {
        atomicAdd(c.x, 1.0);
        while (*(volatile double *)c.x < gridDim.x) __nanosleep(50);
        c.x[1 + blockIdx.x] = *(volatile double *)c.x;
    }
}
extern "C" __global__ void __launch_bounds__(256) slow(const __grid_constant__ Context c) {
    for (int k = 0; k < c.n; k++) __nanosleep(1000);
    if (threadIdx.x == 0) c.x[0] = c.scale;
}
"""


class Context(ctypes.Structure):
    _fields_ = (("x", ctypes.c_void_p), ("n", ctypes.c_int), ("scale", ctypes.c_float))


@pytest.fixture
def device() -> Iterator[Device]:
    assert DEVICE is not None
    yield DEVICE
    DEVICE.mark().wait()


def test_resources_as_the_driver_says(device: Device) -> None:
    module = device.load(SOURCE)
    compiled = compile_cuda(SOURCE, device.architecture)
    if compiled.compiled_for.form == "ptx":
        pytest.skip("the driver compiles it")
    for name, expected in read_cubin(compiled.image).items():
        kernel = module.kernel(name)
        assert (kernel.registers, kernel.local_bytes) == (expected.registers, expected.local_bytes)


def test_launch(device: Device) -> None:
    x = device.xp.arange(1000, dtype=np.float64)
    device.launch(device.load(SOURCE).kernel("scale"), 4, 256, Context(device.address(x), 1000, 2.5))
    np.testing.assert_array_equal(device.to_host(x), 2.5 * np.arange(1000.0))


def test_views_and_transposed_arrays(device: Device) -> None:
    x = device.xp.arange(12, dtype=np.int32).reshape(3, 4)
    for view in (x.T, x[1:, ::2], x[0, 0], x[:0]):
        np.testing.assert_array_equal(device.to_host(view), view.get())
    assert device.address(x[1]) == device.address(x) + 16


def test_blocks_that_wait_for_one_another(device: Device) -> None:
    kernel = device.load(SOURCE).kernel("meet")
    blocks = device.resident_blocks(kernel, 256)
    assert blocks >= device.multiprocessors
    x = device.xp.zeros(1 + blocks)
    device.launch(kernel, blocks, 256, Context(device.address(x)), cooperative=True)
    np.testing.assert_array_equal(device.to_host(x), np.full(1 + blocks, float(blocks)))


def test_more_blocks_than_run_together_are_refused(device: Device) -> None:
    kernel = device.load(SOURCE).kernel("meet")
    blocks = device.resident_blocks(kernel, 256) + 1
    x = device.xp.zeros(1 + blocks)
    with pytest.raises(device.xp.cuda.driver.CUDADriverError, match="TOO_LARGE"):
        device.launch(kernel, blocks, 256, Context(device.address(x)), cooperative=True)


def test_work_is_in_the_order_of_the_callers_stream(device: Device) -> None:
    kernels = device.load(SOURCE)
    for stream in (device.xp.cuda.Stream(non_blocking=True), device.xp.cuda.Stream.null):
        with stream:
            x = device.xp.zeros(1)
            device.launch(kernels.kernel("slow"), 1, 32, Context(device.address(x), 2000, 3.0))
            mark = device.mark()
            device.launch(kernels.kernel("scale"), 1, 32, Context(device.address(x), 1, 2.0))
            assert device.to_host(x)[0] == 6.0
            mark.wait()


def test_threads(device: Device) -> None:
    kernel = device.load(SOURCE).kernel("scale")
    found: list[Any] = []

    def work() -> None:
        with device.xp.cuda.Stream(non_blocking=True):
            x = device.xp.ones(256)
            for _ in range(100):
                device.launch(kernel, 1, 256, Context(device.address(x), 256, 2.0))
            found.append(device.to_host(x))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for values in found:
        np.testing.assert_array_equal(values, 2.0**100)


def test_a_launch_as_the_first_thing_in_a_thread(device: Device) -> None:
    x = device.xp.ones(32)
    kernel = device.load(SOURCE).kernel("scale")
    device.mark().wait()
    context = Context(device.address(x), 32, 4.0)

    def work() -> None:
        device.launch(kernel, 1, 32, context)
        device.mark().wait()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    np.testing.assert_array_equal(device.to_host(x), 4.0)


def test_a_module_is_given_up_by_a_thread_that_never_used_cuda(device: Device) -> None:
    """What CuPy cannot unload then it tells on the standard error, and here that is an error."""
    kernels = [device.load(SOURCE).kernel("scale")]
    thread = threading.Thread(target=kernels.clear)
    thread.start()
    thread.join()
    assert kernels == []


def test_memory_shared_with_the_host(device: Device) -> None:
    shared, address = device.shared_with_host((3,), np.dtype(np.float64))
    shared[...] = [1.0, 2.0, 3.0]
    device.launch(device.load(SOURCE).kernel("scale"), 1, 32, Context(address, 3, 2.0))
    device.mark().wait()
    np.testing.assert_array_equal(shared, [2.0, 4.0, 6.0])


def test_memory_shared_with_the_host_outlives_the_kernels_that_write_it(device: Device) -> None:
    shared, address = device.shared_with_host((1,), np.dtype(np.float64))
    device.launch(device.load(SOURCE).kernel("slow"), 1, 32, Context(address, 20000, 1.0))
    del shared
    device.mark().wait()


def test_free_memory(device: Device) -> None:
    before = device.free_memory()
    kept = device.xp.empty(2**30, np.uint8)
    assert device.free_memory() <= before - kept.nbytes // 2  # other processes may give up some meanwhile


def test_another_device(device: Device) -> None:
    if device.xp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU")
    with device.xp.cuda.Device((device.number + 1) % 2):
        elsewhere = device.xp.ones(3)
        with pytest.raises(DataError, match="where the solver works on GPU"):
            device.address(elsewhere)
        test_launch_from_elsewhere(device)


def test_launch_from_elsewhere(device: Device) -> None:
    """With another device as the current one, if there is one."""
    with device.xp.cuda.Device(device.number):
        x = device.xp.ones(8)
    device.launch(device.load(SOURCE).kernel("scale"), 1, 32, Context(device.address(x), 8, 7.0))
    np.testing.assert_array_equal(device.to_host(x), 7.0)
