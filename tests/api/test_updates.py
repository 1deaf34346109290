"""Changes of the data between the steps of a session: what is no longer solved for must stand still."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.plan import build
from optpy.api.session import Session
from optpy.ir import FuncSchedule, FuncStorage, Group
from optpy.kernels.runtime.executor import CpuExecutor
from tests.support.bound_problem import bound_problem

pytestmark = pytest.mark.native

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, Row = op.Unknown("X", (H, W)), op.Unknown("Row", (W,))
A = op.Array("A", (H, W))
M = op.Array("M", (H, W), dtype=np.uint8)
w, limit = op.params("w limit")

ENERGY = op.Energy(
    fit=X[i, j] - A[i, j],
    smooth=w * (X[i, j] - X[i, j + 1]),
    row=0.3 * op.sin(X[i, j]) - Row[j],
    fixed={X: (M[i, j] == 1) | (A[i, j] > limit), Row: op.value(j) < 3},
)


@functools.cache
def compiled() -> op.Solver:
    """Compiled once."""
    return op.compile(ENERGY, device="cpu", dtype=np.float64)


OFF: dict[str, Any] = dict(function_tolerance=0, parameter_tolerance=0, gradient_tolerance=0, cosine_tolerance=0)


def data() -> dict[str, Any]:
    """Rows long enough that whole runs of points can be skipped."""
    rng = np.random.default_rng(0)
    return dict(
        X=rng.normal(size=(4, 200)),
        Row=rng.normal(size=200),
        A=rng.uniform(-1, 1, (4, 200)),
        M=np.zeros((4, 200), np.uint8),
        w=1.0,
        limit=10.0,
    )


def started() -> Session:
    session = compiled().start(data(), **OFF)
    session.step()
    return session


def holes() -> Any:
    """A mask with whole rows, whole runs of 64 points, and single points."""
    mask = np.zeros((4, 200), np.uint8)
    mask[0] = mask[1:, 64:128] = mask[2, 150] = 1
    return mask


def test_the_norm_of_x_is_that_of_what_is_solved_for() -> None:
    mask = np.zeros((4, 200), np.uint8)
    mask[0] = mask[1, ::2] = mask[2, 64:128] = 1  # a whole row, every other point, a run of 64
    x = np.where(mask != 0, 1e3, 2.0)  # the fixed elements would be most of the norm
    problem = bound_problem(compiled(), data() | dict(X=x, M=mask))
    free = np.concatenate([x[mask == 0], data()["Row"][3:]])
    assert problem.try_step().x_norm == pytest.approx(np.linalg.norm(free))


def expected_after(session: Session, changes: dict[str, Any], steps: int) -> dict[str, Any]:
    """The same steps from where the session stands, by a session of its own."""
    fresh = compiled().start(data() | session.x() | changes, **OFF)
    for _ in range(steps):
        fresh.step()
    return fresh.x()


CHANGES: list[dict[str, Any]] = [
    dict(M=holes()),
    dict(M=np.ones((4, 200), np.uint8)),
    dict(limit=0.0),
    dict(w=0.25),
    dict(A=np.full((4, 200), 0.5)),
    dict(Row=np.zeros(200)),
    dict(X=np.zeros((4, 200)), M=holes(), w=2.0),
    {},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda c: " ".join(c) or "nothing")
def test_steps_after_an_update_are_those_of_a_new_session(changes: dict[str, Any]) -> None:
    session = started()
    expected = [expected_after(session, changes, steps) for steps in (1, 2, 3)]
    session.update(**changes)
    for x in expected:
        session.step()
        for name, value in x.items():
            np.testing.assert_array_equal(session[name], value)


def test_what_becomes_fixed_keeps_its_present_value() -> None:
    session = started()
    before, mask = session.x(), holes() == 1
    session.update(M=holes())
    for _ in range(3):
        session.step()
        np.testing.assert_array_equal(session["X"][mask], before["X"][mask])
        np.testing.assert_array_equal(session["Row"][:3], data()["Row"][:3])
    assert not np.isin(session["X"][~mask], before["X"][~mask]).any()


def test_what_is_released_again_moves_again() -> None:
    session = started()
    session.update(M=np.ones((4, 200), np.uint8))
    still = session.x()
    session.step()
    np.testing.assert_array_equal(session["X"], still["X"])
    session.update(M=np.zeros((4, 200), np.uint8))
    session.step()
    assert not np.isin(session["X"], still["X"]).any()


def test_an_update_that_is_refused_changes_nothing() -> None:
    session, twin = started(), started()
    for bad in (dict(A=np.zeros((4, 199))), dict(w=1.0, M=np.full((4, 200), 0.5)), dict(B=1.0), dict(w=np.nan)):
        with pytest.raises(op.DataError):
            session.update(**bad)
    for s in (session, twin):
        s.step()
    np.testing.assert_array_equal(session["X"], twin["X"])


def test_the_user_s_arrays_may_change_after_the_start() -> None:
    values = data()
    session, twin = compiled().start(values, **OFF), compiled().start(data(), **OFF)
    values["X"][...] = values["A"][...] = 7
    session.step()
    twin.step()
    np.testing.assert_array_equal(session["X"], twin["X"])


def test_a_result_right_after_an_update_is_the_state_with_the_new_data() -> None:
    session, twin = started(), started()
    for changes in (dict(w=0.25), dict(M=holes(), X=np.zeros((4, 200)))):
        for s in (session, twin):
            s.update(**changes)
        result = session.result()
        now = data() | dict(w=0.25) | changes | session.x
        assert (result.status, result.nit) == (op.Status.RUNNING, 0)
        assert result.cost == result.initial_cost == pytest.approx(ENERGY.cost(now))
        assert sum(result.cost_by_term.values()) == pytest.approx(result.cost)
        assert session.step() == session.result().iterations[-1]
        twin.step()
        np.testing.assert_array_equal(session["X"], twin["X"])  # to ask has changed nothing


def test_a_result_between_updates_changes_nothing_of_the_trust_region() -> None:
    """A radius that a rejected step has left small stays so over two updates, asked or not."""
    N = op.dims("N")
    n = op.indices(N)
    x, t = op.Unknown("x", (N,)), op.params("t")
    solver = op.compile(op.Energy(fit=op.atan(x[n] - t)), device="cpu", dtype=np.float64)
    radii = []
    for asked in (True, False):
        session = solver.start(dict(x=[3.0, 3.0], t=0.0))
        assert not session.step().accepted
        small = session.step().tr_radius
        for _ in range(2):
            session.update(t=0.0)
            if asked:
                session.result()
        radii.append(session.step().tr_radius)
        assert radii[-1] <= 3 * small
    assert radii[0] == radii[1]


# -- intermediates -----------------------------------------------------------------------------------------------------

V, E = op.dims("V E")
n, e = op.indices(V, E)
Y, B, Z = op.Unknown("Y", (V,)), op.Array("B", (V,)), op.Array("Z", (V,))
held = op.Array("held", (V,), dtype=bool)
rate, scale = op.params("rate scale")
a, b = op.Graph("edges", E, (V, V))[e]


@functools.cache
def with_funcs() -> op.Solver:
    """Two intermediates that are stored when data is bound, one that is inlined, one that moves with Y."""
    grown, cheap, bent, length = *(op.Func(name, (V,)) for name in ("grown", "cheap", "bent")), op.Func("length", (E,))
    grown[n], length[e] = op.exp(rate * B[n]), 1 + (B[a] - B[b]) ** 2
    cheap[n], bent[n] = Z[n] * Z[n], op.sin(Y[n]) * Z[n] + grown[n]
    energy = op.Energy(
        fit=scale * (Y[n] - grown[n]),
        tie=(Y[a] - Y[b]) * length[e],
        low=Y[n] * cheap[n],
        bent=bent[n] * Y[n],
        fixed={Y: held[n]},
    )
    storage = dict(grown=FuncStorage.VALUES, length=FuncStorage.VALUES, bent=FuncStorage.PARTIALS)
    schedule = [FuncSchedule(f.name, storage.get(f.name, FuncStorage.INLINE)) for f in energy.problem.funcs]
    return build(energy, "float64", schedule)


def data_of_funcs() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    own = {name: rng.normal(size=7) for name in ("Y", "B", "Z")}
    return own | dict(held=np.arange(7) == 2, rate=0.5, scale=2.0, edges=np.array([[0, 1], [1, 4], [5, 6], [3, 0]]))


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        (dict(B=np.linspace(0, 1, 7)), 1),
        (dict(rate=0.25, Z=np.ones(7)), 1),
        (dict(edges=np.array([[2, 3], [1, 4], [5, 6], [6, 0]])), 1),
        (dict(rate=0.5), 0),  # as it was
        (dict(Z=np.ones(7)), 0),
        (dict(scale=1.0, Y=np.zeros(7), held=np.arange(7) == 5), 0),
        ({}, 0),
    ],
    ids=lambda c: " ".join(c) or "nothing" if isinstance(c, dict) else str(c),
)
def test_stored_intermediates_of_data_are_computed_when_it_changes(
    changes: dict[str, Any], runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = with_funcs().start(data_of_funcs(), **OFF)
    session.step()
    fresh = with_funcs().start(data_of_funcs() | session.x() | changes, **OFF)
    ran, queue = [], CpuExecutor.queue

    def noted(executor: CpuExecutor, group: Group, *more: Any, **options: Any) -> None:
        ran.append(group)
        queue(executor, group, *more, **options)

    monkeypatch.setattr(CpuExecutor, "queue", noted)
    session.update(**changes)
    for s in (session, fresh):
        s.step()
    assert ran.count(Group.FUNCS) == runs
    np.testing.assert_array_equal(session["Y"], fresh["Y"])


def test_stored_intermediates_follow_sizes() -> None:
    session = with_funcs().start(data_of_funcs(), **OFF)
    smaller = {name: value[:5] for name, value in data_of_funcs().items() if np.shape(value) == (7,)}
    smaller |= dict(edges=np.array([[0, 1], [4, 2]]))
    session.update(**smaller)
    fresh = with_funcs().start(data_of_funcs() | smaller, **OFF)
    for s in (session, fresh):
        s.step()
    np.testing.assert_array_equal(session["Y"], fresh["Y"])
    assert session["Y"].shape == (5,)
