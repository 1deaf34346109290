"""Intermediates with names: what they refuse, with the user's line, and what they mean."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy import ir

H, W, N = op.dims("H W N")
i, j = op.indices(H, W)
k, n = op.indices(H, N)
X, V = op.Unknown("X", (H, W)), op.Unknown("V", (H, W), 3)
A, w = op.Array("A", (H, W)), op.params("w")


def line() -> int:
    """The line after the one that asks."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno + 1


def func(formula: Any, name: str = "B") -> op.Func:
    B = op.Func(name, (H, W))
    B[i, j] = formula
    return B


# -- what they refuse --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op.Func("B", (H, W), op.SO3), "'B' cannot live on SO3: its numbers are a vector, channels=4"),  # type: ignore[arg-type]
        (lambda: op.Func("B", (H, W), 0), "number of channels of 'B' is a whole number from 1 on"),
        (lambda: op.Func("B", 3), "dims of 'B' are symbolic sizes"),  # type: ignore[arg-type]
        (lambda: op.Func("2b", (H, W)), "'2b' cannot name"),
        (lambda: op.Func("B", (H, W))[i, j], r"'B' has no formula yet: assign B\[i, j\] = \.\.\. before it is read"),
        (lambda: op.Func("B", (H, W)) + 1, r"'B' stands for the whole array: index it, as in B\[i, j\]"),
    ],
)
def test_what_they_refuse_when_they_are_declared_and_read(make: Any, message: str) -> None:
    with pytest.raises(op.EnergyError, match=message) as caught:
        make()
    assert "test_func.py" in str(caught.value)


ONE_EACH = r"is assigned at one loop variable for each axis, each another, B\[i, j\] = \.\.\.; got "


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (i, ONE_EACH + r"\[i\]"),
        ((i, j, k), ONE_EACH + r"\[i, j, k\]"),
        ((i + 1, j), ONE_EACH + r"\[i \+ 1, j\]"),
        ((i, 0), ONE_EACH + r"\[i, 0\]"),
        ((i, i), ONE_EACH + r"\[i, i\]"),
        ((i, slice(None)), ONE_EACH + r"\[i, a slice\]"),
        ((i, n), r"axis 1 of 'B' of shape \(H, W\) runs over W, but n runs over N: assign it at k = op.indices\(W\)"),
        ((j, i), r"axis 0 of 'B' of shape \(H, W\) runs over H, but j runs over W"),
    ],
)
def test_a_formula_is_assigned_at_loop_variables(key: Any, message: str) -> None:
    B = op.Func("B", (H, W))
    with pytest.raises(op.EnergyError, match=message) as caught:
        B[key] = X[i, j]
    assert "test_func.py" in str(caught.value)
    B[i, j] = X[i, j]  # a refused one leaves no trace


@pytest.mark.parametrize(
    ("formula", "channels", "message"),
    [
        (X[i, j] * op.value(n), None, "uses the loop variable n, at which it is not assigned"),
        (X[i, j] + X[k, j], None, "uses the loop variable k, at which it is not assigned"),
        (op.matrix([[X[i, j], 1], [0, 1]]), None, r"has shape \(2, 2\): a Func holds a scalar or a vector; assign its"),
        (op.vector(X[i, j], 1), 3, r"of the Func 'B' of shape \(H, W, 3\) has shape \(2,\), and \(3,\) is declared"),
        (X[i, j], 1, r"has shape \(\), and \(1,\) is declared"),
        (op.robust(X[i, j], "huber"), None, r"the Func 'B' contains op.robust\(...\), which makes residuals"),
        (X, None, "'X' stands for the whole array"),
        ("x", None, "'x' cannot stand in a formula"),
    ],
)
def test_a_formula_is_a_scalar_or_a_vector_at_those_variables(formula: Any, channels: Any, message: str) -> None:
    B = op.Func("B", (H, W), channels)
    with pytest.raises(op.EnergyError, match=message) as caught:
        B[i, j] = formula
    assert "test_func.py" in str(caught.value)


