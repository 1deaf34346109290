"""A mesh that follows its handles, step by step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from problems import meshes
from problems.demos.mesh_work import HandleAt, MeshWork

pytestmark = pytest.mark.applications

MESH = meshes.pebble(2)
VERTICES = np.asarray(MESH.vertices)
TOP, FOOT = int(VERTICES[:, 1].argmax()), int(VERTICES[:, 1].argmin())


def place(vertex: int, shift: float = 0.0) -> Any:
    x, y, z = VERTICES[vertex]
    return float(x) + shift, float(y), float(z)


@pytest.fixture
def work() -> MeshWork:
    return MeshWork(MESH)


def follow(work: MeshWork, inputs: dict[Any, Any], frames: int = 40) -> None:
    work.change(inputs)
    for _ in range(frames):
        if work.step().finished:
            break


def test_handles_pull_the_mesh_and_it_stays_rigid_elsewhere(work: MeshWork) -> None:
    follow(work, {HandleAt(TOP): place(TOP, 0.2), HandleAt(FOOT): place(FOOT), "w_fit": 100.0})
    np.testing.assert_allclose(work.vertices[TOP], place(TOP, 0.2), atol=0.01)
    np.testing.assert_allclose(work.vertices[FOOT], place(FOOT), atol=0.01)
    ends = np.asarray(MESH.edges_unique)
    before, after = (np.linalg.norm(v[ends[:, 0]] - v[ends[:, 1]], axis=1) for v in (VERTICES, work.vertices))
    assert np.median(np.abs(after / before - 1)) < 0.05
    follow(work, {HandleAt(TOP): None})
    assert work.targets == {FOOT: place(FOOT)}


def test_undo_takes_back_what_was_marked_and_reset_everything(work: MeshWork) -> None:
    follow(work, {"mark": True, HandleAt(FOOT): place(FOOT)}, 1)
    follow(work, {"mark": True, HandleAt(TOP): place(TOP, 0.2)}, 1)
    follow(work, {HandleAt(TOP): place(TOP, 0.3)}, 1)
    work.change({"undo": True})
    assert work.targets == {FOOT: place(FOOT)}
    work.change({"undo": True})
    work.change({"undo": True})  # nothing is left to take back
    assert work.targets == {}
    follow(work, {HandleAt(TOP): place(TOP, 0.3)}, 3)
    work.change({"reset": True})
    assert work.targets == {}
    np.testing.assert_array_equal(work.vertices, VERTICES)


@pytest.mark.parametrize(("name", "value"), [("rotations", "so3"), ("method", "lm"), ("linear", 3), ("w_reg", 2.0)])
def test_settings_change_in_the_middle(work: MeshWork, name: str, value: Any) -> None:
    follow(work, {HandleAt(TOP): place(TOP, 0.2)}, 3)
    stood = work.vertices.copy()
    work.change({name: value})
    assert getattr(work.settings, name) == value
    np.testing.assert_allclose(work.vertices, stood)
    assert work.step().linear_iterations <= work.settings.linear * work.settings.nonlinear
    assert np.abs(work.vertices - stood).max() < 0.1  # it goes on from where it stood


def test_places_that_are_none_are_refused(work: MeshWork) -> None:
    with pytest.raises(ValueError, match="which is no place"):
        work.change({HandleAt(TOP): (math.nan, 0.0, 0.0)})
    with pytest.raises(ValueError, match="no vertex 1000000"):
        work.change({HandleAt(1_000_000): (0.0, 0.0, 0.0)})
    assert work.targets == {}


def test_it_recovers_as_it_was(work: MeshWork) -> None:
    follow(work, {HandleAt(TOP): place(TOP, 0.2)}, 2)
    work.recover()
    np.testing.assert_array_equal(work.vertices, VERTICES)
    assert np.isfinite(work.step().cost)
