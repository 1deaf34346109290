"""Shape from shading without intermediates: the inline energy of problems/shape_from_shading.py."""

from __future__ import annotations

from dataclasses import replace

from bench import shape_from_shading
from problems import shape_from_shading as problem

CASE = replace(
    shape_from_shading.CASE, name="shape_from_shading_inline", energy=problem.inline, ceres=None, famous=None
)
