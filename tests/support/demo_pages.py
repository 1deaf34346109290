"""A real browser on the page of a demo."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")

_HARMLESS = ("GPU stall", "GL Driver Message", "THREE.Clock", "favicon", "passive event listener")
"""Parts of what a browser that draws in software says in any case."""


class DemoPage:
    """A tab of a headless browser, with what its console has said and what it has asked for.

    Attributes:
        page: of Playwright.
        complaints: errors of the console, exceptions, and requests that went elsewhere.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self._url = url
        self.complaints: list[str] = []
        page.set_default_timeout(120_000)  # others may keep the machine busy
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._asked(request.url, url))
        page.goto(url)
        page.wait_for_selector("canvas")

    def _heard(self, message: Any) -> None:
        if message.type == "error" and not any(part in message.text for part in _HARMLESS):
            self.complaints.append(message.text)

    def _asked(self, asked: str, url: str) -> None:
        if not asked.startswith((url, "data:", "blob:")):
            self.complaints.append(f"a request to {asked}")

    def another(self) -> DemoPage:
        """A second tab on the same address, as another visitor has it."""
        return DemoPage(self.page.context.browser.new_page(viewport=self.page.viewport_size), self._url)

    def screenshot(self) -> NDArray[np.int16]:
        """(H, W, 3): what is seen, 0 to 255."""
        return np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"), np.int16)

    def until(self, seen: Callable[[NDArray[np.int16]], Any], seconds: float = 60.0) -> NDArray[np.int16]:
        """A screenshot that shows something.

        Raises:
            AssertionError: none has shown it for so long.
        """
        found: list[NDArray[np.int16]] = []

        def look() -> bool:
            found[:] = [self.screenshot()]
            return bool(seen(found[0]))

        self.wait_until(look, seconds)
        return found[0]

    def wait_until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until something holds.

        Raises:
            AssertionError: it has not for so long.
        """
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "the page has not come to what is waited for"
            self.page.wait_for_timeout(100)

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 6) -> None:
        """Drag by the left button, in pixels of the page."""
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        for k in range(1, steps + 1):
            mouse.move(*(a + (b - a) * k / steps for a, b in zip(start, end, strict=True)))
            self.page.wait_for_timeout(100)
        mouse.up()

    def control(self, label: str, kind: str = "input") -> Any:
        """The input beside a label of the panel, of a slider its number."""
        row = self.page.locator("label", has_text=label).locator("xpath=ancestor::*[.//input][1]")
        return row.locator(kind).last

    def set_slider(self, label: str, value: float) -> None:
        """Type a number beside a slider."""
        number = self.control(label)
        number.fill(str(value))
        number.press("Enter")


@contextmanager
def demo_page(url: str, width: int = 900, height: int = 600) -> Iterator[DemoPage]:
    """A tab on a page."""
    driver = pytest.importorskip("playwright.sync_api")
    with driver.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield DemoPage(browser.new_page(viewport={"width": width, "height": height}), url)
        finally:
            browser.close()
