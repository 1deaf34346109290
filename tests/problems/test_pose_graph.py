from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from PIL import Image
from scipy.spatial.transform import Rotation

import optpy as op
from problems import pictures, pose_graph
from problems.pose_graph import energy_of, synthetic_walk
from problems.pose_graph_files import PoseGraph, read_pose_graph
from problems.poses import matrices

Real = NDArray[np.float64]
Dimension = Literal[2, 3]


def small(dimension: Dimension, noise: float = 1.0) -> pose_graph.Walk:
    return synthetic_walk(dimension, rounds=2, steps=12, noise=noise, seed=1)


def expected_cost(graph: PoseGraph) -> float:
    """1/2 sum e^T information e, by SciPy's rotations."""
    n = 3 if graph.dimension == 2 else 6
    S = np.zeros((len(graph.edges), n, n))
    rows, columns = np.triu_indices(n)
    S[:, rows, columns] = graph.root
    information = S.transpose(0, 2, 1) @ S
    total = 0.0
    for (a, b), z, W in zip(graph.edges, graph.measured, information, strict=True):
        (Ra, ta), (Rb, tb), (Rz, tz) = (_parts(graph, p) for p in (graph.poses[a], graph.poses[b], z))
        shift = (Ra.inv().apply(tb - ta) - tz)[: graph.dimension]
        off = Rz * (Ra.inv() * Rb).inv()
        turn = [-off.as_rotvec()[2]] if graph.dimension == 2 else 2 * off.as_quat(canonical=True)[:3]
        e = np.concatenate([shift, turn])
        total += 0.5 * float(e @ W @ e)
    return total


def _parts(graph: PoseGraph, pose: Real) -> tuple[Any, Real]:
    if graph.dimension == 3:
        return Rotation.from_quat(pose[:4]), pose[4:]
    return Rotation.from_rotvec([0, 0, np.arctan2(pose[1], pose[0])]), np.append(pose[2:], 0)


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_cost_is_that_of_scipys_rotations(dimension: Dimension) -> None:
    graph = small(dimension).graph
    graph.root[:] = np.random.default_rng(0).normal(size=graph.root.shape)
    assert energy_of(graph).cost(graph.data) == pytest.approx(expected_cost(graph))


def test_the_signs_of_quaternions_do_not_matter() -> None:
    graph = small(3).graph
    graph.root[:] = np.random.default_rng(0).normal(size=graph.root.shape)  # that couples shifts and turns
    cost = pose_graph.space.cost(graph.data)
    graph.poses[::3, :4] *= -1
    graph.measured[::2, :4] *= -1
    assert pose_graph.space.cost(graph.data) == pytest.approx(cost, rel=1e-12)


@pytest.mark.parametrize("dimension", [2, 3])
def test_derivatives_agree_with_differences(dimension: Dimension) -> None:
    graph = small(dimension).graph
    graph.root[:] = np.random.default_rng(0).normal(size=graph.root.shape)
    assert op.check_gradients(energy_of(graph), graph.data, 1e-5)


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-6), (np.float32, 1e-2)])
def test_exact_measurements_lead_to_the_truth(dimension: Dimension, dtype: type, tolerance: float) -> None:
    walk = small(dimension, noise=0)
    data = walk.graph.data
    off = 0.1 * np.random.default_rng(2).normal(size=data["Pose"].shape)
    off[0] = 0
    rough = data["Pose"] + off
    turn = slice(0, 2 if dimension == 2 else 4)
    rough[:, turn] /= np.linalg.norm(rough[:, turn], axis=1, keepdims=True)
    result = op.solve(energy_of(walk.graph), data | {"Pose": rough}, dtype=dtype, eta=1e-6, max_iterations=100)
    found = np.asarray(result.x["Pose"], np.float64)
    np.testing.assert_allclose(found[:, turn.stop :], walk.truth[:, turn.stop :], atol=tolerance)
    same = np.abs(np.sum(found[:, turn] * walk.truth[:, turn], axis=1))
    np.testing.assert_allclose(same, 1, atol=tolerance)