def test_a_formula_is_assigned_once() -> None:
    B = op.Func("B", (H, W))
    first = line()
    B[i, j] = X[i, j]
    second = line() + 1
    with pytest.raises(op.EnergyError, match=rf"'B' has a formula already \(.*test_func.py:{first}\)") as caught:
        B[i, j] = A[i, j]
    assert f"test_func.py:{second}: the Func" in str(caught.value)
    assert op.Energy(r=B[i, j]).cost(dict(X=[[3.0]])) == 4.5  # the first one stays


def test_one_cannot_depend_on_itself() -> None:
    B = op.Func("B", (H, W))
    with pytest.raises(op.EnergyError, match=r"'B' has no formula yet.*a Func cannot depend on itself"):
        B[i, j] = B[i, j - 1] + X[i, j]


@pytest.mark.parametrize(("name", "kind"), [("A", "an array"), ("X", "an unknown"), ("w", "a param"), ("C", "a Func")])
def test_no_other_declaration_has_its_name(name: str, kind: str) -> None:
    C = func(X[i, j], "C")
    B = func(w * A[i, j], name)
    with pytest.raises(op.EnergyError, match=f"'{name}' is declared twice: as .*test_func.py") as caught:
        op.Energy(r=B[i, j] * C[i, j])
    assert f"as a Func of shape (H, W) ({__file__}" in str(caught.value)
    assert f"as {kind}" in str(caught.value)


def test_it_is_computed_and_not_bound() -> None:
    energy = op.Energy(r=func(X[i, j])[i, j])
    with pytest.raises(op.DataError, match=r"'B' is a Func: it is computed by its formula, and not bound") as caught:
        energy.cost(dict(X=np.ones((2, 2)), B=np.ones((2, 2))))
    assert "test_func.py" in str(caught.value)
    with pytest.raises(op.DataError, match="the energy reads no 'b'"):
        energy.cost(dict(X=np.ones((2, 2)), b=np.ones((2, 2))))


def test_a_residual_reads_an_unknown_through_it_or_not_at_all() -> None:
    with pytest.raises(op.EnergyError, match=r"'r' reads no unknown \(it reads only A\)"):
        op.Energy(r=func(A[i, j])[i, j])
    with pytest.raises(op.EnergyError, match="'r' is a condition"):
        op.Energy(r=func(X[i, j] > 0)[i, j])
    with pytest.raises(op.EnergyError, match="fixed for 'X' reads the unknown 'X'"):
        op.Energy(r=X[i, j], fixed={X: func(X[i, j] > 0)[i, j]})


# -- what they mean ----------------------------------------------------------------------------------------------------


def values(B: op.Func, **data: Any) -> Any:
    """A Func as a residual has it; X is 0."""
    return op.Energy(r=B[i, j] + X[i, j]).residuals(dict(X=np.zeros_like(data["A"], float), **data))["r"]


def test_it_is_0_where_its_formula_reads_outside() -> None:
    a = np.arange(1.0, 7).reshape(2, 3)
    np.testing.assert_array_equal(values(func(A[i, j] + 10 * A[i, j + 1]), A=a), [[21, 32, 0], [54, 65, 0]])


def test_a_formula_that_asks_in_bounds_has_guards_of_its_own() -> None:
    a = np.arange(1.0, 7).reshape(2, 3)
    asks = func(op.where(op.in_bounds(i, j + 1), A[i, j] + 10 * A[i, j + 1], -1))
    np.testing.assert_array_equal(values(asks, A=a), [[21, 32, -1], [54, 65, -1]])


def test_a_residual_is_0_where_it_reads_one_outside_its_grid_alone() -> None:
    """Where the formula reads outside, the Func is 0 and the residual goes on."""
    B = func(A[i, j] + A[i, j + 1])
    energy = op.Energy(own=X[i, j] + B[i, j], next=X[i, j] + B[i, j + 1])
    found = energy.residuals(dict(X=np.full((1, 3), 100.0), A=[[1.0, 2, 3]]))
    np.testing.assert_array_equal(found["own"], [[103, 105, 100]])
    np.testing.assert_array_equal(found["next"], [[105, 100, 0]])


