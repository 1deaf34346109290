"""Segments partition what is visited, in shares of bounded work."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from optpy.kernels.runtime.segments import (
    SEGMENT,
    all_segments,
    in_slabs,
    longest_segment,
    solved_segments,
    weighted_segments,
)

CHUNK, LONGEST = 64, 2048


def visited(segments: NDArray[Any], rows: int, length: int) -> NDArray[np.int64]:
    """How often each point is visited."""
    count = np.zeros((rows, length), np.int64)
    for s in segments:
        assert 0 <= s["row"] < rows
        assert 0 <= s["begin"] < s["end"] <= length
        count[s["row"], s["begin"] : s["end"]] += 1
    return count


def check_order(segments: NDArray[Any]) -> None:
    """Row by row, of bounded length, each with the number of points before it."""
    assert segments.dtype == SEGMENT
    lengths = segments["end"] - segments["begin"]
    assert (lengths <= LONGEST).all()
    np.testing.assert_array_equal(segments["work"], lengths)
    np.testing.assert_array_equal(segments["before"], np.concatenate([[0], np.cumsum(lengths)])[:-1])
    keys = list(zip(segments["row"], segments["begin"], strict=True))
    assert keys == sorted(keys)


@given(st.integers(1, 9), st.sampled_from([1, 2, 63, 64, 65, 2047, 2048, 2049, 5000]))
def test_all_segments_are_a_partition(rows: int, length: int) -> None:
    segments = all_segments(rows, length)
    check_order(segments)
    assert (visited(segments, rows, length) == 1).all()


@given(
    st.integers(1, 6),
    st.sampled_from([1, 5, 63, 64, 65, 128, 200, 2200, 4200]),
    st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.9, 1.0]),
    st.integers(0, 1000),
)
def test_solved_segments_partition_the_runs_that_hold_something_to_solve_for(
    rows: int, length: int, density: float, seed: int
) -> None:
    solved = (np.random.default_rng(seed).random((rows, length)) < density).astype(np.uint8)
    segments = solved_segments(solved)
    check_order(segments)
    count = visited(segments, rows, length)
    for row in range(rows):
        for begin in range(0, length, CHUNK):
            run = np.s_[row, begin : begin + CHUNK]
            assert (count[run] == bool(solved[run].any())).all()


def test_nothing_to_solve_for_is_no_segment() -> None:
    assert len(solved_segments(np.zeros((3, 100), np.uint8))) == 0


@given(st.integers(1, 4), st.sampled_from([1, 5, 200, 2200]), st.integers(0, 1000), st.booleans())
def test_weighted_segments_visit_the_same_points_in_shares_of_bounded_work(
    rows: int, length: int, seed: int, all_points: bool
) -> None:
    rng = np.random.default_rng(seed)
    whole = all_segments(rows, length) if all_points else solved_segments(rng.random((rows, length)) < 0.01)
    edges = rng.integers(0, 9, rows * length) * rng.choice([1, 1000], rows * length, p=[0.99, 0.01])
    segments = weighted_segments(whole, edges, length)
    np.testing.assert_array_equal(visited(segments, rows, length), visited(whole, rows, length))
    np.testing.assert_array_equal(segments["before"], np.cumsum(segments["work"]) - segments["work"])
    for s in segments:
        own = edges[s["row"] * length + s["begin"] : s["row"] * length + s["end"]]
        assert s["work"] == own.sum() + len(own)
        assert s["work"] - own[-1] <= 4096  # all but its last point


@given(st.integers(1, 4), st.integers(1, 20), st.sampled_from([5, 200, 2200]), st.integers(0, 1000), st.booleans())
def test_slabs_visit_the_same_points_through_all_planes(
    planes: int, rows: int, length: int, seed: int, all_points: bool
) -> None:
    solved = np.random.default_rng(seed).random((planes * rows, length)) < 0.01
    whole = all_segments(planes * rows, length) if all_points else solved_segments(solved)
    segments = in_slabs(whole, rows)
    np.testing.assert_array_equal(visited(segments, planes * rows, length), visited(whole, planes * rows, length))
    np.testing.assert_array_equal(segments["work"], segments["end"] - segments["begin"])
    np.testing.assert_array_equal(segments["before"], np.cumsum(segments["work"]) - segments["work"])
    keys = [(s["row"] % rows // 8, s["row"], s["begin"]) for s in segments]
    assert keys == sorted(keys)
    np.testing.assert_array_equal(segments["later"][:-3], segments["row"][3:])
    assert (segments["later"][-3:] == segments["row"][-1:]).all()


def test_few_points_that_are_much_work_are_several_segments() -> None:
    """Of whole cache lines, as many as keep several threads busy; many points are cut as others are."""
    counts = {n: len(all_segments(1, n, longest_segment(n, dense=True))) for n in (1, 128, 1000, 5000, 10**6)}
    assert [counts[n] for n in (1, 128, 1000, 5000)] == [1, 1, 8, 16]
    assert counts[10**6] == len(all_segments(1, 10**6)) == len(all_segments(1, 10**6, longest_segment(10**6, False)))
    solved = np.ones((1, 1000), np.uint8)
    segments = solved_segments(solved, longest_segment(solved.size, dense=True))
    assert len(segments) == 8
    check_order(segments)
    assert (segments["begin"] % CHUNK == 0).all()
