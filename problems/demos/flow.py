"""The motion between two frames in the browser, found from coarse to fine as you watch: `optpy demo flow`.

Whenever a slider moves, the search begins anew in the smallest pictures.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final, final

import click
import numpy as np
import viser
from numpy.typing import NDArray
from scipy.ndimage import map_coordinates

import optpy as op

from ..optical_flow import Film, drawn, film, resized
from ..pictures import Picture
from .controls import Controls, Put
from .flow_work import Device, Flow, FlowChoices, FlowWork
from .page import LOCAL, Panel, served, until_interrupted
from .photographs import png, read_photograph
from .plane import PicturePlane, look_from_front
from .solving import SolvingThread

_GAP: Final = 0.06
"""Between the pictures, by the longer side of one."""

_SECOND: Final = ("second frame", "second frame brought back", "difference")


@final
class FlowScene:
    """The first frame, the motion, the second frame, and the controls, on a page that all tabs share.

    Args:
        server: of the page.
        work: that is shown.
        put: takes inputs of a `FlowWork`.
    """

    def __init__(self, server: viser.ViserServer, work: FlowWork, put: Put) -> None:
        self._server = server
        self._film = work.film
        self._first, self._second = coloured(work.film.first), coloured(work.film.second)
        self._flow: Flow = work.in_film
        self._lock = threading.Lock()  # the page's events and the solver come in threads of their own
        height, width = self._first.shape[:2]
        unit = 1 / max(height, width)
        right, down = (0.0, height * unit + _GAP) if width > 1.3 * height else (width * unit + _GAP, 0.0)
        look_from_front(server, width * unit + 2 * right, height * unit + 2 * down)
        self._planes = {
            name: PicturePlane(server, f"/{name}", in_bytes(self._first), unit, (k * right, k * down))
            for k, name in ((-1, "first"), (0, "motion"), (1, "second"))
        }
        self._controls(work.choices, put)
        self.draw(work)

    def _controls(self, choices: FlowChoices, put: Put) -> None:
        gui, controls = self._server.gui, Controls(self._server, put)
        with gui.add_folder("Search"):
            self._level: Any = gui.add_text("level", "", disabled=True)
            self._error: Any = gui.add_text("error", "", disabled=True)
        with gui.add_folder("Energy"):
            controls.slider("smoothness", "w_smooth", 0.5, 50.0, 0.5, choices.w_smooth)
            controls.slider("outliers from", "s_fit", 0.1, 10.0, 0.1, choices.s_fit)
            controls.slider("edges from", "s_smooth", 0.01, 1.0, 0.01, choices.s_smooth)
        with gui.add_folder("Each level"):
            controls.choice("method", "method", ("lm", "gn"), choices.method)
            controls.slider("rounds", "rounds", 1, 6, 1, choices.rounds)
            controls.slider("steps", "nonlinear", 1, 20, 1, choices.nonlinear)
            controls.slider("median", "median", 1, 9, 2, choices.median)
        self._over: Any = gui.add_slider("motion over frame", 0.0, 1.0, 0.05, 0.0)
        self._which: Any = gui.add_dropdown("third picture", _SECOND)
        controls.button("Again", lambda: {"restart": True})
        save: Any = gui.add_button("Save PNG")
        self._wheel: Any = gui.add_image(in_bytes(wheel()), label="colours")

        async def changed(_: Any) -> None:  # a coroutine without `await`: those run in the order of the events
            with self._lock:
                self._draw_pictures()

        def saved(event: Any) -> None:  # in a thread of its own: a file may be long
            field = drawn(self._whole(), self._largest())
            event.client.send_file_download("motion.png", png(field), save_immediately=True)

        self._over.on_update(changed)
        self._which.on_update(changed)
        save.on_click(saved)

    def draw(self, work: FlowWork) -> None:
        """Show the motion as it stands."""
        with self._lock:
            self._flow = work.in_film
            self._level.value = work.standing
            known = work.film.truth is not None
            self._error.value = f"{work.film.error(work.whole):.2f} pixels" if known else "nobody knows the motion"
            self._draw_pictures()

    def _largest(self) -> float:
        """Pixels of a motion that has full colour: the longest true one, else nearly the longest found."""
        if self._film.truth is not None:
            return float(np.nanmax(np.linalg.norm(self._film.truth, axis=-1)))
        return max(float(np.quantile(np.linalg.norm(self._flow, axis=-1), 0.995)), 1e-3)

    def _whole(self) -> NDArray[np.float64]:
        """The motion at every pixel of the film, in its pixels."""
        shape = self._film.first.shape[:2]
        scale = np.divide(self._flow.shape[1::-1], shape[::-1])
        return resized(self._flow.astype(np.float64) * scale, shape)

    def _draw_pictures(self) -> None:
        largest = self._largest()
        field = drawn(self._flow, largest)
        self._wheel.label = f"colours: the rim moves by {largest:.3g} pixels"
        self._planes["motion"].show(in_bytes(enlarged(field, self._first.shape[:2])))
        over = self._over.value
        first = self._first if over == 0 else (1 - over) * self._first + over * drawn(self._whole(), largest)
        self._planes["first"].show(in_bytes(first))
        self._planes["second"].show(in_bytes(self._third()))

    def _third(self) -> Picture:
        if self._which.value == _SECOND[0]:
            return self._second
        back = brought_back(self._second, self._whole())
        if self._which.value == _SECOND[1]:
            return back
        return np.asarray(0.5 + 2 * (back - self._first))


def brought_back(second: Picture, flow: NDArray[np.float64]) -> Picture:
    """The second frame where the first one's pixels have moved to, (H, W, 3); grey where they have left it.

    Args:
        second: (H, W, 3).
        flow: (H, W, 2).
    """
    at = np.mgrid[: flow.shape[0], : flow.shape[1]] + np.moveaxis(flow[..., ::-1], -1, 0)
    planes = [map_coordinates(second[..., c], at, order=1, cval=0.5) for c in range(3)]
    return np.stack(planes, axis=-1)


def wheel(size: int = 128) -> Picture:
    """(size, size, 3): the colour of each motion, by its arrow's end; white outside."""
    y, x = np.mgrid[:size, :size] / (size - 1) * 2 - 1
    inside = np.hypot(x, y) <= 1
    return np.where(inside[..., None], drawn(np.stack([x, y], axis=-1), 1.0), 1.0)


