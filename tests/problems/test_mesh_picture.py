from __future__ import annotations

import numpy as np
import pytest
import trimesh
from trimesh import Trimesh

from problems import mesh_picture


def test_a_ball_is_drawn_in_the_middle_lit_from_above() -> None:
    (picture,) = mesh_picture.draw([trimesh.creation.icosphere(subdivisions=2)], size=64)
    assert picture.shape == (64, 64, 3)
    np.testing.assert_array_equal(picture[0, 0], 1)  # white around it
    assert picture[32, 32].max() < 1
    drawn = (picture < 1).any(axis=-1)
    assert drawn.mean() == pytest.approx(np.pi / 4 / 1.06**2, rel=0.05)
    assert picture[12, 28].sum() > 1.3 * picture[52, 36].sum()


def test_what_is_in_front_hides_what_is_behind() -> None:
    towards = mesh_picture.CAMERA.inv().apply([0.0, 0.0, 1.0])
    ball = trimesh.creation.icosphere(subdivisions=1)
    both = trimesh.util.concatenate([ball, ball.copy().apply_translation(-4 * towards)])
    colours = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], len(ball.faces), axis=0)
    assert isinstance(both, Trimesh)
    (picture,) = mesh_picture.draw([both], [colours], size=32)
    red, green, blue = picture[16, 16]
    assert red > 0.3
    assert green == pytest.approx(0, abs=0.01)
    assert blue == pytest.approx(0, abs=0.01)


def test_pictures_of_a_series_have_one_scale() -> None:
    small, large = (trimesh.creation.icosphere(subdivisions=2, radius=r) for r in (1, 2))
    areas = [(p < 1).any(axis=-1).sum() for p in mesh_picture.draw([small, large], size=64)]
    assert areas[1] == pytest.approx(4 * areas[0], rel=0.1)


@pytest.mark.parametrize("corner", [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
def test_triangles_without_an_area_do_no_harm(corner: list[float]) -> None:
    flat = Trimesh([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], corner], [[0, 1, 2]], process=False)
    (picture,) = mesh_picture.draw([flat], size=16)
    assert np.isfinite(picture).all()
