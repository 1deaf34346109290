"""Routines of energies whose intermediates are found, however those are stored, against the dense Jacobian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.pipeline import derive
from optpy.api.plan import build
from optpy.ir import FuncSchedule, FuncStorage
from optpy.scheduling.funcs import with_found_funcs
from tests.support.common_energies import Written
from tests.support.operator_checks import check_everything

pytestmark = pytest.mark.native

QUICK = (0, 10, 55)
"""Beyond the border, stopped, several in one energy; all storages."""

SEEDS = [pytest.param(seed, marks=() if seed in QUICK else pytest.mark.deep) for seed in range(60)]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_routine_agrees_with_the_dense_jacobian(seed: int) -> None:
    """What is computed ahead is infinite or NaN at some points, where no residual reads it."""
    written = Written(np.random.default_rng(seed), outside=seed % 3 == 0)
    energy = written.energy()
    names = [f.name for f in with_found_funcs(energy.problem).funcs]
    assert names or seed not in QUICK
    storages = [list(FuncStorage)[(seed + n) % 3] for n in range(len(names))]
    schedule = [
        FuncSchedule(name, storage, in_cost=n % 2 == 0 and storage is not FuncStorage.INLINE)
        for n, (name, storage) in enumerate(zip(names, storages, strict=True))
    ]
    solver = build(energy, "float64", schedule)
    assert list(solver.schedule.funcs) == schedule
    for rows, columns in ((1, 1), (7, 6)):
        check_everything(energy, written.data(rows, columns), solver=solver)


H, W = op.dims("H W")
i, j = op.indices(H, W)
X, A, w = op.Unknown("X", (H, W)), op.Array("A", (H, W)), op.params("w")


def test_what_is_found_in_data_alone_is_computed_when_that_is_bound() -> None:
    """And again when an update changes what it reads."""

    def weight(a: int, b: int) -> op.Expression:
        return op.exp(-((A[i + a, j + b] - A[i + a, j + b + 1]) ** 2) * w) / op.sqrt(1 + A[i + a, j + b] ** 2)

    energy = op.Energy(
        fit=X[i, j] - A[i, j],
        near=(weight(0, 0) + weight(1, 0)) * (X[i, j] - X[i + 1, j]) + weight(0, 1) * (X[i, j] - X[i, j + 1]),
    )
    (found,) = derive(energy.problem, "float64").schedule.funcs
    assert (found.name, found.storage) == ("common 1", FuncStorage.VALUES)
    assert f"written out in near ({energy.problem.residuals[1].location})" in found.reason
    rng = np.random.default_rng(0)
    data = dict(X=np.zeros((6, 7)), A=rng.normal(size=(6, 7)), w=0.5)
    session = op.compile(energy, "cpu", np.float64).start(data)
    for change in ({}, {"w": 2.0}, {"A": rng.normal(size=(6, 7))}):
        data |= change
        session.update(**change, X=data["X"])
        session.run()
        expected = op.solve(energy, data, device="cpu", dtype=np.float64).cost
        assert session.result().cost == pytest.approx(expected, rel=1e-9)


def test_what_is_computed_ahead_and_not_finite_is_told_only_where_it_is_read() -> None:
    """With the user's own line and arrays, as if it were written where it is read."""

    def ratio(b: int) -> Any:
        return op.sqrt(X[i, j + b] ** 2 + 1) / A[i, j + b] - 1 / (1 + op.exp(X[i, j + b + 1]) ** 2)

    condition = op.params("known") > 0
    energy = op.Energy(fit=X[i, j], near=op.where((A[i, j] > 0) | condition, ratio(0) - ratio(1), 0))
    (found,) = derive(energy.problem, "float64").schedule.funcs
    assert found.storage is FuncStorage.PARTIALS
    a = np.ones((3, 5))
    a[1, 0] = 0
    data = dict(X=np.ones((3, 5)), A=a, known=0.0)
    assert np.isfinite(op.solve(energy, data, device="cpu", dtype=np.float64).cost)
    with pytest.raises(op.DataError) as caught:
        op.solve(energy, data | dict(known=1.0), device="cpu", dtype=np.float64)
    for text in ("the residual 'near'", "test_common_funcs.py", "at [H=1, W=0]", "A[1, 0] = 0"):
        assert text in str(caught.value)
