"""Sessions on GPUs, and on the CPU what both owe: the current device, streams, whose memory data is in, and when."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api import backend, plan
from optpy.api.device_choice import DeviceChoice
from optpy.api.plan import build
from optpy.api.session import Session
from optpy.energy.data.binding import bind
from optpy.kernels.runtime.buffers import Buffers
from optpy.kernels.runtime.tables import Connectivity
from tests.support.bound_problem import bound_problem, record_problems
from tests.support.emulator.emulated_device import EmulatedDevice

pytestmark = pytest.mark.usefixtures("strict")

V, E = op.dims("V E")
v, e = op.indices(V, E)
X, A = op.Unknown("X", (V,), 2), op.Array("A", (V,), 2)
W, M = op.Array("W", (E,)), op.Array("M", (V,), dtype=bool)
a, b = op.Graph("edges", E, (V, V))[e]
w = op.params("w")
ENERGY = op.Energy(fit=op.sin(X[v] - A[v]), smooth=w * W[e] * (X[a] - X[b]), fixed={X: M[v]})
OPTIONS: dict[str, Any] = dict(preconditioner="block_jacobi", eta=0.0, linear_iterations=6)


def edges(count: int) -> Any:
    return np.random.default_rng(count).integers(0, 12, (count, 2))


def data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return dict(
        X=rng.normal(size=(12, 2)),
        A=rng.normal(size=(12, 2)),
        W=rng.uniform(0.5, 1, 20),
        M=np.arange(12) % 5 == 0,
        edges=edges(20),
        w=0.5,
    )


MORE: dict[str, Any] = dict(edges=edges(33), W=np.linspace(0.5, 1, 33))


@pytest.fixture(params=["cpu", "cuda"])
def solver(request: pytest.FixtureRequest, emulated: EmulatedDevice) -> op.Solver:
    return op.compile(ENERGY, request.param, np.float64)


# -- the current device ------------------------------------------------------------------------------------------------


def test_work_for_a_device_that_is_not_current_is_seen_by_these_tests(emulated: EmulatedDevice) -> None:
    compiled = op.compile(ENERGY, "cuda", np.float64)
    with pytest.raises(AssertionError, match="another device is the thread's current one"):
        bind(ENERGY.problem, data(), np.float64, emulated.xp)
    with pytest.raises(AssertionError, match="another device is the thread's current one"):
        bound_problem(compiled, data()).evaluate()


def test_all_work_is_done_with_the_device_current_in_any_thread(emulated: EmulatedDevice) -> None:
    failures: list[Exception] = []
    session = op.compile(ENERGY, "cuda", np.float64).start(data(), **OPTIONS)

    def use(session: Session) -> None:
        try:
            session.step()
            session.update(w=0.3, A=np.ones((12, 2)))
            session.update(**MORE)
            session.run()
            assert session.benchmark("applyJTJ", 1) > 0
            assert session.benchmark("pcg", 1) > 0
            np.testing.assert_array_equal(session.x()["X"], session["X"])
            np.testing.assert_array_equal(session.result().x["X"], session["X"])
            assert "RUNNING" not in repr(session)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=use, args=(session,))
    thread.start()
    thread.join()
    use(op.compile(ENERGY, "cuda", np.float64).start(data(), **OPTIONS))
    seen: list[Any] = []
    op.solve(ENERGY, data(), "cuda", np.float64, callback=lambda state: seen.append(state.x), max_iterations=2)
    assert seen
    assert failures == []


# -- streams -----------------------------------------------------------------------------------------------------------


def test_nothing_is_left_to_be_done_when_data_has_been_bound(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host waits by reading; whatever stream comes next, and whoever writes to the data, comes after all copies."""
    done: list[str] = []

    def logged(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            done.append(name)
            return method(*arguments, **options)

        return call

    for name in ("launch", "to_host"):
        monkeypatch.setattr(emulated, name, logged(name, getattr(emulated, name)))
    session = op.compile(ENERGY, "cuda", np.float64).start(data(), **OPTIONS)
    assert done.count("to_host") == 1
    assert done[-1] == "to_host"
    for change in (dict(A=np.ones((12, 2))), dict(edges=edges(20)), MORE, dict(w=2.0)):
        session.step()
        done.clear()
        session.update(**change)
        assert done.count("to_host") == 1
        assert done[-1] == "to_host"


def test_tables_are_shared_only_once_they_have_been_built(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = build(ENERGY, "float64", choice=DeviceChoice(emulated, ""))
    with monkeypatch.context() as patch:
        patch.setattr(emulated, "to_host", lambda array: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            compiled.start(data())
    assert compiled.compiled.last_connectivity == {}
    compiled.start(data())
    assert list(compiled.compiled.last_connectivity) == list(ENERGY.graphs)


# -- whose memory the data is in -----------------------------------------------------------------------------------


def costs(session: Session, steps: int = 2) -> list[float]:
    return [session.step().cost for _ in range(steps)]


def test_what_users_write_later_is_not_seen_by_updates_of_sizes(solver: op.Solver, emulated: EmulatedDevice) -> None:
    """Data may be taken without a copy by a check, be it NumPy's or the GPU's own, but not by a session."""
    given, twin = data(), solver.start(data(), **OPTIONS)
    if solver.device == "cuda":
        with emulated.current():
            given |= {name: emulated.xp.wrap(given[name]) for name in ("X", "A", "M")}
    session = solver.start(given, **OPTIONS)
    np.testing.assert_array_equal(costs(session), costs(twin))
    with emulated.current():
        given["X"][...] = given["A"][...] = np.nan
        given["M"][...] = True
    for count in (33, 33, 7):
        change = dict(edges=edges(count), W=np.ones(count))
        session.update(**change)
        twin.update(edges=edges(count), W=np.ones(count))
        change["edges"][...], change["W"][...] = 0, np.nan
        np.testing.assert_array_equal(costs(session), costs(twin))


def test_after_other_sizes_a_session_goes_on_as_a_new_one_would(solver: op.Solver) -> None:
    session = solver.start(data(), **OPTIONS)
    session.step()
    fresh = solver.start(data() | session.x() | MORE, **OPTIONS)
    session.update(**MORE)
    np.testing.assert_array_equal(costs(session), costs(fresh))


def test_the_device_holds_no_second_copy_of_the_data(emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: list[weakref.ref[Any]] = []

    def watched(*arguments: Any) -> Any:
        bound = bind(*arguments)
        uploaded.extend(weakref.ref(array) for array in bound.arrays.values())
        return bound

    def alive() -> int:
        return sum(array() is not None for array in uploaded)

    monkeypatch.setattr(plan, "bind", watched)
    session = op.compile(ENERGY, "cuda", np.float64).start(data(), **OPTIONS)
    assert (len(uploaded), alive()) == (4, 0)
    assert session["X"].shape == (12, 2)
    seen: list[int] = []
    op.solve(ENERGY, data(), "cuda", np.float64, callback=lambda state: seen.append(alive()), max_iterations=1)
    assert len(uploaded) == 8
    assert {*seen} == {0}


# -- when ------------------------------------------------------------------------------------------------------------


def test_the_old_memory_is_free_before_the_new_is_taken(solver: op.Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    made = record_problems(monkeypatch)
    session = solver.start(data(), **OPTIONS)
    session.step()
    old = weakref.ref(made.pop().buffers)
    alive: list[bool] = []

    def allocated(*arguments: Any) -> Buffers:
        alive.append(old() is not None)
        return Buffers(*arguments)

    monkeypatch.setattr(backend, "Buffers", allocated)
    session.update(**MORE)
    assert alive == [False]
    session.step()


def uses(session: Session) -> list[Callable[[], Any]]:
    return [
        session.step,
        session.run,
        session.x,
        session.result,
        lambda: session.status,
        lambda: session["X"],
        lambda: session.update(w=1.0),
        lambda: session.benchmark("pcg"),
    ]


def assert_ended(session: Session, why: str) -> None:
    for use in uses(session):
        with pytest.raises(op.OptpyError, match=f"the session has ended: an update could not be finished .*{why}.*"):
            use()
    assert why in repr(session)


def test_a_session_whose_new_sizes_do_not_fit_has_ended_and_says_so(emulated: EmulatedDevice) -> None:
    session = op.compile(ENERGY, "cuda", np.float64).start(data(), **OPTIONS)
    session.step()
    emulated.free_bytes = 1000
    with pytest.raises(op.DeviceMemoryError, match="are free on emulated GPU"):
        session.update(**MORE)
    emulated.free_bytes = 2**40
    assert_ended(session, "are free on emulated GPU")


def test_a_session_ends_where_memory_is_refused(solver: op.Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    session = solver.start(data(), **OPTIONS)

    def refused(*arguments: Any) -> Buffers:
        raise MemoryError("no more")

    monkeypatch.setattr(backend, "Buffers", refused)
    why = "no more" if solver.device == "cpu" else "the solve needs"
    with pytest.raises(MemoryError, match=why):
        session.update(**MORE)
    assert_ended(session, why)


def test_an_update_cut_in_two_is_never_solved_on(solver: op.Solver, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the params of the update, and the arrays of before, results would be those of no data at all."""
    session = solver.start(data(), **OPTIONS)

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Buffers, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.update(w=3.0, A=np.ones((12, 2)))
    assert_ended(session, "KeyboardInterrupt")


def test_data_that_is_refused_ends_nothing(solver: op.Solver) -> None:
    session, twin = (solver.start(data(), **OPTIONS) for _ in range(2))
    for bad in (dict(W=np.ones(33)), dict(MORE, W=np.full(33, np.nan)), dict(MORE, w=np.inf)):
        with pytest.raises(op.DataError):
            session.update(**bad)
    np.testing.assert_array_equal(costs(session), costs(twin))


# -- a device that is full -------------------------------------------------------------------------------------------


def full(*arguments: Any, **options: Any) -> Any:
    raise MemoryError("out of memory allocating 99 bytes")


FULL = "bytes as given, does not fit beside what else is in the memory of the GPU: out of memory allocating 99"


@pytest.mark.parametrize("where", ["upload", "copies of what stays"])
def test_a_session_on_a_device_too_full_for_new_data_stays_as_it_was(
    where: str, emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = op.compile(ENERGY, "cuda", np.float64)
    session, twin = (compiled.start(data(), **OPTIONS) for _ in range(2))
    with monkeypatch.context() as patch:
        if where == "upload":
            patch.setattr(emulated.xp, "asarray", full, raising=False)
        else:
            patch.setattr(Buffers, "read", full)
        changes = [dict(A=np.ones((12, 2))), MORE] if where == "upload" else [MORE]
        for change in changes:
            with pytest.raises(op.DeviceMemoryError, match=FULL):
                session.update(**change)
        if where == "upload":
            with pytest.raises(op.DeviceMemoryError, match=FULL):
                compiled.start(data(), **OPTIONS)
    assert costs(session) == costs(twin)
    for each in (session, twin):
        each.update(**MORE)
    assert costs(session) == costs(twin)


def test_a_device_too_full_for_tables_of_edges_says_so_at_the_start_and_in_an_update(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = op.compile(ENERGY, "cuda", np.float64)
    session = compiled.start(data(), **OPTIONS)
    monkeypatch.setattr(Connectivity, "table", full)
    with pytest.raises(op.DeviceMemoryError, match=FULL):
        compiled.start({**data(), "edges": edges(20)[::-1]}, **OPTIONS)
    with pytest.raises(op.DeviceMemoryError, match=FULL):
        session.update(edges=edges(20)[::-1])
    assert_ended(session, "out of memory allocating 99")


@pytest.mark.native
def test_main_memory_that_is_full_is_not_the_device_s(monkeypatch: pytest.MonkeyPatch) -> None:
    session = op.compile(ENERGY, "cpu", np.float64).start(data(), **OPTIONS)
    twin = op.compile(ENERGY, "cpu", np.float64).start(data(), **OPTIONS)
    with monkeypatch.context() as patch:
        patch.setattr(Buffers, "read", full)
        with pytest.raises(MemoryError) as caught:
            session.update(**MORE)
    assert not isinstance(caught.value, op.DeviceMemoryError)
    assert costs(session) == costs(twin)
