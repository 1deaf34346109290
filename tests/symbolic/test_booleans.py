"""Boolean laws against truth tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optpy.symbolic.booleans import conjunction
from optpy.symbolic.expr import ONE, ZERO, Expr, logical_and, logical_not, logical_or, where
from optpy.symbolic.factor import factor
from optpy.symbolic.interpret import evaluate
from tests.support.programs import BOOLEANS, Program, Run, boolean, build, run

a, b, c = map(boolean, BOOLEANS)
TABLE = np.array(list(itertools.product([0.0, 1.0], repeat=3)))


def truth(e: Expr) -> list[float]:
    columns = dict(zip(BOOLEANS, TABLE.T, strict=True))
    column = np.broadcast_to(evaluate([e], lambda key: columns[key.name])[0], len(TABLE))
    return [float(v) for v in column]


_formulas = st.recursive(
    st.sampled_from(BOOLEANS).map(lambda n: ("bool", n)),
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.just("where"), inner, inner, inner),
    ),
    max_leaves=10,
)


@settings(max_examples=300)
@given(_formulas)
def test_formulas_have_their_truth_table(formula: Program) -> None:
    e = build(formula)
    assert e.boolean
    want = [run(formula, dict(zip(BOOLEANS, row, strict=True)), Run()) for row in TABLE]
    assert truth(e) == want
    assert truth(factor([e])[0]) == want
    assert truth(logical_not(e)) == [1 - w for w in want]


@given(_formulas, _formulas)
def test_laws_for_any_formulas(first: Program, second: Program) -> None:
    p, q = build(first), build(second)
    assert logical_not(logical_not(p)) is p
    assert logical_and(p, p) is p
    assert logical_or(p, p) is p
    assert logical_and(p, q) is logical_and(q, p)
    assert logical_or(p, q) is logical_or(q, p)
    assert logical_and(p, logical_not(p)) is ZERO
    assert logical_or(p, logical_not(p)) is ONE
    assert logical_not(logical_and(p, q)) is logical_or(logical_not(p), logical_not(q))
    assert logical_and(p, ONE) is p
    assert logical_or(p, ZERO) is p
    assert logical_and(p, ZERO) is ZERO
    assert logical_or(p, ONE) is ONE


def test_absorption() -> None:
    assert logical_or(a, logical_and(a, b)) is a
    assert logical_and(a, logical_or(a, b)) is a
    assert logical_and(a, logical_or(logical_not(a), b)) is logical_and(a, b)
    assert logical_or(a, logical_and(logical_not(a), b)) is logical_or(a, b)
    assert logical_and(a, logical_not(logical_and(a, b)), b) is ZERO
    assert logical_and(a, logical_not(logical_and(a, b, c)), b) is logical_and(a, b, logical_not(c))


def test_selections_of_conditions_are_conditions() -> None:
    assert where(a, b, c).boolean
    assert truth(where(a, b, c)) == [row[1] if row[0] else row[2] for row in TABLE]


def test_a_clause_that_shrinks_simplifies_the_others() -> None:
    # ~(a & b) is ~b given a, which makes ~(~b & c) the same as ~c.
    clauses = [a, logical_not(logical_and(a, b)), logical_not(logical_and(logical_not(b), c))]
    assert logical_and(*clauses) is logical_and(a, logical_not(b), logical_not(c))


def test_conjunction_of_contradictions() -> None:
    assert conjunction({a: None, logical_not(a): None}) is None


@pytest.mark.parametrize("size", [3, 70, 200])
def test_long_conjunctions(size: int) -> None:
    names = [boolean(f"p{n}") for n in range(size)]
    chain: Expr = ONE
    for p in names:
        chain = logical_and(chain, p)
    for off in (None, 0, size - 1):
        values = {f"p{n}": 0.0 if n == off else 1.0 for n in range(size)}
        (got,) = evaluate([chain], lambda key, values=values: values[key.name])  # type: ignore[misc]
        assert float(got) == (off is None)
    assert logical_and(chain, chain) is chain
    assert logical_and(names[0], chain) is chain or size > 64
