"""A scan that is refined by shading, step by step, in small sizes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from problems.demos.shading_levels import sizes
from problems.demos.shading_work import ShadingWork
from problems.shape_from_shading import Scan, energy, normals, relief

pytestmark = pytest.mark.applications

SCAN = relief(96)


def slope_error(scan: Scan, depth: Any) -> float:
    """The mean angle between the normals of a depth and the true ones, in degrees, off the rim."""
    assert scan.truth is not None
    middle = slice(len(depth) // 4, -len(depth) // 4)
    ours, true = (normals(scan.data, d.astype(np.float64))[:, middle, middle] for d in (depth, scan.truth))
    cosine = (ours * true).sum(0) / np.sqrt((ours**2).sum(0) * (true**2).sum(0))
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))).mean())


@pytest.fixture
def work() -> ShadingWork:
    return ShadingWork(SCAN)


def solve(work: ShadingWork, most: int = 30) -> list[int]:
    """Steps to the end, at most so many; the level of each."""
    levels = []
    for _ in range(most):
        done = work.step().finished
        levels.append(work.level)
        if done:
            break
    return levels


def test_it_goes_from_the_smallest_size_to_the_whole_and_finds_the_relief(work: ShadingWork) -> None:
    levels = solve(work)
    assert levels[:3] == [0, 1, 1]
    assert work.levels == 2
    assert work.depth.shape == SCAN.data["D"].shape
    assert slope_error(SCAN, work.depth) < 0.6 * slope_error(SCAN, work.before)
    outside = SCAN.data["D"] <= 0
    np.testing.assert_array_equal(work.depth[outside], work.before[outside])


def test_each_size_helps_the_next(work: ShadingWork) -> None:
    """The whole scan begins with a lower cost than that of the scan itself."""
    of_scan = energy.cost(SCAN.data)
    work.step()
    assert energy.cost({**SCAN.data, "X": work.depth}) < of_scan


def test_smaller_sizes_are_of_the_same_scene() -> None:
    small, whole = sizes(SCAN)
    assert (small.pooled, whole.pooled) == (2, 1)
    assert small.data["D"].shape == (48, 48)
    again = normals(small.data, np.where(small.data["D"] > 0, small.data["D"], 1).astype(np.float64))
    fine = normals(SCAN.data, np.where(SCAN.data["D"] > 0, SCAN.data["D"], 1).astype(np.float64))
    again, fine = (n / np.sqrt((n**2).sum(0)) for n in (again, fine))
    np.testing.assert_allclose(again[:, 23, 23], fine[:, 46:49, 46:49].mean(axis=(1, 2)), atol=0.05)
    assert small.weights(1.0, 1.0, 1.0) == dict(w_fit=4.0, w_smooth=0.25, w_shade=1.0)


@pytest.mark.parametrize(("name", "value"), [("w_smooth", 100.0), ("light2", -0.9), ("method", "gn"), ("linear", 3)])
def test_a_change_begins_at_the_smallest_size_and_acts(work: ShadingWork, name: str, value: Any) -> None:
    solve(work, 4)
    stood = work.depth
    work.change({name: value})
    assert work.settings[name] == value
    assert solve(work, 4)[:2] == [0, 1]
    if name not in ("method", "linear"):
        assert np.abs(work.depth - stood)[SCAN.data["D"] > 0].max() > 1e-5
    work.change({"reset": True})
    assert work.settings == work.first_settings


def test_the_same_settings_give_the_same_depth_whatever_was_before(work: ShadingWork) -> None:
    solve(work, 3)
    first = work.depth
    work.change({"w_smooth": 100.0})
    solve(work, 2)
    work.change({"w_smooth": work.first_settings["w_smooth"]})
    solve(work, 3)
    np.testing.assert_allclose(work.depth, first, atol=1e-6)


def test_values_that_no_setting_has_are_refused(work: ShadingWork) -> None:
    for name, value, why in (
        ("w_fit", float("nan"), "w_fit may be 0.001 to 10000, not nan"),
        ("method", "newton", "method may be 'lm' or 'gn', not 'newton'"),
    ):
        with pytest.raises(ValueError, match=why):
            work.change({"light0": 0.1, name: value})
    assert work.settings == work.first_settings


def test_it_recovers_with_the_settings_of_the_last_good_step(work: ShadingWork) -> None:
    work.change({"w_smooth": 3.0})
    solve(work, 2)
    work.change({"w_smooth": 5.0})
    work.recover()
    assert work.settings["w_smooth"] == 3.0
    assert np.isfinite(work.step().cost)
