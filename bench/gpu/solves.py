"""Whole solves on a GPU and on the CPU, from the same start with the same options, in the same run."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any, final

import optpy as op
from bench.case import Case, Data
from bench.gpu.bench import gpu_solver
from bench.gpu.counting import CountingDevice, Counts
from optpy.api.plan import Solver

ITERATIONS = 10
"""Nonlinear ones of each solve, at most."""
PRECONDITIONERS = ("auto", "block_jacobi")
"""On grids "auto" comes to multigrid, on a GPU too; on graphs to multigrid or Cholesky, on the CPU."""


@final
@dataclass(frozen=True, slots=True)
class Solve:
    """One solve; binding the data counts, compiling does not."""

    case: str
    size: int
    dtype: str
    device: str
    seconds: float
    cost: float
    initial_cost: float
    nonlinear: int
    linear: int
    status: str
    launches: int = 0
    host_reads: int = 0
    waits: int = 0


def measure(case: Case, size: int, data: Data, dtype: str, device: CountingDevice, threads: int) -> tuple[Solve, ...]:
    """On the GPU, and on the CPU unless it has no threads; each by its defaults, and with block-Jacobi.

    Args:
        data: arrays of the device's module, or NumPy's.
        threads: of the CPU; 0 leaves it out.
    """
    solver = gpu_solver(case, dtype, device)
    rows = []
    for preconditioner in PRECONDITIONERS:
        options: dict[str, Any] = {"preconditioner": preconditioner}
        _solve(solver, case, data, options)  # compiles what is compiled when it is first needed
        before = device.counts.copy()
        seconds, result = _solve(solver, case, data, options)
        counts = device.counts.copy() - before
        rows.append(_row(case, size, dtype, f"cuda, {preconditioner}", seconds, result, counts))
    if threads:
        on_host = {name: device.inner.to_host(a) if hasattr(a, "get") else a for name, a in data.items()}
        cpu = op.compile(case.energy, device="cpu", dtype=dtype)
        for preconditioner in PRECONDITIONERS:
            options = {"preconditioner": preconditioner, "threads": threads}
            taken, reached = _solve(cpu, case, on_host, options)
            rows.append(_row(case, size, dtype, f"cpu, {threads} threads, {preconditioner}", taken, reached, Counts()))
    return tuple(rows)


def cpu_seconds(case: Case, group: str, data: Data, dtype: str, device: CountingDevice, threads: int) -> float:
    """One run of a group on the CPU: the fastest of three short runs of it."""
    on_host = {name: device.inner.to_host(a) if hasattr(a, "get") else a for name, a in data.items()}
    solver = op.compile(case.energy, device="cpu", dtype=dtype)
    session = solver.start(on_host, method=case.method, threads=threads, preconditioner="jacobi")
    once = session.benchmark(group, 1)
    repeat = max(1, round(0.2 / once))
    return min(session.benchmark(group, repeat) for _ in range(3))


def _solve(solver: Solver, case: Case, data: Data, options: dict[str, Any]) -> tuple[float, op.SolveResult]:
    begin = time.perf_counter()
    result = solver.solve(data, method=case.method, max_iterations=ITERATIONS, **options)
    return time.perf_counter() - begin, result


def _row(
    case: Case, size: int, dtype: str, device: str, seconds: float, result: op.SolveResult, counts: Counts
) -> Solve:
    return Solve(
        case=case.name,
        size=size,
        dtype=dtype,
        device=device,
        seconds=seconds,
        cost=float(result.cost),
        initial_cost=float(result.initial_cost),
        nonlinear=result.nit,
        linear=sum(record.linear_iterations for record in result.iterations),
        status=result.status.name,
        launches=counts.launches,
        host_reads=counts.host_reads,
        waits=counts.waits,
    )


def as_record(row: Solve) -> dict[str, Any]:
    """For JSON."""
    return asdict(row)
