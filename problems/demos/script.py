"""Scripts of a demo: what its handles do, moment by moment, without a browser.

A script is a JSON file:

    {
      "frames_per_second": 10,
      "settings": {"w_fit": 100},
      "handles": {
        "foot": {"point": [0.5, 0, 0.5], "radius": 0.2, "held": true},
        "head": {"vertex": 7}
      },
      "moments": [
        {"time": 0},
        {"time": 1, "move": {"head": {"by": [0.3, 0, 0], "turn": [0, 40, 0]}}},
        {"time": 2, "move": {"head": {"by": [0, 0, 0]}}, "settings": {"w_fit": 10}}
      ]
    }

A handle is the `vertex` of that number, or the one nearest to a `point`: 0 and 1 are the two ends of the thing in each
direction. With a `radius` it has all vertices as near, in parts of the thing's longest side. One that is `held` does
not move. A moment, in seconds, says how far its handles are by then from where they were taken: moved `by` parts of the
longest side, and turned about x, y, z, in degrees. Between moments they move evenly; those that a moment does not name
stay. `settings` are the demo's own, from that moment on.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

import optpy as op

Allowed = tuple[str, ...] | tuple[int, int] | tuple[float, float]
"""Of a setting: some words, or the ends of a range; whole numbers if both ends are."""

MOST_FRAMES: Final = 2000
_FASTEST: Final = 50.0
_LONGEST: Final = 80
"""Characters of a value in a message."""
_NEEDED: Final = object()


@final
@dataclass(frozen=True, slots=True)
class Taken:
    """A handle of a script, before anybody knows the thing that it is on.

    Attributes:
        vertex: its number; None: it is the one nearest to `point`.
        point: in each direction from 0 to 1 within the thing's box.
        radius: in parts of the box's longest side.
        held: it does not move.
    """

    vertex: int | None
    point: tuple[float, ...] | None
    radius: float
    held: bool


@final
@dataclass(frozen=True, slots=True)
class Moved:
    """How far a handle is from where it was taken: in parts of the longest side, and in degrees about x, y, z."""

    by: NDArray[np.float64]
    turn: NDArray[np.float64]

    def towards(self, other: Moved, part: float) -> Moved:
        """Some part of the way to another place."""
        return Moved(self.by + part * (other.by - self.by), self.turn + part * (other.turn - self.turn))


@final
@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a script.

    Attributes:
        time: seconds from the start.
        moved: all handles that move, by name.
        settings: that begin.
    """

    time: float
    moved: Mapping[str, Moved]
    settings: Mapping[Hashable, Any]


@final
@dataclass(frozen=True, slots=True)
class Script:
    """What handles do.

    Attributes:
        frames_per_second: of the film.
        handles: by name.
        moments: in the order of their times, the first at 0.
    """

    frames_per_second: float
    handles: Mapping[str, Taken]
    moments: tuple[Moment, ...]

    def frames(self) -> Iterator[Moment]:
        """Each frame of the film: where the handles are, and what settings begin with it."""
        told = 0
        for n in range(int(self.moments[-1].time * self.frames_per_second + 1e-6) + 1):
            time = n / self.frames_per_second
            settings: dict[Hashable, Any] = {}
            while told < len(self.moments) and self.moments[told].time <= time + 1e-9:
                settings |= self.moments[told].settings
                told += 1
            last, following = self.moments[told - 1], self.moments[min(told, len(self.moments) - 1)]
            part = (time - last.time) / (following.time - last.time) if following is not last else 0.0
            moved = {name: at.towards(following.moved[name], part) for name, at in last.moved.items()}
            yield Moment(time, moved, settings)


