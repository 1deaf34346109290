"""The page of the mesh demo: the mesh, its handles, and the controls."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, final

import numpy as np
import viser
from numpy.typing import NDArray
from trimesh import Trimesh

from .controls import Controls, Put, slider_ends
from .handles import Handle, Vector3, around, handle, in_rectangle
from .mesh_work import ALLOWED, HandleAt, Settings

_MOVED: Final = (230, 140, 60)
_HELD: Final = (90, 125, 190)

_HELP: Final = """
**Click** the mesh: a handle, with all vertices within the radius. Drag and turn it by its gizmo.
**Shift-click**: a pin, which holds them.
**Alt-drag**, **Shift-drag** a rectangle: a handle, a pin, of all vertices in it.
**Ctrl-drag** the mesh itself. **Click a ball**: it is let go.
"""


@final
@dataclass(slots=True)
class _Shown:
    """A handle on the page."""

    handle: Handle
    base: Any
    """The node that moves the others: a gizmo, or a frame of one that is held."""


class _Drag(NamedTuple):
    """The mesh itself is dragged: from where, and what."""

    number: int
    start: NDArray[np.float64]
    position: NDArray[np.float64]


@final
class MeshScene:
    """The mesh, its handles and the controls, on a page that all tabs share.

    Args:
        server: of the page.
        mesh: as it is before anything is pulled.
        put: takes inputs of a `MeshWork`.
    """

    def __init__(self, server: viser.ViserServer, mesh: Trimesh, put: Put) -> None:
        self._server = server
        self._to_work = put
        self._vertices = np.asarray(mesh.vertices, np.float64)
        self._size = float(np.ptp(self._vertices, axis=0).max())
        self._shown: dict[int, _Shown] = {}
        self._version = 0
        self._changed: dict[int, int] = {}  # the version in which a handle was changed here, by number
        self._lock = threading.RLock()  # the page's events and the solver come in threads of their own
        self._drag: _Drag | None = None
        self._settings = Controls(server, self._put)
        self._mesh = server.scene.add_mesh_simple(
            "/mesh", self._vertices.astype(np.float32), np.asarray(mesh.faces), color=(205, 200, 190), side="double"
        )
        middle = (self._vertices.max(axis=0) + self._vertices.min(axis=0)) / 2
        server.scene.set_up_direction("+y")
        server.initial_camera.look_at = middle
        server.initial_camera.position = middle + np.array([0.0, 0.0, 2.0 * self._size])
        self._controls()
        self._listen()

    # ---- what the page tells

    def _put(self, inputs: Mapping[Hashable, Any], *numbers: int) -> None:
        """Hands inputs on, with a version by which `draw` knows whether the work has seen them."""
        self._version += 1
        self._changed |= dict.fromkeys(numbers, self._version)
        self._to_work({**inputs, "version": self._version})

    def _listen(self) -> None:
        # Coroutines without `await`: those run in the order of the events, functions in a pool of threads do not.
        @self._mesh.on_click
        async def _(event: Any) -> None:
            self.add_handle(self._hit(event.ray_origin, event.ray_direction))

        @self._mesh.on_click(modifier="shift")
        async def _(event: Any) -> None:
            self.add_handle(self._hit(event.ray_origin, event.ray_direction), held=True)

        @self._mesh.on_drag("left", modifier="cmd/ctrl")
        async def _(event: Any) -> None:
            self.drag(event.phase, event.start_position, event.end_position)

        @self._server.scene.on_rect_select(modifier="alt")  # type: ignore[arg-type]  # it takes coroutines, too
        async def _(event: Any) -> None:
            self.add_rectangle(event.client.camera, event.screen_min, event.screen_max)

        @self._server.scene.on_rect_select(modifier="shift")  # type: ignore[arg-type]  # it takes coroutines, too
        async def _(event: Any) -> None:
            self.add_rectangle(event.client.camera, event.screen_min, event.screen_max, held=True)

    def _controls(self) -> None:
        gui, controls, first = self._server.gui, self._settings, Settings()
        gui.add_markdown(_HELP)
        self._radius: Any = gui.add_slider("radius, %", 0.0, 50.0, 1.0, 0.0)
        with gui.add_folder("Energy"):
            controls.choice("model", "model", ALLOWED["model"], first.model)
            controls.slider("handles", "w_fit", *slider_ends(ALLOWED["w_fit"]), 0.1, first.w_fit)
            controls.slider("rigidity", "w_reg", *slider_ends(ALLOWED["w_reg"]), 0.1, first.w_reg)
            controls.slider("rotations (embedded)", "w_rot", *slider_ends(ALLOWED["w_rot"]), 0.1, first.w_rot)
        with gui.add_folder("Each frame"):
            controls.choice("method", "method", ALLOWED["method"], first.method)
            controls.slider("steps", "nonlinear", *slider_ends(ALLOWED["nonlinear"]), 1, first.nonlinear)
            controls.slider("linear iterations", "linear", *slider_ends(ALLOWED["linear"]), 1, first.linear)
        controls.button("Undo", lambda: {"undo": True})
        controls.button("Reset", lambda: {"reset": True})
        for ending in ("PLY", "OBJ"):
            self._save(ending.lower(), gui.add_button(f"Save {ending}"))

    def _save(self, ending: str, button: Any) -> None:
        @button.on_click  # type: ignore[untyped-decorator]
        async def _(event: Any) -> None:
            event.client.send_file_download(f"deformed.{ending}", self.exported(ending))

    def exported(self, ending: str) -> bytes:
        """The mesh as it stands, as a file of a format: "ply" or "obj"."""
        content: Any = Trimesh(self._vertices, self._mesh.faces, process=False).export(file_type=ending)
        return content.encode() if isinstance(content, str) else bytes(content)

    # ---- handles

    def _hit(self, origin: Vector3, direction: Vector3) -> int:
        """The vertex nearest to the ray of a click, of those that are nearly as near: the one in front."""
        start, along = np.asarray(origin), np.asarray(direction) / np.linalg.norm(direction)
        away = self._vertices - start
        depth = away @ along
        aside = np.linalg.norm(away - depth[:, None] * along, axis=1)
        near = aside <= aside.min() + 0.02 * self._size
        return int(np.flatnonzero(near)[depth[near].argmin()])

    def add_handle(self, vertex: int, *, held: bool = False) -> int | None:
        """A handle, or a pin, of a vertex with all within the radius that belong to none; its number.

        None: the vertex belongs to one already.
        """
        with self._lock:
            if vertex in self._taken():
                return None
            return self._add(around(self._vertices, vertex, self._radius.value / 100 * self._size), held)

    def add_rectangle(
        self, camera: Any, low: tuple[float, float], high: tuple[float, float], *, held: bool = False
    ) -> int | None:
        """A handle, or a pin, of all vertices that a camera sees in a rectangle and that belong to none; its number.

        None: there is no such vertex.
        """
        with self._lock:
            return self._add(in_rectangle(self._vertices, camera, low, high), held)

    def _taken(self) -> set[int]:
        """The vertices of all handles."""
        return {int(v) for shown in self._shown.values() for v in shown.handle.vertices}

    def _add(self, vertices: Iterable[int], held: bool) -> int | None:
        free = sorted({*map(int, vertices)} - self._taken())
        if not free:
            return None
        number = self._version + 1  # of the change that makes it: no other handle has it
        made = handle(self._vertices, free, held=held)
        self._show(number, made)
        self._put({"mark": True, HandleAt(number): made}, number)
        return number

    def _show(self, number: int, made: Handle) -> None:
        name, scene = f"/handles/{number}", self._server.scene
        pose: dict[str, Any] = dict(wxyz=made.wxyz, position=made.position)
        base: Any
        if made.held:
            base = scene.add_frame(name, show_axes=False, **pose)
        else:
            alone = len(made.vertices) == 1
            base = scene.add_transform_controls(
                name, scale=0.15 * self._size, disable_rotations=alone, depth_test=False, **pose
            )
        colour = _HELD if made.held else _MOVED
        outermost = made.shape[np.linalg.norm(made.targets - self._vertices.mean(axis=0), axis=1).argmax()]
        ball = scene.add_icosphere(f"{name}/ball", 0.012 * self._size, colour, position=outermost)
        if len(made.vertices) > 1:
            points = made.shape.astype(np.float32)
            scene.add_point_cloud(f"{name}/points", points, colour, point_size=0.008 * self._size)
        self._shown[number] = _Shown(made, base)

        @ball.on_click
        async def _(_: Any) -> None:
            self.let_go(number)

        if not made.held:

            @base.on_update  # type: ignore[untyped-decorator]
            async def _(event: Any) -> None:
                if event.phase == "update":
                    self._pull(number, base.position, base.wxyz)
                elif event.phase == "start":
                    self._put({"mark": True})

    def _pull(self, number: int, position: Any, wxyz: Any = None) -> None:
        with self._lock:
            if number in self._shown:  # else it was let go in another tab meanwhile
                shown = self._shown[number]
                shown.handle = shown.handle.moved(position, wxyz)
                self._put({HandleAt(number): shown.handle}, number)

    def let_go(self, number: int) -> None:
        """Remove a handle."""
        with self._lock:
            if number in self._shown:
                self._hide(number)
                self._put({"mark": True, HandleAt(number): None}, number)

    def _hide(self, number: int) -> None:
        self._shown.pop(number).base.remove()  # with all below it

    def drag(self, phase: str, start: Vector3, end: Vector3) -> None:
        """The mesh itself is dragged: what was nearest at first follows, and stays a handle."""
        with self._lock:
            if phase == "start":
                self._drag = self._begun(np.asarray(start, np.float64))
            if self._drag is None or self._drag.number not in self._shown:
                return
            place = self._drag.position + np.asarray(end) - self._drag.start
            self._shown[self._drag.number].base.position = place
            self._pull(self._drag.number, place)
            if phase == "end":
                self._drag = None

    def _begun(self, start: NDArray[np.float64]) -> _Drag | None:
        """The handle of the nearest vertex, made where there is none; None: it is held."""
        nearest = int(np.linalg.norm(self._vertices - start, axis=1).argmin())
        number = next((n for n, shown in self._shown.items() if nearest in shown.handle.vertices), None)
        if number is None:
            number = self.add_handle(nearest)
        else:
            self._put({"mark": True})
        if number is None or self._shown[number].handle.held:
            return None
        return _Drag(number, start, np.asarray(self._shown[number].handle.position))

    # ---- what the solver tells

    def draw(self, vertices: NDArray[np.float64], handles: Mapping[int, Handle], version: int) -> None:
        """Show the mesh as it stands, and handles as they are, but for what was changed here later.

        Args:
            vertices: (V, 3).
            handles: by number.
            version: of the newest inputs that they come from.
        """
        self._vertices = vertices
        with self._server.atomic():
            self._mesh.vertices = vertices.astype(np.float32)
        with self._lock:
            for number in handles.keys() | self._shown.keys():
                if self._changed.get(number, 0) <= version:
                    self._follow(number, handles.get(number))

    def _follow(self, number: int, wanted: Handle | None) -> None:
        shown = self._shown.get(number)
        if shown is not None and shown.handle is wanted:
            return
        if shown is not None and wanted is not None:
            shown.handle, shown.base.position, shown.base.wxyz = wanted, wanted.position, wanted.wxyz
        elif wanted is not None:
            self._show(number, wanted)
        else:
            self._hide(number)

    def show_settings(self, settings: Settings) -> None:
        """Put the controls where a recovered solve has them."""
        self._settings.show(asdict(settings))
