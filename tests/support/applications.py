"""The energies of problems/, each with a small amount of its data; and one that is hard to solve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import optpy as op
from problems import (
    blendshape_fitting,
    bundle_adjustment,
    bundle_fusion,
    cotangent_smoothing,
    deconvolution,
    embedded_deformation,
    image_warping,
    intrinsic_images,
    laplacian_smoothing,
    mesh_deformation,
    meshes,
    nonrigid_alignment,
    optical_flow,
    poisson_image_editing,
    pose_graph,
    shape_and_shading,
    shape_from_shading,
    sparse_warping,
    volumetric_deformation,
)
from problems.mesh_handles import top_and_foot
from problems.surface import Surface

ENERGIES: dict[str, op.Energy] = {
    "image_warping": image_warping.energy,
    "poisson_image_editing": poisson_image_editing.energy,
    "laplacian_smoothing": laplacian_smoothing.energy,
    "mesh_deformation euler": mesh_deformation.ENERGIES["euler"],
    "mesh_deformation so3": mesh_deformation.ENERGIES["so3"],
    "embedded_deformation": embedded_deformation.energy,
    "cotangent_smoothing": cotangent_smoothing.energy,
    "nonrigid_alignment": nonrigid_alignment.energy,
    "sparse_warping": sparse_warping.energy,
    "shape_from_shading": shape_from_shading.energy,
    "shape_from_shading inline": shape_from_shading.inline,
    "bundle_adjustment": bundle_adjustment.energy,
    "bundle_adjustment robust": bundle_adjustment.robust_energy("huber"),
    "pose_graph plane": pose_graph.plane,
    "pose_graph space": pose_graph.space,
    "blendshape_fitting": blendshape_fitting.energy,
    "deconvolution": deconvolution.energy,
    "optical_flow": optical_flow.energy,
    "optical_flow robust": optical_flow.robust,
    "intrinsic_images": intrinsic_images.energy,
    "volumetric_deformation": volumetric_deformation.energy,
    "shape_and_shading": shape_and_shading.energy,
    "bundle_fusion": bundle_fusion.energy,
}


def _warp() -> dict[str, Any]:
    return image_warping.astronaut(20).data


def _sparse_warp() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTPY_DATA", "")
        return sparse_warping.default_warp(20).data


def _mesh(rotations: str) -> dict[str, Any]:
    mesh = meshes.pebble(1)
    return mesh_deformation.Deformation(mesh, top_and_foot(mesh.vertices, fraction=0.1)).data(rotations)


def _noisy_mesh() -> dict[str, Any]:
    mesh = meshes.pebble(2)
    return cotangent_smoothing.NoisyMesh(mesh, cotangent_smoothing.with_noise(mesh).noisy).data


def _alignment() -> dict[str, Any]:
    target = Surface(nonrigid_alignment.bent(meshes.pebble(2)))
    return nonrigid_alignment.Alignment(meshes.pebble(1), target).data


def _bundle() -> dict[str, Any]:
    return bundle_adjustment.synthetic_bundle(cameras=4, points=25, noise=0.5, seed=3).start.data


def _walk(dimension: Any) -> dict[str, Any]:
    return pose_graph.synthetic_walk(dimension, rounds=2, steps=10, noise=1.0, seed=1).graph.data


def _flow() -> dict[str, Any]:
    film = optical_flow.turning(20)
    noise = np.random.default_rng(0).normal(size=(20, 20, 2))
    return dict(Flow=noise, First=film.first, Second=film.second, w_smooth=0.1)


def _robust_flow() -> dict[str, Any]:
    frames = optical_flow.frames(optical_flow.turning(20), (20, 20))
    return _flow() | frames | optical_flow.PARAMS


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "image_warping": _warp,
    "poisson_image_editing": lambda: poisson_image_editing.latte_art(24).data,
    "laplacian_smoothing": lambda: laplacian_smoothing.default_noisy(20).data,
    "mesh_deformation euler": lambda: _mesh("euler"),
    "mesh_deformation so3": lambda: _mesh("so3"),
    "embedded_deformation": lambda: embedded_deformation.deformation(meshes.pebble(1)).data,
    "cotangent_smoothing": _noisy_mesh,
    "nonrigid_alignment": _alignment,
    "sparse_warping": _sparse_warp,
    "shape_from_shading": lambda: shape_from_shading.relief(20).data,
    "shape_from_shading inline": lambda: shape_from_shading.relief(20).data,
    "bundle_adjustment": _bundle,
    "bundle_adjustment robust": lambda: _bundle() | dict(scale=1.0),
    "pose_graph plane": lambda: _walk(2),
    "pose_graph space": lambda: _walk(3),
    "blendshape_fitting": lambda: blendshape_fitting.fitting(meshes.pebble(1), 4).data,
    "deconvolution": lambda: deconvolution.default_photograph(18).data,
    "optical_flow": _flow,
    "optical_flow robust": _robust_flow,
    "intrinsic_images": lambda: intrinsic_images.painted(16)[0].data,
    "volumetric_deformation": lambda: volumetric_deformation.deformation(meshes.pebble(1), cells=4).data,
    "bundle_fusion": lambda: bundle_fusion.turning(meshes.pebble(1), 10, 3).data,
    "shape_and_shading": lambda: shape_and_shading.with_unknown_light(shape_from_shading.relief(16)),
}


def overshooting() -> tuple[op.Energy, dict[str, Any]]:
    """Full steps of atan overshoot: only a smaller trust region gets on."""
    N = op.dims("N")
    n = op.indices(N)
    x, t, M = op.Unknown("x", (N,)), op.params("t"), op.Array("M", (N,), dtype=bool)
    energy = op.Energy(fit=op.atan(x[n] - t), pull=0.01 * (x[n] - x[n + 1]), fixed={x: M[n]})
    return energy, dict(x=np.linspace(2.5, 3.5, 40), t=0.1, M=np.arange(40) % 7 == 3)
