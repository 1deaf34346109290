"""A depth scan in several sizes, and the way of a refinement from one size to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import zoom

from ..shape_from_shading import Scan

Plane = NDArray[np.float32]

_SMALLEST: Final = 32
"""Pixels along the shorter side of the smallest scan."""

_UNMEASURED: Final = np.float32(-10000)


@final
@dataclass(frozen=True, slots=True)
class Size:
    """A scan in which squares of pixels are one.

    Attributes:
        pooled: pixels along a side of such a square.
        data: what the energy needs, but for weights and light.
    """

    pooled: int
    data: dict[str, Any]

    def weights(self, w_fit: float, w_smooth: float, w_shade: float) -> dict[str, float]:
        """The weights with which the terms are as large as in the whole scan.

        There are n^2 times fewer residuals, where n pixels are pooled along a side. A difference between neighbours is
        n times as large, a second one n^2 times.
        """
        n = float(self.pooled)
        return dict(w_fit=w_fit * n**2, w_smooth=w_smooth / n**2, w_shade=w_shade)

    def enlarged(self, change: Plane, shape: tuple[int, ...]) -> Plane:
        """A change of depths, at the pixels of a larger scan."""
        grown: Plane = zoom(change, np.divide(shape, change.shape), order=1, mode="nearest", grid_mode=True)
        return grown


def sizes(scan: Scan, most: int = 3) -> list[Size]:
    """The scan in at most so many sizes, each twice the one before; the whole scan is the last."""
    found = [Size(1, _whole(scan.data))]
    while len(found) < most:
        n = 2 * found[-1].pooled
        smaller = Size(n, _pooled(found[0].data, n))
        if min(smaller.data["D"].shape) < _SMALLEST or not (smaller.data["D"] > 0).any():
            break
        found.append(smaller)
    return found[::-1]


def _whole(data: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in data.items() if not k.startswith(("w_", "light"))}


def _pooled(data: dict[str, Any], n: int) -> dict[str, Any]:
    """Squares of n x n pixels as one: the mean of what is measured in all of them."""
    measured = _squares(data["D"] > 0, n).all(axis=(1, 3))
    made: dict[str, Any] = {"Im": _squares(data["Im"], n).mean(axis=(1, 3)).astype(np.float32)}
    for name in ("X", "D"):
        mean = _squares(np.where(data["D"] > 0, data[name], 0), n).mean(axis=(1, 3))
        made[name] = np.where(measured, mean, _UNMEASURED).astype(np.float32)
    for name in ("across", "down"):
        made[name] = _squares(data[name], n).min(axis=(1, 3))
    made |= {name: data[name] / n for name in ("focal_x", "focal_y")}
    return made | {name: (data[name] - (n - 1) / 2) / n for name in ("centre_x", "centre_y")}


def _squares(plane: NDArray[Any], n: int) -> NDArray[Any]:
    """(H / n, n, W / n, n); what is left over at the ends is left out."""
    rows, columns = (size // n for size in plane.shape)
    return plane[: rows * n, : columns * n].reshape(rows, n, columns, n)
