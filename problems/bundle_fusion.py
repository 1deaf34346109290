"""Camera poses from depth frames, all at once: `python -m problems.bundle_fusion`.

A depth camera was carried around a thing. Poses of all frames are sought for which their surfaces lie on one another:
each pixel of a frame is a point; seen from another frame, it falls between the pixels of that one, and shall be on the
plane of the surface there. Where pictures were taken, the slopes of their brightness shall agree, too; and points that
were recognised in two frames shall meet in the world.

Reference: A. Dai, M. Nießner, M. Zollhöfer, S. Izadi, C. Theobalt: BundleFusion, ACM Transactions on Graphics 36(3),
2017, the dense terms of section 4.3; as an energy in M. Mara, F. Heide, M. Zollhöfer, M. Nießner, P. Hanrahan: Thallo,
2021.
"""

from __future__ import annotations

import colorsys
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import click
import numpy as np
from scipy.spatial.transform import Rotation
from trimesh import Trimesh

import optpy as op

from . import meshes, pictures
from .command import SolveSettings, choice, command, solve
from .depth_frames import Camera, Frames, around, real_room, rendered
from .number_files import Indices, Numbers
from .pictures import Picture
from .poses import matrices, stored

# ---- the energy --------------------------------------------------------------------------------------------

E, M, F, H, W = op.dims("E M F H W")
e, m, f, i, j = op.indices(E, M, F, H, W)

Pose = op.Unknown("Pose", (F,), op.SE3)  # from each camera's frame to the world's
Depth, Grey = op.Array("Depth", (F, H, W)), op.Array("Grey", (F, H, W))
a, b = op.Graph("pairs", E, (F, F))[e]  # frames that see the same
focal, centre_x, centre_y = op.params("focal centre_x centre_y")
w_depth, w_grey, w_match = op.params("w_depth w_grey w_match")
far, s_match = op.params("far s_match")


def point(frame: Any, row: Any, column: Any) -> Any:
    """What a pixel of a frame has measured, in the camera's frame."""
    x, y = (op.value(column) - centre_x) / focal, (op.value(row) - centre_y) / focal
    return Depth[frame, row, column] * op.vector(x, y, 1)


# of each pixel: depth, whether it and its neighbours lie on one surface, the normal of that, the slopes of brightness
surface = op.Func("surface", (F, H, W), 7)
crossed = op.cross(point(f, i + 1, j) - point(f, i - 1, j), point(f, i, j + 1) - point(f, i, j - 1))  # to the camera
beside = op.vector(*(Depth[f, i + di, j + dj] for di, dj in ((-1, 0), (1, 0), (0, -1), (0, 1))))
whole = (op.abs(beside - Depth[f, i, j]) < far).all() & (Depth[f, i, j] > 0) & (beside > 0).all()
slopes = 0.5 * op.vector(Grey[f, i, j + 1] - Grey[f, i, j - 1], Grey[f, i + 1, j] - Grey[f, i - 1, j])
surface[f, i, j] = op.where(whole, op.vector(Depth[f, i, j], 1, *crossed / op.norm(crossed), *slopes), 0)

# of two frames: the point of a pixel of the first, as the second sees it, and what that has measured there
turned = Pose[b].inverse() @ Pose[a]
here = point(a, i, j)
there = turned @ here
column = focal * there[0] / there[2] + centre_x
row = focal * there[1] / there[2] + centre_y
measured = op.Sampled(surface, boundary="constant")(b, row, column)
seen = (surface[a, i, j][1] > 0) & (there[2] > 0) & (measured[1] > 0.1)
mean = measured / measured[1]  # of those pixels around that have some
depth, normal = mean[0], turned.rotation @ surface[a, i, j][2:5]
# Pixels fade out, and count alike while a step is sought and judged: what is compared never jumps.
near = op.maximum(0, 1 - ((depth - there[2]) / far) ** 2) * op.maximum(0, op.dot(normal, mean[2:5]))
weight = op.stop_gradient(op.where(seen, measured[1] ** 4 * near, 0))
# The point that was measured along the ray through `there` is depth / there_z of it.
off_plane = op.dot(normal, there) * (1 - depth / there[2])
change = mean[5:] - surface[a, i, j][5:]

p, q = op.Graph("matches", M, (F, F))[m]  # recognised in two frames
Match = op.Array("Match", (M,), 6)  # the point in both cameras' frames
gap = Pose[p] @ Match[m][:3] - Pose[q] @ Match[m][3:]

energy = op.Energy(
    depth=op.where(seen, w_depth * weight * off_plane, 0),
    grey=op.where(seen, w_grey * weight * change, 0),
    match=w_match * op.robust(gap, "cauchy", scale=s_match),
    fixed={Pose: op.value(f) == 0},
)


# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Matches:
    """Points that were recognised in two frames.

    Attributes:
        frames: (M, 2): the numbers of both.
        points: (M, 6): the point in the frame of the first camera, then of the second.
    """

    frames: Indices
    points: Numbers


