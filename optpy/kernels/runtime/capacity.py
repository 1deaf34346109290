"""Errors where a solve or its data does not fit into a GPU's memory: bytes needed, and sizes that would fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from optpy.errors import DeviceMemoryError
from optpy.ir import Extent

Needs = Callable[[Mapping[Extent, int], str], int]
"""The bytes that a solve takes at some sizes of the dims, in a dtype. More, or as many, at larger sizes."""

_SMALL = 64
"""Dims that are smaller are kernels, channels, control points: what is solved does not become smaller by them."""


def memory_error(needs: Needs, sizes: Mapping[Extent, int], dtype: str, free: int, device: str) -> DeviceMemoryError:
    """The error for a solve that needs more memory than is free.

    Args:
        needs: what it takes, for other sizes and dtypes, too.
        sizes: of every dim.
        dtype: "float32" or "float64".
        free: bytes.
        device: the GPU's name.

    Returns:
        With the sizes, scaled down together, that would fit, and whether float32 would.
    """
    listed = ", ".join(f"{d} = {n}" for d, n in sizes.items())
    message = f"the solve needs {_text(needs(sizes, dtype))}; {_text(free)} are free on {device}; sizes {listed}"
    cures = []
    smaller = _largest(needs, sizes, dtype, free)
    if smaller:
        cures.append(f"about {_sizes_text(smaller)}")
    if dtype == "float64" and needs(sizes, "float32") <= free:
        cures.append("float32 in place of float64")
    if cures:
        message = f"{message}; {', or '.join(cures)} would fit"
    return DeviceMemoryError(f"{message}; device='cpu' solves it in main memory")


@contextmanager
def room_for(data: Mapping[str, Any], xp: Any) -> Iterator[None]:
    """Within it, data is brought to where arrays of the module ``xp`` are: NumPy, or CuPy.

    Raises:
        DeviceMemoryError: the GPU's memory is full. That main memory is stays a MemoryError.
    """
    try:
        yield
    except MemoryError as error:
        if xp is np:
            raise
        given = _text(sum(int(getattr(value, "nbytes", 0)) for value in data.values()))
        raise DeviceMemoryError(
            f"the data, {given} as given, does not fit beside what else is in the memory of the GPU: {error}; free "
            "some, or solve at a smaller size"
        ) from error


def _largest(needs: Needs, sizes: Mapping[Extent, int], dtype: str, free: int) -> dict[Extent, int]:
    """The sizes that change, all by one factor and rounded down to three digits, so that it fits; {} if none do."""

    def scaled(factor: float) -> dict[Extent, int]:
        return {d: max(_round_down(n * factor), 1) for d, n in sizes.items() if n >= _SMALL}

    def fits(factor: float) -> bool:
        return needs({**sizes, **scaled(factor)}, dtype) <= free

    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return scaled(low) if low > 0 and fits(low) else {}


def _round_down(size: float) -> int:
    if size < 1:
        return 0
    unit = 10 ** max(math.floor(math.log10(size)) - 2, 0)
    return int(size // unit * unit)


def _sizes_text(sizes: Mapping[Extent, int]) -> str:
    """Dims of the same size together: "H = W = 29,600, K = 5"."""
    by_size: dict[int, list[str]] = {}
    for d, n in sizes.items():
        by_size.setdefault(n, []).append(str(d))
    return ", ".join(f"{' = '.join(names)} = {n:,}" for n, names in by_size.items())


def _text(size: int) -> str:
    """In the largest binary unit of which it has one; one decimal."""
    for unit, power in (("GiB", 30), ("MiB", 20)):
        if size >= 2**power:
            return f"{size / 2**power:,.1f} {unit}"
    return f"{size:,} bytes"