@pytest.mark.parametrize("dimension", [2, 3])
def test_closed_rounds_take_the_drift_out_of_the_start(dimension: Dimension) -> None:
    walk = synthetic_walk(dimension, seed=4)
    truth = walk.truth[:, -dimension:]
    result = op.solve(energy_of(walk.graph), walk.graph.data, dtype=np.float64)
    before, after = (
        np.sqrt(np.mean((places - truth) ** 2)) for places in (walk.graph.places, result.x["Pose"][:, -dimension:])
    )
    assert after < 0.6 * before
    np.testing.assert_array_equal(result.x["Pose"][0], walk.graph.poses[0])


# -- files -----------------------------------------------------------------------------------------------------------

PLANE = """\
# a comment
VERTEX_SE2 7 1 2 0.5
VERTEX_SE2 3 0 0 0
EDGE_SE2 3 7 1 2 0.5 4 1 0 9 0 1
"""
SPACE = """\
VERTEX_SE3:QUAT 0 1 2 3 0 0 0 1
VERTEX_SE3:QUAT 1 4 5 6 0 0 0.7071068 0.7071068
EDGE_SE3:QUAT 0 1 1 2 3 0 0 1 0 {}
""".format(" ".join("4" if a == b else "0" for a in range(6) for b in range(a, 6)))
TORO = """\
VERTEX2 0 0 0 0
VERTEX2 1 1 0 0
EQUIV 0 1
EDGE2 1 0 -1 0 0.25 9 2 8 7 3 1
"""


def written(folder: Path, text: str, name: str = "graph.g2o") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def information_of(graph: PoseGraph) -> Real:
    n = 3 if graph.dimension == 2 else 6
    S = np.zeros((n, n))
    S[np.triu_indices(n)] = graph.root[0]
    return S.T @ S


def test_a_graph_in_the_plane_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    graph = read_pose_graph(written(tmp_path, PLANE))
    np.testing.assert_allclose(graph.poses, [[1, 0, 0, 0], [np.cos(0.5), np.sin(0.5), 1, 2]])
    np.testing.assert_array_equal(graph.edges, [[0, 1]])
    np.testing.assert_allclose(graph.measured[0], graph.poses[1])
    np.testing.assert_allclose(information_of(graph), [[4, 1, 0], [1, 9, 0], [0, 0, 1]], atol=1e-12)
    np.testing.assert_array_equal(graph.fixed, [True, False])


def test_a_graph_in_space_is_read(tmp_path: Path) -> None:
    graph = read_pose_graph(written(tmp_path, SPACE))
    np.testing.assert_allclose(graph.poses[1], [0, 0, np.sqrt(0.5), np.sqrt(0.5), 4, 5, 6])
    np.testing.assert_allclose(graph.measured, [[0, 0, 1, 0, 1, 2, 3]])
    np.testing.assert_allclose(information_of(graph), 4 * np.eye(6), atol=1e-12)


def test_a_file_of_toro_has_its_own_order_of_information(tmp_path: Path) -> None:
    graph = read_pose_graph(written(tmp_path, TORO, "w.graph"))
    np.testing.assert_array_equal(graph.edges, [[1, 0]])
    expected = [[9, 2, 3], [2, 8, 1], [3, 1, 7]]
    np.testing.assert_allclose(information_of(graph), expected, atol=1e-12)


def test_what_a_file_fixes_stays(tmp_path: Path) -> None:
    graph = read_pose_graph(written(tmp_path, PLANE + "FIX 7\n"))
    np.testing.assert_array_equal(graph.fixed, [False, True])


