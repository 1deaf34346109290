"""The page of the shading demo: the scan as a lit surface, its weights and its light."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np
import viser
from numpy.typing import NDArray
from trimesh import Trimesh

from .controls import POWERS_OF_TEN, THOUSANDTHS, Controls, Put, slider_ends
from .depth_mesh import DepthMesh
from .shading_work import ALLOWED, LIGHT, ShadingWork

_WEIGHTS: Final = {"scan": "w_fit", "smoothness": "w_smooth", "shading": "w_shade"}
_MEANT: Final = ("everywhere", "y", "z", "x", "xy", "yz", "2z²-x²-y²", "zx", "x²-y²")
"""The spherical harmonics of the nine coefficients."""


@final
class ShadingScene:
    """The surface and the controls, on a page that all tabs share.

    Args:
        server: of the page.
        work: before its first step: only its scan and its settings are read.
        put: takes inputs of the work.
    """

    def __init__(self, server: viser.ViserServer, work: ShadingWork, put: Put) -> None:
        self._server = server
        self._put = put
        self._surface = DepthMesh(work.scan.data)
        self._shapes = work.levels
        self._lock = threading.Lock()  # the page's events and the solver come in threads of their own
        self._places = {"after": self._surface.places(work.depth), "before": self._surface.places(work.before)}
        self._mesh = server.scene.add_mesh_simple(
            "/surface", self._places["after"], self._surface.faces, color=(205, 200, 190), side="double"
        )
        size = float(np.ptp(self._places["before"], axis=0).max())
        server.scene.set_up_direction("+y")
        aside = 0.2 * size  # the panel hides the right of the page
        server.initial_camera.look_at = np.array([aside, 0.0, 0.0])
        server.initial_camera.position = np.array([aside, 0.0, size])
        server.initial_camera.near = 0.01 * size
        self._settings = Controls(server, put)
        self._controls(work.first_settings)

    def _controls(self, first: Mapping[str, Any]) -> None:
        gui: Any = self._server.gui
        controls = self._settings
        self._shown = gui.add_dropdown("shown", ("after", "before"))
        self._size = gui.add_text("size", "", disabled=True)
        with gui.add_folder("Weights, powers of ten"):
            for label, name in _WEIGHTS.items():
                low, high = np.log10(slider_ends(ALLOWED[name])).tolist()
                controls.slider(label, name, low, high, 0.01, first[name], POWERS_OF_TEN)
        with gui.add_folder("Light"):
            for meant, name in zip(_MEANT, LIGHT, strict=True):
                controls.slider(meant, name, *slider_ends(ALLOWED[name]), 0.001, first[name], THOUSANDTHS)
        with gui.add_folder("Each frame"):
            controls.choice("method", "method", ALLOWED["method"], first["method"])
            for label, name in (("steps", "nonlinear"), ("linear iterations", "linear")):
                controls.slider(label, name, *slider_ends(ALLOWED[name]), 1, first[name])
        reset, save = gui.add_button("Reset"), gui.add_button("Save PLY")

        # Coroutines without `await`: those run in the order of the events, functions in a pool of threads do not.
        async def toggled(_: Any) -> None:
            self._redraw()

        async def begin_again(_: Any) -> None:
            self.show_settings(first)
            self._put({"reset": True})

        async def saved(event: Any) -> None:
            event.client.send_file_download("surface.ply", self.exported())

        self._shown.on_update(toggled)
        reset.on_click(begin_again)
        save.on_click(saved)

    def exported(self) -> bytes:
        """The refined surface as a PLY file."""
        content: Any = Trimesh(self._places["after"], self._surface.faces, process=False).export(file_type="ply")
        return bytes(content)

    def _redraw(self) -> None:
        with self._lock, self._server.atomic():
            self._mesh.vertices = self._places[self._shown.value]

    def draw(self, depth: NDArray[np.float32], level: int) -> None:
        """Show a depth, (H, W), unless the scan before is looked at; it comes from the size of that number."""
        with self._lock:
            self._places["after"] = self._surface.places(depth)
        height, width = (n // 2 ** (self._shapes - 1 - level) for n in depth.shape)
        self._size.value = f"{width} x {height}, {level + 1} of {self._shapes}"
        self._redraw()

    def show_settings(self, settings: Mapping[str, Any]) -> None:
        """Put the controls where the settings are."""
        self._settings.show(settings)
