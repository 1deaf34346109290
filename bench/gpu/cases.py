"""One case on a GPU at all sizes: everything that `python -m bench.gpu` measures of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO, final

from rich.console import Console
from rich.table import Table

from bench.case import Case
from bench.gpu import beside, kernels, overhead, solves, targets
from bench.gpu.bench import Bench
from bench.gpu.copies import GpuCopyMeter
from bench.gpu.counting import CountingDevice
from bench.gpu.data import made
from bench.gpu.kernels import Budget
from bench.gpu.report import beside_table, kernel_table, overhead_table, solve_table
from optpy.errors import OptpyError
from optpy.kernels.runtime.cuda.device import Device

PARTS = ("kernels", "overhead", "beside", "cpu", "solves")
"""The routines; the work of an iteration and the rest of it; other peers; the CPU's product; whole solves."""


@final
@dataclass(slots=True)
class Found:
    """What a run has measured so far."""

    kernels: list[kernels.KernelTime] = field(default_factory=list)
    overheads: list[overhead.Overhead] = field(default_factory=list)
    besides: list[beside.Beside] = field(default_factory=list)
    solves: list[solves.Solve] = field(default_factory=list)
    cpu: dict[str, float] = field(default_factory=dict)
    """Of "CASE SIZE": how many times faster the product is than on the CPU."""
    skipped: list[str] = field(default_factory=list)
    """What was not measured, and why."""

    def add(self, other: Found) -> None:
        """All of another one."""
        for name in ("kernels", "overheads", "besides", "solves", "skipped"):
            getattr(self, name).extend(getattr(other, name))
        self.cpu.update(other.cpu)

    @property
    def targets(self) -> list[targets.Target]:
        """What they say of the targets."""
        return targets.targets(self.kernels, self.besides, self.overheads, self.cpu)

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "kernels": [kernels.as_record(row) for row in self.kernels],
            "overhead": [overhead.as_record(row) for row in self.overheads],
            "beside": [beside.as_record(row) for row in self.besides],
            "solves": [solves.as_record(row) for row in self.solves],
            "times_faster_than_the_cpu": self.cpu,
            "skipped": self.skipped,
        }


@final
class Screen:
    """Where tables go: to a file, where one is given, else to the terminal.

    Args:
        file: for tables and remarks; lines of progress go to the terminal all the same.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._console = Console(file=file, width=150) if file is not None or not Console().is_terminal else Console()

    def table(self, table: Table) -> None:
        """One table."""
        self._console.print(table)
        if self._file is not None:
            self._file.flush()

    def line(self, text: str) -> None:
        """One line, on the terminal and in the file."""
        print(text, flush=True)
        if self._file is not None:
            print(text, file=self._file, flush=True)


@final
@dataclass(frozen=True, slots=True)
class Run:
    """How cases are measured.

    Args:
        threads: of the CPU; 0 leaves it out.
        deadline: a value of `time.perf_counter()` after which nothing new begins.
    """

    device: Device
    meter: GpuCopyMeter
    screen: Screen
    dtype: str
    threads: int
    budget: Budget
    deadline: float

    def measure(self, case: Case, sizes: Iterable[int], parts: Iterable[str]) -> Found:
        """The parts but whole solves, at all sizes."""
        found, wanted = Found(), set(parts)
        for size in sizes:
            with self._guarded(found, f"{case.name} {size}²"):
                self._check_time()
                self._at_size(case, size, wanted, found)
            self.free_memory()
        if found.kernels:
            self.screen.table(kernel_table(found.kernels))
        if found.overheads:
            self.screen.table(overhead_table(found.overheads))
        if found.besides:
            self.screen.table(beside_table(found.besides))
        return found

    def _at_size(self, case: Case, size: int, parts: set[str], found: Found) -> None:
        begin = time.perf_counter()
        bench = Bench.of(case, made(case, size, self.device.xp), self.dtype, self.device)
        rows: list[kernels.KernelTime] = []
        if parts & {"kernels", "overhead"}:
            for row in kernels.measure(bench, size, self.meter, self.budget):
                rows.append(row)
                found.kernels.append(row)
        if "overhead" in parts:
            found.overheads.append(overhead.measure(bench, rows[-1], self.budget))
        if "cpu" in parts and self.threads:
            ours = min(bench.run(bench.product, 20) for _ in range(self.budget.runs))
            theirs = solves.cpu_seconds(case, bench.product, bench.data, self.dtype, bench.device, self.threads)
            found.cpu[f"{case.name} {size}"] = theirs / ours
            self.screen.line(f"{case.name} {size}²: {theirs / ours:.1f} times the CPU with {self.threads} threads")
        if "beside" in parts:
            found.besides.extend(beside.measure(bench, size, self.budget))
        self.screen.line(f"{case.name} {size}²: {time.perf_counter() - begin:.1f} s, {bench.nbytes / 2**20:.0f} MiB")

    def solve(self, case: Case, sizes: Iterable[int], cpu_at_most: int) -> Found:
        """Whole solves; the CPU takes part up to some size."""
        found = Found()
        for size in sizes:
            with self._guarded(found, f"{case.name} {size}², whole solves"):
                self._check_time()
                threads = self.threads if size <= cpu_at_most else 0
                data = made(case, size, self.device.xp)
                found.solves += solves.measure(case, size, data, self.dtype, CountingDevice(self.device), threads)
            self.free_memory()
        if found.solves:
            self.screen.table(solve_table(found.solves))
        return found

    @contextmanager
    def _guarded(self, found: Found, what: str) -> Iterator[None]:
        """What does not fit, or fails, is told, and the rest goes on."""
        try:
            yield
        except (MemoryError, OptpyError, RuntimeError, ValueError, TimeoutError) as error:
            found.skipped.append(f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:500]}")
            self.screen.line(f"skipped: {found.skipped[-1]}")

    def _check_time(self) -> None:
        """Whether something new may begin.

        Raises:
            TimeoutError: it is too late.
        """
        if time.perf_counter() > self.deadline:
            raise TimeoutError("no time is left")

    def free_memory(self) -> None:
        """CuPy's pool, so that the next size finds all memory."""
        beside.free_memory(self.device.xp)
