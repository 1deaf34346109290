"""The arguments of native calls, made once: a group of kernels is run by one call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import Array, c_double, c_int
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class GroupCall:
    """Kernels that are run one after the other, and the totals that they leave.

    Attributes:
        kernels, threads: of each kernel, its number and how many threads it is worth.
        totals: of all their reductions, one kernel after the other.
        sums: of each total, the name of its reduction and whether it is the largest magnitude, not the sum.
    """

    kernels: Array[c_int]
    threads: Array[c_int]
    totals: Array[c_double]
    sums: tuple[tuple[str, bool], ...]

    @classmethod
    def of(
        cls, kernels: Sequence[int], threads: Sequence[int], sums_of: Sequence[Sequence[tuple[str, bool]]]
    ) -> GroupCall:
        """The arguments for some kernels, given the threads of each, and its sums as ``Numbers`` has them."""
        sums = tuple(sum_ for of_kernel in sums_of for sum_ in of_kernel)
        count = len(kernels)
        totals = (c_double * max(len(sums), 1))()
        return cls((c_int * count)(*kernels), (c_int * count)(*threads), totals, sums)

    def found(self) -> dict[str, float]:
        """The totals of the last run by name: sums, or largest magnitudes, over all kernels."""
        totals: dict[str, float] = {}
        if not self.sums:
            return totals
        for (name, maximum), total in zip(self.sums, self.totals[:], strict=True):
            before = totals.get(name, 0.0)
            totals[name] = _largest(before, total) if maximum else before + total
        return totals


def _largest(a: float, b: float) -> float:
    return a if a > b or math.isnan(a) else b
