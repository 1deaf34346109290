"""Sessions: a solve step by step, with data that changes in between."""

from __future__ import annotations

import copy
import functools
import pickle
import signal
import threading
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.problem import CompiledProblem
from optpy.solver.pcg import PCGScalars
from tests.support.bound_problem import record_problems
from tests.support.warping import arap_data, arap_energy

pytestmark = pytest.mark.native


@functools.cache
def warping() -> op.Solver:
    """Compiled once."""
    return op.compile(arap_energy(), device="cpu", dtype=np.float64)


def test_steps_are_the_iterations_of_a_solve() -> None:
    data = arap_data(9, 12)
    whole = warping().solve(data, max_iterations=5)
    session = warping().start(data, max_iterations=5)
    records = [session.step() for _ in range(5)]
    assert [r.cost for r in records] == [r.cost for r in whole.iterations[1:]]
    np.testing.assert_array_equal(session["Offset"], whole.x["Offset"])
    assert session.step() == records[-1]  # it has ended
    assert session.result().status is whole.status


def test_a_callback_cannot_update_its_own_session() -> None:
    session: op.Session

    def callback(_: object) -> None:
        session.update(w_reg=2.0)

    session = warping().start(arap_data(9, 12), callback=callback)
    for go_on in (session.run, session.step):
        with pytest.raises(op.OptpyError, match="update between two steps"):
            go_on()
    session.update(w_reg=2.0)


def test_sessions_of_one_solver_do_not_disturb_each_other() -> None:
    one, two = warping().start(arap_data(9, 12)), warping().start(arap_data(7, 5, seed=3))
    for _ in range(3):
        one.step()
        two.step()
    np.testing.assert_array_equal(one["Angle"], warping().solve(arap_data(9, 12), max_iterations=3).x["Angle"])
    np.testing.assert_array_equal(two["Angle"], warping().solve(arap_data(7, 5, seed=3), max_iterations=3).x["Angle"])


def test_a_session_used_from_several_threads_takes_one_step_at_a_time() -> None:
    session = warping().start(arap_data(9, 12), max_iterations=8)
    workers = [threading.Thread(target=lambda: [session.step() for _ in range(2)]) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    np.testing.assert_array_equal(session["Offset"], warping().solve(arap_data(9, 12), max_iterations=8).x["Offset"])


def test_what_a_session_refuses() -> None:
    session = warping().start(arap_data(9, 12))
    with pytest.raises(op.DataError, match="H"):
        session.update(Mask=np.zeros((8, 12), np.uint8))
    with pytest.raises(op.DataError, match="did you mean 'Mask'"):
        session.update(Masks=np.zeros((9, 12), np.uint8))
    with pytest.raises(op.DataError, match=r"no unknown 'Mask'.*'Offset'"):
        session["Mask"]
    with pytest.raises(op.DataError, match=r"session\.update\(\*\*changed\)"):
        session.update(dict(w_reg=0.2))
    with pytest.raises(op.OptionError, match=r"'method' is an option.*solver\.start\(data, method="):
        session.update(w_reg=0.2, method="gn")
    with pytest.raises(TypeError, match=r"session\.update\(Offset=\.\.\.\)"):
        session["Offset"] = np.zeros((9, 12, 2))
    with pytest.raises(op.OptionError, match="pcg"):
        session.benchmark("applyJ")
    with pytest.raises(op.OptionError, match="at least 1"):
        session.benchmark("pcg", repeat=0)
    before = session["Offset"]
    with pytest.raises(op.DataError, match="finite"):
        session.update(Offset=np.full((9, 12, 2), np.nan))
    np.testing.assert_array_equal(session["Offset"], before)


def test_a_benchmark_measures_without_moving_the_unknowns() -> None:
    session = warping().start(arap_data(9, 12))
    before = session["Offset"]
    for routine in ("applyJTJ", "applyJTJ_damped", "evalJTF", "pcg"):
        assert session.benchmark(routine, repeat=3) > 0
    np.testing.assert_array_equal(session["Offset"], before)


def test_a_session_says_where_it_stands() -> None:
    session = warping().start(arap_data(5, 6), max_iterations=1)
    for part in ("Offset: (5, 6, 2)", "Angle: (5, 6)", "lm", "cpu", "float64", "RUNNING", "no iteration yet"):
        assert part in repr(session)
    record = session.step()
    for part in ("MAX_ITERATIONS", "iteration 1", f"{record.cost:.6g}"):
        assert part in repr(session)


def test_a_session_is_not_copied_and_says_so() -> None:
    session = warping().start(arap_data(5, 6))
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="session"):
            copied(session)


