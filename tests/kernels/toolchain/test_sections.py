from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optpy.kernels.toolchain.sections import in_sections, section_flags, shares

lengths_of_sections = st.lists(st.integers(1, 50_000), min_size=1, max_size=12)


@given(lengths_of_sections, st.integers(1, 8))
def test_every_section_is_compiled_once_in_order(lengths: list[int], processes: int) -> None:
    found = shares(range(len(lengths)), lengths, processes)
    assert [n for share in found for n in share] == list(range(len(lengths)))
    assert 1 <= len(found) <= processes
    assert all(found)


@given(lengths_of_sections, st.integers(1, 8))
def test_no_other_cut_makes_the_longest_share_shorter(lengths: list[int], processes: int) -> None:
    found = shares(range(len(lengths)), lengths, processes)
    longest = max(sum(lengths[n] for n in share) for share in found)
    count = min(processes, max(sum(lengths) // 8_000, 1))
    best = {0: 0}  # by how many sections are shared out: the shortest longest share of so many compilers
    for _ in range(count):
        best = {
            end: min(max(best[start], sum(lengths[start:end])) for start in best if start <= end)
            for end in range(len(lengths) + 1)
        }
    assert longest == best[len(lengths)]


def test_small_sources_are_compiled_by_one_compiler() -> None:
    assert shares([0, 1], [3000, 4000], 16) == [[0, 1]]
    assert shares([], [3000], 16) == []


def test_sections_that_are_not_asked_for_are_left_out() -> None:
    assert shares([1, 3, 4], [9000, 8000, 9000, 7000, 3000], 2) == [[1], [3, 4]]


def test_sections_are_chosen_by_their_numbers() -> None:
    assert in_sections(["int a;", "int b;\n"]) == (
        "#if !defined OPTPY_SECTIONS || defined OPTPY_SECTION_0\nint a;\n#endif\n\n"
        "#if !defined OPTPY_SECTIONS || defined OPTPY_SECTION_1\nint b;\n#endif"
    )
    assert section_flags([1]) == ["-DOPTPY_SECTIONS", "-DOPTPY_SECTION_1"]