def test_information_of_rank_one_has_a_root(tmp_path: Path) -> None:
    graph = read_pose_graph(written(tmp_path, PLANE.replace("4 1 0 9 0 1", "4 2 0 1 0 0")))
    np.testing.assert_allclose(information_of(graph), [[4, 2, 0], [2, 1, 0], [0, 0, 0]], atol=1e-12)


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (PLANE, "VERTEX_SE2 7 1 2 0.5", "VERTEX_SE2 7 1 2", "graph.g2o:2: expected VERTEX_SE2, a number and 3 numbers"),
        (PLANE, "VERTEX_SE2 7 1", "VERTEX_SE2 7 one", "graph.g2o:2: expected VERTEX_SE2"),
        (PLANE, "VERTEX_SE2 7 1", "VERTEX_SE2 7 inf", "graph.g2o:2: .*all finite"),
        (PLANE, "VERTEX_SE2 7", "VERTEX_SE2 -7", "graph.g2o:2: expected VERTEX_SE2"),
        (PLANE, "VERTEX_SE2 7", "VERTEX_SE2 3", "graph.g2o:3: expected a vertex that is not there yet"),
        (PLANE, "EDGE_SE2 3 7", "EDGE_SE2 3 8", "graph.g2o:4: expected vertices that the file has"),
        (PLANE, "EDGE_SE2 3 7", "EDGE_SE2 3 7.5", "graph.g2o:4: expected EDGE_SE2.*whole numbers from 0 to 2.53"),
        (PLANE, "EDGE_SE2 3 7", "EDGE_SE2 -3 7", "graph.g2o:4: expected EDGE_SE2.*whole numbers"),
        (PLANE, "EDGE_SE2 3 7", "EDGE_SE2 nan 7", "graph.g2o:4: .*all finite"),
        (PLANE, "VERTEX_SE2 7", "VERTEX_SE2 1e300", "graph.g2o:2: expected VERTEX_SE2.*whole numbers"),
        (PLANE, "VERTEX_SE2 7", "VERTEX_SE2 9007199254740992", "graph.g2o:2: expected VERTEX_SE2.*whole numbers"),
        (PLANE, "4 1 0 9 0 1", "1e308 1e308 1e308 1e308 1e308 1e308", "graph.g2o:4: .*eigenvalues do not overflow"),
        (PLANE, "# a comment", "FIX", "graph.g2o:1: expected FIX and numbers of vertices, got 'FIX'"),
        (PLANE, "# a comment", "FIX 3 -1", "graph.g2o:1: expected FIX and numbers of vertices"),
        (SPACE, "0 0 1 0 4", "0 0 1e300 0 4", "graph.g2o:3: expected a quaternion of length 1"),
        (PLANE, "4 1 0 9 0 1", "4 1 0 9 0", "graph.g2o:4: expected EDGE_SE2, two vertices, .* 6 of its information"),
        (PLANE, "4 1 0 9 0 1", "4 9 0 9 0 1", "graph.g2o:4: expected an information matrix without negative"),
        (PLANE, "# a comment", "VERTEX_XY 1 2 3", "graph.g2o:1: expected VERTEX_SE2, EDGE_SE2 or FIX, got 'VERTEX_XY"),
        (PLANE, "# a comment", "FIX 4", "graph.g2o:1: expected vertices that the file has, got 'FIX 4'"),
        (SPACE, "0 0 1 0 4", "0 0 2 0 4", "graph.g2o:3: expected a quaternion of length 1"),
    ],
)  # fmt: skip
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, old: str, new: str, message: str) -> None:
    assert old in text
    with pytest.raises(op.DataError, match=message):
        read_pose_graph(written(tmp_path, text.replace(old, new, 1)))


def test_a_file_without_poses_is_refused(tmp_path: Path) -> None:
    for text in ("", "FIX 0", "EQUIV 0 1", "# nothing"):
        with pytest.raises(op.DataError, match="no line that begins with one of"):
            read_pose_graph(written(tmp_path, text))


# -- files without vertices: poses are chained -----------------------------------------------------------------------


def edge_text(graph: PoseGraph, number: Sequence[int]) -> str:
    """The edges of a graph as lines of g2o, with unit information, and none of its vertices."""
    name = "EDGE_SE2" if graph.dimension == 2 else "EDGE_SE3:QUAT"
    n = 3 if graph.dimension == 2 else 6
    unit = ["1" if a == b else "0" for a in range(n) for b in range(a, n)]
    lines = []
    for (a, b), z in zip(graph.edges, graph.measured.tolist(), strict=True):
        pose = [z[2], z[3], float(np.arctan2(z[1], z[0]))] if graph.dimension == 2 else [*z[4:], *z[:4]]
        lines.append(" ".join([name, str(number[a]), str(number[b]), *map(repr, pose), *unit]))
    return "\n".join(lines)


