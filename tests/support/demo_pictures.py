"""Takes the pictures of docs/guide/demos.md, of the demos in a browser: ``python -m tests.support.demo_pictures``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from tests.support.demo_pages import DemoPage, demo_page

GUIDE: Final = Path(__file__).resolve().parents[2] / "docs" / "guide"

WIDTH, HEIGHT = 1000, 640
"""Pixels of a page."""

_SAYS: Final = """words => [...document.querySelectorAll('input, textarea')].some(
    control => control.value.includes(words))"""

_AT_LAST_SIZE: Final = """() => [...document.querySelectorAll('input')].some(
    control => /x \\d+, (\\d+) of \\1$/.test(control.value))"""

_OPTIONS: Final = {"shading": ("--size", "96")}
"""So many triangles as a browser without a display draws in a moment."""


def _mesh(tab: DemoPage) -> None:
    """Its foot is held, and its top is drawn up and to the right."""
    tab.page.keyboard.down("Shift")
    tab.drag((400, 385), (600, 460))
    tab.page.keyboard.up("Shift")
    tab.page.keyboard.down("Control")
    tab.drag((510, 250), (585, 215))
    tab.page.keyboard.up("Control")


def _image(tab: DemoPage) -> None:
    """It is held at two places and dragged at a third."""
    tab.page.keyboard.down("Shift")
    for place in ((250, 470), (480, 470)):
        tab.page.mouse.click(*place)
        tab.page.wait_for_timeout(300)
    tab.page.keyboard.up("Shift")
    tab.drag((370, 260), (405, 235))
    tab.control("grid").click()


def _shading(tab: DemoPage) -> None:
    tab.wait_until(lambda: tab.page.evaluate(_AT_LAST_SIZE), 300)


def _flow(tab: DemoPage) -> None:
    tab.wait_until(lambda: tab.page.evaluate(_SAYS, "all levels are solved"), 300)


DEMOS: Final[dict[str, Callable[[DemoPage], None]]] = {
    "mesh": _mesh,
    "image": _image,
    "shading": _shading,
    "flow": _flow,
}
"""What is done on each page before its picture is taken."""


@contextmanager
def running(*words: str) -> Iterator[str]:
    """``optpy demo`` with some words, without the data folder, until the block ends; the address of its page.

    Raises:
        RuntimeError: it has no page, or does not end as Ctrl-C asks it to.
    """
    environment = {**os.environ, "OPTPY_DATA": "", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "optpy", "demo", *words]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = (re.search(r"http://localhost:\d+", line) for line in process.stdout)
            found = next((match for match in said if match is not None), None)
            if found is None:
                raise RuntimeError(f"optpy demo {' '.join(words)} has ended without a page")
            yield found.group()
        finally:
            process.send_signal(signal.SIGINT)
            ended = process.wait(60)
        if ended != 0:
            raise RuntimeError(f"Ctrl-C has ended optpy demo {' '.join(words)} with {ended}")


def take(name: str, folder: Path) -> Path:
    """The picture of a demo, after some work on its page.

    Raises:
        RuntimeError: the browser's console has complaints.
    """
    with running(name, *_OPTIONS.get(name, ())) as url, demo_page(url, WIDTH, HEIGHT) as tab:
        before = tab.until(lambda seen: np.ptp(seen[100:500, 100:600]) > 60, 120)
        tab.page.wait_for_timeout(2000)
        for warning in tab.page.locator(".mantine-Notification-closeButton").all():  # that it draws in software
            warning.click()
        DEMOS[name](tab)
        tab.until(lambda seen: (np.abs(seen - before).max(axis=2) > 30).sum() > 200, 120)
        tab.page.wait_for_timeout(4000)
        seen = tab.screenshot()
        if tab.complaints:
            raise RuntimeError(f"the browser complains: {tab.complaints}")
    kept = folder / f"demo_{name}.jpg"
    Image.fromarray(seen.astype(np.uint8)).save(kept, quality=85, optimize=True)
    return kept


if __name__ == "__main__":
    for demo in sys.argv[1:] or DEMOS:
        print(take(demo, GUIDE), flush=True)
