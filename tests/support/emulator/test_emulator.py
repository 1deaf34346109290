"""The emulated GPU: right kernels give what they give on a GPU, and wrong ones are refused."""

from __future__ import annotations

import ctypes
import shutil
import uuid
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from optpy.errors import CompileError
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import THREADS
from optpy.kernels.toolchain import toolchain
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.emulator.emulator_kernels import EXCHANGES, MEMORY, PRELUDE, SOURCES, SUMS, UNDEFINED

pytestmark = pytest.mark.emulated

RNG = np.random.default_rng(5)


class Context(ctypes.Structure):
    _fields_ = [
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("counter", ctypes.c_void_p),
        ("n", ctypes.c_uint),
        ("rounds", ctypes.c_uint),
    ]


class Run:
    """One launch of a kernel, with room for its results."""

    def __init__(self, x: Any = 0.0, y: int = 1, n: int = 0, rounds: int = 0) -> None:
        self.x = np.atleast_1d(np.asarray(x, np.float32))
        self.y = np.zeros(y, np.float32)
        self.counter = np.zeros(8, np.uint32)
        self.n, self.rounds = n, rounds

    def launch(
        self,
        source: str,
        name: str,
        blocks: int,
        threads: int,
        *,
        cooperative: bool = False,
        device: Device | None = None,
    ) -> NDArray[np.float32]:
        device = EmulatedDevice() if device is None else device
        pointers = [device.address(array) for array in (self.x, self.y, self.counter)]
        kernel = device.load(PRELUDE + source).kernel(name)
        device.launch(kernel, blocks, threads, Context(*pointers, self.n, self.rounds), cooperative)
        return self.y


def line_of(source: str, text: str) -> int:
    """The line of a text that is there once."""
    before, found, after = (PRELUDE + source).partition(text)
    assert found
    assert text not in after
    return before.count("\n") + 1


@pytest.mark.nvrtc
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_sources_are_cuda(source: str, architecture: str) -> None:
    nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="no NVRTC", exc_type=ImportError)
    program = nvrtc.createProgram(PRELUDE + source, "kernels.cu", [], [])
    try:
        nvrtc.compileProgram(program, [f"--gpu-architecture={architecture}"])
        assert nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError:
        pytest.fail(nvrtc.getProgramLog(program))
    finally:
        nvrtc.destroyProgram(program)


@pytest.mark.parametrize("compiler", ["clang", "zig", "gcc"])
def test_every_compiler_runs_a_reduction(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = f"{toolchain.zig_binary()} cc" if compiler == "zig" else compiler
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"no {compiler} on this machine")
    monkeypatch.setenv("OPTPY_CC", command)
    run = Run(np.arange(5000), n=4999)
    assert run.launch(SUMS, "add_up", 4, 256) == 4999 * 4998 / 2
    with pytest.raises(RuntimeError, match="not a multiple of 16"):
        Run(np.ones(1024), 64, n=1).launch(MEMORY, "vectors", 1, 32)


@pytest.mark.parametrize(("blocks", "threads", "n"), [(1, 32, 1), (3, 64, 1000), (7, 256, 1792), (40, 96, 5000)])
@pytest.mark.parametrize("cooperative", [False, True])
def test_grid_stride_sum(blocks: int, threads: int, n: int, cooperative: bool) -> None:
    run = Run(RNG.integers(-100, 100, n + 10), n=n)
    device = EmulatedDevice(multiprocessors=20)
    result = run.launch(SUMS, "add_up", blocks, threads, cooperative=cooperative, device=device)
    assert result == run.x[:n].sum()


@pytest.mark.parametrize("cooperative", [False, True])
def test_last_block_adds_up_all(cooperative: bool) -> None:
    device = EmulatedDevice()
    for _ in range(4):  # four orders of the blocks
        run = Run(RNG.integers(-100, 100, 3000), 7, n=3000)
        run.launch(SUMS, "last_block", 6, 128, cooperative=cooperative, device=device)
        assert run.y[6] == run.x.sum()
        assert run.counter[0] == 6


@pytest.mark.parametrize("rounds", [1, 5])
@pytest.mark.parametrize("blocks", [1, 6])
def test_blocks_together_pass_barriers_of_the_grid(blocks: int, rounds: int) -> None:
    device = EmulatedDevice()
    for _ in range(3):
        run = Run(y=blocks, rounds=rounds)
        run.y[:] = 10 * np.arange(blocks)
        run.launch(SUMS, "rounds", blocks, 64, cooperative=True, device=device)
        np.testing.assert_array_equal(run.y, np.roll(10 * np.arange(blocks), -rounds) + rounds)