def read_script(path: Path, settings: Mapping[str, Allowed]) -> Script:
    """Reads a script.

    Args:
        path: of a JSON file.
        settings: of the demo, by name.

    Raises:
        OSError: there is no such file, or it cannot be read.
        DataError: it is no script; the message has the entry, and what to write there.
    """
    try:
        read = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeats, parse_int=_whole_number)
    except json.JSONDecodeError as error:
        raise op.DataError(f"{path}:{error.lineno}:{error.colno}: this is no JSON: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise op.DataError(f"{path} is no text in UTF-8: {error.reason} at byte {error.start}") from error
    except RecursionError as error:
        raise op.DataError(f"{path}: brackets stand in one another too deeply for a script") from error
    except ValueError as error:  # of the two functions below
        raise op.DataError(f"{path}: {error}") from error
    return _Reader(path, settings).script(read)


def _whole_number(digits: str) -> int:
    if len(digits) > _LONGEST:  # Python itself refuses thousands of them
        raise ValueError(f"{digits[:20]}... is a number of {len(digits)} digits; no entry of a script is as large")
    return int(digits)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table, of whose entries none would be lost."""
    table: dict[str, Any] = {}
    for name, value in pairs:
        if name in table:
            raise ValueError(f"{name!r} stands twice in one table; keep one of them")
        table[name] = value
    return table


def _shown(value: Any) -> str:
    """A value as JSON has it, for a message."""
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@final
@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the entries of a script; says which of them is wrong."""

    path: Path
    allowed: Mapping[str, Allowed]

    def _wrong(self, entry: str, why: str) -> op.DataError:
        return op.DataError(f"{self.path}: {entry or 'the script'}: {why}")

    def _table(self, entry: str, value: Any, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A table's entries, with defaults for those that are missing."""
        if not isinstance(value, dict):
            raise self._wrong(entry, f"a table in braces is needed here, not {_shown(value)}")
        if names is None:
            return value
        for name in value.keys() - names.keys():
            near = difflib.get_close_matches(name, names, 1)
            cure = f"did you mean {near[0]!r}?" if near else f"there may be {', '.join(names) or 'none'}"
            raise self._wrong(entry, f"there is no {name!r} here; {cure}")
        missing = [name for name, default in names.items() if default is _NEEDED and name not in value]
        if missing:
            raise self._wrong(entry, f"{missing[0]!r} is missing")
        return {**names, **value}

    def _number(self, entry: str, value: Any, low: float, high: float, *, whole: bool = False) -> Any:
        fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not fits or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise self._wrong(entry, f"{kind} from {low:g} to {high:g} is needed here, not {_shown(value)}")
        return value

    def _numbers(self, entry: str, value: Any, example: str) -> NDArray[np.float64]:
        if not isinstance(value, list) or len(value) != 3 or not all(self._finite(v) for v in value):
            raise self._wrong(entry, f"three numbers are needed here, such as {example}, not {_shown(value)}")
        return np.array(value, np.float64)

    @staticmethod
    def _finite(value: Any) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return math.isfinite(value)

    def script(self, read: Any) -> Script:
        """The whole."""
        names = dict(frames_per_second=10, settings={}, handles=_NEEDED, moments=_NEEDED)
        given = self._table("", read, names)
        rate = self._number("frames_per_second", given["frames_per_second"], 0.1, _FASTEST)
        handles = {n: self._handle(f"handles.{n}", h) for n, h in self._table("handles", given["handles"]).items()}
        moments = self._moments(given["moments"], handles, self._settings("settings", given["settings"]))
        if moments[-1].time * rate > MOST_FRAMES:
            why = f"{moments[-1].time:g} seconds are more than {MOST_FRAMES} frames; end sooner, or take fewer a second"
            raise self._wrong(f"moments[{len(moments) - 1}].time", why)
        return Script(rate, handles, moments)

    def _handle(self, entry: str, value: Any) -> Taken:
        given = self._table(entry, value, dict(vertex=None, point=None, radius=0.0, held=False))
        if (given["vertex"] is None) == (given["point"] is None):
            raise self._wrong(entry, 'it needs either "vertex", a number, or "point", such as [0.5, 1, 0.5]')
        if not isinstance(given["held"], bool):
            raise self._wrong(f"{entry}.held", f"true or false is needed here, not {_shown(given['held'])}")
        radius = self._number(f"{entry}.radius", given["radius"], 0, 1)
        if given["vertex"] is not None:
            return Taken(
                self._number(f"{entry}.vertex", given["vertex"], 0, 1e9, whole=True), None, radius, given["held"]
            )
        point = self._numbers(f"{entry}.point", given["point"], "[0.5, 1, 0.5]")
        return Taken(None, tuple(point.tolist()), radius, given["held"])

    def _moments(
        self, value: Any, handles: Mapping[str, Taken], settings: Mapping[Hashable, Any]
    ) -> tuple[Moment, ...]:
        if not isinstance(value, list) or not value:
            raise self._wrong("moments", "a list of moments is needed here, the first at time 0")
        still = Moved(np.zeros(3), np.zeros(3))
        moved = {name: still for name, taken in handles.items() if not taken.held}
        found: list[Moment] = []
        for n, one in enumerate(value):
            entry = f"moments[{n}]"
            given = self._table(entry, one, dict(time=_NEEDED, move={}, settings={}))
            time = self._number(f"{entry}.time", given["time"], 0, 1e6)
            if not found and time != 0:
                raise self._wrong(f"{entry}.time", f"the first moment is at 0, not at {time}")
            if found and time <= found[-1].time:
                raise self._wrong(f"{entry}.time", f"{time} is not later than the moment before, {found[-1].time}")
            moves = self._table(f"{entry}.move", given["move"])
            self._table(f"{entry}.move", moves, dict.fromkeys(moved))
            said = {k: self._moved(f"{entry}.move.{k}", v) for k, v in moves.items()}
            moved = moved | said
            begins = self._settings(f"{entry}.settings", given["settings"])
            found.append(Moment(time, moved, begins if found else {**settings, **begins}))
        return tuple(found)

    def _moved(self, entry: str, value: Any) -> Moved:
        given = self._table(entry, value, dict(by=[0, 0, 0], turn=[0, 0, 0]))
        by = self._numbers(f"{entry}.by", given["by"], "[0.3, 0, 0]")
        return Moved(by, self._numbers(f"{entry}.turn", given["turn"], "[0, 45, 0]"))

    def _settings(self, entry: str, value: Any) -> dict[Hashable, Any]:
        given = self._table(entry, value)
        self._table(entry, given, dict.fromkeys(self.allowed))
        return {name: self._setting(f"{entry}.{name}", v, self.allowed[name]) for name, v in given.items()}

    def _setting(self, entry: str, value: Any, allowed: Allowed) -> Any:
        if isinstance(allowed[0], str):
            if value not in allowed:
                words = ", ".join(map(str, allowed))
                raise self._wrong(entry, f"one of {words} is needed here, not {_shown(value)}")
            return value
        low, high = allowed
        return self._number(entry, value, float(low), float(high), whole=isinstance(low, int) and isinstance(high, int))
