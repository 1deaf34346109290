from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.sparse import csc_matrix
from scipy.sparse import random as random_sparse

import optpy as op
from optpy.energy.check import gradient_check
from optpy.energy.check.gradient_check import independent_columns
from optpy.energy.check.jacobian import bound_jacobian
from tests.support.deep import but_deep
from tests.support.random_stencils import Case, cases

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
    assert "DISAGREE" in str(report)
    with pytest.raises(AssertionError, match="DISAGREE"):
        op.check_gradients(energy, {"X": np.array([1.0])}, raise_exception=True)


@pytest.mark.parametrize(
    ("residual", "at", "agrees", "symbolic", "numeric"),
    [
        (op.abs(X[i]), 0.0, True, 0.0, 0.0),
        (op.maximum(X[i], 0), 0.0, False, 1.0, 0.5),
        (op.where(X[i] > 0, X[i], 3 * X[i]), 0.0, False, 3.0, 2.0),
        (op.abs(X[i]), 1e-2, True, 1.0, 1.0),
        (op.abs(X[i]), 1e-5, True, 1.0, 1.0),  # a shorter step does not reach the kink
    ],
)
def test_at_a_kink_differences_are_the_mean_slope(
    residual: op.Expression, at: float, agrees: bool, symbolic: float, numeric: float
) -> None:
    report = op.check_gradients(op.Energy(r=residual), {"X": np.array([at])})
    assert bool(report) is agrees
    assert report.worst["r"].symbolic == symbolic
    assert report.worst["r"].numeric == pytest.approx(numeric)
    assert report.worst["r"].verdict == ("agrees" if agrees else "disagrees")


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


# -- rounding --------------------------------------------------------------------------------------------------------


@functools.cache
def polyline(turned: bool) -> op.Energy:
    """The lengths of its edges; all may be turned by one rotation."""
    V, E = op.dims("V E")
    e = op.indices(E)
    P, L, R = op.Unknown("P", (V,), 3), op.Array("L", (E,)), op.Array("R", (), 3)
    a, b = op.Graph("g", E, (V, V))[e]
    ends = [op.rotate_axis_angle(R[()], P[k]) if turned else P[k] for k in (a, b)]
    return op.Energy(stretch=op.norm(ends[0] - ends[1]) - L[e])


def edges_far_away(length: float, turned: bool = False) -> tuple[op.Energy, dict[str, Any]]:
    """A polyline at 1e6 of edges of some length; where all is turned by one rotation, lengths are rounded."""
    places = 1e6 + length * np.random.default_rng(0).normal(size=(8, 3))
    n = np.arange(7)
    data = dict(P=places, L=np.full(7, length), g=np.stack([n, n + 1], axis=1), R=[0.3, 0.4, 0.5])
    return polyline(turned), data if turned else {k: data[k] for k in ("P", "L", "g")}


def wrong_by(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_check, "bound_jacobian", lambda *args: bound_jacobian(*args) * factor)


