"""A C source in sections, which compilers that run side by side share.

Each compiler reads the whole source, with OPTPY_FIRST and OPTPY_END as macros, and compiles the sections in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

_WORTH = 8_000
"""Characters of C for which it is worth starting a compiler: those of image warping take 0.1 s, twice as long as the
head of the source (`python -m bench --parts compile` measures whole compilations)."""

ALL_SECTIONS = """#ifndef OPTPY_FIRST
#define OPTPY_FIRST 0
#define OPTPY_END 0x7fffffff
#endif"""
"""The text before the sections, by which all are compiled where none are chosen."""


def in_sections(texts: Sequence[str]) -> str:
    """The C text of sections; the first number is 0."""
    return "\n\n".join(
        f"#if OPTPY_FIRST <= {n} && {n} < OPTPY_END\n{text.rstrip()}\n#endif" for n, text in enumerate(texts)
    )


def shares(lengths: Sequence[int], processes: int) -> list[range]:
    """Consecutive sections for each compiler, such that the longest share is as short as can be.

    Args:
        lengths: of the sections.
        processes: compilers, at most.
    """
    count = min(processes, max(sum(lengths) // _WORTH, 1))
    # The longest share is the length of some consecutive sections; the least that will do is found by bisection.
    low, high = max(lengths, default=0), sum(lengths)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(lengths, middle)) <= count:
            high = middle
        else:
            low = middle + 1
    return _filled(lengths, high)


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
