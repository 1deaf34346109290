"""No algorithm is quadratic or recursive in the size of an expression; the image warping energy stays small.

Work is measured by the number of function calls of the interpreter, never by time.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from cProfile import Profile
from functools import partial

import pytest

from optpy.symbolic import nodes
from optpy.symbolic.count import count, count_unshared
from optpy.symbolic.derivative import Derivative
from optpy.symbolic.expr import ONE, ZERO, Expr, Var, add, call, const, mul, power, subtract, where
from optpy.symbolic.factor import factor
from optpy.symbolic.interpret import evaluate
from optpy.symbolic.nodes import to_text
from optpy.symbolic.operations import OPERATIONS, equal, less
from optpy.symbolic.traverse import map_variables, substitute, variables
from tests.support.deep import but_deep
from tests.support.programs import boolean, real

x, y = real("x"), real("y")
SIN, COS = OPERATIONS["sin"], OPERATIONS["cos"]


def work(action: Callable[[], object]) -> int:
    """How many functions the action calls."""
    profile = Profile()
    gc.disable()  # nodes that others have left would be removed by calls, which are none of the action's
    before = sys.getprofile()
    sys.setprofile(None)
    profile.enable()
    try:
        result = action()
    finally:
        profile.disable()
        sys.setprofile(before)
        gc.enable()
    del result
    return sum(entry.callcount for entry in profile.getstats())


# -- shapes of expressions -----------------------------------------------------------------------------------


def sine_chain(n: int) -> Expr:
    e: Expr = x
    for _ in range(n):
        e = add(mul(call(SIN, e), y), x)
    return e


def running_sum(n: int) -> Expr:
    e: Expr = ZERO
    for k in range(n):
        e = add(e, mul(real(f"v{k}"), real(f"v{k + 1}")))
    return e


def running_product(n: int) -> Expr:
    e: Expr = x
    for k in range(n):
        e = mul(e, real(f"v{k}"))
    return e


def nested_selection(n: int) -> Expr:
    e: Expr = x
    for k in range(n):
        e = where(less(real(f"v{k}"), x), mul(e, y), real(f"v{k}"))
    return e


def wide_sum(n: int) -> Expr:
    """Products of few factors under few conditions."""
    leaves = [real(f"v{k}") for k in range(n)]
    guards = [boolean(f"b{k}") for k in range(8)]
    return add(*(mul(guards[k % 8], leaves[k], leaves[(7 * k + 1) % n], leaves[k % 5]) for k in range(n)))


def polynomial(n: int) -> Expr:
    return add(*(mul(const(k + 1), power(x, k)) for k in range(n)))


SHAPES = [sine_chain, running_sum, running_product, nested_selection, wide_sum, polynomial]


def differentiate(e: Expr, sweep: str) -> object:
    wrt = variables([e])
    d = Derivative([e], wrt)
    match sweep:
        case "partial":
            return d.partial(e, x if x in wrt else wrt[0])
        case "jvp":
            return d.jvp(e, {v: real(f"p_{v.key}") for v in wrt})
        case _:
            return d.adjoint(e, ONE)


ACTIONS: dict[str, Callable[[Expr], object]] = {
    "partial": lambda e: differentiate(e, "partial"),
    "jvp": lambda e: differentiate(e, "jvp"),
    "adjoint": lambda e: differentiate(e, "adjoint"),
    "factor": lambda e: factor([e]),
    "substitute": lambda e: substitute([e], {x: add(x, ONE)}),
    "count": lambda e: (count([e]), count_unshared([e])),
    "text": to_text,
    "evaluate": lambda e: evaluate([e], lambda key: 0.5),
}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda f: f.__name__)
def test_building_is_near_linear(shape: Callable[[int], Expr]) -> None:
    small, large = (work(partial(shape, n)) for n in (200, 400))
    assert large <= 2.3 * small


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
@pytest.mark.parametrize("shape", SHAPES, ids=lambda f: f.__name__)
def test_algorithms_are_near_linear(shape: Callable[[int], Expr], action: Callable[[Expr], object]) -> None:
    small, large = (work(partial(action, shape(n))) for n in (200, 400))
    assert large <= 2.3 * small


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Without the cyclic garbage collector, which would look at all nodes again and again."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("depth", but_deep([3000, 10_000], (3000,)))  # Python's stack is 1000 deep
@pytest.mark.usefixtures("no_collection")
def test_deep_expressions_do_not_recurse(depth: int) -> None:
    before = len(nodes.interned_nodes)
    e = sine_chain(depth)
    assert len(nodes.interned_nodes) - before > 2 * depth
    d = Derivative([e], [x])
    slope_of_e = d.partial(e, x)
    jvp = d.jvp(e, {x: y})
    (factored,) = factor([slope_of_e])
    (replaced,) = substitute([e], {y: const(0.5)})
    value, slope, again, direction = evaluate([e, slope_of_e, factored, jvp], lambda key: 0.5)
    (same,) = evaluate([replaced], lambda key: 0.5)
    assert value == pytest.approx(same)
    assert slope == pytest.approx(again)
    assert direction == pytest.approx(0.5 * slope)
    assert count([e]).function == depth
    assert repr(e).endswith("+ x") or repr(e).startswith("t0 = ")
    del e, d, slope_of_e, jvp, factored, replaced
    assert len(nodes.interned_nodes) <= before + 10


def test_deep_polynomials_do_not_recurse() -> None:
    (e,) = factor([polynomial(3000)])
    assert float(evaluate([e], lambda key: 0.5)[0]) == pytest.approx(4)


# -- as-rigid-as-possible image warping ----------------------------------------------------------------------


def neighbour_residuals() -> list[Expr]:
    """``where(valid, w * ((O - O_n) - R(angle) (U - U_n)), 0)`` for 4 neighbours, 2 components each."""
    residuals = []
    angle = real("angle")
    cos, sin = call(COS, angle), call(SIN, angle)
    for n in range(4):
        valid = mul(boolean(f"in{n}"), equal(real("mask"), ZERO), equal(real(f"mask{n}"), ZERO))
        d = [subtract(real(f"U_{k}"), real(f"U{n}_{k}")) for k in range(2)]
        rotated = [subtract(mul(cos, d[0]), mul(sin, d[1])), add(mul(sin, d[0]), mul(cos, d[1]))]
        for k in range(2):
            r = subtract(subtract(real(f"O_{k}"), real(f"O{n}_{k}")), rotated[k])
            residuals.append(where(valid, mul(real("w"), r), ZERO))
    return residuals


def normal_equations(residuals: list[Expr]) -> list[Expr]:
    """J^T J p, J^T F and diag(J^T J) at the centre pixel, from its own and its neighbours' residuals."""
    wrt: list[Var] = [real("O_0"), real("O_1"), real("angle")]
    everything = [v for v in variables(residuals) if str(v.key).startswith("O") or v in wrt]
    seeds: dict[Var, Expr] = {v: real(f"p_{v.key}") for v in everything}
    d = Derivative(residuals, everything)
    rows: list[list[Expr]] = [[] for _ in range(9)]
    for r in residuals:
        jvp = d.jvp(r, seeds)
        for n, v in enumerate(wrt):
            slope = d.partial(r, v)
            for m, part in enumerate((jvp, r, slope)):
                rows[3 * m + n].append(mul(slope, part))
    # The neighbours' residuals are the same with the roles of the two pixels exchanged.
    return [add(*row, *map_variables(row, _from_the_other_side)) for row in rows]


def _from_the_other_side(v: Var) -> Expr:
    name: str = v.key.name
    return v if name in ("w", "mask") or v.boolean else real(f"{name}_other")


def test_image_warping_is_small() -> None:
    residuals = neighbour_residuals()
    calls = work(lambda: factor(normal_equations(residuals)))
    assert calls < 200_000  # some tens of milliseconds
    rows = normal_equations(residuals)
    factored = factor(rows)
    before, after = count(rows), count(factored)
    # Sine and cosine of the pixel's own angle and of the other's.
    assert after.function == before.function == 4
    assert after.multiply < before.multiply
    assert after.cost < before.cost
    assert count_unshared(rows).cost > 3 * before.cost
