"""The totals of a group of kernels, of which several may add to one sum."""

from __future__ import annotations

import math

import numpy as np
import pytest

from optpy.kernels.runtime.calls import GroupCall

pytestmark = pytest.mark.native


def a_call(*sums: tuple[str, bool]) -> GroupCall:
    """A kernel with all but the last of some sums, and one with the last."""
    return GroupCall.of((3, 5), (1, 2), [sums[:-1], sums[-1:]])


def test_sums_add_up_over_kernels() -> None:
    call = a_call(("cost", False), ("other", False), ("cost", False))
    assert (list(call.kernels), list(call.threads)) == ([3, 5], [1, 2])
    call.totals[:] = [1.0, 10.0, 4.0]
    assert call.found() == {"cost": 5.0, "other": 10.0}


@pytest.mark.parametrize(
    ("found", "expected"),
    [((1.0, 2.0), 2.0), ((2.0, 1.0), 2.0), ((math.nan, 1.0), math.nan), ((1.0, math.nan), math.nan)],
)
def test_the_largest_magnitude_is_that_of_all_kernels_and_nan_stays(found: list[float], expected: float) -> None:
    call = a_call(("largest", True), ("largest", True))
    call.totals[:] = list(found)
    np.testing.assert_equal(call.found(), {"largest": expected})


def test_a_group_without_kernels_has_no_totals() -> None:
    assert GroupCall.of((), (), ()).found() == {}
