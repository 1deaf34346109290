from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import optpy as op
from problems import image_warping, pictures
from problems.image_warping import Handle

needs_cat = pytest.mark.skipif(
    pictures.data_file("image_warping/cat512.png") is None, reason="the data folder is not there"
)


def test_handle_files_are_read(tmp_path: Path) -> None:
    file = tmp_path / "two.constraints"
    file.write_text("2\n30 132 59 44\n229 51 157 91")
    assert image_warping.read_handles(file) == [Handle((30, 132), (59, 44)), Handle((229, 51), (157, 91))]


def test_a_handle_file_that_was_cut_short_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "short.constraints"
    file.write_text("2\n30 132 59 44\n229 51")
    with pytest.raises(ValueError, match="2 rows of four announced, 6 numbers found"):
        image_warping.read_handles(file)


def test_handles_scale_with_the_picture() -> None:
    handle = Handle((9.5, 19.5), (29.5, 39.5), radius=8, turn=10).scaled(0.5)
    assert handle == Handle((4.5, 9.5), (14.5, 19.5), radius=4, turn=10)


def test_the_astronaut_is_pinned_at_its_border_and_pulled_by_discs() -> None:
    data = image_warping.astronaut(64).data
    identity, constraints = data["UrShape"], data["Constraints"]
    assert identity.shape == constraints.shape == (64, 64, 2)
    np.testing.assert_array_equal(identity[3, 5], [5, 3])  # x, y
    for border in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        np.testing.assert_array_equal(constraints[border], identity[border])
    inside = constraints[1:-1, 1:-1]
    pulled = (inside >= 0).all(axis=-1)
    assert 50 < pulled.sum() < 1000
    np.testing.assert_array_equal(inside[~pulled], -1)


def test_a_disc_turns_as_one_piece() -> None:
    identity = image_warping.pixel_places(21, 21)
    constraints = np.full_like(identity, -1)
    image_warping.constrain(constraints, identity, Handle((10, 10), (8, 9), radius=3, turn=90))
    assert (constraints >= 0).all(axis=-1).sum() == 29  # whole points in a circle of radius 3
    np.testing.assert_allclose(constraints[10, 10], [8, 9], atol=1e-5)
    np.testing.assert_allclose(constraints[10, 12], [8, 11], atol=1e-5)  # what was right is now below


def test_the_cost_at_the_start_is_that_of_the_handles() -> None:
    data = image_warping.astronaut(32).data
    pinned = (data["Constraints"] >= 0).all(axis=-1)
    away = (data["Offset"] - data["Constraints"])[pinned].astype(np.float64)
    assert image_warping.energy.cost(data) == pytest.approx(0.5 * 10.0**2 * (away**2).sum(), rel=1e-5)


def test_the_astronaut_warps(dtype: type[np.floating]) -> None:
    warp = image_warping.astronaut(64)
    result = op.solve(image_warping.energy, warp.data, device="cpu", dtype=dtype, method="lm", max_iterations=30)
    assert result.cost < 0.01 * result.initial_cost
    wanted = warp.data["Constraints"]
    pinned = (wanted >= 0).all(axis=-1)
    assert np.abs(result.x["Offset"] - wanted)[pinned].max() < 0.5
    assert result.x["Offset"].shape == (64, 64, 2)
    assert np.degrees(np.abs(result.x["Angle"])).max() > 10


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> type[np.floating]:
    chosen: type[np.floating] = request.param
    return chosen


@needs_cat
def test_the_cat_has_the_active_pixels_and_handles_of_its_description() -> None:
    warp = image_warping.cat512()
    active = warp.data["Mask"] == 0
    assert active.sum() == 101_406
    inner = (warp.data["Constraints"][1:-1, 1:-1] >= 0).all(axis=-1)
    assert inner.sum() == 9
    assert active[1:-1, 1:-1][inner].all()
    np.testing.assert_array_equal(warp.data["Constraints"][132, 30], [59, 44])


@needs_cat
def test_pinning_the_border_of_the_cat_changes_nothing() -> None:
    with_border, without = (image_warping.cat512(128, pin_border=pin).data for pin in (True, False))
    assert image_warping.energy.cost(with_border) == pytest.approx(image_warping.energy.cost(without))


@needs_cat
def test_inactive_pixels_of_the_cat_stay() -> None:
    data = image_warping.cat512(64).data
    result = op.solve(image_warping.energy, data, device="cpu", method="lm", max_iterations=5)
    inactive = data["Mask"] != 0
    np.testing.assert_array_equal(result.x["Offset"][inactive], data["Offset"][inactive])
    np.testing.assert_array_equal(result.x["Angle"][inactive], 0)
    assert result.cost < result.initial_cost


def test_the_program_draws_before_and_after(tmp_path: Path) -> None:
    output = tmp_path / "warp.png"
    arguments = ["--size", "40", "--iterations", "5", "--output", str(output)]
    run = CliRunner().invoke(image_warping.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert run.exit_code == 0
    assert str(output) in run.output
    with Image.open(output) as opened:
        pixels = np.asarray(opened, dtype=np.float64)
    assert pixels.shape == (40, 40 + pictures.GAP + 40, 3)
    assert np.abs(pixels[:, :40] - pixels[:, -40:]).mean() > 2  # grey levels of 255: it did move


def test_the_program_can_be_quiet(tmp_path: Path) -> None:
    arguments = ["--size", "16", "--quiet", "--output", str(tmp_path / "warp.png")]
    run = CliRunner().invoke(image_warping.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert (run.exit_code, run.stdout) == (0, "")
    assert (tmp_path / "warp.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "warp.xyz"], "no ending of a picture file"),
        (["--output", "gone/warp.png"], "there is no folder"),
        (["--size", "0"], "0 is not in the range"),
        (["--method", "newton"], "'newton' is not one of"),
        (["--dtype", "float16"], "'float16' is not one of"),
    ],
)
def test_the_program_names_bad_options_before_it_solves(arguments: list[str], message: str) -> None:
    run = CliRunner().invoke(image_warping.main, arguments)
    assert run.exit_code == 2
    assert message in run.output


def test_a_missing_data_folder_is_one_line_of_error(tmp_path: Path) -> None:
    run = CliRunner().invoke(image_warping.main, [], env={"OPTPY_DATA": str(tmp_path / "gone")})
    assert run.exit_code == 1
    assert run.output.startswith("Error: OPTPY_DATA names")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_program_takes_tiny_pictures(tmp_path: Path, size: int) -> None:
    output = tmp_path / "tiny.png"
    arguments = ["--size", str(size), "--output", str(output), "--quiet"]
    run = CliRunner().invoke(image_warping.main, arguments, env={"OPTPY_DATA": ""}, catch_exceptions=False)
    assert run.exit_code == 0
    assert output.is_file()
