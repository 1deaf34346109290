"""Poisson image editing: the energy of problems/poisson_image_editing.py, cloned over all but the border."""

from __future__ import annotations

import numpy as np

from bench.case import Case, Data
from bench.traffic import Operand, Traffic
from problems import pictures
from problems import poisson_image_editing as problem


def astronaut_on_its_mirror_image(size: int) -> Data:
    """The differences of a photograph, with the border of its mirror image."""
    source = pictures.resize_longest_side(pictures.shipped_picture("astronaut.png"), size)
    mask = np.full(source.shape[:2], 255, np.uint8)
    mask[1:-1, 1:-1] = 0
    return problem.Clone(source[:, ::-1].copy(), source, mask).data


CASE = Case(
    name="poisson",
    energy=problem.energy,
    data=astronaut_on_its_mirror_image,
    # Source is in the residual's value only.
    traffic=Traffic(unknown_channels=3, operands=(Operand("Mask", kind="uint8"),), damped=False),
    method="gn",
)
