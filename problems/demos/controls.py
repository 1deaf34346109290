"""Sliders and choices of a page whose values go to the solver by their names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, NamedTuple, final

import numpy as np
import viser

from .script import Allowed

Put = Callable[[Mapping[Hashable, Any]], None]
"""Takes inputs of a `Work`."""


class SliderScale(NamedTuple):
    """How a value stands on a slider."""

    shown: Callable[[Any], Any]
    """The slider's number, by the value."""
    meant: Callable[[Any], Any]
    """The value, by the slider's number."""


AS_IT_IS: Final = SliderScale(lambda value: value, lambda number: number)
THOUSANDTHS: Final = SliderScale(lambda value: round(float(value), 3), float)
POWERS_OF_TEN: Final = SliderScale(
    lambda value: round(float(np.log10(value)), 2), lambda number: float(10.0 ** float(number))
)


def slider_ends(allowed: Allowed) -> tuple[float, float]:
    """The least and the largest number of a setting; whole ones stay so."""
    low, high = allowed
    return (low, high) if isinstance(low, int) and isinstance(high, int) else (float(low), float(high))


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
        self._made: dict[str, tuple[Any, SliderScale]] = {}

    def slider(
        self, label: str, name: str, low: float, high: float, step: float, value: float, scale: SliderScale = AS_IT_IS
    ) -> None:
        """A number in a range; the ends and the step are those of the slider, the value is that of the solver."""
        self._listen(self._gui.add_slider(label, low, high, step, scale.shown(value)), name, scale)

    def choice(self, label: str, name: str, options: Iterable[Any], value: str) -> None:
        """One of some words."""
        self._listen(self._gui.add_dropdown(label, tuple(map(str, options)), initial_value=value), name)

    def checkbox(self, label: str, name: str, value: bool) -> None:
        """Yes or no."""
        self._listen(self._gui.add_checkbox(label, value), name)

    def button(self, label: str, pressed: Callable[[], Mapping[Hashable, Any]]) -> None:
        """A button that puts what a function gives."""

        async def clicked(_: Any) -> None:  # a coroutine without `await`: those run in the order of the events
            self._put(pressed())

        self._gui.add_button(label).on_click(clicked)

    def show(self, values: Mapping[str, Any]) -> None:
        """Put the controls where values are, by their names."""
        for name, (control, scale) in self._made.items():
            shown = scale.shown(values[name])
            if control.value != shown:
                control.value = shown

    def _listen(self, control: Any, name: str, scale: SliderScale = AS_IT_IS) -> None:
        self._made[name] = control, scale

        async def changed(_: Any) -> None:
            self._put({name: scale.meant(control.value)})

        control.on_update(changed)
