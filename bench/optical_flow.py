"""Optical flow: the plain energy of problems/optical_flow.py, between frames of a made film or of a real one."""

from __future__ import annotations

import numpy as np

from bench.case import Case, Data, Famous
from bench.traffic import Operand, Traffic
from problems import optical_flow as problem
from problems.pictures import data_file


def between(film: problem.Film) -> Data:
    """What the plain energy needs: a flow near to the true one, as in the midst of a solve."""
    assert film.truth is not None
    first, second = (problem.grey(p) for p in (film.first, film.second))
    noise = 0.3 * np.random.default_rng(0).normal(size=film.truth.shape)
    return dict(Flow=np.nan_to_num(film.truth) + noise, First=first, Second=second, w_smooth=10.0)


def turning(size: int) -> Data:
    """A made texture that turns."""
    return between(problem.turning(size))


def alley() -> Data | None:
    """Two frames of 1024 x 436 pixels; None without their files."""
    if data_file("optical_flow/sintel_alley_1/frame_0002.png") is None:
        return None
    return between(problem.film("sintel_alley_1"))


CASE = Case(
    name="optical_flow",
    energy=problem.energy,
    data=turning,
    # First is in the residual's value only.
    traffic=Traffic(unknown_channels=2, operands=(Operand("Flow", 2), Operand("Second")), damped=True),
    method="lm",
    famous=Famous("alley", alley),
)
