from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.flat import FlatVectors
from optpy.ir import Group, Preconditioning, VectorKind
from optpy.kernels.runtime import cpu
from optpy.solver.protocol import Damping
from tests.support.bound_problem import bound_problem
from tests.support.multigrid_cases import values_of

pytestmark = pytest.mark.native


def test_kernels_of_residuals_are_compiled_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_c, names = vars(cpu)["compile_c"], []

    def told(source: str, *, name: str, **options: Any) -> Any:
        names.append(name)
        return compile_c(source, name=name, **options)

    monkeypatch.setattr(cpu, "compile_c", told)
    N = op.dims("N")
    i = op.indices(N)
    X = op.Unknown("X", (N,))
    data = {"X": np.zeros(5), "a": np.array([1.0, -2.0, -1.0, -4.0, 3.0])}
    session = op.compile(op.Energy(depth=op.log(X[i] - op.Array("a", (N,))[i])), "cpu", np.float64).start(data)
    begun = [*names]
    with pytest.raises(op.DataError, match=r"depth.*is nan at \[N=0\]"):
        session.run()
    assert names == [*begun, "late"]
    with pytest.raises(op.DataError, match=r"depth.*is nan at \[N=0\]"):
        session.run()
    assert names == [*begun, "late"]


def test_where_they_cannot_be_compiled_the_term_is_still_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_c = vars(cpu)["compile_c"]

    def without_room(source: str, *, name: str, **options: Any) -> Any:
        if name == "late":
            raise op.CompileError("no room is left")
        return compile_c(source, name=name, **options)

    monkeypatch.setattr(cpu, "compile_c", without_room)
    N = op.dims("N")
    X = op.Unknown("X", (N,))
    energy = op.Energy(depth=op.log(X[op.indices(N)]))
    with pytest.raises(op.DataError, match=r"cost is nan \(term 'depth'\).*since no room is left"):
        op.compile(energy, "cpu", np.float64).solve({"X": np.full(5, -1.0)})


# -- what solves need --------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[set[Group]]:
    """The groups of each library of kernels, in the order in which they are compiled."""
    need, found = cpu.CpuLibrary.need, []

    def there(library: cpu.CpuLibrary) -> set[int]:
        return {n for n, kernel in enumerate(library.kernels) if kernel.range}

    def told(library: cpu.CpuLibrary, groups: Any) -> None:
        before = there(library)
        need(library, groups)
        new = there(library) - before
        if new:
            found.append({g for g, kernels in library.program.groups.items() if new.issuperset(kernels)})

    monkeypatch.setattr(cpu.CpuLibrary, "need", told)
    return found


def another() -> op.Energy:
    """Of which nothing has been compiled in this process."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    return op.Energy(fit=X[i, j] - A[i, j], bend=0.1 * X[i, j] * X[i, j + 1] - 0.1 * X[i + 1, j])


def solver_and_data() -> tuple[op.Solver, dict[str, Any]]:
    energy = another()
    return op.compile(energy, "cpu"), values_of(energy, (9, 11))


@pytest.mark.parametrize(
    ("method", "product", "other"),
    [("lm", Group.PRODUCT_DAMPED, Group.PRODUCT), ("gn", Group.PRODUCT, Group.PRODUCT_DAMPED)],
)
def test_a_solve_compiles_the_product_of_its_method_alone(
    compiled: list[set[Group]], method: Any, product: Group, other: Group
) -> None:
    solver, data = solver_and_data()
    assert solver.solve(data, method=method, preconditioner="jacobi").success
    (first,) = compiled
    assert product in first
    assert other not in first
    assert {g.preconditioning for g in first} == {Preconditioning.DIAGONAL}


def test_a_solver_of_one_precision_has_both_products(compiled: list[set[Group]]) -> None:
    op.compile(another(), "cpu", np.float64)
    (first,) = compiled
    assert first >= {Group.PRODUCT, Group.PRODUCT_DAMPED}


def test_what_a_step_may_need_is_compiled_before_a_session_or_a_solve_with_a_time_limit(
    compiled: list[set[Group]],
) -> None:
    solver, data = solver_and_data()
    session = solver.start(data)
    assert [Group.START in groups for groups in compiled] == [True, False]
    assert {g.preconditioning for g in compiled[1]} == {Preconditioning.SMOOTHED}
    session.run()
    assert len(compiled) == 2
    del compiled[:]
    solver, data = solver_and_data()
    solver.solve(data, linear_iterations=1, max_iterations=1)
    assert len(compiled) == 1
    solver.solve(data, linear_iterations=1, max_iterations=1, max_time=100.0)
    assert [Group.SMOOTH_SMOOTHED in groups for groups in compiled] == [False, True]


def test_a_session_of_gauss_newton_has_both_products(compiled: list[set[Group]]) -> None:
    solver, data = solver_and_data()
    solver.start(data, method="gn", preconditioner="jacobi")
    assert [groups & {Group.PRODUCT, Group.PRODUCT_DAMPED} for groups in compiled] == [
        {Group.PRODUCT}, {Group.PRODUCT_DAMPED},
    ]  # fmt: skip


def test_the_damped_product_without_damping_is_the_other_one() -> None:
    energy = another()
    problem = bound_problem(op.compile(energy, "cpu", np.float64), values_of(energy, (9, 11)))
    problem.linearise()
    problem.damp(Damping(radius=1.0, min_lm_diagonal=1.0, max_lm_diagonal=1e10, jacobi_scaling=False))
    (x,) = problem.unknowns
    before = problem.read_vector(VectorKind.D, x)
    assert before.all()
    p = np.random.default_rng(0).normal(size=before.size)
    damped, plain = (
        FlatVectors(problem.executor, problem.unknowns, problem.linear_solver, np, product).apply_jtj(p)
        for product in (Group.PRODUCT_DAMPED, Group.PRODUCT)
    )
    np.testing.assert_allclose(damped, plain, rtol=1e-13, atol=1e-13 * abs(plain).max())
    np.testing.assert_array_equal(problem.read_vector(VectorKind.D, x), before)
