"""Interning: equal structure is one object, in an order that is the same everywhere."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optpy.symbolic import nodes
from optpy.symbolic.expr import ONE, ZERO, Const, Expr, Sum, add, call, const, linear, mul, power, subtract, var
from optpy.symbolic.number import normal
from optpy.symbolic.operations import OPERATIONS, equal, less
from optpy.symbolic.order import topological
from tests.support.programs import Leaf, Program, Undefined, boolean, build, programs, real

x, y, z = real("x"), real("y"), real("z")


# -- one object ----------------------------------------------------------------------------------------------


@given(programs())
def test_building_twice_gives_the_same_object(program: Program) -> None:
    try:
        first = build(program)
    except Undefined:
        return
    assert build(program) is first


def test_equal_keys_are_one_leaf() -> None:
    assert var(Leaf("q")) is var(Leaf("q"))
    assert var(Leaf("q")) is not var(Leaf("r"))


def test_copies_are_the_node_itself() -> None:
    e = mul(x, add(y, ONE))
    assert copy.copy(e) is e
    assert copy.deepcopy([e])[0] is e


def test_pickling_is_refused() -> None:
    with pytest.raises(TypeError, match="interned"):
        pickle.dumps(add(x, y))


def test_unused_nodes_are_freed() -> None:
    gc.collect()
    before = len(nodes.interned_nodes)
    e: Expr | None = call(OPERATIONS["sin"], add(real("only_here"), mul(x, y)))
    assert len(nodes.interned_nodes) > before
    del e
    gc.collect()
    assert len(nodes.interned_nodes) == before


def test_a_node_takes_the_place_of_its_equal_that_is_no_more() -> None:
    """As where one thread builds a node while another one drops its equal, and takes it out too late."""
    stale = nodes.NodeReference(Const())
    stale.key = (Const, 123457)
    nodes.interned_nodes[stale.key] = stale
    assert stale() is None
    node = const(123457)
    nodes.forget(stale)
    assert const(123457) is node


def test_threads_get_the_same_object() -> None:
    names = [f"v{n}" for n in range(300)]
    found: list[list[Expr]] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait()
        found.append([mul(real(n), add(real(n), const(k))) for k, n in enumerate(names)])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    for same in zip(*found, strict=True):
        assert len(set(map(id, same))) == 1


# -- numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "form"),
    [
        (2.0, 2),
        (-0.0, 0),
        (Fraction(4, 2), 2),
        (0.5, Fraction(1, 2)),
        (Fraction(1, 3), Fraction(1, 3)),
        (Fraction(np.int64(1), np.int64(3)), Fraction(1, 3)),  # type: ignore[call-overload]
        (0.1, 0.1),
        (True, 1),
        (np.float64(0.25), Fraction(1, 4)),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.int32(7), 7),
        (2**60, float(2**60)),
        (1e300, 1e300),
        (Fraction(1, 2**60), 2.0**-60),
    ],
)
def test_a_number_has_one_form(given_: float, form: float) -> None:
    assert normal(given_) == form
    assert type(normal(given_)) is type(form)
    assert repr(normal(given_)) == repr(form)


@given(st.one_of(st.integers(), st.fractions(), st.floats(allow_nan=False, allow_infinity=False)))
def test_equal_numbers_are_one_node(number: Fraction | float) -> None:
    try:
        node = const(number)
    except ValueError:  # a huge integer overflows
        assert abs(Fraction(number)) > 10**308
        return
    assert isinstance(node, Const)
    assert const(node.value) is node
    assert const(float(number)) is const(float(node.value))
    if float(number) == number:
        assert const(float(number)) is node


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_infinite_and_undefined_constants_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        const(bad)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="not a real number"):
        const(1j)  # type: ignore[arg-type]


def test_calls_that_fold_to_infinity_stay_calls() -> None:
    log_of_zero = call(OPERATIONS["log"], ZERO)
    assert not isinstance(log_of_zero, Const)
    assert mul(ZERO, log_of_zero) is ZERO
    assert call(OPERATIONS["log"], ONE) is ZERO


# -- order ---------------------------------------------------------------------------------------------------


def test_order_of_construction_does_not_matter() -> None:
    assert add(x, y) is add(y, x)
    assert mul(x, y) is mul(y, x)
    assert equal(x, y) is equal(y, x)
    assert add(x, add(y, z)) is add(add(z, x), y)
    assert mul(x, mul(y, z)) is mul(mul(z, x), y)
    assert subtract(x, y) is linear(0, [(-1, y), (1, x)])


_FACTORS = [
    *(x, y, add(x, y), subtract(y, x), linear(2, [(4, x)]), linear(0, [(2, x), (3, y)])),
    *(const(-3), const(Fraction(1, 2)), boolean("a"), less(x, y)),
    *(power(x, -1), power(y, 2), power(x, Fraction(1, 2)), power(add(x, y), Fraction(-1, 2))),
]


@given(st.lists(st.sampled_from(_FACTORS), min_size=3, max_size=5), st.randoms(use_true_random=False))
def test_products_and_sums_are_associative_and_commutative(parts: list[Expr], random: Random) -> None:
    for combine in (add, mul):
        shuffled = list(parts)
        random.shuffle(shuffled)
        left = shuffled[0]
        for p in shuffled[1:]:
            left = combine(left, p)
        right = parts[-1]
        for p in parts[-2::-1]:
            right = combine(p, right)
        assert left is right is combine(*parts)


_REPRODUCED = """
from tests.support.programs import real, boolean
from optpy.symbolic.expr import *
from optpy.symbolic.operations import less, sqrt
from optpy.symbolic.factor import factor
from optpy.symbolic.derivative import Derivative
from fractions import Fraction
v = [real(n) for n in "pqrstuvwxyz"]
if {warm}:  # other nodes first: neither history nor addresses may matter
    keep = [const(0.5), *(mul(a, b) for a in v for b in v[::-1]), const(Fraction(1, 2))]
