"""Whole solves beside the peers: how long does each take to the same cost?

A peer runs to its own end, or as long as the budget lasts. "The same cost" is its lowest plus 1 %, 0.1 % and
0.01 %, where the time of each is that of its first point there; and the peer's lowest itself (but for the last
digits of float32), where the peer's time is its whole run: what its user waits for. optpy runs with its default
options, except that it goes on until it is at the lowest of these costs.

The race for a given cost is plainer: `solver.solve(data)` without options, and the first record at or below that cost.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

import optpy as op
from bench.case import Case, Data, Famous
from bench.curve import Curve, Point
from bench.peers import PeerMissingError, ceres, cholesky, least_squares

SLACKS = (1e-2, 1e-3, 1e-4)
END_SLACK = 1e-6
PRECISIONS = ("float64", "float32")
MAX_ITERATIONS = 500
_REPEATS = range(3, 26)  # of everybody; the run of median time counts
REPEAT_SECONDS = 2.0  # short solves are repeated until so much time has gone


@final
@dataclass(frozen=True, slots=True)
class Duel:
    """One peer against optpy, from the same start to the same cost. Binding counts, compiling does not."""

    peer: str
    goal: str
    target: float
    peer_seconds: float
    optpy_seconds: float | None
    """None: optpy did not get there."""
    assembly_seconds: float
    """Of the peer's: our own evaluation of F and J for it, which is not the peer's fault."""

    @property
    def speedup(self) -> float | None:
        """How many times faster optpy is."""
        return None if self.optpy_seconds is None else self.peer_seconds / self.optpy_seconds

    @property
    def speedup_without_assembly(self) -> float | None:
        """How many times faster it is than the peer alone, if F and J came for nothing."""
        if self.optpy_seconds is None:
            return None
        return (self.peer_seconds - self.assembly_seconds) / self.optpy_seconds


@final
@dataclass(frozen=True, slots=True)
class Race:
    """All solves of one problem."""

    case: str
    problem: str
    dtype: str
    curves: tuple[Curve, ...]
    """optpy's is the first."""
    duels: tuple[Duel, ...]
    absent: tuple[str, ...]
    """Peers that could not run, and why."""


Peer = Callable[[], Curve]


def race(case: Case, size: int, dtype: str, threads: int, budget: float) -> Race:
    """Against all peers that know the energy, on a picture of `size` x `size`, or a mesh of as many vertices."""
    return _race(case, f"{size} x {size}", case.data(size), dtype, threads, budget)


def race_famous(case: Case, famous: Famous, dtype: str, threads: int, budget: float) -> list[Race]:
    """On the data in `famous`; nothing where their files are missing.

    Where costs are given, the race is against Ceres, one for each precision, and optpy is used as anyone would: no
    option is given, so it takes all cores and ends when it thinks fit, be that before the costs in question.
    """
    data, program = famous.data(), case.ceres
    if data is None or program is None:
        return []
    if not famous.targets:
        return [_race(case, famous.name, data, dtype, threads, budget)]
    peers: list[Peer] = [partial(ceres.solve, program, data, budget, threads, run) for run in famous.runs]
    curves, absent = _peer_curves(peers, budget)
    races = []
    for precision in PRECISIONS:
        ours = default_curve(case, data, precision, budget)
        duels = dict.fromkeys(_to_target(curve, ours, target) for target in famous.targets for curve in curves)
        races.append(Race(case.name, famous.name, precision, (ours, *curves), tuple(duels), absent))
    return races


def _race(case: Case, problem: str, data: Data, dtype: str, threads: int, budget: float) -> Race:
    peers: list[Peer] = []
    if not case.reweighted:
        peers.append(lambda: least_squares.solve(case.energy, data, budget))
        peers.append(lambda: cholesky.solve(case.energy, data, budget))
    if case.ceres is not None:
        peers += [partial(ceres.solve, case.ceres, data, budget, threads, run) for run in case.ceres.runs]
    curves, absent = _peer_curves(peers, budget)
    ours = optpy_curve(case, data, dtype, threads, (1 + END_SLACK) * _lowest(curves), budget)
    duels = tuple(duel for curve in curves for duel in _duels(curve, ours))
    return Race(case.name, problem, dtype, (ours, *curves), duels, absent)


