"""A C source in sections: what is needed of it is compiled, by compilers that run side by side.

Each compiler reads the whole source, with a macro for each section that it is to compile; without any, it compiles all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

_WORTH = 8_000
"""Characters of C for which it is worth starting a compiler: those of image warping take 0.1 s, twice as long as the
head of the source (`python -m bench --parts compile` measures whole compilations)."""


def in_sections(texts: Sequence[str]) -> str:
    """The C text of sections; the first number is 0."""
    return "\n\n".join(
        f"#if !defined OPTPY_SECTIONS || defined OPTPY_SECTION_{n}\n{text.rstrip()}\n#endif"
        for n, text in enumerate(texts)
    )


def section_flags(sections: Sequence[int]) -> list[str]:
    """The compiler's flags by which it compiles some sections only."""
    return ["-DOPTPY_SECTIONS", *(f"-DOPTPY_SECTION_{n}" for n in sections)]


def shares(sections: Sequence[int], lengths: Sequence[int], processes: int) -> list[Sequence[int]]:
    """Consecutive ones of some sections for each compiler, such that the longest share is as short as can be.

    Args:
        sections: to be compiled.
        lengths: of all sections.
        processes: compilers, at most.
    """
    chosen = [lengths[n] for n in sections]
    count = min(processes, max(sum(chosen) // _WORTH, 1))
    # The longest share is the length of some consecutive sections; the least that will do is found by bisection.
    low, high = max(chosen, default=0), sum(chosen)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(chosen, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return [[sections[n] for n in share] for share in _filled(chosen, high)]


def _filled(lengths: Sequence[int], most: int) -> list[range]:
    """Shares of consecutive sections, none longer than given, each as long as it can be."""
    ends = list(accumulate(lengths, initial=0))
    found: list[range] = []
    first = 0
    for n in range(len(lengths)):
        if ends[n + 1] - ends[first] > most:
            found.append(range(first, n))
            first = n
    return [*found, range(first, len(lengths))] if lengths else []
