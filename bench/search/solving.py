"""Solves each problem in every way that applies, and judges the solves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

import optpy as op
from bench.search import fields, geometry, lines
from bench.search.family import DTYPES, Data, Family
from bench.search.minimum import Landscape
from bench.search.verdict import Level, Nearby, Outcome, Run, judge
from optpy.linear.registry import options

FAMILIES: dict[str, Family] = {f.name: f for f in (*lines.FAMILIES, *geometry.FAMILIES, *fields.FAMILIES)}
METHODS = ("lm", "gn")
PRECONDITIONERS = ("none", "auto", *options())


@final
@dataclass(frozen=True, slots=True)
class Ways:
    """In which ways problems are solved."""

    dtypes: Sequence[str] = DTYPES
    methods: Sequence[str] = METHODS
    preconditioners: Sequence[str] = PRECONDITIONERS


def search(name: str, seeds: Sequence[int], ways: Ways) -> list[Run]:
    """All runs of some problems of a family."""
    family = FAMILIES[name]
    runs: list[Run] = []
    for dtype in ways.dtypes:
        solver = op.compile(family.energy, device="cpu", dtype=dtype)
        for seed in seeds:
            runs += _solve(family, solver, dtype, seed, ways)
    return runs


def _solve(family: Family, solver: op.Solver, dtype: str, seed: int, ways: Ways) -> Iterator[Run]:
    drawn = family.problem(seed, dtype)
    landscape = Landscape(family, drawn.data)
    ends: dict[tuple[str, str], tuple[Outcome, Data]] = {}
    for method in ways.methods:
        for preconditioner in ways.preconditioners:
            end = run_once(solver, landscape, drawn.data, method, preconditioner)
            if end is not None:
                ends[method, preconditioner] = end
    best = landscape.refined(drawn.truth)
    lowest = min([landscape.value(best), *(outcome.value for outcome, _ in ends.values())])
    level = Level(lowest, landscape.floor(best, dtype), dtype)
    nearby = _Nearby(landscape)
    for (method, preconditioner), (outcome, x) in ends.items():
        verdict = judge(outcome, level, partial(nearby, x))
        yield Run(family.name, seed, dtype, method, preconditioner, outcome, level, verdict)


def run_once(
    solver: op.Solver, landscape: Landscape, data: Data, method: str, preconditioner: str
) -> tuple[Outcome, Data] | None:
    """The outcome of one solve, and x in float64; None where the preconditioner does not apply to the energy."""
    options: dict[str, Any] = {"method": method, "preconditioner": None if preconditioner == "none" else preconditioner}
    try:
        result = solver.solve(data, threads=1, **options)
    except op.OptionError:
        return None
    except Exception as error:  # whatever it is, it is the finding
        return Outcome(False, float("inf"), f"{type(error).__name__}: {error}", 0, is_error=True), {}
    x = {name: np.asarray(value, np.float64) for name, value in result.x.items()}
    return Outcome(result.success, landscape.value(x), result.status.name, result.nit), x


@final
class _Nearby:
    """What other solvers say of the points where solves of one problem ended; many end at the same bits."""

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape
        self._known: dict[bytes, Nearby] = {}

    def __call__(self, x: Data) -> Nearby:
        key = b"".join(value.tobytes() for value in x.values())
        if key not in self._known:
            self._known[key] = Nearby(self._landscape.cosine(x), _Remembered(self._landscape.found_nearby(x)))
        return self._known[key]


@final
class _Remembered:
    """An iterator that may be gone through again, and goes on where it was left."""

    def __init__(self, source: Iterator[float]) -> None:
        self._source = source
        self._seen: list[float] = []

    def __iter__(self) -> Iterator[float]:
        yield from self._seen
        for value in self._source:
            self._seen.append(value)
            yield value
