"""The motion between two frames, found from coarse to fine, step by step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

import optpy as op

from ..optical_flow import PARAMS, Film, frames, resized, robust, sizes
from .solving import Step

Device = Literal["auto", "cpu", "cuda"]

Flow = NDArray[np.float32]


@final
@dataclass(frozen=True, slots=True)
class FlowChoices:
    """How the motion is looked for.

    Attributes:
        w_smooth: weight of smoothness.
        s_fit: scale of the robust loss of the frames' difference: larger ones are outliers.
        s_smooth: likewise of the change of the motion: larger ones are edges.
        method: "gn" or "lm".
        nonlinear: iterations of a round.
        rounds: of each level; the motion's median is taken before each.
        median: pixels along each side over which it is taken, odd; 1: none.
    """

    w_smooth: float = PARAMS["w_smooth"]
    s_fit: float = PARAMS["s_fit"]
    s_smooth: float = PARAMS["s_smooth"]
    method: str = "lm"
    nonlinear: int = 5
    rounds: int = 3
    median: int = 5


_POSITIVE: Final = ("s_fit", "s_smooth", "nonlinear", "rounds", "median")


@final
@dataclass(slots=True)
class FlowWork:
    """Optical flow by the robust energy of `problems.optical_flow`, in pictures of one size after the other.

    A step is one iteration. Inputs are `FlowChoices` by the names of their fields; whatever comes, the search begins
    anew in the smallest pictures, also with "restart" alone.

    Attributes:
        film: whose motion is looked for.
        device: as ``op.compile`` takes it.
        choices: in force.
        levels: (H, W) of the pictures, the smallest first.
        level: number of that which is worked on.
        round: of this level.
        flow: of this level, (H, W, 2), in its own pixels.
    """

    film: Film
    device: Device = "cpu"
    choices: FlowChoices = FlowChoices()
    levels: list[tuple[int, int]] = field(init=False)
    level: int = 0
    round: int = 0
    flow: Flow = field(init=False)
    _frames: dict[int, dict[str, Any]] = field(default_factory=dict)
    _solver: op.Solver = field(init=False)
    _session: op.Session = field(init=False)
    _done: int = 0

    def __post_init__(self) -> None:
        self.levels = sizes(self.film.first.shape)
        self._solver = op.compile(robust, device=self.device, dtype=np.float32)
        self.recover()

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        """Take new choices, and begin anew."""
        given = {str(name): value for name, value in inputs.items() if name in FlowChoices.__slots__}
        for name, value in given.items():
            if name != "method" and not (np.isfinite(value) and value >= 0 and (value > 0 or name not in _POSITIVE)):
                raise ValueError(f"{name} cannot be {value}")
        self.choices = replace(self.choices, **given)
        self.recover()

    def recover(self) -> None:
        """Begin anew, in the smallest pictures and with no motion."""
        self.level, self.round = 0, 0
        self.flow = np.zeros((*self.levels[0], 2), np.float32)
        self._begin_round()

    def _begin_round(self) -> None:
        c = self.choices
        if self.level not in self._frames:
            found = frames(self.film, self.levels[self.level])
            self._frames[self.level] = {name: value.astype(np.float32) for name, value in found.items()}
        if c.median > 1:  # lonely outliers go
            self.flow = median_filter(self.flow, (c.median, c.median, 1))
        data = dict(Flow=self.flow, w_smooth=c.w_smooth, s_fit=c.s_fit, s_smooth=c.s_smooth)
        self._session = self._solver.start(self._frames[self.level] | data, method=c.method)
        self._done = 0

    @property
    def device_text(self) -> str:
        """Where it is solved, and why there."""
        return f"{self._solver.device}: {self._solver.device_reason}"

    @property
    def standing(self) -> str:
        """How far the search is, in words."""
        height, width = self.levels[self.level]
        rounds = f"round {self.round + 1} of {self.choices.rounds}"
        return f"{self.level + 1} of {len(self.levels)}: {width} x {height}, {rounds}"

    @property
    def in_film(self) -> Flow:
        """The motion at this level's points, (H, W, 2), in pixels of the film."""
        height, width = self.film.first.shape[:2]
        return self.flow * np.array([width / self.flow.shape[1], height / self.flow.shape[0]], np.float32)

    @property
    def whole(self) -> NDArray[np.float64]:
        """The motion at every pixel of the film, (H, W, 2)."""
        return resized(self.flow.astype(np.float64), self.film.first.shape[:2])

    def step(self) -> Step:
        """One iteration; after the last of a round the next round or level begins with the next step."""
        if self._round_ended():
            self._advance()
        record = self._session.step()
        self._done += 1
        self.flow = np.asarray(self._session["Flow"], np.float32)
        if not (np.isfinite(record.cost) and np.isfinite(self.flow).all()):
            raise ArithmeticError(self._session.result().message)
        done = self._round_ended() and self.round + 1 >= self.choices.rounds and self.level + 1 == len(self.levels)
        return Step(record.cost, record.linear_iterations, done, "all levels are solved" if done else "")

    def _round_ended(self) -> bool:
        return self._session.status.finished or self._done >= self.choices.nonlinear

    def _advance(self) -> None:
        """Begin the next round or level; at the end of the last one nothing is left to begin."""
        if self.round + 1 < self.choices.rounds:
            self.round += 1
        elif self.level + 1 < len(self.levels):
            self.level, self.round = self.level + 1, 0
            self.flow = resized(self.flow.astype(np.float64), self.levels[self.level]).astype(np.float32)
        else:
            return
        self._begin_round()
