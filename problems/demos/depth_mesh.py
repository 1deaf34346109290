"""A depth scan as a mesh of not too many vertices."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

MOST_VERTICES: Final = 256 * 256

_APART: Final = 0.01
"""Metres between neighbouring pixels from which on they belong to different surfaces, as in the energy."""


@final
class DepthMesh:
    """Every n-th pixel of the part that was measured, in a frame with y upwards and the camera at +z.

    Args:
        data: of a scan: D, (H, W), and the camera.
        most: vertices; n is as small as these allow.

    Raises:
        ValueError: there are no neighbouring pixels that were measured.
    """

    def __init__(self, data: dict[str, Any], most: int = MOST_VERTICES) -> None:
        measured = np.asarray(data["D"]) > 0
        rows, columns = (np.flatnonzero(measured.any(axis=a)) for a in (1, 0))
        if not rows.size:
            raise ValueError("the scan has no pixel that was measured: nothing can be shown")
        height, width = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        self.step = max(int(np.ceil(np.sqrt(height * width / most))), 1)
        """Pixels from one vertex to the next."""
        at = np.ix_(np.arange(rows[0], rows[-1] + 1, self.step), np.arange(columns[0], columns[-1] + 1, self.step))
        quads = self._quads(np.where(measured, data["D"], np.nan)[at])
        if not len(quads):
            raise ValueError("no four neighbouring pixels of the scan were measured: it has no surface")
        used, numbers = np.unique(quads, return_inverse=True)
        corner = numbers.reshape(-1, 4)
        self.faces: NDArray[np.int64] = np.concatenate([corner[:, [0, 2, 1]], corner[:, [1, 2, 3]]])
        """(F, 3): of vertices."""
        row, column = (np.broadcast_to(a, (at[0].size, at[1].size)).ravel()[used] for a in at)
        self._pixels = (row, column)
        self._x = (column - data["centre_x"]) / data["focal_x"]
        self._y = (row - data["centre_y"]) / data["focal_y"]
        self._middle = np.zeros(3)
        self._middle = self.places(data["D"]).mean(axis=0)

    def _quads(self, depth: NDArray[np.floating]) -> NDArray[np.int64]:
        """(Q, 4): numbers of pixels that are corners of squares without a hole or a jump."""
        corners = np.stack([depth[:-1, :-1], depth[:-1, 1:], depth[1:, :-1], depth[1:, 1:]])
        whole = corners.max(axis=0) - corners.min(axis=0) < _APART * self.step  # false where one is NaN
        number = np.arange(depth.size).reshape(depth.shape)
        squares = np.stack([number[:-1, :-1], number[:-1, 1:], number[1:, :-1], number[1:, 1:]], axis=-1)
        found: NDArray[np.int64] = squares[whole]
        return found

    def places(self, depth: NDArray[np.floating]) -> NDArray[np.float32]:
        """(V, 3): the vertices at a depth, (H, W), around the middle of the scan."""
        z = np.asarray(depth, np.float64)[self._pixels]
        return (np.stack([self._x * z, -self._y * z, -z], axis=1) - self._middle).astype(np.float32)
