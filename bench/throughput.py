"""How fast the kernels of a solve run, as a fraction of the copy bandwidth measured around them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

import optpy as op
from bench.bandwidth import Copy, CopyMeter
from bench.case import Case
from bench.traffic import bytes_per_pixel, explain
from optpy.api.session import Session

PCG_ITERATIONS = 50
"""Of one linear solve: enough to hide its start, too few for the residual to sink to denormal numbers."""

SECONDS = 0.1  # of one run, which repeats the routine
RUNS = 7


@final
@dataclass(frozen=True, slots=True)
class Throughput:
    """One routine at one size. Rates are those of the fastest run, as the copy's is."""

    case: str
    routine: str
    size: int
    dtype: str
    threads: int
    unit: str
    """What is counted in a second: "pixel", "point" or "edge"."""
    pixels: int
    """Or vertices."""
    edges: int
    bytes_per_pixel: int
    bytes_per_edge: int
    count: str
    seconds: float
    seconds_median: float
    memory: Copy
    same_size: Copy
    """The copy that moves as many bytes: of a small picture it stays in the caches too."""

    @property
    def millions_per_second(self) -> float:
        """Pixels, or edges, in a microsecond."""
        return 1e-6 * (self.edges if self.unit == "edge" else self.pixels) / self.seconds

    @property
    def bytes_moved(self) -> int:
        """Counted, of one run."""
        return self.pixels * self.bytes_per_pixel + self.edges * self.bytes_per_edge

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


def measure(case: Case, size: int, dtype: str, threads: int, meter: CopyMeter) -> Iterator[Throughput]:
    """applyJTJ, then a PCG iteration, on a picture of `size` x `size`, or a mesh of as many vertices."""
    data = case.data(size)
    pixels, edges = case.elements(data)
    solver = op.compile(case.energy, device="cpu", dtype=dtype)
    session = solver.start(data, method=case.method, threads=threads)
    itemsize = np.dtype(dtype).itemsize
    counts = {"applyJTJ": case.traffic.apply_jtj(itemsize), "pcg": case.traffic.pcg(itemsize)}
    of_edge = case.traffic.bytes_per_edge(itemsize)
    for routine, count in counts.items():
        bytes_moved = pixels * bytes_per_pixel(count) + edges * of_edge
        runs, (memory, same_size) = _alternate(session, routine, bytes_moved, meter)
        yield Throughput(
            case=case.name,
            routine=routine,
            size=size,
            dtype=dtype,
            threads=threads,
            unit=case.unit,
            pixels=pixels,
            edges=edges,
            bytes_per_pixel=bytes_per_pixel(count),
            bytes_per_edge=of_edge,
            count=explain(count, of_edge),
            seconds=min(runs),
            seconds_median=statistics.median(runs),
            memory=memory,
            same_size=same_size,
        )


def _alternate(
    session: Session, routine: str, bytes_moved: int, meter: CopyMeter
) -> tuple[list[float], tuple[Copy, Copy]]:
    """Runs and copies by turns, so that whatever else the machine does meets both."""
    once = session.benchmark(routine, 1)
    repeat = PCG_ITERATIONS if routine == "pcg" else max(1, round(SECONDS / once))
    solves = max(1, round(SECONDS / (once * repeat)))
    runs = []
    for _ in range(RUNS):
        copies = meter.memory(), meter.measure(bytes_moved)
        runs.append(statistics.fmean(session.benchmark(routine, repeat) for _ in range(solves)))
    return runs, copies


def as_record(row: Throughput) -> dict[str, Any]:
    """For JSON, with the rates."""
    rates = ("millions_per_second", "bandwidth", "fraction", "fraction_same_size")
    copies = {"copy_bandwidth": row.memory.bandwidth, "copy_bandwidth_same_size": row.same_size.bandwidth}
    return {**asdict(row), **copies, **{name: getattr(row, name) for name in rates}}
