"""Scales of robust losses, checked once their values are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optpy.errors import DataError
from optpy.ir import Scalar, Scale


def role_of(param: Scalar, scales: Iterable[Scale]) -> str:
    """The part of a message about a param that says that it is a scale."""
    labels = [repr(s.label) for s in scales if s.value == param]
    return f"; it is the scale of a robust loss in {', '.join(labels)}" if labels else ""


def check_scales(scales: Sequence[Scale], params: Mapping[str, float], dtype: np.dtype[Any]) -> None:
    """Scales can be used once their values are known.

    Args:
        scales: of a problem.
        params: values by name; scales that are other params are not looked at.
        dtype: of the solve.

    Raises:
        DataError: a scale is not positive, or its square is below the least normal number of the dtype.
    """
    least = math.sqrt(np.finfo(dtype).tiny)
    for s in scales:
        if isinstance(s.value, Scalar):
            number, location = params.get(s.value.name, 1.0), s.value.location
            what, role = f"the param {s.value.name!r}", role_of(s.value, scales)
        else:
            number, location = s.value, s.location
            what, role = "the scale of op.robust", f" in '{s.label}'"
        if number <= 0:
            raise DataError(f"{what} must be positive, got {number:g}{role}", location)
        if number < least:
            wider = ", or solve with dtype=np.float64" if dtype == np.float32 else ""
            raise DataError(
                f"{what} is {number:g}, whose square vanishes in {dtype}, and with it the costs of outliers{role}; use "
                f"units in which it is well above {least:.1g}{wider}",
                location,
            )
