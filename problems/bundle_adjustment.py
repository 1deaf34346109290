"""Bundle adjustment of photographs: `python -m problems.bundle_adjustment`.

Cameras saw points. Where they stand and look, their focal lengths and distortions, and where the points are, are
refined together until the points fall where they were seen. The camera is that of Bundler and of the BAL data sets: a
point X falls at f (1 + k1 |p|^2 + k2 |p|^4) p with P = R X + t and p = -(P_x, P_y) / P_z, in pixels from the middle of
the picture, y upwards.

Reference: S. Agarwal, N. Snavely, S. Seitz, R. Szeliski: Bundle Adjustment in the Large, ECCV 2010.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy.spatial.transform import Rotation

import optpy as op

from . import pictures, scatter
from .bundle_files import Bundle, camera_centres, read_bundle, write_ply
from .command import SolveSettings, choice, command, result_option, solve
from .number_files import Numbers
from .pictures import Picture

# ---- the energy --------------------------------------------------------------------------------------------

C, P, N = op.dims("C P N")
n = op.indices(N)  # observations

Camera = op.Unknown("Camera", (C,), 9)  # rotation vector, translation, focal length, k1, k2
Point = op.Unknown("Point", (P,), 3)
Seen = op.Array("Seen", (N,), 2)
camera, point = op.Graph("obs", N, (C, P))[n]


def projection(camera: Any, X: Any) -> Any:
    """Where a camera (9) sees a point (3)."""
    turn, shift, (f, k1, k2) = camera[:3], camera[3:6], (camera[k] for k in (6, 7, 8))
    in_camera = op.rotate_axis_angle(turn, X) + shift
    p = -in_camera[:2] / in_camera[2]
    square = op.dot(p, p)
    return f * (1 + k1 * square + k2 * square**2) * p


reprojection = projection(Camera[camera], Point[point]) - Seen[n]
energy = op.Energy(reprojection=reprojection)


def robust_energy(loss: str) -> op.Energy:
    """The same, with a loss of `op.robust` for each observation; its scale, in pixels, is the param "scale"."""
    return op.Energy(reprojection=op.robust(reprojection, loss, scale=op.params("scale")))


# ---- its data ----------------------------------------------------------------------------------------------

DEFAULT_FILE = "bundle_adjustment/problem-49-7776-pre.txt"


def default_bundle(seed: int = 0) -> Bundle:
    """Ladybug's 49 cameras where the data folder is there, a synthetic scene elsewhere."""
    path = pictures.data_file(DEFAULT_FILE)
    return synthetic_bundle(seed=seed).start if path is None else read_bundle(path)


@dataclass(frozen=True, slots=True)
class Scene:
    """What is seen, and a start that is a little off."""

    truth: Bundle
    start: Bundle


def synthetic_bundle(
    cameras: int = 24, points: int = 1500, noise: float = 0.5, outliers: float = 0.0, seed: int = 0
) -> Scene:
    """Cameras on a circle look at a wavy plate; each sees about half of the points.

    Args:
        cameras, points: how many; each point is seen by at least three cameras, or by all if there are fewer.
        noise: standard deviation of what is seen, in pixels.
        outliers: fraction of the observations that are somewhere within 100 pixels.
        seed: of everything random.
    """
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (2, points))
    plate = np.stack([x, y, 0.25 * np.sin(4 * x) * np.cos(3 * y)], axis=1)
    rig = _circle(cameras, rng)
    visible = rng.random((points, cameras)) < 0.5
    for p in range(points):
        visible[p, rng.permutation(cameras)[:3]] = True
    pairs = np.argwhere(visible)[:, ::-1].copy()
    exact = project(rig, plate, pairs)
    wild = rng.random(len(pairs)) < outliers
    seen = exact + np.where(wild[:, None], rng.uniform(-100, 100, exact.shape), rng.normal(0, noise, exact.shape))
    off = np.array([0.01] * 3 + [0.03] * 3 + [10, 0.005, 0.005]) * rng.normal(size=rig.shape)
    start = Bundle(rig + off, plate + rng.normal(0, 0.05, plate.shape), seen, pairs)
    return Scene(Bundle(rig, plate, seen, pairs), start)


