"""`python -m bench.files [FILE ...]`: bundles and pose graphs from files, beside Ceres and SciPy.

Every solver runs from the same start to its own end, in a process of its own, so that its memory is known. The table
has for each the cost that it ends at, against that of Ceres; the time that it took; and how long it needed to come
within 0.1 % of Ceres' last cost.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

import optpy as op
from bench import machine, report
from bench.curve import Curve, Point
from bench.peers import PeerMissingError, ceres, least_squares
from problems import bundle_adjustment, pose_graph
from problems.bundle_files import Bundle, read_bundle
from problems.pictures import data_folder
from problems.pose_graph_files import PoseGraph, read_pose_graph

SLACK = 1e-3
MAX_ITERATIONS = 2000
FOLDERS = {"bundle_adjustment": (".txt", ".out"), "pose_graph": (".g2o", ".txt", ".graph")}

Solver = Literal["ceres", "scipy", "float64", "float32"]
SOLVERS: tuple[Solver, ...] = ("ceres", "scipy", "float64", "float32")


@final
@dataclass(frozen=True, slots=True)
class Entrant:
    """One solver on one file."""

    file: str
    solver: Solver
    name: str
    start: float
    cost: float
    """At its end, in float64."""
    seconds: float
    ending: str
    mib: float
    """The largest memory of the process, above what it had when all was read and imported."""
    points: tuple[Point, ...]

    def first_at(self, cost: float) -> float | None:
        """Seconds until it was there."""
        return next((p.seconds for p in self.points if p.cost <= cost), None)


@final
@dataclass(frozen=True, slots=True)
class Missing:
    """A solver that cannot run, and why."""

    file: str
    solver: Solver
    reason: str


def files(named: list[str]) -> list[Path]:
    """Those that are named, else all bundles and pose graphs of the data folder."""
    if named:
        return [Path(name) for name in named]
    folder = data_folder()
    if folder is None:
        return []
    return [p for name, ends in FOLDERS.items() for p in sorted((folder / name).iterdir()) if p.suffix in ends]


def read(path: Path) -> Bundle | PoseGraph:
    """By the first word of the file's first line; a bundle begins with a number, or a remark of Bundler."""
    with path.open() as file:
        first = file.readline().split()
    return read_bundle(path) if first and (first[0].isdigit() or path.suffix == ".out") else read_pose_graph(path)


def energy_of(problem: Bundle | PoseGraph) -> op.Energy:
    """Of problems/."""
    return bundle_adjustment.energy if isinstance(problem, Bundle) else pose_graph.energy_of(problem)


# -- the solvers -----------------------------------------------------------------------------------------------------


def solve(path: Path, solver: Solver, threads: int, budget: float) -> Entrant | Missing:
    """One solver on one file, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(solve_file, path, solver, threads, budget).result()


def solve_file(path: Path, solver: Solver, threads: int, budget: float) -> Entrant | Missing:
    """One entrant's solve of a file in this process; see `race` for the arguments."""
    problem = read(path)
    energy = energy_of(problem)
    start = energy.cost(problem.data)
    before = _forget_peak_mib()
    try:
        if solver == "ceres":
            curve = _ceres(problem, threads, budget)
        elif solver == "scipy":
            curve = least_squares.solve(energy, problem.data, budget)
        else:
            curve = _optpy(problem, energy, solver, threads, budget)
    except PeerMissingError as missing:
        return Missing(path.name, solver, str(missing))
    mib = curve.facts.get("grown_mib", _peak_mib() - before)
    seconds = curve.facts.get("total_seconds", curve.seconds)
    cost = curve.facts.get("cost_in_float64", curve.final_cost)
    return Entrant(path.name, solver, curve.name, start, cost, seconds, curve.ending, mib, curve.points)


_STATUS = Path("/proc/self/status")


def _forget_peak_mib() -> float:
    """The memory of this process now; its peak is counted from here on. Elsewhere than on Linux 0."""
    if _STATUS.is_file():
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_mib()


