"""`python -m bench.reading` counts the lines of the functions that are entered."""

from __future__ import annotations

from pathlib import Path

from bench.reading import reading, traced
from optpy.ir import Extent, canonical_domain, point, spaces
from optpy.symbolic import affine


def test_a_function_counts_without_its_docstring() -> None:
    with traced() as entered:
        domain = canonical_domain([Extent("H")])
    found = reading(entered)
    assert {file: len(lines) for file, lines in found.lines.items()} == {Path(spaces.__file__): 2}
    assert found.total == 2
    assert domain


def test_only_what_a_function_calls_counts_within_it() -> None:
    domain = canonical_domain([Extent("H")])
    with traced(within="point") as entered:
        canonical_domain([Extent("W")])
        point(domain)
    assert set(reading(entered).lines) == {Path(affine.__file__)}
