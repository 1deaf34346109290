from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse import csc_matrix
from scipy.sparse import random as random_sparse

import optpy as op
from optpy.energy import gradient_check
from optpy.energy.evaluation import bound_jacobian
from optpy.energy.gradient_check import independent_columns
from tests.energy.random_energies import Case, cases

N = op.dims("N")
i = op.indices(N)
X, V = op.Unknown("X", (N,)), op.Unknown("V", (N,), 2)


@settings(max_examples=25)
@given(cases())
def test_random_energies_pass(case: Case) -> None:
    report = op.check_gradients(case.energy, case.data, tolerance=1e-5)
    assert report, str(report)


def test_a_wrong_derivative_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = op.Energy(good=X[i] ** 3, bad=[V[i], X[i] * V[i][1]])

    def wrong(*args: Any) -> Any:
        J = bound_jacobian(*args).tolil()
        # Rows: 3 of good, 6 of bad[0], then bad[1]; columns: 3 of X, then V.
        J[9 + 2, 3 + 5] += 0.5
        return J.tocsr()

    monkeypatch.setattr(gradient_check, "bound_jacobian", wrong)
    report = op.check_gradients(energy, {"X": np.array([1.0, 2.0, 3.0]), "V": np.ones((3, 2))})
    assert not report
    assert not report.passed
    worst = report.worst["bad[1]"]
    assert (worst.residual, worst.row, worst.unknown, worst.column) == ("bad[1]", (2, 0), "V", (2, 1))
    assert worst.symbolic == pytest.approx(3.5)
    assert worst.numeric == pytest.approx(3.0)
    assert report.max_error == pytest.approx(0.5 / 3.5)
    assert report.worst["good"].error < 1e-9
    assert "DISAGREE" in str(report)
    assert "bad[1][2, 0] by V[2, 1]: symbolic 3.5" in str(report)


def test_a_jump_is_a_disagreement() -> None:
    energy = op.Energy(r=op.floor(X[i]) + op.where(X[i] > 1, 1, 0))
    report = op.check_gradients(energy, {"X": np.array([1.0])})
    assert not report
    assert report.worst["r"].symbolic == 0


@pytest.mark.parametrize(
    ("residual", "at", "agrees", "symbolic", "numeric"),
    [
        (op.abs(X[i]), 0.0, True, 0.0, 0.0),
        (op.maximum(X[i], 0), 0.0, False, 1.0, 0.5),
        (op.where(X[i] > 0, X[i], 3 * X[i]), 0.0, False, 3.0, 2.0),
        (op.abs(X[i]), 1e-2, True, 1.0, 1.0),
        (op.abs(X[i]), 1e-5, False, 1.0, None),
    ],
)
def test_at_a_kink_differences_are_the_mean_slope(
    residual: op.Expression, at: float, agrees: bool, symbolic: float, numeric: float | None
) -> None:
    report = op.check_gradients(op.Energy(r=residual), {"X": np.array([at])})
    assert bool(report) is agrees
    assert report.worst["r"].symbolic == symbolic
    if numeric is not None:
        assert report.worst["r"].numeric == pytest.approx(numeric)


def test_a_dependence_that_the_derivative_denies_is_a_disagreement() -> None:
    energy = op.Energy(r=op.where(X[i] > 1, 1, 2) + V[i][0])
    report = op.check_gradients(energy, {"X": np.array([1.0]), "V": np.ones((1, 2))})
    assert not report
    assert report.worst["r"].unknown is None
    assert "should not depend" in str(report)


def test_what_is_stopped_is_constant_in_the_differences_too() -> None:
    energy = op.Energy(r=op.stop_gradient(op.exp(X[i])) * X[i] ** 2)
    assert op.check_gradients(energy, {"X": np.array([0.5, 1.5])}, tolerance=1e-9)


def test_fixed_elements_are_left_alone() -> None:
    energy = op.Energy(r=X[i] ** 2, fixed={X: op.value(i) == 0})
    report = op.check_gradients(energy, {"X": np.array([5.0, 1.0])})
    assert report
    assert report.worst["r"].column == (1,)


def test_columns_of_a_group_share_no_row() -> None:
    J = csc_matrix(random_sparse(30, 40, density=0.1, random_state=np.random.default_rng(0)))
    groups = list(independent_columns(J, np.arange(40)))
    assert sorted(np.concatenate(groups)) == list(range(40))
    for g in groups:
        assert (np.diff(J[:, g].tocsr().indptr) <= 1).all()
    assert len(groups) < 20


def test_an_unknown_on_a_graph_without_edges_is_nothing_to_change() -> None:
    V, E = op.dims("V E")
    v, e = op.indices(V, E)
    X, U, R = op.Unknown("X", (V,)), op.Unknown("U", (E,)), op.Unknown("R", (E,), op.SO3)
    (a,) = op.Graph("g", E, (V,))[e]
    energy = op.Energy(edge=R[e] @ op.vector(X[a], U[e], 1), fit=X[v] - 1)
    data = dict(X=np.zeros(3), U=np.zeros(0), R=np.zeros((0, 4)), g=np.zeros((0, 1), np.int32))
    assert op.check_gradients(energy, data).passed
