from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

import optpy as op

H, W = op.dims("H W")
i, j = op.indices(H, W)
X = op.Unknown("X", (H, W))
N, M, E = op.dims("N M E")
m, e = op.indices(M, E)
P, I = op.Unknown("P", (N,)), op.Array("I", (M,), dtype=np.int32)  # noqa: E741
J = op.Array("J", (H, W), dtype=np.int32)
links = op.Graph("links", E, (N,))


def test_dims_and_indices_come_alone_or_in_tuples() -> None:
    assert isinstance(op.dims("N"), op.Dim)
    assert [d.name for d in op.dims("N, M")] == ["N", "M"]
    (n,) = op.dims("N,")
    assert isinstance(op.indices(n), op.Index)
    assert isinstance(op.params("w"), op.Param)
    assert [p.name for p in op.params("a b")] == ["a", "b"]


def test_indices_are_called_by_the_names_that_they_are_given() -> None:
    row, column = op.indices(H, W)
    k = op.indices(H)
    (alone,) = [op.indices(H) for _ in range(1)]
    of_a_tuple = op.indices(H, W)

    def nested() -> str:
        nonlocal k
        k = op.indices(W)
        return repr((k, row))

    assert repr([row, column, k, alone]) == "[row, column, k, h]"
    assert repr(of_a_tuple) == "(h, w)"
    assert repr((i, j)) == "(i, j)"
    assert nested() == "(k, row)"
    names: dict[str, Any] = dict(op=op, H=H, W=W)
    exec("y, x = op.indices(H, W)\nglobal z\nz = op.indices(H)", names)  # there is no source to read
    assert repr([names[n] for n in "yxz"]) == "[y, x, z]"


