"""Conversions of dtypes that lose nothing that the user did not ask to lose."""

from __future__ import annotations

from typing import Any

import numpy as np

from optpy.energy.data.precision import warn_of_lost_values
from optpy.errors import DataError
from optpy.ir import REAL, Field


def cast(f: Field, raw: Any, target: np.dtype[Any], xp: Any) -> Any:
    """The array of ``xp`` in the target dtype, C-contiguous; no copy if it already is.

    Floats may be rounded to the precision of other floats, with a ``PrecisionWarning`` where that loses what tells them
    apart. Whole numbers become floats or other whole numbers only
    exactly, and bool where uint8, or 0 and 1.

    Raises:
        DataError: the values cannot become the target's, with the conversion to write.
    """
    if raw.dtype == target:
        return xp.ascontiguousarray(raw) if raw.ndim else raw
    kind = raw.dtype.kind
    if kind not in "biuf":
        raise DataError(f"{f.name!r} has dtype {raw.dtype}: only real numbers and bool can be bound", f.location)
    if kind == "f" and target.kind != "f":
        raise DataError(
            f"{f.name!r} has dtype {raw.dtype}, but is declared {target}: convert it yourself, {_conversion(target)}, "
            f"or declare it without a dtype",
            f.location,
        )
    with np.errstate(over="ignore", invalid="ignore"):
        array = raw.astype(target, order="C")
    if kind in "iu" and not _kept(raw, array, xp):
        raise DataError(
            f"{f.name!r} has dtype {raw.dtype} and values from {int(raw.min())} to {int(raw.max())}, which {target} "
            f"cannot hold exactly: {_cure(f, target)}",
            f.location,
        )
    warn_of_lost_values(f, raw, array, xp)
    return array


def _cure(f: Field, target: np.dtype[Any]) -> str:
    """The cure for values that do not fit; to convert those of a declared type would make others of them."""
    converted = f"convert it yourself, {_conversion(target)}"
    if f.dtype != REAL and target.kind != "b":
        return "declare it with a wider dtype, or without one"
    return f"solve with dtype=np.float64, or {converted}" if target == np.float32 else converted


def _conversion(target: np.dtype[Any]) -> str:
    if target.kind == "b":
        return "a != 0"
    plain = f"a.astype(np.{target})"
    return f"{plain}, or np.rint(a).astype(np.{target})" if target.kind in "iu" else plain


def _kept(raw: Any, array: Any, xp: Any) -> bool:
    if array.dtype.kind == "b":
        # A mask of bytes is 0 or 255 as often as 0 or 1; wider integers are more likely no mask at all.
        return raw.dtype == np.uint8 or bool(((raw == 0) | (raw == 1)).all())
    if not raw.size:
        return True
    if array.dtype.kind == "f":
        bits = np.finfo(array.dtype).nmant + 1
        if 8 * raw.dtype.itemsize <= bits:
            return True
        limit = 2**bits
        return (-limit <= int(raw.min()) and int(raw.max()) <= limit) or bool((_odd_part(raw, xp) <= limit).all())
    if np.can_cast(raw.dtype, array.dtype, "safe"):
        return True
    info = np.iinfo(array.dtype)
    return bool(info.min <= int(raw.min()) and int(raw.max()) <= info.max)


def _odd_part(raw: Any, xp: Any) -> Any:
    """Magnitudes of whole numbers without their factors of two: what the mantissa of a float must hold."""
    bits = raw.astype(np.uint64)
    magnitude = xp.where(raw < 0, ~bits + np.uint64(1), bits)
    lowest = magnitude & (~magnitude + np.uint64(1))
    return magnitude // xp.maximum(lowest, np.uint64(1))
