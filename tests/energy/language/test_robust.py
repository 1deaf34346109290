"""Robust losses against SciPy, differences of the cost, and their own definitions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import least_squares

import optpy as op
from tests.support.deep import but_deep
from tests.support.operator_checks import check_everything

pytestmark = pytest.mark.native

Real = NDArray[np.float64]

RHO: dict[str, Callable[[Any], Any]] = {
    "linear": lambda z: z,
    "huber": lambda z: np.where(z <= 1, z, 2 * np.sqrt(z) - 1),
    "soft_l1": lambda z: 2 * z / (np.sqrt(1 + z) + 1),
    "cauchy": np.log1p,
    "arctan": np.arctan,
    "tukey": lambda z: np.where(z <= 1, z * (1 - z + z**2 / 3), 1 / 3),
    "geman_mcclure": lambda z: z / (1 + z),
}
LOSSES = tuple(RHO)
OF_SCIPY = LOSSES[:5]
ROBUST = LOSSES[1:]
SOME = but_deep(LOSSES, ("linear", "huber", "tukey"))
"""Where each loss is an energy of its own: one without an effect, one with two pieces, one that ends."""
OTHERS = [*((loss, np.float64) for loss in ROBUST[1:]), ("huber", np.float32), ("cauchy", np.float32)]

H, W, N = op.dims("H W N")
i, j = op.indices(H, W)
n = op.indices(N)
X = op.Unknown("X", (H, W))
V = op.Unknown("V", (H, W), 3)
A = op.Array("A", (H, W))
B = op.Array("B", (H, W), 3)
Mask = op.Array("Mask", (H, W), dtype=np.uint8)
S = op.Array("S", (H, W))
Y = op.Unknown("Y", (N,))
P = op.Unknown("P", (), 3)
T = op.Array("T", (N,))
Q = op.Array("Q", (N,))
x = op.Unknown("x", ())
s, w = op.params("s w")


def robust_cost(loss: str, r: Any, scale: Any) -> float:
    """The definition; the last axis of r is a block."""
    z = np.sum(np.square(r), axis=-1) / np.square(scale)
    return float(0.5 * np.sum(np.square(scale) * RHO[loss](z)))


def gradient(energy: op.Energy, data: dict[str, Any]) -> Real:
    F = np.concatenate([r.ravel() for r in energy.residuals(data, linearised=True).values()])
    g: Real = energy.jacobian(data).T @ F
    return g


def differences_of_the_cost(energy: op.Energy, data: dict[str, Any], h: float = 1e-5) -> Real:
    found = []
    for u in energy.unknowns:
        start = np.asarray(data[u.name], np.float64)
        for k in range(start.size):
            ends = []
            for sign in (1, -1):
                moved = start.copy()
                moved.ravel()[k] += sign * h
                ends.append(energy.cost({**data, u.name: moved}))
            found.append((ends[0] - ends[1]) / (2 * h))
    return np.array(found)


def curve() -> tuple[Real, Real]:
    """Points of y = exp(-t) + small noise, and a few that lie far off."""
    rng = np.random.default_rng(3)
    t = np.linspace(0, 3, 40)
    y = 1.5 * np.exp(-t) + 0.4 + 0.02 * rng.standard_normal(40)
    y[::9] += 2.0
    return t, y


FIT = P[()][0] * op.exp(-P[()][1] * T[n]) + P[()][2] - Q[n]


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", OF_SCIPY)
def test_cost_gradient_and_solution_are_those_of_scipy(loss: str) -> None:
    t, y = curve()
    energy = op.Energy(fit=op.robust(FIT, loss, scale=s))
    data = dict(P=[1.2, 0.8, 0.5], T=t, Q=y, s=0.1)

    def residual(p: Real) -> Real:
        return np.asarray(p[0] * np.exp(-p[1] * t) + p[2] - y)

    first = least_squares(residual, data["P"], loss=loss, f_scale=0.1, max_nfev=1)
    assert energy.cost(data) == pytest.approx(first.cost, rel=1e-13)
    np.testing.assert_allclose(gradient(energy, data), first.grad, rtol=1e-6)
    theirs = least_squares(residual, data["P"], loss=loss, f_scale=0.1, xtol=1e-15, ftol=1e-15, gtol=1e-13)
    ours = op.solve(energy, data, dtype=np.float64, function_tolerance=1e-15, max_iterations=300)
    assert ours.success
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-10)
    np.testing.assert_allclose(ours.x["P"], theirs.x, rtol=1e-4)
    if loss != "linear":
        np.testing.assert_allclose(ours.x["P"], [1.5, 1.0, 0.4], atol=0.1)  # in spite of the outliers


@pytest.mark.parametrize("loss", ["tukey", "geman_mcclure"])
def test_the_losses_that_forget_outliers_find_the_curve(loss: str) -> None:
    t, y = curve()
    energy = op.Energy(fit=op.robust(FIT, loss, scale=0.2))
    result = op.solve(energy, dict(P=[1.4, 0.9, 0.45], T=t, Q=y), dtype=np.float64, max_iterations=100)
    assert result.success
    np.testing.assert_allclose(result.x["P"], [1.5, 1.0, 0.4], atol=0.04)
    assert result.cost == pytest.approx(
        robust_cost(loss, (result.x["P"][0] * np.exp(-result.x["P"][1] * t) + result.x["P"][2] - y)[:, None], 0.2)
    )


@functools.cache
def with_a_scale(loss: str) -> op.Energy:
    """Of an expression the magnitude counts."""
    return op.Energy(fit=op.robust(V[i, j] - B[i, j], loss, scale=2 * s))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [0.3, 1.0, -2.0])
def test_the_norm_of_a_vector_counts(loss: str, scale: float) -> None:
    rng = np.random.default_rng(1)
    v, b = 2 * rng.standard_normal((2, 2, 3, 3))
    energy = with_a_scale(loss)
    data = dict(V=v, B=b, s=scale / 2)
    assert energy.cost(data) == pytest.approx(robust_cost(loss, v - b, scale), rel=1e-13)
    r = energy.residuals(data)["fit"]
    assert r.shape == (2, 3, 3)
    np.testing.assert_allclose(r / np.linalg.norm(r, axis=-1, keepdims=True),
                               (v - b) / np.linalg.norm(v - b, axis=-1, keepdims=True))  # fmt: skip
    np.testing.assert_allclose(gradient(energy, data), differences_of_the_cost(energy, data), atol=1e-8)
    assert op.check_gradients(energy, data, tolerance=1e-7)


@pytest.mark.parametrize("loss", ROBUST)
def test_the_linearisation_is_the_reweighted_residual(loss: str) -> None:
    """J^T J is rho' times that of the plain residual: no part of it comes from the weight's own derivative."""
    energy, plain = op.Energy(f=op.robust(Y[n] ** 2, loss)), op.Energy(f=Y[n] ** 2)
    y = np.array([0.0, 0.3, 0.9, 1.5, 3.0])
    z, h = y**4, 1e-6
    slope = (RHO[loss](z + h) - RHO[loss](np.maximum(z - h, 0))) / (np.minimum(z, h) + h)
    J, J0 = energy.jacobian({"Y": y}).toarray(), plain.jacobian({"Y": y}).toarray()
    np.testing.assert_allclose(J.T @ J, slope * (J0.T @ J0), atol=1e-5)


# -- routines --------------------------------------------------------------------------------------------------------


@functools.cache
def on_a_grid(loss: str) -> op.Energy:
    """Vectors and single numbers, in every place that a loss may have."""
    return op.Energy(
        fit=op.where(Mask[i, j] != 0, w * op.robust(V[i, j] - B[i, j], loss, scale=S[i, j]), 0),
        reg=[op.robust(V[i, j] - V[i + 1, j], loss, scale=s), op.robust(X[i, j] * X[i, j + 1] - 1, loss, scale=s)],
        plain=0.1 * X[i, j],
    )


@pytest.mark.parametrize(
    ("loss", "dtype"),
    [("huber", np.float64), ("tukey", np.float32), *(pytest.param(*x, marks=pytest.mark.deep) for x in OTHERS)],
)
def test_every_routine_on_a_grid_of_vectors_and_scalars(loss: str, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    energy = on_a_grid(loss)
    for shape in ((1, 1), (3, 4), (2, 19)):
        data: dict[str, Any] = dict(
            X=rng.standard_normal(shape), V=rng.standard_normal((*shape, 3)), B=rng.standard_normal((*shape, 3)),
            Mask=rng.integers(0, 2, shape).astype(np.uint8), S=rng.uniform(0.5, 2, shape), w=0.75, s=0.5,
        )  # fmt: skip
        data = {k: np.float32(v) if k != "Mask" else v for k, v in data.items()}
        check_everything(energy, data, dtype, 1e-11 if dtype is np.float64 else 2e-5)
        if shape == (3, 4):
            np.testing.assert_allclose(gradient(energy, data), differences_of_the_cost(energy, data), atol=1e-7)
            assert op.check_gradients(energy, data, tolerance=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", but_deep(ROBUST, ("huber", "tukey", "soft_l1")))
def test_tiny_and_huge_residuals(loss: str, dtype: Any) -> None:
    energy = op.Energy(f=op.robust(op.vector(x[()], 2 * x[()]), loss, scale=0.5), g=op.robust(x[()], loss))
    solver = op.compile(energy, dtype=dtype)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    for r in (0.0, 1e-30, 1e-6, 1e-3, 0.1, 1.0, 1e4, 1e10, 1e18, 1e20, 1e30):
        session = solver.start({"x": r})
        session.step()
        cost = session.result().initial_cost
        vector, scalar = np.array([r, 2 * r], np.longdouble), np.array([r], np.longdouble)
        expected = robust_cost(loss, vector, np.longdouble(0.5)) + robust_cost(loss, scalar, np.longdouble(1))
        assert cost == pytest.approx(expected, rel=tolerance, abs=1e-40)
        first = session.result().iterations[0]
        assert np.isfinite(first.gradient_norm)
        if r == 0:
            assert first.gradient_norm == 0
    assert energy.jacobian({"x": 0.0}).toarray().ravel().tolist() == [1, 2, 1]  # all weights are 1


def test_huber_takes_full_steps_on_outliers() -> None:
    """Half the step of what the second derivative of r sqrt(rho) / |r| would give, and no overshoot."""
    energy = op.Energy(f=op.robust(x[()] - 10, "huber"), g=2 * x[()])
    result = op.solve(energy, {"x": 0.0}, method="gn", dtype=np.float64, function_tolerance=1e-14)
    assert result.success
    assert result.x["x"] == pytest.approx(0.25, rel=1e-6)  # 4 x = 1
    costs = [record.cost for record in result.iterations]
    assert costs == sorted(costs, reverse=True)


def test_the_model_of_a_step_is_that_of_its_gradient() -> None:
    """With the right model, the decrease of a tiny step is what it predicts."""
    t, y = curve()
    energy = op.Energy(fit=op.robust(FIT, "cauchy", scale=0.1))
    result = op.solve(
        energy, dict(P=[1.2, 0.8, 0.5], T=t, Q=y), dtype=np.float64, initial_radius=1e-6, max_iterations=1
    )
    assert result.iterations[1].tr_ratio == pytest.approx(1, abs=0.01)


# -- how it may be used ----------------------------------------------------------------------------------------------


def test_borders_and_conditions_switch_it_off() -> None:
    energy = op.Energy(
        rule=op.robust(X[i, j] - X[i + 1, j], "cauchy"),
        own=op.where(op.in_bounds(i, j + 1) & (Mask[i, j] == 0), op.robust(X[i, j] - X[i, j + 1], "huber"), 0),
    )
    values, mask = np.arange(12.0).reshape(3, 4) ** 2, np.eye(3, 4, dtype=np.uint8)
    r = energy.residuals(dict(X=values, Mask=mask))
    assert not r["rule"][-1].any()
    assert r["rule"][:-1].all()
    assert not r["own"][:, -1].any()
    np.testing.assert_array_equal(r["own"][:, :-1] != 0, mask[:, :-1] == 0)


@pytest.mark.parametrize("loss", SOME)
def test_an_arm_that_is_not_taken_may_be_infinite(loss: str) -> None:
    energy = op.Energy(
        inner=op.robust(op.where(Y[n] > 0, 1 / Y[n], 0), loss), outer=op.where(Y[n] > 0, op.robust(1 / Y[n], loss), 0)
    )
    data = {"Y": np.array([0.0, 2.0, -1.0, 0.5])}
    check_everything(energy, data)
    for r in energy.residuals(data).values():
        np.testing.assert_array_equal(r != 0, [False, True, False, True])
    np.testing.assert_array_equal(gradient(energy, data) == 0, [True, False, True, loss == "tukey"])


def test_arms_of_where_may_be_robust_plain_or_nested() -> None:
    near, far = op.robust(Y[n] - 1, "huber"), op.robust(Y[n], "tukey", scale=3)
    energy = op.Energy(f=op.where(T[n] > 0, op.where(T[n] > 1, near, far), 5 * Y[n]))
    y = np.array([3.0, 2.0, 0.1])
    expected = [np.sqrt(2 * 2.0 - 1), 3 * np.sqrt(RHO["tukey"](4 / 9)), 0.5]
    np.testing.assert_allclose(energy.residuals(dict(Y=y, T=[2.0, 0.5, -1.0]))["f"], expected)
    constant = op.Energy(f=op.where(T[n] > 0, near, 7))
    np.testing.assert_allclose(constant.residuals(dict(Y=y, T=[1.0, 0.0, 0.0]))["f"], [np.sqrt(3), 7, 7])


def test_a_factor_without_unknowns_multiplies_the_residual() -> None:
    plain, scaled = op.Energy(f=op.robust(Y[n], "cauchy")), op.Energy(f=-op.robust(Y[n], "cauchy") * w / T[n])
    y = np.array([0.5, -4.0])
    np.testing.assert_allclose(
        scaled.residuals(dict(Y=y, w=3.0, T=[2.0, 4.0]))["f"], -plain.residuals({"Y": y})["f"] * [1.5, 0.75]
    )
    data = dict(Y=y, w=3.0, T=[2.0, 4.0])
    np.testing.assert_allclose(gradient(scaled, data), differences_of_the_cost(scaled, data), atol=1e-9)


def test_plain_and_robust_entries_side_by_side() -> None:
    u = V[i, j]
    energy = op.Energy(
        mixed=[op.vector(op.robust(u[0], "huber"), u[1], *op.robust(u - 1, "cauchy")), u[2]],
        reversed=op.robust(u, "arctan")[::-1],
        each=op.vector(*(op.robust(e, "soft_l1") for e in u)),
        matrix=op.robust(op.matrix([u, 2 * u]), "huber"),
    )
    v = np.random.default_rng(0).standard_normal((2, 2, 3)) * 2
    expected = (
        robust_cost("huber", v[..., :1], 1) + 0.5 * np.sum(v[..., 1:] ** 2) + robust_cost("cauchy", v - 1, 1)
        + robust_cost("arctan", v, 1) + robust_cost("soft_l1", v[..., None], 1)
        + robust_cost("huber", np.concatenate([v, 2 * v], axis=-1), 1)
    )  # fmt: skip
    assert energy.cost({"V": v}) == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(gradient(energy, {"V": v}), differences_of_the_cost(energy, {"V": v}), atol=1e-7)


def test_a_scale_held_constant_moves_the_cost_but_not_the_weights_of_an_iteration() -> None:
    energy = op.Energy(f=op.robust(Y[n], "cauchy", scale=op.stop_gradient(1 + op.abs(Y[n]))))
    y = np.array([0.5, 3.0])
    z = (y / (1 + y)) ** 2
    assert energy.cost({"Y": y}) == pytest.approx(float(np.sum(0.5 * (1 + y) ** 2 * np.log1p(z))))
    np.testing.assert_allclose(gradient(energy, {"Y": y}), y / (1 + z))
    assert op.check_gradients(energy, {"Y": y})


def test_it_can_be_looked_at() -> None:
    energy = op.Energy(f=op.robust(Y[n] - T[n], "geman_mcclure", scale=s))
    f = energy.to_sympy("f")
    given = {"Y": 3.0, "T": 1.0, "s": 0.5}
    values = {
        symbol: value for symbol in f.free_symbols for name, value in given.items() if str(symbol).startswith(name)
    }
    value = f.replace(lambda e: type(e).__name__ == "stop_gradient", lambda e: e.args[0]).subs(values)
    assert float(value) == pytest.approx(0.5 * np.sqrt(16 / 17))
    assert "f" in energy._repr_latex_()
    assert "robust_geman_mcclure" in repr(op.robust(Y[n], "geman_mcclure"))


@pytest.mark.parametrize("loss", SOME)
def test_a_scale_of_0_is_found_when_the_solve_starts(loss: str) -> None:
    energy = op.Energy(f=op.robust(Y[n], loss, scale=T[n]))
    for zero in (0.0, 1e-30):  # or its square in float32
        with pytest.raises(op.DataError, match=r"the residual 'f' .* is (nan|-?inf)"):
            op.solve(energy, dict(Y=[1.0, 2.0], T=[1.0, zero]), dtype=np.float32)


@pytest.mark.parametrize("value", [0.0, -0.5, np.nan, np.inf])
def test_a_param_that_is_the_scale_is_positive_and_finite(value: float) -> None:
    energy = op.Energy(f=[Y[n], op.robust(Y[n], "huber", scale=s)])
    message = r"'s' .*it is the scale of a robust loss in 'f\[1\]'"
    with pytest.raises(op.DataError, match=message):
        energy.cost(dict(Y=[1.0], s=value))
    session = op.compile(energy, device="cpu").start(dict(Y=[1.0], s=1.0))
    with pytest.raises(op.DataError, match=message):
        session.update(s=value)
    other = op.Energy(f=op.robust(Y[n], "huber", scale=s) * w)
    assert np.isfinite(other.cost(dict(Y=[1.0], s=1.0, w=-1.0)))  # other params may be negative


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_scale_whose_square_overflows_leaves_residuals_as_they_are(dtype: Any) -> None:
    large = 1e30 if dtype is np.float32 else 1e200
    data = dict(V=np.ones((2, 2, 3)), B=np.arange(12.0).reshape(2, 2, 3))
    plain = op.solve(op.Energy(f=V[i, j] - B[i, j]), data, dtype=dtype)
    for scale, given in ((s, {"s": large}), (large, {})):
        terms: dict[str, Any] = {loss: op.robust(V[i, j] - B[i, j], loss, scale=scale) for loss in LOSSES}
        solver = op.compile(op.Energy(**terms), dtype=dtype)
        start = solver.solve({**data, **given}, max_iterations=0)
        assert list(start.cost_by_term.values()) == pytest.approx([plain.initial_cost] * len(LOSSES), rel=1e-6)
        result = solver.solve({**data, **given})
        assert result.success
        np.testing.assert_allclose(result.x["V"], data["B"], atol=1e-5)


@pytest.mark.parametrize("loss", SOME)
def test_a_scale_whose_square_vanishes_is_refused(loss: str) -> None:
    for scale, given in ((s, {"s": 1e-30}), (1e-30, {})):
        energy = op.Energy(f=op.robust(Y[n], loss, scale=scale))
        data = {"Y": [1.0, -1.0], **given}
        with pytest.raises(op.DataError, match=r"square vanishes in float32.*'f'.*np\.float64"):
            op.solve(energy, data, dtype=np.float32)
        expected = robust_cost(loss, np.ones((2, 1)), 1e-30)
        start = op.compile(energy, device="cpu", dtype=np.float64).start(data)
        start.step()
        assert start.result().initial_cost == pytest.approx(expected, rel=1e-12)
        assert energy.cost(data) == pytest.approx(expected, rel=1e-12)
