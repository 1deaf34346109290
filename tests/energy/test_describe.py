from __future__ import annotations

import numpy as np
import pytest
import sympy

import optpy as op

N, M = op.dims("N M")
i, j = op.indices(N, M)
X, V, b = op.Unknown("X", (N, M)), op.Unknown("V", (N,), 2), op.Unknown("b", ())
A = op.Array("A", (N, M))
w = op.params("w_reg")

ENERGY = op.Energy(
    fit=X[i, j] - A[N - 1 - i, j],
    turn=op.rotate2d(b[()], V[i]),
    reg=[w * op.where(op.in_bounds(i + 1), X[i + 1, j], op.value(j)), op.matrix([[X[i, j], 0], [1, V[i][1]]])],
)
i0, i1 = sympy.symbols("i0 i1", integer=True)
x, v, a = (sympy.IndexedBase(n, real=True) for n in ("X", "V", "A"))
angle = sympy.Symbol("b", real=True)


def test_a_scalar_term_is_an_expression() -> None:
    n = sympy.Symbol("N", integer=True)
    assert ENERGY.to_sympy("fit") == x[i0, i1] - a[n - i0 - 1, i1]


def test_a_vector_is_a_column_whose_derivatives_sympy_takes() -> None:
    term = op.Energy(t=op.sin(V[i])).to_sympy("t")
    assert term == sympy.Matrix([sympy.sin(v[i0, 0]), sympy.sin(v[i0, 1])])
    assert term.diff(v[i0, 1]) == sympy.Matrix([0, sympy.cos(v[i0, 1])])
    assert ENERGY.to_sympy("turn").shape == (2, 1)


def test_a_list_is_a_list_and_its_entries_have_names() -> None:
    first, second = ENERGY.to_sympy("reg")
    assert first == ENERGY.to_sympy("reg[0]")
    assert second == sympy.Matrix([[x[i0, i1], 0], [1, v[i0, 1]]])


def test_a_guard_selects_in_sympy_too() -> None:
    first = ENERGY.to_sympy("reg[0]")
    weight, inside = (sympy.Symbol(n, real=True) for n in ("w_reg", "in_bounds(i0 + 1, N)"))
    assert first.subs({inside: 1, weight: 2}) == 2 * x[i0 + 1, i1]
    assert first.subs({inside: 0, weight: 2}) == 2 * i1


def test_the_sympy_form_has_the_values_of_the_energy() -> None:
    vector = np.array([[0.0, 0.0], [0.4, -1.3]])
    data = {"X": np.zeros((2, 1)), "V": vector, "b": 0.7, "A": np.zeros((2, 1)), "w_reg": 1}
    found = ENERGY.residuals(data)["turn"][1]
    term = ENERGY.to_sympy("turn").subs({v[i0, 0]: 0.4, v[i0, 1]: -1.3, angle: 0.7})
    np.testing.assert_allclose(np.array(term, float).ravel(), found, rtol=1e-12)


def test_an_unknown_name_lists_the_terms() -> None:
    with pytest.raises(op.EnergyError, match=r"no term 'regular'; it has fit, turn, reg, reg\[0\], reg\[1\]"):
        ENERGY.to_sympy("regular")


def test_latex_shows_the_cost_and_every_residual() -> None:
    text = ENERGY._repr_latex_()
    assert text.startswith(r"$\displaystyle \begin{aligned}")
    assert text.endswith("$")
    assert text.count(r"\sum_{0 \le i0 < N") == 4
    for part in [r"\tfrac{1}{2}", r"r_{\mathrm{reg[1]}}", r"\begin{pmatrix}", "w_{reg}"]:
        assert part in text
    assert text.count("{") == text.count("}")


def test_the_summary_lists_what_is_declared() -> None:
    B, near = op.Func("B", (N, M)), op.Func("near", (N, M))
    B[i, j] = op.vector(X[i, j], w * A[i, j])
    near[i, j] = A[i, j] > 0
    energy = op.Energy(fit=op.where(near[i, j], B[i, j] - B[i + 1, j], 0), fixed={X: near[i, j]})
    assert repr(energy).splitlines() == [
        "Energy: 1/2 sum of squares of",
        "  fit  (N, M, 2)  reads A, X, w_reg",
        "unknowns: X (N, M)",
        "arrays: A (N, M)",
        "params: w_reg",
        "funcs: near (N, M) bool, B (N, M, 2)",
        "fixed: X where near[i, j]",
    ]
