"""Depth frames: what cameras around a mesh see of it, and the two of a real room."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from trimesh import Trimesh

from . import pictures
from .number_files import Indices, Numbers
from .surface import face_normals


@dataclass(frozen=True, slots=True)
class Camera:
    """A pinhole camera, which looks along +z; y points downwards."""

    focal: float
    centre_x: float
    centre_y: float

    def points(self, depth: Numbers) -> Numbers:
        """(..., H, W, 3): the points at depths (..., H, W), in the camera's frame."""
        row, column = np.indices(depth.shape[-2:])
        x, y = (column - self.centre_x) / self.focal, (row - self.centre_y) / self.focal
        return np.stack([x * depth, y * depth, depth], axis=-1)

    def pixels(self, points: Numbers) -> Indices:
        """(N, 2): the row and the column of the pixel nearest to each of points (N, 3); far outside for one behind."""
        z = np.where(points[:, 2] > 1e-6, points[:, 2], np.nan)
        x, y = self.focal * points[:, 0] / z + self.centre_x, self.focal * points[:, 1] / z + self.centre_y
        return np.nan_to_num(np.clip(np.stack([y, x], axis=1), -1e6, 1e6), nan=-1e6).round().astype(np.int64)


@dataclass(frozen=True, slots=True)
class Frames:
    """What a camera saw from several places.

    Attributes:
        camera: the same for all.
        depth: (F, H, W), in metres; 0 where nothing was measured.
        grey: (F, H, W), 0 to 1.
        truth: (F, 4, 4): from each camera's frame to the world's; None: nobody knows.
    """

    camera: Camera
    depth: Numbers
    grey: Numbers
    truth: Numbers | None = None


LIGHT: Final = np.array([-0.4, -0.7, -0.6]) / np.sqrt(1.01)
"""Towards the light, in the world."""


def rendered(mesh: Trimesh, camera: Camera, poses: Numbers, shape: tuple[int, int]) -> Frames:
    """A mesh as cameras see it: the nearest face at each pixel.

    Args:
        mesh: lit from one side.
        camera: of all frames.
        poses: (F, 4, 4), from each camera's frame to that of the mesh.
        shape: (H, W) of the frames.
    """
    normals = face_normals(mesh, np.asarray(mesh.vertices))
    lit = np.append(0.15 + 0.8 * np.clip(normals @ LIGHT, 0, 1), 0.0)  # where there is no face: black
    seen = [_seen(mesh, camera, np.linalg.inv(pose), shape) for pose in poses]
    return Frames(camera, np.stack([d for d, _ in seen]), np.stack([lit[n] for _, n in seen]), poses)


def _seen(
    mesh: Trimesh, camera: Camera, to_camera: Numbers, shape: tuple[int, int]
) -> tuple[Numbers, NDArray[np.int64]]:
    """The depth at each pixel, and the number of its face; 0 and -1 where there is none."""
    corners = (np.asarray(mesh.vertices) @ to_camera[:3, :3].T + to_camera[:3, 3])[np.asarray(mesh.faces)]  # (N, 3, 3)
    depth = np.maximum(corners[:, :, 2], 1e-9)
    x = camera.focal * corners[:, :, 0] / depth + camera.centre_x
    y = camera.focal * corners[:, :, 1] / depth + camera.centre_y
    low_x, low_y = np.ceil(x.min(axis=1)).astype(int), np.ceil(y.min(axis=1)).astype(int)
    wide, high = (np.floor(v.max(axis=1)).astype(int) + 1 - low for v, low in ((x, low_x), (y, low_y)))
    area = (x[:, 1] - x[:, 0]) * (y[:, 2] - y[:, 0]) - (x[:, 2] - x[:, 0]) * (y[:, 1] - y[:, 0])
    facing = (corners[:, :, 2] > 1e-6).all(axis=1) & (np.abs(area) > 1e-12)
    nearest, face = np.full(shape, np.inf), np.full(shape, -1, np.int64)
    pixels = np.where(facing, np.maximum(wide, 0) * np.maximum(high, 0), 0)
    number = np.repeat(np.arange(len(corners)), pixels)  # a face for each pixel of the box around it
    within = np.arange(pixels.sum()) - np.repeat(np.cumsum(pixels) - pixels, pixels)
    column, row = low_x[number] + within % wide[number], low_y[number] + within // wide[number]
    inside = (row >= 0) & (row < shape[0]) & (column >= 0) & (column < shape[1])
    number, row, column = number[inside], row[inside], column[inside]
    shares = _shares(x[number], y[number], area[number], row, column)
    hit = (shares >= -1e-9).all(axis=1)
    number, row, column, shares = number[hit], row[hit], column[hit], shares[hit]
    there = 1 / (shares / depth[number]).sum(axis=1)  # 1 / z is linear in a picture
    order = np.argsort(-there, kind="stable")  # the nearest is written last
    nearest[row[order], column[order]] = there[order]
    face[row[order], column[order]] = number[order]
    return np.where(np.isfinite(nearest), nearest, 0.0), face


