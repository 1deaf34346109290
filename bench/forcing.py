"""What the inner tolerance takes: `python -m bench.forcing [PROBLEM ...]`.

Every problem of problems/ (on real data where they are there) is solved by each rule: with the default, and with fixed
values of `eta`. Of each the table has the nonlinear and the linear iterations of the whole solve, and its work until
a tenth, a hundredth, ... is left of the decrease to the lowest cost that any rule has met.

Work is counted, in linear iterations with Jacobi: one with multigrid counts as the record of that preconditioner says,
a nonlinear one as the time of the processor does, by all steps of all rules together. So the counts are the same in
every run but for that number, which the title has. A step that changes the preconditioner counts as one by the later.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.table import Table

import optpy as op
from bench import machine, report
from bench.case import Data
from bench.nonrigid_alignment import matched_once
from bench.optical_flow import alley, turning
from optpy.linear.driver import LinearSolver
from problems import (
    blendshape_fitting,
    bundle_adjustment,
    bundle_fusion,
    cotangent_smoothing,
    deconvolution,
    embedded_deformation,
    image_warping,
    intrinsic_images,
    laplacian_smoothing,
    mesh_deformation,
    nonrigid_alignment,
    optical_flow,
    poisson_image_editing,
    pose_graph,
    shape_and_shading,
    shape_from_shading,
    sparse_warping,
    volumetric_deformation,
)

LEFT = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)
"""Of the decrease from the first cost to the lowest."""
RULES: dict[str, dict[str, Any]] = {"default": {}, "0.1": {"eta": 0.1}, "0.01": {"eta": 0.01}, "0.001": {"eta": 1e-3}}
"""Options of a solve, by the name of the rule."""
MAX_ITERATIONS = 100


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """One of problems/, as its program solves it."""

    energy: op.Energy
    data: Data
    method: str = "lm"
    options: dict[str, Any] = field(default_factory=dict)


def _graph(dimension: Any) -> Problem:
    graph = pose_graph.default_graph(dimension)
    return Problem(pose_graph.energy_of(graph), graph.data)


def _matches() -> Problem:
    return Problem(nonrigid_alignment.energy, matched_once(nonrigid_alignment.default_alignment()))


def _shapes() -> Problem:
    task = blendshape_fitting.fitting(blendshape_fitting.default_mesh(), 20)
    return Problem(blendshape_fitting.energy, task.data)


def _corner() -> Problem:
    limit = {"linear_iterations": deconvolution.OPTIONS["linear_iterations"]}
    return Problem(deconvolution.energy, deconvolution.default_photograph(128).data, "gn", limit)


def _film() -> Problem:
    return Problem(optical_flow.energy, alley() or turning(128))


def _unlit() -> Problem:
    data = shape_and_shading.with_unknown_light(shape_from_shading.relief(128))
    return Problem(shape_and_shading.energy, data, options=shape_and_shading.OPTIONS)


def _lattice() -> Problem:
    task = volumetric_deformation.deformation(volumetric_deformation.default_mesh())
    return Problem(volumetric_deformation.energy, task.data)


def _mesh() -> Problem:
    task = mesh_deformation.deformation(mesh_deformation.default_mesh())
    return Problem(mesh_deformation.euler, task.data("euler"))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "blendshape_fitting": _shapes,
    "bundle_adjustment": lambda: Problem(bundle_adjustment.energy, bundle_adjustment.default_bundle().data),
    "bundle_fusion": lambda: Problem(
        bundle_fusion.energy, bundle_fusion.scene("made", 32, 12).data, options=bundle_fusion.OPTIONS
    ),
    "cotangent_smoothing": lambda: Problem(
        cotangent_smoothing.energy, cotangent_smoothing.with_noise(cotangent_smoothing.default_mesh()).data
    ),
    "deconvolution": _corner,
    "embedded_deformation": lambda: Problem(
        embedded_deformation.energy, embedded_deformation.deformation(embedded_deformation.default_mesh()).data
    ),
    "image_warping": lambda: Problem(image_warping.energy, image_warping.default_warp().data),
    "image_warping_astronaut": lambda: Problem(image_warping.energy, image_warping.astronaut(256).data),
    "intrinsic_images": lambda: Problem(
        intrinsic_images.energy, intrinsic_images.default_photograph(256).data, "gn", {"max_iterations": 12}
    ),
    "laplacian_smoothing": lambda: Problem(laplacian_smoothing.energy, laplacian_smoothing.default_noisy().data, "gn"),
    "mesh_deformation": _mesh,
    "nonrigid_alignment": _matches,
    "optical_flow": _film,
    "poisson_image_editing": lambda: Problem(
        poisson_image_editing.energy, poisson_image_editing.default_clone().data, "gn"
    ),
    "pose_graph_2d": lambda: _graph(2),
    "pose_graph_3d": lambda: _graph(3),
    "shape_and_shading": _unlit,
    "shape_from_shading": lambda: Problem(shape_from_shading.energy, shape_from_shading.default_scan().data),
    "shape_from_shading_relief": lambda: Problem(shape_from_shading.energy, shape_from_shading.relief(256).data),
    "sparse_warping": lambda: Problem(sparse_warping.energy, sparse_warping.default_warp().data),
    "volumetric_deformation": _lattice,
}


@final
@dataclass(frozen=True, slots=True)
class Run:
    """A whole solve by one rule."""

    problem: str
    dtype: str
    rule: str
    nonlinear: int
    linear: int
    ending: str
    seconds: tuple[float, ...]
    """Of the processor, in each step."""
    products: tuple[float, ...]
    """Linear iterations of each step, in those with Jacobi."""
    costs: tuple[float, ...]
    """That of the start first."""

    def first_at(self, cost: float, of_step: float) -> float | None:
        """Work until it was there.

        Args:
            cost: to come to.
            of_step: of a nonlinear iteration, beside its linear ones.
        """
        work = accumulate((of_step + p for p in self.products), initial=0.0)
        return next((w for w, c in zip(work, self.costs, strict=True) if c <= cost), None)


def run(name: str, problem: Problem, dtype: str, rule: str) -> Run:
    """A solve, step by step."""
    solver = op.compile(problem.energy, device="cpu", dtype=dtype)
    options: dict[str, Any] = {"method": problem.method, "threads": 1, "max_iterations": MAX_ITERATIONS}
    session = solver.start(problem.data, **options | problem.options | RULES[rule])
    linear = session._problem.linear_solver
    assert isinstance(linear, LinearSolver)
    seconds, products = [], []
    while not session.status.finished:
        started = time.process_time()
        iterations = session.step().linear_iterations
        seconds.append(time.process_time() - started)
        products.append(iterations * linear.iteration_cost)
    result = session.result()
    costs = tuple(record.cost for record in result.iterations)
    total = sum(record.linear_iterations for record in result.iterations)
    made = result.nit
    return Run(name, dtype, rule, made, total, result.status.name, tuple(seconds[:made]), tuple(products[:made]), costs)


def work_of_step(runs: Sequence[Run]) -> float:
    """What a nonlinear iteration takes beside its linear ones, in products: the line through all steps but the first.

    The first one of a solve also compiles.
    """
    seconds = np.array([s for r in runs for s in r.seconds[1:]])
    products = np.array([p for r in runs for p in r.products[1:]])
    if len(set(products)) < 2:
        return 1.0
    slope, start = np.polyfit(products, seconds, 1)
    return max(float(start / slope), 0.0) if slope > 0 else 1.0


def table(runs: Sequence[Run]) -> Table:
    """One line for each rule on a problem."""
    lowest, first, of_step = min(min(r.costs) for r in runs), runs[0].costs[0], work_of_step(runs)
    title = f"{runs[0].problem}, {runs[0].dtype}: cost {first:.6g}, lowest {lowest:.6g}; a step takes {of_step:.1f}"
    made = Table(title=title)
    for name in ("eta", "steps", "linear", "end above", "work", *(f"to {left:.0e}" for left in LEFT), "ending"):
        made.add_column(name, justify="left" if name in ("eta", "ending") else "right")
    for r in runs:
        there = (r.first_at(lowest + left * (first - lowest), of_step) for left in LEFT)
        cells = ["" if w is None else f"{w:.0f}" for w in there]
        above = min(r.costs) / lowest - 1 if lowest else math.nan
        work = sum(r.products) + of_step * r.nonlinear
        made.add_row(r.rule, f"{r.nonlinear}", f"{r.linear}", f"{above:.1e}", f"{work:.0f}", *cells, r.ending)
    return made


def measure(name: str, dtype: str, rules: Sequence[str]) -> Iterator[Run]:
    """One problem by all rules."""
    problem = PROBLEMS[name]()
    for rule in rules:
        yield run(name, problem, dtype, rule)


def main(arguments: list[str] | None = None) -> None:
    """Prints a table for each problem; leaves JSON in bench/results."""
    parser = argparse.ArgumentParser(prog="python -m bench.forcing", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help=f"{', '.join(PROBLEMS)}; all if none is named")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results"))
    settings = parser.parse_args(arguments)
    unknown = [name for name in settings.problems if name not in PROBLEMS]
    if unknown:
        parser.error(f"no problem {unknown[0]!r}; there are: {', '.join(PROBLEMS)}")
    settings.output.mkdir(parents=True, exist_ok=True)
    records = []
    for name in settings.problems or PROBLEMS:
        runs = list(measure(name, settings.dtype, settings.rules))
        report.show(table(runs))
        records += [asdict(r) for r in runs]
    path = settings.output / f"forcing_{settings.dtype}.json"
    path.write_text(json.dumps({"machine": machine.describe(), "runs": records}, indent=1))
    print(path)


if __name__ == "__main__":
    main()
