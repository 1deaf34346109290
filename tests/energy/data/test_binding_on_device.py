"""Data that lies on a GPU is checked there and stays there; what comes from elsewhere is copied once, and goes back."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

import optpy as op
from optpy.energy.data.binding import BoundData, bind, bind_update
from optpy.energy.data.casting import cast
from optpy.energy.data.origin import Origin
from tests.energy.data import test_binding as on_host
from tests.energy.data import test_graph_binding as graphs_on_host
from tests.energy.manifolds import test_data as manifolds_on_host
from tests.support.emulator.strict_cupy import Array, StrictCupy
from tests.support.manifold_data import matrices, quaternions

X, A = on_host.X, on_host.A


@pytest.fixture
def xp() -> StrictCupy:
    return StrictCupy()


def on_device(data: Any, xp: StrictCupy) -> Any:
    """The data with arrays that a GPU can hold on the device."""
    if not isinstance(data, dict):
        return data
    return {
        k: xp.wrap(v) if type(v) is np.ndarray and v.dtype.kind in "biuf" and k != "w" else v for k, v in data.items()
    }


def message(energy: op.Energy, data: Any, dtype: Any, xp: Any) -> str:
    with pytest.raises(op.DataError) as caught:
        bind(energy.problem, data, dtype, xp)
    return str(caught.value)


def assert_same(bound: BoundData, expected: BoundData) -> None:
    assert bound.sizes == expected.sizes
    assert bound.params == expected.params
    for found, wanted in ((bound.arrays, expected.arrays), (bound.edges, expected.edges)):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            assert isinstance(found[name], Array)
            assert found[name].flags.c_contiguous
            assert found[name].dtype == value.dtype
            np.testing.assert_allclose(found[name].get(), value, rtol=1e-15, atol=1e-15)


# -- checks are the same ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize("data", [data for data, _ in on_host.MISTAKES])
def test_mistakes_are_told_in_the_same_words(data: Any, place: str, xp: StrictCupy) -> None:
    given = on_device(data, xp) if place == "device" else data
    assert message(on_host.ENERGY, given, np.float32, xp) == message(on_host.ENERGY, data, np.float32, np)
    assert xp.downloaded < 50  # single elements, flags, extremes


@pytest.mark.parametrize("place", ["host", "device"])
def test_mistakes_in_graphs_are_told_in_the_same_words(place: str, xp: StrictCupy) -> None:
    good = np.zeros((4, 3), int)
    for at, value in (((2, 0), 99), ((3, 2), -1), ((0, 1), 2**40)):
        for dtype in (np.int64, np.uint64) if value >= 0 else (np.int64,):
            edges = good.astype(dtype)
            edges[at] = value
            data = graphs_on_host.with_match(edges)
            given = on_device(data, xp) if place == "device" else data
            energy = graphs_on_host.ENERGY
            assert message(energy, given, np.float64, xp) == message(energy, data, np.float64, np)
    wrong = on_device(graphs_on_host.with_match(np.zeros((2, 3))), xp)
    assert "dtype float64, but its entries are indices" in message(graphs_on_host.ENERGY, wrong, np.float64, xp)


R, T = matrices(quaternions(np.random.default_rng(1), 2, 3)), manifolds_on_host.SE3


@pytest.mark.parametrize(
    ("name", "x"),
    [
        ("SO3", np.zeros((2, 3, 4))),
        ("SO2", np.ones((2, 3, 2))),
        ("UnitVector", np.ones((2, 3, 3))),
        ("SO3", manifolds_on_host.changed(R, (1, 1), 2 * np.eye(3))),
        ("SO3", manifolds_on_host.changed(R, (0, 2), np.diag([1, 1, -1]))),
        ("SO2", np.tile(np.diag([1.0, -1]), (2, 3, 1, 1))),
        ("SE3", manifolds_on_host.changed(T, (0, 1, 3, 3), 2)),
        ("SE2", np.ones((2, 3, 3, 3))),
        ("SO3", manifolds_on_host.changed(R, (1, 2, 0, 1), np.nan)),
    ],
)
def test_mistakes_in_elements_are_told_in_the_same_words(name: str, x: Any, xp: StrictCupy) -> None:
    energy, data = manifolds_on_host.ENERGIES[name], manifolds_on_host.GOOD[name] | dict(X=x)
    assert message(energy, on_device(data, xp), np.float64, xp) == message(energy, data, np.float64, np)
    assert xp.downloaded < 50


# -- good data -------------------------------------------------------------------------------------------------------


def test_data_on_the_device_is_bound_without_leaving_it(xp: StrictCupy) -> None:
    data = on_host.good(A=np.asfortranarray(np.arange(12.0).reshape(3, 4)), X=np.arange(12).reshape(3, 4))
    data |= {"D": np.arange(48.0).reshape(6, 8)[::-2, ::2], "F": np.full((3, 4), 255, np.uint8)}
    bound = bind(on_host.ENERGY.problem, on_device(data, xp), np.float32, xp)
    assert (xp.uploaded, bound.xp) == (0, xp)
    assert xp.downloaded < 30
    assert_same(bound, bind(on_host.ENERGY.problem, data, np.float32))


def test_what_fits_is_not_copied(xp: StrictCupy) -> None:
    x = xp.wrap(np.ones((3, 4), np.float32))
    assert bind(on_host.ENERGY.problem, on_host.good(X=x), np.float32, xp).arrays["X"].data.ptr == x.data.ptr


def test_graphs_on_the_device_are_copied_and_checked_there(xp: StrictCupy) -> None:
    match = np.array([[0, 1, 2], [1, 0, 3]], np.int32)
    data = graphs_on_host.with_match(match)
    given = on_device(data, xp)
    bound = bind(graphs_on_host.ENERGY.problem, given, np.float64, xp)
    assert xp.uploaded == 0
    assert_same(bound, bind(graphs_on_host.ENERGY.problem, data))
    match[:] = 99  # what was checked is what is kept
    assert bound.edges["match"].get().tolist() == [[0, 1, 2], [1, 0, 3]]


@pytest.mark.parametrize("name", manifolds_on_host.KINDS)
def test_elements_of_manifolds_are_made_ready_on_the_device(name: str, xp: StrictCupy) -> None:
    _, draw, matrices_of = manifolds_on_host.KINDS[name]
    rng = np.random.default_rng(0)
    energy, data = manifolds_on_host.ENERGIES[name], dict(A=matrices_of(draw(rng, 2, 3)), X=1.0001 * draw(rng, 2, 3))
    bound, expected = bind(energy.problem, on_device(data, xp), np.float64, xp), bind(energy.problem, data)
    assert xp.downloaded < 30
    assert_same(bound, expected)
    given_back = bound.give_back("A", bound.arrays["A"])
    assert isinstance(given_back, Array)
    np.testing.assert_allclose(given_back.get(), data["A"], atol=1e-15)


def test_what_is_on_the_host_is_uploaded_once_and_given_back_there(xp: StrictCupy, tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=(3, 4))
    data = on_host.good(
        X=mapped, A=np.full((3, 4), 0.1, ">f8"), D=np.full((3, 4), 0.5, np.longdouble), S=np.ones((4, 3)).T[::-1]
    )
    data["M"].flags.writeable = False
    bound = bind(on_host.ENERGY.problem, data, np.float32, xp)
    assert xp.uploaded == sum(bound.arrays[name].size for name in bound.arrays)
    assert xp.downloaded < 30
    assert_same(bound, bind(on_host.ENERGY.problem, data, np.float32))
    result = bound.give_back("X", xp.wrap(np.full((3, 4, 1), 2.0)))
    assert type(result) is np.ndarray
    np.testing.assert_array_equal(result, np.full((3, 4), 2.0))


def test_lists_and_numbers_are_uploaded(xp: StrictCupy) -> None:
    b, c, w = op.Unknown("b", ()), op.Unknown("c", (), 2), op.params("w")
    energy = op.Energy(r=b[()] * w + c[()])
    bound = bind(energy.problem, {"b": 3, "c": [1, 2.5], "w": xp.wrap(0.5)}, np.float64, xp)
    assert bound.arrays["b"].shape == ()
    assert (bound.arrays["c"].tolist(), bound.params) == ([1, 2.5], {"w": 0.5})


def test_updates_stay_on_the_device(xp: StrictCupy) -> None:
    bound = bind(on_host.ENERGY.problem, on_device(on_host.good(), xp), np.float32, xp)
    before = xp.uploaded
    changes = {"A": xp.wrap(np.full((3, 4), 5.0)), "w": 7}
    new, changed = bind_update(on_host.ENERGY.problem, bound, changes)
    assert (xp.uploaded, new.xp, new.params) == (before, xp, {"w": 7.0})
    assert isinstance(changed["A"], Array)
    assert new.arrays["X"] is bound.arrays["X"]
    with pytest.raises(op.DataError, match=r"A\[0, 0\] = nan"):
        bind_update(on_host.ENERGY.problem, bound, {"A": xp.wrap(np.full((3, 4), np.nan))})


@pytest.mark.parametrize("place", ["host", "device"])
@pytest.mark.parametrize(("x", "expected"), [(np.float32, "float32"), (np.float64, "float64"), (np.int64, "float64")])
def test_the_precision_follows_arrays_on_the_device(x: Any, expected: str, place: str, xp: StrictCupy) -> None:
    data = on_host.good(X=np.ones((3, 4), x), Y=np.ones((3, 4, 2), np.float32))
    bound = bind(on_host.ENERGY.problem, on_device(data, xp) if place == "device" else data, None, xp)
    assert (bound.dtype.name, bound.arrays["X"].dtype.name) == (expected, expected)
    assert xp.downloaded < 50


@pytest.mark.parametrize("place", ["host", "device"])
def test_what_float32_loses_is_told_in_the_same_words(place: str, xp: StrictCupy) -> None:
    Z = op.Array("Z", (on_host.H, on_host.W), 2)
    energy = op.Energy(fit=X[on_host.i, on_host.j] - Z[on_host.i, on_host.j].sum())
    grid = np.arange(3000.0).reshape(30, 100)
    data = dict(X=np.zeros((30, 100), np.float32), Z=np.stack([1e8 + grid, grid / 7], axis=-1))
    with pytest.warns(op.PrecisionWarning) as expected:
        bind(energy.problem, data, np.float32)
    with pytest.warns(op.PrecisionWarning) as found:
        bind(energy.problem, on_device(data, xp) if place == "device" else data, np.float32, xp)
    assert [str(w.message) for w in found] == [str(w.message) for w in expected]
    assert xp.downloaded < 50


# -- other libraries, other GPUs -------------------------------------------------------------------------------------


class Tensor:
    """What PyTorch's tensors are asked for, on a GPU or not."""

    def __init__(self, array: Any, device: str = "cuda:0", plain: bool = False) -> None:
        kind, _, number = device.partition(":")
        self.device = SimpleNamespace(type=kind, index=int(number) if number else None)
        self.array, self.plain = array, plain

    def detach(self) -> Tensor:
        return self

    def resolve_conj(self) -> Tensor:
        return self

    def resolve_neg(self) -> Tensor:
        return Tensor(self.array, f"{self.device.type}:{self.device.index}", plain=True)

    def cpu(self) -> Tensor:
        assert self.device.type == "cpu"
        return self

    def numpy(self) -> Any:
        return self.array

    def to(self, device: Any) -> Tensor:
        self.device = device
        return self

    def __dlpack__(self, **options: Any) -> Any:
        if not self.plain:
            raise BufferError("Can't export tensors that require gradient or are negated")
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device.index)


