"""The native conjugate gradient loop against the textbook's, iteration by iteration, and against dense solves."""

from __future__ import annotations

import functools
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

import optpy as op
from optpy.api.problem import CompiledProblem
from optpy.energy.derive.updates import SOLVER_SCALARS
from optpy.errors import DataError
from optpy.ir import VectorKind
from optpy.kernels.runtime import executor
from optpy.linear import safe_work
from optpy.linear.pcg.native import conjugate_gradients_source
from optpy.linear.pcg.state import PcgState
from optpy.linear.pcg.status import PcgStatus, linear_summary
from optpy.linear.safe_work import SafeWork, Stop
from optpy.solver.pcg import PCGScalars, Progress
from optpy.solver.protocol import Damping, LinearLimits, LinearStatus, LinearSummary
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.safe_point import SafePoint
from tests.support.bound_problem import bound_problem

pytestmark = [pytest.mark.native, pytest.mark.optimised]

Real = NDArray[np.float64]
Preconditioners = [None, "jacobi", "block_jacobi"]

H, W = op.dims("H W")
i, j = op.indices(H, W)
X = op.Unknown("X", (H, W), 2)
Y = op.Unknown("Y", (W,))
A = op.Array("A", (H, W), 2)
M = op.Array("M", (H, W), dtype=np.uint8)
w = op.params("w")

energy = op.Energy(
    fit=X[i, j] - A[i, j],
    along=w * (X[i, j] - X[i, j + 1]),
    down=w * (X[i, j] - X[i + 1, j]),
    mixed=op.vector(3 * X[i, j][0] - 2 * X[i, j][1] + Y[j], op.sin(Y[j]) * X[i, j][0]),
    fixed={X: M[i, j] == 1},
)
DAMPED = Damping(10.0, 1e-6, 1e32, jacobi_scaling=True)
UNDAMPED = Damping(math.inf, 1e-6, 1e32, jacobi_scaling=True)


@pytest.fixture(autouse=True, params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(executor, "ACCESSES_PER_THREAD", 1)
    return int(request.param)


def data(rows: int = 5, columns: int = 70) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    return dict(
        X=rng.standard_normal((rows, columns, 2)),
        Y=rng.standard_normal(columns),
        A=rng.standard_normal((rows, columns, 2)),
        M=(rng.random((rows, columns)) < 0.2).astype(np.uint8),
        w=2.0,
    )


def compiled(threads: int, of: op.Energy = energy, values: dict[str, Any] | None = None) -> CompiledProblem:
    """A problem in float64, at its starting point."""
    made = bound_problem(op.compile(of, "cpu", np.float64), data() if values is None else values, threads=threads)
    made.trace = []
    return made


@functools.cache
def linearised() -> tuple[Real, Real]:
    """F and J by the interpreter."""
    values = data()
    F = np.concatenate([r.ravel() for r in energy.residuals(values).values()])
    return F, energy.jacobian(values).toarray()


def reference(preconditioner: Any) -> ReferenceProblem:
    """The same, with the fixed elements left out."""
    values, free = data(), free_entries()
    F, J = linearised()[0], csr_array(linearised()[1][:, free])
    x = np.zeros(len(free))
    blocks = None
    if preconditioner == "block_jacobi":
        position = {int(n): at for at, n in enumerate(free)}
        pairs = [[position[n], position[n + 1]] for n in range(0, values["X"].size, 2) if n in position]
        blocks = pairs + [[position[n]] for n in range(values["X"].size, values["X"].size + values["Y"].size)]
    term = ReferenceTerm(lambda delta: F + J @ delta, lambda _: J)
    return ReferenceProblem({"all": term}, x, preconditioner=preconditioner, blocks=blocks)


def free_entries() -> NDArray[np.intp]:
    values = data()
    solved = np.concatenate([np.repeat(values["M"].ravel() != 1, 2), np.ones(values["Y"].size, bool)])
    return np.flatnonzero(solved)


def delta_of(problem: CompiledProblem) -> Real:
    return np.concatenate([problem.read_vector(VectorKind.DELTA, u).ravel() for u in energy.problem.unknowns])


def solve_both(
    threads: int, preconditioner: Any, damping: Damping, limits: LinearLimits
) -> tuple[CompiledProblem, LinearSummary, ReferenceProblem, LinearSummary]:
    ours, textbook = compiled(threads), reference(preconditioner)
    ours.set_preconditioner(preconditioner)
    summaries = []
    for problem in (ours, textbook):
        problem.linearise()
        problem.damp(damping)
        summaries.append(problem.solve_linear(limits))
    return ours, summaries[0], textbook, summaries[1]


def assert_same_trace(native: list[PCGScalars] | None, textbook: list[PCGScalars], rtol: float = 1e-6) -> None:
    assert native is not None
    assert [s.k for s in native] == [s.k for s in textbook]
    for name in ("rho", "pAp", "alpha", "Q", "zeta", "rho_next"):
        a, b = ([getattr(s, name) for s in trace] for trace in (native, textbook))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12 * max(map(abs, b)), err_msg=name)


