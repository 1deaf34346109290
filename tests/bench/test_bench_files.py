"""The bench of bundles and pose graphs on tiny files; nothing here asks for speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from bench import files
from bench.curve import Recorder, TimeIsUpError
from bench.files import Entrant
from bench.peers.assembled import AssembledProblem
from problems.bundle_adjustment import synthetic_bundle
from problems.pose_graph import pose_graph, synthetic_walk


def bal_file(folder: Path) -> Path:
    bundle = synthetic_bundle(cameras=4, points=20, noise=0.5, seed=1).start
    seen = [f"{c} {p} {x!r} {y!r}" for (c, p), (x, y) in zip(bundle.pairs.tolist(), bundle.seen.tolist(), strict=True)]
    numbers = map(repr, [*bundle.cameras.ravel().tolist(), *bundle.points.ravel().tolist()])
    path = folder / "tiny.txt"
    path.write_text("\n".join([f"4 20 {len(seen)}", *seen, *numbers]))
    return path


def _plain(T: NDArray[np.float64]) -> list[float]:
    """A pose as g2o has it."""
    values = [*T[2:], np.arctan2(T[1], T[0])] if len(T) == 4 else [*T[4:], *T[:4]]
    return [float(x) for x in values]


def g2o_file(folder: Path, dimension: Literal[2, 3]) -> Path:
    graph = synthetic_walk(dimension, rounds=2, steps=10, seed=1).graph
    tag = "SE2" if dimension == 2 else "SE3:QUAT"
    weights = [400.0 if a == b else 0.0 for a in range(3 * dimension - 3) for b in range(a, 3 * dimension - 3)]
    lines = [[f"VERTEX_{tag}", n, *_plain(T)] for n, T in enumerate(graph.poses)]
    lines += [[f"EDGE_{tag}", *e, *_plain(T), *weights] for e, T in zip(graph.edges, graph.measured, strict=True)]
    path = folder / f"tiny{dimension}.g2o"
    path.write_text("\n".join(" ".join(map(str, line)) for line in lines))
    return path


def tiny(folder: Path, name: str) -> Path:
    return bal_file(folder) if name == "bundle" else g2o_file(folder, 2 if name == "plane" else 3)


@pytest.mark.parametrize("name", ["bundle", "plane", "space"])
@pytest.mark.parametrize("beside_ceres", [False, pytest.param(True, marks=pytest.mark.deep)])  # takes seconds to build
def test_all_solvers_end_at_one_cost(
    tmp_path: Path, beside_ceres: bool, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny(tmp_path, name)
    reference = files.solve_file(path, "float64", threads=2, budget=20)
    assert isinstance(reference, Entrant)
    if name != "plane":  # SciPy's inner solver stalls on columns of such different lengths, and has gone far enough.
        end_at(1.01 * reference.cost, monkeypatch)
    others = [s for s in files.SOLVERS if s != "float64" and (beside_ceres or s != "ceres")]
    ran = [e for s in others if isinstance(e := files.solve_file(path, s, threads=2, budget=60), Entrant)]
    assert {e.solver for e in ran} >= {"scipy", "float32"}
    for e in (reference, *ran):
        assert e.start == pytest.approx(reference.start)
        assert e.points[0].cost == pytest.approx(reference.start, rel=1e-4)
        assert e.cost == pytest.approx(reference.cost, rel=1e-2 if e.solver == "scipy" else 1e-3), e.name


def end_at(enough: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer without limits of its own ends at this cost, too, not only by the clock."""
    note = Recorder.cost

    def noted(self: Recorder, cost: float, assembly: float) -> None:
        note(self, cost, assembly)
        if cost <= enough:
            raise TimeIsUpError

    monkeypatch.setattr(Recorder, "cost", noted)


@pytest.mark.parametrize("dimension", [2, 3])
def test_poses_have_coordinates(dimension: Literal[2, 3]) -> None:
    graph = synthetic_walk(dimension, rounds=2, steps=8, seed=3).graph
    problem = AssembledProblem(pose_graph(dimension), graph.data)
    x = problem.start
    assert len(x) == (3 * dimension - 3) * (len(graph.poses) - 1)
    change = 1e-6 * np.random.default_rng(0).normal(size=len(x))
    there = x + 0.3
    difference = problem.residuals(there + change) - problem.residuals(there - change)
    np.testing.assert_allclose(difference / 2, problem.jacobian(there) @ change, atol=1e-9)


def test_the_program_leaves_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = g2o_file(tmp_path, 2)
    files.main([str(path), "--solvers", "scipy", "--threads", "1", "--output", str(tmp_path)])
    record = json.loads((tmp_path / "files.json").read_text())
    (entrant,) = record["entrants"]
    assert entrant["cost"] < entrant["start"]
    assert "tiny2.g2o" in capsys.readouterr().out
