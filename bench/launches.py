"""`python -m bench.launches [CASE ...]`: the host's time to queue conjugate gradients for a GPU; no GPU needed.

The device does nothing: what is measured is Python alone, from `CudaPcgKernels.iterate` to the driver's door. The time
is that of the calling thread, without other processes'; CuPy's and the driver's share of a launch is not in it.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from bench.__main__ import CASES, load_case
from bench.case import Case
from bench.report import show
from optpy.api.pipeline import derive_cuda
from optpy.ir import Extent
from optpy.kernels.runtime.buffers import Buffers
from optpy.kernels.runtime.cuda.device import LoadedKernel
from optpy.kernels.runtime.cuda.executor import CudaExecutor, CudaLibrary
from optpy.linear.jacobi.jacobi import DIAGONAL
from optpy.linear.pcg.cuda_kernels import CudaPcgKernels

SIZE = 64
"""Of each dim: what the host does for a launch does not depend on it."""
ITERATIONS, REPEAT = 200, 40


@final
@dataclass(slots=True, eq=False)
class IdleKernel:
    """A kernel that is never run."""

    name: str
    registers: int = 32
    local_bytes: int = 0


@final
class IdleModule:
    """A source that is not compiled."""

    seconds = 0.0
    cache_hit = True

    def kernel(self, name: str) -> LoadedKernel:
        """Any kernel."""
        return IdleKernel(name)


@final
class IdleDevice:
    """A GPU, as `optpy.kernels.runtime.cuda.device.Device`, that takes launches and does nothing."""

    name, number, architecture, multiprocessors = "idle GPU", 0, "sm_90", 132
    xp: Any = np

    def __init__(self) -> None:
        self.launches = 0

    def current(self) -> AbstractContextManager[None]:
        """Nothing to enter."""
        return nullcontext()

    def load(self, source: str) -> IdleModule:
        """Compile nothing."""
        return IdleModule()

    def launch(
        self, kernel: LoadedKernel, blocks: int, threads: int, context: ctypes.Structure, cooperative: bool = False
    ) -> None:
        """Count."""
        self.launches += 1

    def resident_blocks(self, kernel: LoadedKernel, threads: int) -> int:
        """As of a kernel of 64 registers."""
        return 4 * self.multiprocessors

    def address(self, array: Any) -> int:
        """Where it begins."""
        return int(array.ctypes.data)

    def to_host(self, array: Any) -> NDArray[Any]:
        """A copy."""
        return np.array(array)

    def shared_with_host(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int]:
        """Zeros."""
        array = np.zeros(shape, dtype)
        return array, self.address(array)

    def mark(self) -> Any:
        """Nothing waits."""
        raise NotImplementedError

    def free_memory(self) -> int:
        """Enough."""
        return 2**40


@final
@dataclass(frozen=True, slots=True)
class Queued:
    """Conjugate gradients of a case, queued: microseconds, and launches in an iteration."""

    case: str
    launches: float
    iteration: float

    @property
    def launch(self) -> float:
        """Microseconds of one launch."""
        return self.iteration / self.launches


def _kernels(case: Case, device: IdleDevice) -> CudaPcgKernels:
    program = derive_cuda(case.energy.problem, "float32").listing
    sizes: dict[Extent, int] = dict.fromkeys(program.symbols.sizes, SIZE)
    executor = CudaExecutor(
        CudaLibrary(program, device), Buffers(program.symbols, sizes, "float32", np, program.layout)
    )
    return CudaPcgKernels(executor, case.energy.problem.unknowns, DIAGONAL, damped=False)


def measure(case: Case, iterations: int = ITERATIONS, repeat: int = REPEAT) -> Queued:
    """The fastest of some runs of so many iterations each."""
    device = IdleDevice()
    kernels = _kernels(case, device)
    kernels.iterate(reset=False)

    def seconds() -> Iterator[float]:
        for _ in range(repeat):
            started = time.thread_time()
            for _ in range(iterations):
                kernels.iterate(reset=False)
            yield time.thread_time() - started

    before = device.launches
    fastest = min(seconds())
    return Queued(case.name, (device.launches - before) / (iterations * repeat), 1e6 * fastest / iterations)


def main(arguments: list[str] | None = None) -> list[Queued]:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m bench.launches", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; the first five if none is named")
    settings = parser.parse_args(arguments)
    found = [measure(load_case(name)) for name in settings.cases or CASES[:5]]
    table = Table(title="microseconds of the host to queue conjugate gradients")
    for name in ("case", "launches", "an iteration", "a launch"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for q in found:
        table.add_row(q.case, f"{q.launches:.0f}", f"{q.iteration:.1f}", f"{q.launch:.1f}")
    show(table)
    return found


if __name__ == "__main__":
    main()
