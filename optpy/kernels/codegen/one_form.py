"""Expressions of routines that are equal, but written in different forms, in one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optpy.ir import Group, Routine
from optpy.kernels.codegen.rewrite import map_routine
from optpy.symbolic.value_numbers import ValueNumbers


def in_one_form(groups: Mapping[Group, Sequence[Routine]]) -> dict[Group, list[Routine]]:
    """The groups of routines, in each of which of equal expressions one form is kept.

    Derivatives, and residuals that are seen from where others are, make forms that nobody has written; so this is done
    to what has been derived and factored.
    """
    numbers = ValueNumbers()
    return {name: [map_routine(r, numbers.in_one_form) for r in routines] for name, routines in groups.items()}
