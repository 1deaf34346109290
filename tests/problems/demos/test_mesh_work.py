"""A mesh that follows its handles, step by step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optpy as op
from problems import meshes
from problems.demos.handles import Handle, around, handle
from problems.demos.mesh_models import MODELS
from problems.demos.mesh_work import HandleAt, MeshWork, Settings

pytestmark = pytest.mark.applications

MESH = meshes.pebble(2)
VERTICES = np.asarray(MESH.vertices)
TOP, FOOT = int(VERTICES[:, 1].argmax()), int(VERTICES[:, 1].argmin())


def at(vertex: int, shift: float = 0.0) -> Handle:
    taken = handle(VERTICES, vertex)
    return taken.moved(np.add(taken.position, [shift, 0, 0]))


@pytest.fixture
def work() -> MeshWork:
    return MeshWork(MESH)


def follow(work: MeshWork, inputs: dict[Any, Any], frames: int = 40) -> None:
    work.change(inputs)
    for _ in range(frames):
        if work.step().finished:
            break


def stretched(work: MeshWork) -> float:
    """The median change of an edge's length."""
    ends = np.asarray(MESH.edges_unique)
    before, after = (np.linalg.norm(v[ends[:, 0]] - v[ends[:, 1]], axis=1) for v in (VERTICES, work.vertices))
    return float(np.median(np.abs(after / before - 1)))


@pytest.mark.parametrize("model", list(MODELS))
def test_handles_pull_the_mesh_and_it_stays_rigid_elsewhere(work: MeshWork, model: str) -> None:
    follow(work, {HandleAt(0): at(TOP, 0.2), HandleAt(1): at(FOOT), "w_fit": 100.0, "model": model}, 80)
    np.testing.assert_allclose(work.vertices[TOP], at(TOP, 0.2).position, atol=0.01)
    np.testing.assert_allclose(work.vertices[FOOT], VERTICES[FOOT], atol=0.01)
    assert stretched(work) < 0.05
    follow(work, {HandleAt(0): None})
    assert list(work.handles) == [1]


def test_a_region_moves_and_turns_as_one_piece(work: MeshWork) -> None:
    region = around(VERTICES, TOP, 0.25)
    assert len(region) > 5
    taken = handle(VERTICES, region)
    turn = Rotation.from_euler("y", 40, degrees=True)
    moved = taken.moved(np.add(taken.position, [0.1, 0.1, 0.0]), np.roll(turn.as_quat(), 1))
    foot = handle(VERTICES, around(VERTICES, FOOT, 0.2), held=True)
    follow(work, {HandleAt(0): moved, HandleAt(1): foot, "w_fit": 100.0}, 80)
    middle = VERTICES[region].mean(axis=0)
    wanted = turn.apply(VERTICES[region] - middle) + middle + [0.1, 0.1, 0.0]
    np.testing.assert_allclose(work.vertices[region], wanted, atol=0.01)
    np.testing.assert_allclose(work.vertices[foot.vertices], VERTICES[foot.vertices], atol=0.01)


def test_undo_takes_back_what_was_marked_and_reset_everything(work: MeshWork) -> None:
    foot, top = at(FOOT), at(TOP, 0.2)
    follow(work, {"mark": True, HandleAt(0): foot}, 1)
    follow(work, {"mark": True, HandleAt(1): top}, 1)
    follow(work, {"mark": True, HandleAt(1): at(TOP, 0.3)}, 1)  # dragged
    work.change({"undo": True})
    assert work.handles == {0: foot, 1: top}
    work.change({"mark": True, HandleAt(0): None})
    work.change({"undo": True})  # what was let go is there again
    assert work.handles == {0: foot, 1: top}
    work.change({"mark": True})  # a click on a gizmo that moves nothing
    work.change({"undo": True})
    assert work.handles == {0: foot}
    work.change({"undo": True})
    work.change({"undo": True})  # nothing is left to take back
    assert work.handles == {}
    follow(work, {HandleAt(1): at(TOP, 0.3)}, 3)
    work.change({"reset": True})
    assert work.handles == {}
    np.testing.assert_array_equal(work.vertices, VERTICES)


@pytest.mark.parametrize(
    ("name", "value"), [("model", "so3"), ("model", "embedded"), ("method", "gn"), ("linear", 3), ("w_reg", 2.0)]
)
def test_settings_change_in_the_middle(work: MeshWork, name: str, value: Any) -> None:
    follow(work, {HandleAt(0): at(TOP, 0.2), HandleAt(1): at(FOOT)}, 3)
    stood = work.vertices.copy()
    work.change({name: value})
    assert getattr(work.settings, name) == value
    np.testing.assert_allclose(work.vertices, stood)
    assert work.step().linear_iterations <= work.settings.linear * work.settings.nonlinear
    assert np.abs(work.vertices - stood).max() < 0.2  # it goes on from where it stood


def test_places_that_are_none_are_refused_and_nothing_changes(work: MeshWork) -> None:
    follow(work, {HandleAt(1): at(FOOT)}, 1)
    held = dict(work.handles)
    for wrong, why in (
        (at(TOP).moved((math.nan, 0, 0)), "which is no place"),
        (at(TOP).moved((0, 0, 0), (0, 0, 0, 0)), "which is no place"),
        (Handle(np.array([1_000_000]), np.zeros((1, 3)), (0, 0, 0)), "no vertex 1000000: it has 162"),
    ):
        with pytest.raises(ValueError, match=why):
            work.change({HandleAt(1): None, HandleAt(0): wrong, "mark": True})
        assert work.handles == held


def test_handles_of_no_vertex_are_refused() -> None:
    with pytest.raises(ValueError, match="a handle needs a vertex"):
        handle(VERTICES, [])
    with pytest.raises(ValueError, match="no vertex 162: it has 162, counted from 0"):
        handle(VERTICES, [3, 162])


def test_a_failed_solve_goes_back_to_the_last_good_one(work: MeshWork) -> None:
    good = at(TOP, 0.2)
    follow(work, {HandleAt(0): good}, 2)
    stood = work.vertices
    work.change({HandleAt(0): good.moved((1e30, 0, 0)), "w_fit": 100.0})
    with pytest.raises(op.OptpyError, match="overflow float32"):
        work.step()
    work.recover()
    assert work.handles == {0: good}
    assert work.settings == Settings()
    assert np.abs(work.vertices - stood).max() < 0.1
    assert np.isfinite(work.step().cost)


def test_without_a_good_solve_it_recovers_as_the_mesh_was(work: MeshWork) -> None:
    work.change({HandleAt(0): at(TOP).moved((1e30, 0, 0))})
    work.recover()
    assert work.handles == {}
    np.testing.assert_array_equal(work.vertices, VERTICES)
    assert np.isfinite(work.step().cost)