@dataclass(frozen=True, slots=True)
class Scene:
    """Frames, and what is known of their poses at first.

    Attributes:
        frames: what was seen.
        start: (F, 4, 4): a first guess; the first pose stays.
        matches: there may be none.
        weights: of the terms, and lengths from which on pixels and matches do not count, in metres.
    """

    frames: Frames
    start: Numbers
    matches: Matches
    weights: dict[str, float]

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name."""
        camera = self.frames.camera
        return dict(
            Pose=stored(self.start),
            Depth=self.frames.depth,
            Grey=self.frames.grey,
            pairs=neighbours(self.start),
            matches=self.matches.frames,
            Match=self.matches.points,
            focal=camera.focal,
            centre_x=camera.centre_x,
            centre_y=camera.centre_y,
            **self.weights,
        )

    def errors(self, poses: Numbers) -> tuple[float, float]:
        """The root mean squares of the cameras' distances from the true ones, and of the angles between, in degrees.

        Args:
            poses: (F, 7).

        Raises:
            ValueError: nobody knows the truth.
        """
        if self.frames.truth is None:
            raise ValueError("nobody knows where these frames were taken")
        # Both worlds are that of the first camera.
        ours, true = (np.linalg.inv(T[0]) @ T for T in (matrices(poses.astype(np.float64)), self.frames.truth))
        away = np.linalg.norm(ours[:, :3, 3] - true[:, :3, 3], axis=1)
        turns = Rotation.from_matrix(ours[:, :3, :3].swapaxes(1, 2) @ true[:, :3, :3]).magnitude()
        return float(np.sqrt((away**2).mean())), float(np.rad2deg(np.sqrt((turns**2).mean())))


OF_A_THING: Final = dict(w_depth=1.0, w_grey=0.02, w_match=0.1, far=0.05, s_match=0.02)
OF_A_ROOM: Final = dict(w_depth=1.0, w_grey=0.1, w_match=0.1, far=0.2, s_match=0.02)
WIDEST = 50.0
"""Degrees between the directions of two frames that are compared."""


OPTIONS: Final[dict[str, Any]] = dict(function_tolerance=1e-4)
"""Of the solves. Which pixels are compared changes a little with every step, and with it the cost."""


def neighbours(poses: Numbers, widest: float = WIDEST) -> Indices:
    """(E, 2): pairs of frames that look into nearly one direction, both ways round."""
    looks = poses[:, :3, 2]
    near = looks @ looks.T > np.cos(np.deg2rad(widest))
    return np.argwhere(near & ~np.eye(len(poses), dtype=bool))


def drifting(poses: Numbers, degrees: float, metres: float, rng: np.random.Generator) -> Numbers:
    """Poses as they are found where each is measured from the one before, a little wrong: errors add up.

    Args:
        poses: (F, 4, 4), the true ones.
        degrees, metres: standard deviations of a step's error along each axis.
        rng: of the errors.
    """
    found = [poses[0]]
    for before, after in pairwise(poses):
        wrong = np.eye(4)
        wrong[:3, :3] = Rotation.from_rotvec(np.deg2rad(degrees) * rng.normal(size=3)).as_matrix()
        wrong[:3, 3] = metres * rng.normal(size=3)
        found.append(found[-1] @ np.linalg.inv(before) @ after @ wrong)
    return np.stack(found)


def recognised(frames: Frames, count: int, noise: float, rng: np.random.Generator) -> Matches:
    """Points that successive frames of known poses have both seen.

    Args:
        frames: whose poses are known.
        count: of the points of a pair of frames, at most.
        noise: standard deviation of each coordinate.
        rng: of the choice and of the noise.
    """
    assert frames.truth is not None
    camera, total = frames.camera, len(frames.depth)
    pairs: list[list[int]] = []
    points: list[Numbers] = []
    for n in range(total):
        other = (n + 1) % total
        mine = camera.points(frames.depth[n])[frames.depth[n] > 0]
        to_other = np.linalg.inv(frames.truth[other]) @ frames.truth[n]
        theirs = mine @ to_other[:3, :3].T + to_other[:3, 3]
        at = camera.pixels(theirs)
        height, width = frames.depth.shape[1:]
        inside = np.flatnonzero(((at >= 0) & (at < [height, width])).all(axis=1))
        found = frames.depth[other][tuple(at[inside].T)]
        seen = inside[np.abs(found - theirs[inside, 2]) < 0.01 * theirs[inside, 2]]
        chosen = rng.choice(seen, min(count, len(seen)), replace=False)
        pairs += [[n, other]] * len(chosen)
        points += [np.concatenate([mine[k], theirs[k]]) for k in chosen]
    exact = np.reshape(points, (-1, 6))
    return Matches(np.reshape(pairs, (-1, 2)).astype(np.int64), exact + noise * rng.normal(size=exact.shape))


SCENES: Final = ("auto", "scan", "made", "room")


def scene(name: str, size: int = 64, count: int = 24) -> Scene:
    """Frames by name.

    Args:
        name: "scan", a scanned bust, seen from all around; "made", a pebble; "room", two frames of a real camera, with
            nothing known of their poses; "auto", the bust where the data folder is there, the pebble elsewhere.
        size: pixels along each side, of what is not real.
        count: of the frames, of what is not real.

    Raises:
        FileNotFoundError: the data folder is not there.
    """
    bust = meshes.data_mesh("nefertiti-lowres.obj") if name in ("auto", "scan") else None
    room = real_room() if name == "room" else None
    if name == "room" and room is not None:
        nothing = Matches(np.zeros((0, 2), np.int64), np.zeros((0, 6)))
        return Scene(room, np.tile(np.eye(4), (2, 1, 1)), nothing, OF_A_ROOM)
    if name == "room" or (name == "scan" and bust is None):
        raise FileNotFoundError(f"{name} needs the data folder: see OPTPY_DATA in docs/gallery/index.md")
    return turning(meshes.pebble() if bust is None else bust, size, count)


def turning(mesh: Trimesh, size: int, count: int) -> Scene:
    """A mesh, half a metre high, seen from all around by a camera with a little noise, whose poses drift away.

    Args:
        mesh: stands upright, along y.
        size: pixels along each side.
        count: of the frames.
    """
    rng = np.random.default_rng(0)
    vertices = np.asarray(mesh.vertices, np.float64)
    middle = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
    standing = meshes.moved(mesh, 0.5 / np.ptp(vertices[:, 1]) * (vertices - middle))
    camera = Camera(1.35 * size, (size - 1) / 2, (size - 1) / 2)
    poses = around(np.zeros(3), 0.9, np.linspace(30, 390, count, endpoint=False))
    clean = rendered(standing, camera, poses, (size, size))
    noise = 5e-4 * rng.normal(size=clean.depth.shape)
    frames = replace(clean, depth=np.where(clean.depth > 0, clean.depth + noise, 0))
    matches = recognised(clean, 6, 0.01, rng)
    return Scene(frames, drifting(poses, 1.0, 0.005, rng), matches, OF_A_THING)


# ---- its picture -------------------------------------------------------------------------------------------


def drawn(frames: Frames, poses: Numbers, size: int = 480) -> Picture:
    """All points in the world, lit, those of each frame in a colour of its own; seen as the first camera sees them.

    Args:
        frames: what was seen.
        poses: (F, 4, 4).
        size: pixels along each side of the picture.
    """
    shown = [_cloud(frames, n, np.linalg.inv(poses[0]) @ pose) for n, pose in enumerate(poses)]
    points, colours = (np.concatenate(part) for part in zip(*shown, strict=True))
    height, width = frames.depth.shape[1:]
    scale = size / max(height, width)
    camera = Camera(*(scale * v for v in (frames.camera.focal, frames.camera.centre_x, frames.camera.centre_y)))
    wide = int(np.ceil(scale))  # of a point in the picture
    picture = np.ones((size, round(size * width / height), 3))
    order = np.argsort(-points[:, 2])
    corner = camera.pixels(points[order])
    for row, column in np.ndindex(wide, wide):
        at = corner + [row, column]
        inside = ((at >= 0) & (at < picture.shape[:2])).all(axis=1)
        picture[tuple(at[inside].T)] = colours[order][inside]
    return picture


def _cloud(frames: Frames, number: int, pose: Numbers) -> tuple[Numbers, Numbers]:
    """The points of a frame, moved, and their colours."""
    points = frames.camera.points(frames.depth[number])
    across, along = np.gradient(points, axis=1), np.gradient(points, axis=0)
    normal = np.cross(along, across)
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
    lit = 0.3 + 0.7 * np.abs(normal @ pose[:3, :3].T @ [0.4, 0.5, -0.75])
    hue = np.array(colorsys.hsv_to_rgb(0.618 * number % 1, 0.3, 1.0))
    valid = frames.depth[number] > 0
    return points[valid] @ pose[:3, :3].T + pose[:3, 3], (lit[..., None] * hue)[valid]


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FusionSettings(SolveSettings):
    """The choices of one run."""

    scene: str
    size: int
    frames: int


_OWN = [
    choice("--scene", list(SCENES), "auto", "Which frames."),
    click.Option(
        ["--size"], type=click.IntRange(min=8), default=64, show_default=True, help="Pixels of a side; not of room."
    ),
    click.Option(
        ["--frames"], type=click.IntRange(min=2), default=24, show_default=True, help="How many; of room there are 2."
    ),
]


@command(FusionSettings, _OWN, output="bundle_fusion.png", method="lm", iterations=30)
def main(settings: FusionSettings) -> None:
    """Finds the poses of depth frames, and draws all their points where they were, and where they come to lie."""
    taken = scene(settings.scene, settings.size, settings.frames)
    data = taken.data
    result = solve(energy, data, settings, **OPTIONS)
    if taken.frames.truth is not None and not settings.quiet:
        for when, poses in (("before", data["Pose"]), ("after", result.x["Pose"])):
            metres, degrees = taken.errors(poses)
            click.echo(f"{when}: poses are {1000 * metres:.2f} mm and {degrees:.3f} degrees from the true ones")
    found = matrices(np.asarray(result.x["Pose"], np.float64))
    panels = [drawn(taken.frames, T) for T in (taken.start, found)]
    pictures.save_side_by_side(settings.output, panels)


if __name__ == "__main__":
    main()
