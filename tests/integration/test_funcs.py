"""Routines of energies with intermediates, however those are stored, against the dense Jacobian of what is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.plan import build
from optpy.ir import FuncSchedule, FuncStorage
from tests.support.deep import but_deep
from tests.support.func_energies import ENERGIES, EXACT_BLOCKS, SUMS
from tests.support.operator_checks import check_everything

pytestmark = pytest.mark.native

OF_DATA = {"C", "known"}
"""The intermediates of these energies that read no unknown."""

STORED = [(storage, in_cost) for storage in FuncStorage for in_cost in (False, True)]


@pytest.mark.parametrize("stored", but_deep(STORED, (STORED[1], *STORED[3:])), ids=str)
@pytest.mark.parametrize("name", ENERGIES)
def test_every_routine_agrees_with_the_dense_jacobian(name: str, stored: tuple[FuncStorage, bool]) -> None:
    storage, in_cost = stored
    energy, data = ENERGIES[name]()
    alone = OF_DATA if storage is FuncStorage.INLINE else set()  # which have nothing for costs, either
    schedule = [FuncSchedule(f.name, storage, in_cost and f.name not in alone) for f in energy.problem.funcs]
    solver = build(energy, "float64", schedule)
    assert list(solver.schedule.funcs) == schedule
    for n in (2, 3, 6):
        check_everything(energy, data(np.random.default_rng(n), n), solver=solver)


@pytest.mark.parametrize("name", SUMS)
def test_every_routine_of_sums_agrees_with_the_dense_jacobian(name: str) -> None:
    energy, data = SUMS[name]()
    solver = build(energy, "float64")
    for n in (2, 3, 6):  # other sizes compile nothing anew
        check_everything(energy, data(np.random.default_rng(n), n), solver=solver, exact_blocks=name in EXACT_BLOCKS)


H, W, V, E = op.dims("H W V E")
i, j = op.indices(H, W)
n, e = op.indices(V, E)


@pytest.mark.parametrize("storage", FuncStorage)
def test_a_value_that_is_not_finite_is_told_with_what_it_reads(storage: FuncStorage) -> None:
    X, A, w = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.params("w")
    ratio, far = op.Func("ratio", (H, W)), op.Func("far", (H, W), 2)
    ratio[i, j] = w / A[i, j]
    far[i, j] = op.vector(1, ratio[i, j + 1] * X[i, j + 1])
    energy = op.Energy(fit=X[i, j], smooth=op.vector(X[i, j], X[i, j] - far[i, j][1]))
    solver = build(energy, "float64", [FuncSchedule(name, storage) for name in ("ratio", "far")])
    a = np.ones((3, 4))
    a[1, 2] = 0
    with pytest.raises(op.DataError) as caught:
        solver.solve(dict(X=np.ones((3, 4)), A=a, w=2.0))
    for text in (
        "the residual 'smooth'", "test_funcs.py", "is -inf at [H=1, W=1], component 1; it reads far[1, 1][1] = inf, ",
        "A[1, 2] = 0", "X[1, 2] = 1", "w = 2", "1 of its 24 values", "op.where",
    ):  # fmt: skip
        assert text in str(caught.value)


def test_a_slope_that_is_not_finite_is_told_with_what_it_reads() -> None:
    """On a graph, through an intermediate with stored partials."""
    Y = op.Unknown("Y", (V,), 2)
    a, b = op.Graph("edges", E, (V, V))[e]
    length = op.Func("length", (E,))
    length[e] = op.norm(Y[a] - Y[b])
    energy = op.Energy(fit=Y[n] - 1, stretch=length[e] - 2)
    solver = build(energy, "float64", [FuncSchedule("length", FuncStorage.PARTIALS)])
    with pytest.raises(op.DataError) as caught:
        solver.solve(dict(Y=[[0.0, 1.0], [3.0, 4.0], [3.0, 4.0]], edges=[[0, 1], [1, 2]]))
    for text in ("'stretch'", "by Y[1][0]", "[E=1]", "norm of a zero vector", "Y[1][0] = 3", "Y[2][1] = 4"):
        assert text in str(caught.value)


def test_weights_that_follow_the_unknowns_are_held_within_a_step() -> None:
    """Held as a whole, held in part, and held where it is read."""
    S, B = op.Unknown("S", (V,)), op.Array("B", (V,))

    def energy(func: bool) -> op.Energy:
        def named(name: str, formula: op.Expression) -> op.Expression:
            made = op.Func(name, (V,))
            made[n] = formula
            return made[n] if func else formula

        weight = named("weight", op.stop_gradient((S[n] ** 2 + 1e-6) ** -0.25))
        part = named("part", op.stop_gradient(op.cos(S[n])) * op.sin(S[n] - B[n]))
        slope = named("slope", op.exp(0.3 * S[n]))
        return op.Energy(fit=S[n] - B[n], l1=weight * S[n], part=part, read=op.stop_gradient(slope) * S[n] + slope)

    data = dict(S=np.linspace(-2, 2, 9), B=np.array([-2.5, -0.4, 0.2, 0.9, 1.6, 3, 0, -1, 2]))
    options: dict[str, Any] = dict(max_iterations=6, method="gn", device="cpu")
    expected = op.solve(energy(False), data, **options)
    options.pop("device")
    for storage in FuncStorage:
        schedule = [FuncSchedule(name, storage, True) for name in ("weight", "part", "slope")]
        found = build(energy(True), "float64", schedule).solve(data, **options)
        costs, right = ([r.cost for r in result.iterations] for result in (found, expected))
        np.testing.assert_allclose(costs, right, rtol=1e-12)
        np.testing.assert_allclose(found.x["S"], expected.x["S"], rtol=1e-9, atol=1e-9)
    assert len(right) > 3
