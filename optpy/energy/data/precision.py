"""In which precision data is solved for, and what it loses where that is float32.

Rounding to float32 is ordinary, and no loss, where an array has its values around 0, or varies by a good part of its
size: its 24 bits then tell them apart as finely as sums and products of them ever could. It is a loss where they are
spent on an offset that all values share, as with times in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optpy.energy.language.manifold import Manifold
from optpy.errors import PrecisionWarning, warn
from optpy.ir import REAL, Field, Scalar

FEW_STEPS = 2**14
"""An array may have lost values if float32 resolves it in fewer steps, from its smallest value to its largest."""

TOLERATED = 0.1
"""Share of the distinct values that may become equal to others: some do, wherever there are many."""

SAME = 2.0**-40
"""Values whose relative difference is less are one value, but for the rounding of what computed them in float64."""

SAMPLE, SORTED = 2**10, 2**16
"""So many elements tell whether an array has to be looked at in full; and so many whether values become equal there."""

DIGITS, WRITTEN_DIGITS = 7, 15
"""Decimal digits that float32 holds; and the most of a number that somebody wrote: what was computed has up to 17."""

WHOLE = 2**24
"""Float32 holds all whole numbers up to here."""

OFF_BY = 1e-3
"""A param that float32 shifts by less is as good as kept."""


def precision_for(dtypes: Iterable[np.dtype[Any]]) -> np.dtype[Any]:
    """Float32 if it holds all values of all dtypes, as NumPy promotes them; else float64."""
    return np.dtype(np.float32 if all(np.can_cast(d, np.float32, "safe") for d in dtypes) else np.float64)


def warn_of_lost_values(f: Field, wide: Any, narrow: Any, xp: Any) -> None:
    """Tell where the rounding of an array to float32 has made distinct values equal: ``PrecisionWarning``.

    Each channel is looked at with its own offset, but its steps are compared to the largest spread of all: a direction
    may hardly vary along one axis, and loses nothing. Rotations are none of this: their entries are around 0, or near 1
    where others tell them apart.

    Args:
        f: what the array is for.
        wide: as it came, of (*dims) or (*dims, channels), an array of ``xp``.
        narrow: the same in what it is stored in, C-contiguous.
    """
    if narrow.dtype != np.float32 or wide.dtype.kind != "f" or wide.dtype.itemsize <= 4 or not wide.size:
        return
    rounded = narrow.reshape(-1, f.channels)
    first = f.channels - f.manifold.translation if isinstance(f.manifold, Manifold) else 0
    channels = range(first, f.channels)
    if not _coarse(_bounds(rounded[:: _stride(rounded, SAMPLE)], channels)):
        return
    given = wide.reshape(-1, f.channels)
    bounds = _bounds(given, channels)
    for k in _coarse(bounds):
        name = f"{f.name}[..., {k}]" if f.channel_axis else f.name
        loss = _loss_of_values(repr(name), given[:, k], rounded[:, k], bounds[k], xp)
        if loss:
            warn(f"{loss}{_cure(f)}", PrecisionWarning)


def _stride(a: Any, most: int) -> int:
    """Of the elements that are looked at where so many are enough."""
    return max(len(a) // most, 1)


Bounds = tuple[float, float]
"""The smallest and the largest value."""


def _bounds(a: Any, channels: Sequence[int]) -> dict[int, Bounds]:
    return {k: (float(a[:, k].min()), float(a[:, k].max())) for k in channels}


def _coarse(bounds: Mapping[int, Bounds]) -> list[int]:
    """The channels whose steps in float32 are large beside what the array varies by."""
    spread = max((high - low for low, high in bounds.values()), default=0.0)
    return [k for k, (low, high) in bounds.items() if spread < FEW_STEPS * _step(low, high)]


def _step(low: float, high: float) -> float:
    """The spacing of float32 at the larger of two magnitudes; NaN if that is not finite."""
    with np.errstate(over="ignore"):
        largest = np.float32(max(abs(low), abs(high)))
    return float(np.spacing(largest)) if np.isfinite(largest) else np.nan


def _loss_of_values(name: str, wide: Any, narrow: Any, bounds: Bounds, xp: Any) -> str:
    """The loss of a channel, as text; empty where there is none."""
    low, high = bounds
    if high - low <= SAME * max(abs(low), abs(high)):
        loss = _loss(low)
        return f"{name} is {loss}" if loss else ""
    stride = _stride(wide, SORTED)
    wide, narrow = wide[::stride], narrow[::stride]
    if bool((wide == narrow).all()):
        return ""
    before, after = int(xp.unique(wide).size), int(xp.unique(narrow).size)
    if after >= (1 - TOLERATED) * before:
        return ""
    looked_at = f" (in one element of {stride})" if stride > 1 else ""
    return (
        f"{before:,} distinct values of {name}{looked_at} become {after:,} in float32: they lie from {low!r} to "
        f"{high!r}, where its steps are {_step(low, high):.3g}"
    )


def _cure(f: Field) -> str:
    cure = "solve with dtype=np.float64" if f.dtype == REAL else "declare it with dtype=np.float64, or without a dtype"
    return f"; {cure}, or subtract an offset first"


def warn_of_shifted_param(p: Scalar, value: float) -> None:
    """Tell where float32 shifts a param by more than ordinary rounding: ``PrecisionWarning``."""
    loss = _loss(value)
    if loss:
        warn(
            f"the param {p.name!r} is {loss}; solve with dtype=np.float64, or subtract an offset, from it and from "
            "what it is compared with",
            PrecisionWarning,
        )


def _loss(value: float) -> str:
    """The value that float32 makes of a number, if that is not what was meant; else empty.

    A weight of 0.1 or pi, and one of 1e12, are rounded in the eighth digit, as all that is computed from them will be.
    An offset of 4500000.25, or the time of day in seconds since 1970, is another one afterwards.
    """
    with np.errstate(under="ignore"):
        rounded = float(np.float32(value))
    if value and not rounded:
        return f"{value!r}, which is 0 in float32"
    digits = len(np.format_float_scientific(value).partition("e")[0].replace(".", "").strip("-0"))
    meant = DIGITS < digits <= WRITTEN_DIGITS or (abs(value) > WHOLE and digits > DIGITS)
    off = abs(rounded - value)
    return f"{value!r}, in float32 {rounded!r}: off by {off:.2g}" if meant and off > OFF_BY else ""
