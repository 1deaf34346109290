"""`python -m bench.search`: thousands of small random problems with known minima, solved in every way that applies.

Families of problems (linear fits, splines, circles, poses, cameras, pictures, graphs, robust losses, ...) x float32 and
float64 x Levenberg-Marquardt and Gauss-Newton x the preconditioners, with default options otherwise. A solve is

- right: a success whose objective is at most 1e-3 of the minimum above it, and what rounding adds;
- short: a success in float64 where all residuals can be zero, above what rounding adds, but not above what rounding in
  float32 would add: a gradient is below an absolute tolerance, and that is not zero;
- at another minimum: a success above that, where the gradient vanishes, and from beside which no other solver comes
  lower;
- right, no success: it is at the minimum, but says that it has not converged;
- failed: it is not, and says so;
- an error: an exception;
- WRONG: a success, and none of these.

The minimum is the lowest of what a dense factorisation finds in float64 from the solution that the problem was made of,
for the data as the dtype rounds them, and of all runs. What rounding adds: every number of the data and of the solution
is changed by a unit roundoff of the dtype; ten times the largest change of each residual, squared, summed and halved.
The exit status is 1 if any run is WRONG.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from bench import machine, report
from bench.search import report as tables
from bench.search.family import DTYPES
from bench.search.solving import FAMILIES, METHODS, PRECONDITIONERS, Ways, search
from bench.search.verdict import Run

CHUNK = 20
"""Problems of a family that a process takes at a time."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000, help="problems of all families together")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--seed", type=int, help="only this problem of each family")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--method", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--preconditioner", nargs="+", choices=PRECONDITIONERS, default=PRECONDITIONERS)
    parser.add_argument("--list", type=int, default=100, metavar="N", help="wrong runs to print; all are in the JSON")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    return parser.parse_args(arguments)


def run(settings: argparse.Namespace) -> list[Run]:
    """All runs, in the order of the families."""
    names = settings.only or list(FAMILIES)
    each = -(-settings.count // len(names))
    seeds = range(each) if settings.seed is None else [settings.seed]
    chunks = [(name, list(seeds[k : k + CHUNK])) for name in names for k in range(0, len(seeds), CHUNK)]
    ways = Ways(settings.dtype, settings.method, settings.preconditioner)
    if settings.processes == 1 or len(chunks) == 1:
        return [run for name, some in chunks for run in search(name, some, ways)]
    # Small dense matrices: threads of the BLAS would only wait for each other.
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
    runs: list[Run] = []
    with ProcessPoolExecutor(settings.processes, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(search, name, some, ways) for name, some in chunks]
        for (name, _), future in zip(chunks, futures, strict=True):
            runs += future.result()
            _tell(name, runs)
    return runs


def _tell(name: str, runs: list[Run]) -> None:
    """How far it is, for who waits."""
    wrong = sum(run.verdict == "WRONG" for run in runs)
    print(f"{name}: {len(runs)} runs so far, {wrong} wrong", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables and the wrong runs; leaves JSON in bench/results. Returns 1 if any run is wrong."""
    settings = parse(arguments)
    runs = run(settings)
    report.show(tables.counts(runs, ("family", "dtype"), "verdicts by family"))
    report.show(tables.counts(runs, ("dtype", "method", "preconditioner"), "verdicts by way"))
    verdicts = Counter(r.verdict for r in runs)
    if verdicts["WRONG"]:
        report.show(tables.classes(runs))
    for line in islice(tables.lines(runs), settings.list):
        print(line)
    listed = verdicts["WRONG"] + verdicts["error"]
    if listed > settings.list:
        print(f"and {listed - settings.list} more, in the JSON")
    _save(runs, settings.output)
    problems = len({(r.family, r.seed) for r in runs})
    print(f"{problems} problems, {len(runs)} runs: {verdicts['WRONG']} successes are wrong")
    return 1 if verdicts["WRONG"] else 0


def _save(runs: list[Run], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    path = output / "search.json"
    path.write_text(json.dumps({"machine": machine.describe(), "runs": [r.as_record() for r in runs]}, indent=1))
    print(path)


if __name__ == "__main__":
    sys.exit(main())
