"""The page of the motion between two frames: with a server, and driven in a browser where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from problems.demos.flow_work import FlowWork
from problems.demos.solving import Frame, SolvingThread
from problems.optical_flow import Film
from tests.support.demo_pages import demo_page, needs_browser

viser = pytest.importorskip("viser")

from problems.demos.flow import FlowScene, brought_back, enlarged, found_film, wheel  # noqa: E402 - it needs viser
from problems.demos.page import LOCAL, Panel, served  # noqa: E402

pytestmark = [pytest.mark.demo, pytest.mark.filterwarnings("ignore")]  # those of the server's libraries

NOISE = gaussian_filter(np.random.default_rng(2).random((64, 64)), 1.5)
TEXTURE = 0.5 + 0.35 * np.clip((NOISE - NOISE.mean()) / (2 * NOISE.std()), -1, 1)
SHIFTED = Film(TEXTURE[8:56, 8:56], TEXTURE[8:56, 5:53], np.tile([3.0, 0.0], (48, 48, 1)))
"""All moves by three pixels to the right."""


@pytest.fixture
def server() -> Iterator[Any]:
    with served("motion", LOCAL, 8190) as found:
        yield found


def test_the_second_frame_is_brought_back() -> None:
    assert SHIFTED.truth is not None
    back = brought_back(np.repeat(SHIFTED.second[..., None], 3, axis=-1), SHIFTED.truth)
    np.testing.assert_allclose(back[:, :45, 1], SHIFTED.first[:, :45], atol=1e-6)
    np.testing.assert_allclose(back[:, 46:], 0.5)


def test_the_wheel_is_white_in_its_middle_and_red_to_the_right() -> None:
    colours = wheel(65)
    np.testing.assert_allclose(colours[32, 32], 1, atol=0.05)
    assert colours[32, 64, 0] > 0.9
    assert colours[32, 64, 1:].max() < 0.3
    np.testing.assert_array_equal(colours[0, 0], 1)


def test_small_pictures_keep_their_pixels() -> None:
    small = np.arange(12.0).reshape(2, 2, 3) / 12
    large = enlarged(small, (4, 6))
    assert large.shape == (4, 6, 3)
    np.testing.assert_array_equal(large[:2, :3], np.broadcast_to(small[0, 0], (2, 3, 3)))


def test_frames_are_scaled_down_and_that_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.png", "other.png"):
        Image.fromarray(np.uint8(255 * TEXTURE)).save(tmp_path / name)
    found = found_film(tmp_path / "one.png", tmp_path / "other.png", 32)
    assert found.first.shape == (32, 32, 3)
    assert found.truth is None
    assert "one.png has 64 x 64 pixels: it is solved at 32 x 32" in capsys.readouterr().out


def test_each_level_is_shown(server: Any) -> None:
    work = FlowWork(SHIFTED)
    scene = FlowScene(server, work, lambda inputs: None)
    shown = {plane: image_of(server, plane) for plane in ("first", "motion", "second")}
    assert all(picture.shape == (48, 48, 3) for picture in shown.values())
    np.testing.assert_array_equal(shown["motion"], 255)  # nothing moves yet
    while not work.step().finished:
        scene.draw(work)
    scene.draw(work)
    red = image_of(server, "motion").astype(int)[12:36, 8:40].mean(axis=(0, 1))
    assert red[0] > red[1] + 80
    assert red[0] > red[2] + 80


def image_of(server: Any, name: str) -> Any:
    """What a plane was sent."""
    return server.scene.get_handle_by_name(f"/{name}").image


@needs_browser
def test_sliders_begin_the_search_anew_in_a_browser(server: Any) -> None:
    work, seen = FlowWork(SHIFTED), list[Frame]()

    def show(frame: Frame) -> None:
        scene.draw(work)
        panel.show(frame)
        seen.append(frame)

    def ended() -> int:
        return sum(f.message == "all levels are solved" for f in seen)

    panel = Panel(server, work.device_text)
    solving = SolvingThread(work, show)
    scene = FlowScene(server, work, solving.put)
    with demo_page(f"http://{LOCAL}:{server.get_port()}") as tab, solving:
        first = tab.until(lambda shot: reddish(shot).sum() > 3000)  # the motion's colour, in one of three pictures
        assert (first.std(axis=-1) < 3).mean() > 0.5  # the others are grey
        tab.wait_until(lambda: ended() == 1)
        tab.set_slider("smoothness", 20)
        tab.wait_until(lambda: work.choices.w_smooth == 20 and ended() == 2)
        alone = reddish(tab.screenshot()).sum()
        tab.set_slider("motion over frame", 1)
        over = tab.until(lambda shot: reddish(shot).sum() > max(1.6 * alone, 5000))
        assert (np.abs(over - first).max(axis=-1) > 60).sum() > 3000
        tab.page.get_by_role("button", name="Again").click()
        tab.wait_until(lambda: ended() == 3)
        with tab.page.expect_download() as saved:
            tab.page.get_by_role("button", name="Save PNG").click()
        picture = np.asarray(Image.open(saved.value.path()).convert("RGB"), np.int16)
        assert picture.shape == (48, 48, 3)
        assert reddish(picture).mean() > 0.5
        assert tab.complaints == []
    assert not [f.message for f in seen if f.failed]


def reddish(shot: Any) -> Any:
    return (shot[..., 0] > 150) & (shot[..., 1] < 120) & (shot[..., 2] < 120)
