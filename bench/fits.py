"""`python -m bench.fits [NAME ...]`: the 27 nonlinear fits that NIST certified, beside SciPy.

Each from both of its starts, 54 runs in all, in float64, with the default options of `op.solve`, and beside it
`scipy.optimize.least_squares` with its default tolerances and exact derivatives. The table has the certified digits
that the worst parameter has right, of 11; what the solver said of itself; and its iterations. A run is

- right, with four digits or more, or wrong;
- a success or not, by its own word: to be wrong and a success is the worst.

The bar: at most two of the 54 runs with fewer than four digits, and none of them called a success; the first start of
BoxBOD is excepted from the latter, as full steps lead from there to where the model no longer depends on b2. The exit
status is 1 where the bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.table import Table

import optpy as op
from bench import machine, report
from bench.nist import ENOUGH, FORMULAS, SITE, Fit, find_fits
from problems.pictures import data_folder

EXCEPTED = ("BoxBOD", 1)
MOST_WRONG = 2
SOLVERS = ("optpy", "scipy lm", "scipy trf")
VERDICTS = ("right, success", "right, no success", "wrong, success", "wrong, no success")


@final
@dataclass(frozen=True, slots=True)
class Run:
    """One solver on one fit, from one of its starts.

    Attributes:
        start: 1 or 2.
        digits: of the worst parameter.
        status: as the solver names it, or the text of an error.
        iterations: nonlinear ones; of SciPy evaluations.
        cost: against half the certified sum.
    """

    fit: str
    start: int
    solver: str
    digits: float
    status: str
    success: bool
    iterations: int
    cost: float

    @property
    def right(self) -> bool:
        """It has found the certified parameters."""
        return self.digits >= ENOUGH

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        return f"{'right' if self.right else 'wrong'}, {'success' if self.success else 'no success'}"


def run(fit: Fit, start: int, solver: str, energy: op.Energy) -> Run:
    """From the start, 1 or 2; an error is a failure."""
    try:
        b, status, success, iterations = (
            _optpy(fit, start, energy) if solver == "optpy" else _scipy(fit, start, solver.split()[1])
        )
    except (ArithmeticError, ValueError) as error:
        return Run(fit.name, start, solver, 0.0, f"{type(error).__name__}: {error}", False, 0, np.inf)
    F = fit.residuals(b)
    return Run(fit.name, start, solver, fit.digits(b), status, success, iterations, float(F @ F) / fit.certified_sum)


def _optpy(fit: Fit, start: int, energy: op.Energy) -> tuple[Any, str, bool, int]:
    result = op.solve(energy, fit.data(start - 1), device="cpu", dtype=np.float64)
    return result.x["b"], result.status.name, result.success, result.nit


def _scipy(fit: Fit, start: int, method: str) -> tuple[Any, str, bool, int]:
    from scipy.optimize import least_squares

    with np.errstate(all="ignore"):
        result = least_squares(fit.residuals, fit.starts[start - 1], jac=fit.jacobian, method=method)
    return result.x, f"{result.status}", bool(result.success), int(result.nfev)


# -- the table -------------------------------------------------------------------------------------------------------


def table(runs: Sequence[Run]) -> Table:
    """One line for each start of each fit."""
    result = Table(title="NIST's certified fits, float64: digits of the worst parameter")
    result.add_column("fit")
    result.add_column("start", justify="right")
    for solver in SOLVERS:
        for name in (solver, "status", "iterations"):
            result.add_column(name, justify="left" if name == "status" else "right")
    for key in dict.fromkeys((r.fit, r.start) for r in runs):
        line = {r.solver: r for r in runs if (r.fit, r.start) == key}
        result.add_row(key[0], str(key[1]), *(cell for solver in SOLVERS for cell in _cells(line[solver])))
    return result


def _cells(r: Run) -> tuple[str, str, str]:
    mark = {"wrong, success": "  WRONG", "right, no success": "  no success", "wrong, no success": "  failed"}
    return f"{r.digits:.2f}", f"{r.status}{mark.get(r.verdict, '')}", f"{r.iterations}"


def verdicts(runs: Sequence[Run]) -> Table:
    """How often each verdict was given, side by side."""
    result = Table(title="verdicts")
    result.add_column("")
    for solver in SOLVERS:
        result.add_column(solver, justify="right")
    counts = {solver: Counter(r.verdict for r in runs if r.solver == solver) for solver in SOLVERS}
    for verdict in VERDICTS:
        result.add_row(verdict, *(str(counts[solver][verdict]) for solver in SOLVERS))
    return result


def missed(runs: Sequence[Run]) -> list[str]:
    """What of the bar optpy's runs miss, in words; nothing where they meet it."""
    wrong = [r for r in runs if r.solver == "optpy" and not r.right]
    claimed = [r for r in wrong if r.success and (r.fit, r.start) != EXCEPTED]
    lines: list[str] = []
    if len(wrong) > MOST_WRONG:
        names = ", ".join(f"{r.fit} {r.start}" for r in wrong)
        lines.append(f"{len(wrong)} runs have fewer than {ENOUGH} digits, not {MOST_WRONG} at most: {names}")
    if claimed:
        names = ", ".join(f"{r.fit} {r.start} ({r.digits:.2f}, {r.status})" for r in claimed)
        lines.append(f"{len(claimed)} of them say that they succeeded: {names}")
    return lines


def _folders(named: Sequence[Path] | None) -> list[Path]:
    if named:
        return list(named)
    folder = data_folder()
    return [] if folder is None else [folder / "nist_strd"]


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables and the bar; leaves JSON in bench/results. Returns 1 where the bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.fits", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as BoxBOD; all if none is named")
    parser.add_argument(
        "--data", action="append", type=Path, metavar="DIR", help="a folder of .dat files; several may be"
    )
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results"))
    settings = parser.parse_args(arguments)
    unknown = [name for name in settings.names if name not in FORMULAS]
    if unknown:
        parser.error(f"no fit {unknown[0]!r}; there are: {', '.join(FORMULAS)}")
    fits, missing = find_fits(_folders(settings.data))
    chosen = [fit for fit in fits if not settings.names or fit.name in settings.names]
    runs = [r for fit in chosen for r in _runs(fit)]
    if runs:
        _show(runs, settings.output)
    if missing:
        print(f"not there: {', '.join(missing)}. NIST publishes them at {SITE}; name their folder by --data DIR")
    lines = missed(runs)
    print(f"the bar, for the {len(runs) // len(SOLVERS)} of {2 * len(FORMULAS)} runs made: " + _bar(runs, lines))
    return 1 if lines else 0


def _runs(fit: Fit) -> list[Run]:
    energy = fit.energy()
    return [run(fit, start, solver, energy) for start in (1, 2) for solver in SOLVERS]


def _bar(runs: Sequence[Run], lines: Sequence[str]) -> str:
    if not runs:
        return "nothing to judge"
    return f"missed; {'; '.join(lines)}" if lines else "met"


def _show(runs: Sequence[Run], output: Path) -> None:
    report.show(table(runs))
    report.show(verdicts(runs))
    output.mkdir(parents=True, exist_ok=True)
    path = output / "fits.json"
    records = [asdict(r) | {"verdict": r.verdict} for r in runs]
    path.write_text(json.dumps({"machine": machine.describe(), "runs": records}, indent=1))
    print(path)


if __name__ == "__main__":
    sys.exit(main())
