"""Rotations, poses and unit vectors for tests, made and moved by SciPy and by hand, not by optpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

Real = NDArray[np.float64]


def unit_vectors(rng: np.random.Generator, *shape: int) -> Real:
    x = rng.normal(size=shape)
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def quaternions(rng: np.random.Generator, *grid: int) -> Real:
    return unit_vectors(rng, *grid, 4)


def turns(rng: np.random.Generator, *grid: int) -> Real:
    return unit_vectors(rng, *grid, 2)


def poses(rng: np.random.Generator, *grid: int) -> Real:
    return np.concatenate([quaternions(rng, *grid), rng.normal(size=(*grid, 3))], axis=-1)


def plane_poses(rng: np.random.Generator, *grid: int) -> Real:
    return np.concatenate([turns(rng, *grid), rng.normal(size=(*grid, 2))], axis=-1)


def matrices(q: Any) -> Real:
    """(..., 3, 3) of quaternions (..., 4)."""
    q = np.asarray(q, np.float64)
    return np.asarray(Rotation.from_quat(q.reshape(-1, 4)).as_matrix().reshape(*q.shape[:-1], 3, 3))


def plane_matrices(cs: Real) -> Real:
    return np.stack([np.stack([cs[..., 0], -cs[..., 1]], -1), np.stack([cs[..., 1], cs[..., 0]], -1)], -2)


def homogeneous(R: Real, t: Real) -> Real:
    n = R.shape[-1]
    T = np.zeros((*R.shape[:-2], n + 1, n + 1))
    T[..., :n, :n], T[..., :n, n], T[..., n, n] = R, t, 1
    return T


def pose_matrices(T: Real) -> Real:
    return homogeneous(matrices(T[..., :4]), T[..., 4:])


def plane_pose_matrices(T: Real) -> Real:
    return homogeneous(plane_matrices(T[..., :2]), T[..., 2:])


def moved_rotation(q: Real, delta: Real) -> Real:
    """Exp(delta) q, for one rotation."""
    return np.asarray((Rotation.from_rotvec(delta) * Rotation.from_quat(q)).as_quat())


def moved_turn(cs: Real, delta: Real) -> Real:
    z = (cs[0] + 1j * cs[1]) * np.exp(1j * delta[0])
    return np.array([z.real, z.imag])


def moved_pose(T: Real, delta: Real) -> Real:
    return np.concatenate([moved_rotation(T[:4], delta[:3]), T[4:] + delta[3:]])


def moved_plane_pose(T: Real, delta: Real) -> Real:
    return np.concatenate([moved_turn(T[:2], delta[:1]), T[2:] + delta[1:]])


def tangent_basis(x: Real) -> Real:
    """The first n - 1 columns of the reflection that takes x to the multiple of the last axis away from it."""
    e = np.eye(len(x))[-1]
    v = x + (-1 if x[-1] < 0 else 1) * e
    return np.asarray((np.eye(len(x)) - 2 * np.outer(v, v) / (v @ v))[:, :-1])


def moved_unit_vector(x: Real, delta: Real) -> Real:
    length = np.linalg.norm(delta)
    return np.asarray(np.cos(length) * x + np.sinc(length / np.pi) * (tangent_basis(x) @ delta))
