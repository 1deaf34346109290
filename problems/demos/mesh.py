"""A mesh in the browser that follows its handles as rigidly as possible: `optpy demo mesh`.

Click the mesh to make a handle, drag the handle's arrows; shift-click to hold a vertex where it is; click a handle to
let it go. With ctrl (cmd) held, drag the mesh itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any, Final, final

import click
import numpy as np
import viser
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op

from .. import meshes
from ..mesh_deformation import default_mesh
from .mesh_work import Device, HandleAt, MeshWork, Vector3
from .page import LOCAL, Panel, served, until_interrupted
from .solving import Frame, SolvingThread

Put = Callable[[Mapping[Hashable, Any]], None]

_HANDLE: Final = (230, 140, 60)
_HELD: Final = (90, 125, 190)


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
        self._put = put
        self._vertices = np.asarray(mesh.vertices, np.float64)
        self._size = float(np.ptp(self._vertices, axis=0).max())
        self._handles: dict[int, Any] = {}  # ball and gizmo, by vertex
        self._solved: set[int] = set()  # those that the solver has seen
        self._lock = threading.RLock()  # the page's events and the solver come in threads of their own
        self._dragged: int | None = None
        self._mesh = server.scene.add_mesh_simple(
            "/mesh", self._vertices.astype(np.float32), np.asarray(mesh.faces), color=(205, 200, 190), side="double"
        )
        middle = (self._vertices.max(axis=0) + self._vertices.min(axis=0)) / 2
        server.scene.set_up_direction("+y")
        server.initial_camera.look_at = middle
        server.initial_camera.position = middle + np.array([0.0, 0.0, 2.0 * self._size])
        self._listen()
        self._controls()

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

    def _controls(self) -> None:
        gui = self._server.gui
        with gui.add_folder("Energy"):
            self._slider("handles", "w_fit", 0.1, 100.0, 0.1, 10.0)
            self._slider("rigidity", "w_reg", 0.1, 10.0, 0.1, 1.0)
            self._choice("rotations", ("euler", "so3"))
        with gui.add_folder("Each frame"):
            self._choice("method", ("lm", "gn"))
            self._slider("steps", "nonlinear", 1, 10, 1, 2)
            self._slider("linear iterations", "linear", 1, 100, 1, 10)
        undo, reset = gui.add_button("Undo"), gui.add_button("Reset")
        save = gui.add_button("Save PLY")

        @undo.on_click
        async def _(_: Any) -> None:
            self._put({"undo": True})

        @reset.on_click
        async def _(_: Any) -> None:
            for vertex in [*self._handles]:
                self._remove(vertex)
            self._put({"reset": True})

        @save.on_click
        async def _(event: Any) -> None:
            mesh = Trimesh(self._vertices, self._mesh.faces, process=False)
            event.client.send_file_download("deformed.ply", mesh.export(file_type="ply"))

    def _slider(self, label: str, name: str, low: float, high: float, step: float, value: float) -> None:
        slider = self._server.gui.add_slider(label, low, high, step, value)

        @slider.on_update
        async def _(_: Any) -> None:
            self._put({name: slider.value})

    def _choice(self, name: str, options: tuple[str, ...]) -> None:
        choice = self._server.gui.add_dropdown(name, options)

        @choice.on_update
        async def _(_: Any) -> None:
            self._put({name: choice.value})

    def _hit(self, origin: Vector3, direction: Vector3) -> int:
        """The vertex nearest to the ray of a click, of those that are nearly as near: the one in front."""
        start, along = np.asarray(origin), np.asarray(direction) / np.linalg.norm(direction)
        away = self._vertices - start
        depth = away @ along
        aside = np.linalg.norm(away - depth[:, None] * along, axis=1)
        near = aside <= aside.min() + 0.02 * self._size
        return int(np.flatnonzero(near)[depth[near].argmin()])

    def add_handle(self, vertex: int, *, held: bool = False) -> None:
        """A handle where a vertex is now: a gizmo to drag, or a pin that holds it there."""
        with self._lock:
            if vertex not in self._handles:
                self._add_handle(vertex, held)

    def _add_handle(self, vertex: int, held: bool) -> None:
        x, y, z = map(float, self._vertices[vertex])
        place = (x, y, z)
        name = f"/handles/{vertex}"
        ball = self._server.scene.add_icosphere(
            f"{name}/ball", 0.012 * self._size, _HELD if held else _HANDLE, position=place
        )
        gizmo = None
        if not held:
            gizmo = self._server.scene.add_transform_controls(
                f"{name}/gizmo", scale=0.15 * self._size, disable_rotations=True, position=place
            )

            @gizmo.on_update
            async def _(_: Any) -> None:
                self._pull(vertex, tuple(map(float, gizmo.position)))

        @ball.on_click
        async def _(_: Any) -> None:
            self._remove(vertex)
            self._put({"mark": True, HandleAt(vertex): None})

        self._handles[vertex] = (ball, gizmo)
        self._put({"mark": True, HandleAt(vertex): place})

    def _pull(self, vertex: int, place: Any) -> None:
        with self._lock:
            if vertex in self._handles:
                self._handles[vertex][0].position = place
                self._put({HandleAt(vertex): place})

    def _remove(self, vertex: int) -> None:
        with self._lock:
            self._solved.discard(vertex)
            for node in self._handles.pop(vertex, ()):
                if node is not None:
                    node.remove()

    def drag(self, phase: str, start: Vector3, end: Vector3) -> None:
        """The mesh itself is dragged: the vertex that was nearest at first follows, and stays a handle."""
        if phase == "start":
            self._dragged = int(np.linalg.norm(self._vertices - np.asarray(start), axis=1).argmin())
            self.add_handle(self._dragged)
        vertex = self._dragged
        if vertex is None or vertex not in self._handles:  # removed in another tab meanwhile
            return
        _, gizmo = self._handles[vertex]
        if gizmo is not None:
            gizmo.position = end
        self._pull(vertex, tuple(map(float, end)))

    def draw(self, vertices: NDArray[np.float64], targets: Mapping[int, Vector3]) -> None:
        """Show the mesh as it stands, and no handle that is none any more."""
        self._vertices = vertices
        with self._server.atomic():
            self._mesh.vertices = vertices.astype(np.float32)
        with self._lock:
            self._solved |= targets.keys()
            for vertex in self._solved & (self._handles.keys() - targets.keys()):
                self._remove(vertex)


def serve(mesh: Trimesh, device: Device, host: str, port: int) -> None:
    """Show a mesh until Ctrl-C."""
    work = MeshWork(mesh, device)
    with served("optpy: as rigid as possible", host, port) as server:
        panel = Panel(server, work.device_text)

        def show(frame: Frame) -> None:
            scene.draw(work.vertices, work.targets)
            panel.show(frame)

        solving = SolvingThread(work, show)
        scene = MeshScene(server, mesh, solving.put)
        with solving:
            until_interrupted()


@click.command()
@click.option("--mesh", type=click.Path(path_type=Path), help="Any file that trimesh reads.  [default: a pebble]")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--host", default=LOCAL, show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True)
def main(mesh: Path | None, device: Device, host: str, port: int) -> None:
    """Drag a mesh in the browser: it follows as rigidly as possible."""
    try:
        found = default_mesh() if mesh is None else meshes.read_mesh(mesh)
    except (op.OptpyError, OSError) as error:
        raise click.ClickException(str(error)) from error
    serve(found, device, host, port)


if __name__ == "__main__":
    main()
