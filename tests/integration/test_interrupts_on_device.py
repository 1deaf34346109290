"""Ctrl-C, and time that is up: a solve on a GPU that is cut short stands at a whole point, and goes on from there."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.ir import Group
from optpy.kernels.runtime.cuda import executor as cuda_executor
from optpy.kernels.runtime.cuda.device import Device
from optpy.linear.pcg import cuda_kernels, queued
from optpy.solver.result import Status
from tests.support.applications import overshooting
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.warping import arap_data, arap_energy

WARP = arap_energy()
Options = dict[str, Any]

pytestmark = pytest.mark.usefixtures("strict")


# -- time ------------------------------------------------------------------------------------------------------------


def curved() -> tuple[op.Energy, dict[str, Any]]:
    """J depends on the unknown and is computed anew in every product."""
    N = op.dims("N")
    n = op.indices(N)
    X, A = op.Unknown("X", (N,)), op.Array("A", (N,))
    energy = op.Energy(fit=X[n] * X[n] - A[n], smooth=2 * (X[n] - X[n + 1]) * X[n])
    rng = np.random.default_rng(3)
    return energy, dict(X=1 + rng.random(300), A=4 * rng.random(300))


@pytest.mark.parametrize("cooperative", [0, 2**20], ids=["stages", "cooperative"])
def test_a_linear_solve_cut_short_by_time_gives_its_step(
    gpu: Device, cooperative: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_kernels, "COOPERATIVE", cooperative)
    data = arap_data(9, 12)
    # Without the limit it would take hours.
    result = op.solve(WARP, data, "cuda", np.float64, max_time=0.05, eta=0, linear_iterations=100_000)
    assert result.status is Status.TIME_LIMIT
    assert result.cost <= result.initial_cost
    assert result.cost == pytest.approx(WARP.cost(data | result.x), rel=1e-12)


@pytest.mark.parametrize("method", ["gn", "lm"])
def test_slices_of_time_change_no_solve(emulated: EmulatedDevice, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    energy, data = curved()
    whole = op.solve(energy, data, "cuda", np.float64, method=method, max_iterations=6)
    monkeypatch.setattr(queued, "SLICE", 0.0)  # back to Python after every linear iteration
    before = emulated.cooperative_launches
    sliced = op.solve(energy, data, "cuda", np.float64, method=method, max_iterations=6)
    assert emulated.cooperative_launches - before > whole.nit
    assert [i.cost for i in sliced.iterations] == [i.cost for i in whole.iterations]


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


OVERSHOOTING, OVERSHOOTING_DATA = overshooting()


def interrupting(device: Device, at: int, patch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at a launch of that number."""
    launch, count = device.launch, [0]

    def interrupted(*arguments: Any, **options: Any) -> None:
        count[0] += 1
        if count[0] == at:
            signal.raise_signal(signal.SIGINT)
        launch(*arguments, **options)

    patch.setattr(device, "launch", interrupted)


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_control_c_at_any_launch_leaves_a_whole_point(gpu: Device, method: str) -> None:
    solver = op.compile(OVERSHOOTING, "cuda", np.float64)
    options: Options = dict(method=method, preconditioner="jacobi", max_iterations=4)
    for at in range(3, 45, 2):  # the first one finds the cost at the start
        with pytest.MonkeyPatch.context() as patch:
            interrupting(gpu, at, patch)
            result = solver.solve(OVERSHOOTING_DATA, **options)
        assert result.status in (Status.INTERRUPTED, Status.MAX_ITERATIONS, Status.FAILURE)
        assert result.cost <= result.initial_cost
        assert result.cost == pytest.approx(OVERSHOOTING.cost(OVERSHOOTING_DATA | result.x), rel=1e-12)


def test_an_interrupted_session_goes_on_after_an_update(gpu: Device) -> None:
    data = arap_data(9, 12)
    solver = op.compile(WARP, "cuda", np.float64)
    expected = solver.solve(data, preconditioner="jacobi").cost
    for at in (9, 12, 14):
        session = solver.start(data, preconditioner="jacobi", max_iterations=20)
        session.step()
        with pytest.MonkeyPatch.context() as patch:
            interrupting(gpu, at, patch)
            session.run()
        assert session.status is Status.INTERRUPTED
        session.update(w_fit=data["w_fit"])
        session.run()
        assert session.result().success
        assert session.result().cost == pytest.approx(expected, rel=1e-4)


def test_an_interrupt_while_things_are_queued_ahead_leaves_a_session_that_goes_on(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy, data = curved()
    session = op.compile(energy, "cuda", np.float64).start(data, method="lm")
    session.step()
    queue, calls = cuda_executor.CudaExecutor.queue, []

    def interrupted(self: cuda_executor.CudaExecutor, group: Group, *rest: Any, **options: Any) -> None:
        calls.append(group)
        if calls.count(Group.COST) == 1:
            signal.raise_signal(signal.SIGINT)
        queue(self, group, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(queued, "SLICE", 0.0)
        patch.setattr(cuda_executor.CudaExecutor, "queue", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.step()
    assert session.status is Status.RUNNING
    session.update(A=data["A"] * 100)
    other = op.compile(energy, "cpu", np.float64).start({**data, **session.x(), "A": data["A"] * 100}, method="lm")
    np.testing.assert_allclose(session.step().cost, other.step().cost, rtol=1e-9)


@pytest.mark.parametrize("method", ["lm", "gn"])
def test_control_c_at_any_launch_of_a_step_is_heard_and_the_next_step_goes_on(gpu: Device, method: Any) -> None:
    energy, data = curved()
    data = {name: x[:40] for name, x in data.items()}
    solver = op.compile(energy, "cuda", np.float64)
    options: Options = dict(method=method, preconditioner="jacobi", max_iterations=100)
    expected = solver.solve(data, **options).x["X"]
    heard = 0
    for at in range(2, 40, 3):
        session = solver.start(data, **options)
        with pytest.MonkeyPatch.context() as patch:
            interrupting(gpu, at, patch)
            while not session.status.finished:
                try:
                    session.step()
                except KeyboardInterrupt:
                    heard += 1
                    session.x()
        assert session.result().success
        cost = energy.cost(data | session.x())
        assert session.result().cost == pytest.approx(cost, rel=1e-12)
        np.testing.assert_allclose(session["X"], expected, atol=1e-4)
    assert heard > 10
