"""Pose graphs as files: g2o (.g2o, .txt) and TORO in the plane (.graph).

References: R. Kümmerle et al.: g2o: A General Framework for Graph Optimization, ICRA 2011; G. Grisetti et al.: A Tree
Parameterization for Efficiently Computing Maximum Likelihood Maps using Gradient Descent, RSS 2007 (TORO).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

import optpy as op

from .number_files import Indices, Numbers, Row, indices, numbers, read_rows, refuse
from .poses import chained, stored

Indefinite = Literal["error", "clip", "drop"]
"""What becomes of an information matrix with negative eigenvalues: it is refused; or replaced by the nearest one
without, in the Frobenius norm: these become 0; or its edge is left out."""
INDEFINITE: tuple[Indefinite, ...] = get_args(Indefinite)


@dataclass(frozen=True, slots=True)
class PoseGraph:
    """Poses, and what is measured between them.

    Args:
        dimension: 2 or 3.
        poses: (V, 4) cosine, sine, x, y; or (V, 7) unit quaternion (x, y, z, w) and translation. In the order of their
            numbers in the file.
        measured: of the same form, (E, ...): pose b in the frame of pose a.
        root: (E, 6) or (E, 21), the upper triangle of S, row by row, S^T S being the information matrix of an edge
            over (x, y, angle), or over (x, y, z) and the rotation's three.
        edges: (E, 2), the rows of a and b.
        fixed: (V,), which poses stay: those that the file fixes, else the first.
        notes: what a user should know of how the file was read, in sentences.
    """

    dimension: Literal[2, 3]
    poses: Numbers
    measured: Numbers
    root: Numbers
    edges: Indices
    fixed: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name."""
        return dict(Pose=self.poses, Measured=self.measured, Root=self.root, Fixed=self.fixed, edges=self.edges)

    @property
    def places(self) -> Numbers:
        """Of the poses: (V, 2) or (V, 3)."""
        return self.poses[:, -self.dimension :]


@dataclass(frozen=True, slots=True)
class Format:
    """How the lines of one kind of file look.

    Args:
        vertex, edge: the words they begin with; numbers of the vertices follow.
        pose: numbers of a pose.
        information: for each number after the pose, its (row, column) in the information matrix.
    """

    dimension: Literal[2, 3]
    vertex: str
    edge: str
    pose: int
    information: tuple[tuple[int, int], ...]


def _upper(n: int) -> tuple[tuple[int, int], ...]:
    return tuple((a, b) for a in range(n) for b in range(a, n))


FORMATS = (
    Format(2, "VERTEX_SE2", "EDGE_SE2", 3, _upper(3)),
    Format(3, "VERTEX_SE3:QUAT", "EDGE_SE3:QUAT", 7, _upper(6)),
    Format(2, "VERTEX2", "EDGE2", 3, ((0, 0), (0, 1), (1, 1), (2, 2), (0, 2), (1, 2))),
)
IGNORED = ("EQUIV",)
"""TORO's remarks that two vertices are the same place: the edges say so, too."""


def read_pose_graph(path: Path, indefinite: Indefinite = "error") -> PoseGraph:
    """Reads a g2o or TORO file.

    In a file without vertices the poses to start from are chained along its edges: see `problems.poses.chained`.

    Raises:
        OSError: it cannot be read.
        DataError: it is not of these formats; the message names the line.
    """
    rows = [row for row in read_rows(path) if row.words[0] not in IGNORED]
    fmt = _format(path, rows)
    vertices, edges, fixes = ([r for r in rows if r.words[0] == tag] for tag in (fmt.vertex, fmt.edge, "FIX"))
    if len(vertices) + len(edges) + len(fixes) < len(rows):
        other = next(r for r in rows if r.words[0] not in (fmt.vertex, fmt.edge, "FIX"))
        refuse(path, other, f"{fmt.vertex}, {fmt.edge} or FIX")
    named, measured, information = _edges(path, fmt, edges)
    roots, kept, notes = _roots(path, edges, information, indefinite)
    number, poses = _poses(path, fmt, vertices) if vertices else (np.unique(named), None)
    ends = _rows_of(path, edges, number, named)[kept]
    measured = measured[kept]
    fixed = _fixed(path, fixes, number)
    if poses is None:
        poses = _chained(path, number, ends, measured, fixed)
        notes = (*notes, f"{path} has no {fmt.vertex}: the poses to start from are chained along its edges.")
    return PoseGraph(fmt.dimension, poses, measured, roots, ends, fixed, notes)


def _format(path: Path, rows: list[Row]) -> Format:
    known = {tag: f for f in FORMATS for tag in (f.vertex, f.edge)}
    first = next((known[row.words[0]] for row in rows if row.words[0] in known), None)
    if first is None:
        raise op.DataError(f"{path} has no line that begins with one of {', '.join(known)}")
    return first


def _poses(path: Path, fmt: Format, rows: list[Row]) -> tuple[Indices, Numbers]:
    """The vertices' numbers, rising, and their poses."""
    what = f"{fmt.vertex}, a number and {fmt.pose} numbers of a pose"
    table = numbers(path, rows, 1 + fmt.pose, what, skip=1)
    number = indices(path, rows, table[:, :1], what)[:, 0]
    order = np.argsort(number, kind="stable")
    twice = np.flatnonzero(np.diff(number[order]) == 0)
    if twice.size:
        refuse(path, rows[int(order[twice[0] + 1])], "a vertex that is not there yet")
    return number[order], _stored(path, fmt, [rows[n] for n in order], table[order, 1:])