def test_shuffles() -> None:
    x = RNG.integers(0, 1000, 32)
    lane = np.arange(32)
    down = x[np.where(lane < 29, lane + 3, lane)]
    rows = Run(x, 192).launch(EXCHANGES, "shuffles", 1, 32).reshape(6, 32)
    expected = [
        down,
        x[lane ^ 5],
        np.full(32, x[7]),
        x[np.where(lane >= 4, lane - 4, lane)],
        x[np.where(lane % 8 < 5, lane + 3, lane)],
        down[lane ^ 1][lane // 4 * 4 + 2],
    ]
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize(("n", "vote"), [(0, 3), (63, 2), (64, 0)])
def test_votes_of_a_block(n: int, vote: int) -> None:
    assert (Run(np.arange(64), 64, n=n).launch(EXCHANGES, "votes", 1, 64) == vote).all()


@pytest.mark.parametrize("step", [1, 63])
def test_a_missing_barrier_shows_in_one_of_two_launches(step: int) -> None:
    device = EmulatedDevice()
    run = Run(np.arange(64), 64, n=step)
    right = [
        np.array_equal(run.launch(EXCHANGES, "neighbour", 1, 64, device=device), np.roll(run.x, -step))
        for _ in range(2)
    ]
    assert not all(right)


def test_vector_loads() -> None:
    x = RNG.integers(0, 100, (32, 4))
    y = Run(x.ravel(), 64).launch(MEMORY, "vectors", 1, 32).reshape(32, 2)
    np.testing.assert_array_equal(y, np.stack([x.sum(axis=1), x[:, :2].sum(axis=1)], axis=1))


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_misaligned_vectors_are_refused(offset: int) -> None:
    line = line_of(MEMORY, "float4 a = ")
    with pytest.raises(RuntimeError, match=rf"vectors: thread 0 of block 0 .*\(line {line}\).*multiple of 16"):
        Run(np.ones(200), 64, n=offset).launch(MEMORY, "vectors", 1, 32)


@pytest.mark.parametrize(("threads", "where"), [(64, 0), (THREADS, 7)])
def test_misaligned_vectors_are_refused_by_blocks_of_any_length(threads: int, where: int) -> None:
    source = f"""#define OPTPY_THREADS {THREADS} /* of every block */
struct Context {{ const float *x; float *y; unsigned n; }};
extern "C" __global__ void copy(const __grid_constant__ Context context) {{
    float4 a = *reinterpret_cast<const float4 *>(context.x + context.n);

    float4 *to = reinterpret_cast<float4 *>(context.y + context.n % 3);
    *to = a;
}}
"""

    class Given(ctypes.Structure):
        _fields_ = [("x", ctypes.c_void_p), ("y", ctypes.c_void_p), ("n", ctypes.c_uint)]

    device = EmulatedDevice(threads=threads)
    kernel, memory = device.load(source).kernel("copy"), np.zeros(64, np.float32)
    start = (memory.ctypes.data + 15) // 16 * 16
    device.launch(kernel, 1, 32, Given(start, start + 64, 0))
    with pytest.raises(RuntimeError, match=r"\(line 4\) that is not a multiple of 16"):
        device.launch(kernel, 1, 32, Given(start, start + 64, 3))
    with pytest.raises(RuntimeError, match=rf"\(line {where}\) that is not a multiple of 16"):
        device.launch(kernel, 1, 32, Given(start, start + 64, 4))


def test_vectors_in_an_array_of_floats_in_shared_memory_are_refused() -> None:
    with pytest.raises(RuntimeError, match="not a multiple of 16"):
        Run(np.ones(64), 64).launch(MEMORY, "shared_vectors", 1, 64)


@pytest.mark.parametrize("cooperative", [False, True])
def test_shared_memory_is_nan_at_first_and_of_one_block(cooperative: bool) -> None:
    y = Run(y=8).launch(MEMORY, "fresh", 4, 32, cooperative=cooperative)
    assert np.isnan(y[:4]).all()
    np.testing.assert_array_equal(y[4:], 100 + np.arange(4))


def test_shared_memory_out_of_bounds_is_refused() -> None:
    assert (Run(y=32).launch(MEMORY, "outside", 1, 32) == 1).all()
    line = line_of(MEMORY, "row[threadIdx.x + context.n] = 1.0f")
    with pytest.raises(RuntimeError, match=rf"thread 31 of block 0 .*\(line {line}\) out of bounds: index 32"):
        Run(y=32, n=1).launch(MEMORY, "outside", 1, 32)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_atomics(order: int) -> None:
    device = EmulatedDevice()
    device.launches = order
    run = Run(y=4)
    run.launch(MEMORY, "atomics", 5, 64, device=device)
    assert run.y[0] == 160
    assert run.y[2:].view(np.float64) == 80
    assert list(run.counter[:4]) == [320, 319, 0, 320]
    assert run.counter[4] == run.counter[5] > 0
    assert list(run.counter[6:]) == [1, 1]


def test_numbers() -> None:
    x = RNG.uniform(0.1, 5, 32).astype(np.float32)
    y = Run(x, 224).launch(MEMORY, "numbers", 1, 32).reshape(32, 7)
    expected = [np.sin(x), np.cos(x), 1 / np.sqrt(x), -x, x, np.minimum(x, 2) + x / 4 + 4, np.ones(32)]
    np.testing.assert_allclose(y, np.stack(expected, axis=1), rtol=1e-6, atol=1e-6)
    x[:3] = np.nan, np.inf, -np.inf
    assert list(Run(x, 224).launch(MEMORY, "numbers", 1, 32)[6:34:7]) == [4, 2, 2, 1]


def test_the_clock_goes_on_while_threads_sleep() -> None:
    assert (Run(y=32, n=100_000).launch(MEMORY, "clocks", 1, 32) == 1).all()


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    ("name", "n", "message"),
    [
        ("left_before_barrier", 63, "__syncthreads"),
        ("left_before_barrier", 1, "__syncthreads"),
        ("two_barriers", 32, r"__syncthreads \(line \d+\), and others of its block at __syncthreads"),
        ("left_before_shuffle", 31, "__shfl_xor_sync"),
        ("left_before_shuffle", 33, "__shfl_xor_sync"),
        ("half_a_warp", 0, "a part of the warp"),
        ("waits_for_ever", 0, "no thread gets on: thread 0 of block 0 sleeps"),
        ("much_shared_memory", 0, "50176 bytes"),
    ],
)
def test_what_cuda_leaves_undefined_is_refused(name: str, n: int, message: str, order: int) -> None:
    device = EmulatedDevice()
    device.launches = order
    with pytest.raises(RuntimeError, match=f"kernel {name}: .*(?:{message})"):
        Run(np.ones(64), 64, n=n).launch(UNDEFINED, name, 1, 64, device=device)
    # The device is as it was.
    assert Run(np.ones(64), n=64).launch(SUMS, "add_up", 1, 64, device=device) == 64