terms = [mul(a, b, const(n * 0.1)) for n, (a, b) in enumerate(zip(v, v[1:]))]
e = where(less(v[0], v[1]), add(*terms), sqrt(v[3]))
e = mul(e, where(boolean("a"), add(*v), power(v[2], 0.5)))
(f,) = factor([Derivative([e], [v[1]]).partial(e, v[1])])
print(repr(e), e.digest.hex(), repr(f), f.digest.hex())
"""


def test_order_is_the_same_in_every_process() -> None:
    outputs = set()
    for seed, warm in (("0", False), ("1", True)):
        result = subprocess.run(
            [sys.executable, "-c", _REPRODUCED.format(warm=warm)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(result.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 200


# -- leaves --------------------------------------------------------------------------------------------------


def test_what_is_known_to_be_finite() -> None:
    u = real("u")  # the one variable that promises to be
    sin, log = OPERATIONS["sin"], OPERATIONS["log"]
    assert u.finite
    assert not x.finite
    assert add(u, power(u, 2), call(sin, u)).finite
    assert less(x, power(x, -1)).finite
    assert not add(u, x).finite
    assert not power(u, -1).finite
    assert not power(u, Fraction(1, 2)).finite
    assert not call(log, u).finite
    assert not call(sin, x).finite


def test_children_and_kinds() -> None:
    e = add(mul(x, y), const(3))
    assert isinstance(e, Sum)
    assert e.children == (mul(x, y),)
    order = topological((e, x))
    assert order[-1] is e
    assert set(order) == {x, y, mul(x, y), e}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_child_of_a_fork_builds_and_drops_nodes_though_another_thread_held_the_lock() -> None:
    kept = [nodes.const(12345.678)]
    held, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with nodes.interning_lock:
            held.set()
            ended.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks in a process with threads
            child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends a child that waits
            kept.clear()
            os._exit(0 if nodes.const(87654.321).value == 87654.321 else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        ended.set()
        thread.join()
