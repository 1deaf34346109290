from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from trimesh import Trimesh

from problems import meshes
from problems.mesh_handles import HELD_COLOUR, MOVED_COLOUR, top_and_foot


def test_the_foot_stays_and_the_top_moves_as_one_piece() -> None:
    pebble = meshes.pebble(3)
    vertices = np.asarray(pebble.vertices)
    handles = top_and_foot(pebble.vertices, fraction=0.05)
    count = len(vertices)
    assert 0.04 * count < handles.held.sum() < 0.08 * count
    assert 0.04 * count < handles.moved.sum() < 0.08 * count
    assert not (handles.held & handles.moved).any()
    assert vertices[handles.held, 1].max() < vertices[~handles.pulled, 1].min()
    assert vertices[handles.moved, 1].min() > vertices[~handles.pulled, 1].max()
    np.testing.assert_array_equal(handles.target[~handles.moved], vertices[~handles.moved])
    np.testing.assert_allclose(pdist(handles.target[handles.moved]), pdist(vertices[handles.moved]))
    assert np.abs(handles.target - vertices)[handles.moved].max() > 0.2


def test_the_top_turns_around_its_middle() -> None:
    pebble = meshes.pebble(2)
    handles = top_and_foot(pebble.vertices, 0.1, turn=(0, 90, 0), shift=(0, 0.5, 0))
    before, after = np.asarray(pebble.vertices)[handles.moved], handles.target[handles.moved]
    height = np.ptp(np.asarray(pebble.vertices)[:, 1])
    np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0) + [0, 0.5 * height, 0], atol=1e-12)
    x, z = (before - before.mean(axis=0))[:, [0, 2]].T
    np.testing.assert_allclose((after - after.mean(axis=0))[:, [0, 2]], np.stack([z, -x], axis=1), atol=1e-12)


def test_a_flat_mesh_is_held() -> None:
    flat = Trimesh([[0, 0, 0], [1, 0, 0], [0, 0, 1]], [[0, 1, 2]], process=False)
    handles = top_and_foot(flat.vertices)
    assert handles.held.all()
    assert not handles.moved.any()


@pytest.mark.parametrize("fraction", [0.02, 0.3])
def test_handles_have_colours(fraction: float) -> None:
    pebble = meshes.pebble(2)
    handles = top_and_foot(pebble.vertices, fraction)
    colours = handles.colours(pebble)
    for chosen, colour in ((handles.held, HELD_COLOUR), (handles.moved, MOVED_COLOUR)):
        inside = chosen[np.asarray(pebble.faces)].all(axis=1)
        np.testing.assert_array_equal((colours == colour).all(axis=1), inside)
