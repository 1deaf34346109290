"""Families with a few unknowns: linear fits, curves, robust losses, weights that are held, square roots."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator

import optpy as op
from bench.search.family import Array, Data, Drawn, Family, between, noise_level

N = op.dims("N")
n = op.indices(N)
T, Y = op.Array("T", (N,)), op.Array("Y", (N,))

LOSSES = ("linear", "huber", "soft_l1", "cauchy", "arctan", "tukey", "geman_mcclure")


def _unknown(count: int) -> Any:
    return op.Unknown("b", (), count)[()]


# -- linear ----------------------------------------------------------------------------------------------------------


def _linear() -> op.Energy:
    b, A = _unknown(4), op.Array("A", (N,), 4)
    return op.Energy(fit=op.dot(A[n], b) - Y[n])


def _draw_linear(rng: Generator, u: float, *, duplicate: bool) -> Drawn:
    """Columns of lengths that differ by up to four orders; the last may be the one before it once more."""
    A = rng.normal(size=(int(rng.integers(5, 41)), 4)) * [between(rng, 1e-2, 1e2) for _ in range(4)]
    if duplicate:
        A[:, 3] = A[:, 2]
    truth = rng.normal(size=4)
    exact = A @ truth
    y = exact + noise_level(rng) * np.std(exact) * rng.normal(size=len(A))
    return Drawn({"b": rng.normal(size=4), "A": A, "Y": y}, {"b": truth})


def _product() -> op.Energy:
    b = _unknown(3)
    return op.Energy(fit=b[0] * b[1] * T[n] + b[2] - Y[n])


def _draw_product(rng: Generator, u: float) -> Drawn:
    """Only the product of two unknowns is determined."""
    t = rng.uniform(-1, 1, int(rng.integers(4, 40)))
    truth = np.array([between(rng, 0.1, 10), between(rng, 0.1, 10), rng.normal()])
    y = truth[0] * truth[1] * t + truth[2]
    y = y + noise_level(rng) * np.std(y) * rng.normal(size=len(t))
    return Drawn({"b": truth * rng.uniform(0.5, 2, 3), "T": t, "Y": y}, {"b": truth})


# -- curves ----------------------------------------------------------------------------------------------------------


def _exponentials() -> op.Energy:
    b = _unknown(4)
    return op.Energy(fit=b[0] * op.exp(-b[1] * T[n]) + b[2] * op.exp(-b[3] * T[n]) - Y[n])


def _draw_exponentials(rng: Generator, u: float) -> Drawn:
    scale, slow = between(rng, 1e-3, 1e3), between(rng, 0.1, 10)
    t = np.linspace(0, 3 / slow, int(rng.integers(10, 60)))
    truth = np.array([scale * rng.uniform(0.5, 2), slow, scale * rng.uniform(0.5, 2), slow * rng.uniform(3, 10)])
    y = truth[0] * np.exp(-truth[1] * t) + truth[2] * np.exp(-truth[3] * t)
    y = y + 0.1 * noise_level(rng) * scale * rng.normal(size=len(t))
    return Drawn({"b": truth * rng.uniform(0.8, 1.25, 4), "T": t, "Y": y}, {"b": truth})


def _clock() -> op.Energy:
    b = _unknown(2)
    return op.Energy(fit=b[0] + b[1] * T[n] - Y[n])


def _step() -> op.Energy:
    b = _unknown(4)
    return op.Energy(fit=b[0] + b[1] * op.tanh((T[n] - b[2]) / b[3]) - Y[n])


def _times(rng: Generator, u: float) -> tuple[float, Array]:
    """An offset, and times after it that span 1: as far from 0 as the arithmetic can tell a hundredth of that span."""
    offset = between(rng, 1, min(1e9, 1e-2 / u))
    return offset, offset + np.sort(rng.uniform(0, 1, int(rng.integers(8, 60))))


def _draw_clock(rng: Generator, u: float) -> Drawn:
    offset, t = _times(rng, u)
    slope, rate = rng.normal(), between(rng, 1e-3, 1)
    truth = np.array([rate * rng.normal() - slope * offset, slope])
    y = truth[0] + slope * t + rate * rng.normal(size=len(t))
    return Drawn({"b": np.zeros(2), "T": t, "Y": y}, {"b": truth})


def _draw_step(rng: Generator, u: float) -> Drawn:
    offset, t = _times(rng, u)
    truth = np.array([rng.normal(), rng.uniform(0.5, 2), offset + rng.uniform(0.3, 0.7), rng.uniform(0.1, 0.3)])
    y = truth[0] + truth[1] * np.tanh((t - truth[2]) / truth[3])
    y = y + between(rng, 1e-4, 0.1) * rng.normal(size=len(t))
    start = truth + [rng.normal(), 0.2 * rng.normal(), rng.uniform(-0.1, 0.1), rng.uniform(-0.03, 0.1)]
    return Drawn({"b": start, "T": t, "Y": y}, {"b": truth})


# -- outliers --------------------------------------------------------------------------------------------------------


def _residual() -> Any:
    b = _unknown(3)
    return b[0] + b[1] * T[n] + b[2] * T[n] ** 2 - Y[n]


def _robust(loss: str) -> op.Energy:
    return op.Energy(fit=op.robust(_residual(), loss, scale=op.params("scale")))


def _parabola(rng: Generator) -> Drawn:
    """A fifth of the points are outliers; the scale is near that of the noise of the others."""
    t = rng.uniform(-1, 1, int(rng.integers(12, 60)))
    unit, level = between(rng, 1e-2, 1e2), between(rng, 1e-3, 0.1)
    truth = unit * rng.normal(size=3)
    y = truth[0] + truth[1] * t + truth[2] * t**2 + level * unit * rng.normal(size=len(t))
    off = rng.random(len(t)) < 0.2
    y[off] += unit * rng.uniform(1, 10, off.sum()) * rng.choice([-1, 1], off.sum())
    start = truth + level * unit * rng.normal(size=3)
    return Drawn({"b": start, "T": t, "Y": y, "scale": 2 * level * unit}, {"b": truth})


def _draw_robust(rng: Generator, u: float) -> Drawn:
    return _parabola(rng)


def _reweighted() -> op.Energy:
    e = _residual()
    return op.Energy(fit=e * op.stop_gradient((e**2 + op.params("scale") ** 2) ** -0.25))


def _absolute(data: Data) -> float:
    """What reweighting by 1 / sqrt(e^2 + scale^2) minimises."""
    b, t = data["b"], data["T"]
    e = b[0] + b[1] * t + b[2] * t**2 - data["Y"]
    return float(np.sum(np.sqrt(e**2 + data["scale"] ** 2)))


# -- square roots ----------------------------------------------------------------------------------------------------


def _root() -> op.Energy:
    return op.Energy(fit=op.sqrt(_residual() ** 2 + op.params("scale") ** 2))


def _draw_root(rng: Generator, u: float) -> Drawn:
    """The squares are those of a linear fit, and a constant: so is the minimum."""
    drawn = _parabola(rng)
    t, y = drawn.data["T"], drawn.data["Y"]
    best = np.linalg.lstsq(np.stack([np.ones_like(t), t, t**2], axis=1), y, rcond=None)[0]
    return Drawn(drawn.data | {"scale": drawn.data["scale"] * between(rng, 0.1, 10)}, {"b": best})


def _median() -> op.Energy:
    x = op.Unknown("b", ())[()]
    return op.Energy(fit=op.sqrt(op.abs(x - Y[n])))


def _draw_median(rng: Generator, u: float) -> Drawn:
    y = between(rng, 1e-2, 1e2) * rng.normal(size=2 * int(rng.integers(2, 20)) + 1)
    return Drawn({"b": float(np.mean(y)), "Y": y}, {"b": float(np.median(y))})


FAMILIES = (
    Family("linear", _linear, partial(_draw_linear, duplicate=False)),
    Family("duplicate-column", _linear, partial(_draw_linear, duplicate=True)),
    Family("product", _product, _draw_product),
    Family("exponentials", _exponentials, _draw_exponentials),
    Family("clock", _clock, _draw_clock),
    Family("step-in-time", _step, _draw_step),
    *(Family(f"robust-{loss}", partial(_robust, loss), _draw_robust) for loss in LOSSES),
    Family("reweighted-line", _reweighted, _draw_robust, _absolute),
    Family("root-of-squares", _root, _draw_root),
    Family("root-of-distance", _median, _draw_median),
)