def test_one_that_reads_another_follows_the_same_rule() -> None:
    B = func(A[i, j + 1])
    C = func(B[i, j + 1] + 1, "C")
    np.testing.assert_array_equal(values(C, A=np.array([[1.0, 2, 3, 4]])), [[4, 5, 1, 0]])


def test_its_channels_are_those_of_its_formula() -> None:
    scalar, vector, single = func(X[i, j]), func(V[i, j]), func(op.vector(X[i, j]))
    assert (scalar.channels, vector.channels, single.channels) == (None, 3, 1)
    assert (scalar[i, j].shape, vector[i, j].shape, single[i, j].shape) == ((), (3,), (1,))
    assert [repr(f) for f in (scalar, vector, single)] == [f"Func('B', (H, W{c}))" for c in ("", ", 3", ", 1")]
    declared = op.Func("B", (H, W), 3)
    declared[i, j] = V[i, j]
    assert declared == vector
    assert declared.dims == (H, W)


def test_its_axes_have_the_order_of_its_grid() -> None:
    turned = op.Func("turned", (W, H))
    turned[j, i] = A[i, j]
    energy = op.Energy(r=X[i, j] + turned[j, i])
    a = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(energy.residuals(dict(X=np.zeros((2, 3)), A=a))["r"], a)


def test_a_single_value_has_no_axes() -> None:
    mean = op.Func("mean", ())
    mean[()] = A[0, 0] + w
    energy = op.Energy(r=X[i, j] - mean[()])
    np.testing.assert_array_equal(energy.residuals(dict(X=np.zeros((1, 2)), A=[[3.0, 9]], w=2.0))["r"], [[-5, -5]])


def test_a_condition_stays_one() -> None:
    known = func((A[i, j] > 0) & op.in_bounds(i, j + 1), "known")
    assert known.field.dtype == "bool"
    assert known[i, j].is_condition
    assert (~known[i, j + 1] & known[i, j]).is_condition
    assert not func(op.where(A[i, j] > 0, 2, 0))[i, j].is_condition
    energy = op.Energy(r=op.where(known[i, j], 1 / A[i, j], 0) * X[i, j])  # a selection: 1 / 0 does not contribute
    found = energy.residuals(dict(X=np.ones((1, 3)), A=[[2.0, 0, 5]]))["r"]
    np.testing.assert_array_equal(found, [[0.5, 0, 0]])


def test_a_loop_variable_of_the_formula_is_one_of_the_reader_s_only_by_its_place() -> None:
    B = func(op.value(i) + 10 * op.value(j))
    energy = op.Energy(r=X[i, j] + B[i + 1, j])
    found = energy.residuals(dict(X=np.zeros((3, 2))))["r"]
    np.testing.assert_array_equal(found, [[1, 11], [2, 12], [0, 0]])


# -- as if written by Python functions --------------------------------------------------------------------------------


def pair() -> tuple[op.Energy, op.Energy]:
    """The same energy by intermediates and by functions."""
    B, C, D, near, free = (op.Func(name, (H, W)) for name in ("B", "C", "D", "near", "free"))
    D[i, j] = op.exp(A[i, j])
    B[i, j] = op.sin(X[i, j]) * X[i, j + 1] + w * A[i, j]
    near[i, j] = abs(X[i, j] - A[i, j]) < 1
    C[i, j] = op.where(near[i, j], op.vector(B[i, j] ** 2, D[i, j]), 1)
    free[i, j] = A[i, j] > 0.5

    def b(dj: int) -> Any:
        x, right = X[i, j + dj], X[i, j + dj + 1]
        return op.where(op.in_bounds(i, j + dj + 1), op.sin(x) * right + w * A[i, j + dj], 0)

    def c() -> Any:
        return op.where(abs(X[i, j] - A[i, j]) < 1, op.vector(b(0) ** 2, op.exp(A[i, j])), 1)

    with_funcs = op.Energy(
        difference=B[i, j] - B[i, j - 1],
        pair=C[i, j] * X[i, j],
        held=op.robust(op.stop_gradient(B[i, j]) * X[i, j], "huber", scale=D[i, j]),
        fixed={X: free[i, j]},
    )
    inline = op.Energy(
        difference=op.where(op.in_bounds(i, j - 1), b(0) - b(-1), 0),
        pair=c() * X[i, j],
        held=op.robust(op.stop_gradient(b(0)) * X[i, j], "huber", scale=op.exp(A[i, j])),
        fixed={X: A[i, j] > 0.5},
    )
    return with_funcs, inline


