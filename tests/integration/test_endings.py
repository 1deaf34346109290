"""How compiled solves end: every status once, Ctrl-C at any moment, and steps that lead nowhere."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares

import optpy as op
from optpy.ir import Group
from optpy.kernels.runtime.executor import CpuExecutor
from optpy.linear.multigrid import solve as multigrid
from optpy.linear.multigrid.grid import GridMultigrid
from optpy.linear.safe_work import SafeWork
from optpy.solver.protocol import LinearStatus
from optpy.solver.result import SolveResult, Status

pytestmark = [pytest.mark.native, pytest.mark.optimised]

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (H, W))
A = op.Array("A", (H, W))

ROSENBROCK = op.Energy(valley=10 * (Y[i, j] - X[i, j] ** 2), end=A[i, j] - X[i, j])
"""At every pixel Rosenbrock's function with its minimum at (A, A^2)."""

COUPLED = op.Energy(valley=10 * (Y[i, j] - X[i, j] ** 2), end=A[i, j] - X[i, j], smooth=X[i, j] - Y[i, j + 1])


SQUARES = op.Energy(fit=0.01 * (X[i, j] ** 2 - A[i, j]), dx=X[i, j] - X[i, j + 1], dy=X[i, j] - X[i + 1, j])
"""Stiff: multigrid takes over."""


def squares_data() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return dict(X=rng.uniform(1, 2, (60, 70)), A=rng.uniform(1, 4, (60, 70)))


def rosenbrock_data(rows: int = 4, columns: int = 7) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return dict(
        X=rng.uniform(-1.5, 1.5, (rows, columns)),
        Y=rng.uniform(-1, 1, (rows, columns)),
        A=rng.uniform(0.5, 1.5, (rows, columns)),
    )


def solve(energy: op.Energy, data: dict[str, Any], **options: Any) -> SolveResult:
    return op.solve(energy, data, device="cpu", dtype=np.float64, **options)


def test_rosenbrock_at_every_pixel() -> None:
    data = rosenbrock_data()
    result = solve(ROSENBROCK, data, max_iterations=200, function_tolerance=1e-20, parameter_tolerance=1e-14)
    assert result.success
    np.testing.assert_allclose(result.x["X"], data["A"], rtol=1e-6)
    np.testing.assert_allclose(result.x["Y"], data["A"] ** 2, rtol=1e-6)
    assert result.cost < 1e-15


def test_coupled_rosenbrock_reaches_the_cost_of_scipy() -> None:
    data = rosenbrock_data(3, 5)
    start = np.concatenate([data["X"].ravel(), data["Y"].ravel()])

    def at(x: Any) -> dict[str, Any]:
        return data | dict(X=x[:15].reshape(3, 5), Y=x[15:].reshape(3, 5))

    def residuals(x: Any) -> Any:
        return np.concatenate([r.ravel() for r in COUPLED.residuals(at(x)).values()])

    # The unknowns stand in the order in which the terms mention them.
    order = np.concatenate([np.arange(15) + 15 * (u.name == "Y") for u in COUPLED.unknowns])

    def jacobian(x: Any) -> Any:
        J = np.zeros((45 - 3, 30))
        J[:, order] = COUPLED.jacobian(at(x)).toarray()[:42]
        return J

    assert len(residuals(start)) == 45
    expected = least_squares(residuals, start, xtol=1e-14, ftol=1e-14)
    result = solve(COUPLED, data, max_iterations=500, eta=1e-8, function_tolerance=1e-14)
    assert result.cost <= expected.cost * (1 + 1e-8)


# -- every status ----------------------------------------------------------------------------------------------------

OFF = dict(function_tolerance=0, gradient_tolerance=0, parameter_tolerance=0, cosine_tolerance=0)


@pytest.mark.parametrize(
    ("status", "options"),
    [
        (Status.GRADIENT_TOLERANCE, OFF | dict(gradient_tolerance=1e-3)),
        (Status.FUNCTION_TOLERANCE, OFF | dict(function_tolerance=1e-3)),
        (Status.PARAMETER_TOLERANCE, OFF | dict(parameter_tolerance=1e-3)),
        (Status.MAX_ITERATIONS, OFF | dict(max_iterations=3)),
        (Status.TIME_LIMIT, OFF | dict(max_time=1e-9)),
        (Status.PRECISION, OFF | dict(max_iterations=10_000)),
        (Status.MIN_RADIUS, OFF | dict(min_radius=9e3)),
    ],
)
def test_every_test_ends_a_solve(status: Status, options: dict[str, Any]) -> None:
    data = rosenbrock_data()
    result = solve(COUPLED, data, **(dict(max_iterations=500) | options))
    assert result.status is status
    assert result.success is status.success
    assert result.cost <= result.initial_cost
    assert result.cost == pytest.approx(COUPLED.cost(data | result.x), rel=1e-12)


