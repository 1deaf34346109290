"""What float32 loses of data, and what is only its ordinary rounding. Warnings are errors in these tests."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.energy.data.binding import bind, bind_update

H, W, N = op.dims("H W N")
i, j = op.indices(H, W)
n = op.indices(N)
p = op.params("p")
X = op.Unknown("X", (N,))
A, V = op.Array("A", (N,)), op.Array("V", (N,), 3)
S, D = op.Array("S", (N,), dtype=np.float32), op.Array("D", (N,), dtype=np.float64)

COUNT = 3000


def normal(*shape: int) -> Any:
    return np.random.default_rng(7).normal(size=shape)


def bound(dtype: Any = np.float32, **given: Any) -> Any:
    """X, and one array or param, bound."""
    sources = {"A": A[n], "V": V[n], "S": S[n], "D": D[n], "p": p}
    energy = op.Energy(fit=[X[n] - 1, *(sources[name] * X[n] for name in given if name != "X")])
    size = next((len(v) for v in given.values() if np.ndim(v)), 1)
    return bind(energy.problem, {"X": np.zeros(size, np.float32), **given}, dtype)


WALK = np.cumsum(normal(COUNT))
FLAT = normal(COUNT, 3) * [1e-2, 1e-2, 0] + [0, 0, 1]
FLAT /= np.linalg.norm(FLAT, axis=1)[:, None]
ORDINARY = {
    "random": normal(COUNT),
    "a million random ones": normal(1_000_000),
    "a picture": np.random.default_rng(1).random(COUNT),
    "bytes of a picture": np.arange(COUNT) % 256 / 255,
    "temperatures": 293.15 + normal(COUNT),
    "a wall before a camera": 1000 + normal(COUNT),
    "a fine ramp": np.linspace(0, 1, 1_000_000),
    "large": 1e30 * normal(COUNT),
    "tiny": 1e-30 * normal(COUNT),
    "an outlier": np.append(normal(COUNT), 1e12),
    "many orders": np.exp(10 * normal(COUNT)),
    "a walk": WALK,
    "all ones": np.ones(COUNT),
    "all thirds": np.full(COUNT, 1 / 3),
    "all of a computed weight": np.full(COUNT, math.sqrt(1e9)),
    "thirds but for rounding": 1 / 3 + 1e-16 * normal(COUNT),
    "weights in clusters": np.repeat([0.57735026919, 1.0], COUNT) * (1 + 1e-15 * normal(2 * COUNT)),
    "whole numbers that fit": 2.0**23 + np.arange(COUNT),
    "steps that fit": 1.7e9 + 128 * np.arange(COUNT),
    "one point": np.array([0.1]),
    "none but zeros": np.zeros(COUNT),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_data_is_rounded_without_a_word(name: str) -> None:
    bound(A=ORDINARY[name])
    bound(X=ORDINARY[name])


@pytest.mark.parametrize("vectors", [normal(COUNT, 3), FLAT, normal(COUNT, 3) * [1, 1, 1e-9] + [0, 0, 1]])
def test_a_channel_that_hardly_varies_beside_the_others_is_rounded_without_a_word(vectors: Any) -> None:
    bound(V=vectors)


def test_rotations_near_the_identity_are_rounded_without_a_word() -> None:
    R, P = op.Unknown("R", (N,), op.SO3), op.Array("P", (N,), op.SE3)
    turn = 1e-5 * normal(COUNT, 3)
    q = np.concatenate([turn, np.sqrt(1 - (turn**2).sum(axis=1))[:, None]], axis=1)
    energy = op.Energy(fit=(R[n].inverse() @ P[n].rotation).log())
    near = np.concatenate([q, normal(COUNT, 3)], axis=1)
    bind(energy.problem, dict(R=q, P=near), np.float32)
    with pytest.warns(op.PrecisionWarning, match=r"'P\[\.\.\., 5\]' become"):
        bind(energy.problem, dict(R=q, P=near + [0, 0, 0, 0, 0, 1e7, 0]), np.float32)


LOST = [
    ("A", 1.7e9 + np.arange(200), "200 distinct values of 'A' become 3 in float32"),
    ("A", (1.7e9 + np.arange(200))[::-1], "200 distinct values"),
    ("X", 1.7e9 + np.arange(200), "200 distinct values of 'X' become 3"),
    ("A", 1.7e9 + np.arange(1_000_000), r"66,667 distinct values of 'A' \(in one element of 15\) become 7,8"),
    ("A", -1e6 + 0.01 * np.arange(1000), "1,000 distinct values"),
    ("A", np.array([1.7e9, 1.7e9 + 1]), "2 distinct values of 'A' become 1"),
    ("A", 1e-50 * (1 + np.arange(9)), "9 distinct values of 'A' become 1 in float32"),
    ("A", np.full(5, 1700000000.25), "'A' is 1700000000.25, in float32 1700000000.0: off by 0.25"),
    ("A", np.full(5, 1e-50), "'A' is 1e-50, which is 0 in float32"),
    ("V", normal(COUNT, 3) + [5e5, 4.5e6, 100], r"of 'V\[..., [01]\]' become"),
    ("V", np.stack([1.7e9 + np.arange(200), *normal(2, 200)], axis=1), r"200 distinct values of 'V\[..., 0\]'"),
]


@pytest.mark.parametrize(("name", "array", "message"), LOST)
def test_distinct_values_that_become_equal_are_told(name: str, array: Any, message: str) -> None:
    with pytest.warns(op.PrecisionWarning, match=message) as caught:
        bound(**{name: array})
    assert {w.filename for w in caught} == {__file__}
    assert all("solve with dtype=np.float64, or subtract an offset first" in str(w.message) for w in caught)


def test_nothing_is_lost_in_float64_nor_of_what_is_float32_already() -> None:
    times = 1.7e9 + np.arange(200)
    bound(np.float64, A=times, p=1700000000.25)
    bound(A=times.astype(np.float32), S=times.astype(np.float32), D=times)


def test_an_array_that_is_declared_float32_is_one_whatever_the_solve() -> None:
    for dtype in (np.float32, np.float64):
        with pytest.warns(op.PrecisionWarning, match="'S' become 3 in float32.*declare it with dtype=np.float64"):
            bound(dtype, S=1.7e9 + np.arange(200))


def test_the_layout_of_the_array_does_not_matter() -> None:
    G = op.Array("G", (H, W))
    energy = op.Energy(fit=op.Unknown("U", (H, W))[i, j] - G[i, j])
    for g in (
        np.asfortranarray(1e8 + np.arange(2000.0).reshape(40, 50)),
        1e8 + np.arange(8000.0).reshape(40, 200)[:, ::4],
    ):
        with pytest.warns(op.PrecisionWarning, match=r"2,000 distinct values of 'G' become"):
            bind(energy.problem, dict(U=np.zeros((40, 50), np.float32), G=g))


def test_values_that_are_not_finite_are_the_error_that_they_were() -> None:
    for bad in (np.nan, np.inf, 1e60):
        with pytest.raises(op.DataError, match="does not fit into float32" if np.isfinite(bad) else "is not finite"):
            bound(A=np.append(normal(3), bad))


def test_whole_numbers_that_do_not_fit_are_refused_with_the_cure() -> None:
    with pytest.raises(op.DataError, match=r"float32 cannot hold exactly: solve with dtype=np\.float64, or convert"):
        bound(A=1_700_000_000 + np.arange(200))


@pytest.mark.parametrize(
    "value", [0, 1, 0.1, -0.1, math.pi, 1e12, 1e20, 2.5e-7, 1e-30, math.sqrt(1e9), 3.14159265, 123456.7, 2**30, 1e38]
)
def test_ordinary_params_are_rounded_without_a_word(value: Any) -> None:
    bound(p=value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            1700000000.25,
            r"the param 'p' is 1700000000\.25, in float32 1700000000\.0: off by 0\.25; solve with dtype=np",
        ),
        (1763782733.1234567, r"'p' is 1763782733\.1234567, in float32 1763782784\.0: off by 51"),
        (-4500000.2, r"off by 0\.2"),
        (2**24 + 1, "off by 1"),
        (1e-60, "'p' is 1e-60, which is 0 in float32"),
    ],
)
def test_params_that_become_others_are_told(value: Any, message: str) -> None:
    with pytest.warns(op.PrecisionWarning, match=message):
        bound(p=value)


def test_updates_are_looked_at_too() -> None:
    energy = op.Energy(fit=X[n] - A[n] * p)
    start = bind(energy.problem, dict(X=np.zeros(3, np.float32), A=np.zeros(3), p=1.0))
    for change in (dict(A=1.7e9 + np.arange(3)), dict(p=1700000000.25)):
        with pytest.warns(op.PrecisionWarning):
            bind_update(energy.problem, start, change)


def test_a_warning_is_given_once_for_a_line_as_pythons_own_are() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            bound(A=1.7e9 + np.arange(200))
    assert len(caught) == 1
