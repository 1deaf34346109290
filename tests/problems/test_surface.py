from __future__ import annotations

import numpy as np
import pytest
import trimesh
from trimesh import Trimesh

from problems.surface import Surface, face_normals, vertex_normals


def test_the_nearest_points_of_a_square_are_found() -> None:
    square = Trimesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], [[0, 1, 2], [0, 2, 3]], process=False)
    nearest = Surface(square).nearest(np.array([[0.6, 0.3, 2.0], [-3.0, 0.2, 4.0], [2.0, 2.0, 0.0]]))
    np.testing.assert_allclose(nearest.points, [[0.6, 0.3, 0.0], [0.0, 0.2, 0.0], [1.0, 1.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(nearest.distances, [2, 5, 2**0.5])
    np.testing.assert_allclose(nearest.normals, [[0, 0, 1]] * 3)


def test_points_around_a_ball_are_as_far_as_from_a_sphere() -> None:
    ball = trimesh.creation.icosphere(subdivisions=4)
    directions = np.random.default_rng(0).normal(size=(200, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    radius = np.linspace(0.8, 2, 200)
    nearest = Surface(ball).nearest(directions * radius[:, None])
    np.testing.assert_allclose(nearest.distances, np.abs(radius - 1), atol=3e-3)
    np.testing.assert_allclose(nearest.points, directions, atol=5e-2)
    assert ((nearest.normals * directions).sum(axis=1) > 0.99).all()


def test_normals_are_those_of_other_places() -> None:
    ball = trimesh.creation.icosphere(subdivisions=3)
    squeezed = np.asarray(ball.vertices) * [1, 2, 3]
    outwards = np.asarray(ball.vertices) / [1, 2, 3]
    outwards /= np.linalg.norm(outwards, axis=1, keepdims=True)
    assert ((vertex_normals(ball, squeezed) * outwards).sum(axis=1) > 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(face_normals(ball, squeezed), axis=1), 1)


@pytest.mark.parametrize("normals", [face_normals, vertex_normals])
def test_triangles_without_an_area_have_no_normal(normals: object) -> None:
    line = Trimesh([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [[0, 1, 2]], process=False)
    assert callable(normals)
    np.testing.assert_array_equal(normals(line, line.vertices), 0)
