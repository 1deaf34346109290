"""Residuals and Jacobians against plain NumPy, differences and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from scipy.optimize import least_squares

import optpy as op
from optpy.ir import points
from tests.support.random_stencils import Case, cases


def unpacked(energy: op.Energy, data: dict[str, Any], x: NDArray[Any]) -> dict[str, Any]:
    """The data with all unknowns taken from one vector, in the order of the Jacobian's columns."""
    result, start = dict(data), 0
    for u in energy.unknowns:
        old = np.asarray(data[u.name])
        result[u.name] = x[start : start + old.size].reshape(old.shape)
        start += old.size
    return result


def packed(energy: op.Energy, data: dict[str, Any]) -> NDArray[Any]:
    return np.concatenate([np.ravel(data[u.name]) for u in energy.unknowns]).astype(float)


def flat_residuals(energy: op.Energy, data: dict[str, Any]) -> NDArray[Any]:
    return np.concatenate([r.ravel() for r in energy.residuals(data).values()])


def differences(energy: op.Energy, data: dict[str, Any]) -> NDArray[Any]:
    x, h = packed(energy, data), 1e-5
    columns = []
    for e in np.eye(x.size):
        plus, minus = (flat_residuals(energy, unpacked(energy, data, x + s * h * e)) for s in (1, -1))
        columns.append((plus - minus) / (2 * h))
    return np.stack(columns, axis=1)


def fixed_columns(energy: op.Energy, data: dict[str, Any]) -> NDArray[np.bool_]:
    """By the rule of the random energies: X is fixed, if at all, where Mask is 2."""
    masks = []
    for u in energy.unknowns:
        size = np.size(data[u.name])
        fixed = np.zeros(size, bool)
        if u.field in energy.problem.fixed:
            fixed = np.repeat((data["Mask"] == 2).ravel(), u.channels or 1)
        masks.append(fixed)
    return np.concatenate(masks)


@settings(max_examples=30)
@given(cases())
def test_the_jacobian_of_a_random_energy_is_that_of_differences(case: Case) -> None:
    J = case.energy.jacobian(case.data).toarray()
    expected = differences(case.energy, case.data)
    fixed = fixed_columns(case.energy, case.data)
    assert J.shape == expected.shape
    np.testing.assert_allclose(J[:, ~fixed], expected[:, ~fixed], rtol=1e-5, atol=1e-6 * max(1, np.abs(expected).max()))
    np.testing.assert_array_equal(J[:, fixed], 0)


@settings(max_examples=20)
@given(cases())
def test_the_cost_is_half_the_sum_of_squares(case: Case) -> None:
    expected = 0.5 * np.sum(flat_residuals(case.energy, case.data) ** 2)
    assert case.energy.cost(case.data) == pytest.approx(expected)


