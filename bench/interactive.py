"""The demos without their pages: solves a second, how soon an input is answered, and whether memory grows.

`python -m bench.interactive [DEMO ...] [--parts rate latency browser session] [--seconds S] [--steps N]` works with the
same classes as the pages in the browser, prints a table beside what is asked for, and leaves JSON. "latency" is that of
the server: from an input until its answer is handed to the page. "browser" drags the mesh in a real one
(`bench/page_latency.py`): from the event of the pointer until the new vertices are in the page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from rich.table import Table

from bench import machine, report
from bench.page_latency import missing, page_latencies
from problems import meshes, shape_from_shading
from problems.demos.flow_work import FlowWork
from problems.demos.handles import handle
from problems.demos.image_work import Grip, GripAt, ImageWork, WarpSettings
from problems.demos.mesh_work import HandleAt, MeshWork
from problems.demos.shading_work import ShadingWork
from problems.demos.solving import Frame, SolvingThread, Work
from problems.image_warping import default_warp
from problems.optical_flow import film
from problems.pictures import data_file
from problems.shape_from_shading import Scan

PARTS: Final = ("rate", "latency", "browser", "session")
EVENTS: Final = 20.0
"""Inputs a second while something is dragged: as many as the pages send."""

MEDIAN, PERCENTILE_99, GROWN = 0.060, 0.150, 0.02
"""Seconds of latency, and growth of memory, that are allowed."""

_WARM: Final = 20
"""Steps before anything is measured, at least."""

_LIBRARY: Final = re.compile(r"\S+-[0-9a-f]{64}/\S+")
"""Of the compiled kernels among the files that a process has mapped."""

Inputs = Mapping[Hashable, Any]


@final
@dataclass(frozen=True, slots=True)
class Demo:
    """A demo that is driven without its page.

    Attributes:
        start: makes the work, and a function that gives its inputs at each moment of a drag that goes on for ever.
        wanted: solves a second; None: nothing is asked for.
        steps: of a solve at most, which may end sooner; the first of them is what latency waits for.
        browser: makes the work that a browser drags; None: it drags none.
    """

    start: Callable[[], tuple[Work, Callable[[int], Inputs]]]
    wanted: float | None
    steps: int = 1
    browser: Callable[[], MeshWork] | None = None


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """One number beside what is asked for.

    Attributes:
        demo: its name.
        what: is measured.
        value: in `unit`.
        unit: of the value and of what is wanted.
        wanted: the least, or for latencies, growth and compilations the most; None: nothing is asked for.
        met: whether it is; None: nothing is asked for.
    """

    demo: str
    what: str
    value: float
    unit: str
    wanted: float | None = None
    met: bool | None = None


def mesh(subdivisions: int = 5) -> tuple[Work, Callable[[int], Inputs]]:
    """A mesh held at its foot, whose top is drawn around in a circle; 10,242 vertices by default."""
    work = MeshWork(meshes.pebble(subdivisions))
    height = work.vertices[:, 1]
    top, foot = handle(work.vertices, height.argmax()), handle(work.vertices, height.argmin(), held=True)
    work.change({HandleAt(0): foot, HandleAt(1): top})
    around = np.array([[np.sin(a), 0, 1 - np.cos(a)] for a in np.linspace(0, 2 * np.pi, 63, endpoint=False)])
    return work, lambda n: {HandleAt(1): top.moved(top.position + 0.2 * around[n % 63])}


def image(size: int = 256) -> tuple[Work, Callable[[int], Inputs]]:
    """A photograph held at two pixels, of which a third is drawn around in a circle."""
    warp = default_warp(size)
    work = ImageWork(warp.picture, warp.data["Mask"], settings=WarpSettings(radius=round(0.02 * size, 1)))
    rows, columns = np.nonzero(work.mask == 0)
    order = np.argsort(rows, kind="stable")
    upper, middle, lower = (GripAt(int(rows[k]), int(columns[k])) for k in order[[0, len(order) // 2, -1]])
    held: dict[Hashable, Any] = {at: Grip(at.column, at.row) for at in (upper, lower)}
    away = 0.1 * size

    def drag(n: int) -> Inputs:
        angle = 2 * math.pi * n / 63
        place = Grip(middle.column + away * math.sin(angle), middle.row + away * (1 - math.cos(angle)))
        return {**held, middle: place}

    return work, drag


def flow(size: int = 320) -> tuple[Work, Callable[[int], Inputs]]:
    """Two frames, whose motion is looked for again and again with another weight."""
    return FlowWork(film("auto", size)), lambda n: {"w_smooth": 10.0 + n % 7}


def shading(size: int = 0) -> tuple[Work, Callable[[int], Inputs]]:
    """A scan of 640 x 480 whose light goes around: that of the data folder, or a made relief.

    Args:
        size: of a made scan in its place, in pixels along each side; 0: none.
    """
    work = ShadingWork(shape_from_shading.relief(size) if size else large_scan())
    return work, lambda n: {"light1": 0.2 * math.sin(n / 10), "light3": 0.2 * math.cos(n / 10)}


def large_scan() -> Scan:
    """640 x 480 pixels."""
    if data_file("shape_from_shading/default.SFSSolverParameters") is not None:
        return shape_from_shading.statue()
    made = shape_from_shading.relief(640)
    planes = {k: v[80:560] if np.ndim(v) == 2 else v for k, v in made.data.items()}
    return Scan(planes | {"centre_y": made.data["centre_y"] - 80})


DEMOS: Final[dict[str, Demo]] = {
    "mesh": Demo(mesh, 30.0, browser=lambda: MeshWork(meshes.pebble(5))),
    "image": Demo(image, 30.0),
    "shading": Demo(shading, 5.0, steps=3),
    "flow": Demo(flow, None, steps=1000),
}


def rate(name: str, demo: Demo, seconds: float) -> Iterator[Measured]:
    """Solves a second, each after a new input, and what each takes of the processor."""
    work, drag, warm = _warmed(demo)
    n, began, processor = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        _solve(work, drag(warm + n), demo.steps)
        n += 1
    took, worked = time.perf_counter() - began, time.process_time() - processor
    met = None if demo.wanted is None else n / took >= demo.wanted
    yield Measured(name, "solves a second", n / took, "1/s", demo.wanted, met)
    yield Measured(name, "processor for each solve", 1e3 * worked / n, "ms")


def _warmed(demo: Demo) -> tuple[Work, Callable[[int], Inputs], int]:
    """A demo that has worked for a while, and the number of its next input."""
    work, drag = demo.start()
    done = n = 0
    while done < _WARM:
        done += _solve(work, drag(n), demo.steps)
        n += 1
    return work, drag, n


def _solve(work: Work, inputs: Inputs, steps: int) -> int:
    """The number of steps that it has taken."""
    work.change(inputs)
    for n in range(steps):
        if work.step().finished:
            return n + 1
    return steps


def latency(name: str, demo: Demo, seconds: float) -> Iterator[Measured]:
    """From inputs that come as those of a drag do, until the answer is shown: median and 99th percentile."""
    work, drag, warm = _warmed(demo)
    found: list[float] = []
    failed: list[str] = []

    def show(frame: Frame) -> None:
        if frame.failed:
            failed.append(frame.message)
            answered.set()
        elif frame.latency is not None:
            found.append(frame.latency)
            answered.set()

    pause, answered = threading.Event(), threading.Event()
    with SolvingThread(work, show) as thread:
        for n in range(max(int(seconds * EVENTS), 1)):
            thread.put(drag(warm + n))
            pause.wait(1 / EVENTS)
        answered.wait(60)
    if failed:
        raise RuntimeError(f"{name}: a solve has failed while it was measured: {failed[0]}")
    yield from _quantiles(name, "latency", found)


def in_browser(name: str, demo: Demo, seconds: float) -> Iterator[Measured]:
    """From the pointer's events in a browser until the new vertices are there: median and 99th percentile.

    Where there is no browser, or nothing to drive it with, that is said, and nothing is measured.
    """
    if demo.browser is None:
        return
    if missing():
        print(f"{name}: the way through a browser is not measured: there is no {missing()} here", file=sys.stderr)
        return
    found = page_latencies(demo.browser(), max(int(seconds * EVENTS), 1))
    yield from _quantiles(name, "in the browser", found)


def _quantiles(name: str, what: str, found: list[float]) -> Iterator[Measured]:
    median, last = np.quantile(found, [0.5, 0.99]).tolist()
    yield Measured(name, f"{what}, median", 1e3 * median, "ms", 1e3 * MEDIAN, median <= MEDIAN)
    yield Measured(name, f"{what}, 99 %", 1e3 * last, "ms", 1e3 * PERCENTILE_99, last <= PERCENTILE_99)


def session(name: str, demo: Demo, steps: int) -> Iterator[Measured]:
    """Many steps of one session: how much its memory grows, and what is compiled after the first one.

    The memory at the start is that after a tenth of the steps.
    """
    work, drag = demo.start()
    work.change(drag(0))
    work.step()
    first, sizes = _libraries(), []
    every, done, n = max(steps // 100, 1), 1, 0
    while done < steps:
        n += 1
        before = done
        done += _solve(work, drag(n), min(demo.steps, steps - done))
        if done // every > before // every:
            sizes.append(_resident())
    settled = sizes[len(sizes) // 10 :]
    grown, new = max(settled) / settled[0] - 1, len(_libraries() - first)
    yield Measured(name, f"memory grown over {steps} steps", 100 * grown, "%", 100 * GROWN, grown <= GROWN)
    yield Measured(name, "memory", settled[0] / 2**20, "MiB")
    yield Measured(name, "libraries compiled after the first step", new, "", 0, new == 0)


def _libraries() -> set[str]:
    """The compiled kernels that this process has loaded."""
    return set(_LIBRARY.findall(Path("/proc/self/maps").read_text()))


def _resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(name: str, settings: argparse.Namespace) -> Iterator[Measured]:
    """The parts that are asked for, of a demo."""
    demo = DEMOS[name]
    if "rate" in settings.parts:
        yield from rate(name, demo, settings.seconds)
    if "latency" in settings.parts:
        yield from latency(name, demo, settings.seconds)
    if "browser" in settings.parts:
        yield from in_browser(name, demo, settings.seconds)
    if "session" in settings.parts:
        yield from session(name, demo, settings.steps)


def table(rows: list[Measured]) -> Table:
    """A line for each number."""
    made = Table(title="demos")
    for column in ("demo", "", "measured", "asked for", ""):
        made.add_column(column, justify="right" if column in ("measured", "asked for") else "left")
    for r in rows:
        bound = "" if r.wanted is None else f"{r.wanted:g} {r.unit}"
        made.add_row(r.demo, r.what, f"{r.value:.3g} {r.unit}", bound, {None: "", True: "met", False: "MISSED"}[r.met])
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints a table, leaves JSON in bench/results. Returns 1 where something asked for is missed."""
    made = argparse.ArgumentParser(prog="python -m bench.interactive", description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("demos", nargs="*", metavar="DEMO", help=f"of {', '.join(DEMOS)}; all if none is named")
    made.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    made.add_argument("--seconds", type=float, default=10.0, help="of rates and latencies")
    made.add_argument("--steps", type=int, default=10_000, help="of a session, at least 10")
    made.add_argument("--output", type=Path, default=Path(__file__).with_name("results"))
    settings = made.parse_args(arguments)
    unknown = [name for name in settings.demos if name not in DEMOS]
    if unknown:
        made.error(f"no demo {unknown[0]!r}; there are: {', '.join(DEMOS)}")
    if settings.steps < 10 or not settings.seconds > 0:
        made.error("--steps must be 10 or more, and --seconds more than 0")
    rows = [row for name in settings.demos or DEMOS for row in measure(name, settings)]
    report.show(table(rows))
    settings.output.mkdir(parents=True, exist_ok=True)
    path = settings.output / "interactive.json"
    path.write_text(json.dumps({"machine": machine.describe(), "rows": [asdict(row) for row in rows]}, indent=1))
    print(path)
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
