"""CUDA C++ source in, machine code for one architecture out: compiled once on this machine, then read from the cache.

NVRTC is NVIDIA's compiler as a library. It runs on the CPU: no GPU and no driver are needed.
"""

from __future__ import annotations

import re
import sys
import time
import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from optpy.errors import CompileError
from optpy.kernels.toolchain.cache import Cache, CacheEntry, find_or_build, make_key, open_cache
from optpy.kernels.toolchain.cubin import read_cubin
from optpy.kernels.toolchain.progress import reported

# Part of every key. Raise it when old images must no longer be used although their source is the same.
CUDA_VERSION = 3

# NaN, infinity, denormals, and the last digit of divisions and roots stay as IEEE 754 has them: no --use_fast_math.
# A product and a sum become one fused operation, as on the CPU. Functions without annotation run on the device, so
# that bodies are printed alike for both.
_OPTIONS = ("-std=c++17", "--fmad=true", "--device-as-default-execution-space")

Form = Literal["cubin", "ptx"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture of GPUs, real or virtual: cubin or PTX.

    Attributes:
        number: 90 is sm_90, compute capability 9.0.
        form: "cubin", the machine code of this architecture; or "ptx", from which the driver makes machine code for
            any later architecture when it loads it.
    """

    number: int
    form: Form

    @property
    def option(self) -> str:
        """As NVRTC's command line has it."""
        return f"-arch={'sm' if self.form == 'cubin' else 'compute'}_{self.number}"


@dataclass(frozen=True, slots=True)
class CompiledCuda:
    """An image that a driver loads, and what it took to get it.

    Attributes:
        image: the cubin, or the PTX text.
        compiled_for: the architecture.
        path, source_path: of the image and its source in the cache, which may evict them later.
        seconds: the whole time of `compile_cuda`, hit or miss.
    """

    image: bytes
    compiled_for: Architecture
    path: Path
    source_path: Path
    seconds: float
    cache_hit: bool


def choose_architecture(architecture: str, supported: Collection[int]) -> Architecture:
    """The architecture to compile for, for a GPU that the compiler may not know, given the architectures that it knows.

    Machine code where the architecture is known: it loads without delay, and under any driver of the same major
    version of CUDA. Else PTX for the newest one before it: such a GPU is newer than the compiler, therefore so is its
    driver, and reads that PTX. (Machine code for an earlier architecture of the same major version would often run
    as well, but not on the chips for embedded systems.)

    Args:
        architecture: of the GPU, "sm_90".
        supported: the numbers that the compiler knows.

    Raises:
        CompileError: the GPU is older than everything that the compiler knows.
    """
    match = re.fullmatch(r"sm_(\d+)", architecture, re.ASCII)
    if match is None:
        raise ValueError(f"an architecture is sm_ and a number, not {architecture!r}")
    number = int(match[1])
    if number in supported:
        return Architecture(number, "cubin")
    earlier = [known for known in supported if known < number]
    if not earlier:
        raise CompileError(
            f"this NVRTC compiles for sm_{min(supported)} and later, not for {architecture}: an older one does; "
            "pip uninstall cupy-cuda13x, then pip install 'optpy[cuda12]'"
        )
    return Architecture(max(earlier), "ptx")


def nvrtc_version() -> tuple[int, int]:
    """Major and minor version of the NVRTC that CuPy finds.

    Raises:
        CompileError: CuPy or NVRTC is not there; the text has the cure.
    """
    version: tuple[int, int] = loaded_nvrtc()[1]
    return version


def supported_architectures() -> tuple[int, ...]:
    """The numbers of the architectures that NVRTC compiles for, as 90 for sm_90.

    Raises:
        CompileError: as `nvrtc_version`.
    """
    return tuple(loaded_nvrtc()[0].getSupportedArchs())


BOUNDS = "OPTPY_BOUNDS_"
"""With a kernel's name behind it, the macro that a source may have in its ``__launch_bounds__``."""

_RUNGS = (
    ("OPTPY_THREADS,6", 40),
    ("OPTPY_THREADS,5", 48),
    ("OPTPY_THREADS,4", 64),
    ("OPTPY_THREADS,3", 80),
    ("OPTPY_THREADS", 255),
    ("OPTPY_THREADS,1", 255),
)
"""Launch bounds, each looser than the one before, with the registers that they leave a thread: a kernel has the first
by which it spills none, from its own on. The last but one is what the compiler thinks best, the last all that there
are."""
_SIX, _FOUR, _USUAL = 0, 2, 4


def compile_cuda(source: str, architecture: str, *, name: str = "kernels", werror: bool = False) -> CompiledCuda:
    """Compiles CUDA C++; the second time, on this machine, only reads the cache.

    Args:
        source: everything; no headers are found.
        architecture: "sm_90". One that is newer than NVRTC itself gives PTX, see `choose_architecture`.
        name: of the files; letters, digits and underscores.
        werror: warnings as errors (for the tests).

    Raises:
        CompileError: NVRTC is not there, or refuses the source. The text has its messages, its options and the path
            of the source, which is kept.
    """
    if not re.fullmatch(r"\w+", name, re.ASCII):
        raise ValueError(f"the name of an image is letters, digits and underscores, not {name!r}")
    started = time.perf_counter()
    nvrtc, version = loaded_nvrtc()
    found = choose_architecture(architecture, nvrtc.getSupportedArchs())
    own = _bounds(found)
    options = tuple(f"-D{name}={_RUNGS[rung][0]}" for name, rung in own.items())
    compiler = _Compiler(nvrtc, version, (found.option, *_OPTIONS, *options), found.form, own, werror)
    cache = replace(open_cache(), source_suffix=".cu", library_suffix=f".{found.form}")
    key = make_key(name, str(CUDA_VERSION), source, *compiler.options, f"NVRTC {version}", f"werror {werror}")

    def build(writable: Cache) -> CacheEntry:
        with reported(f"compiling kernels for the GPU, {architecture}"):
            return compiler.build(writable, key, source)

    (entry, image), hit = find_or_build(cache, key, _read, build)
    return CompiledCuda(image, found, entry.library, entry.source, time.perf_counter() - started, hit)


def _read(entry: CacheEntry) -> tuple[CacheEntry, bytes]:
    try:
        return entry, entry.library.read_bytes()
    except OSError as error:
        raise CompileError(f"the image compiled from {entry.source} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _Compiler:
    nvrtc: Any
    version: tuple[int, int]
    options: tuple[str, ...]
    form: Form
    bounds: dict[str, int]
    werror: bool

    def build(self, cache: Cache, key: str, source: str) -> CacheEntry:
        """The image in the cache."""
        with cache.workspace(key) as built:
            built.source.write_text(source, encoding="utf-8")
            image, log = self._without_spilling(source, built.source.name)
            # NVRTC has no option that makes its warnings errors.
            if image is None or (self.werror and log.strip()):
                kept = cache.keep_failed(built, key)
                raise CompileError(
                    f"NVRTC {self.version[0]}.{self.version[1]} refuses {kept}\n"
                    f"{log.strip() or '(it said nothing)'}\n"
                    f"options: {' '.join(self.options)}"
                )
            built.library.write_bytes(image)
            return cache.publish(built, key)

    def _without_spilling(self, source: str, file_name: str) -> tuple[bytes | None, str]:
        """As `compile`, and again with looser bounds for kernels that keep registers in local memory."""
        own = dict(re.findall(rf"#define {BOUNDS}(\w+) (\w+)$", source, re.M))
        rungs: dict[str, int] = {}
        while True:
            bounds = tuple(f"-D{BOUNDS}{kernel}={_RUNGS[rung][0]}" for kernel, rung in rungs.items())
            image, log = self.compile(source, file_name, bounds)
            moved = False
            for name, spilled in self._spilled(image).items():
                tried = rungs.get(name, self.bounds.get(own.get(name, ""), _USUAL))
                if tried + 1 < len(_RUNGS):
                    rungs[name] = _looser(tried, spilled)
                    moved = True
            if not moved:
                return image, log

    def _spilled(self, image: bytes | None) -> dict[str, int]:
        """Bytes of local memory, of the kernels that have any."""
        if image is None or self.form != "cubin":
            return {}
        return {name: kernel.local_bytes for name, kernel in read_cubin(image).items() if kernel.local_bytes}

    def compile(self, source: str, file_name: str, defined: tuple[str, ...] = ()) -> tuple[bytes | None, str]:
        """The image, None where the source is refused, and what the compiler says."""
        program = self.nvrtc.createProgram(source, file_name, (), ())
        try:
            try:
                self.nvrtc.compileProgram(program, (*self.options, *defined))
            except self.nvrtc.NVRTCError as error:
                return None, self.nvrtc.getProgramLog(program) or str(error)
            if self.form == "ptx":
                return bytes(self.nvrtc.getPTX(program)), self.nvrtc.getProgramLog(program)
            # CuPy takes the last byte for the end of a string; it is the last of the program headers, and a zero.
            return bytes(self.nvrtc.getCUBIN(program)) + b"\0", self.nvrtc.getProgramLog(program)
        finally:
            self.nvrtc.destroyProgram(program)


def _bounds(architecture: Architecture) -> dict[str, int]:
    """The bounds with which kernels begin, by the names that their sources have for them."""
    if architecture.form == "ptx":  # no spills are seen here, and none are asked for
        return {}
    four_at_most = architecture.number == 75  # its multiprocessors hold 1024 threads
    return {"OPTPY_OCCUPANCY": _FOUR if four_at_most else _SIX, "OPTPY_OCCUPANCY_OF_ALL": _FOUR}


def _looser(tried: int, spilled: int) -> int:
    """The first bounds, looser than those tried, that leave registers for half of the bytes that were spilled: most
    kernels that spill lack fewer registers than they spill."""
    enough = _RUNGS[tried][1] + spilled // 8
    looser = range(tried + 1, len(_RUNGS))
    return next((rung for rung in looser if _RUNGS[rung][1] >= enough), looser[-1])


def import_cupy() -> Any:
    """The module, which is big, and is imported only where it is used."""
    if "cupy" not in sys.modules:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # what it warns of at its import may not be what hinders us
            import cupy
    import cupy

    return cupy


def loaded_nvrtc() -> tuple[Any, tuple[int, int]]:
    """CuPy's module of NVRTC, which loads the library at the first call; and the library's version.

    Raises:
        CompileError: CuPy or NVRTC is not there; the text has the cure.
    """
    try:
        cupy = import_cupy()
    except Exception as error:  # whatever is wrong with its installation
        raise CompileError(
            f"NVRTC, CUDA's compiler library, is called through CuPy, which does not import ({one_line(error)}); "
            "pip install 'optpy[cuda12]' or 'optpy[cuda13]'"
        ) from error
    try:
        return cupy.cuda.nvrtc, tuple(cupy.cuda.nvrtc.getVersion())
    except Exception as error:  # CuPy has had several for a library that it does not find
        extra = "cuda12" if cupy.cuda.runtime.runtimeGetVersion() < 13000 else "cuda13"
        raise CompileError(
            f"NVRTC, CUDA's compiler library, cannot be loaded ({one_line(error)}); pip install 'optpy[{extra}]'"
        ) from error


def one_line(error: Exception) -> str:
    """An error that others raised, within a sentence."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