@settings(max_examples=10)
@given(cases())
def test_slabs_do_not_change_the_result(case: Case) -> None:
    whole, whole_jacobian = case.energy.residuals(case.data), case.energy.jacobian(case.data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(points, "POINTS_AT_A_TIME", 3)
        assert {k: v.tolist() for k, v in case.energy.residuals(case.data).items()} == {
            k: v.tolist() for k, v in whole.items()
        }
        assert (case.energy.jacobian(case.data) != whole_jacobian).nnz == 0


def test_a_laplacian_by_hand() -> None:
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    w = op.params("w")
    energy = op.Energy(fit=X[i, j] - A[i, j], reg=[w * (X[i + 1, j] - X[i, j]), w * (X[i, j] - X[i, j + 1])])
    rng = np.random.default_rng(1)
    x, a = rng.normal(size=(2, 4, 5))
    found = energy.residuals({"X": x, "A": a, "w": 3})
    down, right = np.zeros((2, 4, 5))
    down[:-1], right[:, :-1] = 3 * (x[1:] - x[:-1]), 3 * (x[:, :-1] - x[:, 1:])
    assert list(found) == ["fit", "reg[0]", "reg[1]"]
    np.testing.assert_allclose(found["fit"], x - a)
    np.testing.assert_allclose(found["reg[0]"], down)
    np.testing.assert_allclose(found["reg[1]"], right)
    J = energy.jacobian({"X": x, "A": a, "w": 3})
    assert J.shape == (60, 20)
    assert J.format == "csr"
    np.testing.assert_allclose(J.toarray()[:20], np.eye(20))
    np.testing.assert_allclose(J.toarray()[20:25, :10] @ np.eye(10)[:, :5], -3 * np.eye(5))


def test_strides_and_mirrors_by_hand() -> None:
    N, M = op.dims("N M")
    i = op.indices(N)
    X, Y = op.Unknown("X", (M,)), op.Unknown("Y", (N,))
    energy = op.Energy(stride=X[2 * i + 1] - Y[N - 1 - i])
    data = {"X": np.arange(10.0, 15.0), "Y": np.array([1.0, 2.0, 3.0])}
    # X has 5 elements: index 5 of i = 2 is outside.
    np.testing.assert_allclose(energy.residuals(data)["stride"], [11 - 3, 13 - 2, 0])
    J = energy.jacobian(data).toarray()
    expected = np.zeros((3, 8))
    expected[0, [1, 7]], expected[1, [3, 6]] = (1, -1), (1, -1)
    np.testing.assert_allclose(J, expected)


def test_rows_are_raveled_over_the_domain_then_the_entries_of_a_matrix() -> None:
    N = op.dims("N")
    i = op.indices(N)
    X = op.Unknown("X", (N,), 2)
    x, y = X[i]
    energy = op.Energy(m=op.matrix([[x, y], [2 * x, 3 * y], [x, x]]))
    data = {"X": [[1.0, 2.0], [3.0, 4.0]]}
    assert energy.residuals(data)["m"].shape == (2, 3, 2)
    expected = np.kron(np.eye(2), [[1, 0], [0, 1], [2, 0], [0, 3], [1, 0], [1, 0]])
    np.testing.assert_allclose(energy.jacobian(data).toarray(), expected)


def test_two_reads_of_one_element_add_up() -> None:
    N = op.dims("N")
    i = op.indices(N)
    X = op.Unknown("X", (N,))
    energy = op.Energy(r=3 * X[i] + X[0])
    np.testing.assert_allclose(energy.jacobian({"X": np.zeros(3)}).toarray(), [[4, 0, 0], [1, 3, 0], [1, 0, 3]])


def test_a_global_unknown_is_a_column_of_its_own() -> None:
    N = op.dims("N")
    i = op.indices(N)
    A, b = op.Array("A", (N,)), op.Unknown("b", (), 2)
    energy = op.Energy(line=b[()][0] + b[()][1] * op.value(i) - A[i])
    data = {"A": np.array([1.0, 3.0, 5.0]), "b": np.zeros(2)}
    np.testing.assert_allclose(energy.jacobian(data).toarray(), [[1, 0], [1, 1], [1, 2]])
    np.testing.assert_allclose(energy.residuals(data)["line"], [-1, -3, -5])


def test_a_term_without_indices_is_a_single_residual() -> None:
    b = op.Unknown("b", ())
    energy = op.Energy(r=2 * b[()] - 3)
    assert energy.residuals({"b": 1.0})["r"].shape == ()
    assert energy.cost({"b": 1.0}) == 0.5
    assert energy.jacobian({"b": 1.0}).toarray().tolist() == [[2.0]]


def test_the_arm_that_is_not_taken_never_contributes() -> None:
    N = op.dims("N")
    i = op.indices(N)
    X, Z = op.Unknown("X", (N,)), op.Array("Z", (N,))
    energy = op.Energy(r=op.where(Z[i] > 0, X[i] / Z[i], X[i]), s=op.where(X[i] > 0, op.log(X[i]), 0))
    data = {"X": np.array([-1.0, 0.0, 2.0]), "Z": np.array([0.0, 2.0, 4.0])}
    found = energy.residuals(data)
    np.testing.assert_allclose(found["r"], [-1, 0, 0.5])
    np.testing.assert_allclose(found["s"], [0, 0, np.log(2)])
    J = energy.jacobian(data).toarray()
    np.testing.assert_allclose(J, np.vstack([np.diag([1, 0.5, 0.25]), np.diag([0, 0, 0.5])]))


def test_an_energy_without_derivatives_has_an_empty_jacobian_of_full_shape() -> None:
    N = op.dims("N")
    i = op.indices(N)
    X = op.Unknown("X", (N,))
    energy = op.Energy(r=op.stop_gradient(X[i]), q=op.stop_gradient(op.vector(X[i], 2)))
    J = energy.jacobian({"X": np.arange(1.0, 4)})
    assert J.shape == (9, 3)
    assert J.nnz == 0


def test_stop_gradient_has_a_value_and_no_derivative() -> None:
    N = op.dims("N")
    i = op.indices(N)
    X = op.Unknown("X", (N,))
    energy = op.Energy(r=op.stop_gradient(X[i]) * X[i])
    data = {"X": np.array([3.0])}
    assert energy.residuals(data)["r"].tolist() == [9.0]
    assert energy.jacobian(data).toarray().tolist() == [[3.0]]


def test_scipy_solves_an_energy_by_its_residuals_and_jacobian() -> None:
    N = op.dims("N")
    i = op.indices(N)
    t, y, c = op.Array("t", (N,)), op.Array("y", (N,)), op.Unknown("c", (), 2)
    energy = op.Energy(fit=y[i] - c[()][0] * (1 - op.exp(-c[()][1] * t[i])))
    times = np.linspace(0, 3, 20)
    data = {"t": times, "y": 2.5 * (1 - np.exp(-0.7 * times)), "c": np.array([1.0, 1.0])}
    found = least_squares(
        lambda x: flat_residuals(energy, unpacked(energy, data, x)),
        data["c"],
        jac=lambda x: energy.jacobian(unpacked(energy, data, x)).toarray(),
    )
    np.testing.assert_allclose(found.x, [2.5, 0.7], rtol=1e-6)
    assert found.cost == pytest.approx(energy.cost({**data, "c": found.x}))