def test_quotients_and_remainders_are_those_of_python() -> None:
    S, F = op.Unknown("S", ()), op.Array("F", (N,))
    n = op.indices(N)
    quotient, remainder = divmod(2 * n - 5, 3)
    energy = op.Energy(
        q=S[()] * op.value(quotient), r=S[()] * op.value(remainder), twice=S[()] * op.value((-n // 2 + 1) // 2),
        of_number=S[()] * op.value((n + 7 // 2) % np.int64(4)), size=S[()] * op.value(N // 2),
        read=S[()] * F[n // 2], cyclic=S[()] * F[(n + 1) % 2], outside=S[()] * F[(n - 3) // 2],
        asked=op.where(op.in_bounds((n - 3) // 2, of=F), S[()] * F[(n - 3) // 2], 7),
    )  # fmt: skip
    k, values = np.arange(6), np.arange(6) + 10.0
    found = energy.residuals(dict(S=1.0, F=values))
    shifted = (k - 3) // 2
    expected = dict(
        q=(2 * k - 5) // 3, r=(2 * k - 5) % 3, twice=(-k // 2 + 1) // 2, of_number=(k + 3) % 4, size=k * 0 + 3,
        read=values[k // 2], cyclic=values[(k + 1) % 2], outside=np.where(shifted < 0, 0, values[shifted]),
        asked=np.where(shifted < 0, 7, values[shifted]),
    )  # fmt: skip
    for name, numbers in expected.items():
        np.testing.assert_array_equal(found[name], numbers, err_msg=name)


def test_texts_of_quotients() -> None:
    x, i0 = sympy.IndexedBase("P", real=True), sympy.Symbol("i0", integer=True)
    n = op.indices(N)
    energy = op.Energy(r=op.where(op.in_bounds(n // 2, of=P) | op.in_bounds(n), P[n // 2] * P[n % 3], 0))
    assert energy.to_sympy("r") == x[sympy.floor(i0 / 2)] * x[i0 - 3 * sympy.floor(i0 / 3)]
    assert r"\left\lfloor" in energy._repr_latex_()
    assert repr((n // 2, n % 3, (n + 1) % 3, -n // 2)) == "((n // 2), n % 3, (n + 1) % 3, (-n // 2))"


def test_indices_of_one_name_are_still_two() -> None:
    def another() -> tuple[Any, ...]:
        i = op.indices(H)
        return i, repr(i)

    other, name = another()
    assert name == repr(i)
    assert X[i, j].components != X[other, j].components
    assert repr(i + other - i) == "i"
    assert len(op.Energy(a=X[i, j] - X[other, j]).problem.residuals[0].domain) == 3


def test_two_dims_of_one_name_are_the_same() -> None:
    assert op.dims("H") == H
    assert op.dims("H") != W
    assert {H: 1}[op.dims("H")] == 1


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ((i + 1, j), "[i + 1, j]"),
        ((1 + i, j - 2), "[i + 1, j - 2]"),
        ((2 * i - 1, -j + 3), "[2*i - 1, -j + 3]"),
        ((H - 1 - i, 0), "[H - i - 1, 0]"),
        ((i * np.int64(3), np.int32(2) + j), "[3*i, j + 2]"),
        ((+i, (i - i) + j), "[i, j]"),
    ],
)
def test_affine_indices(index: tuple[Any, ...], text: str) -> None:
    assert repr(X[index]) == f"X{text}"


def test_an_index_in_a_tuple_may_span_a_grid() -> None:
    n = (i + 1, j)
    assert X[n].components == X[i + 1, j].components


MISTAKES: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: X[i + 0.5, j], ["0.5", "whole numbers", "op.value(i)"]),
    (lambda: X[0.5, j], ["axis 0 of 'X'", "0.5", "whole numbers"]),
    (lambda: X[X[i, j], j], ["axis 0 of 'X'", "X[i, j]", "affine"]),
    (lambda: X[i, :], ["axis 1 of 'X'", "a slice", "X[i, j]"]),
    (lambda: X[i, True], ["axis 1 of 'X'", "True"]),
    (lambda: X[i, "a"], ["axis 1 of 'X'", "'a'"]),
    (lambda: X[(i, 0), j], ["axis 0 of 'X'", "side by side"]),
    (lambda: X[i], ["'X' of shape (H, W)", "2 indices, got 1", "X[i, j]"]),
    (lambda: X[i, j, 0], ["2 indices, got 3"]),
    (lambda: X[j, i], ["axis 0 of 'X'", "runs over H", "runs over W", "op.indices(H)"]),
    (lambda: X[i, i + 1], ["axis 1 of 'X'", "runs over W", "runs over H"]),
    (lambda: X[i, W - 1 - i + H - W], ["axis 1 of 'X'"]),
    (lambda: X[-1, j], ["axis 0 of 'X'", "-1", "always outside", "H - 1"]),
    (lambda: X[H, j], ["axis 0 of 'X'", "is read at H", "always outside", "the last element is X[H - 1, j]"]),
    (lambda: X[i, W + 1], ["axis 1 of 'X'", "W + 1", "always outside", "X[i, W - 1]"]),
    (lambda: X[i + H, j], ["axis 0 of 'X'", "always outside"]),
    (lambda: X[i - H, j], ["axis 0 of 'X'", "always outside", "the first X[0, j]"]),
    (lambda: X[-i - 1, j], ["axis 0 of 'X'", "always outside"]),
    (lambda: X[2 * H - 1 + i, j], ["always outside"]),
    (lambda: X[-H, j], ["always outside"]),
    (lambda: P[N], ["axis 0 of 'P'", "is read at N", "always outside", "the last element is P[N - 1]"]),
    (lambda: P[links[e][0] + N], ["always outside"]),
    (
        lambda: P[I[m]],
        [
            "axis 0 of 'P'",
            "indexed by I[m]",
            "Use a Graph",
            'op.Graph("links", M, (N,))',
            "(k,) = links[m]",
            "P[k]",
            "(M, 1)",
            "a[:, None]",
        ],
    ),
    (lambda: P[I[m] + 1], ["indexed by 1 + I[m]", "Use a Graph"]),
    (lambda: X[I[m], I[m + 1]], ["axis 0 of 'X'", 'op.Graph("links", M, ((H, W),))', "(M, 2)"]),
    (lambda: P[J[i, j]], ["indexed by J[i, j]", 'op.Graph("links", (H, W), (N,))', "(k,) = links[h, w]", "(H, W, 1)"]),
    (lambda: P[P[0]], ["indexed by P[0]", "a value, not an index", "whole numbers, affine"]),
    (lambda: X[i + 2**70, j], [str(2**70), "out of range", "op.value(i)"]),
    (lambda: X[i - 2**31, j], ["out of range"]),
    (lambda: X[2**40 * i, j], ["out of range"]),
    (lambda: X[2**70, j], ["out of range"]),
    (lambda: X[i + 10**400, j], ["some 400 digits", "out of range"]),
    (lambda: op.value(10**400), ["out of range"]),
    (lambda: op.in_bounds(i + 2**70, j), ["out of range"]),
    (lambda: i * j, ["not affine"]),
    (lambda: i / 2, ["whole numbers only", "op.value(i)"]),
    (lambda: i // 0, ["(i) // (0)", "positive whole numbers only"]),
    (lambda: i % 0, ["(i) % (0)", "positive whole numbers only"]),
    (lambda: X[i // -2, j], ["(i) // (-2)", "i // -2 is (-i) // 2"]),
    (lambda: divmod(i + 1, -2), ["positive whole numbers only", "(-i - 1) // 2"]),
    (lambda: i // j, ["(i) // (j)", "positive whole numbers only", "op.floor(op.value(i) / op.value(k))"]),
    (lambda: i % H, ["(i) % (H)", "positive whole numbers only"]),
    (lambda: np.int64(7) // i, ["(7) // (i)", "positive whole numbers only"]),
    (lambda: 7 % i, ["(7) % (i)", "positive whole numbers only"]),
    (lambda: divmod(7, i), ["(7) // (i)"]),
    (lambda: i // 2.0, ["an index // 2.0 is not an index", "op.value(i)"]),
    (lambda: i % True, ["not an index"]),
    (lambda: i // 2**40, ["positive whole numbers only"]),
    (lambda: (2**31 - 1) * ((2**20 * i) // 2), ["out of range"]),
    (lambda: op.in_bounds(i // 2), ["cannot tell which axis the index (i // 2)", "of=X"]),
    (lambda: op.in_bounds(i % 2), ["cannot tell which axis", "of=X"]),
    (lambda: round(i), ["op.value(i)"]),
    (lambda: np.sin(i), ["np.sin", "op.value(i)", "op.sin"]),
    (lambda: np.int64(3) < i, ["compared", "op.value(i)"]),
    (lambda: np.arange(3) + i, ["ndarray is not an index"]),
    (lambda: float(i), ["no value while the energy is written", "op.value(i)"]),
    (lambda: i**2, ["op.value(i)"]),
    (lambda: i < 3, ["compared", "op.value(i)"]),
    (lambda: i == 0, ["compared", "op.value(i) == 0"]),
    (lambda: i != j, ["compared"]),
    (lambda: H == 3, ["compared"]),
    (lambda: bool(i), ["truth value"]),
    (lambda: list(range(10))[i], ["no value while the energy is written"]),
    (lambda: i + X[i, j], ["op.value(i)"]),
    (lambda: X[i, j] + i, ["op.value(i)"]),
    (lambda: X[i, j] * H, ["op.value(i)"]),
    (lambda: op.sin(i), ["op.value(i)"]),
    (lambda: op.dims(""), ["one string", 'op.dims("H W")']),
    (lambda: op.dims("3D"), ["'3D'", "cannot name a dim"]),
    (lambda: op.dims(3), ["one string", "3"]),  # type: ignore[arg-type]
    (lambda: op.dims("H W H"), ["'H' is given twice", 'op.dims("H W")']),
    (lambda: op.params("w w"), ["'w' is given twice"]),
    (lambda: op.params("w-fit"), ["'w-fit'", "cannot name a param"]),
    (lambda: op.indices(), ["op.indices(H, W)"]),
    (lambda: op.indices("H"), ["op.indices(H, W)", "'H'"]),  # type: ignore[arg-type]
    (lambda: op.indices(i), ["op.indices(H, W)"]),
]


@pytest.mark.parametrize(("mistake", "parts"), MISTAKES)
def test_mistakes_with_indices(mistake: Callable[[], Any], parts: list[str]) -> None:
    with pytest.raises(op.EnergyError) as caught:
        mistake()
    message = str(caught.value)
    assert "test_index.py:" in message
    assert "#" not in message  # what tells indices of one name apart
    for part in parts:
        assert part in message


def test_strided_and_mirrored_reads_over_another_grid_are_legal() -> None:
    k = op.indices(op.dims("K"))
    assert X[2 * k, W - 1 - k].shape == ()


@pytest.mark.parametrize(
    "index", [H - 1, H - 1 - i, 2 * i, i - 1, 1 - i, -i, 2 * i - H, i + H - 1, H - 2, 5, W, op.dims("K"), 2 * H - W]
)
def test_an_index_that_may_be_inside_is_legal(index: Any) -> None:
    assert X[index, j].shape == ()


def test_what_is_said_of_a_lookup_is_what_one_writes() -> None:
    """The values P[I[m]] that the message leads to."""
    graph = op.Graph("links", M, (N,))
    (k,) = graph[m]
    energy = op.Energy(fit=P[k] - op.Array("A", (M,))[m])
    data = dict(P=[1.0, 2.0, 3.0], A=np.zeros(2), links=np.array([2, 0])[:, None])
    assert energy.residuals(data)["fit"].tolist() == [3, 1]


@pytest.mark.native
def test_the_largest_numbers_of_an_index_read_outside() -> None:
    largest = 2**31 - 1
    energy = op.Energy(near=X[i, j] - 1, far=X[i + largest, j] + X[i - largest, j] + X[largest * i - largest, j] - 1)
    data = dict(X=np.full((3, 3), 2.0))
    assert energy.cost(data) == pytest.approx(op.solve(energy, data, max_iterations=1).initial_cost)
