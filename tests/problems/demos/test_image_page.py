"""The page on which a photograph follows its handles: with a server, and driven in a browser where there is one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from problems.demos.image_work import Grip, GripAt, ImageWork, WarpSettings
from problems.demos.solving import Frame, SolvingThread
from tests.support.demo_pages import demo_page, needs_browser

viser = pytest.importorskip("viser")

from problems.demos.image import ImageScene, first_settings, grid_segments  # noqa: E402 - it needs viser
from problems.demos.page import LOCAL, Panel, served  # noqa: E402

pytestmark = [pytest.mark.demo, pytest.mark.filterwarnings("ignore")]  # those of the server's libraries

SIZE = 64
PICTURE = np.zeros((SIZE, SIZE, 3))  # red, with a blue disc in the middle
PICTURE[..., 0] = 0.8
ROWS, COLUMNS = np.mgrid[:SIZE, :SIZE]
PICTURE[np.hypot(ROWS - 31.5, COLUMNS - 31.5) < 14] = (0.1, 0.1, 0.9)
MIDDLE = GripAt(32, 32)


def new_work(mask: Any = None) -> ImageWork:
    taken = np.zeros((SIZE, SIZE), np.uint8) if mask is None else mask
    return ImageWork(gaussian_filter(PICTURE, (1, 1, 0)), taken, "cpu", WarpSettings(radius=3.0))


@pytest.fixture
def server() -> Iterator[Any]:
    with served("photograph", LOCAL, 8170) as found:
        yield found


class Page:
    """A scene whose inputs are kept, and taken by the work when a test says so."""

    def __init__(self, server: Any, work: ImageWork) -> None:
        self.work = work
        self.put: list[dict[Any, Any]] = []
        self.scene = ImageScene(server, work, lambda inputs: self.put.append(dict(inputs)))

    def solve(self) -> None:
        inputs: dict[Any, Any] = {}
        for one in self.put:
            inputs |= one
        self.put.clear()
        self.work.change(inputs)
        self.work.step()
        self.scene.draw(self.work)

    def at(self, x: float, y: float) -> tuple[float, float, float]:
        """The place in the plane of a pixel of the canvas without its margin."""
        unit = 2 / SIZE
        return (x - (SIZE - 1) / 2) * unit, (y - (SIZE - 1) / 2) * unit, 0.0


@pytest.fixture
def page(server: Any) -> Page:
    return Page(server, new_work())


def test_a_drag_makes_a_handle_where_it_begins_and_pulls_it(page: Page) -> None:
    page.scene.drag(1, "start", page.at(32, 32))
    assert page.put[0]["mark"]
    assert page.put[0][MIDDLE] == Grip(32, 32)
    page.scene.drag(1, "update", page.at(40, 30))
    x, y, turn = page.put[-1][MIDDLE]
    assert (x, y, turn) == pytest.approx((40, 30, 0))
    page.solve()
    page.scene.drag(1, "end", page.at(44, 30))
    page.scene.drag(1, "update", page.at(60, 60))  # it has ended
    page.solve()
    assert page.work.grips[MIDDLE] == pytest.approx((44, 30, 0))
    page.scene.drag(1, "start", page.at(45, 30))  # near the handle: the same one, not a new one
    page.scene.drag(1, "end", page.at(43, 30))
    page.solve()
    assert [*page.work.grips] == [MIDDLE]
    assert page.work.grips[MIDDLE] == pytest.approx((42, 30, 0))


def test_the_pixel_under_the_pointer_is_that_which_is_drawn_there(page: Page) -> None:
    page.scene.drag(1, "start", page.at(32, 32))
    page.scene.drag(1, "end", page.at(42, 32))
    for _ in range(40):
        page.solve()
    assert page.scene.pixel_at(page.at(42, 32)) == MIDDLE
    assert page.scene.pixel_at(page.at(-30, 0)) is None
    assert page.scene.pixel_at((1e9, 0.0, 0.0)) is None


def test_beside_the_photograph_and_where_the_mask_is_nothing_is_taken(server: Any) -> None:
    mask = np.zeros((SIZE, SIZE), np.uint8)
    mask[:, :20] = 255
    page = Page(server, new_work(mask))
    for place in (page.at(10, 30), page.at(-4, 30)):
        page.scene.drag(1, "start", place)
        page.scene.drag(1, "update", page.at(30, 30))
        page.scene.hold(place)
    assert page.put == []


def test_two_tabs_drag_two_handles_and_one_that_is_closed_leaves_its_own(page: Page) -> None:
    page.scene.drag(1, "start", page.at(16, 16))
    page.scene.drag(2, "start", page.at(48, 48))
    page.scene.drag(1, "update", page.at(18, 16))
    page.scene.drag(2, "update", page.at(48, 50))
    page.scene.leave(1)
    page.scene.drag(1, "update", page.at(60, 60))
    page.solve()
    assert page.work.grips[GripAt(16, 16)] == pytest.approx((18, 16, 0))
    assert page.work.grips[GripAt(48, 48)] == pytest.approx((48, 50, 0))


def test_handles_on_the_page_are_those_of_the_solver_after_undo_and_failure(page: Page) -> None:
    page.scene.hold(page.at(10, 10))
    page.solve()
    page.scene.drag(1, "start", page.at(48, 48))
    page.scene.drag(1, "end", page.at(50, 48))
    page.solve()
    assert [*page.scene.handles] == [GripAt(10, 10), GripAt(48, 48)]
    page.work.change({"undo": 1})
    page.scene.draw(page.work)
    assert [*page.scene.handles] == [GripAt(10, 10)]
    page.scene.drag(1, "update", page.at(60, 60))  # nobody holds it any more
    assert page.put == []
    page.work.recover()
    page.scene.draw(page.work)
    assert not page.scene.handles
    page.work.change({GripAt(5, 6): Grip(7, 8)})
    page.scene.draw(page.work)
    assert page.scene.handles == {GripAt(5, 6): Grip(7, 8)}


def test_inputs_that_the_solver_has_not_seen_keep_their_handles(page: Page) -> None:
    page.scene.hold(page.at(10, 10))
    page.scene.draw(page.work)  # a frame that began before
    assert [*page.scene.handles] == [GripAt(10, 10)]


@pytest.mark.parametrize("shape", [(1, 1), (50, 50), (3, 256)])
def test_handles_of_a_small_photograph_begin_within_their_range(server: Any, shape: tuple[int, int]) -> None:
    picture = np.zeros((*shape, 3))
    work = ImageWork(picture, np.zeros(shape, np.uint8), "cpu", first_settings(picture))
    assert work.settings.radius <= 0.1 * max(shape)
    ImageScene(server, work, lambda _: None)  # its sliders refuse a value beside their range


def test_lines_of_the_grid_cross_nothing_that_takes_no_part() -> None:
    active = np.ones((9, 13), np.bool_)
    assert len(grid_segments(active, 4)) == 3 * 3 + 2 * 4
    active[4, 6] = False
    ends = {tuple(pair) for pair in grid_segments(active, 4).tolist()}
    assert (4 * 13 + 4, 4 * 13 + 8) not in ends
    assert (4, 8) in ends
    assert len(ends) == 3 * 3 + 2 * 4 - 1
    assert len(grid_segments(active[:1, :3], 4)) == 0


@needs_browser
def test_dragging_in_a_browser_changes_the_picture(server: Any) -> None:
    work, held = new_work(), threading.Event()
    seen: list[Frame] = []

    def show(frame: Frame) -> None:
        scene.draw(work)
        panel.show(frame)
        seen.append(frame)
        if len(work.grips) == 2:
            held.set()

    panel = Panel(server, work.device_text)
    solving = SolvingThread(work, show)
    scene = ImageScene(server, work, solving.put)
    with solving, demo_page(f"http://{LOCAL}:{server.get_port()}") as tab:
        before = tab.until(lambda shot: reddish(shot).sum() > 20_000)
        middle = middle_of(bluish(before))
        assert bluish(before).sum() > 1000
        tab.drag(middle, (middle[0] + 60, middle[1] - 50))
        after = tab.until(lambda shot: np.mean(np.nonzero(bluish(shot))[1]) > middle[0] + 20)
        assert (np.abs(after - before).max(axis=-1) > 40).sum() > 1000
        tab.page.keyboard.down("Shift")
        tab.page.mouse.click(middle[0] - 100, middle[1] + 100)
        tab.page.keyboard.up("Shift")
        assert held.wait(20)
        tab.set_slider("rigidity", 3)
        tab.wait_until(lambda: work.settings.w_reg == 3)
        tab.control("hold the border").click()
        tab.wait_until(lambda: work.settings.hold_border)
        tab.page.get_by_role("button", name="Undo").click()
        tab.wait_until(lambda: len(work.grips) == 1)
        with tab.page.expect_download() as saved:
            tab.page.get_by_role("button", name="Save PNG").click()
        assert saved.value.suggested_filename == "warped.png"
        tab.page.get_by_role("button", name="Reset").click()
        tab.until(lambda shot: np.abs(np.mean(np.nonzero(bluish(shot))[1]) - middle[0]) < 10)
        assert tab.complaints == []
    assert not [f.message for f in seen if f.failed]


@needs_browser
def test_a_tab_that_is_closed_in_the_middle_of_a_drag_leaves_the_others_going(server: Any) -> None:
    work = new_work()
    url = f"http://{LOCAL}:{server.get_port()}"
    drawn = threading.Event()

    def show(_: Frame) -> None:
        scene.draw(work)
        if work.grips:
            drawn.set()

    solving = SolvingThread(work, show)
    scene = ImageScene(server, work, solving.put)
    with solving:
        with demo_page(url) as tab:
            shot = tab.until(lambda shot: bluish(shot).sum() > 1000)
            middle = middle_of(bluish(shot))
            tab.page.mouse.move(*middle)
            tab.page.mouse.down()
            for k in range(8):
                tab.page.mouse.move(middle[0] + 5 * k, middle[1])
                tab.page.wait_for_timeout(100)
            assert drawn.wait(20)
        with demo_page(url) as tab:  # another one sees what the first has left
            tab.until(lambda shot: bluish(shot).sum() > 1000)
            tab.page.get_by_role("button", name="Reset").click()
            tab.wait_until(lambda: not work.grips)
            assert tab.complaints == []


def bluish(shot: Any) -> Any:
    seen = (shot[..., 2] > 120) & (shot[..., 0] < 90) & (shot[..., 1] < 90)
    return seen & (np.arange(shot.shape[1]) < 560)  # the panel has blue buttons


def reddish(shot: Any) -> Any:
    return (shot[..., 0] > 150) & (shot[..., 1] < 90) & (shot[..., 2] < 90)


def middle_of(seen: Any) -> tuple[float, float]:
    """The mean (x, y) of what is seen."""
    rows, columns = np.nonzero(seen)
    return float(columns.mean()), float(rows.mean())
