"""Fits a model of many shapes to a scan: `python -m problems.blendshape_fitting`.

A model is a mean mesh and K shapes, each a displacement of all vertices; their weighted sum, turned and moved as a
whole, shall lie on a target whose vertices are in the same order. Unknown are the weights, a rotation and a
translation. The sum over the shapes is `op.sum`: the number of shapes is that of the data.

Reference: V. Blanz, T. Vetter: A Morphable Model for the Synthesis of 3D Faces, SIGGRAPH 1999, section 3 (the model)
and equation 6 (the prior on the weights).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from trimesh import Trimesh

import optpy as op

from . import meshes
from .command import solve
from .mesh_command import MeshSettings, leave, mesh_command

Floats = NDArray[np.float64]

# ---- the energy --------------------------------------------------------------------------------------------

V, K = op.dims("V K")
v, k = op.indices(V, K)

Weight = op.Unknown("Weight", (K,))  # of each shape, in standard deviations
Turn = op.Unknown("Turn", (), op.SO3)  # of the whole mesh
Move = op.Unknown("Move", (), 3)
Mean = op.Array("Mean", (V,), 3)
Shape = op.Array("Shape", (V, K), 3)  # how far each shape moves each vertex
Target = op.Array("Target", (V,), 3)
w_prior = op.params("w_prior")

model = Mean[v] + op.sum(Weight[k] * Shape[v, k], over=k)

energy = op.Energy(
    fit=Turn[()] @ model + Move[()] - Target[v],
    prior=w_prior * Weight[k],
)

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fitting:
    """A model, and a target that it is fitted to.

    Attributes:
        mesh: the mean, whose faces all have.
        shapes: (V, K, 3).
        target: (V, 3).
        weights: (K,), those that the target was made with.
        w_prior: the ratio of the noise of the target to the standard deviation of a weight, which is 1.
    """

    mesh: Trimesh
    shapes: Floats
    target: Floats
    weights: Floats
    w_prior: float

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name; the solve starts from the mean where it stands."""
        return dict(
            Weight=np.zeros(self.shapes.shape[1]),
            Turn=np.array([0.0, 0.0, 0.0, 1.0]),
            Move=np.zeros(3),
            Mean=np.asarray(self.mesh.vertices, np.float64),
            Shape=self.shapes,
            Target=self.target,
            w_prior=self.w_prior,
        )

    def fitted(self, x: dict[str, Any]) -> Trimesh:
        """The model at a solution."""
        moved = np.asarray(self.mesh.vertices) + np.einsum("k,vkc->vc", x["Weight"], self.shapes)
        return meshes.moved(self.mesh, Rotation.from_quat(x["Turn"]).apply(moved) + x["Move"])


def fitting(mesh: Trimesh, count: int, noise: float = 0.002, seed: int = 0) -> Fitting:
    """A model made of a mesh, and a target made of the model: with weights, turned, moved, with noise.

    Args:
        mesh: the mean; it is scaled to the height 1 about its middle.
        count: of the shapes.
        noise: standard deviation of each coordinate of the target.
        seed: of shapes, weights and noise.
    """
    vertices = np.asarray(mesh.vertices, np.float64)
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    mean = meshes.moved(mesh, (vertices - (low + high) / 2) / (high - low)[1])
    rng = np.random.default_rng(seed)
    shapes = smooth_displacements(np.asarray(mean.vertices), count, rng)
    weights = rng.normal(size=count)
    shaped = mean.vertices + np.einsum("k,vkc->vc", weights, shapes)
    target = Rotation.from_rotvec([0.1, -0.5, 0.2]).apply(shaped) + [0.2, -0.1, 0.1]
    return Fitting(mean, shapes, target + rng.normal(0, noise, target.shape), weights, noise)


def smooth_displacements(points: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Shapes as principal components are: smooth, orthogonal, and none of them a rigid motion: (V, count, 3).

    Waves in space, the longer ones first, orthogonalised; each shape moves the vertices less than the one before.
    """
    order = np.arange(count) / count
    frequency = rng.normal(size=(count, 3)) * (2 + 8 * order)[:, None]
    waves = np.sin(points @ frequency.T + rng.uniform(0, 2 * np.pi, count))
    fields = waves[:, None, :] * rng.normal(size=(1, 3, count))
    rigid = np.concatenate([np.eye(3) + 0 * points[:, :, None], np.cross(points[:, None, :], np.eye(3))], axis=2)
    columns = np.concatenate([rigid, fields], axis=2).reshape(-1, 6 + count)
    orthogonal = np.linalg.qr(columns)[0][:, 6:] * np.sqrt(len(points))
    size = 1 / (1 + 4 * order)
    size *= 0.05 / np.linalg.norm(size)  # of all shapes together
    return np.asarray(orthogonal.reshape(-1, 3, count).transpose(0, 2, 1) * size[:, None])


def default_mesh() -> Trimesh:
    """The bust of Nefertiti, 35,002 vertices, where the data folder is there, a pebble elsewhere."""
    bust = meshes.data_mesh("nefertiti-lowres.obj")
    return meshes.pebble() if bust is None else bust


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FittingSettings(MeshSettings):
    """The choices of one run."""

    shapes: int
    """How many the model has."""


SHAPES = click.Option(
    ["--shapes"], type=click.IntRange(min=1), default=200, show_default=True, help="How many the model has."
)


@mesh_command(FittingSettings, [SHAPES], output="blendshape_fitting.png", method="lm", iterations=50)
def main(settings: FittingSettings) -> None:
    """Fits a model of many shapes to a target; draws the mean, the target and the fit, and writes the fit."""
    task = fitting(default_mesh() if settings.mesh is None else meshes.read_mesh(settings.mesh), settings.shapes)
    result = solve(energy, task.data, settings)
    leave(settings, task.mesh, [meshes.moved(task.mesh, task.target), task.fitted(result.x)])


if __name__ == "__main__":
    main()
