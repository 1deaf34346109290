"""How fast the routines of a solve run on a GPU, as a fraction of the copy bandwidth measured around them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from bench.bandwidth import Copy
from bench.gpu.bench import Bench
from bench.gpu.copies import GpuCopyMeter
from bench.gpu.counting import Counts
from bench.traffic import bytes_per_pixel
from optpy.ir import Group

SHORT, LONG = 10, 60
"""Iterations of the two linear solves whose difference is the time of an iteration: few enough that the residual does
not sink to denormal numbers."""

ROUTINES = ("applyJTJ", "evalJTF", "cost")


@final
@dataclass(frozen=True, slots=True)
class Budget:
    """How long one measurement goes on.

    Attributes:
        seconds: of one run, which repeats the routine.
        runs: of which the fastest counts, as of the copies.
        repeat: of a routine in one run, at most.
    """

    seconds: float = 0.03
    runs: int = 5
    repeat: int = 2000


@final
@dataclass(frozen=True, slots=True)
class KernelTime:
    """One routine at one size. Rates are those of the fastest run, as the copy's is."""

    case: str
    routine: str
    size: int
    dtype: str
    unit: str
    """What is counted in a second: "pixel", "point" or "edge"."""
    pixels: int
    """Or vertices."""
    edges: int
    bytes_moved: int
    """Counted: every array that the routine needs goes through memory once; no padding is counted."""
    seconds: float
    seconds_median: float
    memory: Copy
    same_size: Copy
    """The copy that moves as many bytes: of a small picture it stays in the caches too."""
    launches: float
    """Of kernels, for one run of the routine."""
    host_reads: float
    """Within one run, or within one iteration."""
    start_seconds: float = 0.0
    """Of "pcg": what a linear solve takes beside its iterations, with what is queued after it."""
    start_launches: float = 0.0
    start_host_reads: float = 0.0

    @property
    def billions_per_second(self) -> float:
        """Pixels, or edges, in a nanosecond."""
        return 1e-9 * (self.edges if self.unit == "edge" else self.pixels) / self.seconds

    @property
    def bandwidth(self) -> float:
        """Bytes counted in a second."""
        return self.bytes_moved / self.seconds

    @property
    def fraction(self) -> float:
        """Of the copy bandwidth of the memory."""
        return self.bandwidth / self.memory.bandwidth

    @property
    def fraction_same_size(self) -> float:
        """Of the copy bandwidth where as many bytes are moved."""
        return self.bandwidth / self.same_size.bandwidth


def measure(bench: Bench, size: int, meter: GpuCopyMeter, budget: Budget) -> Iterator[KernelTime]:
    """The product with J^T J (+ D), the gradient, the cost, and an iteration of conjugate gradients."""
    for routine in (*ROUTINES, "pcg"):
        yield _measured(bench, routine, size, meter, budget)


def bytes_moved(bench: Bench, routine: str) -> int:
    """Every array that a routine needs, once: what must be moved, without the padding of rows and points.

    applyJTJ and pcg are counted as bench/traffic.py does. The cost reads all data, and evalJTF writes the gradient and
    the diagonal of J^T J beside.
    """
    case, itemsize = bench.case, np.dtype(bench.dtype).itemsize
    pixels, edges = case.elements(bench.data)
    if routine in ("applyJTJ", "pcg"):
        count = case.traffic.apply_jtj(itemsize) if routine == "applyJTJ" else case.traffic.pcg(itemsize)
        return pixels * bytes_per_pixel(count) + edges * case.traffic.bytes_per_edge(itemsize)
    sizes = {"f": itemsize, "i": 4, "b": 1, "u": 1}
    graphs = {g.name for g in case.energy.graphs}
    data = sum(
        a.size * (4 if name in graphs else sizes[a.dtype.kind])
        for name, a in bench.data.items()
        if hasattr(a, "dtype") and a.ndim
    )
    vector = case.traffic.unknown_channels * itemsize
    return int(data) + (2 * pixels * vector if routine == "evalJTF" else 0)


def _measured(bench: Bench, routine: str, size: int, meter: GpuCopyMeter, budget: Budget) -> KernelTime:
    moved = bytes_moved(bench, routine)
    facts: dict[str, float] = {}
    if routine == "pcg":
        run, facts = _iteration(bench, budget)
    else:
        group = bench.product if routine == "applyJTJ" else Group.named(routine)
        run, counts = _routine(bench, group, budget), bench.launches(group)
        facts = dict(launches=counts.launches, host_reads=counts.host_reads)
    runs, copies = [], (meter.memory(), meter.measure(moved))
    for _ in range(budget.runs):
        runs.append(run())
        copies = meter.memory(), meter.measure(moved)
    seconds = min(runs)
    if routine == "pcg":
        facts["start_seconds"] = max(0.0, _solve_seconds(bench, 1, budget) - seconds)
    pixels, edges = bench.case.elements(bench.data)
    return KernelTime(
        case=bench.case.name,
        routine=routine,
        size=size,
        dtype=bench.dtype,
        unit=bench.case.unit,
        pixels=pixels,
        edges=edges,
        bytes_moved=moved,
        seconds=seconds,
        seconds_median=statistics.median(runs),
        memory=copies[0],
        same_size=copies[1],
        **facts,
    )


def _routine(bench: Bench, group: Group, budget: Budget) -> Callable[[], float]:
    bench.run(group, 1)  # compiles, where that has not happened
    repeat = max(1, min(budget.repeat, round(budget.seconds / bench.run(group, 3))))
    return lambda: bench.run(group, repeat)


def _iteration(bench: Bench, budget: Budget) -> tuple[Callable[[], float], dict[str, float]]:
    """The difference of a long linear solve and a short one, for each iteration between them."""
    _, long, _ = bench.linear_solve(LONG)  # compiles, the first time; small problems may have no residual left before
    short = min(SHORT, long // 2)
    if not short:
        raise RuntimeError(f"the linear solve ended after {long} iterations: too few to be timed")
    counts = [bench.linear_solve(iterations)[2] for iterations in (short, long)]
    between: Counts = counts[1] - counts[0]
    n = long - short
    facts = {
        "launches": between.launches / n,
        "host_reads": between.host_reads / n,
        "start_launches": counts[0].launches - short * between.launches / n,
        "start_host_reads": counts[0].host_reads - short * between.host_reads / n,
    }

    def run() -> float:
        return max(_solve_seconds(bench, long, budget) - _solve_seconds(bench, short, budget), 1e-9) / n

    return run, facts


def _solve_seconds(bench: Bench, iterations: int, budget: Budget) -> float:
    """The fastest of as many solves as fit into the time of one run; three at least."""
    found: list[float] = []
    while len(found) < 3 or (sum(found) < budget.seconds and len(found) < budget.repeat):
        found.append(bench.linear_solve(iterations)[0])
    return min(found)


def as_record(row: KernelTime) -> dict[str, Any]:
    """For JSON, with the rates."""
    rates = ("billions_per_second", "bandwidth", "fraction", "fraction_same_size")
    copies = {"copy_bandwidth": row.memory.bandwidth, "copy_bandwidth_same_size": row.same_size.bandwidth}
    return {**asdict(row), **copies, **{name: getattr(row, name) for name in rates}}
