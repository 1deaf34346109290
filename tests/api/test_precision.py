"""The precision of a solve: that of the unknowns' initial values, or that which is asked for."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix, eye_array
from scipy.sparse.linalg import spsolve

import optpy as op
from optpy import ir
from optpy.api.backend import Backend
from optpy.api.pipeline import cpu_backend

pytestmark = pytest.mark.native

N = op.dims("N")
n = op.indices(N)
X, A = op.Unknown("X", (N,)), op.Array("A", (N,))
w = op.params("w")
LINE = op.Unknown("Line", (), 2)
T, Y = op.Array("T", (N,)), op.Array("Y", (N,))

NOTHING = np.float32(0)
SINCE_1970 = 1.7e9 + np.arange(200)


def fit() -> op.Energy:
    """One unknown, and a second one, to tell which of them decides."""
    b = op.Unknown("b", ())
    return op.Energy(fit=X[n] - A[n] + b[()], small=1e-3 * b[()])


def line() -> op.Energy:
    return op.Energy(fit=LINE[()][0] + LINE[()][1] * (T[n] - 1.7e9) - Y[n])


def line_data() -> dict[str, Any]:
    return dict(Line=[0.0, 0.0], T=SINCE_1970, Y=3 + 0.5 * np.arange(200))


def values(x: Any, b: Any = NOTHING) -> dict[str, Any]:
    return dict(X=x, A=np.arange(3, dtype=np.float32), b=b)


SINGLE = (np.float32, np.float16, np.int8, np.uint8, np.int16, np.uint16, bool)
DOUBLE = (np.float64, np.int32, np.uint32, np.int64, np.uint64, np.longdouble, ">f8")


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        *((np.zeros(3, dtype), "float32") for dtype in SINGLE),
        *((np.zeros(3, dtype), "float64") for dtype in DOUBLE),
        ([0.0, 1.0, 2.0], "float64"),
        ([0, 1, 2], "float64"),
    ],
)
def test_the_precision_is_that_which_holds_the_unknowns(x: Any, expected: str) -> None:
    session = op.compile(fit(), device="cpu").start(values(x))
    assert session.x()["X"].dtype == expected
    assert f"cpu, {expected}" in repr(session)


@pytest.mark.parametrize("b", [0.0, 0, np.zeros(()), np.int64(0)])
def test_one_unknown_in_float64_is_enough(b: Any) -> None:
    result = op.solve(fit(), values(np.zeros(3, np.float32), b), device="cpu")
    assert {x.dtype.name for x in result.x.values()} == {"float64"}
    assert result.facts["Precision"] == "float64, sums in float64"


def test_arrays_that_are_no_unknowns_decide_nothing() -> None:
    data = values(np.zeros(3, np.float32)) | dict(A=np.arange(3.0))
    assert op.solve(fit(), data, device="cpu").facts["Precision"].startswith("float32")


@pytest.mark.tensors
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tensors_of_pytorch_say_their_precision(dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(np.zeros(3, dtype))
    assert op.solve(fit(), values(x), device="cpu").x["X"].dtype == x.dtype


@pytest.mark.parametrize("asked", [np.float32, np.float64])
@pytest.mark.parametrize("given", [np.float32, np.float64])
def test_what_is_asked_for_is_done_whatever_comes(asked: Any, given: Any) -> None:
    assert op.solve(fit(), values(np.zeros(3, given)), "cpu", asked).x["X"].dtype == asked


def test_a_solver_compiles_each_precision_when_it_is_first_met(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def recording(problem: ir.Problem, dtype: str, *arguments: Any) -> Backend:
        compiled.append(dtype)
        return cpu_backend(problem, dtype, *arguments)

    monkeypatch.setattr("optpy.api.compiled.cpu_backend", recording)
    energy = fit()
    solver = op.compile(energy, device="cpu")
    assert (compiled, solver.dtype, solver.timing.total) == ([], None, 0)
    assert re.match(r"<Solver of X .* on cpu in the precision of the data; terms fit, small>", repr(solver))
    for dtype in (np.float32, np.float64, np.float32):
        found = solver.solve(values(np.zeros(3, dtype))).x["X"]
        assert found.dtype == dtype
    assert compiled == ["float32", "float64"]
    assert op.compile(energy, "cpu", np.float32).dtype == np.float32
    assert op.solve(energy, values(np.zeros(3)), "cpu", np.float32).success
    assert compiled == ["float32", "float64"]  # shared by all solvers of an energy
    single, double = (op.compile(energy, "cpu", dtype).timing.total for dtype in compiled)
    assert solver.timing.total == pytest.approx(single + double)


def test_threads_that_solve_at_once_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def slowly(problem: ir.Problem, dtype: str, *arguments: Any) -> Backend:
        compiled.append(dtype)
        time.sleep(0.05)
        return cpu_backend(problem, dtype, *arguments)

    monkeypatch.setattr("optpy.api.compiled.cpu_backend", slowly)
    solver = op.compile(fit(), device="cpu")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: solver.solve(values(np.zeros(3))).success, range(4)))
    assert (found, compiled) == ([True] * 4, ["float64"])


def test_before_there_is_data_the_code_to_look_at_is_that_in_float64() -> None:
    energy = fit()
    solver = op.compile(energy, device="cpu")
    in_double = op.compile(energy, "cpu", np.float64)
    assert solver.source() == in_double.source()
    assert solver.dump("cost", "loops") == in_double.dump("cost", "loops")
    assert solver.routines.keys() == in_double.routines.keys()
    solver.solve(values(np.zeros(3, np.float32)))
    assert solver.source("cost") == in_double.source("cost")  # whatever data there was
    assert op.compile(energy, "cpu", np.float32).source("cost") != solver.source("cost")


def test_a_session_keeps_its_precision() -> None:
    solver = op.compile(fit(), device="cpu")
    session = solver.start(values(np.zeros(3, np.float32)))
    session.update(X=np.array([0.1, 0.2, 0.3]))
    np.testing.assert_array_equal(session["X"], np.array([0.1, 0.2, 0.3], np.float32))
    with pytest.warns(op.PrecisionWarning, match=r"200 distinct values of 'A' become 3 in float32"):
        session.update(X=np.zeros(200), A=SINCE_1970)
    session = solver.start(values(np.zeros(3)))
    session.update(X=np.array([0.1, 0.2, 0.3], np.float32))
    assert session["X"].dtype == np.float64


def test_a_dtype_that_is_none_to_solve_in_is_refused() -> None:
    for wrong in (np.int32, np.float16, "text", complex):
        with pytest.raises(op.OptionError, match=r"use np\.float32 or np\.float64|in float32 or float64"):
            op.compile(fit(), dtype=wrong)


def test_a_line_through_times_since_1970() -> None:
    result = op.solve(line(), line_data(), device="cpu")
    assert result.success
    np.testing.assert_allclose(result.x["Line"], [3, 0.5], rtol=1e-6)


def test_float32_that_was_asked_for_says_what_it_loses() -> None:
    message = (
        r"^200 distinct values of 'T' become 3 in float32: .* from 1700000000\.0 to 1700000199\.0.* steps are 128; "
    )
    with pytest.warns(op.PrecisionWarning, match=message + r"solve with dtype=np\.float64, or subtract an") as caught:
        op.solve(line(), line_data(), "cpu", np.float32)
    assert [w.filename for w in caught] == [__file__]  # at the user's own line


def test_a_stiff_spline_is_that_of_a_direct_solver() -> None:
    points, weight = 5000, 1e4
    a = np.cumsum(np.random.default_rng(0).normal(size=points))
    rows = np.repeat(np.arange(points - 2), 3)
    columns = (np.arange(points - 2)[:, None] + np.arange(3)).ravel()
    D = csr_matrix((np.tile([weight, -2 * weight, weight], points - 2), (rows, columns)), (points - 2, points))
    exact = spsolve((eye_array(points) + D.T @ D).tocsc(), a)
    least = (np.sum((exact - a) ** 2) + np.sum((D @ exact) ** 2)) / 2

    energy = op.Energy(fit=X[n] - A[n], smooth=w * (X[n - 1] - 2 * X[n] + X[n + 1]))
    result = op.solve(energy, dict(X=a, A=a, w=weight), device="cpu")
    assert result.facts["Precision"].startswith("float64")
    assert result.success
    assert least * (1 - 1e-9) <= result.cost <= least * (1 + 1e-6)
    np.testing.assert_allclose(result.x["X"], exact, atol=1e-4 * np.abs(exact).max())
