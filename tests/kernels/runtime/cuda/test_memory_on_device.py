"""Buffers and tables on a GPU: the same contents, another layout, bytes known beforehand, and what would fit."""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optpy as op
from optpy.energy.derive.vectors import at, here
from optpy.ir import REAL, Assignment, Extent, Field, Hypergraph, Role, Routine, canonical_domain
from optpy.kernels.codegen.layout import CPU, CUDA, Layout, storage_dtype
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.codegen.tables import Column, Offsets, Sorted, TableKey
from optpy.kernels.runtime.buffers import Buffers, planned_bytes
from optpy.kernels.runtime.capacity import memory_error
from optpy.kernels.runtime.tables import Connectivity, sorted_order
from tests.support.bound_problem import record_problems
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.emulator.strict_cupy import Array, StrictCupy

H, W, D, V, E = (Extent(n) for n in "HWDVE")


def symbols_of(*fields: Field) -> SymbolTable:
    symbols = SymbolTable()
    for f in fields:
        domain = canonical_domain(f.dims)
        symbols.add(
            Routine("copy", domain, (Assignment(at(f, domain, 0), here(f, f.channels - 1)),)), solved_only=False
        )
    return symbols


FIELDS = [
    Field("A", (H, W), 2, REAL, Role.UNKNOWN),
    Field("B", (D, H, W), 1, REAL, Role.DATA),
    Field("C", (V,), 3, REAL, Role.DATA),
    Field("M", (H, W), 1, "uint8", Role.DATA),
    Field("F", (H, W), 1, "bool", Role.DATA),
    Field("L", (), 4, "int32", Role.DATA),
    Field("T", (H, W), 2, "float64", Role.DATA),
]
SIZES = st.tuples(*[st.sampled_from([1, 2, 5, 31, 32, 33, 65])] * 2, st.integers(1, 3), st.integers(1, 70))


def made_on(xp: Any, sizes: tuple[int, ...], layout: Layout = CUDA, side_by_side: bool = True) -> Buffers:
    symbols = symbols_of(*FIELDS)
    if side_by_side:
        symbols.interleaved = {(V,)}
    return Buffers(symbols, dict(zip((H, W, D, V), sizes, strict=True)), "float32", xp, layout)


# -- buffers ---------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(SIZES)
def test_what_is_written_on_the_device_is_read_there(sizes: tuple[int, ...]) -> None:
    xp = StrictCupy()
    made = made_on(xp, sizes)
    values = {}
    for f in FIELDS:
        shape = (*(made.sizes[d] for d in f.dims), f.channels)
        random = np.random.default_rng(0).integers(0, 2 if f.dtype == "bool" else 200, shape)
        values[f] = random.astype("bool" if f.dtype == "bool" else storage_dtype(f, "float32"))
        made.write(f, xp.wrap(values[f]))
    for f, value in values.items():  # after all have been written: none lies in another's memory
        got: Any = made.read(f)
        assert isinstance(got, Array)
        assert got.flags.c_contiguous
        assert got.dtype == storage_dtype(f, "float32")
        np.testing.assert_array_equal(got.get(), value)
    assert xp.uploaded == 0
    made.read(FIELDS[0])[...] = -1
    again: Any = made.read(FIELDS[0])
    np.testing.assert_array_equal(again.get(), values[FIELDS[0]])


