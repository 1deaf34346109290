"""The passes of sums: which there are, when they run, and that sizes are no part of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy import ir
from optpy.api.pipeline import coupling_of
from optpy.energy.derive.problem_routines import ProblemRoutines
from optpy.ir import Group, LocalSum, Routine, Uncoupled
from optpy.kernels.runtime.executor import CpuExecutor
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables
from tests.support.func_energies import SUMS
from tests.support.schedules import routines_of

H, W, K, L = op.dims("H W K L")
i, j = op.indices(H, W)
k, n = op.indices(K, L)
X, w = op.Unknown("X", (H, W)), op.Unknown("w", (K,))
A, B, Window = op.Array("A", (H, W)), op.Array("B", (H, K)), op.Array("Window", (K, L))

PRODUCTS = (Group.PRODUCT, Group.PRODUCT_DAMPED)


def names(routines: ProblemRoutines, group: Group) -> list[str]:
    return [r.name.removeprefix(f"{group}_") for r in routines.groups.get(group, [])]


def fields(routine: Routine) -> set[str]:
    """What a routine reads."""
    roots: list[Expr] = [*routine.roots]
    return {v.key.field.name for v in variables(roots) if isinstance(v.key, ir.Access)}


def one_sum() -> op.Energy:
    s = op.sum(w[k] * B[i, k], over=k)
    return op.Energy(fit=s - A[i, 0], twice=[s * s, op.exp(s) - 1], small=w[k])


def test_each_sum_has_one_tangent_and_one_adjoint_however_many_residuals_read_it() -> None:
    routines = routines_of(one_sum())
    for group in PRODUCTS:
        assert names(routines, group) == ["tangent0", "adjoint0", "0"]
    assert names(routines, Group.GRADIENT) == ["adjoint0", "0"]
    assert names(routines, Group.MODEL_COST)[0] == "tangent0"
    assert names(routines, Group.JACOBIAN) == ["func0"]
    assert names(routines, Group.COST)[0] == "func0"
    assert Group.FUNCS not in routines.groups


def test_sums_that_others_read_come_before_them_and_their_adjoints_after() -> None:
    q = op.Array("Q", (L,))
    inner = op.sum(w[k] * Window[k, n], over=k)
    routines = routines_of(op.Energy(fit=op.sum(op.sin(inner) * q[n], over=n) - 1))
    for group in PRODUCTS:
        assert names(routines, group) == ["tangent0", "tangent1", "adjoint1", "adjoint0", "0"]
    first, second = routines.groups[Group.JACOBIAN]
    stored = {a.target.field.name for a in first.assignments}
    assert stored <= fields(second)
    assert not {a.target.field.name for a in second.assignments} & fields(first)


def test_a_pass_is_one_local_sum_over_the_loops_as_they_are_written() -> None:
    energy = op.Energy(fit=op.sum(X[i + k, j + n] * Window[k, n], over=(n, k)) - A[i, j])
    (stores,) = routines_of(energy).groups[Group.JACOBIAN]
    (local,) = stores.locals
    assert isinstance(local, LocalSum)
    assert [loop.dim.name for loop in local.loops if isinstance(loop, ir.LoopVariable)] == ["L", "K"]
    assert [i.dim.name for i in stores.domain] == ["H", "W"]
    # No routine has a term for each point of the window: sizes are known when data are bound.
    for found in routines_of(energy).groups.values():
        assert all(len(r.roots) < 20 for r in found)


def test_a_sum_of_data_is_stored_when_data_are_bound_and_never_differentiated() -> None:
    mean = op.sum(B[i, k] ** 2, over=k)
    routines = routines_of(op.Energy(fit=X[i, j] * mean - A[i, j], w=w[k]))
    assert names(routines, Group.FUNCS) == ["func0"]
    for group in (*PRODUCTS, Group.GRADIENT, Group.COST, Group.JACOBIAN, Group.MODEL_COST):
        assert not [r for r in names(routines, group) if not r.isdigit()], group
    for group in (*PRODUCTS, Group.COST):
        assert "B" not in set().union(*map(fields, routines.groups[group]))


@pytest.mark.native
def test_sums_of_data_are_computed_at_binding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = op.Energy(fit=op.sin(X[i, j]) * op.sum(B[i, k] ** 2, over=k) - A[i, j])
    solver = op.compile(energy, "cpu", "float64")
    queued: list[Group] = []
    queue = CpuExecutor.queue

    def counted(self: CpuExecutor, group: Group, *more: Any, **options: Any) -> Any:
        queued.append(group)
        return queue(self, group, *more, **options)

    monkeypatch.setattr(CpuExecutor, "queue", counted)
    rng = np.random.default_rng(0)
    data = dict(X=np.zeros((4, 3)), B=rng.uniform(1, 2, (4, 5)), A=rng.uniform(0, 1, (4, 3)))
    session = solver.start(data, method="lm")
    at_binding = queued.count(Group.FUNCS)
    assert at_binding >= 1
    for _ in range(3):
        session.step()
    assert queued.count(Group.FUNCS) == at_binding
    assert queued.count(Group.JACOBIAN) + queued.count(Group.GRADIENT) > 0
    session.update(B=2 * data["B"])
    assert queued.count(Group.FUNCS) > at_binding
    fresh = solver.start(data | dict(B=2 * data["B"]) | session.x(), method="lm")
    for s in (session, fresh):
        s.step()
    np.testing.assert_allclose(session["X"], fresh["X"], rtol=1e-3)


@pytest.mark.native
@pytest.mark.parametrize("name", SUMS)
def test_other_sizes_compile_nothing_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    energy, data = SUMS[name]()
    solver = op.compile(energy, "cpu", "float64")
    solver.solve(data(np.random.default_rng(0), 3), max_iterations=2)
    monkeypatch.setattr("optpy.api.pipeline.derive", lambda *_: pytest.fail("derived again"))
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("compiled again"))
    for size in (2, 5, 9):
        at = data(np.random.default_rng(size), size)
        result = solver.solve(at, max_iterations=3)
        assert result.initial_cost == pytest.approx(energy.cost(at), rel=1e-12)


# -- preconditioners ---------------------------------------------------------------------------------------------------


EXACT: dict[str, Any] = dict(eta=1e-12, linear_iterations=500)


def grid_energy() -> op.Energy:
    blurred = op.sum(X[i + k, j] * Window[k, 0], over=k)
    return op.Energy(fit=blurred - A[i, j], smooth=[0.3 * (X[i, j] - X[i + 1, j]), 0.3 * (X[i, j] - X[i, j + 1])])


def grid_data() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return dict(X=np.zeros((9, 8)), A=rng.normal(size=(9, 8)), Window=np.array([[0.5], [0.3], [0.2]]))


def test_what_a_sum_couples_is_no_neighbourhood() -> None:
    routines = routines_of(grid_energy())
    for reason in (routines.coupling, routines.normal):
        assert isinstance(reason, Uncoupled)
        assert "'fit' reads a sum, which couples all that is summed" in reason.reason
    assert isinstance(coupling_of(grid_energy().problem), Uncoupled)
    of_data = op.Energy(fit=X[i, j] - op.sum(B[i, k], over=k), s=[X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 1]])
    assert isinstance(routines_of(of_data).coupling, ir.Coupling)


@pytest.mark.native
@pytest.mark.parametrize("preconditioner", ["multigrid", "cholesky"])
def test_others_are_refused_with_the_reason(preconditioner: Any) -> None:
    with pytest.raises(op.OptionError, match=rf"'{preconditioner}' does not apply: .*'fit' reads a sum, .* use 'auto'"):
        op.solve(grid_energy(), grid_data(), "cpu", preconditioner=preconditioner)


@pytest.mark.native
@pytest.mark.parametrize("preconditioner", [None, "jacobi", "block_jacobi", "auto"])
def test_jacobi_solves_to_the_minimum(preconditioner: Any) -> None:
    data = grid_data()
    F = np.concatenate([r.ravel() for r in grid_energy().residuals(data).values()])
    exact = -np.linalg.lstsq(grid_energy().jacobian(data).toarray(), F, rcond=None)[0]
    result = op.solve(grid_energy(), data, "cpu", method="gn", preconditioner=preconditioner, **EXACT)
    np.testing.assert_allclose(result.x["X"].ravel(), exact, atol=1e-6)


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.native
def test_a_session_follows_data_and_sizes_of_what_is_summed() -> None:
    session = op.compile(one_sum(), "cpu", "float64").start(dict(w=np.ones(3), B=np.ones((4, 3)), A=np.ones((4, 1))))
    session.step()
    rng = np.random.default_rng(2)
    other = dict(w=rng.normal(size=5), B=rng.normal(size=(6, 5)), A=rng.normal(size=(6, 1)))
    session.update(**other)
    fresh = op.compile(one_sum(), "cpu", "float64").start(other)
    for s in (session, fresh):
        s.step()
    np.testing.assert_allclose(session["w"], fresh["w"], rtol=1e-9)
    assert session["w"].shape == (5,)


@pytest.mark.native
@pytest.mark.parametrize("terms", [3, 5000])
def test_what_is_not_finite_in_a_sum_is_told(terms: int) -> None:
    """Where its terms are too many to be written out, by the name of the residual's term or of the unknown alone."""
    of_cost = op.Energy(total=op.sum(1 / w[k], over=k) - 1)
    with pytest.raises(op.DataError, match=r"'total'"):
        op.solve(of_cost, dict(w=np.zeros(terms)), "cpu")
    of_slope = op.Energy(total=op.sum(op.sqrt(w[k]), over=k) - 1)
    with pytest.raises(op.DataError, match=r"by w"):
        op.solve(of_slope, dict(w=np.zeros(terms)), "cpu")


@pytest.mark.native
def test_a_sum_over_no_edges_is_nothing() -> None:
    V, E = op.dims("V E")
    v, e = op.indices(V, E)
    P, A = op.Unknown("P", (V,)), op.Array("A", (V,))
    a, b = op.Graph("edges", E, (V, V))[e]
    energy = op.Energy(total=op.sum((P[a] - P[b]) ** 2, over=e) - 2, near=P[v] - A[v])
    data = dict(P=np.ones(4), A=np.arange(4.0), edges=np.zeros((0, 2), int))
    assert energy.cost(data) == 0.5 * (4 + 1 + 0 + 1 + 4)
    assert energy.jacobian(data).shape == (5, 4)
    result = op.solve(energy, data, "cpu", method="gn")
    np.testing.assert_allclose(result.x["P"], np.arange(4), atol=1e-12)
    assert result.cost == pytest.approx(2)