def test_values_and_derivatives_are_those_of_what_is_written() -> None:
    with_funcs, inline = pair()
    rng = np.random.default_rng(0)
    data: dict[str, Any] = dict(X=rng.normal(size=(3, 5)), A=rng.normal(size=(3, 5)), w=0.3)
    assert with_funcs.cost(data) == pytest.approx(inline.cost(data), rel=1e-14)
    for name, expected in inline.residuals(data).items():
        np.testing.assert_allclose(with_funcs.residuals(data)[name], expected, rtol=1e-14, atol=1e-15)
    found = with_funcs.jacobian(data).toarray()
    np.testing.assert_allclose(found, inline.jacobian(data).toarray(), rtol=1e-13, atol=1e-14)
    fixed = np.ravel(data["A"]) > 0.5
    assert not found[:, fixed].any()
    assert found[:, ~fixed].any(axis=0).all()
    assert op.check_gradients(with_funcs, data)


def test_texts_are_those_of_what_is_written() -> None:
    near, B = func(A[i, j] < 1, "near"), func(w * op.sin(X[i, j]))
    C = func(op.where(near[i, j], op.vector(B[i, j] ** 2, A[i, j]), 1), "C")
    b = w * op.sin(X[i, j])
    with_funcs = op.Energy(r=C[i, j] * X[i, j])
    inline = op.Energy(r=op.where(A[i, j] < 1, op.vector(b**2, A[i, j]), 1) * X[i, j])
    assert with_funcs.to_sympy("r") == inline.to_sympy("r")
    assert with_funcs._repr_latex_() == inline._repr_latex_()


def test_only_what_is_read_is_part_of_the_energy() -> None:
    unread = func(w * X[i, j], "unread")
    B = func(X[i, j] ** 2)
    func(B[i, j] * unread[i, j], "unread_too")
    problem = op.Energy(r=B[i, j]).problem
    assert [f.name for f in problem.funcs] == ["B"]
    assert [f.name for f in problem.fields] == ["X"]
    assert problem.params == ()
    assert all(f.role is not ir.Role.FUNC for f in problem.fields)


def test_what_a_formula_mentions_in_vain_is_no_part_of_the_energy() -> None:
    """As if it were written inline: whoever computes with it would miss it."""
    two = func(op.vector(w * X[i, j], X[i, j] ** 2), "two")
    on, off = func(A[i, j] > 0, "on"), func(~(A[i, j] > 0), "off")
    unread = func(op.where(on[i, j] & off[i, j], w * V[i, j][0], X[i, j]), "unread")
    sized = op.Func("sized", (N,))
    sized[n] = X[0, 0] ** 2 + op.value(n)
    channel, excluded, first = (op.Energy(r=r).problem for r in (two[i, j][1], unread[i, j], sized[0] - X[i, j]))
    for problem in (channel, excluded, first):
        assert (problem.funcs, problem.params) == ((), ())
        assert [f.name for f in problem.fields] == ["X"]
        assert problem.with_funcs == problem.residuals
    both = op.Energy(r=two[i, j][1] - w, s=sized[n] * A[i, j], t=op.Unknown("T", (N,))[n]).problem
    assert [f.name for f in both.funcs] == ["two", "sized"]


def test_intermediates_come_after_those_that_they_read() -> None:
    B = func(X[i, j])
    C = func(B[i, j + 1], "C")
    D = func(C[i, j] * B[i, j], "D")
    assert [f.name for f in op.Energy(r=D[i, j], s=B[i, j]).problem.funcs] == ["B", "C", "D"]
