"""The benchmarks run on tiny data, and count their bytes as bench/README.md says. Nothing here asks for speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from trimesh import Trimesh

import optpy as op
from bench import __main__ as program
from bench import bandwidth, compile_times, overhead, preconditioners, race, report, schedules, throughput
from bench.bandwidth import CopyMeter
from bench.case import Case, CeresRun, Data, Famous
from bench.curve import Curve, Point
from bench.peers import PeerMissingError, ceres, cholesky, least_squares
from bench.peers.assembled import AssembledProblem
from bench.torus import torus
from bench.traffic import bytes_per_pixel, explain
from optpy.energy.derive.retraction import moved
from optpy.ir import Field
from problems.cotangent_smoothing import with_noise
from tests.support.deep import but_deep

SIZE = 32


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements are repeated as little as can be, and move little."""
    monkeypatch.setattr(race, "REPEAT_SECONDS", 0.02)
    monkeypatch.setattr(bandwidth, "MEMORY_BYTES", 2**20)
    monkeypatch.setattr(bandwidth, "SECONDS", 1e-3)
    monkeypatch.setattr(throughput, "SECONDS", 1e-3)
    monkeypatch.setattr(throughput, "RUNS", 2)
    monkeypatch.setattr(compile_times, "FIRST_SOLVE_SIZE", SIZE)
    monkeypatch.setattr(compile_times, "WARM_RUNS", 1)


