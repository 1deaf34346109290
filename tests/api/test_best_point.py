"""What comes back is a copy of the best point met, whatever the solver did to its memory afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import optpy as op

pytestmark = pytest.mark.native

N = op.dims("N")
i = op.indices(N)
X = op.Unknown("X", (N,))
energy = op.Energy(turn=op.atan(X[i]))


@pytest.mark.parametrize("length", [1, 4, 8, 64])
def test_gauss_newton_that_overshoots_returns_the_start(length: int) -> None:
    data = {"X": np.full(length, 1.5)}  # beyond |x| = 1.39 full steps on atan grow without end
    result = op.solve(energy, data, device="cpu", dtype=np.float64, method="gn", max_iterations=3)
    assert result.cost == pytest.approx(result.initial_cost)
    np.testing.assert_array_equal(result.x["X"], data["X"])


@pytest.mark.parametrize("length", [1, 4, 8, 64])
def test_an_unknown_that_was_read_does_not_change_by_later_steps(length: int) -> None:
    session = op.compile(energy, device="cpu", dtype=np.float64).start({"X": np.full(length, 1.2)})
    before = session["X"]
    session.step()
    session.step()
    np.testing.assert_array_equal(before, 1.2)
    assert np.abs(session["X"]).max() < 1.2