def _peak_mib() -> float:
    if not _STATUS.is_file():
        return 0.0
    return next(float(line.split()[1]) / 1024 for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM"))


def _optpy(problem: Bundle | PoseGraph, energy: op.Energy, dtype: str, threads: int, budget: float) -> Curve:
    options = {} if isinstance(problem, Bundle) else pose_graph.OPTIONS
    solver = op.compile(energy, device="cpu", dtype=dtype)
    result = solver.solve(problem.data, max_iterations=MAX_ITERATIONS, max_time=budget, threads=threads, **options)
    points: list[Point] = []
    for record in result.iterations:
        if not points or record.cost < points[-1].cost:
            points.append(Point(result.timing.bind + record.total_time, record.cost))
    in_float64 = energy.cost({**problem.data, **{name: np.float64(x) for name, x in result.x.items()}})
    total = result.timing.bind + result.iterations[-1].total_time
    return Curve(
        f"optpy {dtype}", tuple(points), result.message, {"cost_in_float64": in_float64, "total_seconds": total}
    )


def _ceres(problem: Bundle | PoseGraph, threads: int, budget: float) -> Curve:
    options: dict[str, object] = {"num_threads": threads}
    options |= {"max_num_iterations": MAX_ITERATIONS, "max_solver_time_in_seconds": budget}
    if isinstance(problem, PoseGraph):
        options |= {"linear_solver": "cholesky"}
        return ceres.run("ceres_pose_graph.cc", graph_arrays(problem), options, "Ceres, sparse Cholesky")
    schur = (
        ceres.run(
            "ceres_bundle_adjustment.cc",
            [problem.cameras, problem.points, problem.seen, problem.pairs],
            options | {"linear_solver": f"{kind}_schur"},
            f"Ceres, {kind} Schur",
        )
        for kind in ("dense", "sparse")
    )
    return min(schur, key=lambda curve: curve.facts["total_seconds"])


def graph_arrays(graph: PoseGraph) -> list[NDArray[Any]]:
    """What ceres_pose_graph.cc reads."""
    if graph.fixed.nonzero()[0].tolist() != [0]:
        raise PeerMissingError("the Ceres program fixes the first pose, and no other")
    n = 3 if graph.dimension == 2 else 6
    S = np.zeros((len(graph.edges), n, n))
    rows, columns = np.triu_indices(n)
    S[:, rows, columns] = graph.root
    return [_plain(graph, graph.poses), _plain(graph, graph.measured), S, graph.edges]


def _plain(graph: PoseGraph, T: NDArray[np.float64]) -> NDArray[np.float64]:
    return T if graph.dimension == 3 else np.stack([T[:, 2], T[:, 3], np.arctan2(T[:, 1], T[:, 0])], axis=1)


# -- the table -------------------------------------------------------------------------------------------------------


def table(path: Path, entrants: list[Entrant | Missing]) -> Table:
    """One line for each solver."""
    ran = [e for e in entrants if isinstance(e, Entrant)]
    reference = next((e.cost for e in ran if e.solver == "ceres"), None)
    absent = [f"{m.solver}: {m.reason}" for m in entrants if isinstance(m, Missing)]
    caption = "\n".join([*(f"{e.name}: {e.ending}" for e in ran), *absent])
    result = Table(title=f"{path.name}: cost {ran[0].start:.6g} at the start" if ran else path.name, caption=caption)
    for name in ("solver", "cost", "against Ceres", "s", f"s to Ceres + {SLACK:.1%}", "MiB"):
        result.add_column(name, justify="left" if name == "solver" else "right")
    for e in ran:
        first = None if reference is None else e.first_at((1 + SLACK) * reference)
        against = "" if reference is None else _against(e, reference)
        there = "" if first is None else f"{first:.4f}"
        result.add_row(e.name, f"{e.cost:.8g}", against, f"{e.seconds:.4f}", there, f"{e.mib:.0f}")
    return result


def _against(e: Entrant, reference: float) -> str:
    if reference < 1e-9 * e.start:  # 0 but for rounding
        return f"{e.cost - reference:+.1e}"
    return f"{e.cost / reference - 1:+.3%}"


def main(arguments: list[str] | None = None) -> None:
    """Prints a table for each file; leaves JSON in bench/results."""
    parser = argparse.ArgumentParser(prog="python -m bench.files", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help="all of the data folder if none is named")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=SOLVERS)
    parser.add_argument("--budget", type=float, default=120.0, metavar="SECONDS", help="for each solve")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results"))
    settings = parser.parse_args(arguments)
    found = files(settings.files)
    if not found:
        print("no files: name some, or see OPTPY_DATA in docs/gallery/index.md")
        return
    settings.output.mkdir(parents=True, exist_ok=True)
    records: list[dict[str, Any]] = []
    for path in found:
        entrants = list(_entrants(path, settings))
        report.show(table(path, entrants))
        records += [asdict(e) for e in entrants]
    output = settings.output / "files.json"
    output.write_text(json.dumps({"machine": machine.describe(), "entrants": records}, indent=1))
    print(output)


def _entrants(path: Path, settings: argparse.Namespace) -> Iterator[Entrant | Missing]:
    for solver in settings.solvers:
        yield solve(path, solver, settings.threads, settings.budget)


if __name__ == "__main__":
    main()
