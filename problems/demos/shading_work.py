"""A depth scan that is refined by shading, in small sizes first, while its weights and its light change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

import optpy as op

from ..shape_from_shading import Scan, energy
from .mesh_work import Device
from .script import Allowed
from .shading_levels import Plane, Size, sizes
from .solving import Step

LIGHT: Final = tuple(f"light{n}" for n in range(9))

ALLOWED: Final[dict[str, Allowed]] = {
    "w_fit": (1e-3, 1e4),
    "w_smooth": (1e-3, 1e4),
    "w_shade": (1e-3, 1e4),
    **dict.fromkeys(LIGHT, (-2.0, 2.0)),
    "method": ("lm", "gn"),
    "nonlinear": (1, 10),
    "linear": (1, 100),
}
"""The values that pages and scripts give to settings."""

_NEW_SESSIONS: Final = ("method", "linear")
"""Settings that sessions begin with."""


@final
@dataclass(slots=True)
class ShadingWork:
    """Shape from shading by the energy of `problems.shape_from_shading`, coarse to fine.

    A step works at one size: the first after a change at the smallest, and each following one at the next, until the
    whole scan is reached, where steps go on to the end of the solve. So a change is answered soon, and refined.

    Inputs are settings by the names of `ALLOWED`; "reset" takes those of the start.

    Attributes:
        scan: with its weights and light.
        device: as ``op.compile`` takes it.
        settings: in force, by name.
        depth: (H, W), as it stands.
        level: the size of which it comes, from 0, the smallest.
    """

    scan: Scan
    device: Device = "cpu"
    settings: dict[str, Any] = field(init=False)
    depth: Plane = field(init=False)
    level: int = 0
    _sizes: list[Size] = field(init=False)
    _solver: op.Solver = field(init=False)
    _sessions: list[op.Session] = field(init=False)
    _next: int = 0
    _good: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self._sizes = sizes(self.scan)
        self._solver = op.compile(energy, device=self.device, dtype=np.float32)
        self.settings = self.first_settings
        self.depth = self.before
        self._start()

    @property
    def first_settings(self) -> dict[str, Any]:
        """Those of the scan."""
        of_scan = {name: float(self.scan.data[name]) for name in ("w_fit", "w_smooth", "w_shade", *LIGHT)}
        return of_scan | dict(method="lm", nonlinear=2, linear=10)

    @property
    def before(self) -> Plane:
        """(H, W): the depth before anything was refined."""
        return np.asarray(self._sizes[-1].data["X"], np.float32)

    @property
    def levels(self) -> int:
        """How many sizes there are."""
        return len(self._sizes)

    @property
    def device_text(self) -> str:
        """Where it is solved, and why there."""
        return f"{self._solver.device}: {self._solver.device_reason}"

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        """Take new settings, and begin at the smallest size again.

        Raises:
            ValueError: a value is none of those that its setting may have; nothing has changed then.
        """
        given = {str(name): value for name, value in inputs.items() if name in ALLOWED}
        for name, value in given.items():
            _check(name, value)
        if inputs.get("reset"):
            given = self.first_settings | given
        before, self.settings = self.settings, self.settings | given
        if any(before[name] != self.settings[name] for name in _NEW_SESSIONS):
            self._start()
        self._next = 0

    def _weights(self, size: Size) -> dict[str, Any]:
        s = self.settings
        return size.weights(s["w_fit"], s["w_smooth"], s["w_shade"]) | {name: s[name] for name in LIGHT}

    def _start(self) -> None:
        options: dict[str, Any] = dict(method=self.settings["method"], linear_iterations=self.settings["linear"])
        self._sessions = [
            self._solver.start(size.data | self._weights(size), eta=0.0, **options) for size in self._sizes
        ]
        self._next = 0

    def step(self) -> Step:
        """As many iterations as a frame has, at the next size.

        Raises:
            ArithmeticError: the solve has failed.
        """
        at, last = self._next, self.levels - 1
        session, size = self._sessions[at], self._sizes[at]
        if at < last or self.level < last:  # the whole scan goes on from itself
            session.update(X=self._start_of(at), **self._weights(size))
        linear = 0
        for _ in range(self.settings["nonlinear"]):
            record = session.step()
            linear += record.linear_iterations
            if session.status.finished:
                break
        if session.status is op.Status.FAILURE:
            raise ArithmeticError(session.result().message)
        self._take(at, session)
        done = at == last and session.status.finished
        return Step(record.cost, linear, done, session.status.value if done else "")

    def _start_of(self, at: int) -> Plane:
        """The depth with which a size begins: the scan's, with the change that the size before has found."""
        own: Plane = self._sizes[at].data["X"]
        if at == 0:
            return own
        return own + self._sizes[at - 1].enlarged(self._change(at - 1), own.shape)

    def _change(self, at: int) -> Plane:
        size = self._sizes[at]
        change = np.asarray(self._sessions[at]["X"], np.float32) - size.data["X"]
        return np.where(size.data["D"] > 0, change, np.float32(0))

    def _take(self, at: int, session: op.Session) -> None:
        if at == self.levels - 1:
            depth = np.asarray(session["X"], np.float32)
        else:
            depth = self.before + self._sizes[at].enlarged(self._change(at), self.before.shape)
        measured = self._sizes[-1].data["D"] > 0
        if not np.isfinite(depth[measured]).all():
            raise ArithmeticError("the depths are not finite any more")
        self.depth = np.where(measured, depth, self.before)
        self.level = at
        self._next = min(at + 1, self.levels - 1)
        self._good = self.settings

    def recover(self) -> None:
        """Go back to the settings of the last good step; where that does not help, to the scan as it was."""
        for settings in (self._good, self.first_settings):
            if settings is not None:
                self.settings, self._good, self.level = settings, None, 0
                self.depth = self.before
                self._start()
                with suppress(op.OptpyError, ArithmeticError):
                    self.step()
                    return


def _check(name: str, value: Any) -> None:
    allowed = ALLOWED[name]
    if isinstance(allowed[0], str):
        good = value in allowed
    else:
        good = isinstance(value, int | float) and float(allowed[0]) <= value <= float(allowed[1])
    if not good:
        bounds = " or ".join(map(repr, allowed)) if isinstance(allowed[0], str) else f"{allowed[0]:g} to {allowed[1]:g}"
        raise ValueError(f"{name} may be {bounds}, not {value!r}")
