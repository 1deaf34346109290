"""Multigrid on a GPU: against the same V-cycle in NumPy, what it does to solves, and when it is taken or refused."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import numpy as np
import pytest

import optpy as op
from optpy.api.problem import CompiledProblem
from optpy.ir import VectorKind
from optpy.kernels.runtime.cuda.device import Device
from optpy.linear.driver import LinearSolver
from optpy.linear.multigrid import cuda_levels as multigrid
from optpy.linear.multigrid.cuda_grid import CudaGridMultigrid
from optpy.linear.multigrid.record import MULTIGRID, PATIENCE
from optpy.linear.multigrid.solve import MultigridSolve
from optpy.linear.pcg import cuda_kernels
from optpy.linear.safe_work import SafeWork
from optpy.solver.protocol import Damping, LinearLimits
from tests.support.bound_problem import bound_problem
from tests.support.deep import but_deep
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.multigrid_cases import H, W, poisson, quads, values_of
from tests.support.multigrid_reference import CASES, assert_same_solve, check_take_over, each_damping_of_half
from tests.support.warping import arap_data, arap_energy

V, E = op.dims("V E")


WAYS = {"launches": (0, 0), "one block": (2**30, 0), "cooperative": (2**9, 2**30)}


@pytest.fixture(params=WAYS)
def levels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level in launches of its own, all in one block, or the larger ones in blocks that wait for one another."""
    alone, cooperative = WAYS[request.param]
    monkeypatch.setattr(multigrid, "ALONE", alone)
    monkeypatch.setattr(multigrid, "COOPERATIVE", cooperative)


def compiled(energy: op.Energy, values: dict[str, Any], dtype: Any = np.float64) -> CompiledProblem:
    return bound_problem(op.compile(energy, "cuda", dtype), values, dtype)


def solver_of(problem: CompiledProblem) -> LinearSolver:
    assert isinstance(problem.linear_solver, LinearSolver)
    return problem.linear_solver


@pytest.mark.parametrize(("case", "damping"), each_damping_of_half())
def test_every_iteration_is_that_of_the_reference(gpu: Device, levels: None, case: str, damping: Damping) -> None:
    build, sizes = CASES[case]
    energy, limits = build(), LinearLimits(max_iterations=8, residual_reset_period=3)
    values = values_of(energy, sizes)
    problem = compiled(energy, values)
    problem.set_preconditioner("multigrid")
    problem.trace = []
    problem.linearise()
    problem.damp(damping)
    ours = problem.solve_linear(limits)
    grid = solver_of(problem).method(MULTIGRID)
    assert isinstance(grid, MultigridSolve)
    assert isinstance(grid.levels, CudaGridMultigrid)
    made = grid.levels.levels
    assert problem.trace is not None
    delta = [gpu.to_host(problem.read_vector(VectorKind.DELTA, u)).ravel() for u in energy.problem.unknowns]
    omegas = gpu.to_host(made.omegas).tolist()
    assert_same_solve(energy, values, damping, limits, omegas, (ours, problem.trace, np.concatenate(delta)))


# -- what it is for ---------------------------------------------------------------------------------------------------


def iterations(n: int, preconditioner: Literal["jacobi", "multigrid"], dtype: Any) -> int:
    energy, data = poisson(n)
    options: dict[str, Any] = dict(method="gn", max_iterations=1, eta=0, r_tolerance=1e-4, device="cuda")
    result = op.solve(energy, data, dtype=dtype, preconditioner=preconditioner, **options)
    return result.iterations[1].linear_iterations


@pytest.mark.parametrize("dtype", but_deep([np.float32, np.float64], (np.float32,)))
def test_iterations_do_not_grow_with_the_picture(gpu: Device, dtype: Any) -> None:
    small, large = iterations(20, "multigrid", dtype), iterations(60, "multigrid", dtype)
    assert large <= small + 2 <= 14
    assert iterations(60, "jacobi", dtype) > 5 * large