def _circle(cameras: int, rng: np.random.Generator) -> Numbers:
    """(cameras, 9): on a circle above the origin, looking at it along their -z, with y upwards."""
    angle = 2 * np.pi * np.arange(cameras) / cameras
    centres = np.stack([2.5 * np.cos(angle), 2.5 * np.sin(angle), np.full(cameras, 2.0)], axis=1)
    back = centres / np.linalg.norm(centres, axis=1, keepdims=True)
    right = np.stack([-np.sin(angle), np.cos(angle), np.zeros(cameras)], axis=1)
    R = np.stack([right, np.cross(back, right), back], axis=1)
    shift = -np.einsum("cij,cj->ci", R, centres)
    lens = np.array([500, -0.05, 0.01]) * (1 + 0.02 * rng.normal(size=(cameras, 3)))
    return np.concatenate([np.reshape(Rotation.from_matrix(R).as_rotvec(), (-1, 3)), shift, lens], axis=1)


def project(cameras: Numbers, points: Numbers, pairs: Any) -> Numbers:
    """The projection of observed points, in NumPy: (observations, 2)."""
    of = cameras[pairs[:, 0]]
    in_camera = np.asarray(Rotation.from_rotvec(of[:, :3]).apply(points[pairs[:, 1]])) + of[:, 3:6]
    p = -in_camera[:, :2] / in_camera[:, 2:]
    square = np.sum(p**2, axis=1)
    found: Numbers = (of[:, 6] * (1 + of[:, 7] * square + of[:, 8] * square**2))[:, None] * p
    return found


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BundleSettings(SolveSettings):
    """The choices of one run."""

    input: Path | None
    """The file of the bundle; None: see `default_bundle`."""
    result: Path
    """Where the cloud of points and cameras goes, as .ply."""
    loss: str
    scale: float | None
    """Of the loss, in pixels; None: 1."""


LOSSES = ["linear", "huber", "soft_l1", "cauchy", "tukey", "geman_mcclure"]
_OPTIONS = [
    click.Option(
        ["--input"],
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file of BAL or Bundler (.out).  [default: Ladybug or synthetic]",
    ),
    result_option("Points and cameras, as .ply."),
    choice("--loss", LOSSES, "linear", "For each observation."),
    click.Option(["--scale"], type=click.FloatRange(0, min_open=True), help="Of the loss, in pixels.  [default: 1]"),
]


@command(BundleSettings, _OPTIONS, output="bundle_adjustment.png", method="lm", iterations=100, dtype="float64")
def main(settings: BundleSettings) -> None:
    """Refines cameras and points together; draws them from the side of their largest spread, before and after."""
    if settings.loss == "linear" and settings.scale is not None:
        raise click.UsageError("--scale is that of a robust loss: choose one, such as --loss huber")
    bundle = default_bundle() if settings.input is None else read_bundle(settings.input)
    if settings.loss == "linear":
        result = solve(energy, bundle.data, settings)
    else:
        result = solve(robust_energy(settings.loss), bundle.data | {"scale": settings.scale or 1.0}, settings)
    cameras, points = (np.asarray(result.x[name], np.float64) for name in ("Camera", "Point"))
    write_ply(settings.result, cameras, points)
    panels = before_and_after(bundle, Bundle(cameras, points, bundle.seen, bundle.pairs))
    pictures.save_side_by_side(settings.output, panels)


def before_and_after(before: Bundle, after: Bundle) -> list[Picture]:
    """Two panels of one view: the points in black, the cameras in red."""
    near = after.points[(np.abs(after.points - np.median(after.points, axis=0)) < _reach(after.points)).all(axis=1)]
    mean, plane = scatter.principal_plane(np.concatenate([near, camera_centres(after.cameras)]))
    panels, view = [], None
    for bundle in (after, before):
        points, centres = ((x - mean) @ plane for x in (bundle.points, camera_centres(bundle.cameras)))
        view = view or scatter.View.of(np.concatenate([(near - mean) @ plane, centres]))
        layers = [scatter.Layer(points, (30, 30, 30), radius=0.7), scatter.Layer(centres, (220, 30, 30), radius=3)]
        panels.append(scatter.draw(view, layers))
    return panels[::-1]


def _reach(points: Numbers) -> Numbers:
    """How far from the median most points are; those that a solve sent far away are farther."""
    return np.asarray(8 * np.median(np.abs(points - np.median(points, axis=0)), axis=0) + 1e-12)


if __name__ == "__main__":
    main()
