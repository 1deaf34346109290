"""Sliders and choices of a page whose values go to the solver by their names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, final

import viser

Put = Callable[[Mapping[Hashable, Any]], None]
"""Takes inputs of a `Work`."""


@final
class Controls:
    """Makes controls; each puts its value under a name when somebody changes it.

    Args:
        server: of the page.
        put: takes the values.
    """

    def __init__(self, server: viser.ViserServer, put: Put) -> None:
        self._gui: Any = server.gui
        self._put = put

    def slider(self, label: str, name: str, low: float, high: float, step: float, value: float) -> None:
        """A number in a range."""
        self._listen(self._gui.add_slider(label, low, high, step, value), name)

    def choice(self, label: str, name: str, options: tuple[str, ...], value: str) -> None:
        """One of some words."""
        self._listen(self._gui.add_dropdown(label, options, initial_value=value), name)

    def checkbox(self, label: str, name: str, value: bool) -> None:
        """Yes or no."""
        self._listen(self._gui.add_checkbox(label, value), name)

    def button(self, label: str, pressed: Callable[[], Mapping[Hashable, Any]]) -> None:
        """A button that puts what a function gives."""

        async def clicked(_: Any) -> None:  # a coroutine without `await`: those run in the order of the events
            self._put(pressed())

        self._gui.add_button(label).on_click(clicked)

    def _listen(self, control: Any, name: str) -> None:
        async def changed(_: Any) -> None:
            self._put({name: control.value})

        control.on_update(changed)
