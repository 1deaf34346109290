"""``schedule="measured"``: the ways of storing things are tried on the user's own data, and the best is kept.

What is measured are the routines that a solve runs most: one linearisation, one cost, and as many products with J^T J
as a linear solve often takes. What was found is a text in the cache, for a problem, a precision, a device and sizes of
the same magnitude: it is not measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, final

from optpy.api.backend import Backend
from optpy.api.device_choice import DeviceChoice
from optpy.api.problem import CompiledProblem
from optpy.api.warm_start import cache_of, energy_key
from optpy.errors import OptionError
from optpy.ir import Extent, Group, Problem, Schedule, Target
from optpy.kernels.toolchain.cache import Cache
from optpy.kernels.toolchain.progress import reported
from optpy.scheduling.costs import PRODUCTS
from optpy.scheduling.search import fastest

SECONDS: Final = 60.0
"""After so long no further way is tried."""

_ROUNDS: Final = 9
_SHORTEST = 0.002
"""Seconds of a run, of which the fastest of the rounds counts."""
_MOST_REPEATS: Final = 1000

LINEARISATION: Final = (Group.PRECOMPUTE, Group.JACOBIAN, Group.GRADIENT)
"""J^T F, and all that is stored for J^T J."""
WEIGHTS: Final = {Group.COST: 1, **dict.fromkeys(LINEARISATION, 1), Group.PRODUCT: PRODUCTS}
"""The times that each routine counts."""


def size_class(sizes: Mapping[Extent, int], threads: int) -> str:
    """A text that two problems share whose sizes are of the same power of two, on as many threads."""
    return ", ".join([*(f"{d} 2**{n.bit_length()}" for d, n in sizes.items()), f"{threads} threads"])


def measured_backend(
    problem: Problem,
    dtype: str,
    choice: DeviceChoice,
    sizes: str,
    build: Callable[[Schedule], Backend],
    bound: Callable[[Backend], CompiledProblem],
) -> Backend:
    """The problem compiled by the schedule that is kept, or by one that is measured now, and kept from now on.

    Args:
        problem: what is minimised.
        dtype: "float32" or "float64".
        choice: the device that it runs on.
        sizes: see ``size_class``.
        build: compiles it by a schedule.
        bound: binds the user's data to it.

    Raises:
        DataError: a residual, or a derivative, is not finite at the initial values.
    """
    key = energy_key("schedule", problem, dtype, choice.target, choice.model, sizes)
    cache = cache_of(".txt") if key is not None else None
    if key is not None and cache is not None:
        with suppress(OptionError, OSError, UnicodeDecodeError):  # damaged: measured again
            entry = cache.find(key)
            if entry is not None:
                return build(Schedule.parse(entry.library.read_text(encoding="utf-8")))
    begin = time.perf_counter()
    with reported("measuring schedules"):
        found = Measuring(build, bound, race).fastest(choice.target, SECONDS)
    seconds = time.perf_counter() - begin
    if key is not None and cache is not None:
        _keep(cache, key, str(found))
    return build(found).measured(seconds)


def _keep(cache: Cache, key: str, text: str) -> None:
    with suppress(OSError), cache.workspace(key) as unfinished:
        unfinished.library.write_text(text, encoding="utf-8")
        cache.discard(key)
        cache.publish(unfinished, key)
        cache.evict()


@final
class Measuring:
    """Measures schedules, each beside the best so far.

    Args:
        build: compiles the problem by a schedule.
        bind: binds data to it.
        race: the seconds of two problems.
    """

    def __init__(
        self,
        build: Callable[[Schedule], Backend],
        bind: Callable[[Backend], CompiledProblem],
        race: Callable[[CompiledProblem, CompiledProblem], tuple[float, float]],
    ) -> None:
        self._build, self._bind, self._race_problems = build, bind, race
        self._backends: dict[Schedule, Backend] = {}
        self._bound: dict[Schedule, CompiledProblem] = {}

    def fastest(self, target: Target, seconds: float) -> Schedule:
        """The best schedule that is found; after so many seconds no further way is tried."""
        end = time.perf_counter() + seconds
        return fastest(self._in_force, self._race, target, lambda: time.perf_counter() > end)

    def _in_force(self, decided: Schedule) -> Schedule:
        backend = self._build(decided)
        self._backends.setdefault(backend.schedule, backend)
        return backend.schedule

    def _race(self, best: Schedule, other: Schedule) -> tuple[float, float]:
        self._bound = {s: problem for s, problem in self._bound.items() if s == best}  # memory for no more than two
        for schedule in (best, other):
            if schedule not in self._bound:
                self._bound[schedule] = self._bind(self._backends[schedule])
        return self._race_problems(self._bound[best], self._bound[other])


def race(one: CompiledProblem, other: CompiledProblem) -> tuple[float, float]:
    """The seconds of what a solve runs most, of two compiled problems, measured in turns.

    Of each the fastest run counts. Where the other one is faster by that, but not in most turns, it is no faster.
    """
    both = _Runs(one), _Runs(other)
    turns = [(both[0].seconds(), both[1].seconds()) for _ in range(_ROUNDS)]
    first, second = (min(seconds) for seconds in zip(*turns, strict=True))
    wins = sum(b < a for a, b in turns)
    return first, second if 2 * wins > _ROUNDS else max(first, second)


@final
class _Runs:
    """The routines that a solve runs most, each repeated until a clock can tell its time."""

    def __init__(self, problem: CompiledProblem) -> None:
        self._problem = problem
        problem.evaluate()
        problem.linearise()
        self._repeats = {group: self._repeat(group) for group in WEIGHTS if group in problem.executor.groups}

    def _repeat(self, group: Group) -> int:
        return min(max(1, int(_SHORTEST / max(self._problem.benchmark(group, 1), 1e-9))), _MOST_REPEATS)

    def seconds(self) -> float:
        """Of one linearisation, one cost and the products."""
        run = self._problem.benchmark
        return sum(WEIGHTS[group] * run(group, repeat) for group, repeat in self._repeats.items())