def _shares(x: Numbers, y: Numbers, area: Numbers, row: Numbers, column: Numbers) -> Numbers:
    """(N, 3): the barycentric coordinates of pixels in triangles of corners x, y, (N, 3)."""
    across, down = x - column[:, None], y - row[:, None]
    nexts = [1, 2, 0], [2, 0, 1]
    opposite = [across[:, b] * down[:, c] - across[:, c] * down[:, b] for b, c in zip(*nexts, strict=True)]
    return np.stack(opposite, axis=1) / area[:, None]


def around(middle: Numbers, distance: float, degrees: Numbers, above: float = 12.0) -> Numbers:
    """(F, 4, 4): poses of cameras that look at a place, from directions around the world's y axis, which points up.

    Args:
        middle: the place.
        distance: of the cameras from it.
        degrees: of each direction, 0 for +z.
        above: how many degrees the cameras stand higher, in turns.
    """
    poses = np.tile(np.eye(4), (len(degrees), 1, 1))
    for n, (pose, angle) in enumerate(zip(poses, np.deg2rad(degrees), strict=True)):
        rise = np.deg2rad(above * np.sin(1.9 * n))
        away = np.array([np.sin(angle) * np.cos(rise), np.sin(rise), np.cos(angle) * np.cos(rise)])
        right = np.array([-np.cos(angle), 0.0, np.sin(angle)])
        pose[:3, :3] = np.stack([right, np.cross(-away, right), -away], axis=1)
        pose[:3, 3] = middle + distance * away
    return poses


def real_room(step: int = 4) -> Frames | None:
    """Two frames of a desk, by a Kinect (TUM's benchmark, Sturm et al. 2012); None where the data folder is missing.

    Args:
        step: takes the middle of so many measured depths, along each axis, and the mean of as many colours.
    """
    found = [pictures.data_file(f"optical_flow/tum_pair/{n}{what}.png") for n in (1, 2) for what in ("", "_depth")]
    if any(f is None for f in found):
        return None
    colours, depths = ([f for f in found[k::2] if f is not None] for k in range(2))
    grey = [_pooled(pictures.read_picture(f) @ [0.299, 0.587, 0.114], step, np.nanmean) for f in colours]
    depth = [_pooled(_measured(f), step, np.nanmedian) for f in depths]
    shift = (step - 1) / 2  # of the middle of a square from its first pixel
    camera = Camera(521.0 / step, (325.1 - shift) / step, (249.7 - shift) / step)
    return Frames(camera, np.nan_to_num(np.stack(depth)), np.stack(grey))


def _measured(path: Path) -> Numbers:
    """The depths of a file of TUM's format, in metres; NaN: none."""
    with Image.open(path) as opened:
        raw = np.asarray(opened, dtype=np.float64) / 5000
    return np.where(raw > 0, raw, np.nan)


def _pooled(plane: Numbers, step: int, pool: Any) -> Numbers:
    """Squares of pixels as one; NaN where fewer than all of a square are known."""
    rows, columns = (n // step for n in plane.shape)
    squares = plane[: rows * step, : columns * step].reshape(rows, step, columns, step)
    known = np.isfinite(squares).all(axis=(1, 3))
    return np.where(known, pool(np.where(np.isfinite(squares), squares, 0.0), axis=(1, 3)), np.nan)
