"""Whole solves on GPUs beside the CPU's: every application, endings, sessions; and which device it is, and why."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.kernels.runtime.cuda import available
from optpy.kernels.runtime.cuda.device import Device
from optpy.linear.pcg import cuda_kernels
from optpy.solver.result import SolveResult, Status
from tests.support.applications import DATA, ENERGIES, overshooting
from tests.support.deep import but_deep
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.meshes import mesh_arap_data, mesh_arap_energy
from tests.support.warping import arap_data, arap_energy

WARP, MESH = arap_energy(), mesh_arap_energy()
Options = dict[str, Any]

pytestmark = pytest.mark.usefixtures("strict")


def on_gpu(energy: op.Energy, data: dict[str, Any], dtype: Any = np.float64, **options: Any) -> SolveResult:
    result = op.solve(energy, data, "cuda", dtype, **options)
    assert result.device == "cuda"
    return result


def linear_iterations(result: SolveResult) -> list[int]:
    return [r.linear_iterations for r in result.iterations]


def assert_same(ours: SolveResult, theirs: SolveResult, rtol: float = 1e-9) -> None:
    assert (ours.nit, ours.status) == (theirs.nit, theirs.status)
    assert linear_iterations(ours) == linear_iterations(theirs)
    assert [r.accepted for r in ours.iterations] == [r.accepted for r in theirs.iterations]
    np.testing.assert_allclose([r.cost for r in ours.iterations], [r.cost for r in theirs.iterations], rtol=rtol)
    for name, cost in theirs.cost_by_term.items():
        assert ours.cost_by_term[name] == pytest.approx(cost, rel=1e-6, abs=rtol * theirs.cost)
    for name, x in theirs.x.items():
        assert type(ours.x[name]) is type(x)
        np.testing.assert_allclose(ours.x[name], x, atol=1e-6 * np.abs(x).max())


# -- every application -----------------------------------------------------------------------------------------------

# Few conjugate gradients, so that rounding does not decide how many there are.
STEADY: Options = dict(preconditioner="block_jacobi", max_iterations=4, eta=0.0, linear_iterations=8)


@functools.cache
def data_of(name: str) -> dict[str, Any]:
    return DATA[name]()


GAUSS_NEWTON = ("image_warping", "poisson_image_editing", "laplacian_smoothing", "mesh_deformation euler")
METHODS = [(name, "lm") for name in ENERGIES] + [(name, "gn") for name in GAUSS_NEWTON]
# Of those that are alike one, for each kind of coupling.
ALIKE = ("bundle_adjustment", "bundle_fusion", "mesh_deformation so3", "intrinsic_images")
IN_EVERY_RUN = {*METHODS} - {(name, "lm") for name in ALIKE} - {*METHODS[-3:-1]}
SINGLE = ("image_warping", "mesh_deformation so3", "pose_graph plane")


@pytest.mark.parametrize(
    ("name", "method"), [m if m in IN_EVERY_RUN else pytest.param(*m, marks=pytest.mark.deep) for m in METHODS]
)
def test_applications_are_solved_as_on_the_cpu(gpu: Device, name: str, method: str) -> None:
    energy, data = ENERGIES[name], data_of(name)
    options = STEADY | dict(method=method)
    expected = op.solve(energy, data, "cpu", np.float64, **options)
    assert_same(on_gpu(energy, data, **options), expected)


@pytest.mark.parametrize("name", SINGLE)
def test_applications_in_float32(gpu: Device, name: str) -> None:
    energy, data = ENERGIES[name], data_of(name)
    expected = op.solve(energy, data, "cpu", np.float64, **STEADY)
    result = on_gpu(energy, data, np.float32, **STEADY)
    floor = 1e-4 * expected.initial_cost
    assert result.initial_cost == pytest.approx(expected.initial_cost, rel=1e-4)
    assert result.cost == pytest.approx(expected.cost, rel=0.02, abs=floor)


@pytest.mark.parametrize("preconditioner", but_deep([None, "jacobi", "block_jacobi", "auto"], (None, "auto")))
@pytest.mark.parametrize("cooperative", [0, 2**20], ids=["stages", "cooperative"])
def test_to_convergence(gpu: Device, preconditioner: Any, cooperative: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_kernels, "COOPERATIVE", cooperative)
    data = arap_data(9, 12)
    theirs = op.solve(WARP, data, "cpu", np.float64, preconditioner=preconditioner)
    ours = on_gpu(WARP, data, preconditioner=preconditioner)
    assert ours.success
    # The levels of multigrid begin with random signs for numbers that stand elsewhere: its steps differ a little.
    assert ours.nit == theirs.nit or preconditioner == "auto"
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-6)
    used = {None: "none", "auto": "jacobi, then multigrid"}.get(preconditioner, "jacobi")  # blocks are diagonal
    assert ours.facts["Preconditioners used"] == theirs.facts["Preconditioners used"] == used


def test_auto_is_block_jacobi_where_blocks_are_not_diagonal(gpu: Device) -> None:
    result = on_gpu(MESH, mesh_arap_data(4, 5), max_iterations=2)
    assert result.facts["Preconditioners used"] == "block_jacobi"


# -- rejected steps, endings -------------------------------------------------------------------------------------------


OVERSHOOTING, OVERSHOOTING_DATA = overshooting()


@pytest.mark.whole_blocks
@pytest.mark.parametrize("cooperative", [0, 2**20], ids=["stages", "cooperative"])
def test_rejected_steps(gpu: Device, cooperative: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_kernels, "COOPERATIVE", cooperative)
    options: Options = dict(preconditioner="jacobi", max_iterations=10)  # rounding decides on later steps
    expected = op.solve(OVERSHOOTING, OVERSHOOTING_DATA, "cpu", np.float64, **options)
    ours = on_gpu(OVERSHOOTING, OVERSHOOTING_DATA, **options)
    assert_same(ours, expected)
    accepted = [r.accepted for r in ours.iterations[1:]]
    assert (False, True) in pairwise(accepted)  # J and g at x again, and then at the candidate
    assert (True, False) in pairwise(accepted) or accepted[0] is False
    held = OVERSHOOTING_DATA["M"]
    np.testing.assert_array_equal(ours.x["x"][held], OVERSHOOTING_DATA["x"][held])


def test_gauss_newton_returns_the_best_point_met(gpu: Device) -> None:
    options: Options = dict(preconditioner="jacobi", method="gn", max_iterations=3)
    expected = op.solve(OVERSHOOTING, OVERSHOOTING_DATA, "cpu", np.float64, **options)
    ours = on_gpu(OVERSHOOTING, OVERSHOOTING_DATA, **options)
    assert max(r.cost for r in ours.iterations) > 1.5 * ours.cost
    assert ours.cost == pytest.approx(expected.cost, rel=1e-9)
    assert ours.cost == pytest.approx(OVERSHOOTING.cost(OVERSHOOTING_DATA | ours.x), rel=1e-12)


def test_a_solve_at_the_precision_of_its_arithmetic_says_so(gpu: Device) -> None:
    """The roundings of the gradient are measured on the host, with products from the device."""
    options: Options = dict(
        function_tolerance=0, cosine_tolerance=0, parameter_tolerance=0, max_iterations=60, preconditioner="jacobi"
    )
    data = arap_data(5, 6)
    ours = on_gpu(WARP, data, np.float32, **options)
    assert ours.status is Status.PRECISION, ours.message


def test_a_candidate_whose_gradient_is_not_finite_is_left_again(gpu: Device) -> None:
    N = op.dims("N")
    n = op.indices(N)
    X, A = op.Unknown("X", (N,)), op.Array("A", (N,))
    pit = op.where(X[n] < 1, op.sqrt(A[n] * X[n]) + 0.01, 0)  # below 1 the gradient is NaN, though the cost is finite
    energy = op.Energy(logs=op.log(X[n] / 1.2), pit=pit)
    data = dict(X=np.full(15, 2.0), A=np.zeros(15))
    result = on_gpu(energy, data, max_iterations=100, initial_radius=1e16)
    assert not result.iterations[1].accepted
    assert result.success, result.message
    np.testing.assert_allclose(result.x["X"], 1.2, rtol=1e-3)


def test_residuals_that_are_not_finite_are_named(gpu: Device) -> None:
    data = OVERSHOOTING_DATA | dict(x=np.where(np.arange(40) == 30, -1e200, 1e200))
    with pytest.raises(op.DataError, match=r"the squares of the term\(s\) pull overflow float64"):
        on_gpu(OVERSHOOTING, data)
    N = op.dims("N")
    X = op.Unknown("X", (N,))
    with pytest.raises(op.DataError, match=r"'logarithm'.* is nan at \[N=2\], component 0; it reads .*\. 1 of its 4"):
        on_gpu(op.Energy(logarithm=op.log(X[op.indices(N)])), dict(X=np.array([1.0, 2, -2, 3])))


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_callbacks_see_the_unknowns_and_may_end_the_solve(gpu: Device) -> None:
    data, seen = arap_data(9, 12), []

    def callback(state: op.IntermediateResult) -> None:
        seen.append((state.iteration.cost, WARP.cost(data | state.x)))
        if len(seen) == 3:
            raise StopIteration("enough")

    result = on_gpu(WARP, data, callback=callback)
    assert result.status is Status.CALLBACK
    assert "enough" in result.message
    assert len(seen) == 3
    for ours, expected in seen:
        assert ours == pytest.approx(expected, rel=1e-12)


# -- sessions --------------------------------------------------------------------------------------------------------


def test_sessions_keep_their_data_on_the_device(gpu: Device) -> None:
    data = arap_data(9, 12)
    solvers = [op.compile(WARP, device, np.float64) for device in ("cuda", "cpu")]
    sessions = [s.start(data, preconditioner="block_jacobi", eta=0.0, linear_iterations=6) for s in solvers]
    changes: list[dict[str, Any]] = [
        {},
        dict(w_reg=1.5),
        dict(Mask=(np.random.default_rng(5).random((9, 12)) < 0.4).astype(np.uint8)),  # other points are solved for
        dict(Angle=np.full((9, 12), 0.3), Constraints=np.flip(data["Constraints"]).copy()),
    ]
    for change in changes:
        for session in sessions:
            if change:
                session.update(**change)
        for _ in range(2):
            ours, theirs = (session.step() for session in sessions)
            assert ours.cost == pytest.approx(theirs.cost, rel=1e-9)
            assert ours.accepted == theirs.accepted
        for name in ("Offset", "Angle"):
            a, b = (session[name] for session in sessions)
            assert type(a) is np.ndarray
            np.testing.assert_allclose(a, b, atol=1e-8)
    result = sessions[0].result()
    assert result.device == "cuda"
    assert gpu.name in repr(result.facts)
    assert gpu.name in result.report()


def test_edges_may_change_and_become_more(gpu: Device) -> None:
    data = mesh_arap_data(4, 5)
    options: Options = dict(preconditioner="block_jacobi", eta=0.0, linear_iterations=6)
    sessions = [op.compile(MESH, device, np.float64).start(data, **options) for device in ("cuda", "cpu")]
    fewer, more = data["edges"][::-1][:-3], np.concatenate([data["edges"], data["edges"][:9]])
    rng = np.random.default_rng(0)
    moved = np.stack([rng.integers(0, 20, len(data["edges"])) for _ in range(2)], axis=1)
    for edges in (data["edges"], moved, fewer, more):
        costs = []
        for session in sessions:
            session.update(edges=edges)
            costs.append([session.step().cost for _ in range(2)])
        np.testing.assert_allclose(np.array(costs[0]), np.array(costs[1]), rtol=1e-9)
    np.testing.assert_allclose(sessions[0]["X"], sessions[1]["X"], atol=1e-8)


def test_benchmarks_run_on_the_device(gpu: Device) -> None:
    session = op.compile(WARP, "cuda", np.float32).start(arap_data(9, 12))
    before = session["Offset"]
    for routine in ("applyJTJ", "evalJTF", "pcg"):
        assert session.benchmark(routine, repeat=2) > 0
    np.testing.assert_array_equal(session["Offset"], before)


# -- which device ----------------------------------------------------------------------------------------------------


def test_auto_takes_the_gpu(gpu: Device) -> None:
    result = op.solve(WARP, arap_data(5, 6), max_iterations=1)
    assert result.device == "cuda"
    assert result.facts["Device"] == f"the GPU {gpu.name} ({gpu.architecture}) is there"


REASON = "no NVIDIA driver is installed (libcuda.so.1 cannot be loaded); install NVIDIA's driver"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "why_unavailable", lambda: REASON)


@pytest.mark.native
def test_auto_without_a_gpu_is_the_cpu_and_says_why(no_gpu: None) -> None:
    result = op.solve(WARP, arap_data(5, 6), max_iterations=1)
    assert result.device == "cpu"
    assert result.facts["Device"] == f"the CPU; no GPU: {REASON}"
    assert REASON in result.report()


def test_cuda_without_a_gpu_is_refused_with_the_reason(no_gpu: None) -> None:
    for act in (lambda: op.compile(WARP, "cuda"), lambda: op.solve(WARP, arap_data(5, 6), "cuda")):
        with pytest.raises(op.OptionError) as caught:
            act()
        assert str(caught.value) == f"device='cuda': {REASON}"


def test_a_preconditioner_of_the_cpu_is_refused(gpu: Device) -> None:
    with pytest.raises(op.OptionError, match="preconditioner='cholesky' runs on the CPU only: use 'auto'"):
        op.solve(WARP, arap_data(5, 6), "cuda", preconditioner="cholesky")


def test_what_does_not_fit_is_refused_with_the_sizes_that_would(emulated: EmulatedDevice) -> None:
    data = arap_data(80, 100)
    emulated.free_bytes = 2**20
    launches = emulated.launches
    with pytest.raises(op.DeviceMemoryError) as caught:
        op.solve(WARP, data, "cuda", np.float64)
    text = str(caught.value)
    assert "1.0 MiB are free on emulated GPU" in text
    assert "sizes H = 80, W = 100" in text
    assert "would fit" in text
    assert emulated.launches == launches
    emulated.free_bytes = 2**30
    assert on_gpu(WARP, data, max_iterations=0).nit == 0


def test_indices_are_as_wide_as_affine_reads_reach(gpu: Device) -> None:
    N, J = op.dims("N J")
    n = op.indices(N)
    X, A = op.Unknown("X", (N,)), op.Array("A", (J,))
    energy = op.Energy(fit=X[n] - op.where(op.in_bounds(1_000_000 * n, of=A), A[1_000_000 * n], 0))
    data = dict(X=np.zeros(5000), A=np.ones(40_000))
    x = op.solve(energy, data, "cuda", np.float64, method="gn").x["X"]
    np.testing.assert_allclose(x, np.arange(5000) == 0, atol=1e-12)
