"""Families of points in the plane and in space: circles, distances, poses, cameras."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.spatial.transform import Rotation

import optpy as op
from bench.search.family import Array, Drawn, Family, between, noise_level

N = op.dims("N")
n = op.indices(N)


# -- circles and distances -------------------------------------------------------------------------------------------


def _circle() -> op.Energy:
    c, R, P = op.Unknown("c", (), 2), op.Unknown("R", ()), op.Array("P", (N,), 2)
    return op.Energy(fit=op.norm(P[n] - c[()]) - R[()])


def _draw_circle(rng: Generator, u: float) -> Drawn:
    """From a sixth of a circle to all of it, up to a hundred radii from the origin."""
    R, arc = between(rng, 1e-2, 1e2), rng.uniform(1, 2 * np.pi)
    centre = R * between(rng, 0.1, 100) * _direction(rng, 2)
    angle = rng.uniform(0, 2 * np.pi) + arc * np.linspace(0, 1, int(rng.integers(6, 40)))
    P = centre + R * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    P += 0.1 * noise_level(rng) * R * rng.normal(size=P.shape)
    start = {"c": centre + R * rng.uniform(-0.3, 0.3, 2), "R": R * rng.uniform(0.7, 1.4)}
    return Drawn({**start, "P": P}, {"c": centre, "R": R})


def _distances() -> op.Energy:
    X, P, D = op.Unknown("X", (), 3), op.Array("P", (N,), 3), op.Array("D", (N,))
    return op.Energy(fit=op.norm(X[()] - P[n]) - D[n])


def _draw_distances(rng: Generator, u: float) -> Drawn:
    P, X = rng.normal(size=(int(rng.integers(6, 20)), 3)), 0.5 * rng.normal(size=3)
    D = np.linalg.norm(X - P, axis=1)
    D = D + noise_level(rng) * rng.normal(size=len(D))
    return Drawn({"X": X + 0.2 * rng.normal(size=3), "P": P, "D": D}, {"X": X})


# -- poses -----------------------------------------------------------------------------------------------------------


def _aligned(kind: Any, channels: int) -> op.Energy:
    pose = op.Unknown("pose", (), kind)
    P, Q = op.Array("P", (N,), channels), op.Array("Q", (N,), channels)
    return op.Energy(fit=pose[()] @ P[n] - Q[n])


def _to_planes() -> op.Energy:
    pose = op.Unknown("pose", (), op.SE3)
    P, Q, normal = op.Array("P", (N,), 3), op.Array("Q", (N,), 3), op.Array("normal", (N,), 3)
    return op.Energy(fit=op.dot(pose[()] @ P[n] - Q[n], normal[n]))


def _draw_plane(rng: Generator, u: float) -> Drawn:
    P = rng.normal(size=(int(rng.integers(4, 40)), 2)) + between(rng, 0.1, 100) * _direction(rng, 2)
    angle, shift = rng.uniform(-np.pi, np.pi), between(rng, 0.1, 100) * rng.normal(size=2)
    Q = P @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) + shift
    Q += noise_level(rng) * rng.normal(size=Q.shape)
    off = angle + rng.uniform(-0.5, 0.5)
    start = np.array([np.cos(off), np.sin(off), *(shift + rng.normal(size=2))])
    return Drawn({"pose": start, "P": P, "Q": Q}, {"pose": np.array([np.cos(angle), np.sin(angle), *shift])})


def _draw_space(rng: Generator, u: float, *, normals: bool) -> Drawn:
    P = rng.normal(size=(int(rng.integers(8, 40)), 3)) + between(rng, 0.1, 100) * _direction(rng, 3)
    turn, shift = Rotation.from_rotvec(rng.uniform(-1, 1, 3)), between(rng, 0.1, 100) * rng.normal(size=3)
    Q = turn.apply(P) + shift
    Q += noise_level(rng) * rng.normal(size=Q.shape)
    off = Rotation.from_rotvec(rng.uniform(-0.2, 0.2, 3)) * turn
    start = np.concatenate([off.as_quat(), shift + rng.normal(size=3)])
    data = {"pose": start, "P": P, "Q": Q}
    if normals:
        data["normal"] = np.stack([_direction(rng, 3) for _ in P])
    return Drawn(data, {"pose": np.concatenate([turn.as_quat(), shift])})


def _direction(rng: Generator, dimension: int) -> Array:
    v = rng.normal(size=dimension)
    return np.asarray(v / np.linalg.norm(v))


# -- cameras ---------------------------------------------------------------------------------------------------------


def _cameras() -> op.Energy:
    C, V, E = op.dims("C V E")
    e = op.indices(E)
    camera, X, seen = op.Unknown("camera", (C,), op.SE3), op.Unknown("X", (V,), 3), op.Array("seen", (E,), 2)
    held = op.Array("held", (C,), dtype=bool)
    c, v = op.Graph("views", E, (C, V))[e]
    p = camera[c] @ X[v]
    return op.Energy(seen=op.params("focal") * p[:2] / p[2] - seen[e], fixed={camera: held[op.indices(C)]})


def _draw_cameras(rng: Generator, u: float) -> Drawn:
    """All cameras see all points; in half of the problems none is held, so that all may move together."""
    cameras, points = int(rng.integers(2, 5)), int(rng.integers(8, 20))
    X = rng.uniform(-1, 1, (points, 3))
    turns = Rotation.from_rotvec(rng.uniform(-0.4, 0.4, (cameras, 3)))
    shifts = np.stack([*rng.uniform(-0.5, 0.5, (2, cameras)), rng.uniform(3.5, 5, cameras)], axis=1)
    poses = np.concatenate([turns.as_quat(), shifts], axis=1)
    focal = between(rng, 1, 1e3)
    views = np.stack(np.meshgrid(np.arange(cameras), np.arange(points), indexing="ij"), axis=-1).reshape(-1, 2)
    p = turns[views[:, 0]].apply(X[views[:, 1]]) + shifts[views[:, 0]]
    seen = focal * p[:, :2] / p[:, 2:]
    seen += 0.1 * noise_level(rng) * focal * rng.normal(size=seen.shape)
    held = np.arange(cameras) < (1 if rng.random() < 0.5 else 0)
    off = Rotation.from_rotvec(0.02 * rng.normal(size=(cameras, 3))) * turns
    start = np.concatenate([off.as_quat(), shifts + 0.02 * rng.normal(size=shifts.shape)], axis=1)
    start[held] = poses[held]
    data = {"camera": start, "X": X + 0.05 * rng.normal(size=X.shape), "seen": seen, "held": held, "views": views}
    return Drawn({**data, "focal": focal}, {"camera": poses, "X": X})


FAMILIES = (
    Family("circle", _circle, _draw_circle),
    Family("distances", _distances, _draw_distances),
    Family("icp-plane", partial(_aligned, op.SE2, 2), _draw_plane),
    Family("icp-space", partial(_aligned, op.SE3, 3), partial(_draw_space, normals=False)),
    Family("icp-normals", _to_planes, partial(_draw_space, normals=True)),
    Family("cameras", _cameras, _draw_cameras),
)