@pytest.mark.parametrize("dimension", [2, 3])
def test_exact_edges_alone_give_the_walk_from_its_first_pose(tmp_path: Path, dimension: Dimension) -> None:
    """Edges are gone along in both directions, whatever the order and the numbers of the vertices."""
    walk = small(dimension, noise=0)
    rng = np.random.default_rng(3)
    number = 10 + np.sort(rng.choice(1000, len(walk.truth), replace=False))
    lines = edge_text(walk.graph, number.tolist()).splitlines()
    rng.shuffle(lines)
    graph = read_pose_graph(written(tmp_path, "\n".join(lines)))
    T = matrices(walk.truth)
    np.testing.assert_allclose(matrices(graph.poses), np.linalg.inv(T[0]) @ T, atol=1e-9)
    np.testing.assert_array_equal(graph.fixed, np.arange(len(T)) == 0)
    assert energy_of(graph).cost(graph.data) < 1e-12
    (note,) = graph.notes
    assert "has no VERTEX" in note
    assert "chained along its edges" in note


def test_chains_are_as_short_as_can_be(tmp_path: Path) -> None:
    """Along 0-1-2-3 the angles add up; the edge 0-3 is the shorter way."""
    unit = "1 0 0 1 0 1"
    steps = [f"EDGE_SE2 {n} {n + 1} 1 0 0.1 {unit}" for n in range(3)]
    graph = read_pose_graph(written(tmp_path, "\n".join([*steps, f"EDGE_SE2 0 3 2 5 0 {unit}"])))
    np.testing.assert_allclose(graph.poses[3], [1, 0, 2, 5], atol=1e-12)
    np.testing.assert_allclose(graph.poses[2, 2:], [1 + np.cos(0.1), np.sin(0.1)], atol=1e-12)


