from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.energy.data.binding import bind, bind_update
from optpy.energy.data.origin import Origin

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (H, W), 2)
A = op.Array("A", (H, W))
M, L, F = (op.Array(n, (H, W), dtype=d) for n, d in (("M", np.uint8), ("L", np.int32), ("F", bool)))
D, S = op.Array("D", (H, W), dtype=np.float64), op.Array("S", (H, W), dtype=np.float32)
w = op.params("w")

ENERGY = op.Energy(
    a=op.where((M[i, j] == 0) & F[i, j], w * (X[i, j] - A[i, j]) + L[i, j], D[i, j] + S[i, j] + X[i, j]), b=Y[i, j]
)


def good(**changes: Any) -> dict[str, Any]:
    shape = (3, 4)
    data: dict[str, Any] = {n: np.ones(shape) for n in "XADS"}
    data |= {"Y": np.ones((3, 4, 2)), "M": np.zeros(shape, np.uint8), "L": np.zeros(shape, np.int32)}
    return data | {"F": np.ones(shape, bool), "w": 2} | changes


def without(name: str) -> dict[str, Any]:
    return {k: v for k, v in good().items() if k != name}


def test_good_data_is_bound_in_its_dtypes_and_layout() -> None:
    fortran = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    bound = bind(ENERGY.problem, good(A=fortran, X=np.arange(12).reshape(3, 4)), np.float32)
    assert {d.name: n for d, n in bound.sizes.items()} == {"H": 3, "W": 4}
    dtypes = {name: a.dtype.name for name, a in bound.arrays.items()}
    assert dtypes == {
        "X": "float32", "Y": "float32", "A": "float32", "D": "float64", "S": "float32", "M": "uint8", "L": "int32",
        "F": "bool",
    }  # fmt: skip
    assert all(a.flags.c_contiguous for a in bound.arrays.values())
    np.testing.assert_array_equal(bound.arrays["A"], fortran)
    assert bound.params == {"w": 2.0}
    assert bound.shape(Y.field) == (3, 4, 2)


def test_data_that_fits_is_not_copied_and_never_written() -> None:
    data = good(X=np.ones((3, 4), np.float32))
    data["X"].flags.writeable = False
    assert bind(ENERGY.problem, data, np.float32).arrays["X"] is data["X"]


def test_lists_and_numbers_without_axes_are_arrays_too() -> None:
    b = op.Unknown("b", ())
    c = op.Unknown("c", (), 2)
    energy = op.Energy(r=b[()] * w + c[()])
    bound = bind(energy.problem, {"b": 3, "c": [1, 2.5], "w": np.float32(0.5)})
    assert bound.arrays["b"].shape == ()
    assert bound.arrays["c"].tolist() == [1, 2.5]
    assert bound.give_back("b", np.array([7.0])).shape == ()


