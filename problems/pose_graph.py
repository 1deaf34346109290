"""Pose graphs, the back end of mapping by robots: `python -m problems.pose_graph`.

A robot measured, edge by edge, where one of its poses lies in the frame of another; all poses are sought that agree
with that best. With t = R_a^T (t_b - t_a), where b lies in the frame of a, and S^T S the information matrix of an edge,
its residual is, as in Ceres' examples,

    in the plane:  S (t - t_measured, angle of R_measured^T R_a^T R_b)
    in space:      S (t - t_measured, 2 vec(q_measured q_ab^-1)),  q_ab the quaternion of R_a^T R_b

so that the cost is half the sum of e^T information e. The first pose stays, or those that the file fixes.

Reference: G. Grisetti, R. Kümmerle, C. Stachniss, W. Burgard: A Tutorial on Graph-Based SLAM, 2010.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
from scipy.spatial.transform import Rotation

import optpy as op

from . import pictures, scatter
from .command import SolveSettings, choice, command, solve
from .number_files import Numbers
from .pictures import Picture
from .pose_graph_files import INDEFINITE, Indefinite, PoseGraph, read_pose_graph
from .poses import stored

# ---- the energy --------------------------------------------------------------------------------------------

V, E = op.dims("V E")
v, e = op.indices(V, E)


def whitened(root: Any, error: Sequence[Any]) -> Any:
    """S error, where root holds the upper triangle of S row by row."""
    n = len(error)
    first = [a * n - a * (a - 1) // 2 for a in range(n)]
    rows = (sum(root[first[a] + b - a] * error[b] for b in range(a, n)) for a in range(n))
    return op.vector(*rows)


def pose_graph(dimension: Literal[2, 3]) -> op.Energy:
    """The energy of poses in the plane or in space."""
    kind, numbers = (op.SE2, 6) if dimension == 2 else (op.SE3, 21)
    Pose = op.Unknown("Pose", (V,), kind)
    Measured = op.Array("Measured", (E,), kind)  # b in the frame of a
    Root = op.Array("Root", (E,), numbers)  # of the information
    Fixed = op.Array("Fixed", (V,), dtype=bool)
    a, b = op.Graph("edges", E, (V, V))[e]

    found = Pose[a].inverse() @ Pose[b]
    shift = found.translation - Measured[e].translation
    if dimension == 2:
        error = [*shift, (Measured[e].rotation.inverse() @ found.rotation).log()]
    else:
        off = Measured[e].rotation @ found.rotation.inverse()
        q = off.quaternion
        # q and -q are one rotation: of the two the one by the smaller angle, whatever signs a file has.
        error = [*shift, *(op.where(q[3] < 0, -2, 2) * q[:3])]
    return op.Energy(measured=whitened(Root[e], error), fixed={Pose: Fixed[v]})


plane, space = pose_graph(2), pose_graph(3)


def energy_of(graph: PoseGraph) -> op.Energy:
    """`plane` or `space`."""
    return plane if graph.dimension == 2 else space


OPTIONS: dict[str, Any] = dict(eta=1e-4)
"""Of the solves. Where a loop closes, its error is spread over hundreds of poses by steps that are nearly exact; from a
rough start, less exact ones may end in a worse minimum."""

# ---- its data ----------------------------------------------------------------------------------------------

DEFAULT_FILES = {2: "pose_graph/input_M3500_g2o.g2o", 3: "pose_graph/sphere2500.g2o"}


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk as it was, and a graph whose start comes from adding up its noisy steps."""

    truth: Numbers
    """(V, 4) or (V, 7), as in `PoseGraph.poses`."""
    graph: PoseGraph


def default_graph(dimension: Literal[2, 3]) -> PoseGraph:
    """The Manhattan world of 3500 poses or the sphere of 2500 where the data folder is there, a walk elsewhere."""
    path = pictures.data_file(DEFAULT_FILES[dimension])
    return synthetic_walk(dimension).graph if path is None else read_pose_graph(path)