def test_updates_after_each_step_do_not_repeat_a_rejected_one() -> None:
    """Full steps of atan from x = 3 overshoot: only a smaller trust region gets on."""
    n_points = op.dims("N")
    n = op.indices(n_points)
    x, t = op.Unknown("x", (n_points,)), op.params("t")
    solver = op.compile(op.Energy(fit=op.atan(x[n] - t)), device="cpu", dtype=np.float64)
    session = solver.start(dict(x=[3.0, 3.0], t=0.0))
    assert not session.step().accepted
    for _ in range(30):
        session.update(t=0.0)
        record = session.step()
    assert record.cost < 1e-12
    session.run()
    session.update(t=3.0)  # a solve that has ended starts with the radius of the options
    assert session.step().tr_radius in (1e4 / 2, 3e4)


def test_a_result_after_an_update_counts_the_steps_since_then() -> None:
    """Steps, rejections and costs are those of the records; nothing from before the update is in them."""
    session = warping().start(arap_data(9, 12), initial_radius=1e16)
    rejected = 0
    for w_reg in (0.3, 2.0, 0.01, 50.0):
        for _ in range(5):
            session.step()
        session.update(w_reg=w_reg, Angle=np.full((9, 12), 3.0))
        assert session.result().nit == 0
        made = [session.step() for _ in range(6)]
        result = session.result()
        steps = result.iterations[1:]
        assert list(dict.fromkeys(made)) == list(steps)
        assert result.nit == len(steps) == steps[-1].iteration
        taken = sum(r.accepted for r in steps)
        rejected += len(steps) - taken
        linear = sum(r.linear_iterations for r in steps)
        assert f"{len(steps)} ({taken} taken, {len(steps) - taken} rejected), {linear} linear\n" in result.report()
        assert result.initial_cost == result.iterations[0].cost
        assert result.cost == steps[-1].cost
        assert result.initial_cost - result.cost == pytest.approx(sum(r.cost_change for r in steps if r.accepted))
    assert rejected