def coloured(picture: Picture) -> Picture:
    """A grey picture, (H, W), in three channels; others as they are."""
    return np.repeat(picture[..., None], 3, axis=-1) if picture.ndim == 2 else picture[..., :3]


def enlarged(picture: Picture, shape: tuple[int, ...]) -> Picture:
    """A picture at a larger size, (H, W), whose pixels stay visible."""
    rows, columns = (np.arange(n) * m // n for n, m in zip(shape, picture.shape[:2], strict=True))
    return picture[np.ix_(rows, columns)]


def in_bytes(picture: Picture) -> NDArray[np.uint8]:
    """A picture of 0 to 1 as one of 0 to 255."""
    return np.rint(255 * np.clip(picture, 0, 1)).astype(np.uint8)


def serve(work: FlowWork, host: str, port: int) -> None:
    """Show the search until Ctrl-C."""
    with served("optpy: the motion between two frames", host, port) as server:
        panel = Panel(server, work.device_text)

        solving = SolvingThread(work, panel.show, lambda: scene.draw(work))
        scene = FlowScene(server, work, solving.put)
        with solving:
            until_interrupted()


def found_film(first: Path | None, second: Path | None, size: int) -> Film:
    """The frames that the options ask for; says where they were scaled down.

    Raises:
        OSError: a file is not there.
        ValueError: one cannot be used, there is only one, or they are of different sizes.
    """
    if first is None and second is None:
        return film("auto", size)
    if first is None or second is None:
        raise ValueError("two frames are needed: give --first and --second")
    one, other = read_photograph(first, size), read_photograph(second, size)
    if one.whole != other.whole:
        sizes = " and ".join(f"{f.name} {f.whole[1]} x {f.whole[0]}" for f in (one, other))
        raise ValueError(f"the frames must be of one size: in pixels, {sizes}")
    if one.scaled:
        click.echo(one.scaled)
    return Film(one.picture, other.picture)


@click.command()
@click.option("--first", type=click.Path(path_type=Path), help="A frame.  [default: of a film, or a made one]")
@click.option("--second", type=click.Path(path_type=Path), help="The next one, as large as it.")
@click.option(
    "--size", type=click.IntRange(8, 2048), default=320, show_default=True, help="Pixels along the longer side at most."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--host", default=LOCAL, show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
def main(first: Path | None, second: Path | None, size: int, device: Device, host: str, port: int) -> None:
    """Watch the motion between two frames as it is found, from coarse to fine."""
    try:
        work = FlowWork(found_film(first, second, size), device)
    except (op.OptpyError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    serve(work, host, port)


if __name__ == "__main__":
    main()
