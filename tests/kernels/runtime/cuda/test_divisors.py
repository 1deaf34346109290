"""Quotients of whole numbers that a GPU finds by multiplying: those of the host's own division."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optpy as op
from optpy.kernels.codegen.cuda.context import DIVISOR, Divisor
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.divisors import divisor

NATIVE = Path(op.__file__).parent / "kernels/cuda"

SOURCE = r"""
struct Context { Divisor by; const optpy_index *numbers; optpy_index *quotients; int count; };
extern "C" __global__ void __launch_bounds__(OPTPY_THREADS) divide(const __grid_constant__ Context c) {
    for (int n = threadIdx.x; n < c.count; n += blockDim.x) c.quotients[n] = optpy_divided(c.numbers[n], c.by);
}
"""


class Context(ctypes.Structure):
    _fields_ = (
        ("by", Divisor),
        ("numbers", ctypes.c_void_p),
        ("quotients", ctypes.c_void_p),
        ("count", ctypes.c_int),
    )


def near_multiples(number: int, largest: int) -> list[int]:
    """Numbers up to the largest one, where a quotient changes and elsewhere."""
    last = largest // number * number
    middle = largest // 2 // number * number
    found = {0, 1, number - 1, number, number + 1, middle - 1, middle, last - 1, last, largest, largest // 3}
    return sorted(n for n in found if 0 <= n <= largest)


@given(st.integers(1, 2**31 - 1))
def test_quotients_of_31_bits(number: int) -> None:
    d = divisor(number, "int")
    assert d.multiplier < 2**32
    for n in near_multiples(number, 2**31 - 1):
        assert (2 * n * d.multiplier >> 32) >> d.places == n // number


@given(st.integers(1, 2**63 - 1))
def test_quotients_of_63_bits(number: int) -> None:
    d = divisor(number, "long long")
    for n in near_multiples(number, 2**63 - 1):
        assert (2 * n * d.multiplier >> 64) >> d.places == n // number


@pytest.mark.emulated
@pytest.mark.parametrize(("index", "bits"), [("int", 31), ("long long", 63)])
@pytest.mark.parametrize("number", [1, 2, 3, 7, 641, 2**16 + 1, 2**31 - 1])
def test_threads_find_them(gpu: Device, index: str, bits: int, number: int) -> None:
    numbers = np.array(near_multiples(number, 2**bits - 1), np.int32 if index == "int" else np.int64)
    ours, quotients = gpu.xp.asarray(numbers, blocking=True), gpu.xp.zeros(len(numbers), numbers.dtype)
    headers = ((NATIVE / name).read_text(encoding="utf-8") for name in ("prelude.cuh", "divisor.cuh"))
    prelude, header = headers
    source = "\n".join([f"#define OPTPY_INDEX {index}", prelude, DIVISOR.text, header, SOURCE])
    context = Context(divisor(number, index), gpu.address(ours), gpu.address(quotients), len(numbers))
    gpu.launch(gpu.load(source).kernel("divide"), 1, 256, context)
    np.testing.assert_array_equal(gpu.to_host(quotients), numbers // number)


def test_nothing_is_divided_by_the_size_of_an_empty_grid() -> None:
    empty, one = divisor(0, "int"), divisor(1, "int")
    assert (empty.multiplier, empty.places) == (one.multiplier, one.places)
