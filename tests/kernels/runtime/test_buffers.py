"""Memory of the kernels: pitches and planes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from optpy.energy.derive.vectors import at, here
from optpy.ir import REAL, Assignment, Extent, Field, Role, Routine, canonical_domain
from optpy.kernels.codegen.layout import row_pitch, storage_dtype
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.runtime.buffers import Buffers

H, W, D = Extent("H"), Extent("W"), Extent("D")
DTYPES = (REAL, "float32", "float64", "uint8", "int32", "bool")


def symbols_of(*fields: Field) -> SymbolTable:
    symbols = SymbolTable()
    for f in fields:
        domain = canonical_domain(f.dims)
        symbols.add(
            Routine("copy", domain, (Assignment(at(f, domain, 0), here(f, f.channels - 1)),)), solved_only=False
        )
    return symbols


def buffers(sizes: tuple[int, int, int], *fields: Field, dtype: str = "float32") -> Buffers:
    return Buffers(symbols_of(*fields), dict(zip((H, W, D), sizes, strict=True)), dtype)


# -- layout ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 100_000))
def test_rows_do_not_overlap_nor_lie_a_multiple_of_a_page_apart(length: int) -> None:
    pitch = row_pitch(length)
    assert length <= pitch <= length + 31
    if length >= 64:
        assert pitch % 16 == 0
        assert pitch * 4 % 1024 != 0
        assert pitch * 8 % 4096 != 0


SIZES = st.tuples(*[st.sampled_from([1, 2, 3, 5, 63, 64, 65, 130])] * 2, st.integers(1, 3))
FIELDS = st.builds(
    Field,
    st.just("A"),
    st.sampled_from([(), (W,), (H, W), (D, H, W), (W, W), (W, D)]),
    st.integers(1, 4),
    st.sampled_from(DTYPES),
    st.just(Role.DATA),
)


def random_values(f: Field, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    values = np.random.default_rng(seed).integers(0, 2 if f.dtype == "bool" else 200, shape)
    return values.astype(storage_dtype(f, "float32"))


@given(SIZES, FIELDS, st.integers(0, 100))
def test_what_is_written_is_read(sizes: tuple[int, int, int], f: Field, seed: int) -> None:
    made = buffers(sizes, f)
    shape = (*(made.sizes[d] for d in f.dims), f.channels)
    value = random_values(f, shape, seed)
    made.write(f, value)
    got = made.read(f)
    np.testing.assert_array_equal(got, value)
    assert (got.shape, got.dtype) == (shape, storage_dtype(f, "float32"))
    assert not np.shares_memory(got, made.memory[f])


@given(SIZES, st.lists(st.tuples(FIELDS, st.integers(0, 3)), min_size=2, max_size=6))
def test_no_element_shares_memory_with_another(sizes: tuple[int, int, int], drawn: list[tuple[Field, int]]) -> None:
    fields = [Field(f"A{n}", f.dims, f.channels, f.dtype, f.role) for n, (f, _) in enumerate(drawn)]
    made = buffers(sizes, *fields)
    for n, f in enumerate(fields):
        made.view(f)[...] = n % 2 if f.dtype == "bool" else n + 1
    for n, f in enumerate(fields):
        np.testing.assert_array_equal(made.view(f), n % 2 if f.dtype == "bool" else n + 1)
        assert made.memory[f].ctypes.data % 64 == 0
        channels, rows, length = made.view(f).shape
        assert made.memory[f].shape[1] >= (rows - 1) * made.pitch[f.dims] + length
        assert channels == f.channels
    assert made.nbytes >= sum(made.view(f).nbytes for f in fields)


def test_the_last_axis_is_the_fastest_and_channels_are_apart() -> None:
    f = Field("A", (D, H, W), 2, REAL, Role.DATA)
    made = buffers((3, 70, 2), f)
    value = np.arange(2 * 3 * 70 * 2, dtype=np.float32).reshape(2, 3, 70, 2)
    made.write(f, value)
    flat, pitch = made.memory[f], made.pitch[f.dims]
    for d, h, w, c in [(0, 0, 0, 0), (1, 2, 69, 1), (1, 0, 3, 0), (0, 2, 1, 1)]:
        assert flat[c, (d * 3 + h) * pitch + w] == value[d, h, w, c]


def test_exchanging_fields_copies_nothing() -> None:
    a, b = (Field(name, (H, W), 1, REAL, Role.VECTOR) for name in "ab")
    made = buffers((3, 5, 1), a, b)
    made.view(a)[...] = 1
    before = made.memory
    made.memory = made.swapped([(a, b)])
    assert (made.view(a) == 0).all()
    assert (made.view(b) == 1).all()
    assert made.memory[b] is before[a]
    made.memory = before
    assert (made.view(a) == 1).all()


def test_an_array_of_another_size_is_refused() -> None:
    f = Field("A", (H, W), 1, REAL, Role.DATA)
    with pytest.raises(ValueError, match="reshape"):
        buffers((3, 5, 1), f).write(f, np.zeros((3, 6)))


def test_fields_that_graphs_read_keep_their_channels_side_by_side() -> None:
    f = Field("A", (W,), 3, REAL, Role.DATA)
    values = np.arange(300.0).reshape(100, 3)
    for interleaved in (set[tuple[Extent, ...]](), {(W,)}):
        symbols = symbols_of(f)
        symbols.interleaved |= interleaved
        made = Buffers(symbols, {W: 100}, "float64")
        made.write(f, values)
        np.testing.assert_array_equal(made.read(f), values)
        np.testing.assert_array_equal(made.view(f)[:, 0].T, values)
        step = made.memory[f].strides[0] // 8
        assert (step == 1) == bool(interleaved)
