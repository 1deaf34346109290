"""Intermediates that are found in residuals: which they are, and that residuals stay what they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy import ir
from optpy.energy.check.evaluation import LeafValues, residual_values
from optpy.energy.data.binding import bind
from optpy.energy.derive.common import with_common_funcs
from optpy.symbolic.traverse import variables
from tests.support.common_energies import Written


def values(problem: ir.Problem, data: dict[str, Any]) -> list[np.ndarray]:
    """The residuals as they read intermediates, each of which is computed at all points of its grid before."""
    bound = bind(problem, data, np.float64)
    own = dict(bound.arrays)
    bound = replace(bound, arrays=own)
    with np.errstate(all="ignore"):
        for func in problem.funcs:
            assert func.definition is not None
            domain = ir.canonical_domain(func.dims)
            formula = ir.Residual(func.name, func.name, domain, func.definition.values, (), ())
            (own[func.name],) = np.moveaxis(
                residual_values(formula, bound.sizes, lambda s: LeafValues(bound, s)), -1, 0
            )
        return [residual_values(r, bound.sizes, lambda s: LeafValues(bound, s)) for r in problem.with_funcs]


@pytest.mark.parametrize("seed", range(30))
def test_residuals_of_random_energies_stay_what_they_were(seed: int) -> None:
    """Also where what is computed ahead is infinite or NaN, as nobody reads it there."""
    written = Written(np.random.default_rng(seed), outside=seed % 3 == 0)
    problem = written.energy().problem
    found = with_common_funcs(problem, 8)
    for rows, columns in ((1, 1), (2, 7), (9, 8)):
        data = written.data(rows, columns)
        for before, after in zip(values(problem, data), values(found, data), strict=True):
            np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-9)


H, W, V, E = op.dims("H W V E")
i, j = op.indices(H, W)
X, A, w = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.params("w")


def found(least: int = 16, **terms: Any) -> ir.Problem:
    return with_common_funcs(op.Energy(**terms).problem, least)


def formulas(problem: ir.Problem) -> list[str]:
    return [str(f.definition.values[0]) for f in problem.funcs if f.definition is not None]


def read(problem: ir.Problem) -> list[str]:
    """What each residual reads of intermediates, in the order of the places."""
    keys = [[v.key for v in variables(r.components) if isinstance(v.key, ir.Access)] for r in problem.with_funcs]
    return [" ".join(sorted(str(k) for k in own if k.field.role is ir.Role.FUNC)) for own in keys]


def steep(a: int, b: int) -> Any:
    """Dear, of two pixels; a product by its form."""
    return X[i + a, j + b] / op.sqrt(1 + X[i + a, j + b + 1] ** 2)


def test_what_several_residuals_write_at_several_points_is_found() -> None:
    problem = found(r=op.sin(steep(0, 0)) - op.exp(steep(0, 1)), s=w * op.exp(steep(1, 0)))
    assert formulas(problem) == ["(1 + X[i0, i1 + 1]**2)**(-1/2)*X[i0, i1]"]
    assert read(problem) == ["common 1[i0, i1 + 1] common 1[i0, i1]", "common 1[i0 + 1, i1]"]


def test_terms_and_factors_are_found_among_others() -> None:
    """Sums and products are flattened: what is equal in them are some of their parts."""
    terms = found(r=3 * (steep(0, 0) - w * X[i, j] ** 2) - 3 * (steep(0, 1) - w * X[i, j + 1] ** 2) + A[i, j])
    assert len(formulas(terms)) == 1
    assert "w" in formulas(terms)[0]
    assert read(terms) == ["common 1[i0, i1 + 1] common 1[i0, i1]"]
    factors = found(r=A[i, j] * steep(0, 0) + A[i, j + 1] * steep(0, 1), s=steep(0, 1) * w * A[i, j + 1] * A[i, j])
    assert formulas(factors) == ["A[i0, i1]*(1 + X[i0, i1 + 1]**2)**(-1/2)*X[i0, i1]"]
    assert read(factors) == ["common 1[i0, i1 + 1] common 1[i0, i1]", "common 1[i0, i1 + 1]"]


def test_places_are_told_by_numbers_too() -> None:
    """``op.value(j + 1)`` is ``op.value(j)`` one further; signs do not matter."""

    def slope(a: int) -> Any:
        return op.exp((X[i, j + a] - X[i, j + a + 1]) * (op.value(j + a) - w))

    problem = found(r=[slope(0) - w * slope(2), slope(-1) * A[i, j]])
    assert len(formulas(problem)) == 1
    assert read(problem) == ["common 1[i0, i1 + 2] common 1[i0, i1]", "common 1[i0, i1 - 1]"]


def test_conditions_are_computed_with_what_they_select_where_nothing_else_needs_them() -> None:
    def known(a: int) -> Any:
        return op.where(A[i, j + a] > 0, X[i, j + a] / A[i, j + a] + op.sqrt(A[i, j + a]), 0)

    (alone,) = formulas(found(r=known(0) - w * known(1)))
    assert "0 < A[i0, i1]" in alone
    # 1 / w may be infinite where no A is known: the condition stays beside it.
    (beside,) = formulas(found(r=known(0) / (X[i, j] + w) - known(1) / (X[i, j + 1] ** 2 - w)))
    assert "<" not in beside


def test_a_dear_condition_on_several_points_is_found_in_a_single_place() -> None:
    """A product of its derivatives asks it at several; it is stored as a byte."""
    smooth = op.vector(*(abs(X[i, j] - X[i + a, j + b]) < w for a, b in ((0, 1), (1, 0), (0, -1), (-1, 0)))).all()
    problem = found(r=op.where(smooth, op.vector(X[i, j] - X[i + 1, j], X[i, j] * A[i, j]), 0))
    (func,) = problem.funcs
    assert func.dtype == "bool"
    assert formulas(problem)[0].count("abs") == 4
    assert "in_bounds" not in formulas(problem)[0]
    assert read(problem) == ["common 1[i0 - 1, i1 - 1]"]
    assert not found(r=op.where((X[i, j] > 0) & (X[i, j] ** 3 < w * X[i, j]) & (A[i, j] > 0), X[i, j + 1], 0)).funcs


def test_what_is_read_outside_the_grid_stays_where_it_is() -> None:
    """Outside arrays are 0, but formulas of them are not."""
    within = op.where(op.in_bounds(i, j + 1), op.exp(steep(0, 0)) + op.exp(steep(0, -1)), 0)
    assert not found(r=within).funcs
    both = op.where(op.in_bounds(i, j + 1) & op.in_bounds(i, j - 1), op.exp(steep(0, 0)) + op.exp(steep(0, -1)), 0)
    assert len(found(r=both).funcs) == 1


def test_what_stands_in_one_place_or_costs_little_is_none() -> None:
    assert not found(r=steep(0, 0) * A[i, j], s=X[i, j] - A[i, j]).funcs
    assert not found(r=X[i, j] * A[i, j] - X[i, j + 1] * A[i, j + 1]).funcs
    # Sines of single points are stored by themselves.
    assert not found(32, r=[op.sin(X[i, j]) * A[i, j] - op.sin(X[i, j + 1]), op.sin(X[i, j]) * w]).funcs


def test_the_same_edge_has_the_same_formula_in_two_residuals_and_is_left_to_its_stored_jacobian() -> None:
    n, e = op.indices(V, E)
    Y = op.Unknown("Y", (V,), 3)
    a, b = op.Graph("edges", E, (V, V))[e]
    length = op.norm(Y[a] - Y[b])
    assert not found(fit=Y[n], r=length - 1, s=op.exp(length)).funcs


def test_the_problem_of_the_user_stays() -> None:
    problem = op.Energy(r=op.exp(steep(0, 0)) - op.exp(steep(0, 1))).problem
    after = with_common_funcs(problem, 16)
    assert after.residuals is problem.residuals
    assert not problem.funcs
    (func,) = after.funcs
    assert func.location == problem.residuals[0].location
