"""A photograph in the browser that follows its handles as rigidly as possible: `optpy demo image`.

Drag the photograph: a handle stays where it was taken, and is moved and turned by its arrows. Shift-click to hold a
place where it is; click a handle to let it go.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import click
import numpy as np
import viser
from numpy.typing import NDArray

import optpy as op

from ..image_warping import default_warp
from ..pictures import Picture
from .controls import Controls, Put
from .image_work import Device, Grip, GripAt, ImageWork, WarpSettings
from .page import LOCAL, Panel, served, until_interrupted
from .photographs import png, read_mask, read_photograph
from .plane import PicturePlane, Vector3, look_from_front, on_plane
from .solving import SolvingThread

_HANDLE: Final = (230, 140, 60)
_HELD: Final = (90, 125, 190)
_LINES: Final = 24
"""Squares of the grid along the longer side."""


@final
@dataclass(slots=True)
class _Drag:
    """What one tab drags: a handle, from where, and where the pointer was then."""

    at: GripAt
    start: Grip
    pointer: NDArray[np.float64]


@final
class ImageScene:
    """The photograph, its handles and the controls, on a page that all tabs share.

    Args:
        server: of the page.
        work: that is shown; it is read here, and in `draw`, which its thread calls.
        put: takes inputs of an `ImageWork`.

    Attributes:
        handles: on the page, by the pixels that they hold.
    """

    def __init__(self, server: viser.ViserServer, work: ImageWork, put: Put) -> None:
        self._server = server
        self._to_solver = put
        self._stamp, self._undone = 0, 0  # inputs that were put, and those of them that undo
        self._lock = threading.RLock()  # the page's events and the solver come in threads of their own
        self._margin, self._active = work.warp.margin, work.mask == 0
        self._shape = work.mask.shape
        self._source, self._position = work.warp.source, work.position
        self._segments = grid_segments(self._active, max(1, round(max(self._shape) / _LINES)))
        self._exported = work.exported
        self._radius = work.settings.radius
        self._nodes: dict[GripAt, Any] = {}  # ball and gizmo
        self.handles: dict[GripAt, Grip] = {}
        self._held: set[GripAt] = set()  # without arrows, also when they come back
        self._drags: dict[int, _Drag] = {}  # by tab
        self._plane = PicturePlane(server, "/photograph", work.canvas, unit=2.0 / max(self._shape))
        self._grid = server.scene.add_line_segments(
            "/grid", self._lines(), (40, 90, 200), thickness=1.0, thickness_units="screen", visible=False
        )
        height, width = work.canvas.shape[:2]
        look_from_front(server, 2.0 * width / max(self._shape), 2.0 * height / max(self._shape))
        self._listen()
        self._controls(work.settings)

    def _listen(self) -> None:
        # Coroutines without `await`: those run in the order of the events, functions in a pool of threads do not.
        image = self._plane.image

        async def clicked(event: Any) -> None:
            self.hold(on_plane(event.ray_origin, np.add(event.ray_origin, event.ray_direction)))

        async def dragged(event: Any) -> None:
            place = on_plane(event.client.camera.position, event.end_position)
            if event.phase == "start":
                place = on_plane(event.client.camera.position, event.start_position)
            self.drag(event.client_id, event.phase, place)

        image.on_click(modifier="shift")(clicked)
        image.on_drag("left")(dragged)

        @self._server.on_client_disconnect
        async def _(client: viser.ClientHandle) -> None:
            self.leave(client.client_id)

    def _controls(self, settings: WarpSettings) -> None:
        gui, controls = self._server.gui, Controls(self._server, self._put)
        with gui.add_folder("Energy"):
            controls.slider("handles", "w_fit", 0.1, 100.0, 0.1, settings.w_fit)
            controls.slider("rigidity", "w_reg", 0.01, 10.0, 0.01, settings.w_reg)
            controls.slider("handle size", "radius", 0.0, 0.1 * max(self._shape), 0.5, settings.radius)
            controls.checkbox("hold the border", "hold_border", settings.hold_border)
        with gui.add_folder("Each frame"):
            controls.choice("method", "method", ("lm", "gn"), settings.method)
            controls.choice("preconditioner", "preconditioner", ("jacobi", "multigrid"), settings.preconditioner)
            controls.slider("steps", "nonlinear", 1, 10, 1, settings.nonlinear)
            controls.slider("linear iterations", "linear", 1, 100, 1, settings.linear)
        grid = gui.add_checkbox("grid", False)
        controls.button("Undo", self._undo)
        controls.button("Reset", lambda: {"reset": True})
        save = gui.add_button("Save PNG")

        @grid.on_update
        async def _(_: Any) -> None:
            with self._lock:
                self._grid.points = self._lines()
                self._grid.visible = grid.value

        @save.on_click
        def _(event: Any) -> None:  # in a thread of its own: it takes a second
            event.client.send_file_download("warped.png", png(self._exported()), save_immediately=True)

    def _put(self, inputs: Mapping[Hashable, Any]) -> None:
        with self._lock:
            self._radius = inputs.get("radius", self._radius)
            self._stamp += 1
            self._to_solver({**inputs, "stamp": self._stamp})

    def _undo(self) -> dict[Hashable, Any]:
        with self._lock:
            self._undone += 1
            return {"undo": self._undone}

    def _lines(self) -> NDArray[np.float32]:
        """(n, 2, 3): the ends of the grid's segments."""
        ends = self._position.reshape(-1, 2)[self._segments] + self._margin
        return self._plane.in_space(ends, in_front=0.002).astype(np.float32)

    def pixel_at(self, place: Vector3) -> GripAt | None:
        """The pixel of the photograph that is drawn at a place in the plane; None: none is."""
        column, row = np.rint(self._plane.on_canvas(place)).astype(int)
        height, width = self._source.shape[1:]
        if not (0 <= row < height and 0 <= column < width) or np.isnan(self._source[0, row, column]):
            return None
        x, y = np.rint(self._source[:, row, column]).astype(int)
        at = GripAt(int(np.clip(y, 0, self._shape[0] - 1)), int(np.clip(x, 0, self._shape[1] - 1)))
        return at if self._active[at.row, at.column] else None

    def hold(self, place: Vector3) -> None:
        """Hold the photograph where it is at a place in the plane."""
        with self._lock:
            at = self.pixel_at(place)
            if at is not None and at not in self._nodes:
                self._held.add(at)
                self._add(at)

    def drag(self, tab: int, phase: str, place: Vector3) -> None:
        """The photograph is dragged: by the handle that is there, else by a new one.

        Args:
            tab: that drags; several may at once.
            phase: "start", "update" or "end".
            place: of the pointer, in the plane.
        """
        with self._lock:
            pointer = self._plane.on_canvas(place) - self._margin
            if phase == "start":
                self._begin(tab, pointer, place)
            drag = self._drags.get(tab)
            if drag is None or drag.at not in self._nodes:  # it began beside the photograph, or was undone meanwhile
                return
            x, y = np.array(drag.start[:2]) + pointer - drag.pointer
            self._pull(drag.at, Grip(float(x), float(y), self.handles[drag.at].turn))
            self._place_gizmo(drag.at)
            if phase == "end":
                self.leave(tab)

    def leave(self, tab: int) -> None:
        """A tab is closed, perhaps in the middle of a drag: its handle stays where it is."""
        with self._lock:
            self._drags.pop(tab, None)

    def _begin(self, tab: int, pointer: NDArray[np.float64], place: Vector3) -> None:
        reach = max(self._radius, 0.03 * max(self._shape))
        away = {at: float(np.hypot(*(np.array(grip[:2]) - pointer))) for at, grip in self.handles.items()}
        near = [at for at in sorted(away, key=away.__getitem__) if away[at] <= reach]
        at = near[0] if near else self.pixel_at(place)
        self._drags.pop(tab, None)
        if at is None:
            return
        if at not in self._nodes:
            self._held.discard(at)
            self._add(at)
        else:
            self._put({"mark": True})
        self._drags[tab] = _Drag(at, self.handles[at], pointer)

    def _in_space(self, grip: Grip) -> Vector3:
        x, y, z = self._plane.in_space(np.array(grip[:2]) + self._margin, in_front=0.01).tolist()
        return x, y, z

    def _add(self, at: GripAt) -> None:
        """A handle where a pixel is now."""
        x, y = self._position[at.row, at.column].tolist()
        self._show_handle(at, Grip(x, y))
        self._put({"mark": True, at: self.handles[at]})

    def _show_handle(self, at: GripAt, grip: Grip) -> None:
        held = at in self._held
        place, name = self._in_space(grip), f"/handles/{at.row}_{at.column}"
        ball = self._server.scene.add_icosphere(f"{name}/ball", 0.02, _HELD if held else _HANDLE, position=place)

        @ball.on_click
        async def _(_: Any) -> None:
            with self._lock:
                self._remove(at)
                self._put({"mark": True, at: None})

        self._nodes[at] = ball, None if held else self._gizmo(at, f"{name}/gizmo", grip)
        self.handles[at] = grip

    def _gizmo(self, at: GripAt, name: str, grip: Grip) -> Any:
        """Arrows in the plane, and a circle that turns."""
        gizmo = self._server.scene.add_transform_controls(
            name,
            scale=0.25,
            active_axes=(True, True, False),
            depth_test=False,
            position=self._in_space(grip),
            wxyz=_turned(grip.turn),
        )

        @gizmo.on_update
        async def _(event: Any) -> None:
            with self._lock:
                if at not in self._nodes:
                    return
                if event.phase == "start":
                    self._put({"mark": True})
                x, y = (self._plane.on_canvas(gizmo.position) - self._margin).tolist()
                self._pull(at, Grip(x, y, float(np.degrees(2 * np.arctan2(gizmo.wxyz[3], gizmo.wxyz[0])))))

        return gizmo

    def _pull(self, at: GripAt, grip: Grip) -> None:
        self.handles[at] = grip
        self._nodes[at][0].position = self._in_space(grip)
        self._put({at: grip})

    def _place_gizmo(self, at: GripAt) -> None:
        _, gizmo = self._nodes[at]
        if gizmo is not None:
            gizmo.position, gizmo.wxyz = self._in_space(self.handles[at]), _turned(self.handles[at].turn)

    def _remove(self, at: GripAt) -> None:
        self.handles.pop(at, None)
        for node in self._nodes.pop(at, ()):
            if node is not None:
                node.remove()

    def draw(self, work: ImageWork) -> None:
        """Show the photograph as it stands, with the solver's handles where it has seen all inputs."""
        with self._lock:
            self._source, self._position = work.warp.source, work.position
            self._plane.show(work.canvas)
            if self._grid.visible:
                self._grid.points = self._lines()
            if work.stamp == self._stamp and work.grips != self.handles:  # undone, reset, or recovered from a failure
                self._follow(work.grips)

    def _follow(self, grips: Mapping[GripAt, Grip]) -> None:
        for at in self._nodes.keys() - grips.keys():
            self._remove(at)
        for at, grip in grips.items():
            if at not in self._nodes:
                self._show_handle(at, grip)
            self.handles[at] = grip
            self._nodes[at][0].position = self._in_space(grip)
            self._place_gizmo(at)