def test_a_solution_at_the_start_ends_it_before_the_first_step() -> None:
    a = np.ones((3, 4))
    result = solve(ROSENBROCK, dict(X=a, Y=a, A=a))
    assert (result.status, result.nit, result.cost) == (Status.GRADIENT_TOLERANCE, 0, 0)
    np.testing.assert_array_equal(result.x["X"], a)


LOGS = op.Energy(logs=op.log(X[i, j]) - A[i, j])


def test_a_full_step_into_the_undefined_ends_gauss_newton_at_the_point_before() -> None:
    data = dict(X=np.full((3, 5), 8.0), A=np.zeros((3, 5)))  # the first step leads to 8 (1 - log 8) < 0
    result = solve(LOGS, data, method="gn")
    assert result.status is Status.FAILURE
    assert "'logs'" in result.message
    np.testing.assert_array_equal(result.x["X"], 8.0)
    assert result.cost == result.initial_cost


def test_a_step_into_the_undefined_is_shortened_by_levenberg_marquardt() -> None:
    data = dict(X=np.full((3, 5), 8.0), A=np.zeros((3, 5)))
    result = solve(LOGS, data, max_iterations=100)
    assert result.success
    assert not result.iterations[1].accepted
    np.testing.assert_allclose(result.x["X"], 1, rtol=1e-3)


def test_an_infinite_slope_at_the_start_is_an_error_that_keeps_the_data() -> None:
    root = op.Energy(root=1 + op.sqrt(X[i, j]))
    data = dict(X=np.zeros((2, 3)))
    with pytest.raises(op.DataError, match=r"'root' .* by X\[0, 0\] is inf"):
        solve(root, data)
    np.testing.assert_array_equal(data["X"], 0)


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C, so many seconds from now; not while garbage is collected, where Python itself would lose it."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGALRM, interrupt)
    gc.disable()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        gc.enable()


def interrupts(group: Group, at: int) -> Callable[..., Any]:
    """``CpuExecutor.run`` with a Ctrl-C during the call number ``at`` of a group: heard when the call has returned."""
    run, calls = CpuExecutor.run, []

    def interrupted(self: CpuExecutor, name: Group, *args: Any, **options: Any) -> Any:
        totals = run(self, name, *args, **options)
        calls.extend([name] * (name == group))
        if name == group and len(calls) == at:
            raise KeyboardInterrupt
        return totals

    return interrupted


SINES = op.Energy(a=op.sin(X[i, j]) * Y[i, j] - A[i, j], b=0.5 * op.cos(X[i, j + 1]) - Y[i, j])

CALLS = [
    (Group.COST, 2),
    (Group.COST, 4),
    (Group.STEP, 1),
    (Group.STEP, 3),
    (Group.GRADIENT, 2),
    (Group.PRECOMPUTE, 2),
    (Group.DAMPING, 2),
]