MISTAKES: list[tuple[Any, list[str]]] = [
    ([1, 2], ["mapping", "list"]),
    (without("X"), ["lacks 'X' (an array of shape (H, W))", "it has 'A'"]),
    (without("w"), ["lacks 'w' (a number)"]),
    (good(Xx=1), ["no 'Xx'", "did you mean 'X'?"]),
    (good(zebra=1), ["no 'zebra'", "it reads", "'X'", "'w'"]),
    (good(X=np.ones(4)), ["'X' must have shape (H", "got (4,)"]),
    (good(X=np.ones((3, 4, 1))), ["'X' must have shape", "got (3, 4, 1)", "with 1 channels"]),
    (good(Y=np.ones((3, 4, 3))), ["'Y' must have shape (H=3, W=4, 2)", "got (3, 4, 3)"]),
    (good(Y=np.ones((2, 3, 4))), ["'Y' must have shape", "channels come last", "np.moveaxis"]),
    (good(A=np.ones((3, 5))), ["'A' must have shape (H=3, W=4)", "got (3, 5)", "W is 4 from 'M'"]),
    (good(A=np.ones((4, 3))), ["H is 3 from 'M'"]),
    (good(X=[[1, 2], [3]]), ["'X'", "no array of numbers"]),
    (good(X="text"), ["'X'", "(H"]),
    (good(X=np.full((3, 4), "a")), ["'X'", "dtype <U1", "real numbers"]),
    (good(X=np.full((3, 4), None)), ["'X'", "dtype object"]),
    (good(X=np.ones((3, 4), complex)), ["'X'", "complex128"]),
    (good(X=np.ma.masked_less(np.ones((3, 4)), 2)), ["'X'", "masked array", "filled"]),
    (good(M=np.zeros((3, 4))), ["'M'", "float64", "declared uint8", "astype(np.uint8)"]),
    (good(F=np.zeros((3, 4))), ["'F'", "declared bool", "a != 0"]),
    (good(M=np.full((3, 4), 300)), ["'M'", "int64", "from 300 to 300", "uint8 cannot hold", "wider dtype"]),
    (good(M=np.full((3, 4), -1)), ["'M'", "-1"]),
    (good(L=np.full((3, 4), 2**40)), ["'L'", "int32 cannot hold"]),
    (good(F=np.full((3, 4), 7)), ["'F'", "bool cannot hold"]),
    (good(X=np.full((3, 4), 2**24 + 1)), ["'X'", "float32 cannot hold", "astype(np.float32)"]),
    (good(X=np.where(np.eye(3, 4) > 0, np.nan, 1)), ["X[0, 0] = nan is not finite", "first of 3"]),
    (good(A=np.where(np.arange(12).reshape(3, 4) == 6, -np.inf, 1)), ["A[1, 2] = -inf", "the only such value"]),
    (good(Y=np.full((3, 4, 2), np.nan)), ["Y[0, 0, 0] = nan", "first of 24"]),
    (good(D=np.full((3, 4), np.nan)), ["D[0, 0] = nan"]),
    (
        good(X=np.full((3, 4), 1e60)),
        ["X[0, 0] = 1e+60 does not fit into float32, dtype=np.float64 can hold it;"],
    ),
    (good(w=np.nan), ["'w' is nan", "not finite"]),
    (good(w=1e60), ["'w' is 1e+60", "does not fit into float32"]),
    (good(w=10**400), ["'w' is a whole number of some 400 digits", "does not fit into float32"]),
    (good(w=Fraction(-(10**400), 3)), ["'w'", "does not fit into float32"]),
    (good(w=-np.inf), ["'w' is -inf", "is not finite"]),
    (good(w="2"), ["'w'", "real number", "str"]),
    (good(w=1j), ["'w'", "real number", "complex"]),
    (good(w=np.ones(1)), ["'w'", "shape (1,)"]),
    (good(w=None), ["'w'", "NoneType"]),
]


@pytest.mark.parametrize(("data", "parts"), MISTAKES)
def test_mistakes_in_data(data: Any, parts: list[str]) -> None:
    with pytest.raises(op.DataError) as caught:
        bind(ENERGY.problem, data, np.float32)
    for part in parts:
        assert part in str(caught.value)


def test_a_mistake_in_an_array_names_the_line_of_its_declaration() -> None:
    with pytest.raises(op.DataError, match=r"test_binding\.py:\d+: 'X' must have") as caught:
        bind(ENERGY.problem, good(X=np.ones(4)), np.float32)
    assert caught.value.location == X.field.location


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_an_empty_domain_is_a_mistake(shape: tuple[int, int]) -> None:
    energy = op.Energy(r=X[i, j])
    with pytest.raises(op.DataError, match=r"'X' has shape .* the size [HW] is 0"):
        bind(energy.problem, {"X": np.ones(shape)})


def test_one_pixel_is_enough() -> None:
    energy = op.Energy(r=X[i, j] - 1, s=X[i + 1, j] - X[i, j])
    assert energy.cost({"X": np.zeros((1, 1))}) == 0.5


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("F", np.full((3, 4), 255, np.uint8), True),
        ("F", np.ones((3, 4), np.int64), True),
        ("M", np.ones((3, 4), bool), 1),
        ("M", np.full((3, 4), 255), 255),
        ("X", np.full((3, 4), 2**24), 2.0**24),
        ("X", np.full((3, 4), 2**40), 2.0**40),
        ("X", np.ones((3, 4), bool), 1.0),
        ("A", np.full((3, 4), 0.1, ">f8"), np.float32(0.1)),
        ("A", np.full((3, 4), 0.5, np.float16), 0.5),
    ],
)
def test_exact_conversions_are_made(name: str, value: Any, expected: Any) -> None:
    found = bind(ENERGY.problem, good(**{name: value}), np.float32).arrays[name]
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, np.full((3, 4), expected))


def test_an_update_changes_what_it_names() -> None:
    bound = bind(ENERGY.problem, good(), np.float32)
    new, changed = bind_update(ENERGY.problem, bound, {"A": np.full((3, 4), 5.0), "w": 7})
    assert list(changed) == ["A"]
    assert changed["A"].dtype == np.float32
    assert new.arrays["A"] is changed["A"]
    assert new.arrays["X"] is bound.arrays["X"]
    assert (new.params["w"], bound.params["w"]) == (7.0, 2.0)
    assert bound.arrays["A"][0, 0] == 1


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"B": 1}, ["no 'B'"]),
        ({"A": np.ones((3, 5))}, ["'A' must have shape (H=3, W=4)", "got (3, 5)"]),
        ({"A": np.full((3, 4), np.nan)}, ["A[0, 0] = nan"]),
        ({"w": np.inf}, ["'w' is inf"]),
    ],
)
def test_mistakes_in_updates(changes: dict[str, Any], parts: list[str]) -> None:
    bound = bind(ENERGY.problem, good(), np.float32)
    with pytest.raises(op.DataError) as caught:
        bind_update(ENERGY.problem, bound, changes)
    for part in parts:
        assert part in str(caught.value)


