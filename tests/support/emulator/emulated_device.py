"""A GPU without a GPU: the CUDA source of kernels compiled as C++ for the CPU, and run thread by thread.

Results are those of a correct kernel on a GPU, up to rounding. What CUDA leaves undefined is an error where it can be
seen: barriers and shuffles that not all threads reach, misaligned accesses, shared memory out of bounds. Shared memory
begins as NaN, and the order of blocks and threads changes from launch to launch. What it does not show: races that
need another order than these, accesses out of bounds in a device's own memory (NumPy arrays here), and a host that
does not wait, since a launch returns when it is done. A kernel that spins without ``__nanosleep`` never returns.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_ulong, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.errors import CompileError
from optpy.kernels.runtime.cuda.device import LoadedKernel, Mark, Module
from optpy.kernels.runtime.cuda.executor import THREADS
from optpy.kernels.toolchain.cache import Cache, CacheEntry, open_cache
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.compiler_process import run_compiler
from optpy.kernels.toolchain.toolchain import Toolchain, find_toolchain, processor_identity

_COMPILE_FLAGS = (
    "-x",
    "c++",
    "-std=c++17",
    "-nostdinc++",  # math.h of the C library: the C++ one takes longer to read than most kernels
    "-O0",  # these kernels run on a few hundred numbers: to optimise them takes far longer than to run them
    "-g0",  # zig's clang adds debug information where it is not told
    "-fPIC",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-strict-aliasing",  # vectors are read from arrays of numbers
    "-fno-sanitize=all",  # zig's clang adds many without optimisation
    "-fsanitize=bounds",
    "-fno-sanitize-recover=bounds",
)
_CHECKED = ("-fsanitize=alignment", "-fno-sanitize-recover=alignment")
_QUICK = ("-DOPTPY_ALIGNMENT_OF_VECTORS",)  # of single numbers it follows from their types
_LINK_FLAGS = ("-shared", "-O3", "-g0")  # as `compile_c` links: for others zig would build its runtime once more
_THREADS_AT_MOST = 1024  # of a block, by CUDA

_running = threading.Lock()  # the emulator has one state for the whole process


@final
@dataclass(slots=True, eq=False)
class EmulatedKernel:
    """A kernel in a loaded library: its address, that of the function that calls it, and the size of its argument."""

    name: str
    address: int
    call: int
    context_bytes: int
    registers: int = 0
    local_bytes: int = 0


@final
@dataclass(slots=True)
class EmulatedModule:
    """A loaded library of kernels."""

    library: ctypes.CDLL
    seconds: float
    cache_hit: bool

    def kernel(self, name: str) -> LoadedKernel:
        """A kernel by its name.

        Raises:
            RuntimeError: there is none of this name.
        """
        function = getattr(self.library, name, None)
        if function is None:
            raise RuntimeError(f'the source has no kernel extern "C" {name}')
        address, call = (ctypes.cast(each, c_void_p).value or 0 for each in (function, self.library.optpy_call))
        return EmulatedKernel(name, address, call, self.library.optpy_context_bytes())


@final
class EmulatedMark:
    """All work is done when a launch returns; that somebody waits is counted."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device

    def wait(self) -> None:
        """Count."""
        self._device.waits += 1


class _Thread(threading.local):
    entered = 0


