"""Sums over whole dims: what they refuse, with the user's line, and that they mean what Python's sum writes out."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import sympy

import optpy as op
from optpy.energy.check import unrolled

H, W, K, L, M = op.dims("H W K L M")
i, j = op.indices(H, W)
k, n = op.indices(K, L)
m = op.indices(M)
X, w = op.Unknown("X", (H, W)), op.Unknown("w", (K,))
A, B, Shapes = op.Array("A", (H, W)), op.Array("B", (H, K)), op.Array("Shapes", (H, K), 3)
Basis, Q, rate = op.Array("Basis", (L, K)), op.Array("Q", (H, L)), op.params("rate")
SIZES = dict(H=4, W=3, K=3, L=2)


def data_of(energy: op.Energy, seed: int = 0) -> dict[str, Any]:
    """Numbers for all that an energy reads."""
    rng = np.random.default_rng(seed)
    problem = energy.problem
    data: dict[str, Any] = {p.name: 0.7 for p in problem.params}
    for f in problem.fields:
        shape = (*(SIZES[d.name] for d in f.dims), *([f.channels] if f.channel_axis else []))
        data[f.name] = rng.normal(size=shape)
    return data


def by_hand(e: Callable[..., op.Expression], *dims: str) -> op.Expression:
    """Python's sum of a function of indices over the sizes of the data."""
    points = np.ndindex(*(SIZES[d] for d in dims))
    return builtins.sum((e(*map(int, p)) for p in points), op.vector(0)[0])


# -- what they refuse --------------------------------------------------------------------------------------------------

OVER = r"op\.sum goes over loop variables, over=k with k = op\.indices\(K\), or over=\(k, l\); got "
OWN = "each sum has an index of its own, k = op.indices"


@pytest.mark.parametrize(
    ("e", "over", "message"),
    [
        (w[k], 3, OVER + "3"),
        (w[k], "k", OVER + "'k'"),
        (w[k], k + 1, OVER + r"k \+ 1"),
        (w[k], (k, 2 * k), OVER + r"k, 2\*k"),
        (w[k], (), OVER + "nothing"),
        (w[k], K, OVER + "K"),
        (w[k], (k, k), "op.sum goes over k twice"),
        (w[k], n, r"goes over n, which the summand does not use; a sum of equal terms is L times .* op.value\(L\) \*"),
        (w[k], (k, n), "goes over n, which the summand does not use"),
        (op.robust(w[k], "huber"), k, r"the summand of op.sum contains op.robust\(...\), which makes residuals"),
        (w, k, r"'w' stands for the whole array: index it, as in w\[i\]"),
        ("w", k, "'w' cannot stand in a formula"),
        (op.sum(w[k], over=k) * w[k], k, rf"op\.sum uses k outside a sum over k: {OWN}\(K\)"),
        (op.sum(B[i, k], over=k) * B[i, k] * w[0], i, rf"op\.sum uses k outside a sum over k: {OWN}\(K\)"),
    ],
)
def test_what_they_refuse(e: Any, over: Any, message: str) -> None:
    with pytest.raises(op.EnergyError, match=message) as caught:
        op.sum(e, over=over)
    assert str(caught.value).startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (dict(r=op.sum(X[i, j], over=j) - A[i, j]), rf"the residual 'r' uses j outside a sum over j: {OWN}\(W\)"),
        (dict(r=op.sum(B[i, k], over=k)), r"'r' reads no unknown \(it reads only B\)"),
        (dict(r=op.sum(w[k] * op.value(m), over=(k, m))), "the size M in 'r' is bound by no data"),
        (dict(r=w[k], fixed={w: op.sum(Basis[n, k], over=n) > 0}), "fixed for 'w' contains op.sum, .* bind a mask"),
        (dict(r=op.sum(w[k], over=k) > 0), "'r' is a condition"),
    ],
)
def test_what_energies_with_them_refuse(terms: Any, message: str) -> None:
    with pytest.raises(op.EnergyError, match=message) as caught:
        op.Energy(**terms)
    assert str(caught.value).startswith(f"{__file__}:")


