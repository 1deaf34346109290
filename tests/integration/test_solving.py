"""Solves from end to end: known solutions, SciPy's, data of every kind, and what may go wrong."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.sparse.linalg import spsolve

import optpy as op
from optpy.kernels.toolchain.compiler import compile_c
from optpy.solver.result import Status
from tests.support.bound_problem import record_problems
from tests.support.warping import arap_data, arap_energy

pytestmark = pytest.mark.native

ARAP = arap_energy()


def laplacian() -> op.Energy:
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    w = op.params("w")
    return op.Energy(fit=X[i, j] - A[i, j], reg=[w * (X[i, j] - X[i + 1, j]), w * (X[i, j] - X[i, j + 1])])


LAPLACIAN = laplacian()


def noisy(height: int, width: int, dtype: Any = np.float64) -> dict[str, Any]:
    A = np.random.default_rng(height * 1000 + width).normal(size=(height, width)).astype(dtype)
    return dict(X=A.copy(), A=A, w=2.0)


@pytest.mark.parametrize("method", ["gn", "lm"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-9)])
def test_a_linear_energy_has_the_solution_of_the_normal_equations(method: str, dtype: Any, tolerance: float) -> None:
    data = noisy(31, 70)
    options: dict[str, Any] = dict(method=method, eta=0, r_tolerance=1e-12, function_tolerance=1e-14)
    result = op.solve(LAPLACIAN, data, dtype=dtype, **options)
    J = LAPLACIAN.jacobian(data)
    F = np.concatenate([np.ravel(r) for r in LAPLACIAN.residuals(data).values()])
    x = data["X"].ravel() - spsolve((J.T @ J).tocsc(), J.T @ F)
    np.testing.assert_allclose(result.x["X"].ravel(), x, atol=tolerance)
    assert result.x["X"].dtype == dtype
    assert result.cost == pytest.approx(LAPLACIAN.cost(data | {"X": result.x["X"]}), rel=1e-4)
    assert sum(result.cost_by_term.values()) == pytest.approx(result.cost)


def test_a_nonlinear_energy_reaches_the_cost_that_scipy_reaches() -> None:
    data = arap_data(8, 10)
    free = np.concatenate([np.repeat((data["Mask"] == 0).ravel(), n) for n in (2, 1)])
    x0 = np.concatenate([data["Offset"].ravel(), data["Angle"].ravel()])

    def at(v: Any) -> dict[str, Any]:
        x = x0.copy()
        x[free] = v
        return data | dict(Offset=x[:160].reshape(8, 10, 2), Angle=x[160:].reshape(8, 10))

    def residual(v: Any) -> Any:
        return np.concatenate([np.ravel(r) for r in ARAP.residuals(at(v)).values()])

    expected = least_squares(residual, x0[free], lambda v: ARAP.jacobian(at(v)).toarray()[:, free], xtol=1e-12)
    result = op.solve(ARAP, data, dtype=np.float64, max_iterations=200, eta=1e-6, function_tolerance=1e-10)
    assert result.success
    assert result.cost == pytest.approx(expected.cost, rel=1e-5)


def test_a_hundred_sizes_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = laplacian()
    compiled = []

    def counted(source: str, *, name: str, **options: Any) -> Any:
        compiled.append(name)
        return compile_c(source, name=name, **options)

    monkeypatch.setattr("optpy.kernels.runtime.cpu.compile_c", counted)
    for n in range(100):
        height, width = 1 + n % 13, 1 + 7 * n % 83
        result = op.solve(energy, noisy(height, width) | {"w": 1.0 + n}, method="gn", max_iterations=1)
        assert result.x["X"].shape == (height, width)
        assert result.cost <= result.initial_cost
    assert len(compiled) == 1


@pytest.mark.parametrize("method", ["gn", "lm"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("value", [1.0, 0.0])
def test_an_exact_fit_is_a_success(method: str, dtype: Any, value: float) -> None:
    data = noisy(30, 40) | dict(A=np.full((30, 40), value))
    result = op.solve(LAPLACIAN, data, dtype=dtype, method=method)
    assert result.success, result.message
    np.testing.assert_allclose(result.x["X"], value, atol=1e-5)


def test_the_memory_of_a_solve_is_given_back_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record_problems(monkeypatch)
    gc.collect()
    gc.disable()
    try:
        session = op.compile(LAPLACIAN, device="cpu").start(noisy(20, 20))
        session.run()
        buffers = weakref.ref(made.pop().buffers)
        del session
        assert buffers() is None  # by reference counts alone
    finally:
        gc.enable()


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (2, 2)])
def test_tiny_images(shape: tuple[int, int]) -> None:
    assert op.solve(LAPLACIAN, noisy(*shape)).success
    assert op.solve(ARAP, arap_data(*shape)).status is not Status.FAILURE


def test_fixed_elements_keep_their_value_to_the_last_bit() -> None:
    data = arap_data(20, 30)
    data["Offset"] = data["Offset"] + np.pi
    result = op.solve(ARAP, data, dtype=np.float64, max_iterations=5)
    masked = data["Mask"] != 0
    np.testing.assert_array_equal(result.x["Offset"][masked], data["Offset"][masked])
    assert np.abs(result.x["Offset"][~masked] - data["Offset"][~masked]).max() > 0.1


def test_everything_fixed_is_a_solve_with_nothing_to_do() -> None:
    data = arap_data(6, 6) | dict(Mask=np.ones((6, 6), np.uint8))
    result = op.solve(ARAP, data)
    assert result.success
    assert result.nit == 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(np.asfortranarray, id="Fortran order"),
        pytest.param(lambda a: np.repeat(a, 2, axis=0)[::2], id="strided"),
        pytest.param(lambda a: a[::-1][::-1], id="negative strides"),
        pytest.param(lambda a: a.astype(a.dtype.newbyteorder()), id="other byte order"),
    ],
)
def test_arrays_in_any_layout(change: Any) -> None:
    data = noisy(12, 17)
    expected = op.solve(LAPLACIAN, data).x["X"]
    other = {k: change(v) if isinstance(v, np.ndarray) else v for k, v in data.items()}
    np.testing.assert_array_equal(op.solve(LAPLACIAN, other).x["X"], expected)


def test_inputs_are_never_modified_and_may_be_read_only() -> None:
    data = arap_data(9, 9)
    copies = {k: np.copy(v) for k, v in data.items()}
    for value in data.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    op.solve(ARAP, data, max_iterations=3)
    for k, v in copies.items():
        np.testing.assert_array_equal(data[k], v)


def test_a_residual_that_is_not_finite_is_named() -> None:
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X = op.Unknown("X", (H, W))
    energy = op.Energy(smooth=X[i, j] - X[i + 1, j], logs=op.log(X[i, j]))
    x = np.ones((4, 5))
    x[2, 3] = -1
    with pytest.raises(op.DataError) as caught:
        op.solve(energy, dict(X=x))
    for part in ("'logs'", "H=2, W=3", "nan", Path(__file__).name, "op.where"):
        assert part in str(caught.value)


def test_squares_that_overflow_are_named() -> None:
    energy = laplacian()
    with pytest.raises(op.DataError, match=r"fit.* overflow float32"):
        op.solve(energy, noisy(3, 3) | dict(X=np.full((3, 3), 1e30)), dtype=np.float32)


def test_max_time_ends_within_a_long_linear_solve() -> None:
    # Without the limit it would take hours.
    result = op.solve(ARAP, arap_data(200, 200), max_time=0.3, eta=0, linear_iterations=10_000_000)
    assert result.status is Status.TIME_LIMIT
    assert result.cost <= result.initial_cost


def test_a_callback_sees_every_iteration_and_may_end_the_solve() -> None:
    seen = []

    def callback(intermediate_result: Any) -> None:
        seen.append((intermediate_result.nit, intermediate_result.cost, intermediate_result.x["Offset"]))
        if intermediate_result.nit == 2:
            raise StopIteration

    result = op.solve(ARAP, arap_data(10, 10), callback=callback)
    assert result.status is Status.CALLBACK
    assert [n for n, _, _ in seen] == [0, 1, 2] or [n for n, _, _ in seen] == [1, 2]
    np.testing.assert_array_equal(seen[-1][2], result.x["Offset"])


def test_control_c_returns_the_best_so_far() -> None:
    program = textwrap.dedent("""
        import sys, numpy as np, optpy as op
        from tests.support.warping import arap_data, arap_energy
        from optpy.linear.safe_work import SafeWork
        run = SafeWork.run

        def announced(self, work):
            SafeWork.run = run
            print("in a linear solve", flush=True)
            return run(self, work)

        SafeWork.run = announced
        solver = op.compile(arap_energy(), device="cpu", dtype=np.float64)
        options = dict(eta=0, linear_iterations=10_000_000, min_linear_iterations=10_000_000)
        result = solver.solve(arap_data(300, 300), **options)
        print(result.status.name, result.cost <= result.initial_cost, np.isfinite(result.x["Offset"]).all())
    """)
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=root, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in a linear solve\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert out.split() == ["INTERRUPTED", "True", "True"]


def test_solves_in_several_threads_at_once() -> None:
    solver = op.compile(LAPLACIAN, device="cpu")
    expected = [solver.solve(noisy(20, 20 + n)).x["X"] for n in range(4)]
    found: dict[int, Any] = {}
    workers = [
        threading.Thread(target=lambda n=n: found.update({n: solver.solve(noisy(20, 20 + n)).x["X"]})) for n in range(4)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    for n, x in enumerate(expected):
        np.testing.assert_array_equal(found[n], x)


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "optpy.kernels.runtime.cuda.available.cuda_or_reason", lambda: (None, "no GPU: none is plugged in")
    )
    with pytest.raises(op.OptionError, match="device='cuda': none is plugged in"):
        op.solve(LAPLACIAN, noisy(3, 3), device="cuda")
    for device, cure in [
        ("gpu", r"did you mean 'cuda'\?"),
        ("CPU", r"did you mean 'cpu'\?"),
        ("cuda:1", r"cupy\.cuda\.Device\(1\)"),
        ("gn", "by name: method='gn'"),
        (noisy(8, 8), r"a dict is no device.*op\.compile\(energy\)\.solve\(data\)"),
        (None, "no device None; there are: 'auto', 'cpu', 'cuda'$"),
    ]:
        with pytest.raises(op.OptionError, match=cure):
            op.compile(LAPLACIAN, device)  # type: ignore[arg-type]
    with pytest.raises(op.OptionError, match="tpu"):
        op.compile(LAPLACIAN, device="tpu")  # type: ignore[arg-type]
    with pytest.raises(op.OptionError, match="float32 or float64"):
        op.compile(LAPLACIAN, dtype=np.int32)
    assert op.solve(LAPLACIAN, noisy(3, 3)).device == "cpu"


def test_a_report_names_sizes_costs_and_the_cache() -> None:
    text = op.solve(LAPLACIAN, noisy(5, 6)).report()
    for part in ("X: (5, 6)", "H = 5, W = 6", "float64", "fit", "reg", "cpu", "cache"):
        assert part in text


@pytest.mark.tensors
def test_torch_tensors_come_back_as_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    data = noisy(8, 9, np.float32)
    tensors = {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in data.items()}
    result = op.solve(LAPLACIAN, tensors)
    assert isinstance(result.x["X"], torch.Tensor)
    np.testing.assert_array_equal(result.x["X"].numpy(), op.solve(LAPLACIAN, data).x["X"])
