"""The totals of a group of kernels, of which several may add to one sum."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optpy.ir import Reduce, Routine
from optpy.kernels.runtime.calls import GroupCall
from optpy.symbolic.expr import const

pytestmark = pytest.mark.native


def a_call(*reductions: Reduce) -> GroupCall:
    """A kernel with all but the last of some reductions, and one with the last."""
    routines = [Routine("a", (), reductions=reductions[:-1]), Routine("b", (), reductions=reductions[-1:])]
    return GroupCall.of((3, 5), (1, 2), routines)


def test_sums_add_up_over_kernels() -> None:
    one = const(1)
    call = a_call(Reduce("cost", one), Reduce("other", one), Reduce("cost", one))
    assert (list(call.kernels), list(call.threads)) == ([3, 5], [1, 2])
    call.totals[:] = [1.0, 10.0, 4.0]
    assert call.found() == {"cost": 5.0, "other": 10.0}


@pytest.mark.parametrize(
    ("found", "expected"),
    [((1.0, 2.0), 2.0), ((2.0, 1.0), 2.0), ((math.nan, 1.0), math.nan), ((1.0, math.nan), math.nan)],
)
def test_the_largest_magnitude_is_that_of_all_kernels_and_nan_stays(found: list[float], expected: float) -> None:
    largest = Reduce("largest", const(1), maximum=True)
    call = a_call(largest, largest)
    call.totals[:] = list(found)
    np.testing.assert_equal(call.found(), {"largest": expected})


def test_a_group_without_kernels_has_no_totals() -> None:
    assert GroupCall.of((), (), ()).found() == {}
