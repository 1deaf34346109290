"""Optical flow with robust losses, of frames with slopes: the energy that problems/optical_flow.py solves."""

from __future__ import annotations

from dataclasses import replace

from bench import optical_flow
from bench.case import Data, Famous
from bench.traffic import Operand, Traffic
from problems import optical_flow as problem


def between(film: problem.Film) -> Data:
    """What the robust energy needs, near to the true flow."""
    plain = optical_flow.between(film)
    height, width = plain["First"].shape
    return problem.frames(film, (height, width)) | problem.PARAMS | dict(Flow=plain["Flow"])


def turning(size: int) -> Data:
    """A made texture that turns."""
    return between(problem.turning(size))


def alley() -> Data | None:
    """Two frames of 1024 x 436 pixels; None without their files."""
    return None if optical_flow.alley() is None else between(problem.film("sintel_alley_1"))


CASE = replace(
    optical_flow.CASE,
    name="optical_flow_robust",
    energy=problem.robust,
    data=turning,
    # All weights depend on what is compared.
    traffic=Traffic(
        unknown_channels=2,
        operands=(Operand("Flow", 2), Operand("First", 3), Operand("Second", 3), Operand("Still")),
        damped=True,
    ),
    famous=Famous("alley", alley),
)