def test_a_func_may_not_use_the_index_either() -> None:
    F = op.Func("F", (K,))
    with pytest.raises(op.EnergyError, match="uses k outside a sum over k") as caught:
        op.Energy(r=op.sum(w[k], over=k) * w[k])
    with pytest.raises(op.EnergyError, match="uses the loop variable n, at which it is not assigned"):
        F[k] = op.sum(Basis[n, k], over=k) * w[k]
    assert str(caught.value).startswith(f"{__file__}:")


def test_sums_of_unknowns_beside_what_is_held_are_not_there_yet() -> None:
    s = op.sum(w[k] * B[i, k], over=k)
    energy = op.Energy(r=op.stop_gradient(s) * w[0] - 1)
    with pytest.raises(op.EnergyError, match=r"op\.sum over .* and op\.stop_gradient cannot stand in one energy yet"):
        op.compile(energy, "cpu", "float64")
    of_data = op.Energy(r=op.stop_gradient(w[k] ** 2) * w[k] - op.sum(Basis[n, k], over=n))
    assert op.check_gradients(of_data, data_of(of_data))


def test_what_has_too_many_terms_to_be_written_out_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = op.Energy(r=op.sum(Basis[n, k] * w[k], over=(n, k)) - 1)
    data = data_of(energy)
    assert energy.cost(data) >= 0
    monkeypatch.setattr(unrolled, "MOST_TERMS", 6)
    larger = dict(w=np.ones(4), Basis=np.ones((2, 4)))
    assert energy.cost(data) >= 0
    for look in (energy.cost, energy.residuals, energy.jacobian, energy.diagnose, partial(op.check_gradients, energy)):
        with pytest.raises(op.DataError, match=r"'r' \(written at .*\) has 8 terms at each .* 6: give") as caught:
            look(larger)
        assert f"(written at {__file__}:" in str(caught.value)


# -- what they mean ----------------------------------------------------------------------------------------------------


def test_a_summand_that_reads_outside_is_0() -> None:
    energy = op.Energy(r=op.sum(w[k] * X[i + k, j], over=k))
    found = energy.residuals(dict(X=[[1.0], [2], [4], [8]], w=[1.0, 1]))["r"]
    np.testing.assert_array_equal(found, [[3], [6], [12], [8]])  # the rest of the sum stays


def test_a_summand_that_asks_in_bounds_has_guards_of_its_own() -> None:
    energy = op.Energy(r=op.sum(w[k] * op.where(op.in_bounds(i + k, j, of=X), X[i + k, j], 100), over=k))
    found = energy.residuals(dict(X=[[1.0], [2], [4], [8]], w=[1.0, 1]))["r"]
    np.testing.assert_array_equal(found, [[3], [6], [12], [108]])


def test_a_residual_that_reads_a_sum_outside_its_grid_is_0() -> None:
    F = op.Func("F", (H,))
    F[i] = op.sum(B[i, k] * w[k], over=k)
    energy = op.Energy(r=F[i + 1] - A[i, 0])
    found = energy.residuals(dict(B=np.ones((3, 2)), w=[1.0, 2], A=[[1.0], [1], [1]]))["r"]
    np.testing.assert_array_equal(found, [2, 2, 0])


def test_the_shape_is_that_of_the_summand() -> None:
    assert op.sum(w[k], over=k).shape == ()
    assert op.sum(w[k] * Shapes[i, k], over=k).shape == (3,)
    assert op.sum(op.vector(w[k]), over=[k]).shape == (1,)
    assert op.sum(op.matrix([[w[k], 1], [0, B[i, k]]]), over=(i, k)).shape == (2, 2)