@pytest.mark.parametrize("length", [1e-3, 1e-5, 1e-7])
def test_tiny_edges_with_large_coordinates_agree(length: float) -> None:
    """Steps as long as the coordinates ask for are far longer than the edges, and tell of nothing."""
    report = op.check_gradients(*edges_far_away(length))
    assert report, str(report)
    assert report.max_error < 1e-10


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0001])
@pytest.mark.parametrize("length", [1e-3, 1e-5, 1e-7])
def test_wrong_derivatives_of_tiny_edges_disagree(
    length: float, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy, data = edges_far_away(length)
    wrong_by(factor, monkeypatch)
    report = op.check_gradients(energy, data)
    assert report.worst["stretch"].verdict == "disagrees"
    assert "DISAGREE" in str(report)


@pytest.mark.parametrize("length", but_deep([1e-3, 1e-5], (1e-5,)))
def test_what_rounding_hides_is_not_decidable_and_what_it_does_not_is(
    length: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy, data = edges_far_away(length, turned=True)
    report = op.check_gradients(energy, data)
    worst = report.worst["stretch"]
    assert not report
    assert worst.verdict == "undecided"
    assert report.tolerance < worst.error <= worst.uncertainty
    assert "are not decidable at this point: rounding of the residual" in str(report)
    assert "DISAGREE" not in str(report)
    assert op.check_gradients(energy, data, tolerance=0.05)
    for factor in (0.0, 0.5):
        with monkeypatch.context() as patch:
            wrong_by(factor, patch)
            assert op.check_gradients(energy, data).worst["stretch"].verdict == "disagrees"


@pytest.mark.parametrize("factor", [0.0, 1.0])
def test_differences_that_rounding_has_wiped_out_agree_with_nothing(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F is the same at all points near by: so it would be if the derivative were 0, which it is not."""
    A = op.Array("A", (N,))
    wrong_by(factor, monkeypatch)
    report = op.check_gradients(op.Energy(r=op.sqrt((X[i] + A[i]) ** 2)), dict(X=np.ones(2), A=np.full(2, 1e17)))
    assert not report
    assert report.worst["r"].verdict == "undecided"


def test_a_disagreement_is_told_before_what_is_not_decidable(monkeypatch: pytest.MonkeyPatch) -> None:
    energy, data = edges_far_away(1e-3, turned=True)

    def wrong(*args: Any) -> Any:
        J = bound_jacobian(*args).tolil()
        J[3] *= 0.99
        return J.tocsr()

    monkeypatch.setattr(gradient_check, "bound_jacobian", wrong)
    report = op.check_gradients(energy, data)
    assert (report.worst["stretch"].verdict, report.worst["stretch"].row) == ("disagrees", (3, 0))
    assert "DISAGREE" in str(report)
    assert "not decidable" not in str(report)


# -- what is too small to show ---------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[Any], Any]] = {"tanh": op.tanh, "sin": op.sin, "bell": lambda z: op.exp(-z * z)}


@functools.cache
def small_shape(shape: str) -> op.Energy:
    """A shape of height B and width 1 / C on a large constant: seen over no step where its height is rounded away."""
    A, B, C = (op.Array(name, (N,)) for name in "ABC")
    return op.Energy(t=A[i] + B[i] * SHAPES[shape](C[i] * X[i]))


def random_points(seed: int, count: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        a, b, c = 10 ** rng.uniform((4, -9, 4), (10, -4, 10))
        yield {"A": np.array([a]), "B": np.array([b]), "C": np.array([c]), "X": 0.5 * rng.normal(size=1) / c}


def with_an_ordinary_point(data: dict[str, Any]) -> dict[str, Any]:
    return {k: np.append(x, {"A": 0.0, "B": 1.0, "C": 1.0, "X": 0.3}[k]) for k, x in data.items()}


@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize("shape", but_deep(SHAPES, ("sin",)))
def test_the_report_on_a_point_does_not_depend_on_others(
    shape: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = small_shape(shape)

    def wrong_at_the_first(*args: Any) -> Any:
        J = bound_jacobian(*args).tolil()
        J[0] *= factor
        return J.tocsr()

    monkeypatch.setattr(gradient_check, "bound_jacobian", wrong_at_the_first)
    undecided = 0
    for data in random_points(0, 20):
        alone = op.check_gradients(energy, data).worst["t"]
        beside = op.check_gradients(energy, with_an_ordinary_point(data)).worst["t"]
        assert beside.verdict == alone.verdict, data
        if beside.row == (0, 0):
            assert beside == alone
        undecided += alone.verdict == "undecided"
    assert undecided > 2


@pytest.mark.parametrize("shape", but_deep(SHAPES, ("tanh",)))
def test_right_derivatives_of_what_is_too_small_to_show_do_not_disagree(shape: str) -> None:
    energy = small_shape(shape)
    found = [op.check_gradients(energy, data).worst["t"] for data in random_points(1, 60)]
    assert {w.verdict for w in found} == {"agrees", "undecided"}
    assert all(w.error <= w.uncertainty for w in found if w.verdict == "undecided" and w.error > 1e-3)


def test_a_point_that_differences_do_not_see_is_undecided() -> None:
    data = {"A": [1.139e8], "B": [1.162e-7], "C": [8.94e8], "X": [-2.48e-10]}
    for d in (data, with_an_ordinary_point(data)):
        report = op.check_gradients(small_shape("tanh"), d)
        assert (report.worst["t"].verdict, report.worst["t"].row) == ("undecided", (0, 0))
        assert report.worst["t"].symbolic == pytest.approx(98.94, rel=1e-3)


ORDINARY = {
    "cubic": X[i] ** 3 + X[i],
    "steep": op.sin(1000 * X[i]),
    "far": 1e6 + op.sin(X[i]),
    "far and steep": 1e6 + op.sin(100 * X[i]),
    "far and flat": 1e8 + X[i] ** 2,
    "kinks": 1e3 + op.maximum(X[i], 1) * X[i],
}


@pytest.mark.parametrize("name", ORDINARY)
def test_derivatives_that_are_wrong_by_a_random_factor_disagree(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    energy, rng = op.Energy(t=ORDINARY[name]), np.random.default_rng(2)
    for _ in range(20):
        factor = 1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-3, 1)
        with monkeypatch.context() as patch:
            wrong_by(factor, patch)
            report = op.check_gradients(energy, {"X": 2 * rng.normal(size=3)})
        assert report.worst["t"].verdict == "disagrees", str(report)


@pytest.mark.parametrize("factor", [0.0, 0.9, 1.1])
def test_wrong_derivatives_of_a_small_shape_that_shows_disagree(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_by(factor, monkeypatch)
    data = {"A": [1e6], "B": [1e-3], "C": [1e5], "X": [3e-6]}
    assert op.check_gradients(small_shape("tanh"), data).worst["t"].verdict == "disagrees"


def test_a_kink_disagrees_on_a_large_constant_too() -> None:
    report = op.check_gradients(op.Energy(r=1e6 + op.maximum(X[i], 1)), {"X": np.array([1.0])})
    assert report.worst["r"].verdict == "disagrees"
