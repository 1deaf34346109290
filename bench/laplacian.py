"""Laplacian smoothing: the energy of problems/laplacian_smoothing.py."""

from __future__ import annotations

from bench.case import Case, Data
from bench.traffic import Traffic
from problems import laplacian_smoothing as problem


def noisy_camera(size: int) -> Data:
    """A grey photograph with noise."""
    return problem.default_noisy(size).data


CASE = Case(
    name="laplacian",
    energy=problem.energy,
    data=noisy_camera,
    # J is constant: A is in the residual's value only.
    traffic=Traffic(unknown_channels=1, operands=(), damped=False),
    method="gn",
)
