"""The page on which a scan is refined: with a server, and driven in a browser where there is one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import trimesh

from problems.demos.depth_mesh import DepthMesh
from problems.demos.shading_work import ShadingWork
from problems.demos.solving import Frame, SolvingThread
from problems.shape_from_shading import relief
from tests.support.demo_pages import demo_page, needs_browser

viser = pytest.importorskip("viser")

from problems.demos.page import LOCAL, served  # noqa: E402 - it needs viser
from problems.demos.shading_scene import ShadingScene  # noqa: E402

pytestmark = [pytest.mark.demo, pytest.mark.filterwarnings("ignore")]  # those of the server's libraries

SCAN = relief(96)
SOON = 180.0
"""Seconds after which a test gives up: others may keep the machine busy."""


@pytest.fixture
def server() -> Iterator[Any]:
    with served("shading", LOCAL, 8150) as found:
        yield found


def test_a_scan_is_a_mesh_of_what_was_measured() -> None:
    mesh = DepthMesh(SCAN.data)
    assert mesh.step == 1
    places = mesh.places(SCAN.data["D"])
    assert len(places) == pytest.approx((SCAN.data["D"] > 0).sum(), rel=0.01)
    np.testing.assert_allclose(places.mean(axis=0), 0, atol=1e-6)
    made = trimesh.Trimesh(places, mesh.faces, process=False)
    assert (made.face_normals[:, 2] > 0).all()  # all look at the camera
    deeper = mesh.places(SCAN.data["D"] + np.float32(0.1))
    np.testing.assert_allclose(places[:, 2] - deeper[:, 2], 0.1, atol=1e-6)


def test_a_large_scan_is_shown_by_fewer_vertices_and_holes_and_jumps_stay_open() -> None:
    depth = SCAN.data["D"].copy()
    depth[:, 50:] += 0.2 * (depth[:, 50:] > 0)
    depth[40:44, 20:24] = 0
    mesh = DepthMesh(SCAN.data | {"D": depth}, most=2000)
    assert mesh.step > 1
    places = mesh.places(depth)
    assert len(places) <= 2000
    ends = places[mesh.faces]
    assert np.ptp(ends[:, :, 2], axis=1).max() < 0.01 * mesh.step
    for wrong, why in ((np.zeros((9, 9)), "no pixel that was measured"), (np.eye(9), "no four neighbouring pixels")):
        with pytest.raises(ValueError, match=why):
            DepthMesh(SCAN.data | {"D": wrong})


class Demo:
    """The demo with its thread, on a server."""

    def __init__(self, server: Any) -> None:
        self.work = ShadingWork(SCAN)
        self.solving = SolvingThread(self.work, self._show)
        self.put: list[Any] = []
        self.scene = ShadingScene(server, self.work, self._put)
        self.url = f"http://{LOCAL}:{server.get_port()}/"

    def _put(self, inputs: Any) -> None:
        self.put.append(dict(inputs))
        self.solving.put(inputs)

    def _show(self, frame: Frame) -> None:
        assert not frame.failed, frame.message
        self.scene.draw(self.work.depth, self.work.level)


def test_the_surface_is_saved_as_it_is_refined(server: Any) -> None:
    demo = Demo(server)
    flat = demo.work.depth * 0 + np.float32(0.5)
    demo.scene.draw(flat, 0)
    read: Any = trimesh.load_mesh(io.BytesIO(demo.scene.exported()), file_type="ply", process=False)
    np.testing.assert_allclose(read.vertices[:, 2], read.vertices[0, 2], atol=1e-6)


@needs_browser
def test_sliders_and_before_and_after_in_a_browser(server: Any) -> None:
    demo = Demo(server)
    with demo_page(demo.url) as tab, demo.solving:
        tab.wait_until(lambda: demo.work.level == 1, SOON)  # the whole scan
        refined = demo.work.depth
        after = tab.until(lambda seen: np.ptp(seen[100:500, 50:500]) > 60, SOON)
        tab.control("shown", "input:not([type=hidden])").click()
        tab.page.get_by_role("option", name="before").click()
        tab.until(lambda seen: (np.abs(seen - after)[:, :500].max(axis=2) > 15).sum() > 100, SOON)
        tab.set_slider("smoothness", 3)
        tab.wait_until(lambda: demo.work.settings["w_smooth"] == pytest.approx(1000), SOON)
        tab.wait_until(lambda: np.abs(demo.work.depth - refined).max() > 1e-4, SOON)
        tab.page.get_by_role("button", name="Reset").click()
        tab.wait_until(lambda: demo.work.settings == demo.work.first_settings, SOON)
        assert tab.complaints == []
    assert {"reset": True} in demo.put
