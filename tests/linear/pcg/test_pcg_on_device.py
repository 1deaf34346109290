"""The device's conjugate gradients against the textbook's, iteration by iteration: in one kernel, and by stages."""

from __future__ import annotations

import functools
import math
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

import optpy as op
from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import Solver, build
from optpy.api.problem import CompiledProblem
from optpy.energy.derive.vectors import vector
from optpy.ir import Group, VectorKind
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import CudaExecutor
from optpy.linear.pcg import cuda_kernels, queued
from optpy.linear.pcg.status import PcgStatus
from optpy.solver.pcg import Progress
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus, LinearSummary
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.safe_point import SafePoint
from tests.linear.pcg import test_native_pcg as on_cpu
from tests.linear.pcg.test_native_pcg import DAMPED, UNDAMPED, assert_same_trace
from tests.support.bound_problem import bound_problem
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.schedules import GATHERS, by_hand

Real = NDArray[np.float64]
Preconditioners = [None, "jacobi", "block_jacobi"]
X, A, i, j, w = on_cpu.X, on_cpu.A, on_cpu.i, on_cpu.j, on_cpu.w


@pytest.fixture(params=["cooperative", "stages"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All iterations in one kernel, or each stage of the method in one of its own."""
    if request.param == "stages":
        monkeypatch.setattr(cuda_kernels, "COOPERATIVE", 0)
    return str(request.param)


def compiled(of: op.Energy, values: dict[str, Any], solver: Solver | None = None) -> CompiledProblem:
    """A problem in float64, at its starting point."""
    solver = solver or op.compile(of, "cuda", np.float64)
    made = bound_problem(solver, values)
    made.trace = []
    return made


def delta_of(problem: CompiledProblem, of: op.Energy) -> Real:
    values = [problem.executor.host(problem.read_vector(VectorKind.DELTA, u)) for u in of.problem.unknowns]
    return np.concatenate([v.ravel() for v in values])


def solved(problem: CompiledProblem, preconditioner: Any, damping: Damping, limits: LinearLimits) -> LinearSummary:
    problem.set_preconditioner(preconditioner)
    problem.linearise()
    problem.damp(damping)
    return problem.solve_linear(limits)


def solve_both(
    preconditioner: Any, damping: Damping, limits: LinearLimits
) -> tuple[CompiledProblem, LinearSummary, ReferenceProblem, LinearSummary]:
    device, textbook = compiled(on_cpu.energy, on_cpu.data()), on_cpu.reference(preconditioner)
    ours = solved(device, preconditioner, damping, limits)
    textbook.linearise()
    textbook.damp(damping)
    return device, ours, textbook, textbook.solve_linear(limits)


def assert_same_step(device: CompiledProblem, textbook: ReferenceProblem) -> None:
    ours = delta_of(device, on_cpu.energy)
    expected = np.zeros(ours.size)
    expected[on_cpu.free_entries()] = textbook.delta
    np.testing.assert_allclose(ours, expected, atol=1e-10)


IN_EVERY_RUN = {("damped", 0), ("undamped", 1), ("damped", 3)}


# -- every iteration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damping", "reset"),
    [
        pytest.param(
            damping, reset, id=f"{name}-{reset}", marks=[pytest.mark.deep] * ((name, reset) not in IN_EVERY_RUN)
        )
        for name, damping in (("damped", DAMPED), ("undamped", UNDAMPED))
        for reset in (0, 1, 3)
    ],
)
@pytest.mark.parametrize("preconditioner", Preconditioners)
def test_every_iteration_is_the_textbook_s(
    gpu: Device, way: str, preconditioner: Any, damping: Damping, reset: int
) -> None:
    limits = LinearLimits(max_iterations=12, residual_reset_period=reset)
    device, ours, textbook, theirs = solve_both(preconditioner, damping, limits)
    assert_same_trace(device.trace, textbook.trace)
    assert (ours.iterations, ours.status, ours.message) == (theirs.iterations, theirs.status, theirs.message)
    assert_same_step(device, textbook)


@pytest.mark.parametrize("preconditioner", Preconditioners)
def test_to_the_end_it_is_the_dense_solution(gpu: Device, way: str, preconditioner: Any) -> None:
    limits = LinearLimits(max_iterations=300, r_tolerance=1e-12)
    device, ours, _, theirs = solve_both(preconditioner, DAMPED, limits)
    assert ours.status is theirs.status is LinearStatus.CONVERGED
    assert abs(ours.iterations - theirs.iterations) <= 1
    free = on_cpu.free_entries()
    F, J = on_cpu.linearised()
    N = (J.T @ J + np.diag(DAMPED.diagonal((J**2).sum(axis=0))))[np.ix_(free, free)]
    expected = np.zeros(J.shape[1])
    expected[free] = np.linalg.solve(N, -(J.T @ F)[free])
    np.testing.assert_allclose(delta_of(device, on_cpu.energy), expected, atol=1e-8)
    assert device.model_cost_change() == pytest.approx(0.5 * F @ F - 0.5 * np.sum((F + J @ expected) ** 2))


def hub() -> tuple[op.Energy, dict[str, Any]]:
    """One vertex has half of the edges."""
    V, E = op.dims("V E")
    v, e = op.indices(V, E)
    Z, B = op.Unknown("Z", (V,), 2), op.Array("B", (V,), 2)
    a, b = op.Graph("edges", E, (V, V))[e]
    energy = op.Energy(fit=0.1 * (Z[v] - B[v]), edge=op.sin(Z[a]) * Z[b][0] - 1)
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 40, (120, 2)) * np.tile([[1, 1], [0, 1]], (60, 1))
    return energy, dict(Z=rng.uniform(0.2, 1, (40, 2)), B=rng.normal(size=(40, 2)), edges=edges)


HUB, HUB_DATA = hub()


@functools.cache
def hub_linearised() -> tuple[Real, csr_array]:
    F = np.concatenate([r.ravel() for r in HUB.residuals(HUB_DATA).values()])
    return F, csr_array(HUB.jacobian(HUB_DATA))


@functools.cache
def solver_of_hub(device: Device, schedule: Any) -> Solver:
    return build(HUB, "float64", by_hand(HUB, schedule), DeviceChoice(device, "as asked"))


@pytest.mark.parametrize(
    ("schedule", "reset"),
    [
        pytest.param(GATHERS[3], 2, id="two passes"),
        pytest.param(None, 0, id="one"),
        pytest.param("scatter", 2, id="scatter"),
        pytest.param(GATHERS[3], 0, id="two passes, no reset", marks=pytest.mark.deep),
        pytest.param(None, 2, id="one, reset", marks=pytest.mark.deep),
        pytest.param("scatter", 0, id="scatter, no reset", marks=pytest.mark.deep),
    ],
)
@pytest.mark.parametrize("preconditioner", Preconditioners[1:])
def test_every_iteration_on_graphs(gpu: Device, way: str, schedule: Any, preconditioner: Any, reset: int) -> None:
    solver = solver_of_hub(gpu, schedule)  # type: ignore[arg-type]  # devices are hashed by identity
    problem = compiled(HUB, HUB_DATA, solver)
    executor = problem.executor
    assert isinstance(executor, CudaExecutor)
    assert schedule != GATHERS[3] or len(executor.program.phases[Group.PRODUCT]) == 2
    limits = LinearLimits(max_iterations=9, residual_reset_period=reset)
    ours = solved(problem, preconditioner, DAMPED, limits)
    F, J = hub_linearised()
    term = ReferenceTerm(lambda delta: F + J @ delta, lambda _: J)
    blocks = [[n, n + 1] for n in range(0, J.shape[1], 2)] if preconditioner == "block_jacobi" else None
    textbook = ReferenceProblem({"all": term}, np.zeros(J.shape[1]), preconditioner=preconditioner, blocks=blocks)
    textbook.linearise()
    textbook.damp(DAMPED)
    theirs = textbook.solve_linear(limits)
    assert_same_trace(problem.trace, textbook.trace)
    assert (ours.iterations, ours.status) == (theirs.iterations, theirs.status)
    np.testing.assert_allclose(delta_of(problem, HUB), textbook.delta, atol=1e-10)


# -- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "ending"),
    [
        (LinearLimits(max_iterations=100, eta=0.1), PcgStatus.MODEL),
        (LinearLimits(max_iterations=100, eta=1e-4, min_iterations=20), PcgStatus.MODEL),
        (LinearLimits(max_iterations=100, r_tolerance=1e-3), PcgStatus.RESIDUAL),
        (LinearLimits(max_iterations=100, r_tolerance=0.9, min_iterations=7), PcgStatus.RESIDUAL),
        (LinearLimits(max_iterations=1), PcgStatus.LIMIT),
        (LinearLimits(max_iterations=4), PcgStatus.LIMIT),
        (LinearLimits(max_iterations=29), PcgStatus.LIMIT),
    ],
)
def test_it_stops_where_the_textbook_stops(gpu: Device, way: str, limits: LinearLimits, ending: PcgStatus) -> None:
    device, ours, textbook, theirs = solve_both("jacobi", DAMPED, limits)
    assert (ours.iterations, ours.status, ours.message) == (theirs.iterations, theirs.status, theirs.message)
    assert ended(device) is ending
    assert_same_step(device, textbook)


def test_it_stagnates_by_the_textbook_s_rule(gpu: Device, way: str) -> None:
    device = compiled(on_cpu.energy, on_cpu.data())
    summary = solved(device, "jacobi", DAMPED, LinearLimits(max_iterations=2000, residual_reset_period=10))
    assert (summary.status, ended(device)) == (LinearStatus.BREAKDOWN, PcgStatus.STAGNATED)
    assert device.trace is not None
    progress = Progress(device.trace[0].rho, float(np.finfo(np.float64).eps))
    assert [progress.has_ceased(s) for s in device.trace] == [False] * (summary.iterations - 1) + [True]


def ended(problem: CompiledProblem) -> PcgStatus:
    executor = problem.executor
    assert isinstance(executor, CudaExecutor)
    return PcgStatus(executor.pcg_iteration().status)


def test_without_a_gradient_the_solution_is_zero(gpu: Device, way: str) -> None:
    plain = op.Energy(fit=X[i, j] - A[i, j])
    a = np.ones((3, 4, 2))
    problem = compiled(plain, dict(X=a, A=a))
    problem.buffers.view(vector(VectorKind.DELTA, plain.problem.unknowns[0]))[...] = 7  # what an earlier solve has left
    summary = solved(problem, "jacobi", DAMPED, LinearLimits(10))
    assert (summary.iterations, summary.status, ended(problem)) == (0, LinearStatus.CONVERGED, PcgStatus.NO_GRADIENT)
    assert "b = 0" in summary.message
    assert not delta_of(problem, plain).any()


def test_a_nan_in_the_gradient_gives_no_step(gpu: Device, way: str) -> None:
    root = op.Energy(root=1 + op.sqrt(X[i, j]))  # its slope at 0 is infinite
    problem = compiled(root, dict(X=np.zeros((2, 3, 2))))
    assert problem.evaluate().total == 6
    problem.accept()  # of no step: at the start it would be an error that names the derivative
    assert not math.isfinite(problem.linearise())
    summary = solved(problem, "jacobi", DAMPED, LinearLimits(10))
    assert (summary.iterations, summary.status, ended(problem)) == (0, LinearStatus.FAILURE, PcgStatus.BAD_START)


def test_no_curvature_along_the_first_direction_gives_no_step(gpu: Device, way: str) -> None:
    steep = op.Energy(steep=w * X[i, j])  # g is finite, but p.Ap overflows
    problem = compiled(steep, dict(X=np.full((2, 3, 2), 1e-160), w=1e150))
    summary = solved(problem, None, UNDAMPED, LinearLimits(10))
    assert (summary.iterations, summary.status, ended(problem)) == (0, LinearStatus.FAILURE, PcgStatus.NO_CURVATURE)
    assert "p.Ap" in summary.message
    assert not delta_of(problem, steep).any()


def test_the_exact_solution_after_one_iteration_ends_it(gpu: Device, way: str) -> None:
    plain = op.Energy(fit=X[i, j] - A[i, j])
    problem = compiled(plain, dict(X=np.zeros((3, 4, 2)), A=np.full((3, 4, 2), 2.0)))
    summary = solved(problem, "jacobi", UNDAMPED, LinearLimits(10))
    assert (summary.iterations, summary.status, summary.message) == (1, LinearStatus.CONVERGED, "r.z = 0.")
    assert ended(problem) is PcgStatus.ZERO
    np.testing.assert_array_equal(delta_of(problem, plain), 2.0)


def test_a_residual_that_overflows_keeps_the_step_so_far(gpu: Device, way: str) -> None:
    """r.r after the first step is more than a double holds, where r, A and p.Ap are not."""
    steep = op.Energy(r=op.vector(X[i, j][0] - 10, w * X[i, j][1] - 1e-307))
    problem = compiled(steep, dict(X=np.zeros((1, 1, 2)), w=1e154))
    summary = solved(problem, None, UNDAMPED, LinearLimits(10))
    assert (summary.iterations, summary.status, ended(problem)) == (1, LinearStatus.BREAKDOWN, PcgStatus.NOT_POSITIVE)
    np.testing.assert_allclose(delta_of(problem, steep), [5, 5e-154])  # half of the gradient


def test_out_of_time_it_ends_with_a_usable_step(gpu: Device, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "SLICE", 0.0)
    limits = LinearLimits(max_iterations=200, safe_point=SafePoint(time.perf_counter() - 1))
    device, ours, _, _ = solve_both("jacobi", DAMPED, limits)
    assert ours.status is LinearStatus.TIME_LIMIT
    assert ours.message == f"Out of time after {ours.iterations} iterations."
    assert 1 <= ours.iterations < 200
    textbook = on_cpu.reference("jacobi")  # with as many iterations
    textbook.linearise()
    textbook.damp(DAMPED)
    textbook.solve_linear(LinearLimits(max_iterations=ours.iterations))
    assert_same_step(device, textbook)
    assert device.model_cost_change() > 0
    step = device.try_step()
    assert 0 < step.cost.total < math.inf
    device.accept()
    at_candidate = device.linearise()
    device.set_preconditioner("jacobi")  # so that it is computed anew
    assert device.linearise() == at_candidate


# -- slices of time, one solve after the other -------------------------------------------------------------------------


@pytest.mark.parametrize("preconditioner", ["jacobi", "block_jacobi"])
@pytest.mark.parametrize("reset", [0, 4])
def test_slices_of_time_change_nothing(
    emulated: EmulatedDevice, preconditioner: Any, reset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = LinearLimits(max_iterations=15, r_tolerance=1e-14, residual_reset_period=reset)
    whole, one, _, _ = solve_both(preconditioner, DAMPED, limits)
    monkeypatch.setattr(queued, "SLICE", 0.0)  # back to Python after every iteration
    before = emulated.cooperative_launches
    sliced, other, _, _ = solve_both(preconditioner, DAMPED, limits)
    assert emulated.cooperative_launches - before == other.iterations == 15
    assert one == other
    assert_same_trace(whole.trace, sliced.trace or [], rtol=1e-12)
    np.testing.assert_allclose(delta_of(whole, on_cpu.energy), delta_of(sliced, on_cpu.energy), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(whole.model_cost_change(), sliced.model_cost_change(), rtol=1e-12)
    assert whole.try_step().cost.total == pytest.approx(sliced.try_step().cost.total, rel=1e-12)


def test_a_second_solve_starts_afresh(gpu: Device, way: str) -> None:
    problem = compiled(on_cpu.energy, on_cpu.data())
    first = solved(problem, "jacobi", DAMPED, LinearLimits(7))
    delta, trace = delta_of(problem, on_cpu.energy), problem.trace
    problem.trace = []
    problem.damp(DAMPED)
    assert problem.solve_linear(LinearLimits(7)) == first
    assert problem.trace == trace
    np.testing.assert_array_equal(delta_of(problem, on_cpu.energy), delta)


def test_both_ways_come_to_the_same(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = LinearLimits(max_iterations=20, residual_reset_period=7)
    steps = []
    for cooperative in (0, 2**20):
        monkeypatch.setattr(cuda_kernels, "COOPERATIVE", cooperative)
        problem = compiled(on_cpu.energy, on_cpu.data())
        solved(problem, "block_jacobi", DAMPED, limits)
        steps.append(delta_of(problem, on_cpu.energy))
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-12, atol=1e-13)


# -- launches --------------------------------------------------------------------------------------------------------


def launches(problem: CompiledProblem, iterations: int, device: EmulatedDevice) -> tuple[int, int, int]:
    """(all, cooperative, host reads) of a linear solve, without what is queued behind it."""
    problem.linearise()
    problem.damp(DAMPED)
    before = device.launches, device.cooperative_launches, device.host_reads
    problem.linear_solver.solve(LinearLimits(iterations), True, lambda: None)
    after = device.launches, device.cooperative_launches, device.host_reads
    a, b, c = (new - old for new, old in zip(after, before, strict=True))
    return a, b, c


def test_a_small_solve_is_one_launch_and_one_read(emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "SLICE", 60.0)  # seconds: an emulated GPU is slow
    problem = compiled(on_cpu.energy, on_cpu.data())
    problem.trace = None
    assert launches(problem, 30, emulated) == (1, 1, 1)


def test_line_by_line_it_is_three_launches_an_iteration(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_kernels, "COOPERATIVE", 0)
    problem = compiled(on_cpu.energy, on_cpu.data())
    problem.trace = None
    assert launches(problem, 30, emulated) == (1 + 3 * 30 + 1, 0, 1)
    assert emulated.waits <= emulated.marks  # nobody waits for all of them
