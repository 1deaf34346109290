"""Bundles of cameras and points as files: BAL and Bundler in, PLY out.

References: S. Agarwal et al.: Bundle Adjustment in the Large, ECCV 2010 (the data sets, .txt); N. Snavely et al.: Photo
Tourism, SIGGRAPH 2006 (Bundler v0.3, .out).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

import optpy as op
from optpy.cli.output_file import whole_file

from .number_files import Indices, Numbers, Row, indices, numbers, read_rows, refuse

CAMERA = 9
"""Numbers of a camera: rotation vector, translation, focal length, k1, k2."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Cameras, points, and where the cameras see the points.

    Args:
        cameras: (C, 9), each the rotation vector (3) and the translation (3) of world to camera, the focal length in
            pixels, k1 and k2.
        points: (P, 3).
        seen: (O, 2), pixels from the middle of the picture, y upwards.
        pairs: (O, 2), the camera and the point of each observation.
    """

    cameras: Numbers
    points: Numbers
    seen: Numbers
    pairs: Indices

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name."""
        return dict(Camera=self.cameras, Point=self.points, Seen=self.seen, obs=self.pairs)


def read_bundle(path: Path) -> Bundle:
    """Reads a file of Bundler (.out) or BAL (any other name).

    Raises:
        OSError: it cannot be read.
        DataError: it is not of its format.
    """
    return read_bundler(path) if path.suffix == ".out" else read_bal(path)


def read_bal(path: Path) -> Bundle:
    """`cameras points observations`; `camera point x y` for each observation; 9 numbers for each camera, 3 for a point.

    Raises:
        DataError: it is not of this format; the message names the line.
    """
    rows = read_rows(path)
    header = "the numbers of cameras, points and observations"
    cameras, points, observations = _sizes(path, rows[:1], 3, header)
    seen = rows[1 : 1 + observations]
    if len(seen) < observations:
        raise op.DataError(f"{path}: {observations} observations announced, {len(seen)} found")
    what = "an observation: camera, point, x, y"
    table = numbers(path, seen, 4, what)
    pairs = indices(path, seen, table[:, :2], what)
    _check_pairs(path, seen, pairs, cameras, points)
    values = _flat(path, rows[1 + observations :], CAMERA * cameras + 3 * points)
    split = CAMERA * cameras
    return Bundle(values[:split].reshape(-1, CAMERA), values[split:].reshape(-1, 3), table[:, 2:], pairs)


def _sizes(path: Path, rows: list[Row], count: int, what: str) -> list[int]:
    if not rows:
        raise op.DataError(f"{path} is empty: its first line holds {what}")
    return [int(n) for n in indices(path, rows, numbers(path, rows, count, what), what)[0]]


def _check_pairs(path: Path, rows: list[Row], pairs: Indices, cameras: int, points: int) -> None:
    faulty = np.flatnonzero((pairs >= np.array([cameras, points])).any(axis=1))
    if faulty.size:
        refuse(path, rows[int(faulty[0])], f"a camera below {cameras} and a point below {points}")


def _flat(path: Path, rows: list[Row], count: int) -> Numbers:
    """Numbers that stand in lines of any length."""
    words = [Row(row.line, [word]) for row in rows for word in row.words]
    if len(words) != count:
        raise op.DataError(f"{path}: {count} numbers of cameras and points expected, {len(words)} found")
    return numbers(path, words, 1, "a number").ravel()


# -- Bundler ---------------------------------------------------------------------------------------------------------


def read_bundler(path: Path) -> Bundle:
    """`cameras points`; for each camera `f k1 k2`, three rows of R, t; for each point its place, its colour, its views:
    how many, then `camera key x y` for each.

    Raises:
        DataError: it is not of this format; the message names the line.
    """
    rows = read_rows(path)
    count_cameras, count_points = _sizes(path, rows[:1], 2, "the numbers of cameras and points")
    if len(rows) != 1 + 5 * count_cameras + 3 * count_points:
        raise op.DataError(
            f"{path}: {count_cameras} cameras of five lines and {count_points} points of three announced, "
            f"{len(rows) - 1} lines found"
        )
    blocks = numbers(path, rows[1 : 1 + 5 * count_cameras], 3, "three numbers of a camera").reshape(-1, 5, 3)
    turns = [_rotation_vector(path, rows[2 + 5 * n], R) for n, R in enumerate(blocks[:, 1:4])]
    cameras = np.concatenate([np.reshape(turns, (-1, 3)), blocks[:, 4], blocks[:, 0]], axis=1)
    of_points = rows[1 + 5 * count_cameras :]
    points = numbers(path, of_points[::3], 3, "the three coordinates of a point")
    views = [_views(path, row, count_cameras) for row in of_points[2::3]]
    which = np.repeat(np.arange(count_points), [len(v) for v in views])
    seen = np.concatenate([np.zeros((0, 4)), *views])
    return Bundle(cameras, points, seen[:, 2:], np.stack([seen[:, 0].astype(np.int64), which], axis=1))


def _rotation_vector(path: Path, row: Row, R: Numbers) -> Numbers:
    if not R.any():  # a camera that Bundler could not place
        return np.zeros(3)
    R = np.clip(R, -2, 2)  # no rotation goes so far, and products of what does may overflow
    if np.abs(R @ R.T - np.eye(3)).max() > 1e-3 or np.linalg.det(R) < 0:
        refuse(path, row, "a rotation matrix in this line and the next two")
    return np.asarray(Rotation.from_matrix(R).as_rotvec())


def _views(path: Path, row: Row, cameras: int) -> Numbers:
    what = f"the views of a point: how many, then camera (below {cameras}), key, x, y of each"
    found = numbers(path, [row], len(row.words), what)[0]
    if len(found) != 1 + 4 * indices(path, [row], found[None, :1], what)[0, 0]:
        refuse(path, row, what)
    views: Numbers = found[1:].reshape(-1, 4)
    if (indices(path, [row] * len(views), views[:, :1], what) >= cameras).any():
        refuse(path, row, what)
    return views


# -- PLY -------------------------------------------------------------------------------------------------------------

GREY, RED = (90, 90, 90), (220, 30, 30)


def camera_centres(cameras: Numbers) -> Numbers:
    """-R^T t of each: (C, 3)."""
    return np.asarray(Rotation.from_rotvec(cameras[:, :3]).inv().apply(-cameras[:, 3:6]))


def write_ply(path: Path, cameras: Numbers, points: Numbers) -> None:
    """The points in grey and the cameras' centres in red, as a cloud of coloured vertices."""
    places = np.concatenate([points, camera_centres(cameras)])
    colours = [GREY] * len(points) + [RED] * len(cameras)
    properties = [f"property float {axis}" for axis in "xyz"] + [
        f"property uchar {c}" for c in ("red", "green", "blue")
    ]
    header = ["ply", "format ascii 1.0", f"element vertex {len(places)}", *properties, "end_header"]
    lines = (f"{x:.7g} {y:.7g} {z:.7g} {r} {g} {b}" for (x, y, z), (r, g, b) in zip(places, colours, strict=True))
    with whole_file(path) as file:
        file.write("\n".join([*header, *lines, ""]).encode())
