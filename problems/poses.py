"""Poses as homogeneous matrices and as optpy stores them, and poses found by going along measured edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from scipy.spatial.transform import Rotation

from .number_files import Indices, Numbers


def stored(T: Numbers) -> Numbers:
    """Homogeneous matrices (N, 3, 3) or (N, 4, 4) as optpy stores poses: (N, 4) or (N, 7)."""
    if T.shape[1] == 3:
        return np.stack([T[:, 0, 0], T[:, 1, 0], T[:, 0, 2], T[:, 1, 2]], axis=1)
    return np.concatenate([np.reshape(Rotation.from_matrix(T[:, :3, :3]).as_quat(), (-1, 4)), T[:, :3, 3]], axis=1)


def matrices(poses: Numbers) -> Numbers:
    """What `stored` gives, (N, 4) or (N, 7), as homogeneous matrices."""
    n = 2 if poses.shape[1] == 4 else 3
    T = np.tile(np.eye(n + 1), (len(poses), 1, 1))
    if n == 2:
        c, s = poses[:, 0], poses[:, 1]
        T[:, :2, :2] = np.stack([np.stack([c, -s], axis=1), np.stack([s, c], axis=1)], axis=1)
    elif len(poses):
        T[:, :3, :3] = np.asarray(Rotation.from_quat(poses[:, :4]).as_matrix())
    T[:, :n, n] = poses[:, -n:]
    return T


def chained(count: int, edges: Indices, measured: Numbers, first: int) -> tuple[Numbers, set[int]]:
    """Poses along a spanning tree, breadth first over the edges: few measurements lie between the first pose and any.

    Args:
        count: of the poses.
        edges: (E, 2), the rows of a and b.
        measured: (E, 4) or (E, 7), pose b in the frame of a.
        first: the pose to begin at, which is the origin.

    Returns:
        The poses as matrices, infinite where they overflow; and those that no path of edges leads to.
    """
    forth = matrices(measured)
    steps = np.concatenate([forth, np.linalg.inv(forth)])
    ways: Sequence[list[tuple[int, int]]] = [[] for _ in range(count)]  # of each pose: the next one, by which step
    for n, (a, b) in enumerate(edges.tolist()):
        ways[a].append((b, n))
        ways[b].append((a, n + len(edges)))
    T = np.tile(np.eye(forth.shape[1]), (count, 1, 1))
    missing = set(range(count)) - {first}
    queue = deque([first])
    with np.errstate(over="ignore", invalid="ignore"):
        while queue:
            a = queue.popleft()
            for b, step in ways[a]:
                if b in missing:
                    T[b] = T[a] @ steps[step]
                    missing.remove(b)
                    queue.append(b)
    return T, missing