def grid_segments(active: NDArray[np.bool_], step: int) -> NDArray[np.intp]:
    """(n, 2): the pixels at the ends of a grid's segments, by their numbers, where all between them are active.

    Args:
        active: (H, W).
        step: pixels from line to line.
    """
    numbers = np.arange(active.size).reshape(active.shape)
    found = []
    for lines, drawn in ((numbers, active), (numbers.T, active.T)):
        lines, drawn = lines[::step], drawn[::step]
        end = (drawn.shape[1] - 1) // step * step
        whole = np.logical_and.reduce([drawn[:, k : k + end : step] for k in range(step + 1)])
        first, second = lines[:, :end:step], lines[:, step : end + 1 : step]
        found.append(np.stack([first[whole], second[whole]], axis=-1))
    return np.concatenate(found)


def _turned(degrees: float) -> tuple[float, float, float, float]:
    """The unit quaternion (w, x, y, z) of a turn in the plane."""
    half = np.radians(degrees) / 2
    return float(np.cos(half)), 0.0, 0.0, float(np.sin(half))


def serve(work: ImageWork, host: str, port: int) -> None:
    """Show a photograph until Ctrl-C."""
    with served("optpy: a photograph, as rigid as possible", host, port) as server:
        panel = Panel(server, work.device_text)

        solving = SolvingThread(work, panel.show, lambda: scene.draw(work))
        scene = ImageScene(server, work, solving.put)
        with solving:
            until_interrupted()