def test_the_vertex_that_stays_is_the_origin(tmp_path: Path) -> None:
    edge = "EDGE_SE2 4 8 1 2 0 1 0 0 1 0 1"
    graph = read_pose_graph(written(tmp_path, f"{edge}\nFIX 8"))
    np.testing.assert_allclose(graph.poses, np.array([[1, 0, -1, -2], [1, 0, 0, 0]]), atol=1e-12)
    np.testing.assert_array_equal(graph.fixed, [False, True])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("EDGE_SE2 5 6 1 2 0 1 0 0 1 0 1", "no path of edges joins vertex 5 to vertex 0: nothing says where it is"),
        ("EDGE_SE2 7 7 1 2 0 1 0 0 1 0 1", "no path of edges joins vertex 7 to vertex 0"),
        ("FIX 0 1", "fixes 2 vertices, and has no lines of vertices"),
        ("FIX 9", "g2o:2: expected vertices that the file has"),
        ("EDGE_SE2 1 2 1e308 0 0 1 0 0 1 0 1\nEDGE_SE2 2 3 1e308 0 0 1 0 0 1 0 1", "poses overflow"),
    ],
)
def test_what_cannot_be_chained_is_refused(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(op.DataError, match=message):
        read_pose_graph(written(tmp_path, f"EDGE_SE2 0 1 1e308 2 0 1 0 0 1 0 1\n{more}"))


def test_a_file_of_edges_alone_converges_to_the_minimum_of_the_whole_file(tmp_path: Path) -> None:
    path = pictures.data_file("pose_graph/pose2example.txt")
    if path is None:
        pytest.skip("the data folder is not there")
    whole = read_pose_graph(path)
    edges = [line for line in path.read_text().splitlines() if line.startswith("EDGE")]
    alone = read_pose_graph(written(tmp_path, "\n".join(edges)))
    costs = [op.solve(energy_of(g), g.data, "cpu", np.float64, max_iterations=200).cost for g in (whole, alone)]
    assert costs[1] == pytest.approx(costs[0], rel=1e-4)


# -- indefinite information ------------------------------------------------------------------------------------------

INDEFINITE = PLANE.replace("4 1 0 9 0 1", "1 2 0 1 0 5") + "EDGE_SE2 7 3 0 0 0 1 0 0 1 0 1\n"
"""The first edge's information has the eigenvalues 3 and -1 in x and y, and 5."""


def test_indefinite_information_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(op.DataError, match=r"g2o:4: .* \(here -1; --indefinite clip .* --indefinite drop ") as caught:
        read_pose_graph(written(tmp_path, INDEFINITE))
    assert "\n" not in str(caught.value)


def test_indefinite_information_is_replaced_by_the_nearest_that_is_none(tmp_path: Path) -> None:
    graph = read_pose_graph(written(tmp_path, INDEFINITE), "clip")
    np.testing.assert_allclose(information_of(graph), [[1.5, 1.5, 0.0], [1.5, 1.5, 0.0], [0.0, 0.0, 5.0]], atol=1e-12)
    (note,) = graph.notes
    assert note.endswith(
        "graph.g2o: edges whose information has negative eigenvalues have these set to 0: 1, in line 4."
    )


def test_edges_of_indefinite_information_are_left_out(tmp_path: Path) -> None:
    graph = read_pose_graph(written(tmp_path, INDEFINITE), "drop")
    np.testing.assert_array_equal(graph.edges, [[1, 0]])
    assert (len(graph.measured), len(graph.root), len(graph.poses)) == (1, 1, 2)
    (note,) = graph.notes
    assert note.endswith("graph.g2o: edges whose information has negative eigenvalues are left out: 1, in line 4.")


def test_many_lines_are_not_all_named(tmp_path: Path) -> None:
    edge = "EDGE_SE2 3 7 1 2 0.5 1 2 0 1 0 5\n"
    (note,) = read_pose_graph(written(tmp_path, PLANE + 20 * edge), "clip").notes
    assert note.endswith(": 20, in lines 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, ....")


# -- the program -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", ["2", "3"])
def test_the_program_draws_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dimension: str) -> None:
    monkeypatch.setenv("OPTPY_DATA", "")
    output = tmp_path / "walk.png"
    arguments = ["--dimension", dimension, "--output", str(output)]
    run = CliRunner().invoke(pose_graph.main, arguments, catch_exceptions=False)
    assert run.exit_code == 0
    with Image.open(output) as opened:
        assert opened.size == (2 * 512 + pictures.GAP, 512)


def test_the_program_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    run = CliRunner().invoke(pose_graph.main, ["--input", str(written(tmp_path, "nothing"))])
    assert run.exit_code == 1
    assert "no line that begins with" in run.output


def test_the_program_says_how_it_read_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "EDGE_SE2 0 1 1 2 0 1 2 0 1 0 5\nEDGE_SE2 0 1 1 2 0 1 0 0 1 0 1\n")
    arguments = ["--input", str(path), "--output", str(tmp_path / "walk.png")]
    run = CliRunner().invoke(pose_graph.main, arguments)
    assert run.exit_code == 1
    assert "graph.g2o:1: expected an information matrix" in run.output
    for indefinite, done in (("clip", "set to 0: 1, in line 1."), ("drop", "left out: 1, in line 1.")):
        run = CliRunner().invoke(pose_graph.main, [*arguments, "--indefinite", indefinite], catch_exceptions=False)
        assert run.exit_code == 0
        assert done in run.output
        assert "has no VERTEX_SE2: the poses to start from are chained along its edges." in run.output


def test_the_usual_limit_lets_a_far_start_converge(tmp_path: Path) -> None:
    """INTEL begins far from its minimum, and goes there in small steps."""
    path = pictures.data_file("pose_graph/INTEL.g2o")
    if path is None:
        pytest.skip("the data folder is not there")
    arguments = ["--input", str(path), "--output", str(tmp_path / "walk.png"), "--quiet"]
    run = CliRunner().invoke(pose_graph.main, arguments, catch_exceptions=False)
    assert (run.exit_code, run.output) == (0, "")
    short = CliRunner().invoke(pose_graph.main, [*arguments, "--iterations", "100"], catch_exceptions=False)
    assert short.exit_code == 0
    assert short.stderr.startswith("MAX_ITERATIONS: Not converged: iteration limit reached: 100.")