@final
class EmulatedDevice:
    """A small GPU, as `optpy.kernels.runtime.cuda.device.Device`.

    Args:
        multiprocessors: how many.
        blocks_per_multiprocessor: how many blocks of any kernel each of them holds at once.
        shuffled: the order of blocks and threads changes from launch to launch (the same in every run of a test);
            else it is always from the first to the last.
        threads: of a block, in the place of OPTPY_THREADS of the project's sources. With fewer than there, the
            alignment of vectors alone is checked: both are for tests that run many kernels.
        xp: the module of its arrays: NumPy, or a ``StrictCupy``, which lets nobody take them for arrays of the host.

    Attributes:
        launches: so many, of which `cooperative_launches` together.
        host_reads: calls of `to_host`.
        marks: so many made.
        waits: for a mark.
        free_bytes: what `free_memory` tells; set it to what a test needs.
        strict: whether work, that of its arrays included where they are a ``StrictCupy``'s, is refused in a thread that
            has not made this device its current one.
    """

    name = "emulated GPU"
    number = 0
    architecture = "sm_90"

    def __init__(
        self,
        multiprocessors: int = 3,
        blocks_per_multiprocessor: int = 2,
        *,
        shuffled: bool = True,
        threads: int = THREADS,
        xp: Any = np,
    ) -> None:
        self.xp: Any = xp
        self.multiprocessors = multiprocessors
        self.blocks_per_multiprocessor = blocks_per_multiprocessor
        self.shuffled = shuffled
        self.threads = threads
        self.strict = False
        self._thread = _Thread()
        if xp is not np:
            xp.check = self._check_current
        self.reset()

    def reset(self) -> None:
        """All counts to 0, and `free_bytes` to more than any test needs."""
        self.launches = 0
        self.cooperative_launches = 0
        self.host_reads = 0
        self.marks = 0
        self.waits = 0
        self.free_bytes = 2**40

    @contextmanager
    def current(self) -> Iterator[None]:
        """This is the current device of the thread."""
        self._thread.entered += 1
        try:
            yield
        finally:
            self._thread.entered -= 1

    def _check_current(self) -> None:
        if self.strict and not self._thread.entered:
            raise AssertionError("work for the emulated GPU while another device is the thread's current one")

    def load(self, source: str) -> Module:
        """Compile CUDA C++, or take it from the cache; it defines `Context`, the type of each kernel's argument.

        Raises:
            CompileError: the compiler refuses it.
        """
        started = time.perf_counter()
        if self.threads != THREADS:
            define = "#define OPTPY_THREADS {} "
            assert define.format(THREADS) in source
            source = source.replace(define.format(THREADS), define.format(self.threads))
        library, hit = _compile(source, _COMPILE_FLAGS + (_CHECKED if self.threads == THREADS else _QUICK))
        library.optpy_context_bytes.restype = c_ulong
        library.optpy_attach.argtypes = [c_void_p]
        library.optpy_attach(_emulator().optpy_machine_of_emulator())
        return EmulatedModule(library, time.perf_counter() - started, hit)

    def launch(
        self, kernel: LoadedKernel, blocks: int, threads: int, context: ctypes.Structure, cooperative: bool = False
    ) -> None:
        """Run a kernel; it is done when this returns.

        Raises:
            ValueError: CUDA refuses such a launch, or the context is not as large as that of the source.
            RuntimeError: the kernel did what CUDA leaves undefined, or no thread got on.
        """
        assert isinstance(kernel, EmulatedKernel)
        self._check_current()
        self._check(kernel, blocks, threads, context, cooperative)
        order = self.launches if self.shuffled else 0
        self.launches += 1
        self.cooperative_launches += cooperative
        argument = ctypes.byref(context)
        with _running:
            failure = _emulator().optpy_emulate(
                kernel.call, kernel.address, argument, blocks, threads, cooperative, order
            )
        if failure is not None:
            raise RuntimeError(f"kernel {kernel.name}: {failure.decode()}")

    def _check(
        self, kernel: EmulatedKernel, blocks: int, threads: int, context: ctypes.Structure, cooperative: bool
    ) -> None:
        size = ctypes.sizeof(context)
        if size != kernel.context_bytes:
            raise ValueError(f"kernel {kernel.name} takes a Context of {kernel.context_bytes} bytes, not of {size}")
        if threads % 32 != 0 or not 32 <= threads <= _THREADS_AT_MOST:
            raise ValueError(f"a block is of 32, 64, ..., {_THREADS_AT_MOST} threads, not of {threads}")
        if not 1 <= blocks < 2**31:
            raise ValueError(f"a grid is of 1 to 2**31 - 1 blocks, not of {blocks}")
        if cooperative and blocks > self.resident_blocks(kernel, threads):
            raise ValueError(f"{blocks} blocks do not run together; {self.resident_blocks(kernel, threads)} do")

    def resident_blocks(self, kernel: LoadedKernel, threads: int) -> int:
        """How many blocks run at once: the same for all kernels."""
        return self.multiprocessors * self.blocks_per_multiprocessor

    def address(self, array: Any) -> int:
        """Where an array begins."""
        self._check_current()
        return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr)

    def to_host(self, array: Any) -> NDArray[Any]:
        """A copy, which is counted."""
        self._check_current()
        self.host_reads += 1
        return np.array(array) if isinstance(array, np.ndarray) else np.array(array.get())

    def shared_with_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
        """An array of zeros, and where it begins."""
        self._check_current()
        array = np.zeros(shape, dtype)
        return array, self.address(array)

    def mark(self) -> Mark:
        """A mark, which is counted."""
        self._check_current()
        self.marks += 1
        return EmulatedMark(self)

    def free_memory(self) -> int:
        """What the test has set."""
        self._check_current()
        return self.free_bytes