@pytest.mark.parametrize("reset", [0, 1, 3])
@pytest.mark.parametrize("damping", [DAMPED, UNDAMPED], ids=["damped", "undamped"])
@pytest.mark.parametrize("preconditioner", Preconditioners)
def test_every_iteration_is_the_textbook_s(threads: int, preconditioner: Any, damping: Damping, reset: int) -> None:
    limits = LinearLimits(max_iterations=12, residual_reset_period=reset)
    native, ours, textbook, theirs = solve_both(threads, preconditioner, damping, limits)
    assert_same_trace(native.trace, textbook.trace)
    assert (ours.iterations, ours.status, ours.message) == (theirs.iterations, theirs.status, theirs.message)
    delta = np.zeros(delta_of(native).size)
    delta[free_entries()] = textbook.delta
    np.testing.assert_allclose(delta_of(native), delta, atol=1e-10)


@pytest.mark.parametrize("preconditioner", Preconditioners)
def test_to_the_end_it_is_the_dense_solution(threads: int, preconditioner: Any) -> None:
    limits = LinearLimits(max_iterations=2000, r_tolerance=1e-12)
    native, ours, _, theirs = solve_both(threads, preconditioner, DAMPED, limits)
    assert ours.status is theirs.status is LinearStatus.CONVERGED
    free = free_entries()
    F, J = linearised()
    A_ = (J.T @ J + np.diag(DAMPED.diagonal((J**2).sum(axis=0))))[np.ix_(free, free)]
    expected = np.zeros(J.shape[1])
    expected[free] = np.linalg.solve(A_, -(J.T @ F)[free])
    np.testing.assert_allclose(delta_of(native), expected, atol=1e-8)
    decrease = 0.5 * F @ F - 0.5 * np.sum((F + J @ expected) ** 2)
    assert native.model_cost_change() == pytest.approx(decrease)


def test_block_jacobi_needs_fewer_iterations_than_jacobi_than_nothing(threads: int) -> None:
    counts = []
    for preconditioner in Preconditioners:
        _, ours, _, _ = solve_both(threads, preconditioner, DAMPED, LinearLimits(2000, r_tolerance=1e-10))
        counts.append(ours.iterations)
    assert counts[0] > counts[1] > counts[2]


@pytest.mark.parametrize(
    "limits",
    [
        LinearLimits(max_iterations=500, eta=0.1),
        LinearLimits(max_iterations=500, eta=1e-4, min_iterations=20),
        LinearLimits(max_iterations=500, r_tolerance=1e-3),
        LinearLimits(max_iterations=500, r_tolerance=0.9, min_iterations=7),
        LinearLimits(max_iterations=1),
    ],
)
def test_it_stops_where_the_textbook_stops(threads: int, limits: LinearLimits) -> None:
    _, ours, _, theirs = solve_both(threads, "jacobi", DAMPED, limits)
    assert (ours.iterations, ours.status, ours.message) == (theirs.iterations, theirs.status, theirs.message)


