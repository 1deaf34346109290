from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from optpy.kernels.toolchain.sections import in_sections, shares

lengths_of_sections = st.lists(st.integers(1, 50_000), min_size=1, max_size=12)


@given(lengths_of_sections, st.integers(1, 8))
def test_every_section_is_compiled_once_in_order(lengths: list[int], processes: int) -> None:
    found = shares(lengths, processes)
    assert [n for share in found for n in share] == list(range(len(lengths)))
    assert 1 <= len(found) <= processes
    assert all(found)


@given(lengths_of_sections, st.integers(1, 8))
def test_no_other_cut_makes_the_longest_share_shorter(lengths: list[int], processes: int) -> None:
    found = shares(lengths, processes)
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
    assert shares([3000, 4000], 16) == [range(2)]
    assert shares([], 16) == []


def test_sections_are_chosen_by_their_numbers() -> None:
    assert in_sections(["int a;", "int b;\n"]) == (
        "#if OPTPY_FIRST <= 0 && 0 < OPTPY_END\nint a;\n#endif\n\n#if OPTPY_FIRST <= 1 && 1 < OPTPY_END\nint b;\n#endif"
    )