@pytest.fixture(params=program.CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return program.load_case(request.param)


RACED = [name for name in program.CASES if not program.load_case(name).reweighted]


@pytest.fixture(params=RACED)
def raced_case(request: pytest.FixtureRequest) -> Case:
    return program.load_case(request.param)


WITH_CERES = [name for name in program.CASES if program.load_case(name).ceres is not None]
"""Each has a C++ program of its own, which takes seconds to build: all tests of every run have the same one."""


@pytest.fixture(params=but_deep(WITH_CERES, ("image_warping",)))
def ceres_case(request: pytest.FixtureRequest) -> Case:
    return program.load_case(request.param)


@pytest.fixture(params=but_deep(RACED, ("image_warping", "sparse_warping", "nonrigid_alignment")))
def some_case(request: pytest.FixtureRequest) -> Case:
    return program.load_case(request.param)


@pytest.mark.parametrize(
    ("name", "itemsize", "apply_jtj", "pcg"),
    [
        ("image_warping", 4, 12 + 12 + 4 + 8 + 8 + 1 + 12, 8 * 12 + 12 + 4 + 8 + 8 + 1 + 12),
        ("image_warping", 8, 24 + 24 + 8 + 16 + 16 + 1 + 24, 8 * 24 + 24 + 8 + 16 + 16 + 1 + 24),
        ("poisson", 4, 12 + 12 + 1, 8 * 12 + 12 + 1),
        ("laplacian", 4, 4 + 4, 8 * 4 + 4),
        ("mesh_deformation", 4, 24 + 24 + 12 + 12 + 1 + 24, 8 * 24 + 24 + 12 + 12 + 1 + 24),
        ("embedded_deformation", 4, 48 + 48 + 36 + 12 + 1 + 48, 8 * 48 + 48 + 36 + 12 + 1 + 48),
        ("cotangent_smoothing", 4, 12 + 12 + 12 + 12, 8 * 12 + 12 + 12 + 12),
        ("nonrigid_alignment", 4, 28 + 28 + 17 * 4 + 1 + 28, 8 * 28 + 28 + 17 * 4 + 1 + 28),
        ("optical_flow", 4, 8 + 8 + 8 + 4 + 8, 8 * 8 + 8 + 8 + 4 + 8),
        ("intrinsic_images", 4, 16 + 16 + 12 + 12, 8 * 16 + 16 + 12 + 12),
        ("volumetric_deformation", 4, 24 + 24 + 12 + 12 + 1 + 24, 8 * 24 + 24 + 12 + 12 + 1 + 24),
        ("bundle_fusion", 4, 12 * 4 + 12 * 4, 12 * 4 + 12 * 4),
        ("shape_and_shading", 4, 4 + 4 + 4 + 4 + 1 + 1 + 4, 8 * 4 + 4 + 4 + 4 + 1 + 1 + 4),
        ("sparse_warping", 4, 12 + 12 + 4 + 8 + 1 + 12, 8 * 12 + 12 + 4 + 8 + 1 + 12),
    ],
)
def test_bytes_of_each_array_are_counted_once(name: str, itemsize: int, apply_jtj: int, pcg: int) -> None:
    traffic = program.load_case(name).traffic
    assert bytes_per_pixel(traffic.apply_jtj(itemsize)) == apply_jtj
    assert bytes_per_pixel(traffic.pcg(itemsize)) == pcg
    assert explain(traffic.pcg(itemsize)).endswith(f"= {pcg} bytes/pixel")


@pytest.mark.parametrize(
    ("matrix", "names"),
    [(False, ["jacobi", "block_jacobi", "multigrid"]), (True, ["block_jacobi", "cholesky", "jacobi", "multigrid"])],
)
def test_preconditioners_are_priced_in_iterations_with_the_first(matrix: bool, names: list[str]) -> None:
    rows = list(preconditioners.measure(program.load_case("laplacian"), 24, "float32", matrix=matrix))
    assert [row.preconditioner for row in rows] == names
    assert rows[0].iteration == 1
    assert all(row.solve > 0 and row.iterations >= 1 for row in rows)


@pytest.mark.parametrize(("name", "ways"), [("mesh_deformation", 6), ("shape_from_shading_inline", 4)])
def test_every_way_of_storing_is_timed_beside_its_count(name: str, ways: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "ENOUGH", 0.0)
    rows = list(schedules.measure(program.load_case(name), 24, "float32"))
    assert len({row.way for row in rows}) == ways
    assert all(row.nanoseconds > 0 for row in rows)
    (chosen,) = (row for row in rows if row.is_chosen)
    counts = [row.counted for row in rows if row.counted is not None]
    assert chosen.counted == min(counts, default=None)


@pytest.mark.parametrize("method", ["gn", "lm"])
def test_an_iteration_is_timed_beside_its_kernels(method: Literal["gn", "lm"], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "RUNS", 2)
    monkeypatch.setattr(overhead, "REPEAT", 2)
    row = overhead.measure(method, "float64", "jacobi")
    assert 0 < row.kernels < row.iteration
    assert row.overhead == row.iteration - row.kernels
    solved = op.solve(overhead.energy, overhead.data("float64"), method=method)
    assert solved.success
    assert solved.nit > 2  # iterations between the first and the last


def test_the_indices_of_each_edge_are_counted_once(case: Case) -> None:
    data = case.data(4)
    columns = sum(data[graph.name].shape[1] for graph in case.energy.graphs if len(data[graph.name]))
    values = sum(operand.channels for operand in case.traffic.edge_operands)
    assert case.traffic.bytes_per_edge(4) == 4 * columns + 4 * values
    assert case.traffic.bytes_per_edge(8) == 4 * columns + 8 * values
    assert explain((), 8).endswith("bytes/element, and 8 bytes/edge")


def test_elements_are_those_of_the_data(case: Case) -> None:
    data = case.data(SIZE)
    edges = sum(len(data[graph.name]) for graph in case.energy.graphs)
    assert case.elements(data) == (SIZE * SIZE, edges)


def test_the_unknowns_counted_are_those_of_the_energy(case: Case) -> None:
    data = case.data(SIZE)
    columns = case.energy.jacobian(data).shape[1]
    few = {operand.name for operand in case.traffic.operands if operand.kind == "shared"}
    shared = sum(_coordinates(u, data) for u in case.energy.problem.unknowns if u.name in few)
    assert columns == case.traffic.unknown_channels * SIZE * SIZE + shared


def test_operands_counted_are_those_that_the_jacobian_depends_on(case: Case) -> None:
    # Every array is disturbed; J changes if and only if the array is counted.
    data = _irregular(case)
    J = case.energy.jacobian(data)
    counted = {operand.name for operand in (*case.traffic.operands, *case.traffic.edge_operands)}
    arrays = {name for name, value in data.items() if np.ndim(value) > 0} - {g.name for g in case.energy.graphs}
    assert counted <= arrays
    for name in arrays:
        other = case.energy.jacobian({**data, name: _disturbed(case, name, data[name])})
        assert (abs(J - other).sum() > 0) == (name in counted), name


def _irregular(case: Case) -> Data:
    rng = np.random.default_rng(0)
    data = _stepped(case, case.data(SIZE), 0.1)
    names = {unknown.name for unknown in case.energy.unknowns}
    return {
        name: value + 0.1 * rng.random(value.shape)
        if np.ndim(value) and value.dtype.kind == "f" and name not in names
        else value
        for name, value in data.items()
    }


def _disturbed(case: Case, name: str, value: np.ndarray) -> np.ndarray:
    if any(u.name == name and u.manifold is not None for u in case.energy.problem.unknowns):
        return np.asarray(_stepped(case, {name: value}, 1.0)[name])
    disturbed = np.array(value)
    inside = (SIZE // 2, SIZE // 2) if value.shape[:2] == (SIZE, SIZE) else (len(value) // 2,)
    here = disturbed[inside]
    signed = np.where(here > 0, -1.0, 2.0) - here  # conditions may ask for a number's sign
    disturbed[inside] = {"u": 255, "b": not here.all()}.get(value.dtype.kind, signed)
    return disturbed


def _stepped(case: Case, data: Data, largest: float) -> Data:
    """The unknowns moved at random, each number of a step by so much at most."""
    rng = np.random.default_rng(1)
    stepped = dict(data)
    for u in case.energy.problem.unknowns:
        if u.name in data:
            x = np.array(data[u.name], np.float64)
            stepped[u.name] = moved(u, x, rng.uniform(-largest, largest, _coordinates(u, data)))
    return stepped


def _coordinates(u: Field, data: Data) -> int:
    """Numbers that a step has for an unknown."""
    size = int(np.size(data[u.name]))
    return size if u.manifold is None else size // u.channels * u.manifold.dimension


def test_the_assembled_problem_is_the_energy_without_its_fixed_elements(raced_case: Case) -> None:
    data = raced_case.data(SIZE)
    problem = AssembledProblem(raced_case.energy, data)
    x = problem.start
    F, J = problem.residuals(x), problem.jacobian(x)
    assert J.shape == (F.size, x.size)
    cost = 0.5 * float(F @ F)
    assert cost == pytest.approx(raced_case.energy.cost(data), rel=1e-9)
    direction = np.random.default_rng(0).normal(size=x.size)
    h = 1e-6
    central = (problem.residuals(x + h * direction) - problem.residuals(x - h * direction)) / (2 * h)
    np.testing.assert_allclose(J @ direction, central, rtol=1e-4, atol=1e-5)


def test_scipy_and_optpy_reach_the_same_cost(some_case: Case) -> None:
    data = some_case.data(16)
    peer = least_squares.solve(some_case.energy, data, budget=60.0)
    ours = race.optpy_curve(some_case, data, "float32", 1, 1.001 * peer.final_cost, budget=60.0)
    assert ours.final_cost <= 1.001 * peer.final_cost
    assert ours.facts["cost_in_float64"] == pytest.approx(ours.final_cost, rel=1e-3)


def test_the_race_to_a_given_cost_gives_optpy_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    case = program.load_case("image_warping")
    data = case.data(16)
    plain = op.compile(case.energy, dtype=np.float32).solve(data)
    calls: list[dict[str, object]] = []
    solve = op.Solver.solve

    def recorded(self: op.Solver, data: Data, **options: object) -> op.SolveResult:
        calls.append(options)
        return solve(self, data, **options)

    def peer(*arguments: object, **options: object) -> Curve:
        points = (Point(0.0, plain.initial_cost), Point(1.0, 0.5 * plain.cost))
        return Curve("peer", points, "done", {"total_seconds": 2.0})

    monkeypatch.setattr(op.Solver, "solve", recorded)
    monkeypatch.setattr(ceres, "solve", peer)
    runs = (CeresRun(),) * 3
    for target, reached in ((1.001 * plain.cost, True), (0.9 * plain.cost, False)):
        famous = Famous("tiny", lambda: data, (target,), runs)
        races = race.race_famous(case, famous, "float32", threads=1, budget=5.0)
        assert [done.dtype for done in races] == ["float64", "float32"]
        assert races[1].curves[0].final_cost == pytest.approx(plain.cost, rel=1e-6)
        for done in races:
            (duel,) = done.duels  # of three runs alike
            assert duel.target == target
            assert (duel.optpy_seconds is not None) == reached
    assert calls
    assert not any(calls)
    stalled = race.race_famous(case, Famous("tiny", lambda: data, (0.1 * plain.cost,), runs), "float32", 1, 5.0)
    assert {duel.goal for done in stalled for duel in done.duels} == {"its end"}


def test_the_fastest_peer_to_a_cost_is_told_beside_each_precision() -> None:
    def of(dtype: str, *seconds: float | None) -> race.Race:
        duels = [
            race.Duel(peer, "9", target, theirs + target, ours, 0.0)
            for target, ours in zip((9.0, 5.0), seconds, strict=True)
            for peer, theirs in (("slow", 4.0), ("fast", 3.0))
        ]
        return race.Race("case", "data", dtype, (), tuple(duels), ())

    lines = list(report.sooner([of("float64", 2.0, 4.0), of("float32", 0.5, None)]))
    assert lines == [
        "to 9: fast 12.000 s; float64 2.000 s, 6.0 times sooner; float32 0.500 s, another 4.0 times sooner",
        "to 5: fast 8.000 s; float64 4.000 s, 2.0 times sooner; float32 does not get there",
    ]
    assert not list(report.sooner([of("float64", 2.0, 4.0)]))


def test_real_data_without_a_given_cost_are_raced_against_all_peers(ceres_case: Case) -> None:
    data = ceres_case.data(8)
    (done,) = race.race_famous(ceres_case, Famous("tiny", lambda: data), "float32", threads=1, budget=0.5)
    if ceres_case.reweighted and done.absent:
        pytest.skip(done.absent[0])
    assert done.curves[1].name.startswith("Ceres" if ceres_case.reweighted else "SciPy")
    assert {duel.goal for duel in done.duels} >= {"its end"}
    assert race.race_famous(ceres_case, Famous("nothing", lambda: None), "float32", threads=1, budget=0.5) == []


def test_cholesky_and_scipy_reach_the_same_cost(case: Case) -> None:
    pytest.importorskip("cholespy")
    data = case.data(16)
    by_cholesky = cholesky.solve(case.energy, data, budget=60.0)
    by_scipy = least_squares.solve(case.energy, data, budget=60.0)
    assert by_cholesky.final_cost == pytest.approx(by_scipy.final_cost, rel=1e-3)


def test_a_budget_that_is_spent_ends_a_peer(case: Case) -> None:
    curve = least_squares.solve(case.energy, case.data(16), budget=0.0)
    assert curve.ending == "stopped after 0 s"
    assert len(curve.points) == 1


def test_ceres_has_the_same_energy(ceres_case: Case) -> None:
    # Away from the start, where an angle or a matrix that is taken for another shows; and at optpy's end.
    case = ceres_case
    # Depths that are far off lead to minima that are not the same.
    start = _stepped(case, case.data(16), 1e-4 if case.name == "shape_from_shading" else 0.05)
    at_start = _by_ceres(case, start)
    ours = op.solve(case.energy, start, dtype=np.float64, function_tolerance=1e-9, max_iterations=200)
    curves = [at_start, _by_ceres(case, {**start, **ours.x})]
    assert curves[0].points[0].cost == pytest.approx(case.energy.cost(start), rel=1e-9)
    assert curves[1].points[0].cost == pytest.approx(ours.cost, rel=1e-9)
    lowest = min(record.cost for record in ours.iterations)  # with weights that follow the unknowns, not the last
    assert curves[0].final_cost == pytest.approx(lowest, rel=1e-3)
    assert 1 < curves[0].facts["grown_mib"] < 1000


@pytest.mark.deep
def test_ceres_leaves_out_what_a_scan_has_not_measured() -> None:
    case = program.load_case("shape_from_shading")
    data = _stepped(case, case.data(16), 1e-4)
    holes = np.random.default_rng(0).random((16, 16)) < 0.1
    data = {**data, "D": np.where(holes, 0, data["D"]), "across": (~holes).astype(np.uint8)}
    ours = op.solve(case.energy, data, dtype=np.float64, max_iterations=3)
    curve = _by_ceres(case, data)
    assert curve.points[0].cost == pytest.approx(ours.initial_cost, rel=1e-9)
    assert curve.final_cost < 0.9 * ours.initial_cost


@pytest.mark.deep
def test_ceres_has_the_border_of_a_mesh() -> None:
    case = program.load_case("cotangent_smoothing")
    mesh = torus(8)
    data = with_noise(Trimesh(mesh.vertices, mesh.faces[:-20], process=False)).data
    assert len(data["border"])
    assert _by_ceres(case, data).points[0].cost == pytest.approx(case.energy.cost(data), rel=1e-9)


def _by_ceres(case: Case, data: Data) -> Curve:
    assert case.ceres is not None
    try:
        return ceres.solve(case.ceres, data, 60.0, threads=1, chosen=CeresRun(max_iterations=200))
    except PeerMissingError as missing:
        pytest.skip(str(missing))


def test_a_log_of_ceres_is_read(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "iteration,cost,seconds,accepted,linear_iterations,radius\n"
        "0,10,0.1,1,0,1e4\n1,12,0.2,0,3,1e3\n2,5,0.3,1,4,1e3\n"
        "# version: 2.1.0\n# build_seconds: 0.5\n# total_seconds: 0.4\n"
        "# grown_kib: 2048\n# message: done: well\n"
    )
    curve = ceres.read_log(tmp_path / "log.csv", "Ceres")
    assert curve.points == (Point(0.1, 10.0), Point(0.3, 5.0))
    assert curve.ending == "done: well"
    assert curve.facts == {"build_seconds": 0.5, "total_seconds": 0.4, "linear_iterations": 7.0, "grown_mib": 2.0}


def test_a_curve_knows_when_a_cost_was_reached() -> None:
    curve = Curve("peer", (Point(0.0, 9.0), Point(1.0, 4.0), Point(2.0, 1.0)), "done")
    assert curve.first_at(4.0) == Point(1.0, 4.0)
    assert curve.first_at(0.5) is None
    assert (curve.final_cost, curve.seconds) == (1.0, 2.0)


def test_a_copy_moves_what_it_says() -> None:
    meter = CopyMeter(threads=2)
    meter.source[:1000] = 7.0
    assert meter.measure(8 * 1000).bytes_moved == 8 * 1000
    assert (meter.target[:1000] == 7.0).all()


def test_the_program_leaves_json_and_prints_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = f"laplacian --sizes {SIZE} --race-sizes 16 --budget 5 --threads 1 --quick --output {tmp_path}"
    program.main(arguments.split())
    record = json.loads((tmp_path / "laplacian.json").read_text())
    assert [row["stage"] for row in record["compile"]] == ["first use of the compiler", "cold", "warm"]
    assert [row["routine"] for row in record["throughput"]] == ["applyJTJ", "pcg"]
    assert [row["bytes_per_pixel"] for row in record["throughput"]] == [8, 36]
    assert record["race"][0]["problem"] == "16 x 16"
    printed = capsys.readouterr().out
    for text in ("Mpixel/s", "of copy", "SciPy least_squares", "times faster", "warm"):
        assert text in printed


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.parse(["sudoku"])
    assert f"no case 'sudoku'; there are: {', '.join(program.CASES)}" in capsys.readouterr().err