Tensor.__module__ = "torch"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("torch")
    module.from_numpy = lambda array: Tensor(array, "cpu")
    module.from_dlpack = lambda array: Tensor(np.from_dlpack(_host_view(array)), "cuda:0")
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def _host_view(array: Array) -> Any:
    return array.on_host


def test_tensors_on_the_gpu_share_memory_both_ways(torch: Any, xp: StrictCupy) -> None:
    tensor = type("OwnTensor", (Tensor,), {})(np.full((3, 4), 2.0, np.float32))
    bound = bind(on_host.ENERGY.problem, on_host.good(X=tensor), np.float32, xp)
    assert np.shares_memory(_host_view(bound.arrays["X"]), tensor.array)
    found = xp.wrap(np.full((3, 4, 1), 5, np.float32))
    result = bound.give_back("X", found)
    assert (type(result), result.device.type, result.array.shape) == (Tensor, "cuda", (3, 4))
    assert np.shares_memory(result.array, _host_view(found))


def test_tensors_in_main_memory_go_back_there(torch: Any, xp: StrictCupy) -> None:
    bound = bind(on_host.ENERGY.problem, on_host.good(X=Tensor(np.full((3, 4), 2.0), "cpu")), np.float32, xp)
    assert bound.arrays["X"].get()[0, 0] == 2
    result = bound.give_back("X", xp.wrap(np.full((3, 4, 1), 5, np.float32)))
    assert (type(result), result.device.type, result.array.shape) == (Tensor, "cpu", (3, 4))


