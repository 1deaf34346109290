"""The page on which a mesh follows its handles: with a server, and driven in a browser where there is one."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from problems import meshes
from problems.demos.mesh_work import HandleAt, MeshWork
from problems.demos.solving import Frame, SolvingThread

viser = pytest.importorskip("viser")

from problems.demos.mesh import MeshScene  # noqa: E402 - it needs viser
from problems.demos.page import LOCAL, Panel, served  # noqa: E402

pytestmark = [pytest.mark.demo, pytest.mark.filterwarnings("ignore")]  # those of the server's libraries

MESH = meshes.pebble(2)
VERTICES = np.asarray(MESH.vertices)
TOP, FOOT = int(VERTICES[:, 1].argmax()), int(VERTICES[:, 1].argmin())


@pytest.fixture
def server() -> Iterator[Any]:
    with served("mesh", LOCAL, 8140) as found:
        yield found


def test_it_listens_here_alone_and_says_where(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert server.get_host() == LOCAL
    with served("another", LOCAL, server.get_port()) as other:
        said = capsys.readouterr().out
        assert f"port {server.get_port()} is taken: {other.get_port()} is used" in said
        assert "can see this page" not in said


def test_handles_are_added_dragged_and_let_go(server: Any) -> None:
    put: list[dict[Any, Any]] = []
    scene = MeshScene(server, MESH, lambda inputs: put.append(dict(inputs)))
    scene.add_handle(FOOT, held=True)
    scene.add_handle(FOOT, held=True)  # it is one already
    assert put == [{"mark": True, HandleAt(FOOT): tuple(VERTICES[FOOT])}]
    scene.drag("start", tuple(VERTICES[TOP]), tuple(VERTICES[TOP]))
    scene.drag("update", tuple(VERTICES[TOP]), (1.0, 2.0, 3.0))
    assert put[-1] == {HandleAt(TOP): (1.0, 2.0, 3.0)}
    targets = {FOOT: (0.0, 0.0, 0.0), TOP: (1.0, 2.0, 3.0)}
    scene.draw(VERTICES, targets)
    scene.draw(VERTICES, {FOOT: (0.0, 0.0, 0.0)})  # undone: its gizmo goes
    before = len(put)
    scene.drag("update", tuple(VERTICES[TOP]), (9.0, 9.0, 9.0))
    assert len(put) == before


def test_a_failure_is_shown_at_once_and_other_numbers_some_times_a_second(server: Any) -> None:
    now = [0.0]
    panel = Panel(server, "cpu", clock=lambda: now[0])
    shown = [g for g in vars(panel).values() if hasattr(g, "value")]
    panel.show(Frame(0.01, 100.0, 2000.0, 0.02, 3.0, ""))
    first = [g.value for g in shown]
    assert first == ["solving", "10.0 ms, 20 ms after its input", "100 frames, 2000 linear iterations a second"]
    panel.show(Frame(0.02, 50.0, 1000.0, None, 2.0, ""))
    assert [g.value for g in shown] == first
    panel.show(Frame(0.02, 50.0, 1000.0, None, float("nan"), "ValueError: no such vertex", failed=True))
    assert shown[0].value == "failed: ValueError: no such vertex"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")
def test_dragging_in_a_browser_moves_the_mesh(server: Any) -> None:
    driver = pytest.importorskip("playwright.sync_api")
    work, moved = MeshWork(MESH), threading.Event()

    def show(_: Frame) -> None:
        scene.draw(work.vertices, work.targets)
        if np.abs(work.vertices - VERTICES).max() > 0.05:
            moved.set()

    solving = SolvingThread(work, show)
    scene = MeshScene(server, MESH, solving.put)
    scene.add_handle(FOOT, held=True)
    with solving, driver.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 500})
        page.goto(f"http://{LOCAL}:{server.get_port()}")
        page.wait_for_selector("canvas", timeout=60_000)
        for _ in range(20):  # until the mesh is drawn, nothing is hit
            page.mouse.move(450, 200)
            page.keyboard.down("Control")
            page.mouse.down()
            for k in range(6):
                page.mouse.move(450 - 12 * k, 200 - 8 * k)
                page.wait_for_timeout(150)
            page.mouse.up()
            page.keyboard.up("Control")
            if moved.wait(1.0):
                break
        browser.close()
    assert moved.is_set()
    assert len(work.targets) == 2