@pytest.mark.parametrize(
    "way",
    but_deep(product(["multigrid", "auto"], [0, 2**20]), [("multigrid", 0), ("auto", 2**20)]),
)
def test_steps_solved_to_the_end_are_those_of_jacobi(
    gpu: Device, way: tuple[Any, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    preconditioner, cooperative = way
    monkeypatch.setattr(cuda_kernels, "COOPERATIVE", cooperative)
    data = arap_data(24, 31)
    data["Mask"][...] = 0
    options: dict[str, Any] = dict(max_iterations=2, eta=0, r_tolerance=1e-10, initial_radius=1e4, dtype=np.float64)
    jacobi = op.solve(arap_energy(), data, preconditioner="jacobi", device="cpu", **options)
    other = op.solve(arap_energy(), data, preconditioner=preconditioner, device="cuda", **options)
    np.testing.assert_allclose([r.cost for r in other.iterations], [r.cost for r in jacobi.iterations], rtol=1e-6)
    assert sum(r.linear_iterations for r in other.iterations) < sum(r.linear_iterations for r in jacobi.iterations) / 8
    assert "multigrid" in other.facts["Preconditioners used"]


@pytest.mark.parametrize("preconditioner", ["multigrid", "auto"])
@pytest.mark.parametrize("jump", but_deep([1e2, 1e4], (1e2,)))
def test_no_success_above_the_minimum_where_weights_jump(gpu: Device, jump: float, preconditioner: Any) -> None:
    """As on the CPU: where M misses errors, multigrid is given up, or solves on."""
    i, j = op.indices(H, W)
    X, A, J = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.Array("J", (H, W))
    smooth = [J[i, j] * (X[i, j] - X[i + 1, j]), J[i, j] * (X[i, j] - X[i, j + 1])]
    energy = op.Energy(fit=X[i, j] - A[i, j], smooth=smooth)
    rng = np.random.default_rng(0)
    a = rng.normal(size=(32, 37))
    data = dict(X=np.zeros_like(a), A=a, J=np.where(rng.random(a.shape) < 0.5, 0.1, 0.1 * jump))
    options: dict[str, Any] = dict(dtype=np.float64, function_tolerance=1e-10, linear_iterations=1000)
    on_cpu, best = (
        op.solve(energy, data, device="cpu", preconditioner=p, **options) for p in (preconditioner, "jacobi")
    )
    found = op.solve(energy, data, device="cuda", preconditioner=preconditioner, **options)
    assert found.success
    np.testing.assert_allclose(found.cost, best.cost, rtol=1e-7)
    ours, theirs = (r.iterations[1].linear_iterations for r in (found, on_cpu))
    assert abs(ours - theirs) <= 0.2 * theirs  # what the first solve leaves is seen in it, not in the next


def test_jacobi_goes_on_where_multigrid_does_not_serve(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its solves are called slow, and hopeless after one iteration."""
    monkeypatch.setattr("optpy.linear.multigrid.solve.SLOW", 0.0)
    monkeypatch.setattr("optpy.linear.choice.HOPELESS", 0)
    energy, data = poisson(30)
    options: dict[str, Any] = dict(dtype=np.float64, eta=0, r_tolerance=1e-9, max_iterations=3)
    found = op.solve(energy, data, device="cuda", preconditioner="auto", **options)
    assert found.facts["Preconditioners used"] == "jacobi, then multigrid"
    np.testing.assert_allclose(found.x["X"], data["B"], atol=1e-5)


@pytest.mark.whole_blocks
def test_the_same_bits_every_time(gpu: Device) -> None:
    data = arap_data(12, 33)
    options: dict[str, Any] = dict(device="cuda", preconditioner="multigrid", max_iterations=2)
    one, two = (op.solve(arap_energy(), data, **options) for _ in range(2))
    for name in one.x:
        np.testing.assert_array_equal(one.x[name], two.x[name])


@pytest.mark.parametrize("coupled", [False, True])
def test_more_channels_than_registers_hold(gpu: Device, coupled: bool) -> None:
    """Blocks of one number, or of all: their loops are not unrolled."""
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W), 10), op.Array("A", (H, W), 10)
    terms = {"mean": sum(X[i, j][n] - A[i, j][n] for n in range(10))} if coupled else {}
    energy = op.Energy(fit=0.1 * (X[i, j] - A[i, j]), smooth=[X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 1]], **terms)
    data = values_of(energy, (12, 9))
    options: dict[str, Any] = dict(method="gn", max_iterations=1, eta=0, r_tolerance=1e-10, dtype=np.float64)
    on_cpu, found = (op.solve(energy, data, device=d, preconditioner="multigrid", **options) for d in ("cpu", "cuda"))
    np.testing.assert_allclose(found.x["X"], on_cpu.x["X"], atol=1e-7)
    assert abs(found.iterations[1].linear_iterations - on_cpu.iterations[1].linear_iterations) <= 1


def test_a_singular_problem_is_solved(gpu: Device) -> None:
    """Nothing fixes the constant."""
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    energy = op.Energy(
        slope=[X[i, j] - X[i, j + 1] - A[i, j] + A[i, j + 1], X[i, j] - X[i + 1, j] - A[i, j] + A[i + 1, j]]
    )
    a = np.random.default_rng(0).normal(size=(50, 41))
    result = op.solve(energy, dict(X=np.zeros_like(a), A=a), method="gn", preconditioner="multigrid", device="cuda")
    assert result.cost < 1e-9 * result.initial_cost


# -- when it is taken -------------------------------------------------------------------------------------------------


def test_an_easy_solve_stays_with_jacobi_and_is_read_once(emulated: EmulatedDevice) -> None:
    """A pause that a solve does not come to costs nothing."""
    i = op.indices(W)
    X, A = op.Unknown("X", (W,)), op.Array("A", (W,))
    energy = op.Energy(fit=3 * (X[i] - A[i]), smooth=X[i] - X[i + 1])
    data = values_of(energy, (500,))
    reads = {}
    for preconditioner in ("jacobi", "auto"):
        emulated.reset()
        result = op.solve(energy, data, device="cuda", preconditioner=preconditioner)
        assert result.facts["Preconditioners used"] == "jacobi"
        reads[preconditioner] = emulated.host_reads
    assert reads["auto"] == reads["jacobi"]


def test_without_patience_it_takes_over_in_the_middle_of_a_solve(gpu: Device) -> None:
    check_take_over(compiled, gpu.to_host)


def test_old_levels_serve_while_they_are_good(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[bool] = []
    build = CudaGridMultigrid.build

    def counted(own: CudaGridMultigrid, damped: bool, safe_work: SafeWork) -> None:
        builds.append(damped)
        build(own, damped, safe_work)

    monkeypatch.setattr(CudaGridMultigrid, "build", counted)
    energy, data = poisson(40)
    session = op.compile(energy, device="cuda", dtype=np.float64).start(data, preconditioner="multigrid", method="gn")
    for _ in range(3):
        session.step()
    assert builds == [False]


def test_multigrid_makes_gains_of_its_own_before_they_are_judged(gpu: Device) -> None:
    """The last gains of Jacobi are not those that multigrid's weak tolerance is meant for."""
    data = arap_data(30, 40)
    data["Mask"][...] = 0
    for device in ("cpu", "cuda"):
        result = op.solve(arap_energy(), data, device=device, dtype=np.float64, max_iterations=1, initial_radius=1e6)
        assert result.facts["Preconditioners used"] == "jacobi, then multigrid"
        assert result.iterations[1].linear_iterations > PATIENCE


# -- when it is refused -----------------------------------------------------------------------------------------------


def mesh() -> tuple[op.Energy, dict[str, Any]]:
    k = op.indices(E)
    X = op.Unknown("X", (V,), 2)
    a, b = op.Graph("edges", E, ((V,), (V,)))[k]
    energy = op.Energy(length=op.vector(*(X[a][n] - X[b][n] - 1 for n in (0, 1))))
    return energy, dict(X=np.zeros((9, 2)), edges=np.stack([np.arange(8), np.arange(1, 9)], axis=1))


def test_on_graphs_it_is_refused_and_auto_does_without(gpu: Device) -> None:
    energy, data = mesh()
    with pytest.raises(op.OptionError, match=r"'multigrid' does not apply on a GPU.*use 'auto', or device='cpu'"):
        op.solve(energy, data, device="cuda", preconditioner="multigrid")
    assert op.solve(energy, data, device="cuda").facts["Preconditioners used"] in ("jacobi", "block_jacobi")


def test_any_device_means_the_cpu_where_only_that_can(emulated: EmulatedDevice) -> None:
    energy, data = mesh()
    result = op.solve(energy, data, device="auto", preconditioner="multigrid")
    assert result.device == "cpu"
    assert "preconditioner='multigrid'" in result.facts["Device"]
    energy, data = poisson(12)
    assert op.solve(energy, data, device="auto", preconditioner="multigrid").device == "cuda"


def test_edges_that_are_too_long_are_named_or_served_by_auto(gpu: Device) -> None:
    energy = quads()
    values = values_of(energy, (11, 14))
    assert op.solve(energy, values, device="cuda", preconditioner="multigrid", max_iterations=2).iterations
    values["quad"][7, 2] += 5
    with pytest.raises(op.OptionError, match=r"edge 7 of the graph 'quad' points at .* couples points [56] apart"):
        op.solve(energy, values, device="cuda", preconditioner="multigrid")
    used = op.solve(energy, values, device="cuda", max_iterations=2).facts["Preconditioners used"]
    assert used in ("jacobi", "block_jacobi")


def test_without_memory_for_the_levels_auto_stays_with_jacobi(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(own: Any, count: int, dtype: Any) -> Any:
        raise MemoryError(f"no room for {count} numbers")

    monkeypatch.setattr(multigrid.CudaMultigrid, "new_array", full)
    energy, data = poisson(16)
    options: dict[str, Any] = dict(device="cuda", dtype=np.float64, max_iterations=20, eta=0, r_tolerance=1e-9)
    with pytest.raises(op.DeviceMemoryError, match=r"preconditioner='multigrid' take [\d,]+ bytes, .* use 'auto'"):
        op.solve(energy, data, preconditioner="multigrid", **options)
    found = op.solve(energy, data, preconditioner="auto", **options)
    assert found.facts["Preconditioners used"] == "jacobi, then jacobi (no memory for multigrid)"
    np.testing.assert_allclose(found.x["X"], data["B"], atol=1e-5)
