"""Smoothing of a noisy mesh with cotangent weights: `python -m problems.cotangent_smoothing`.

Every vertex stays near where it was measured, and near its neighbours. How much an edge counts depends on the angles
opposite to it, in the one or two triangles at it: w = (cot alpha + cot beta) / 2. The sum of w |x_a - x_b|^2 / 2 over
all edges is the area of the mesh, and so smoothing is a trade of area against the distance from what was measured. The
weights are those of the mesh as it is being smoothed, in every iteration and in the derivatives.

Reference: U. Pinkall, K. Polthier: Computing Discrete Minimal Surfaces and Their Conjugates, Experimental Mathematics
2(1), 1993; M. Desbrun, M. Meyer, P. Schroeder, A. H. Barr: Implicit Fairing of Irregular Meshes, SIGGRAPH 1999. In Z.
DeVito et al.: Opt, ACM Transactions on Graphics 36(5), 2017, the weight stands in the residual without the root; there
the least energy is that of a creased mesh, whose weights are small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op

from . import meshes
from .command import solve
from .mesh_command import MeshSettings, leave, mesh_command

# ---- the energy --------------------------------------------------------------------------------------------

V, E, B = op.dims("V E B")
v, e, k = op.indices(V, E, B)

X = op.Unknown("X", (V,), 3)  # the smooth place of the vertex
A = op.Array("A", (V,), 3)  # the noisy one
wedges = op.Graph("wedges", E, (V, V, V, V))  # an edge's ends, and what is opposite in each of its two triangles
border = op.Graph("border", B, (V, V, V))  # the ends of an edge with one triangle only, and what is opposite there
w_fit, w_reg = op.params("w_fit w_reg")

LEAST_SINE = 0.01
"""An angle under 0.6 degrees, or over 179.4, counts as that: its cotangent would grow without bound."""
LEAST_WEIGHT = 0.01
"""In the place of smaller weights, and of negative ones, which edges between very obtuse angles have."""


def cotangent(a: Any, b: Any, c: Any) -> Any:
    """cot of the angle at c in the triangle (a, b, c); 0 where c lies on a or b, and there is no angle."""
    p, q = X[a] - X[c], X[b] - X[c]
    normal = op.cross(p, q)
    least = LEAST_SINE**2 * op.dot(p, p) * op.dot(q, q)
    return op.where(least > 0, op.dot(p, q) / op.sqrt(op.maximum(op.dot(normal, normal), least)), 0)


def smoothness(a: Any, b: Any, weight: Any) -> Any:
    """Its square is the weight times the squared length of the edge."""
    return w_reg * op.sqrt(op.maximum(weight, LEAST_WEIGHT)) * (X[a] - X[b])


a, b, c, d = wedges[e]
start, end, opposite = border[k]

energy = op.Energy(
    fit=w_fit * (X[v] - A[v]),
    reg=smoothness(a, b, 0.5 * (cotangent(a, b, c) + cotangent(a, b, d))),
    reg_border=smoothness(start, end, 0.5 * cotangent(start, end, opposite)),
)

# ---- its data ----------------------------------------------------------------------------------------------


def wedges_and_border(faces: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The edges with two triangles, (E, 4), and those with one, (B, 3), each with the opposite vertices.

    An edge with three triangles or more counts as one with a single triangle, for each of them. Triangles in which a
    vertex comes twice have no edges.

    Args:
        faces: (F, 3).
    """
    faces = np.asarray(faces, np.int64)
    faces = faces[(faces != np.roll(faces, 1, axis=1)).all(axis=1)]
    ends = np.sort(np.stack([faces, np.roll(faces, -1, axis=1)], axis=-1).reshape(-1, 2), axis=1)
    opposite = np.roll(faces, -2, axis=1).ravel()
    order = np.lexsort((ends[:, 1], ends[:, 0]))  # the triangles at an edge stand together
    ends, opposite = ends[order], opposite[order]
    _, first, count = np.unique(ends, axis=0, return_index=True, return_counts=True)
    pair = first[count == 2]
    single = np.ones(len(ends), dtype=bool)
    single[pair] = single[pair + 1] = False
    return (
        np.column_stack([ends[pair], opposite[pair], opposite[pair + 1]]),
        np.column_stack([ends[single], opposite[single]]),
    )


@dataclass(frozen=True, slots=True)
class NoisyMesh:
    """A mesh, and the same with noise."""

    clean: Trimesh
    noisy: Trimesh

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name; the solve starts from the noisy mesh."""
        vertices = np.asarray(self.noisy.vertices, np.float64)
        wedges, border = wedges_and_border(self.noisy.faces)
        return dict(X=vertices, A=vertices, wedges=wedges, border=border, w_fit=1.0, w_reg=0.7)


def with_noise(clean: Trimesh, sigma: float = 0.2, seed: int = 0) -> NoisyMesh:
    """Gaussian noise along the normals.

    Args:
        sigma: standard deviation of the noise, in mean lengths of an edge.
        seed: of the noise.
    """
    noise = np.random.default_rng(seed).normal(
        0.0, sigma * float(np.mean(clean.edges_unique_length)), len(clean.vertices)
    )
    return NoisyMesh(clean, meshes.moved(clean, clean.vertices + noise[:, None] * clean.vertex_normals))


def default_mesh() -> Trimesh:
    """The cow where the data folder is there, a pebble elsewhere."""
    cow = meshes.data_mesh("spot.obj")
    return meshes.pebble() if cow is None else cow


# ---- the program -------------------------------------------------------------------------------------------


@mesh_command(MeshSettings, output="cotangent_smoothing.png", method="lm", iterations=100)
def main(settings: MeshSettings) -> None:
    """Smooths a mesh; writes it, and draws it before and after. Without --mesh, noise is added to the problem's own."""
    if settings.mesh is None:
        noisy = with_noise(default_mesh()).noisy
    else:
        noisy = meshes.read_mesh(settings.mesh)
    task = NoisyMesh(noisy, noisy)
    result = solve(energy, task.data, settings)
    leave(settings, noisy, [meshes.moved(noisy, result.x["X"])])


if __name__ == "__main__":
    main()