class Foreign:
    """An array of a library that optpy does not know."""

    def __init__(self, array: Any, place: tuple[int, int]) -> None:
        self.array, self.place = array, place

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.place


def test_arrays_of_the_dlpack_protocol_are_taken_over_where_they_lie(xp: StrictCupy) -> None:
    array = np.full((3, 4), 2.0, np.float32)
    bound = bind(on_host.ENERGY.problem, on_host.good(X=Foreign(array, (2, 0))), np.float32, xp)
    assert np.shares_memory(_host_view(bound.arrays["X"]), array)
    assert bound.origins["X"] == Origin("cupy", 0)
    uploaded = bind(on_host.ENERGY.problem, on_host.good(X=Foreign(array, (1, 0))), np.float32, xp)
    np.testing.assert_array_equal(uploaded.arrays["X"].get(), array)
    assert uploaded.origins["X"] == Origin("numpy")


class Numbered:
    """An array of a library that has the CUDA array interface alone."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {}

    def __init__(self, array: Any, device: int) -> None:
        self.array, self.device = array, device


def test_arrays_of_the_cuda_array_interface_are_taken_over_where_they_lie(xp: StrictCupy) -> None:
    array = np.full((3, 4), 2.0, np.float32)
    bound = bind(on_host.ENERGY.problem, on_host.good(X=Numbered(array, 0)), np.float32, xp)
    assert np.shares_memory(_host_view(bound.arrays["X"]), array)
    assert bound.origins["X"] == Origin("cupy", 0)


@pytest.mark.parametrize("library", ["cupy", "torch", "dlpack", "interface"])
def test_an_array_on_another_gpu_is_refused(library: str, torch: Any) -> None:
    xp, values = StrictCupy(device=1), np.ones((3, 4))
    there: dict[str, Any] = {
        "cupy": xp.wrap(values, device=0),
        "torch": Tensor(values, "cuda:0"),
        "dlpack": Foreign(values, (2, 0)),
        "interface": Numbered(values, 0),
    }
    text = message(on_host.ENERGY, on_host.good(X=there[library]), np.float32, xp)
    assert "'X' lies on GPU 0, but the solver works on GPU 1" in text
    assert "or solve on GPU 0" in text
    cures = {"cupy": "cupy.cuda.Device(1)", "torch": 'a.to("cuda:1")'}
    assert cures.get(library, "move it there") in text


# -- whole numbers that floats hold or do not ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_large_whole_numbers_are_floats_only_where_those_hold_them(kind: str, dtype: str, xp: StrictCupy) -> None:
    mantissa = {"float32": 24, "float64": 53}[dtype]
    info = np.iinfo(kind)
    values = [2**62, info.min, info.max, info.max - 1, 2**mantissa + 1, 2**mantissa + 2, 2**60 + 2**37, 2**60 + 2**36]
    field = on_host.X.field
    for value in values:
        raw = np.array([1, value], kind)
        exact = int(np.array(value, dtype)) == value
        for module, given in ((np, raw), (xp, xp.wrap(raw))):
            if exact:
                assert int(cast(field, given, np.dtype(dtype), module)[1]) == value
            else:
                with pytest.raises(op.DataError, match="cannot hold exactly"):
                    cast(field, given, np.dtype(dtype), module)


def test_no_numbers_at_all_are_held_by_any_dtype() -> None:
    assert cast(on_host.X.field, np.zeros(0, np.int64), np.dtype(np.float32), np).dtype == np.float32


# -- the stand-in ----------------------------------------------------------------------------------------------------


def test_the_stand_in_is_as_strict_as_cupy(xp: StrictCupy) -> None:
    array: Any = xp.wrap(np.ones(3))
    mistakes: list[Any] = [
        lambda: np.asarray(array),
        lambda: np.isfinite(array),
        lambda: np.moveaxis(array, 0, 0),
        lambda: array + np.ones(3),
        lambda: np.ones(3) + array,
        lambda: xp.isfinite(np.ones(3)),
        lambda: array[np.array([0])],
    ]
    for mistake in mistakes:
        with pytest.raises(TypeError):
            mistake()
    with pytest.raises(AttributeError):
        xp.linalg.det(array)
    assert isinstance(array[0], Array)
    assert isinstance(array.sum(), Array)
    assert (np.float64(2) * array).tolist() == [2, 2, 2]


@pytest.mark.nvrtc
def test_the_stand_in_takes_what_cupy_takes(xp: StrictCupy) -> None:
    pytest.importorskip("cupy", reason="what CuPy takes is asked of it")
    array: Any = xp.wrap(np.ones(3))
    mistakes: list[Any] = [
        lambda: xp.sum(array, where=array > 0),
        lambda: xp.add(array, array, where=array > 0),
        lambda: array.sum(initial=0.0),
        lambda: xp.zeros(3, like=array),
    ]
    for mistake in mistakes:
        with pytest.raises(TypeError):
            mistake()
    for name in ("bincount", "histogram"):
        with pytest.raises(AttributeError):
            getattr(xp, name)
