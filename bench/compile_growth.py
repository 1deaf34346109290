"""`python -m bench.compile_growth [FAMILY ...]`: what compiling takes as an energy grows, each size in a fresh process.

Seconds of processor time, of the symbolic part and of the C compiler (all its processes), the seconds on the clock
beside them, the nodes of the expressions that are printed, and the lines of C. A family ends at the first size that
takes longer than ``--limit``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from rich.table import Table

from bench.growing import FAMILIES
from bench.report import show


@final
@dataclass(frozen=True, slots=True)
class Growth:
    """An energy of one size, compiled with an empty cache. Times are seconds."""

    family: str
    size: int
    build: float
    """Of the processor, until the energy is there."""
    derive: float
    """Of the processor, until there is a C source."""
    compiler: float
    """Of the processor, in compilers."""
    wall: float
    """Of the clock, for all of it."""
    nodes: int
    """Of all kernels together."""
    lines: int
    """Of their C."""


def measure(family: str, size: int) -> Growth:
    """In this process; the cache must be empty but for what no energy changes."""
    from optpy.api.pipeline import cpu_backend, derive
    from optpy.symbolic.order import topological

    sys.setrecursionlimit(1000)  # as Python has it, whoever imported what
    started, begin = time.perf_counter(), time.process_time()
    energy = FAMILIES[family].energy(size)
    built = time.process_time()
    listing = derive(energy.problem, "float32").listing
    derived = time.process_time()
    wall = time.perf_counter() - started
    before = _children()
    backend = cpu_backend(energy.problem, "float32")
    backend.prepare(damped=None)
    return Growth(
        family,
        size,
        built - begin,
        derived - built,
        _children() - before,
        wall + backend.timing.build,
        sum(len(topological(k.border.roots)) for k in listing.kernels),
        listing.source.count("\n"),
    )


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _fresh(family: str, size: int, folder: str, limit: float) -> Growth | str:
    command = [sys.executable, "-m", "bench.compile_growth", "--one", family, str(size)]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OPTPY_CACHE_DIR": folder},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, wrong = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # its compilers, too
        process.communicate()
        return f"more than {limit:g} s"
    if process.returncode:
        return (wrong.strip().splitlines() or [f"ended by {process.returncode}"])[-1][:200]
    return Growth(**json.loads(said))


def _arguments() -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m bench.compile_growth", description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("families", nargs="*", choices=[*FAMILIES, []], default=[], metavar="FAMILY")
    made.add_argument("--limit", type=float, default=120.0, help="seconds for one size")
    made.add_argument("--sizes", type=int, nargs="*", help="in place of those of each family")
    made.add_argument("--output", type=Path, help="folder for a file of JSON")
    made.add_argument("--one", nargs=2, metavar=("FAMILY", "SIZE"), help=argparse.SUPPRESS)
    return made.parse_args()


def main() -> None:
    """Measures the families that are asked for, or all."""
    settings = _arguments()
    if settings.one:
        print(json.dumps(asdict(measure(settings.one[0], int(settings.one[1])))))
        return
    table = Table("family", "size", "energy s", "derive s", "compiler s", "wall s", "nodes", "lines of C")
    found: list[Growth] = []
    with TemporaryDirectory(prefix="optpy-bench-") as folder:
        _fresh("sines", 1, folder, settings.limit)  # compiles what no energy changes
        for family in settings.families or FAMILIES:
            for size in settings.sizes or FAMILIES[family].sizes:
                row = _fresh(family, size, folder, settings.limit)
                print(row, file=sys.stderr, flush=True)
                if isinstance(row, str):
                    table.add_row(family, str(size), row)
                    break
                found.append(row)
                seconds = [f"{x:.2f}" for x in (row.build, row.derive, row.compiler, row.wall)]
                table.add_row(family, str(size), *seconds, str(row.nodes), str(row.lines))
    show(table)
    if settings.output:
        settings.output.mkdir(parents=True, exist_ok=True)
        (settings.output / "compile_growth.json").write_text(json.dumps([asdict(r) for r in found], indent=1))


if __name__ == "__main__":
    main()