@functools.cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@functools.cache
def _emulator() -> ctypes.CDLL:
    source = "".join(map(_text, ("emulator_machine.h", "emulator.c", "emulator_launch.c")))
    library = compile_c(source, name="emulator", werror=True).library
    library.optpy_machine_of_emulator.restype = c_void_p
    library.optpy_emulate.restype = c_char_p
    library.optpy_emulate.argtypes = [c_void_p, c_void_p, c_void_p, c_int, c_int, c_int, c_int]
    return library


def _compile(source: str, flags: tuple[str, ...]) -> tuple[ctypes.CDLL, bool]:
    """The library of a source, and whether it was in the cache: the project's own, under the hash of everything."""
    cache = open_cache()
    toolchain = find_toolchain(cache.root)
    before = _text("emulator_machine.h") + _text("emulator.h")
    text = f'{before}\n#line 1 "kernels.cu"\n{source}\n#line 1 "emulator_entry.h"\n{_text("emulator_entry.h")}'
    # Each part with its length, so that none can be mistaken for the end of another.
    parts = [text, *toolchain.command, toolchain.version, *flags, platform.machine(), processor_identity()]
    everything = "".join(f"{len(part)}:{part}" for part in parts)
    key = f"emulated-{hashlib.sha256(everything.encode()).hexdigest()}"
    entry = cache.find(key)
    hit = entry is not None
    if entry is None:
        with cache.lock(key):
            entry = cache.find(key) or _build(cache, key, toolchain, text, flags)
    return ctypes.CDLL(str(entry.library)), hit


def _build(cache: Cache, key: str, toolchain: Toolchain, text: str, flags: tuple[str, ...]) -> CacheEntry:
    """Compile and link, in two steps: the checks of the emulator stand in for the library of the sanitizer."""
    cache.discard(key)
    with cache.workspace(key) as built:
        folder = built.source.parent
        built.source.write_text(text, encoding="utf-8")
        compiling = [*toolchain.command, *flags, "-c", built.source.name, "-o", "kernels.o"]
        linked = ("kernels.o", "-o", built.library.name)
        by_driver = [*toolchain.command, *_LINK_FLAGS, *linked, "-lm"]
        linking = [*toolchain.recipe.linker, *linked] if toolchain.recipe.linker else by_driver
        for command in (compiling, linking):
            done = run_compiler(command, cache.root, folder)
            if done.returncode != 0:
                kept = cache.keep_failed(built, key)
                raise CompileError(
                    f"{shlex.join(command)} ended with status {done.returncode} on {kept}\n{done.stderr}"
                )
        (folder / "kernels.o").unlink()
        return cache.publish(built, key)