@pytest.mark.parametrize("order", [0, 1])
def test_a_warp_at_a_barrier_and_at_a_shuffle_is_refused(order: int) -> None:
    device = EmulatedDevice()
    device.launches = order
    names = ("__syncthreads", "__shfl_xor_sync") if order else ("__shfl_xor_sync", "__syncthreads")
    with pytest.raises(RuntimeError, match=rf"at {names[0]} \(line \d+\), and other lanes of its warp at {names[1]}"):
        Run(np.ones(32), 32, n=1).launch(UNDEFINED, "barrier_or_shuffle", 1, 32, device=device)


@pytest.mark.parametrize(
    ("name", "n"), [("left_before_barrier", 64), ("two_barriers", 64), ("left_before_shuffle", 32)]
)
def test_what_only_looks_undefined_runs(name: str, n: int) -> None:
    Run(np.ones(64), 64, n=n).launch(UNDEFINED, name, 1, 64)


def test_blocks_that_wait_for_one_another_must_be_together() -> None:
    with pytest.raises(RuntimeError, match="have to be launched together"):
        Run(y=4, rounds=1).launch(SUMS, "rounds", 4, 32)


@pytest.mark.parametrize(
    ("blocks", "threads", "cooperative", "message"),
    [
        (1, 0, False, "not of 0"),
        (1, 33, False, "not of 33"),
        (1, 1056, False, "not of 1056"),
        (0, 32, False, "not of 0"),
        (7, 32, True, "7 blocks do not run together; 6 do"),
    ],
)
def test_launches_that_cuda_refuses(blocks: int, threads: int, cooperative: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run(n=0).launch(SUMS, "add_up", blocks, threads, cooperative=cooperative)


def test_a_context_of_another_size_is_refused() -> None:
    class Short(ctypes.Structure):
        _fields_ = [("x", ctypes.c_void_p)]

    device = EmulatedDevice()
    kernel = device.load(PRELUDE + SUMS).kernel("add_up")
    with pytest.raises(ValueError, match="takes a Context of 32 bytes, not of 8"):
        device.launch(kernel, 1, 32, Short())


def test_errors_of_the_source() -> None:
    device = EmulatedDevice()
    with pytest.raises(CompileError, match=r"kernels\.cu:3:.*mistake"):
        device.load("struct Context { int n; };\n\nmistake\n")
    with pytest.raises(CompileError, match="Context"):
        device.load('extern "C" __global__ void nothing() {}')
    with pytest.raises(RuntimeError, match=r"no kernel .* missing"):
        device.load(PRELUDE + SUMS).kernel("missing")


def test_the_second_load_is_a_hit() -> None:
    device = EmulatedDevice()
    source = f"struct Context {{ int n; }}; // {uuid.uuid4()}"
    assert [device.load(source).cache_hit for _ in range(2)] == [False, True]


def test_memory_and_counts() -> None:
    device = EmulatedDevice(multiprocessors=4, blocks_per_multiprocessor=3)
    protocol: Device = device
    kernel = protocol.load(PRELUDE + SUMS).kernel("add_up")
    assert protocol.resident_blocks(kernel, 256) == 12
    x = protocol.xp.ones(32, np.float32)
    y, address = protocol.shared_with_host((1,), np.dtype(np.float32))
    context = Context(protocol.address(x), address, 0, 32, 0)
    protocol.launch(kernel, 1, 32, context)
    protocol.launch(kernel, 2, 32, context, cooperative=True)
    mark = protocol.mark()
    mark.wait()
    assert y == 64
    copy = protocol.to_host(x)
    x[:] = 0
    assert (copy == 1).all()
    assert (device.launches, device.cooperative_launches) == (2, 1)
    assert (device.host_reads, device.marks, device.waits) == (1, 1, 1)
    device.free_bytes = 1000
    assert protocol.free_memory() == 1000