def test_arrays_of_the_dlpack_protocol_are_read_in_place() -> None:
    class Foreign:
        """An array of a library that optpy does not know."""

        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    array = np.full((3, 4), 2.0, np.float32)
    bound = bind(ENERGY.problem, good(X=Foreign(array)), np.float32)
    assert np.shares_memory(bound.arrays["X"], array)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_memory_maps_are_arrays(tmp_path: Path, order: str, mode: Any) -> None:
    values = np.arange(12, dtype=f"{order}f4").reshape(3, 4)
    values.tofile(tmp_path / "x")
    mapped = np.memmap(tmp_path / "x", dtype=values.dtype, mode=mode, shape=(3, 4))
    bound = bind(ENERGY.problem, good(X=mapped), np.float32)
    np.testing.assert_array_equal(bound.arrays["X"], values)
    assert type(bound.give_back("X", np.ones((3, 4, 1), np.float32))) is np.ndarray


def test_subclasses_are_read_as_plain_arrays() -> None:
    class Backwards(np.ndarray):
        def __getitem__(self, key: Any) -> Any:
            return -super().__getitem__(key)

    values = np.arange(12.0).reshape(3, 4)
    bound = bind(ENERGY.problem, good(X=values.view(Backwards)))
    assert type(bound.arrays["X"]) is np.ndarray
    np.testing.assert_array_equal(bound.arrays["X"], values)


@pytest.mark.parametrize("error", [TypeError("unsupported ScalarType BFloat16"), RuntimeError("it has no data")])
@pytest.mark.parametrize(("library", "method"), [("torch", "numpy"), ("cupy", "get")])
def test_tensors_that_cannot_be_read_are_named(
    library: str, method: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any) -> Any:
        raise error

    returns_itself = dict.fromkeys(("detach", "cpu"), lambda self: self)
    Tensor = type("Tensor", (), {"__module__": library, **returns_itself, method: refuse})
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    with pytest.raises(op.DataError, match=f"'X' is no array of numbers that can be read here: {error}"):
        bind(ENERGY.problem, good(X=Tensor()))


@pytest.mark.tensors
def test_tensors_without_an_equal_in_numpy_are_named() -> None:
    torch = pytest.importorskip("torch")
    for tensor in (torch.ones((3, 4), dtype=torch.bfloat16), torch.ones((3, 4)).to_sparse()):
        with pytest.raises(op.DataError, match="'X' is no array of numbers"):
            bind(ENERGY.problem, good(X=tensor))


@pytest.mark.tensors
def test_tensors_come_back_as_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones((3, 4), dtype=torch.float64, requires_grad=True)
    bound = bind(ENERGY.problem, good(X=tensor), np.float32)
    assert bound.arrays["X"].dtype == np.float32
    result = bound.give_back("X", np.full((3, 4, 1), 2, np.float32))
    assert isinstance(result, torch.Tensor)
    assert result.shape == (3, 4)
    assert isinstance(bound.give_back("Y", np.ones((3, 4, 2))), np.ndarray)


def test_other_libraries_are_asked_in_their_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tensor and an array on a GPU go through, where neither library is installed."""

    class Tensor:
        device = "cuda:1"

        def __init__(self, array: Any, place: str = "cuda:1") -> None:
            self.array, self.place = array, place

        def detach(self) -> Tensor:
            return self

        def cpu(self) -> Tensor:
            return Tensor(self.array, "cpu")

        def numpy(self) -> Any:
            assert self.place == "cpu"
            return self.array

        def to(self, place: str) -> Tensor:
            return Tensor(self.array, place)

    class Parameter(Tensor):
        pass

    Tensor.__module__, Parameter.__module__ = "torch", "torch.nn.parameter"
    torch = ModuleType("torch")
    torch.from_numpy = lambda array: Tensor(array, "cpu")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    bound = bind(ENERGY.problem, good(X=Parameter(np.full((3, 4), 2.0))), np.float32)
    assert bound.arrays["X"][0, 0] == 2
    result = bound.give_back("X", np.full((3, 4, 1), 5, np.float32))
    assert (type(result), result.place, result.array.shape) == (Tensor, "cuda:1", (3, 4))


def test_the_kind_of_numpy_is_the_array_itself() -> None:
    array = np.ones(3)
    assert Origin("numpy").give(array) is array