PAIRS: dict[str, tuple[op.Energy, op.Energy]] = {
    "scalars": (
        op.Energy(r=op.sum(w[k] * B[i, k], over=k) - A[i, j], s=rate * op.sum(w[k], over=k)),
        op.Energy(r=by_hand(lambda k: w[k] * B[i, k], "K") - A[i, j], s=rate * by_hand(lambda k: w[k], "K")),
    ),
    "vectors": (
        op.Energy(r=op.sum(op.sin(w[k]) * Shapes[i, k], over=k) * A[i, j]),
        op.Energy(r=by_hand(lambda k: op.sin(w[k]) * Shapes[i, k], "K") * A[i, j]),
    ),
    "matrices": (
        op.Energy(r=op.sum(op.matrix([[w[k], 1], [B[i, k], w[k] ** 2]]), over=k) @ op.vector(1, A[i, j])),
        op.Energy(
            r=op.vector(
                by_hand(lambda k: w[k], "K") + SIZES["K"] * A[i, j],
                by_hand(lambda k: B[i, k] + w[k] ** 2 * A[i, j], "K"),
            )
        ),
    ),
    "two loops": (
        op.Energy(r=op.sum(X[i + n, j] * Basis[n, k] * w[k], over=(n, k))),
        op.Energy(
            r=by_hand(lambda n, k: op.where(op.in_bounds(i + n, j), X[i + n, j] * Basis[n, k] * w[k], 0), "L", "K")
        ),
    ),
    "sums in sums": (
        op.Energy(r=op.sum(op.exp(0.1 * op.sum(Basis[n, k] * w[k], over=k)) * Q[i, n], over=n)),
        op.Energy(r=by_hand(lambda n: op.exp(0.1 * by_hand(lambda k: Basis[n, k] * w[k], "K")) * Q[i, n], "L")),
    ),
    "products and conditions of sums": (
        op.Energy(r=op.where(op.sum(w[k], over=k) > 0, op.sum(w[k] * B[i, k], over=k) ** 2, op.value(i)) * w[0]),
        op.Energy(
            r=op.where(by_hand(lambda k: w[k], "K") > 0, by_hand(lambda k: w[k] * B[i, k], "K") ** 2, op.value(i))
            * w[0]
        ),
    ),
    "robust": (
        op.Energy(r=op.robust(op.sum(w[k] * Shapes[i, k], over=k), "cauchy", scale=rate), q=0.1 * w[k]),
        op.Energy(r=op.robust(by_hand(lambda k: w[k] * Shapes[i, k], "K"), "cauchy", scale=rate), q=0.1 * w[k]),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_derivatives_are_those_of_pythons_sum(name: str) -> None:
    summed, written = PAIRS[name]
    data = data_of(summed)
    assert data.keys() == data_of(written).keys()
    assert summed.cost(data) == pytest.approx(written.cost(data), rel=1e-13)
    for linearised in (False, True):
        expected = written.residuals(data, linearised=linearised)
        for label, values in summed.residuals(data, linearised=linearised).items():
            np.testing.assert_allclose(values, expected[label], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(summed.jacobian(data).toarray(), written.jacobian(data).toarray(), 1e-11, 1e-12)
    assert op.check_gradients(summed, data)


@pytest.mark.native
@pytest.mark.parametrize("name", PAIRS)
def test_solves_end_where_those_of_pythons_sum_do(name: str) -> None:
    summed, written = PAIRS[name]
    data = data_of(summed, 1)
    ends = [op.solve(e, data, "cpu", function_tolerance=1e-14, max_iterations=200).cost for e in (summed, written)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-6, abs=1e-9)


def test_equal_sums_are_one() -> None:
    other = op.indices(K)
    first, second = op.sum(w[k] * B[i, k], over=k), op.sum(w[other] * B[i, other], over=other)
    assert len(op.Energy(r=first - A[i, j], s=second * second).problem.funcs) == 1
    assert op.Energy(r=first - second + A[i, j] * w[0]).problem.funcs == ()
    at_n = op.sum(w[k] * Basis[n, k], over=k)
    assert len(op.Energy(r=at_n, s=op.sum(w[k] * Basis[0, k], over=k)).problem.funcs) == 2


def test_the_index_of_an_equal_sum_is_free() -> None:
    other = op.indices(K)
    first, second = op.sum(w[k], over=k), op.sum(w[other], over=other)
    data = dict(w=[1.0, 2])
    for energy in (op.Energy(r=first * w[other]), op.Energy(r=second * w[k])):
        np.testing.assert_array_equal(energy.residuals(data)["r"], [3, 6])
    for s, v in ((first, k), (second, other)):
        with pytest.raises(op.EnergyError, match="outside a sum over"):
            op.Energy(r=s * w[v])


def test_the_order_of_loops_is_as_written() -> None:
    one, other = op.sum(B[i, k] * w[k], over=(i, k)), op.sum(B[i, k] * w[k], over=(k, i))
    loops = [e.components[0].key.field.definition.loops for e in (one, other)]  # type: ignore[attr-defined]
    assert [[v.dim.name for v in own] for own in loops] == [["H", "K"], ["K", "H"]]


# -- texts -------------------------------------------------------------------------------------------------------------


def nested() -> op.Energy:
    return op.Energy(fit=op.sum(op.sum(w[k] * Basis[n, k], over=k) * Q[i, n], over=n), small=rate * w[k])


def test_the_summary_names_what_summands_read() -> None:
    assert str(nested()).splitlines()[1:3] == ["  fit    (H,)  reads Basis, Q, w", "  small  (K,)  reads rate, w"]


def test_sums_are_those_of_sympy() -> None:
    i0, s0, s1 = sympy.symbols("i0 s0 s1", integer=True)
    own, other = (sympy.Symbol(d, integer=True) for d in ("K", "L"))
    Q_, Basis_, w_ = (sympy.IndexedBase(name, real=True) for name in ("Q", "Basis", "w"))
    inner = sympy.Sum(w_[s1] * Basis_[s0, s1], (s1, 0, own - 1))
    found = nested().to_sympy("fit")
    assert found == sympy.Sum(Q_[i0, s0] * inner, (s0, 0, other - 1))
    at = found.subs({own: 2, other: 2, i0: 0}).doit()
    assert sympy.expand(at).coeff(w_[1]) == Q_[0, 0] * Basis_[0, 1] + Q_[0, 1] * Basis_[1, 1]
    vector = op.Energy(r=op.sum(w[k] * Shapes[i, k], over=k)).to_sympy("r")
    assert vector.shape == (3, 1)
    assert all(isinstance(e, sympy.Sum) for e in vector)


def test_latex_writes_sums() -> None:
    latex = nested()._repr_latex_()
    assert r"\sum_{s_{0}=0}^{L - 1}" in latex
    assert r"\sum_{s_{1}=0}^{K - 1}" in latex


# -- what is wrong with them -------------------------------------------------------------------------------------------


def test_diagnose_looks_into_sums() -> None:
    energy = op.Energy(fit=op.sum(w[k] * B[i, k], over=k) - A[i, 0])
    data = dict(w=np.zeros(3), B=np.array([[1.0, 0, 1], [2, 0, 2], [3, 0, 4]]), A=np.ones((3, 1)))
    (flat,) = energy.diagnose(data).flat
    assert flat.unknown == "w"
    assert list(flat.first) == [(1,)]
    assert energy.diagnose(data).null_dimension == 1


@pytest.mark.native
def test_what_is_not_finite_is_told_with_the_residual() -> None:
    energy = op.Energy(fit=op.sum(B[i, k] / w[k], over=k) - 1)
    with pytest.raises(op.DataError, match=r"the residual 'fit' \(written at .*test_sums.py:\d+\) is inf at \[H=0\]"):
        op.solve(energy, dict(w=np.array([1.0, 0]), B=np.ones((2, 2))), "cpu")
