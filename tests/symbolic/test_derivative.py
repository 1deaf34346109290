"""Partials, Jacobian-vector products and adjoints against each other and against differences."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from optpy.symbolic.derivative import Derivative, local_partials
from optpy.symbolic.expr import ONE, ZERO, Expr, add, call, linear, mul, power
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.operations import OPERATIONS, stop_gradient
from tests.support.programs import (
    REALS,
    Program,
    Run,
    Undefined,
    build,
    guarded_sums,
    points,
    programs,
    real,
    run,
)
from tests.symbolic.test_operations import ridders

WRT = [real(n) for n in REALS]
x, y, z, _ = WRT


def values(roots: list[Expr], point: Mapping[str, float]) -> list[float]:
    return [float(v) for v in evaluate(roots, lambda key: point[key.name])]


def smooth_at(program: Program, point: Mapping[str, float]) -> Run:
    """Skip the example unless the program is defined and has a derivative there."""
    record = Run()
    try:
        run(program, point, record)
    except Undefined:
        assume(False)
    assume(not record.singular)
    assume(record.largest < 1e4)
    return record


def built(program: Program) -> Expr:
    try:
        return build(program)
    except Undefined:
        assume(False)


_programs = st.one_of(programs(), guarded_sums())


@settings(max_examples=150)
@given(_programs, points(), st.lists(st.integers(-3, 3), min_size=len(WRT), max_size=len(WRT)))
def test_forward_and_backward_sweeps_agree_with_partials(
    program: Program, point: dict[str, float], direction: list[int]
) -> None:
    record = smooth_at(program, point)
    e = built(program)
    d = Derivative([e], WRT)
    partials = [d.partial(e, v) for v in WRT]
    seeds = {v: real(f"p_{v.key}") for v in WRT}
    weight = real("w")
    adjoint = d.adjoint(e, weight)
    leaves = point | {f"p_{n}": float(k) for n, k in zip(REALS, direction, strict=True)} | {"w": 2.5}
    slopes = values(partials, leaves)
    assume(all(map(math.isfinite, slopes)))
    tolerance = 1e-8 * record.largest**2 * (1 + max(map(abs, slopes)))
    want = sum(s * k for s, k in zip(slopes, direction, strict=True))
    assert values([d.jvp(e, seeds)], leaves)[0] == pytest.approx(want, rel=1e-8, abs=tolerance)
    got = values([adjoint.get(v, ZERO) for v in WRT], leaves)
    assert got == pytest.approx([2.5 * s for s in slopes], rel=1e-8, abs=tolerance)
    assert set(adjoint) == set(d.variables(e)) or all(
        p is ZERO for v, p in zip(WRT, partials, strict=True) if v not in adjoint
    )


@settings(max_examples=150)
@given(_programs, points())
def test_partials_match_differences(program: Program, point: dict[str, float]) -> None:
    record = smooth_at(program, point)
    assume(record.margin > 0.1)
    e = built(program)
    d = Derivative([e], WRT)
    for v in WRT:

        def along(t: float, name: str = v.key.name) -> float:
            try:
                return run(program, point | {name: t}, Run())
            except Undefined:
                return math.nan

        want, error = ridders(along, point[v.key.name], 0.01)
        (got,) = values([d.partial(e, v)], point)
        if math.isfinite(want) and error < 1e-5 * (1 + abs(want)):
            assert got == pytest.approx(want, rel=1e-4, abs=1e-4 + 10 * error)


def test_derivatives_are_memoised_and_canonical() -> None:
    e = mul(call(OPERATIONS["sin"], mul(x, y)), z)
    d = Derivative([e], WRT)
    assert d.partial(e, x) is d.partial(e, x)
    assert d.partial(e, x) is mul(call(OPERATIONS["cos"], mul(x, y)), y, z)
    assert d.partial(e, x) is Derivative([e], [x]).partial(e, x)
    assert d.variables(e) == [x, y, z]
    assert d.jvp(e, {z: ONE}) is call(OPERATIONS["sin"], mul(x, y))


def test_what_does_not_depend_has_no_derivative() -> None:
    e = add(x, stop_gradient(mul(y, y)), call(OPERATIONS["floor"], z))
    d = Derivative([e, y], [x, y, z])
    assert d.partial(e, y) is ZERO
    assert d.partial(e, z) is ZERO
    assert d.partial(e, x) is ONE
    assert d.jvp(e, {y: ONE}) is ZERO
    assert d.partial(y, y) is ONE
    assert d.jvp(y, {y: z}) is z
    assert d.adjoint(y, z) == {y: z}


def test_tangent_is_linear_in_its_seeds() -> None:
    e = mul(call(OPERATIONS["exp"], x), power(y, 2))
    d = Derivative([e], [x, y])
    p, q = real("p"), real("q")
    both = d.jvp(e, {x: add(p, q), y: linear(0, [(3, p)])})
    apart = add(d.jvp(e, {x: p, y: linear(0, [(3, p)])}), d.jvp(e, {x: q}))
    point = {"x": 0.3, "y": -1.5, "p": 2.0, "q": 0.7}
    assert values([both], point) == pytest.approx(values([apart], point))


@pytest.mark.parametrize("n", [2, 5, 150])
def test_partials_of_long_products(n: int) -> None:
    leaves = [real(f"v{k}") for k in range(n)]
    e = mul(*leaves)
    point = {f"v{k}": 1 + k / n for k in range(n)}
    value = np.prod(list(point.values()))
    by_child = dict(zip(e.children, values(list(local_partials(e)), point), strict=True))
    for leaf in leaves:
        assert by_child[leaf] == pytest.approx(value / point[leaf.key.name])
    adjoint = Derivative([e], leaves).adjoint(e, ONE)
    assert values([adjoint[v] for v in leaves], point) == pytest.approx([by_child[v] for v in leaves])
