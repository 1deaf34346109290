"""The automatic schedule beside the best that is found by measuring, and beside inlining everything.

`python -m bench.best_schedule [PROBLEM ...] [--size N] [--seconds S]`: for every problem in problems/, what a linear
iteration takes, with its share of a linearisation and of a cost, and the decisions in which the best one differs. What
is wanted: at most 1.1 times the best, and never more than inlined. The time is that of the processor on one thread, the
least of several runs; for S seconds ways are tried.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

import optpy as op
from bench.__main__ import CASES, load_case
from bench.ablation import PLAIN
from bench.decisions import add_names, processor_seconds
from optpy.api.backend import Backend
from optpy.api.measured import WEIGHTS, Measuring
from optpy.api.plan import build
from optpy.api.problem import CompiledProblem
from optpy.ir import Schedule, Target
from optpy.scheduling.costs import PRODUCTS
from problems import blendshape_fitting, bundle_adjustment, deconvolution, meshes, optical_flow, pose_graph

ENOUGH = 0.01
"""Seconds of a run, of which the fastest of several counts."""
_REPEAT = 3
_TURNS = 5


def _others() -> dict[str, tuple[op.Energy, Callable[[int], Mapping[str, Any]]]]:
    """The problems that no case is about, with data for a size."""

    def bundle(size: int) -> dict[str, Any]:
        return bundle_adjustment.synthetic_bundle(points=10 * size, seed=1).start.data

    return {
        "bundle_adjustment": (bundle_adjustment.energy, bundle),
        "bundle_adjustment_robust": (
            bundle_adjustment.robust_energy("huber"), lambda size: {**bundle(size), "scale": 1.0},
        ),
        "pose_graph_plane": (pose_graph.plane, lambda n: pose_graph.synthetic_walk(2, steps=10 * n).graph.data),
        "pose_graph_space": (pose_graph.space, lambda n: pose_graph.synthetic_walk(3, steps=10 * n).graph.data),
        "robust_flow": (optical_flow.robust, robust_frames),
        "blendshape_fitting": (
            blendshape_fitting.energy, lambda size: blendshape_fitting.fitting(meshes.pebble(4), size // 4).data,
        ),
        "deconvolution": (deconvolution.energy, lambda size: deconvolution.default_photograph(size // 2).data),
    }  # fmt: skip


def robust_frames(size: int) -> dict[str, Any]:
    """What the robust energy of optical_flow needs: a flow near to the true one, as in the midst of a solve."""
    film = optical_flow.turning(size)
    assert film.truth is not None
    flow = film.truth + 0.3 * np.random.default_rng(0).normal(size=film.truth.shape)
    return {"Flow": flow, **optical_flow.frames(film, (size, size)), **optical_flow.PARAMS}


PROBLEMS: Final = (*CASES, *_others())


def subject(name: str) -> tuple[op.Energy, Callable[[int], Mapping[str, Any]]]:
    """An energy, and its data for a size."""
    if name not in CASES:
        return _others()[name]
    case = load_case(name)
    return case.energy, lambda size: case.data(min(size, case.largest or size))


@final
@dataclass(frozen=True, slots=True)
class Beside:
    """A problem by three schedules.

    Attributes:
        inlined, automatic, best: seconds of a linear iteration, with its share of a linearisation and of a cost.
        differs: the decisions in which the best one differs from the automatic one.
        tried: how many decisions there was time to try in other ways.
    """

    inlined: float
    automatic: float
    best: float
    differs: tuple[str, ...]
    tried: int

    @property
    def verdict(self) -> str:
        """Whether what is wanted is reached."""
        missed = ["slower than inlined"] if self.automatic > 1.03 * self.inlined else []
        missed += ["not within 10 % of the best"] if self.automatic > 1.1 * self.best else []
        return "; ".join(missed) or "as wanted"


def measure(name: str, size: int, dtype: str, seconds: float) -> Beside:
    """Search the best schedule of a problem."""
    energy, data_for = subject(name)
    data = {k: _real(v, dtype) for k, v in data_for(size).items()}

    def bound(schedule: Schedule) -> CompiledProblem:
        return build(energy, dtype, schedule).start(data, threads=1)._problem

    def race(one: CompiledProblem, other: CompiledProblem) -> tuple[float, float]:
        turns = [(_seconds(one), _seconds(other)) for _ in range(2)]
        return min(first for first, _ in turns), min(second for _, second in turns)

    def compiled(schedule: Schedule) -> Backend:
        return build(energy, dtype, schedule).compiled.shown

    best = Measuring(compiled, lambda backend: bound(backend.schedule), race).fastest(Target.CPU, seconds)
    automatic = compiled(Schedule()).schedule
    differs = tuple(f"{d.kind} {d}" for d in best.decisions if d not in list(automatic.decisions))
    plain = Schedule(**PLAIN)  # type: ignore[arg-type]
    three = [bound(s) for s in (plain, automatic, best)]
    turns = [[_seconds(problem) / PRODUCTS for problem in three] for _ in range(_TURNS)]
    inlined, chosen, fastest = (min(times) for times in zip(*turns, strict=True))
    tried = sum(d.reason.startswith("measured") for d in best.decisions)
    return Beside(inlined, chosen, fastest if differs else chosen, differs, tried)


def _seconds(problem: CompiledProblem) -> float:
    problem.linearise()
    groups = [group for group in WEIGHTS if group in problem.executor.groups]
    return sum(
        WEIGHTS[group] * min(processor_seconds(problem, group, ENOUGH) for _ in range(_REPEAT)) for group in groups
    )


def _real(value: Any, dtype: str) -> Any:
    """Unknowns of bench are in any precision: the solver converts them, with a warning where that loses digits."""
    array = np.asarray(value)
    return array.astype(dtype) if array.dtype == np.float64 and array.ndim else value


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The settings of a run."""
    made = argparse.ArgumentParser(prog="python -m bench.best_schedule", description=(__doc__ or "").split("\n\n")[0])
    add_names(made, "problems", PROBLEMS)
    made.add_argument("--size", type=int, default=128, help="pixels along a side; a mesh: N * N vertices")
    made.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    made.add_argument("--seconds", type=float, default=40.0, help="for which ways are tried")
    return made.parse_args(arguments)


def rows(settings: argparse.Namespace) -> Iterator[tuple[str, Beside]]:
    """Each problem with what was measured."""
    for name in settings.problems or PROBLEMS:
        yield name, measure(name, settings.size, settings.dtype, settings.seconds)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and prints a line for each problem and for each decision in which its best schedule differs."""
    settings = parse(arguments)
    print(f"microseconds of a linear iteration, {settings.dtype}, one thread: inlined, automatic, best")
    for name, row in rows(settings):
        times = " ".join(f"{1e6 * t:9.1f}" for t in (row.inlined, row.automatic, row.best))
        print(f"{name:26s} {times}   {row.automatic / row.best:5.2f}  {row.verdict} ({row.tried} tried)", flush=True)
        for line in row.differs:
            print(f"    {line}", flush=True)


if __name__ == "__main__":
    main()
