"""Fits of a few numbers, with default options: right and a success, or at least no success where they are wrong."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
from numpy.typing import NDArray
from scipy.optimize import least_squares

import optpy as op
from bench import nist
from optpy.solver.result import SolveResult, Status
from tests.support.deep import but_deep

pytestmark = pytest.mark.native

Formula = Callable[[Any, Any, Any], Any]
Vector = NDArray[np.float64]

N = op.dims("N")
n = op.indices(N)
T, Y = op.Array("T", (N,)), op.Array("Y", (N,))
NUMPY: Any = SimpleNamespace(exp=np.exp, tanh=np.tanh)


@functools.cache
def energy_of(formula: Formula, unknowns: int) -> op.Energy:
    b = op.Unknown("b", (), unknowns)[()]
    return op.Energy(fit=formula(op, [b[k] for k in range(unknowns)], T[n]) - Y[n])


def fit(formula: Formula, t: Any, y: Vector, start: Sequence[float], **options: Any) -> SolveResult:
    energy = energy_of(formula, len(start))
    return op.solve(energy, dict(b=np.array(start, float), T=t, Y=y), device="cpu", dtype=np.float64, **options)


def best(formula: Formula, t: Any, y: Vector, truth: Sequence[float]) -> Vector:
    """The least squares, from the truth, with unknowns of size 1 and derivatives by imaginary steps."""
    scale = np.array(truth)

    def residuals(u: Any) -> Any:
        return formula(NUMPY, u * scale, t) - y

    def jacobian(u: Any) -> Any:
        return np.stack([residuals(u + 1e-40j * unit).imag / 1e-40 for unit in np.eye(len(u))], axis=1)

    tight = dict(xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=10_000)
    found = least_squares(residuals, np.ones(len(truth)), jacobian, method="lm", **tight)
    return np.asarray(found.x * scale, np.float64)


def digits(found: Any, expected: Vector) -> float:
    return float(-np.log10(np.max(np.abs(found / expected - 1)) + 1e-16))


def data(formula: Formula, t: Any, truth: Sequence[float], noise: float, seed: int = 0) -> Vector:
    return np.asarray(formula(NUMPY, truth, t) + noise * np.random.default_rng(seed).standard_normal(len(t)), float)


# -- curves ------------------------------------------------------------------------------------------------------------


def vapour(m: Any, b: Any, t: Any) -> Any:
    return b[0] * m.exp(b[1] / (t + b[2]))


def peak(m: Any, b: Any, t: Any) -> Any:
    return b[0] / b[1] * m.exp(-0.5 * ((t - b[2]) / b[1]) ** 2)


def saturation(m: Any, b: Any, t: Any) -> Any:
    return b[0] * (1 - m.exp(-b[1] * t))


def exponentials(m: Any, b: Any, t: Any) -> Any:
    return b[0] * m.exp(-b[1] * t) + b[2] * m.exp(-b[3] * t) + b[4] * m.exp(-b[5] * t)


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("options", [{}, pytest.param(dict(max_iterations=20_000), marks=pytest.mark.deep)])
def test_a_long_bent_valley(noise: float, options: dict[str, Any]) -> None:
    """It takes about as many iterations as are made by default."""
    t, truth = np.arange(50.0, 126, 5), (0.0056, 6181.35, 345.22)
    y = data(vapour, t, truth, noise)
    result = fit(vapour, t, y, (2, 400_000, 25_000), **options)
    assert result.success or (result.status is Status.MAX_ITERATIONS and not options), result.message
    assert result.success is (digits(result.x["b"], best(vapour, t, y, truth)) >= 4)


@pytest.mark.parametrize("noise", [0.0, 1e-3, 5e-3])
def test_a_peak_that_is_far_from_where_it_is_looked_for(noise: float) -> None:
    t, truth = 400 + 2.9 * np.arange(35), (1.554, 4.088, 451.5)
    y = data(peak, t, truth, noise)
    result = fit(peak, t, y, (1, 10, 500))
    assert result.success, result.message
    assert digits(result.x["b"], best(peak, t, y, truth)) >= 4


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("start", [(1, 1), (100, 0.75)])
def test_a_plateau_is_no_success(seed: int, start: tuple[float, float]) -> None:
    """Full steps lead from the first start to where the model no longer depends on b[1]."""
    t, truth = np.array([1.0, 2, 3, 5, 7, 10]), (214.0, 0.55)
    y = data(saturation, t, truth, 8.0, seed)
    result = fit(saturation, t, y, start)
    right = digits(result.x["b"], best(saturation, t, y, truth)) >= 4
    assert result.success is right, result.message
    assert right or (result.status is Status.PLATEAU and "b[1]" in result.message)
    assert right or start == (1, 1)


@pytest.mark.parametrize("noise", [0.0, 1e-4])
@pytest.mark.parametrize("start", [(1.2, 0.3, 5.6, 5.5, 6.5, 7.6), (0.5, 0.7, 3.6, 4.2, 4, 6.3)])
def test_three_exponentials(noise: float, start: Sequence[float]) -> None:
    t, truth = 0.05 * np.arange(24), (0.0951, 1, 0.8607, 3, 1.5576, 5)
    y = data(exponentials, t, truth, noise)
    result = fit(exponentials, t, y, start)
    assert result.success, result.message
    assert digits(result.x["b"], best(exponentials, t, y, truth)) >= 4


def polynomial(m: Any, b: Any, t: Any) -> Any:
    return sum(b[k] * t**k for k in range(len(b)))


@pytest.mark.parametrize("preconditioner", ["auto", None])
@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_polynomials_in_years(degree: int, method: str, preconditioner: str | None) -> None:
    """Columns that are nearly the same: the normal equations have lost what tells them apart from degree 3 on."""
    years = np.arange(1950, 2021.0)
    y = 300 + 0.02 * (years - 1985) ** 2 + np.random.default_rng(0).normal(size=71)

    result = fit(polynomial, years, y, (0,) * (degree + 1), method=method, preconditioner=preconditioner)
    _, squares, *_ = np.linalg.lstsq(np.vander((years - 1985) / 35, degree + 1), y, rcond=None)
    assert result.success, result.message
    assert result.cost == pytest.approx(squares[0] / 2, rel=3e-6)


# -- NIST's ------------------------------------------------------------------------------------------------------------

FOLDER = Path(os.environ.get("OPTPY_DATA", "")) / "nist_strd"
NAMES = (
    *("BoxBOD", "Chwirut2", "DanWood", "Gauss1", "Hahn1", "Kirby2", "Lanczos1"),
    *("Lanczos3", "MGH09", "MGH17", "Misra1a", "Misra1c", "Rat42", "Thurber"),
)
HARD = {("BoxBOD", 0), ("MGH17", 0)}
"""Starts from which full steps may lead to a plateau."""


@pytest.mark.parametrize("name", NAMES)
def test_what_nist_certified(name: str) -> None:
    path = FOLDER / f"{name}.dat"
    if not path.is_file():
        pytest.skip(f"there is no {path}; OPTPY_DATA names the folder of the data")
    known = nist.read_fit(path)
    solver = op.compile(known.energy(), device="cpu", dtype=np.float64)
    for start in (0, 1):
        result = solver.solve(known.data(start))
        right = known.digits(result.x["b"]) >= nist.ENOUGH
        assert result.success is right, f"from start {start + 1}: {result.message}"
        assert right or (name, start) in HARD


# -- residuals of zero, and J without full rank ------------------------------------------------------------------------

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
WEIGHTS = np.array([[1, 2, 1], [2, 8, 2], [1, 2, 1]]) / 20


def blurred(at: Callable[[int, int], Any]) -> Any:
    return sum(float(WEIGHTS[a + 1, c + 1]) * at(a, c) for a in (-1, 0, 1) for c in (-1, 0, 1))


BLUR = op.Energy(fit=blurred(lambda a, c: X[i + a, j + c]) - A[i, j])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("at_solution", [False, True])
def test_a_blurred_picture_that_can_be_met_exactly(dtype: Any, method: str, at_solution: bool) -> None:
    sharp = np.random.default_rng(3).uniform(0, 1, (20, 24)).astype(dtype)
    picture = np.zeros_like(sharp)
    picture[1:-1, 1:-1] = blurred(lambda a, c: sharp[1 + a : 19 + a, 1 + c : 23 + c])
    start = sharp if at_solution else np.zeros_like(sharp)
    result = op.solve(BLUR, dict(X=start, A=picture), device="cpu", dtype=dtype, method=method)
    assert result.success, result.message
    eps = float(np.finfo(dtype).eps)
    assert result.cost <= (100 * eps) ** 2 * sharp.size + 1e-16 * float(np.sum(picture**2))
    assert np.abs(result.x["X"]).max() < 10
    if at_solution:
        assert result.nit <= 2
        np.testing.assert_allclose(result.x["X"], sharp, atol=100 * eps)


BOX = op.Energy(fit=sum(X[i + a, j + c] for a in (-1, 0, 1) for c in (-1, 0, 1)) / 9 - A[i, j])


def boxes(size: int, dtype: Any, away: float | None) -> dict[str, Any]:
    """A box filter has no inverse: J^T J is singular to rounding. Starts so far from the solution; None: at 0."""
    rng = np.random.default_rng(size)
    sharp = rng.uniform(0, 1, (size, size)).astype(dtype)
    picture = scipy.ndimage.uniform_filter(sharp.astype(float), 3, mode="constant").astype(dtype)
    start = np.zeros_like(sharp) if away is None else sharp + dtype(away) * rng.normal(size=sharp.shape).astype(dtype)
    return dict(X=start, A=picture)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("size", but_deep([8, 24, 64], (8, 24)))
def test_a_start_that_is_a_solution_is_one_where_j_is_singular(dtype: Any, method: str, size: int) -> None:
    result = op.solve(BOX, boxes(size, dtype, 0.0), device="cpu", method=method)
    assert result.success, result.message
    assert result.nit <= 2


@pytest.mark.optimised  # its solves take longer than the compiler
@pytest.mark.parametrize("preconditioner", ["auto", "multigrid"])
@pytest.mark.parametrize("method", ["lm", "gn"])
@pytest.mark.parametrize("away", [None, 1e-4])
@pytest.mark.parametrize("size", but_deep([8, 16, 24, 64], (8, 16)))
def test_costs_that_have_fallen_to_rounding_are_solved(
    size: int, away: float | None, method: str, preconditioner: str
) -> None:
    data = boxes(size, np.float64, away)
    result = op.solve(BOX, data, device="cpu", method=method, preconditioner=preconditioner)
    # Steps without damping: rounding decides whether one is seen to be too long, and then the message names the cure.
    assert result.success or (method == "gn" and "method='lm'" in result.message), result.message
    assert result.cost <= 1e-16 * (1 if away is None else away**2) * size**2


@pytest.mark.parametrize("preconditioner", ["auto", "multigrid"])
@pytest.mark.parametrize("away", [None, 1e-4])
@pytest.mark.parametrize("size", but_deep([8, 24, 64], (8, 24)))
def test_gauss_newton_does_not_run_on_where_j_is_singular(size: int, away: float | None, preconditioner: str) -> None:
    costs = []
    result = op.solve(
        BOX,
        boxes(size, np.float32, away),
        device="cpu",
        method="gn",
        preconditioner=preconditioner,
        callback=lambda intermediate: costs.append(intermediate.cost),
    )
    assert result.nit <= 10
    assert result.cost == min(costs)
    assert max(costs) < 1e10
    if not result.success:
        assert "float64" in result.message or "method='lm'" in result.message


B, C = op.Unknown("b", (), 3), op.Array("C", (N,), 3)
LINE, STEPS = op.Unknown("L", (N,)), op.Array("D", (N,))
DUPLICATE = op.Energy(fit=op.dot(C[n], B[()]) - Y[n])
DIFFERENCES = op.Energy(d=LINE[n + 1] - LINE[n] - STEPS[n])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["gn", "lm"])
@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_a_column_that_is_there_twice(dtype: Any, method: str, noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(30, 3)).astype(dtype).astype(float)
    columns[:, 2] = columns[:, 1]
    y = columns @ [1, 2, 3] + noise * rng.normal(size=30)
    values = dict(b=rng.normal(size=3), C=columns, Y=y)
    result = op.solve(DUPLICATE, values, device="cpu", dtype=dtype, method=method)
    assert result.success, result.message
    assert np.abs(result.x["b"]).max() < 1e3
    least = y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]
    assert result.cost == pytest.approx(0.5 * float(least @ least), rel=1e-5, abs=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", ["gn", "lm"])
@pytest.mark.parametrize("seed", range(3))
def test_differences_alone(dtype: Any, method: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = dict(L=rng.normal(size=40), D=rng.normal(size=40))
    result = op.solve(DIFFERENCES, values, device="cpu", dtype=dtype, method=method)
    assert result.success, result.message
    assert np.abs(result.x["L"]).max() < 1e3
    np.testing.assert_allclose(np.diff(result.x["L"]), values["D"][:-1], atol=1e-4)


# -- times far from zero -----------------------------------------------------------------------------------------------


def clock(m: Any, b: Any, t: Any) -> Any:
    return b[0] + b[1] * t


def step_in_time(m: Any, b: Any, t: Any) -> Any:
    return b[0] + b[1] * m.tanh((t - b[2]) / b[3])


def times(offset: float, rng: np.random.Generator) -> tuple[Vector, Vector]:
    """And what is left of them without the offset."""
    t = offset + np.sort(rng.uniform(0, 1, 40))
    return t, t - offset


def judge(result: SolveResult, formula: Formula, s: Vector, y: Vector, truth: Sequence[float]) -> None:
    """A success is as good as the fit of the times without their offset."""
    F = formula(NUMPY, best(formula, s, y, truth), s) - y
    assert not result.success or result.cost <= 0.5 * float(F @ F) * (1 + 1e-2), result.message


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e5, 1e6, 1e9])
def test_a_line_through_times_far_from_zero(offset: float) -> None:
    rng = np.random.default_rng(0)
    t, s = times(offset, rng)
    y = data(clock, s, truth := (0.8, 1.3), 0.01)
    judge(fit(clock, t, y, (0, 0)), clock, s, y, truth)


@pytest.mark.parametrize("offset", [1e2, 1e6, 1e9])
def test_a_step_at_a_time_far_from_zero(offset: float) -> None:
    rng = np.random.default_rng(0)
    t, s = times(offset, rng)
    y = data(step_in_time, s, truth := (0.4, 1.2, 0.6, 0.2), 0.01)
    result = fit(step_in_time, t, y, (0.9, 1.0, offset + 0.5, 0.25))
    judge(result, step_in_time, s, y, truth)
