"""What robust losses refuse, with the user's line: when they are made, and in an energy."""

from __future__ import annotations

from typing import Any

import pytest

import optpy as op

H, W, N = op.dims("H W N")
i, j = op.indices(H, W)
n = op.indices(N)
V, B = op.Unknown("V", (H, W), 3), op.Array("B", (H, W), 3)
Y, T = op.Unknown("Y", (N,)), op.Array("T", (N,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: op.robust(Y[n], "hubert"), r"no loss 'hubert'; there are 'linear', 'huber'"),
        (lambda: op.robust(Y[n], 2), "no loss 2"),  # type: ignore[arg-type]
        (lambda: op.robust(Y[n], "huber", scale=0), "positive, not 0"),
        (lambda: op.robust(Y[n], "linear", scale=-1.5), "positive, not -1.5"),
        (lambda: op.robust(V[i, j], "huber", scale=B[i, j]), r"a scalar, not of shape \(3,\)"),
        (lambda: op.robust(Y[n], "huber", scale=Y[n]), "depends on the unknown 'Y'.*stop_gradient"),
        (lambda: op.robust(op.robust(Y[n], "huber"), "cauchy"), "robust already"),
        (lambda: op.robust(Y[n], "huber", scale=op.robust(T[n], "huber")), "robust already"),
        (lambda: op.robust(Y, "huber"), "index it"),
    ],
)
def test_what_it_refuses_at_once(make: Any, message: str) -> None:
    with pytest.raises(op.EnergyError, match=message) as caught:
        make()
    assert "test_robust_refusals.py" in str(caught.value)


HUBER = op.robust(Y[n], "huber")
BLOCK = op.robust(V[i, j], "huber")


@pytest.mark.parametrize(
    ("residual", "message"),
    [
        (HUBER + 1, "added"),
        (HUBER + Y[n], "added"),
        (HUBER - op.robust(T[n] - Y[n], "huber"), "added"),
        (op.where(T[n] > 0, HUBER, 0) + op.where(T[n] > 1, Y[n], 0), "added"),
        (BLOCK.sum(), "added"),
        (HUBER * Y[n], r"multiplied by what depends on the unknown 'Y'.*op.robust\(factor \* r"),
        (HUBER * HUBER, "power"),
        (HUBER * op.robust(Y[n], "cauchy"), "another one"),
        (op.sqrt(HUBER), "power"),
        (op.sin(HUBER), "inside sin"),
        (op.stop_gradient(HUBER) + Y[n], "inside stop_gradient"),
        (op.where(HUBER < 1, Y[n], 0), "inside less"),
        (BLOCK[0], "taken apart"),
        (op.vector(BLOCK[0], BLOCK[1], BLOCK[1]), "taken apart"),
        (op.vector(1, 2, 3) * BLOCK, "factors of their own"),
        (op.where(V[i, j] > 0, BLOCK, 0), "factors of their own"),
    ],
)
def test_what_it_refuses_in_an_energy(residual: op.Expression, message: str) -> None:
    with pytest.raises(op.EnergyError, match=message) as caught:
        op.Energy(term=residual)
    assert "test_robust_refusals.py" in str(caught.value)
    assert "'term'" in str(caught.value)


def test_a_condition_of_fixed_is_no_residual() -> None:
    with pytest.raises(op.EnergyError, match="makes residuals, not numbers"):
        op.Energy(f=Y[n], fixed={Y: op.robust(T[n], "huber") > 1})


def test_a_list_cannot_share_a_block() -> None:
    with pytest.raises(op.EnergyError, match=r"'f\[0\]'.*taken apart"):
        op.Energy(f=[BLOCK[0], BLOCK[1], BLOCK[2]])
