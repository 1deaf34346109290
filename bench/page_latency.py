"""The way of a drag through a real browser: from the event of the pointer until the page has the new vertices.

A headless Chromium drags the mesh of `optpy demo mesh`. All times are taken by the clock of the page. What it draws is
thrown away, because a browser without a display draws on the processor.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import shutil
import threading
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, final

import numpy as np

from problems.demos.mesh_work import MeshWork
from problems.demos.solving import Frame, SolvingThread

_WARM: Final = 20
"""Events before those that count."""

_PATIENCE: Final = 60.0
"""Seconds after which a page that does not answer is given up."""

_START: Final = (450.0, 240.0)
"""Pixels of the page, of 900 x 600: on the mesh."""

_AROUND: Final = 40.0
"""Pixels: the radius of the circle in which the pointer goes."""

_DRAWS_NOTHING: Final = """
for (const name of ['drawElements', 'drawArrays', 'drawElementsInstanced', 'drawArraysInstanced', 'drawRangeElements'])
    WebGL2RenderingContext.prototype[name] = () => {};
"""

_PLACES: Final = """
window.placesOf = (count) => {
    let found = null;
    window.__viserMutable?.nodeRefFromName['/mesh']?.traverse(node => {
        const places = node.geometry?.attributes.position.array;
        if (places?.length === 3 * count) found = found ?? places;
    });
    return found;
};
"""

_WATCH: Final = """([count, vertex]) => {
    window.moves = []; window.arrivals = [];
    window.addEventListener('pointermove', event => window.moves.push(event.timeStamp), true);
    let last = '';
    setInterval(() => {
        const places = [...window.placesOf(count).slice(3 * vertex, 3 * vertex + 3)];
        if (String(places) !== last) window.arrivals.push([performance.now(), ...places]);
        last = String(places);
    }, 1);
}"""


class Shown(NamedTuple):
    """What was sent to the page.

    Attributes:
        version: of the newest input that the vertices come from.
        place: (3,), of the vertex that is watched, as float32.
    """

    version: int
    place: tuple[float, ...]


def missing() -> str:
    """What is not installed of all that this needs; empty: nothing."""
    modules = [name for name in ("viser", "playwright") if importlib.util.find_spec(name) is None]
    return ", ".join([*modules, *(["chromium"] if shutil.which("chromium") is None else [])])


@contextmanager
def _tab(url: str) -> Iterator[Any]:
    driver: Any = importlib.import_module("playwright.sync_api")
    with driver.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            page = browser.new_page(viewport={"width": 900, "height": 600})
            page.add_init_script(_DRAWS_NOTHING + _PLACES)
            page.goto(url)
            yield page
        finally:
            browser.close()


@final
class _DraggedMesh:
    """The demo, which notes what it is told and what it shows."""

    def __init__(self, server: Any, work: MeshWork) -> None:
        from problems.demos.mesh_scene import MeshScene  # it needs viser

        self.work = work
        self.version = 0
        self.vertex = 0
        self.shown: list[Shown] = []
        self.failed = ""
        self.solving = SolvingThread(work, self._show)
        self.scene = MeshScene(server, work.mesh, self._put)
        self._lock = threading.Lock()

    def _put(self, inputs: Mapping[Hashable, Any]) -> None:
        self.version = inputs["version"]
        self.solving.put(inputs)

    def _show(self, frame: Frame) -> None:
        if frame.failed:
            self.failed = frame.message
        place = np.asarray(self.work.vertices[self.vertex], np.float32).tolist()
        self.shown.append(Shown(self.work.version, tuple(place)))
        self.scene.draw(self.work.vertices, self.work.handles, self.work.version)


def page_latencies(work: MeshWork, events: int) -> list[float]:
    """Seconds from each event of a moved pointer until vertices that come from it are in the page.

    Each event is sent when the one before has reached the server, and at most 20 are sent a second.

    Args:
        work: on a mesh that stands as it was.
        events: how many, after the first ones, which do not count.

    Raises:
        RuntimeError: a solve has failed, or the page does not answer.
    """
    from problems.demos.page import LOCAL, served  # it needs viser

    with served("bench", LOCAL, 8240) as server:
        demo = _DraggedMesh(server, work)
        foot = int(work.vertices[:, 1].argmin())
        demo.scene.add_handle(foot, held=True)
        with _tab(f"http://{LOCAL}:{server.get_port()}/") as page, demo.solving:
            versions = _drag(page, demo, events)
            _wait(page, lambda: demo.shown[-1].version >= versions[-1])
            page.wait_for_timeout(500)
            moves, arrivals = page.evaluate("[window.moves, window.arrivals]")
    if demo.failed:
        raise RuntimeError(f"a solve has failed while it was measured: {demo.failed}")
    if len(moves) != len(versions):
        raise RuntimeError(f"the page has seen {len(moves)} moves of the pointer, not {len(versions)}")
    return answered(moves, versions, arrivals, demo.shown)[_WARM:]


def _drag(page: Any, demo: _DraggedMesh, events: int) -> list[int]:
    """The version of the inputs that each event has led to."""
    count = len(demo.work.vertices)
    _wait(page, lambda: page.evaluate(f"window.placesOf({count}) !== null"))
    page.wait_for_timeout(500)
    page.keyboard.down("Control")
    page.mouse.move(*_START)
    page.mouse.down()
    page.mouse.move(_START[0] - 5, _START[1])
    _wait(page, lambda: len(demo.work.handles) == 2)
    demo.vertex = int([*demo.work.handles.values()][-1].vertices[0])
    page.wait_for_timeout(200)
    page.evaluate(_WATCH, [count, demo.vertex])
    versions = []
    for n in range(_WARM + events):
        before, angle = demo.version, 2 * math.pi * (n + 1) / 63
        page.mouse.move(_START[0] - _AROUND * (1 - math.cos(angle)), _START[1] - _AROUND * math.sin(angle))
        _wait(page, lambda before=before: demo.version > before)
        versions.append(before + 1)
        page.wait_for_timeout(50)
    page.mouse.up()
    page.keyboard.up("Control")
    return versions


def _wait(page: Any, holds: Any) -> None:
    end = time.monotonic() + _PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"the page has not answered for {_PATIENCE:g} seconds")
        page.wait_for_timeout(2)


def answered(moves: list[float], versions: list[int], arrivals: list[list[float]], shown: list[Shown]) -> list[float]:
    """Seconds from each move to the first arrival that comes from it.

    Args:
        moves: milliseconds of the page's clock.
        versions: of the inputs that each move has led to.
        arrivals: of each change of the watched vertex in the page, its time in milliseconds, and its place.
        shown: all that was sent to the page, in its order.

    Raises:
        RuntimeError: the page has a place that was never sent to it, or no answer to the last move.
    """
    seen: list[tuple[float, int]] = []
    at = 0
    for when, *place in arrivals:
        same = [n for n in range(at, len(shown)) if shown[n].place == tuple(place)]
        if same:
            at = same[0]
            seen.append((when, shown[at].version))
        elif seen:  # the first may be of before it was watched
            raise RuntimeError(f"the page has the vertex at {place}, where it was never sent")
    found = []
    for move, version in zip(moves, versions, strict=True):
        times = [when for when, newest in seen if newest >= version]
        if not times:
            raise RuntimeError("vertices that were sent to the page have not arrived there")
        found.append((times[0] - move) / 1e3)
    return found