def test_it_stagnates_where_the_textbook_stagnates(threads: int) -> None:
    limits = LinearLimits(max_iterations=100_000, residual_reset_period=10)
    native, ours, _, theirs = solve_both(threads, "jacobi", DAMPED, limits)
    assert ours.status is theirs.status is LinearStatus.BREAKDOWN
    assert "Rounding keeps r.z" in ours.message
    assert abs(ours.iterations - theirs.iterations) < 60  # which of many iterations was the last to gain is rounding
    assert native.trace is not None
    progress = Progress(native.trace[0].rho, float(np.finfo(np.float64).eps))
    assert [progress.has_ceased(s) for s in native.trace] == [False] * (ours.iterations - 1) + [True]


@pytest.mark.parametrize("preconditioner", Preconditioners)
@pytest.mark.parametrize("reset", [0, 4])
def test_control_c_after_any_iteration_is_heard_and_the_loop_may_go_on(
    threads: int, preconditioner: Any, reset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = LinearLimits(max_iterations=30, r_tolerance=1e-14, residual_reset_period=reset)
    whole, one, _, _ = solve_both(threads, preconditioner, DAMPED, limits)
    monkeypatch.setattr(safe_work, "SLICE", 0.0)  # after every iteration
    monkeypatch.setattr(safe_work, "endless_polls", interrupts)
    run, heard = SafeWork.run, []

    def interrupted(self: SafeWork, work: Callable[[int], object]) -> Stop:
        while True:
            try:
                return run(self, work)
            except KeyboardInterrupt:
                heard.append(work)

    monkeypatch.setattr(SafeWork, "run", interrupted)
    cut, other, _, _ = solve_both(threads, preconditioner, DAMPED, limits)
    assert len(heard) == other.iterations - 1 == 29
    assert (one, whole.trace) == (other, cut.trace)
    np.testing.assert_array_equal(delta_of(whole), delta_of(cut))


def interrupts(_: Sequence[SafePoint], caught: list[BaseException]) -> Iterator[int]:
    """Every poll is an interrupt."""
    yield 0
    caught.append(KeyboardInterrupt())
    yield 1


def test_the_deadline_ends_it_after_an_iteration_with_a_usable_step(threads: int) -> None:
    limits = LinearLimits(max_iterations=500, safe_point=SafePoint(time.perf_counter() - 1))
    native, ours, textbook, theirs = solve_both(threads, "jacobi", DAMPED, limits)
    assert (ours.iterations, ours.status) == (theirs.iterations, theirs.status) == (1, LinearStatus.TIME_LIMIT)
    np.testing.assert_allclose(delta_of(native)[free_entries()], textbook.delta, atol=1e-12)
    assert native.model_cost_change() > 0


def test_without_a_gradient_the_solution_is_zero(threads: int) -> None:
    plain = op.Energy(fit=X[i, j] - A[i, j])
    a = np.ones((3, 4, 2))
    problem = compiled(threads, plain, dict(X=a, A=a))
    assert problem.linearise() == 0
    problem.damp(DAMPED)
    summary = problem.solve_linear(LinearLimits(10))
    assert (summary.iterations, summary.status) == (0, LinearStatus.CONVERGED)
    assert "b = 0" in summary.message
    assert not problem.read_vector(VectorKind.DELTA, plain.problem.unknowns[0]).any()


def test_a_nan_in_the_gradient_gives_no_step(threads: int) -> None:
    root = op.Energy(root=1 + op.sqrt(X[i, j]))  # its slope at 0 is infinite
    problem = compiled(threads, root, dict(X=np.zeros((2, 3, 2))))
    assert problem.evaluate().total == 6
    with pytest.raises(DataError, match="square root of 0"):
        problem.linearise()
    problem.damp(DAMPED)
    summary = problem.solve_linear(LinearLimits(10))
    assert (summary.iterations, summary.status) == (0, LinearStatus.FAILURE)


def test_no_curvature_along_the_first_direction_gives_no_step(threads: int) -> None:
    steep = op.Energy(steep=w * X[i, j])  # g is finite, but p.Ap overflows
    problem = compiled(threads, steep, dict(X=np.full((2, 3, 2), 1e-160), w=1e150))
    problem.set_preconditioner(None)
    problem.linearise()
    problem.damp(UNDAMPED)
    summary = problem.solve_linear(LinearLimits(10))
    assert (summary.iterations, summary.status) == (0, LinearStatus.FAILURE)
    assert "p.Ap" in summary.message


def test_the_exact_solution_after_one_iteration_ends_it(threads: int) -> None:
    plain = op.Energy(fit=X[i, j] - A[i, j])
    problem = compiled(threads, plain, dict(X=np.zeros((3, 4, 2)), A=np.full((3, 4, 2), 2.0)))
    problem.linearise()
    problem.damp(UNDAMPED)
    summary = problem.solve_linear(LinearLimits(10))
    assert (summary.iterations, summary.status, summary.message) == (1, LinearStatus.CONVERGED, "r.z = 0.")
    np.testing.assert_array_equal(problem.read_vector(VectorKind.DELTA, plain.problem.unknowns[0]), 2.0)


def test_a_second_solve_starts_afresh(threads: int) -> None:
    problem = compiled(threads)
    problem.linearise()
    problem.damp(DAMPED)
    first = problem.solve_linear(LinearLimits(7))
    delta, trace = delta_of(problem), problem.trace
    problem.trace = []
    assert problem.solve_linear(LinearLimits(7)) == first
    assert problem.trace == trace
    np.testing.assert_array_equal(delta_of(problem), delta)


def test_a_singular_block_is_inverted_as_far_as_it_goes(threads: int) -> None:
    """The second channel acts only together with the first, and one pixel is read by nothing."""
    single = op.Energy(
        sum=op.where(op.value(j) > 0, X[i, j][0] + X[i, j][1] - A[i, j][0], 0), weak=1e-3 * (X[i, j + 1][0] - 1)
    )
    values = dict(X=np.zeros((2, 6, 2)), A=np.full((2, 6, 2), 4.0))
    problem = compiled(threads, single, values)
    problem.set_preconditioner("block_jacobi")
    problem.linearise()
    problem.damp(UNDAMPED)
    summary = problem.solve_linear(LinearLimits(100, r_tolerance=1e-12))
    assert summary.status in (LinearStatus.CONVERGED, LinearStatus.BREAKDOWN)
    J = single.jacobian(values).toarray()
    F = np.concatenate([r.ravel() for r in single.residuals(values).values()])
    delta = problem.read_vector(VectorKind.DELTA, single.problem.unknowns[0]).ravel()
    least = np.linalg.lstsq(J, -F, rcond=None)[0]
    np.testing.assert_allclose(J @ delta, J @ least, atol=1e-6)


def c_enum(source: str, member: str) -> list[str]:
    """The members of the C enum that has this one."""
    (members,) = re.findall(rf"enum {{([^}}]*\b{member}\b[^}}]*)}}", source)
    return [name.strip() for name in members.split(",")]


def test_every_ending_is_told() -> None:
    for status in set(PcgStatus) - {PcgStatus.RUNNING}:
        assert linear_summary(PcgState(status=status), LinearLimits(10)).message


def test_native_code_knows_the_scalars_in_the_order_in_which_they_are_passed() -> None:
    source = conjugate_gradients_source(SOLVER_SCALARS)
    assert c_enum(source, "ALPHA") == [*(name.upper() for name in SOLVER_SCALARS), "OPTPY_SCALARS"]