@pytest.mark.parametrize(
    ("method", "group", "at"), [("lm", Group.MODEL_COST, 2), *((m, *call) for m in ("lm", "gn") for call in CALLS)]
)
def test_control_c_leaves_a_whole_point(method: str, group: Group, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    energy, data = SINES if group is Group.PRECOMPUTE else COUPLED, rosenbrock_data()
    monkeypatch.setattr(CpuExecutor, "run", interrupts(group, at))
    result = solve(energy, data, method=method)
    monkeypatch.undo()
    assert result.status is Status.INTERRUPTED
    assert result.cost <= result.initial_cost
    assert result.cost == pytest.approx(energy.cost(data | result.x), rel=1e-12)


def test_control_c_at_any_moment_leaves_a_whole_point() -> None:
    data = rosenbrock_data(30, 70)
    solver = op.compile(COUPLED, device="cpu", dtype=np.float64)
    seen = set()
    for n in range(60):
        session = solver.start(data, **OFF, max_iterations=10_000)
        session.step()
        with suppress(KeyboardInterrupt), interrupted_after(1e-4 * (1 + n)):
            session.run()  # which hears it, but for one before the first iteration or after the last
        result = session.result()
        seen.add(result.status)
        assert result.cost <= result.initial_cost
        assert result.cost == pytest.approx(COUPLED.cost(data | result.x), rel=1e-12)
    assert Status.INTERRUPTED in seen


def step_to_the_end(session: op.Session, seconds: float) -> int:
    """Steps until it has ended, with a Ctrl-C after so many seconds; how many were heard."""
    heard = 0
    try:
        with interrupted_after(seconds):
            while not session.status.finished:
                session.step()
    except KeyboardInterrupt:
        heard = 1
        session.x()
    while not session.status.finished:
        session.step()
    return heard


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_control_c_goes_through_a_step_and_the_next_one_goes_on(method: str) -> None:
    """At any moment; multigrid is built on the way, and kept from step to step."""
    data = squares_data()
    solver = op.compile(SQUARES, device="cpu", dtype=np.float64)
    options: dict[str, Any] = dict(method=method, function_tolerance=1e-12, max_iterations=200)
    solves = [solver.solve(data, **options) for _ in range(5)]  # the first one compiles
    expected = min(solves, key=lambda result: result.timing.total)
    assert "multigrid" in expected.facts["Preconditioners used"]
    heard = 0
    for n in range(40):
        session = solver.start(data, **options)
        heard += step_to_the_end(session, expected.timing.total * n / 40 + 1e-5)
        assert session.status.success
        cost = SQUARES.cost(data | session.x())
        assert session.result().cost == pytest.approx(cost, rel=1e-12)
        assert cost == pytest.approx(expected.cost, rel=1e-8)
    assert heard > 10


def test_levels_that_control_c_has_cut_short_are_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    build, calls = GridMultigrid.build, []

    def interrupted(self: GridMultigrid, damped: bool, safe_work: SafeWork) -> None:
        calls.append(build)
        if len(calls) == 2:
            raise KeyboardInterrupt
        build(self, damped, safe_work)

    monkeypatch.setattr(GridMultigrid, "build", interrupted)
    solver = op.compile(SQUARES, device="cpu", dtype=np.float64)
    session = solver.start(squares_data(), preconditioner="multigrid")
    session.step()
    assert len(calls) == 1
    with monkeypatch.context() as patch:
        patch.setattr(multigrid, "is_slow", lambda *_: True)  # the levels are worn
        with pytest.raises(KeyboardInterrupt):
            session.step()
    session.step()
    assert len(calls) == 3


def test_a_linear_solve_cut_short_by_time_gives_its_step() -> None:
    rng = np.random.default_rng(0)
    noisy = rng.standard_normal((800, 800))  # the first linear solve is far from its end
    flat = op.Energy(fit=1e-4 * (X[i, j] - A[i, j]), dx=X[i, j] - X[i, j + 1], dy=X[i, j] - X[i + 1, j])
    # Without the limit it would take hours.
    result = solve(flat, dict(X=noisy, A=noisy), max_time=0.2, eta=0, linear_iterations=10_000_000)
    assert result.status is Status.TIME_LIMIT
    assert result.iterations[-1].linear_status is LinearStatus.TIME_LIMIT
    assert result.cost < result.initial_cost


def test_a_candidate_whose_gradient_is_not_finite_is_left_again() -> None:
    # The full step from 2 leads to 0.978; below 1 the gradient is NaN, though the cost is finite.
    pit = op.where(X[i, j] < 1, op.sqrt(A[i, j] * X[i, j]) + 0.01, 0)
    energy = op.Energy(logs=op.log(X[i, j] / 1.2), pit=pit)
    data = dict(X=np.full((3, 5), 2.0), A=np.zeros((3, 5)))
    result = solve(energy, data, max_iterations=100, initial_radius=1e16)
    assert not result.iterations[1].accepted
    assert result.iterations[1].cost_change > 0
    assert result.success, result.message
    np.testing.assert_allclose(result.x["X"], 1.2, rtol=1e-3)
    assert result.cost == pytest.approx(energy.cost(data | result.x), rel=1e-12)