def synthetic_walk(
    dimension: Literal[2, 3], rounds: int = 4, steps: int = 60, noise: float = 1.0, seed: int = 0
) -> Walk:
    """Rounds along a wavy circle; each pose measures the next one, and the pose one round later.

    Args:
        dimension: 2, or 3: the rounds climb.
        rounds, steps: how many, and how many poses in each.
        noise: 1: standard deviations of 2 cm and 0.6 degrees, for steps of about half a metre.
        seed: of the noise.
    """
    rng = np.random.default_rng(seed)
    n = np.arange(rounds * steps)
    T = _round_walk(dimension, 2 * np.pi * n / steps)
    edges = np.concatenate([np.stack([n[:-1], n[1:]], axis=1), np.stack([n[:-steps], n[steps:]], axis=1)])
    sigma = np.array([0.02] * dimension + [0.01] * (1 if dimension == 2 else 3))
    exact = np.linalg.inv(T[edges[:, 0]]) @ T[edges[:, 1]]
    measured = exact @ _small(dimension, noise * sigma * rng.normal(size=(len(edges), len(sigma))))
    start = [T[0]]
    for step in measured[: len(n) - 1]:
        start.append(start[-1] @ step)
    information = np.broadcast_to(np.diag(1 / sigma)[np.triu_indices(len(sigma))], (len(edges), _triangle(len(sigma))))
    graph = PoseGraph(dimension, stored(np.array(start)), stored(measured), information.copy(), edges, n == 0)
    return Walk(stored(T), graph)


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def _round_walk(dimension: int, angle: Numbers) -> Numbers:
    """Poses (V, n + 1, n + 1) with x along the walk."""
    radius = 5 + 0.5 * np.sin(5 * angle)
    place = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.3 * angle], axis=1)[:, :dimension]
    way = np.roll(place, -1, axis=0) - place
    way[-1] = way[-2]
    heading = np.arctan2(way[:, 1], way[:, 0])
    turn = np.asarray(Rotation.from_rotvec(heading[:, None] * np.array([0, 0, 1])).as_matrix())
    T = np.tile(np.eye(dimension + 1), (len(angle), 1, 1))
    T[:, :dimension, :dimension] = turn[:, :dimension, :dimension]
    T[:, :dimension, dimension] = place
    return T


def _small(dimension: int, errors: Numbers) -> Numbers:
    """Poses (N, n + 1, n + 1) of a shift and a rotation vector (an angle, in the plane)."""
    turns = errors[:, dimension:] if dimension == 3 else errors[:, 2:] * np.array([0, 0, 1])
    T = np.tile(np.eye(dimension + 1), (len(errors), 1, 1))
    T[:, :dimension, :dimension] = np.asarray(Rotation.from_rotvec(turns).as_matrix())[:, :dimension, :dimension]
    T[:, :dimension, dimension] = errors[:, :dimension]
    return T


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GraphSettings(SolveSettings):
    """The choices of one run."""

    input: Path | None
    """The file of the graph; None: see `default_graph`."""
    dimension: str
    """Of the default graph, "2" or "3"."""
    indefinite: Indefinite
    """What becomes of edges of a file whose information matrix has negative eigenvalues."""


_OPTIONS = [
    click.Option(
        ["--input"],
        type=click.Path(dir_okay=False, path_type=Path),
        help="A file of g2o or TORO.  [default: M3500, sphere2500, or synthetic]",
    ),
    choice("--dimension", ["2", "3"], "2", "Of the default graph: in the plane or in space."),
    choice(
        "--indefinite",
        list(INDEFINITE),
        "error",
        "Information matrices with negative eigenvalues: refuse the file, set these eigenvalues to 0, drop the edges.",
    ),
]

ITERATIONS = 5000
"""At most: as good as no limit. Most graphs converge within 100, INTEL, which lies far from its minimum, within 904."""


@command(GraphSettings, _OPTIONS, output="pose_graph.png", method="lm", iterations=ITERATIONS, dtype="float64")
def main(settings: GraphSettings) -> None:
    """Finds the poses that agree best with what was measured between them; draws the walk before and after."""
    if settings.input is not None:
        graph = read_pose_graph(settings.input, settings.indefinite)
    else:
        graph = default_graph(2 if settings.dimension == "2" else 3)
    if not settings.quiet:
        for note in graph.notes:
            click.echo(note)
    result = solve(energy_of(graph), graph.data, settings, **OPTIONS)
    after = np.asarray(result.x["Pose"], np.float64)[:, -graph.dimension :]
    pictures.save_side_by_side(settings.output, before_and_after(graph, after))


def before_and_after(graph: PoseGraph, after: Numbers) -> list[Picture]:
    """Two panels of one view, where the poses spread most: edges between successive ones in blue, others in orange.

    Args:
        after: (V, 2) or (V, 3), the places at the end.
    """
    mean, flat = scatter.principal_plane(after) if graph.dimension == 3 else (np.zeros(2), np.eye(2))
    view = scatter.View.of((after - mean) @ flat)
    next_one = np.diff(graph.edges, axis=1)[:, 0] == 1
    panels = []
    for places in (graph.places, after):
        at = (places - mean) @ flat
        others = scatter.Layer(at, (245, 170, 80), graph.edges[~next_one])
        panels.append(scatter.draw(view, [others, scatter.Layer(at, (40, 80, 170), graph.edges[next_one])]))
    return panels


if __name__ == "__main__":
    main()