def _stored(path: Path, fmt: Format, rows: list[Row], poses: Numbers) -> Numbers:
    """Poses as optpy stores them."""
    if fmt.dimension == 2:
        x, y, angle = poses.T
        return np.stack([np.cos(angle), np.sin(angle), x, y], axis=1)
    length = np.linalg.norm(np.clip(poses[:, 3:], -2, 2), axis=1)  # what is cut off is too long anyway
    faulty = np.flatnonzero(np.abs(length - 1) > 1e-2)
    if faulty.size:
        refuse(path, rows[int(faulty[0])], "a quaternion of length 1 at the end of the pose")
    return np.concatenate([poses[:, 3:] / length[:, None], poses[:, :3]], axis=1)


def _edges(path: Path, fmt: Format, rows: list[Row]) -> tuple[Indices, Numbers, Numbers]:
    """The numbers of the ends, the measured poses and the information matrices."""
    count = len(fmt.information)
    what = f"{fmt.edge}, two vertices, {fmt.pose} numbers of a pose and {count} of its information"
    table = numbers(path, rows, 2 + fmt.pose + count, what, skip=1)
    size = 1 + max(b for _, b in fmt.information)
    information = np.zeros((len(rows), size, size))
    for n, (a, b) in enumerate(fmt.information):
        information[:, a, b] = information[:, b, a] = table[:, 2 + fmt.pose + n]
    measured = _stored(path, fmt, rows, table[:, 2 : 2 + fmt.pose])
    return indices(path, rows, table[:, :2], what), measured, information


def _rows_of(path: Path, rows: list[Row], number: Indices, ends: Indices) -> Indices:
    """Where the vertices of some numbers stand."""
    at = np.minimum(np.searchsorted(number, ends), len(number) - 1)
    faulty = np.flatnonzero((number[at] != ends).any(axis=1))
    if faulty.size:
        refuse(path, rows[int(faulty[0])], "vertices that the file has")
    return at.astype(np.int64)


def _fixed(path: Path, rows: list[Row], number: Indices) -> NDArray[np.bool_]:
    """Which poses stay."""
    fixed = np.zeros(len(number), np.bool_)
    fixed[[0]] = not rows
    what = "FIX and numbers of vertices"
    for row in rows:
        if len(row.words) == 1:
            refuse(path, row, what)
        table = numbers(path, [row], len(row.words) - 1, what, skip=1).reshape(-1, 1)
        same = [row] * len(table)
        fixed[_rows_of(path, same, number, indices(path, same, table, what))] = True
    return fixed


def _chained(path: Path, number: Indices, ends: Indices, measured: Numbers, fixed: NDArray[np.bool_]) -> Numbers:
    """Poses by going along the edges from the one that stays."""
    stay = np.flatnonzero(fixed)
    if len(stay) > 1:
        raise op.DataError(f"{path} fixes {len(stay)} vertices, and has no lines of vertices: it does not say where")
    T, missing = chained(len(number), ends, measured, int(stay[0]))
    if missing:
        apart = f"no path of edges joins vertex {number[min(missing)]} to vertex {number[stay[0]]}"
        raise op.DataError(f"{path} has no lines of vertices, and {apart}: nothing says where it is")
    if not np.isfinite(T).all():
        raise op.DataError(f"{path} has no lines of vertices, and its edges lead so far that poses overflow")
    return stored(T)


def _roots(
    path: Path, rows: list[Row], information: Numbers, indefinite: Indefinite
) -> tuple[Numbers, Indices, tuple[str, ...]]:
    """The upper triangles S with S^T S = information, by an eigendecomposition, then QR; of which edges; and notes."""
    values, vectors = np.linalg.eigh(information)
    huge = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if huge.size:
        refuse(path, rows[int(huge[0])], "an information matrix whose eigenvalues do not overflow")
    negative = values[:, 0] < -1e-9 * np.maximum(values[:, -1], 1e-300)
    faulty = np.flatnonzero(negative)
    if faulty.size and indefinite == "error":
        found = f"an information matrix without negative eigenvalues (here {values[faulty[0], 0]:.3g}"
        refuse(path, rows[int(faulty[0])], f"{found}; --indefinite clip makes them 0, --indefinite drop leaves it out)")
    kept = np.flatnonzero(~negative) if indefinite == "drop" else np.arange(len(rows))
    S: Numbers = np.linalg.qr(np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.transpose(0, 2, 1))[1][kept]
    S = S * np.where(np.diagonal(S, axis1=1, axis2=2) < 0, -1, 1)[:, :, None]
    a, b = np.triu_indices(information.shape[1])
    return np.ascontiguousarray(S[:, a, b]), kept, _note(path, [rows[n] for n in faulty], indefinite)


_NAMED = 10
"""So many lines are named in a note."""


def _note(path: Path, faulty: Sequence[Row], indefinite: Indefinite) -> tuple[str, ...]:
    if not faulty:
        return ()
    lines = ", ".join(str(row.line) for row in faulty[:_NAMED]) + (", ..." if len(faulty) > _NAMED else "")
    done = "are left out" if indefinite == "drop" else "have these set to 0"
    where = f"{len(faulty)}, in {'line' if len(faulty) == 1 else 'lines'} {lines}"
    return (f"{path}: edges whose information has negative eigenvalues {done}: {where}.",)
