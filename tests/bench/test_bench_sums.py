"""The benchmark of sums runs on tiny data, and its Jacobian for SciPy is right. Nothing here asks for speed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optpy as op
from bench import sums
from problems import blendshape_fitting, meshes


def test_scipy_ends_at_the_same_minimum() -> None:
    task = blendshape_fitting.fitting(meshes.pebble(1), 4)
    theirs = sums.by_scipy(task)
    ours = op.solve(blendshape_fitting.energy, task.data, "cpu", np.float64)
    assert theirs.success
    assert theirs.njev < 20  # as with an exact Jacobian
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-6)
    np.testing.assert_allclose(ours.x["Weight"], theirs.x[6:], atol=1e-3)


@pytest.mark.parametrize("r", [[0.3, -1.0, 0.4], [0, 0, 0], [1e-5, 0, 2e-5]])
def test_the_derivative_of_a_rotation_vector(r: list[float]) -> None:
    h, point = 1e-6, np.array([0.2, 1.0, -0.7])
    ends = [[Rotation.from_rotvec(r + s * d).apply(point) for s in (1, -1)] for d in h * np.eye(3)]
    central = [(after - before) / (2 * h) for after, before in ends]
    found = -sums.crossing(Rotation.from_rotvec(r).apply(point)) @ sums.left_jacobian(np.array(r, float))
    np.testing.assert_allclose(found, np.transpose(central), atol=1e-8)


def test_the_program_leaves_json_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "SECONDS", 1e-3)
    sums.main(["--vertices", "6", "--shapes", "3", "--pixels", "18", "--output", str(tmp_path)])
    rows = json.loads((tmp_path / "sums.json").read_text())["rows"]
    assert [r["what"] for r in rows if r["wanted"]] == ["compile", "times faster", "cost, of SciPy's", "compile"] + [
        "18 x 18, float32: applyJTJ"
    ]
    assert all(r["value"] > 0 for r in rows)
    assert "Mpixel/s" in capsys.readouterr().out