@pytest.mark.parametrize("slots", [1, 2])
def test_the_iterations_asked_for_are_those_measured(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a grid and on a graph, whose default preconditioners differ."""
    V, E = op.dims("V E")
    v, e = op.indices(V, E)
    X, A = op.Unknown("X", (V,), 2), op.Array("A", (V,), 2)
    fit = op.vector(X[v][0] + X[v][1] - A[v][0], X[v][1] - A[v][1])
    points = np.random.default_rng(0).normal(size=(200, 2))
    data: dict[str, Any] = dict(X=np.zeros_like(points), A=points)
    energy = op.Energy(fit=fit, reg=X[v] - X[v + 1])
    if slots == 2:
        a, b = op.Graph("edges", E, (V, V))[e]
        energy = op.Energy(fit=fit, reg=X[a] - X[b])
        data["edges"] = np.stack([np.arange(199), np.arange(1, 200)], axis=1)
    made = record_problems(monkeypatch)
    session = op.compile(energy).start(data)
    trace: list[PCGScalars] = []
    made[0].trace = trace
    assert session.benchmark("pcg", 5) > 0
    assert [s.k for s in trace] == [1, 2, 3, 4, 5]


def test_a_minimum_at_which_control_c_has_cut_a_step_short_is_one_to_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At X = 0 the gradient is 5e-17, but J is not finite: no linear solve gives a step from there."""
    n = op.indices(op.dims("N"))
    X = op.Unknown("X", (op.dims("N"),))
    solver = op.compile(op.Energy(a=X[n], b=1e-8 * op.sqrt(X[n])), device="cpu", dtype=np.float64)
    options: dict[str, Any] = dict(method="lm", initial_radius=1e30, max_radius=1e32, gradient_tolerance=1e-10)
    whole = solver.solve(dict(X=[1.0]), **options)
    assert whole.status is op.Status.GRADIENT_TOLERANCE
    session = solver.start(dict(X=[1.0]), **options)
    linearise, norms = CompiledProblem.linearise, []

    def interrupted(self: CompiledProblem) -> float:
        norms.append(linearise(self))
        if len(norms) == 2:
            signal.raise_signal(signal.SIGINT)
        return norms[-1]

    with monkeypatch.context() as patch:
        patch.setattr(CompiledProblem, "linearise", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.step()
    session.run()
    result = session.result()
    assert (result.status, result.message) == (whole.status, whole.message)
    assert (result.cost, session["X"]) == (whole.cost, whole.x["X"])


def test_unknowns_are_read_as_from_a_result() -> None:
    session = warping().start(arap_data(9, 12))
    session.run()
    x = session.result().x
    assert list(session.x) == list(session.x.keys()) == list(x)
    assert len(session.x) == len(x)
    assert "Offset" in session.x
    assert "Mask" not in session.x
    assert session.x.get("Mask") is None
    for name, values in session.x.items():
        np.testing.assert_array_equal(values, x[name])
        np.testing.assert_array_equal(session.x[name], x[name])
    for taken in (session.x(), dict(session.x), {**session.x}, {} | session.x, session.x | {}):
        assert type(taken) is dict
        assert list(taken) == list(x)
    assert list({"w": 1.0} | session.x) == ["w", *x]
    assert repr(session.x) == repr(x)
    for unknowns in (session.x, x):
        with pytest.raises(KeyError, match="Mask"):
            unknowns["Mask"]
    with pytest.raises(KeyError, match=r"no unknown 'Mask'.*'Offset'"):
        session.x["Mask"]
    with pytest.raises(TypeError):
        session.x["Offset"] = x["Offset"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        session.x = x  # type: ignore[misc,assignment]


def test_an_unknown_is_copied_when_it_is_read_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = CompiledProblem.read

    def counting(problem: CompiledProblem, field: Any) -> Any:
        read.append(field.name)
        return whole(problem, field)

    session = warping().start(arap_data(9, 12))
    monkeypatch.setattr(CompiledProblem, "read", counting)
    x = session.x
    assert ("Angle" in x, "Mask" in x, len(x)) == (True, False, 2)
    assert not read
    before = x["Angle"]
    assert read == ["Angle"]
    session.step()
    assert (before != x["Angle"]).any()  # as the session stands now
    kept = session.x()
    session.update(Angle=np.zeros((9, 12)))
    assert kept["Angle"].any()
    assert not x["Angle"].any()


def test_a_result_before_the_first_step_is_the_state_at_the_start() -> None:
    data = arap_data(9, 12)
    session = warping().start(data, max_iterations=5)
    result = session.result()
    assert (result.status, result.nit, result.success) == (op.Status.RUNNING, 0, False)
    assert result.cost == result.initial_cost == pytest.approx(warping().energy.cost(data))
    assert [r.iteration for r in result.iterations] == [0]
    assert "RUNNING" in result.report()
    np.testing.assert_array_equal(result.x["Offset"], data["Offset"])
    assert not session.status.finished
    records = [session.step() for _ in range(5)]
    whole = warping().solve(data, max_iterations=5)
    assert [r.cost for r in records] == [r.cost for r in whole.iterations[1:]]
    assert session.result().nit == whole.nit


def test_a_result_at_a_start_that_is_not_finite_names_the_term() -> None:
    N = op.dims("N")
    n = op.indices(N)
    X = op.Unknown("X", (N,))
    session = op.compile(op.Energy(root=op.log(X[n])), device="cpu", dtype=np.float64).start(dict(X=[-1.0, 4.0]))
    with pytest.raises(op.DataError, match="root"):
        session.result()
    session.update(X=[1.0, np.e])
    assert session.result().cost == pytest.approx(0.5)
