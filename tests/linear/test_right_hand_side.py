"""(J^T J + D) x = b for any b, with each preconditioner on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optpy as op
from tests.linear.assembled.test_assembled import uneven, uneven_data
from tests.support.any_right_hand_side import check
from tests.support.multigrid_cases import bending, values_of

pytestmark = pytest.mark.native


@pytest.mark.parametrize("preconditioner", [None, "auto", "jacobi", "block_jacobi", "multigrid"])
def test_on_a_grid(preconditioner: Any) -> None:
    energy = bending()
    check(energy, values_of(energy, (9, 11)), preconditioner)


@pytest.mark.parametrize("preconditioner", ["auto", "block_jacobi", "multigrid", "cholesky"])
def test_on_a_graph_with_fixed_unknowns_and_a_manifold(preconditioner: Any) -> None:
    check(uneven(), uneven_data(60, 150), preconditioner)


V, E = op.dims("V E")
v, e = op.indices(V, E)


def turned_and_moved() -> op.Energy:
    """Rotations, whose steps have fewer numbers than they have themselves, before what stands beside them."""
    Q, T = op.Unknown("Q", (V,), op.SO3), op.Unknown("T", (V,), 3)
    A, B = op.Array("A", (V,), 3), op.Array("B", (E,), 3)
    a, b = op.Graph("edges", E, (V, V))[e]
    return op.Energy(turn=Q[v] @ A[v] - T[v], edge=Q[a] @ B[e] + T[a] - T[b], near=0.1 * T[v])


@pytest.mark.parametrize("preconditioner", ["auto", "multigrid", "cholesky"])
def test_a_manifold_may_come_first(preconditioner: Any) -> None:
    energy, rng, n = turned_and_moved(), np.random.default_rng(0), 30
    assert [u.name for u in energy.problem.unknowns] == ["Q", "T"]
    data = dict(
        Q=Rotation.random(n, random_state=0).as_quat(), T=rng.normal(size=(n, 3)), A=rng.normal(size=(n, 3)),
        B=rng.normal(size=(50, 3)), edges=rng.integers(0, n, (50, 2)),
    )  # fmt: skip
    check(energy, data, preconditioner)
