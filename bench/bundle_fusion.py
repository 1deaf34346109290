"""Poses of depth frames: the energy of problems/bundle_fusion.py, between frames of a made scene."""

from __future__ import annotations

import numpy as np

from bench.case import Case, Data
from bench.traffic import Operand, Traffic
from problems import bundle_fusion as problem
from problems.meshes import pebble


def around_a_pebble(size: int) -> Data:
    """Frames of `size` x `size` pixels in all, each with its neighbours."""
    count = 12
    return problem.turning(pebble(), max(8, round(size / np.sqrt(count))), count).data


def pixels(data: Data) -> tuple[int, int]:
    """Those of all frames, and those of all pairs of frames, which are compared."""
    frames, height, width = data["Depth"].shape
    return frames * height * width, len(data["pairs"]) * height * width


CASE = Case(
    name="bundle_fusion",
    energy=problem.energy,
    data=around_a_pebble,
    # A dozen poses are nothing beside what was measured; J needs all of that, however it is kept.
    traffic=Traffic(
        unknown_channels=0,
        operands=(Operand("Pose", 6, kind="shared"), Operand("Depth"), Operand("surface", 6)),
        damped=True,
    ),
    method="lm",
    elements=pixels,
    unit="edge",
    reweighted=True,
    largest=512,
)