def found_work(image: Path | None, mask: Path | None, size: int, device: Device) -> ImageWork:
    """The photograph that the options ask for; says where it was scaled down.

    Raises:
        OSError: a file is not there.
        ValueError: it cannot be used, or there is a mask without a photograph.
    """
    if image is None:
        if mask is not None:
            raise ValueError("--mask belongs to a photograph: give that by --image")
        warp = default_warp(size)
        return ImageWork(warp.picture, warp.data["Mask"], device, first_settings(warp.picture))
    photograph = read_photograph(image, size)
    if photograph.scaled:
        click.echo(photograph.scaled)
    everywhere = np.zeros(photograph.picture.shape[:2], np.uint8)
    taken = everywhere if mask is None else read_mask(mask, photograph)
    return ImageWork(photograph.picture, taken, device, first_settings(photograph.picture))


def first_settings(picture: Picture) -> WarpSettings:
    """What a page begins with: handles of a fiftieth of the photograph's longer side, (H, W, 3)."""
    return WarpSettings(radius=round(0.02 * max(picture.shape[:2]), 1))


@click.command()
@click.option(
    "--image", type=click.Path(path_type=Path), help="Any file that Pillow reads.  [default: a cat, or an astronaut]"
)
@click.option("--mask", type=click.Path(path_type=Path), help="As large as it, black where it takes part.")
@click.option(
    "--size", type=click.IntRange(2, 2048), default=256, show_default=True, help="Pixels along the longer side at most."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--host", default=LOCAL, show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
def main(image: Path | None, mask: Path | None, size: int, device: Device, host: str, port: int) -> None:
    """Drag a photograph in the browser: it follows as rigidly as possible."""
    try:
        work = found_work(image, mask, size, device)
    except (op.OptpyError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    serve(work, host, port)


if __name__ == "__main__":
    main()
