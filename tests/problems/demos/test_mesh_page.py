"""The page on which a mesh follows its handles: with a server, and driven in a browser where there is one."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import pytest
import trimesh
from click.testing import CliRunner

from problems import meshes
from problems.demos.handles import Handle
from problems.demos.mesh_work import HandleAt, MeshWork, Settings
from problems.demos.solving import Frame, SolvingThread
from tests.support.demo_pages import DemoPage, demo_page, needs_browser

viser = pytest.importorskip("viser")

from problems.demos.mesh import main  # noqa: E402 - it needs viser
from problems.demos.mesh_scene import MeshScene  # noqa: E402
from problems.demos.page import LOCAL, Panel, served  # noqa: E402

pytestmark = [pytest.mark.demo, pytest.mark.filterwarnings("ignore")]  # those of the server's libraries

MESH = meshes.pebble(2)
VERTICES = np.asarray(MESH.vertices)
TOP, FOOT = int(VERTICES[:, 1].argmax()), int(VERTICES[:, 1].argmin())
FRONT = SimpleNamespace(wxyz=(0, 1, 0, 0), position=(0, 0, 3), fov=1.0, aspect=2.0)
"""A camera that looks along -z, with y upwards."""


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


def test_an_address_that_is_not_of_this_machine_is_refused() -> None:
    with (
        pytest.raises(click.ClickException, match=r"'203\.0\.113\.7' cannot be listened on .*leave it out"),
        served("mesh", "203.0.113.7", 8140),
    ):
        pass


class Puts:
    """What a scene has put, without the versions."""

    def __init__(self, server: Any) -> None:
        self.all: list[dict[Any, Any]] = []
        self.version = 0
        self.scene = MeshScene(server, MESH, self.put)

    def put(self, inputs: Any) -> None:
        given = dict(inputs)
        assert given["version"] > self.version
        self.version = given.pop("version")
        self.all.append(given)

    @property
    def last(self) -> Handle:
        """The handle that was put last."""
        return next(h for h in self.all[-1].values() if isinstance(h, Handle))


def test_handles_are_added_dragged_and_let_go(server: Any) -> None:
    puts = Puts(server)
    scene = puts.scene
    foot = scene.add_handle(FOOT, held=True)
    assert foot is not None
    assert scene.add_handle(FOOT) is None  # it is one already
    assert [*puts.all[0]] == ["mark", HandleAt(foot)]
    pin = puts.last
    assert pin.held
    np.testing.assert_allclose(pin.targets, VERTICES[[FOOT]])
    start = tuple(VERTICES[TOP])
    scene.drag("start", start, start)
    scene.drag("update", start, (1.0, 2.0, 3.0))
    np.testing.assert_allclose(puts.last.targets, [[1.0, 2.0, 3.0]])
    (top,) = (key.number for key in puts.all[-1])
    scene.draw(VERTICES, {foot: pin, top: puts.last}, puts.version)
    scene.draw(VERTICES, {foot: pin}, puts.version)  # undone
    before = len(puts.all)
    scene.drag("update", start, (9.0, 9.0, 9.0))
    scene.let_go(top)
    assert len(puts.all) == before
    scene.drag("start", tuple(VERTICES[FOOT]), tuple(VERTICES[FOOT]))  # a pin stays
    scene.drag("update", tuple(VERTICES[FOOT]), (0.0, 0.0, 0.0))
    assert puts.all[before:] == [{"mark": True}]
    scene.let_go(foot)
    assert puts.all[-1] == {"mark": True, HandleAt(foot): None}


def test_what_is_undone_comes_back_and_what_is_newer_here_stays(server: Any) -> None:
    puts = Puts(server)
    scene = puts.scene
    first = scene.add_handle(TOP)
    assert first is not None
    made, seen = puts.last, puts.version
    scene.let_go(first)
    scene.draw(VERTICES, {first: made}, seen)  # by a step that has not seen it
    assert scene.add_handle(TOP) is not None  # it is free
    scene.draw(VERTICES, {first: made}, puts.version)  # both were undone
    assert scene.add_handle(TOP) is None


def test_regions_by_radius_and_by_rectangle(server: Any) -> None:
    puts = Puts(server)
    right = puts.scene.add_rectangle(FRONT, (0.55, 0.0), (1.0, 1.0))
    assert right is not None
    chosen = puts.last.vertices
    assert 10 < len(chosen) < len(VERTICES) / 2
    assert VERTICES[chosen, 0].min() > 0.05
    np.testing.assert_allclose(puts.last.targets, VERTICES[chosen])
    assert puts.scene.add_rectangle(FRONT, (0.5, 0.0), (1.0, 1.0), held=True) is not None
    assert not {*puts.last.vertices} & {*chosen}  # what belongs to one stays there
    assert puts.scene.add_rectangle(FRONT, (0.0, 0.0), (0.01, 0.01)) is None


@pytest.mark.parametrize("ending", ["ply", "obj"])
def test_the_mesh_is_saved_as_it_stands(server: Any, ending: str) -> None:
    scene = Puts(server).scene
    scene.draw(VERTICES + [1, 2, 3], {}, 0)
    read: Any = trimesh.load_mesh(io.BytesIO(scene.exported(ending)), file_type=ending, process=False)
    np.testing.assert_allclose(read.vertices, VERTICES + [1, 2, 3], atol=1e-5)
    np.testing.assert_array_equal(read.faces, MESH.faces)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty.obj", "", "it has no faces"),
        ("points.obj", "v 0 0 0\nv 1 0 0\n", "it has no faces"),
        ("words.ply", "no mesh", "cannot be read as a mesh: ValueError"),
        ("nan.obj", "v 0 0 0\nv 1 0 0\nv nan 0 1\nf 1 2 3\n", r"its vertex 2, counted from 0, is at \(nan, 0, 1\)"),
        ("missing.obj", None, "there is no file"),
    ],
)
def test_files_that_are_no_mesh(tmp_path: Path, name: str, content: str | None, why: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    done = CliRunner().invoke(main, ["--mesh", str(tmp_path / name)])
    assert done.exit_code == 1
    assert name in done.stderr
    assert re.search(why, done.stderr)


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


class Demo:
    """The demo with its thread, on a server."""

    def __init__(self, server: Any) -> None:
        self.work = MeshWork(MESH)
        self.frames: list[Frame] = []
        self.solving = SolvingThread(self.work, self._show)
        self.scene = MeshScene(server, MESH, self.solving.put)
        self.url = f"http://{LOCAL}:{server.get_port()}/"
        self.failed = threading.Event()

    def _show(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.scene.draw(self.work.vertices, self.work.handles, self.work.version)
        if frame.failed:
            self.scene.show_settings(self.work.settings)
            self.failed.set()

    @property
    def moved(self) -> float:
        """The longest way of a vertex."""
        return float(np.abs(self.work.vertices - VERTICES).max())


IN_PAGE = """() => {
    let found = null;
    window.__viserMutable.nodeRefFromName['/mesh'].traverse(node => {
        const places = node.geometry?.attributes.position.array;
        if (places?.length === %d) found = found ?? places;
    });
    return found && [...found];
}""" % (3 * len(VERTICES))  # noqa: UP031 - braces of another language


def in_page(tab: DemoPage) -> Any:
    """The vertices as the browser has them, (V, 3)."""
    return np.reshape(tab.page.evaluate(IN_PAGE), (-1, 3))


def ready(stack: ExitStack, demo: Demo) -> DemoPage:
    """A tab in which the mesh is drawn."""
    return drawn(stack.enter_context(demo_page(demo.url)))


def drawn(tab: DemoPage) -> DemoPage:
    """The tab, when the mesh is drawn in it."""
    tab.wait_until(lambda: tab.page.evaluate("'/mesh' in (window.__viserMutable?.nodeRefFromName ?? {})"))
    tab.wait_until(lambda: tab.page.evaluate(IN_PAGE) is not None)
    tab.page.wait_for_timeout(500)
    return tab


@needs_browser
def test_dragging_in_a_browser_moves_the_mesh_in_the_page(server: Any) -> None:
    demo = Demo(server)
    demo.scene.add_handle(FOOT, held=True)
    with ExitStack() as stack:
        tab = ready(stack, demo)
        stack.enter_context(demo.solving)
        before = tab.screenshot()
        np.testing.assert_allclose(in_page(tab), VERTICES, atol=1e-6)
        tab.page.keyboard.down("Control")
        tab.drag((450, 240), (380, 190))
        tab.page.keyboard.up("Control")
        tab.wait_until(lambda: demo.moved > 0.05)
        tab.wait_until(lambda: bool(np.allclose(in_page(tab), demo.work.vertices, atol=1e-5)))
        assert len(demo.work.handles) == 2
        tab.until(lambda seen: (np.abs(seen - before).max(axis=2) > 60).sum() > 200)
        tab.page.get_by_role("button", name="Reset").click()
        tab.wait_until(lambda: demo.moved == 0)
        assert tab.complaints == []


@needs_browser
def test_several_tabs_see_one_scene_and_all_of_them_drive_it(server: Any) -> None:
    demo = Demo(server)
    with ExitStack() as stack:
        one = ready(stack, demo)
        other = drawn(one.another())
        stack.enter_context(demo.solving)
        np.testing.assert_allclose(in_page(other), VERTICES, atol=1e-6)
        one.page.keyboard.down("Control")
        one.drag((450, 240), (380, 190))
        one.page.keyboard.up("Control")
        other.wait_until(lambda: float(np.abs(in_page(other) - VERTICES).max()) > 0.05)
        one.wait_until(lambda: bool(np.allclose(in_page(one), demo.work.vertices, atol=1e-5)))
        other.wait_until(lambda: bool(np.allclose(in_page(other), demo.work.vertices, atol=1e-5)))
        one.set_slider("rigidity", 3)
        other.wait_until(lambda: float(other.control("rigidity").input_value()) == 3)
        other.page.get_by_role("button", name="Reset").click()
        one.wait_until(lambda: bool(np.allclose(in_page(one), VERTICES, atol=1e-5)))
        assert demo.work.handles == {}
        assert one.complaints == other.complaints == []


@needs_browser
def test_regions_sliders_and_undo_in_a_browser(server: Any) -> None:
    demo = Demo(server)
    with ExitStack() as stack:
        tab = ready(stack, demo)
        stack.enter_context(demo.solving)
        tab.set_slider("radius, %", 20)
        tab.page.wait_for_timeout(500)
        tab.page.mouse.click(450, 270)
        tab.wait_until(lambda: len(demo.work.handles) == 1)
        (region,) = demo.work.handles.values()
        assert len(region.vertices) > 3
        tab.page.keyboard.down("Shift")
        tab.drag((300, 330), (600, 500))
        tab.page.keyboard.up("Shift")
        tab.wait_until(lambda: len(demo.work.handles) == 2)
        assert [h.held for h in demo.work.handles.values()] == [False, True]
        tab.page.get_by_role("button", name="Undo").click()
        tab.wait_until(lambda: len(demo.work.handles) == 1)
        tab.set_slider("rigidity", 3)
        tab.wait_until(lambda: demo.work.settings.w_reg == 3)
        assert tab.complaints == []


@needs_browser
def test_a_failed_solve_is_recovered_from_and_a_tab_that_goes_does_no_harm(server: Any) -> None:
    demo = Demo(server)
    with ExitStack() as stack:
        tab = ready(stack, demo)
        stack.enter_context(demo.solving)
        tab.page.keyboard.down("Control")
        tab.page.mouse.move(450, 240)
        tab.page.mouse.down()
        tab.page.mouse.move(420, 230)
        tab.page.mouse.move(400, 220)
        tab.wait_until(lambda: len(demo.work.handles) == 1)
        tab.page.goto("about:blank")  # in the middle of a drag
        (number,) = demo.work.handles
        far = demo.work.handles[number].moved((1e30, 0, 0))
        demo.solving.put({HandleAt(number): far, "w_fit": 100.0})
        assert demo.failed.wait(60)
        tab.wait_until(lambda: demo.work.settings == Settings())
        assert "overflow" in next(f.message for f in demo.frames if f.failed)
        assert demo.moved < 1
        tab.page.goto(demo.url)
        drawn(tab)
        tab.wait_until(lambda: bool(np.allclose(in_page(tab), demo.work.vertices, atol=1e-5)))