def _lowest(curves: list[Curve]) -> float:
    return min((curve.final_cost for curve in curves), default=0.0)


def _peer_curves(peers: list[Peer], budget: float) -> tuple[list[Curve], tuple[str, ...]]:
    """Those of all peers that are here, and why the others are not."""
    curves: list[Curve] = []
    absent: list[str] = []
    for peer in peers:
        try:
            curves.append(_median(peer, budget))
        except PeerMissingError as missing:
            absent.append(str(missing))
    return curves, tuple(absent)


def _duels(peer: Curve, ours: Curve) -> Iterator[Duel]:
    for slack in SLACKS:
        cost = (1 + slack) * peer.final_cost
        theirs = peer.first_at(cost)
        if theirs is not None:
            yield _duel(peer.name, f"lowest + {slack:.2%}", cost, theirs, ours)
    yield _at_end(peer, ours)


def _at_end(peer: Curve, ours: Curve) -> Duel:
    end = Point(peer.facts["total_seconds"], peer.final_cost, peer.facts.get("assembly_seconds", 0.0))
    return _duel(peer.name, "its end", (1 + END_SLACK) * peer.final_cost, end, ours)


def _to_target(peer: Curve, ours: Curve, target: float) -> Duel:
    """To the peer's end where the peer does not get to the target."""
    theirs = peer.first_at(target)
    return _at_end(peer, ours) if theirs is None else _duel(peer.name, f"{target:g}", target, theirs, ours)


def _duel(peer: str, goal: str, cost: float, theirs: Point, ours: Curve) -> Duel:
    our = ours.first_at(cost)
    return Duel(peer, goal, cost, theirs.seconds, our.seconds if our else None, theirs.assembly)


def optpy_curve(case: Case, data: Data, dtype: str, threads: int, target: float, budget: float) -> Curve:
    """optpy on its way to `target`: its tolerance of the cost is off, and it stops there if it does not end before."""
    solver = op.compile(case.energy, device="cpu", dtype=dtype)

    def stop_at_target(intermediate: Any) -> None:
        if intermediate.cost <= target:
            raise StopIteration

    options: dict[str, Any] = {
        "method": case.method,
        "max_iterations": MAX_ITERATIONS,
        "function_tolerance": 0.0,
        "cosine_tolerance": 0.0,
        "max_time": budget,
        "threads": threads,
        "callback": stop_at_target,
    }
    return _median(lambda: _curve(case, data, solver.solve(data, **options)), budget)


def default_curve(case: Case, data: Data, dtype: str, budget: float) -> Curve:
    """optpy as it comes: no option is given."""
    solver = op.compile(case.energy, device="cpu", dtype=dtype)
    return _median(lambda: _curve(case, data, solver.solve(data)), budget)


def _median(solve: Callable[[], Curve], budget: float) -> Curve:
    """The run of median time; a run that takes a good part of the budget is not repeated."""
    started = time.perf_counter()
    runs = [solve()]
    while len(runs) < _REPEATS.stop - 1 and runs[0].seconds < budget / _REPEATS.start:
        if len(runs) >= _REPEATS.start and time.perf_counter() - started > REPEAT_SECONDS:
            break
        runs.append(solve())
    return sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]


def _curve(case: Case, data: Data, result: op.SolveResult) -> Curve:
    points: list[Point] = []
    for record in result.iterations:
        if not points or record.cost < points[-1].cost:
            points.append(Point(result.timing.bind + record.total_time, record.cost))
    in_float64 = case.energy.cost({**data, **{name: np.float64(x) for name, x in result.x.items()}})
    facts = {
        "nonlinear_iterations": float(result.nit),
        "linear_iterations": float(sum(record.linear_iterations for record in result.iterations)),
        "cost_in_float64": float(in_float64),
        "grown_mib": float(result.facts["Memory"].split()[0]),
    }
    dtype = next(iter(result.x.values())).dtype
    return Curve(f"optpy {dtype.name}", tuple(points), result.message, facts)


def as_record(race: Race) -> dict[str, Any]:
    """For JSON, with the ratios."""
    ratios = [
        {"speedup": duel.speedup, "speedup_without_assembly": duel.speedup_without_assembly} for duel in race.duels
    ]
    return {**dataclasses.asdict(race), "ratios": ratios}
