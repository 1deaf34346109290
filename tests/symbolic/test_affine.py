"""Index algebra against brute force over small boxes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optpy.symbolic.affine import Affine, Atom, FloorDiv, TableEntry, floor_divide
from optpy.symbolic.inversion import Divides, Inverse, IsZero, Quotient, Remainder, invert


@dataclass(frozen=True, slots=True)
class Name:
    """A loop variable or a size."""

    name: str

    def __str__(self) -> str:
        return self.name


I, J, K, N = Name("i"), Name("j"), Name("k"), Name("N")  # noqa: E741 - loop variables
i, j, k, n = map(Affine.of, (I, J, K, N))
small = st.integers(-4, 4)


def affines(*atoms: Name) -> st.SearchStrategy[Affine]:
    return st.builds(
        lambda constant, cs: Affine.collect(constant, zip(atoms, cs, strict=True)),
        small,
        st.tuples(*[small] * len(atoms)),
    )


# -- arithmetic ----------------------------------------------------------------------------------------------


@given(affines(I, J), affines(I, J), small, small, small)
def test_arithmetic_is_that_of_the_values(p: Affine, q: Affine, factor: int, vi: int, vj: int) -> None:
    at: dict[Atom, int] = {I: vi, J: vj}
    assert (p + q).evaluate(at) == p.evaluate(at) + q.evaluate(at)
    assert (p - q).evaluate(at) == p.evaluate(at) - q.evaluate(at)
    assert (p * factor).evaluate(at) == p.evaluate(at) * factor
    assert p + q == q + p
    assert p - p == Affine(0)
    assert hash(p + q) == hash(q + p)


@given(affines(I, J), affines(I, J), small, small)
def test_shifting_there_and_back(p: Affine, q: Affine, di: int, dj: int) -> None:
    halves = floor_divide(floor_divide(p, 3) + q, 2) + p
    there: dict[Atom, Affine] = {I: i + di, J: j + dj}
    back: dict[Atom, Affine] = {I: i - di, J: j - dj}
    assert p.substitute(there).substitute(back) == p
    shifted = halves.substitute(there).substitute(back)
    at: dict[Atom, int] = {I: di, J: dj}
    assert shifted.evaluate(at) == halves.evaluate(at)


@given(affines(I, J), affines(I, J), affines(I, J), small, small)
def test_substitution_is_simultaneous(p: Affine, q: Affine, r: Affine, vi: int, vj: int) -> None:
    at: dict[Atom, int] = {I: vi, J: vj}
    inner: dict[Atom, int] = {I: q.evaluate(at), J: r.evaluate(at)}
    assert p.substitute({I: q, J: r}).evaluate(at) == p.evaluate(inner)
    assert floor_divide(p, 3).substitute({I: q, J: r}).evaluate(at) == p.evaluate(inner) // 3


def test_parts() -> None:
    p = i * 2 - k + 5
    assert p.atoms == (I, K)
    assert (p.coefficient(I), p.coefficient(K), p.coefficient(J)) == (2, -1, 0)
    assert (i + 3).offset_from(I) == 3
    assert (i * 2).offset_from(I) is None
    assert (i + j).offset_from(I) is None
    assert Affine(3).is_constant
    assert not i.is_constant
    assert Affine.of(np.int64(4)) == Affine(4)
    assert floor_divide(i + j, 2).reads([J])
    assert not floor_divide(i + j, 2).reads([K])


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (Affine(0), "0"),
        (i, "i"),
        (i * -1 - 2, "-i - 2"),
        (i * 2 + j * -3 + 1, "2*i - 3*j + 1"),
        (floor_divide(i + 1, 2), "((i + 1) // 2)"),
    ],
)
def test_text(p: Affine, text: str) -> None:
    assert str(p) == text


# -- floor division ------------------------------------------------------------------------------------------


@given(affines(I, J), st.integers(-6, 6).filter(bool), st.integers(-9, 9), st.integers(-9, 9))
def test_floor_division_rounds_down(p: Affine, denominator: int, vi: int, vj: int) -> None:
    at: dict[Atom, int] = {I: vi, J: vj}
    quotient = floor_divide(p, denominator)
    assert quotient.evaluate(at) == p.evaluate(at) // denominator
    arrays: dict[Atom, np.ndarray] = {I: np.array([vi, vi + 1]), J: np.array([vj, -vj])}
    assert quotient.evaluate(arrays)[0] == quotient.evaluate(at) if not quotient.is_constant else True
    for atom in quotient.atoms:
        assert not isinstance(atom, FloorDiv) or atom.denominator > 1


def test_what_divides_is_drawn_out() -> None:
    assert floor_divide(i * 4 + 3, 2) == i * 2 + 1
    assert floor_divide(i * 4 + j + 5, 2) == i * 2 + floor_divide(j + 1, 2) + 2
    assert floor_divide(i * 2 + 4, 4) == floor_divide(i, 2) + 1
    assert floor_divide(i, -1) == i * -1
    assert floor_divide(Affine(-7), 2) == Affine(-4)
    assert floor_divide(floor_divide(i, 2) + 1, 2) == floor_divide(i + 2, 4)
    assert floor_divide(floor_divide(i + 1, 3) * 2 + j, 2) == floor_divide(i + 1, 3) + floor_divide(j, 2)
    with pytest.raises(ZeroDivisionError):
        floor_divide(i, 0)


# -- inversion -----------------------------------------------------------------------------------------------

SIZE = 4
Point = tuple[int, ...]


def brute_force(rows: Sequence[Affine], variables: Sequence[Name], y: Point, size: int) -> list[Point]:
    box = itertools.product(range(SIZE), repeat=len(variables))
    found = []
    for point in box:
        at: dict[Atom, int] = {N: size, **dict(zip(variables, point, strict=True))}
        if tuple(r.evaluate(at) for r in rows) == y:
            found.append(point)
    return found


def enumerated(inverse: Inverse, variables: Sequence[Name], known: Mapping[Atom, int]) -> list[Point]:
    """What a gather loop visits: the free variables over the box, under the conditions, inside the box."""
    found = []
    for free in itertools.product(*map(values_of, inverse.free)):
        at: dict[Atom, int] = {**known, **dict(zip(inverse.free, free, strict=True))}
        if all(c.evaluate(at) for c in inverse.conditions):
            point = tuple(inverse.solution[v].evaluate(at) if v in inverse.solution else at[v] for v in variables)
            if all(0 <= p < SIZE for p in point):
                found.append(point)
    return found


def values_of(free: Atom) -> range:
    """What a free variable may be; quotients are left wide."""
    if isinstance(free, Remainder):
        return range(free.of.denominator)
    return range(-2 * SIZE, 2 * SIZE + 1) if isinstance(free, Quotient) else range(SIZE)


def check(rows: Sequence[Affine], variables: Sequence[Name], size: int = 5) -> None:
    targets = [Name(f"y{m}") for m in range(len(rows))]
    inverse = invert(rows, [Affine.of(t) for t in targets], variables)
    assert {a for a in (*inverse.solution, *inverse.free) if isinstance(a, Name)} == set(variables)
    for solved in inverse.solution.values():
        assert not solved.reads(inverse.solution)
    everything = itertools.product(range(SIZE), repeat=len(variables))
    images = set()
    for point in everything:
        at: dict[Atom, int] = {N: size, **dict(zip(variables, point, strict=True))}
        images.add(tuple(r.evaluate(at) for r in rows))
    # Also elements that no point reads: nothing may be found for them.
    missed = {tuple(v + 1 for v in y) for y in images} - images
    for y in images | missed:
        known: dict[Atom, int] = {N: size, **dict(zip(targets, y, strict=True))}
        assert sorted(enumerated(inverse, variables, known)) == brute_force(rows, variables, y, size)


def _halved(p: Affine) -> Affine:
    """With numbers that keep a quotient of it within the range of ``values_of``."""
    return Affine.collect(p.constant, ((a, c // 2) for a, c in p.terms))


@st.composite
def systems(draw: st.DrawFn) -> tuple[list[Affine], list[Name]]:
    variables = [I, J, K][: draw(st.integers(1, 3))]
    rows = draw(st.lists(affines(*variables), min_size=1, max_size=3))
    if draw(st.booleans()):
        rows[0] = rows[0] + floor_divide(_halved(draw(affines(*variables[:2]))), draw(st.integers(2, 3))) * draw(small)
    return [r + Affine.of(N) * draw(st.integers(-1, 1)) for r in rows], variables


@settings(max_examples=150)
@given(systems())
def test_every_point_is_found_exactly_once(system: tuple[list[Affine], list[Name]]) -> None:
    check(*system)


@pytest.mark.parametrize(
    ("rows", "variables"),
    [
        ([i + 1, j - 2], [I, J]),
        ([i * 2 + 1, j], [I, J]),
        ([i * -1 + n, j * 3], [I, J]),
        ([i * 2 - k], [I, K]),
        ([i * 2 + k * 3, i + k], [I, K]),
        ([i * 2 + k * 3, i * 4 + k * 5], [I, K]),
        ([i + j, i + j], [I, J]),
        ([i * 2, i * 3], [I]),
        ([Affine(2), i], [I, J]),
        ([i + j + k, i - j], [I, J, K]),
        ([floor_divide(i, 2), j], [I, J]),
        ([floor_divide(i + j, 2), i - j], [I, J]),
        ([floor_divide(i, 2) + i], [I]),
        ([floor_divide(i, 2) * 2 + 1, floor_divide(j + 1, 3)], [I, J]),
        ([i - floor_divide(i, 3) * 3], [I]),
        ([floor_divide(i, 2), i - floor_divide(i, 2) * 2], [I]),
        ([floor_divide(floor_divide(i, 2) + j, 2), j], [I, J]),
        ([floor_divide(i * -1, 2)], [I]),
        ([floor_divide(i, 2) * -1 + n], [I]),
        ([floor_divide(n, 2) + i * 2], [I]),
    ],
)
def test_kinds_of_accesses(rows: list[Affine], variables: list[Name]) -> None:
    check(rows, variables)


def test_stencils_need_no_conditions() -> None:
    y, x = Affine.of(Name("y")), Affine.of(Name("x"))
    inverse = invert([i + 1, j - 2], [y, x], [I, J])
    assert inverse == Inverse({I: y - 1, J: x + 2}, (), ())


def test_strides_are_divisions_with_a_condition() -> None:
    y = Affine.of(Name("y"))
    inverse = invert([i * 2 + 1], [y], [I])
    assert inverse.solution == {I: floor_divide(y - 1, 2)}
    assert inverse.conditions == (Divides(y - 1, 2),)


def test_an_impossible_system_has_a_false_condition() -> None:
    inverse = invert([i, i], [Affine(0), Affine(1)], [I])
    assert any(isinstance(c, IsZero) and c.value.is_constant and c.value.constant for c in inverse.conditions)


# -- entries of tables -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """A table of whole numbers."""

    name: str


def entry(column: int, row: Affine) -> Affine:
    return Affine.of(TableEntry(Numbers("t"), column, row))


def test_an_entry_is_an_atom_whose_row_can_be_replaced() -> None:
    p = entry(0, i) * 2 + entry(1, i) + 3
    assert str(p) == "2*t[i, 0] + t[i, 1] + 3"
    assert p - entry(1, i) == entry(0, i) * 2 + 3
    assert p.substitute({I: j + 1}) == entry(0, j + 1) * 2 + entry(1, j + 1) + 3
    assert entry(0, entry(1, i)).substitute({I: j}) == entry(0, entry(1, j))
    (first,) = entry(0, i).atoms
    assert p.substitute({first: k, I: j}) == k * 2 + entry(1, j) + 3  # the whole entry, where it is named
    assert p.reads([I])
    assert not p.reads([J])
    assert floor_divide(entry(0, i) + j, 2).reads([I])


def test_a_row_with_an_entry_is_a_condition_on_what_the_others_solve() -> None:
    y, x = Affine.of(Name("y")), Affine.of(Name("x"))
    inverse = invert([i, entry(0, i)], [y, x], [I])
    assert inverse == Inverse({I: y}, (), (IsZero(entry(0, y) - x),))
    alone = invert([entry(0, i)], [y], [I])
    assert alone == Inverse({}, (I,), (IsZero(entry(0, i) - y),))
