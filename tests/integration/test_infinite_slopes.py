"""A derivative that is not finite at the start is told by name, place, what was read there, and the cure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op

pytestmark = pytest.mark.native

H, W, N, E = op.dims("H W N E")
i, j = op.indices(H, W)
n, e = op.indices(N, E)
X, Y, V = op.Unknown("X", (H, W)), op.Unknown("Y", (N,)), op.Unknown("V", (N,), 2)
R = op.Unknown("R", (N,), op.SO3)
A = op.Array("A", (N,))
w = op.params("w")
a, b = op.Graph("edges", E, (N, N))[e]

LINE = np.array([4.0, 1.0, 0.0, 9.0])
POINTS = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]])
TURN = np.tile([0.0, 0.0, 0.0, 1.0], (2, 1))

CASES: dict[str, tuple[op.Energy, dict[str, Any], list[str]]] = {
    "root": (
        op.Energy(fit=Y[n] - 1, pull=op.sqrt(Y[n] * A[n]) - 2),
        dict(Y=LINE, A=np.ones(4)),
        ["derivative of the residual 'pull'",
         "by Y[2] is inf at [N=2], component 0", "square root of 0 has no finite",
         "it reads A[2] = 1, Y[2] = 0. ", "1 of its 4 derivatives",
         "op.sqrt(x + 1e-12)", "op.where", "start elsewhere"],
    ),
    "grid": (
        op.Energy(fit=w * op.sqrt(op.abs(X[i, j])) - 1),
        dict(X=np.pad(np.zeros((2, 1)), ((1, 0), (2, 1)), constant_values=1.0), w=2.0),
        ["'fit'", "by X[1, 2]", "[H=1, W=2]", "square root of 0", "2 of its 12"],
    ),
    "norm": (
        op.Energy(length=op.norm(V[n]) - 5),
        dict(V=POINTS),
        ["'length'", "by V[0][0] is nan at [N=0]", "norm of a zero vector", "V[0][0] = 0, V[0][1] = 0",
         "op.sqrt(op.dot(v, v) + 1e-12)"],
    ),
    "edges": (
        op.Energy(reg=op.norm(V[a] - V[b]) - 1),
        dict(V=POINTS, edges=[[0, 1], [1, 2]]),
        ["'reg'", "by V[1][0]", "[E=1]", "norm of a zero vector", "V[1][0] = 3", "V[2][1] = 4"],
    ),
    "hypot": (
        op.Energy(length=op.hypot(V[n][0], V[n][1]) - 5),
        dict(V=POINTS),
        ["'length'", "by V[0][0] is nan", "hypot of 0 and 0 has no finite"],
    ),
    "arccosine": (
        op.Energy(angle=op.acos(Y[n])), dict(Y=[0.5, 1.0]), ["by Y[1] is -inf", "acos of 1", "start elsewhere"],
    ),
    "power": (op.Energy(fit=Y[n] ** 0.25 - 1), dict(Y=[1.0, 0.0]), ["by Y[1] is inf", "0 ** 0.25"]),
    "quotient": (
        op.Energy(fit=A[n] / op.floor(Y[n]) * 0 + op.where(A[n] > 0, Y[n], A[n] * op.sqrt(Y[n]))),
        dict(Y=[1.5, 1.0, 2.0, 3.0], A=np.array([1.0, 1.0, 1.0, 1.0])),
        [],
    ),
    "robust": (
        op.Energy(fit=op.robust(op.sqrt(Y[n]) - 3, "huber", scale=0.5)), dict(Y=[0.0]), ["by Y[0]", "square root of 0"],
    ),
    "manifold": (
        op.Energy(fit=op.norm(R[n] @ [1, 0, 0] - [1, 0, 0]) - 1),
        dict(R=TURN),
        ["'fit'", "by coordinate", "of R[0]", "norm of a zero vector"],
    ),
    "not the arm that is not taken": (
        op.Energy(fit=op.where(A[n] > 0, op.sqrt(Y[n]), op.cbrt(Y[n])) - 1),
        dict(Y=[1.0, 0.0], A=[1.0, -1.0]),
        ["by Y[1]", "cbrt of 0"],
    ),
    "not what is fixed": (
        op.Energy(fit=op.sqrt(Y[n]) - op.sqrt(A[n] * Y[n]), fixed={Y: op.value(n) == 0}),
        dict(Y=[0.0, 1.0, 0.0], A=[1.0, 1.0, 2.0]),
        ["by Y[2]", "1 of its 2"],
    ),
}  # fmt: skip


PAIRS = [(name, dtype) for name in CASES for dtype in (np.float32, np.float64)]
IN_EVERY_RUN = {PAIRS[2 * k + k % 2] for k in range(len(CASES))} | {
    ("root", np.float64),
    ("not what is fixed", np.float32),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [p if p in IN_EVERY_RUN else pytest.param(*p, marks=pytest.mark.deep) for p in PAIRS]
)
def test_the_place_the_operation_and_the_cure_are_told(name: str, dtype: Any) -> None:
    check(name, dtype, "cpu")


def check(name: str, dtype: Any, device: Any) -> None:
    energy, data, parts = CASES[name]
    if not parts:
        op.solve(energy, data, device=device, dtype=dtype, max_iterations=1)
        return
    with pytest.raises(op.DataError) as caught:
        op.solve(energy, data, device=device, dtype=dtype)
    message = str(caught.value)
    assert "test_infinite_slopes.py:" in message
    for part in parts:
        assert part in message, message


def test_a_session_tells_it_at_its_first_step_and_goes_on_after_an_update() -> None:
    energy, data, _ = CASES["root"]
    session = op.compile(energy, "cpu", np.float64).start(data)
    for _ in range(2):
        with pytest.raises(op.DataError, match=r"by Y\[2\] is inf"):
            session.step()
    session.update(Y=LINE + 1)
    session.run()
    assert session.status.success
    session.update(Y=LINE)
    with pytest.raises(op.DataError, match=r"by Y\[2\] is inf"):
        session.run()


def test_a_slope_met_later_is_no_error() -> None:
    """Of x - 3 + sqrt(x), whose minimum lies at the end of where it is defined."""
    result = op.solve(op.Energy(fit=Y[n] + op.sqrt(Y[n]) + 1), dict(Y=[2.0]), device="cpu", dtype=np.float64)
    assert result.cost < result.initial_cost


def test_derivatives_that_do_not_fit_the_precision() -> None:
    energy = op.Energy(fit=op.sqrt(Y[n] * w) - 1, weak=1e-3 * Y[n])
    data = dict(Y=[1e-38], w=1e-38)
    with pytest.raises(op.DataError, match=r"does not fit float32|is rounded to 0 there") as caught:
        op.solve(energy, data | dict(w=1e-38), device="cpu", dtype=np.float32)
    assert "dtype=np.float64" in str(caught.value)
    assert op.solve(energy, data, device="cpu", dtype=np.float64, max_iterations=1).nit == 1


@pytest.mark.optimised  # which product overflows depends on the order that the compiler chooses
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_gradient_that_overflows_though_every_derivative_is_finite(dtype: Any) -> None:
    """J = w, F = w Y: F and its square fit, and w^2 Y does not."""
    w_ = float(dtype(1e3 * np.sqrt(np.finfo(dtype).max)))  # exact, so that no rounding is told of
    with pytest.raises(op.DataError) as caught:
        op.solve(op.Energy(fit=w * Y[n]), dict(Y=[0.0, 5e-4], w=w_), device="cpu", dtype=dtype)
    message = str(caught.value)
    assert "very derivative is finite" in message
    assert "by Y[1] is" in message or "by Y[0] is" in message
    assert f"overflows {np.dtype(dtype).name}" in message
    assert "Scale the energy" in message
    assert ("dtype=np.float64" in message) is (dtype == np.float32)