@given(SIZES)
def test_rows_and_planes_begin_where_wide_loads_may(sizes: tuple[int, ...]) -> None:
    made = made_on(np, sizes, side_by_side=False)
    for f, memory in made.memory.items():
        rows, length = made.shape(f.dims)
        pitch = made.pitch[f.dims]
        assert memory.ctypes.data % 256 == 0
        assert memory.shape == (f.channels, -(-rows * pitch // 64) * 64)
        assert pitch == (length if rows == 1 else -(-length // 32) * 32)


@given(SIZES, st.sampled_from([CPU, CUDA]), st.sampled_from(["float32", "float64"]))
def test_the_bytes_are_known_beforehand(sizes: tuple[int, ...], layout: Layout, dtype: str) -> None:
    class Counting:
        """NumPy, and the bytes that it allocates."""

        total = 0

        def zeros(self, size: int, dtype: Any) -> Any:
            self.total += size
            return np.zeros(size, dtype)

    counting, symbols = Counting(), symbols_of(*FIELDS)
    by_dim = dict(zip((H, W, D, V), sizes, strict=True))
    made = Buffers(symbols, by_dim, dtype, counting, layout)
    assert planned_bytes(symbols, by_dim, dtype, layout) == counting.total >= made.nbytes


@pytest.mark.nvrtc
@pytest.mark.parametrize("side_by_side", [False, True])
def test_views_of_real_device_arrays_are_the_memory_itself(side_by_side: bool) -> None:
    """CuPy reshapes into a copy where it finds no strides, and what is written is lost. No GPU is needed to see it."""
    cupy = pytest.importorskip("cupy")

    class Unowned:
        """CuPy's arrays at addresses that nobody reads."""

        def zeros(self, size: int, dtype: Any) -> Any:
            begin = 2**40 + 64
            memory = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(begin, size, None, 0), 0)
            return cupy.ndarray((size,), dtype, memptr=memory)

    made = made_on(Unowned(), (33, 65, 3, 7), side_by_side=side_by_side)
    for f in FIELDS:
        view: Any = made.view(f)
        memory, itemsize = made.memory[f], storage_dtype(f, "float32").itemsize
        begin, apart = memory.data.ptr, made.pitch[f.dims] * itemsize
        assert begin % 256 == 0
        assert view.data.ptr == begin
        rows, length = made.shape(f.dims)
        assert view.shape == (f.channels, rows, length)
        together = side_by_side and f.dims == (V,)
        strides = (itemsize, apart * f.channels, itemsize * f.channels) if together else (None, apart, itemsize)
        for wanted, found, n in zip(strides, view.strides, view.shape, strict=True):
            assert n == 1 or wanted in (None, found)


# -- tables ----------------------------------------------------------------------------------------------------------

GRAPH = Hypergraph("g", E, ((V,), (H, W), (V,)))
KEYS: list[TableKey] = [
    *(Column(GRAPH, c) for c in range(4)),
    *(Offsets(GRAPH, s) for s in range(3)),
    *(Sorted(GRAPH, s, c) for s in range(3) for c in (None, 0, 3)),
]


@pytest.mark.parametrize("count", [0, 1, 40])
def test_tables_are_built_on_the_device(count: int) -> None:
    sizes, xp = {V: 5, H: 2, W: 3, E: count}, StrictCupy()
    edges = np.random.default_rng(0).integers(0, [5, 2, 3, 5], (count, 4)).astype(np.int32)
    here, there = Connectivity(GRAPH, edges, sizes), Connectivity(GRAPH, xp.wrap(edges), sizes, xp)
    for key in KEYS:
        found = there.table(key)
        assert isinstance(found, Array)
        assert (found.dtype, found.flags.c_contiguous) == (np.int32, True)
        np.testing.assert_array_equal(found.get(), here.table(key))
    np.testing.assert_array_equal(there.degrees(1).get(), here.degrees(1))
    assert there.nbytes == here.nbytes
    before = xp.downloaded
    assert there.same_as(xp.wrap(edges.copy()), sizes)
    assert not there.same_as(xp.wrap(edges), sizes | {V: 6})
    assert count == 0 or not there.same_as(xp.wrap(edges + 1), sizes)
    assert (xp.uploaded, xp.downloaded - before) == (0, 1 + (count > 0))


@pytest.mark.parametrize("size", [5, 2**61])
def test_the_order_on_the_device_is_stable_however_large_the_grid(size: int) -> None:
    xp, points = StrictCupy(), np.random.default_rng(0).integers(0, 5, 1000) * (size // 5)
    np.testing.assert_array_equal(sorted_order(xp.wrap(points), size, xp).get(), np.argsort(points, kind="stable"))


# -- when there is no room left for more ------------------------------------------------------------------------------


def test_how_much_of_a_gradient_is_rounding_is_found_also_where_the_device_is_full(
    emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    v = op.indices(op.dims("V"))
    X, R = op.Unknown("X", (op.dims("V"),), 2), op.Unknown("R", (op.dims("V"),), op.SO3)
    energy = op.Energy(a=op.sin(X[v]) - 0.5, b=R[v] @ op.vector(1.0, 2.0, 3.0) - op.vector(3.0, 2.0, 1.0))
    q = np.array([0.1, 0.2, 0.3, 0.4])
    data = dict(X=np.ones((5, 2)), R=np.tile(q / np.linalg.norm(q), (5, 1)))
    made = record_problems(monkeypatch)
    session = op.compile(energy, device="cuda", dtype=np.float64).start(data)
    cost, (problem,) = session.step().cost, made
    found = (*astuple(problem.rounding(cost)), problem.promised_change())
    tried = []

    def full(*arguments: Any) -> Any:
        tried.append(arguments)
        raise MemoryError("out of memory allocating 99 bytes")

    monkeypatch.setattr(emulated.xp.functions, "empty", full, raising=False)
    again = (*astuple(problem.rounding(cost)), problem.promised_change())
    assert len(tried) == 2
    assert again == pytest.approx(found, rel=1e-12)


# -- what would fit --------------------------------------------------------------------------------------------------

GIB = 2**30


def test_the_error_says_what_would_fit() -> None:
    symbols = symbols_of(*(Field(f"A{n}", (H, W), 2, REAL, Role.DATA) for n in range(12)))
    sizes = {H: 32768, W: 32768}

    def needs(sizes: Any, dtype: str) -> int:
        return planned_bytes(symbols, sizes, dtype, CUDA)

    error = memory_error(needs, sizes, "float64", 158 * GIB, "NVIDIA H200")
    assert isinstance(error, op.OptpyError)
    assert isinstance(error, MemoryError)
    text = str(error)
    assert text.startswith("the solve needs 192.0 GiB; 158.0 GiB are free on NVIDIA H200; sizes H = 32768, W = 32768; ")
    found = re.search(r"about H = W = ([\d,]+), or float32 in place of float64 would fit; device='cpu' solves", text)
    assert found
    n = int(found[1].replace(",", ""))
    assert needs({H: n, W: n}, "float64") <= 158 * GIB < needs({H: n + 200, W: n + 200}, "float64")
    assert "float32" not in str(memory_error(needs, sizes, "float64", 95 * GIB, "NVIDIA H200"))
    assert "float64" not in str(memory_error(needs, sizes, "float32", 95 * GIB, "NVIDIA H200"))


def test_small_dims_are_kept_and_large_ones_scaled_alike() -> None:
    text = str(
        memory_error(lambda s, _: 8 * s[V] * s[D] + 8 * s[E], {V: 10**6, D: 9, E: 500_000}, "float32", 2**25, "x")
    )
    assert text == (
        "the solve needs 72.5 MiB; 32.0 MiB are free on x; sizes V = 1000000, D = 9, E = 500000; "
        "about V = 441,000, E = 220,000 would fit; device='cpu' solves it in main memory"
    )


def test_only_the_cpu_is_named_where_nothing_else_helps() -> None:
    text = str(memory_error(lambda s, _: 10**6 + s[V], {V: 100}, "float64", 1000, "x"))
    assert text == (
        "the solve needs 1,000,100 bytes; 1,000 bytes are free on x; sizes V = 100; "
        "device='cpu' solves it in main memory"
    )
