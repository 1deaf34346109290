"""The comparison of inner tolerances runs on tiny data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import forcing
from problems import laplacian_smoothing, shape_from_shading


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small problems in place of the real ones."""
    problems = {
        "relief": lambda: forcing.Problem(shape_from_shading.energy, shape_from_shading.relief(24).data),
        "laplacian": lambda: forcing.Problem(
            laplacian_smoothing.energy, laplacian_smoothing.default_noisy(16).data, "gn"
        ),
    }
    monkeypatch.setattr(forcing, "PROBLEMS", problems)


def test_each_rule_has_a_line_and_its_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forcing.main(["--rules", "default", "0.1", "--output", str(tmp_path)])
    runs = json.loads((tmp_path / "forcing_float32.json").read_text())["runs"]
    assert [(r["problem"], r["rule"]) for r in runs] == [
        (name, rule) for name in ("relief", "laplacian") for rule in ("default", "0.1")
    ]
    for r in runs:
        assert len(r["seconds"]) == len(r["products"]) == len(r["costs"]) - 1 == r["nonlinear"]
        assert sum(r["products"]) >= r["linear"]
        assert r["linear"] >= r["nonlinear"] > 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("relief, float32", "to 1e-06", "ending"))


def test_a_run_knows_when_a_cost_was_reached() -> None:
    run = forcing.Run("p", "float32", "default", 2, 9, "", (1.0, 2.0), (3.0, 6.0), (9.0, 5.0, 2.0))
    assert [run.first_at(cost, of_step=2.0) for cost in (9.0, 5.0, 4.0, 1.0)] == [0.0, 5.0, 13.0, None]


def test_what_a_step_takes_is_found_beside_its_linear_iterations() -> None:
    # 4 s and 2 s for each product; the first step compiles.
    run = forcing.Run("p", "float32", "default", 3, 9, "", (90.0, 10.0, 16.0), (3.0, 3.0, 6.0), (9.0, 5.0, 2.0, 1.0))
    assert forcing.work_of_step([run]) == pytest.approx(2.0)
