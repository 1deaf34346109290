"""Derivatives on manifolds: differences along the retraction, which SciPy makes here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optpy as op
from optpy.energy.derive.retraction import moved
from tests.support.deep import but_deep
from tests.support.manifold_data import (
    Real,
    moved_plane_pose,
    moved_pose,
    moved_rotation,
    moved_turn,
    moved_unit_vector,
    plane_poses,
    poses,
    quaternions,
    turns,
    unit_vectors,
)

N = op.dims("N")
n = op.indices(N)
R2, R3 = op.Unknown("R2", (N,), op.SO2), op.Unknown("R3", (N,), op.SO3)
T2, T3 = op.Unknown("T2", (N,), op.SE2), op.Unknown("T3", (N,), op.SE3)
U3, U5 = op.Unknown("U3", (N,), op.UnitVector(3)), op.Unknown("U5", (N,), op.UnitVector(5))
Z2, Z3 = op.Array("Z2", (N,), op.SE2), op.Array("Z3", (N,), op.SE3)
p, q, r, xi = op.Unknown("p", (N,), 3), op.Unknown("q", (N,), 4), op.Unknown("r", (N,), 3), op.Unknown("xi", (N,), 6)
a = op.Unknown("a", (N,))
x = op.Array("x", (N,), 2)

ENERGIES: dict[str, op.Energy] = {
    "turn": op.Energy(act=R2[n] @ x[n], back=R2[n].T @ x[n], log=(R2[n].T @ R2[n + 1]).log(), m=R2[n].matrix()),
    "turn by an angle": op.Energy(act=op.SO2.exp(a[n]) @ R2[n] @ x[n], log=(op.SO2(p[n][:2]) @ R2[n]).log()),
    "rotation": op.Energy(
        act=R3[n] @ p[n], back=R3[n].inverse() @ [1, 2, 3], log=(R3[n].T @ R3[n + 1]).log(), m=R3[n].matrix()
    ),
    "quaternion": op.Energy(made=(op.SO3(q[n]) @ R3[n]).quaternion, between=R3[n].T @ R3[n + 1] @ p[n]),
    "rotation vector": op.Energy(log=(R3[n] @ op.SO3.exp(r[n]) @ R3[n + 1].T).log()),
    "plane pose": op.Energy(
        act=T2[n] @ x[n],
        log=((Z2[n].inverse() @ T2[n].inverse()) @ T2[n + 1]).log(),
        same=(Z2[n].inverse() @ (T2[n].inverse() @ T2[n + 1])).log(),
        parts=[T2[n].inverse().translation, T2[n].rotation.log(), (T2[n] @ T2[n + 1]).matrix()],
        exp=(op.SE2.exp(p[n]) @ T2[n]).log(),
    ),
    "pose": op.Energy(
        act=T3[n] @ p[n],
        back=T3[n].inverse() @ p[n],
        parts=[T3[n].inverse().translation, T3[n].rotation.log(), (T3[n] @ T3[n + 1]).matrix()],
    ),
    "pose graph": op.Energy(log=(Z3[n].inverse() @ T3[n].inverse() @ T3[n + 1]).log()),
    "twist": op.Energy(log=(op.SE3.exp(xi[n]) @ T3[n]).log(), made=op.SE3(q[n], p[n]) @ (T3[n] @ p[n])),
    "unit vectors": op.Energy(smooth=U3[n] - U3[n + 1], product=op.cross(U3[n], p[n]), five=op.dot(U5[n], U5[n + 1])),
}

STARTS: dict[str, tuple[Callable[..., Real], Callable[[Real, Real], Real] | None, int]] = {
    "R2": (turns, moved_turn, 1),
    "R3": (quaternions, moved_rotation, 3),
    "T2": (plane_poses, moved_plane_pose, 3),
    "T3": (poses, moved_pose, 6),
    "U3": (lambda rng, k: unit_vectors(rng, k, 3), moved_unit_vector, 2),
    "U5": (lambda rng, k: unit_vectors(rng, k, 5), moved_unit_vector, 4),
    "Z2": (plane_poses, None, 0),
    "Z3": (poses, None, 0),
}


def data_for(energy: op.Energy, count: int = 4, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    data = {}
    for f in energy.fields:
        shape = (count, f.channels) if f.channel_axis else (count,)
        data[f.name] = STARTS[f.name][0](rng, count) if f.name in STARTS else rng.normal(size=shape)
    return data


def differences(energy: op.Energy, data: dict[str, Any], h: float = 1e-5) -> Real:
    """The Jacobian by central differences, each element moved by hand."""
    columns = []
    for u in energy.unknowns:
        on_manifold = u.name in STARTS
        for element in np.ndindex(data[u.name].shape[:1] if on_manifold else data[u.name].shape):
            for e in np.eye(STARTS[u.name][2]) if on_manifold else np.eye(1):
                ends = []
                for step in (h * e, -h * e):
                    value = data[u.name].copy()
                    move = STARTS[u.name][1] if on_manifold else None
                    value[element] = value[element] + step[0] if move is None else move(value[element], step)
                    found = energy.residuals(data | {u.name: value})
                    ends.append(np.concatenate([part.ravel() for part in found.values()]))
                columns.append((ends[0] - ends[1]) / (2 * h))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("seed", but_deep(range(3), (0,)))
@pytest.mark.parametrize("name", ENERGIES)
def test_the_jacobian_is_that_of_differences_along_the_retraction(name: str, seed: int) -> None:
    energy = ENERGIES[name]
    data = data_for(energy, seed=seed)
    J = energy.jacobian(data).toarray()
    np.testing.assert_allclose(J, differences(energy, data), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", but_deep(ENERGIES, ("pose", "unit vectors", "rotation")))
def test_the_gradient_check_moves_along_the_retraction(name: str) -> None:
    report = op.check_gradients(ENERGIES[name], data_for(ENERGIES[name], seed=5), tolerance=1e-9)
    assert report, str(report)


def test_the_gradient_check_finds_a_wrong_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    rotations = type(op.SO3.manifold)
    right = rotations.read
    monkeypatch.setattr(rotations, "read", lambda kind, stored, delta: right(kind, stored, 2 * delta))
    energy = op.Energy(r=R3[n] @ [1, 2, 3])
    report = op.check_gradients(energy, data_for(energy))
    assert not report
    assert report.worst["r"].unknown == "R3"
    assert report.worst["r"].column[1] < 3


@pytest.mark.parametrize("name", ["R2", "R3", "T2", "T3", "U3", "U5"])
@pytest.mark.parametrize("size", [1e-9, 1e-3, 0.4, 0.6, 3.0])
def test_the_retraction_is_that_of_scipy(name: str, size: float) -> None:
    draw, move, dimension = STARTS[name]
    assert move is not None
    rng = np.random.default_rng(9)
    start, steps = draw(rng, 20), size * rng.normal(size=(20, dimension))
    fields = {u.name: u.field for u in (R2, R3, T2, T3, U3, U5)}
    found = moved(fields[name], start, steps.ravel())
    expected = np.array([move(v, step) for v, step in zip(start, steps, strict=True)])
    if name in ("R3", "T3"):
        expected[:, :4] *= np.sign(np.sum(expected[:, :4] * found[:, :4], axis=1, keepdims=True))
    np.testing.assert_allclose(found, expected, atol=1e-14 * (1 + size))
    assert (moved(fields[name], start, 0 * steps.ravel()) == start).all()


# -- at the singular points of the formulas --------------------------------------------------------------------------


def logarithm_and_left_jacobian(angle: float) -> tuple[Real, Real]:
    """The Jacobian of log(R), and its inverse, the left Jacobian of SO(3), by its series; at a turn by an angle."""
    phi = angle * np.array([0.6, -0.48, 0.64])
    energy = op.Energy(log=R3[n].log())
    J = energy.jacobian(dict(R3=Rotation.from_rotvec(phi).as_quat()[None])).toarray()
    K = np.array([[0, -phi[2], phi[1]], [phi[2], 0, -phi[0]], [-phi[1], phi[0], 0]])
    term, left = np.eye(3), np.zeros((3, 3))
    for k in range(1, 60):
        left += term
        term = term @ K / (k + 1)
    return J, left


@pytest.mark.parametrize("angle", [0.0, 1e-200, 1e-12, 1e-5, 0.1, 0.2, 0.201, 0.5, 0.506, 1.0, 2.5, 3.1, 3.14159])
def test_the_derivative_of_the_logarithm_is_the_inverse_of_the_left_jacobian(angle: float) -> None:
    J, left = logarithm_and_left_jacobian(angle)
    np.testing.assert_allclose(J @ left, np.eye(3), atol=1e-11)


def test_at_no_rotation_the_derivatives_are_those_of_the_cross_product() -> None:
    energy = op.Energy(act=R3[n] @ [0.3, -1.2, 0.8], log=R3[n].log())
    J = energy.jacobian(dict(R3=[[0, 0, 0, 1.0]])).toarray()
    np.testing.assert_allclose(J[:3], np.cross(np.eye(3), [0.3, -1.2, 0.8]).T, atol=1e-16)
    np.testing.assert_array_equal(J[3:], np.eye(3))


@pytest.mark.parametrize("angle", but_deep([0.0, 1e-12, 1e-3, 0.2, 3.1, np.pi - 1e-7, np.pi], (1e-12, 3.1, np.pi)))
def test_derivatives_of_logarithms_are_finite_and_smooth(angle: float) -> None:
    axis = np.array([[0.6, -0.48, 0.64]])
    turn, t = Rotation.from_rotvec(angle * axis).as_quat(), np.array([[0.5, -0.2, 0.9]])
    plane = np.array([[np.cos(angle), np.sin(angle), 0.5, -0.2]])
    space = op.Energy(log=T3[n].log(), exp=(T3[n] @ op.SE3.exp(xi[n])).log())
    flat = op.Energy(log=T2[n].log(), exp=(T2[n] @ op.SE2.exp(p[n])).log())
    for energy, data in (
        (space, dict(T3=np.concatenate([turn, t], axis=1), xi=np.zeros((1, 6)))),
        (flat, dict(T2=plane, p=np.zeros((1, 3)))),
    ):
        assert np.isfinite(energy.jacobian(data).toarray()).all()
        if angle < 3.12:  # the differences of the check reach over the jump at pi
            assert op.check_gradients(energy, data, tolerance=1e-8)


def test_unit_vectors_have_derivatives_at_every_pole() -> None:
    energy = op.Energy(r=U3[n] - [1, 2, 3])
    poles = np.concatenate([np.eye(3), -np.eye(3), [[0.6, 0.8, 0], [1e-200, 0, -1]]])
    J = energy.jacobian(dict(U3=poles)).toarray()
    assert J.shape == (24, 16)
    for k, pole in enumerate(poles):
        block = J[3 * k : 3 * k + 3, 2 * k : 2 * k + 2]
        np.testing.assert_allclose(block, tangent(pole), atol=1e-15)
        np.testing.assert_allclose(block.T @ block, np.eye(2), atol=1e-15)
    assert op.check_gradients(energy, dict(U3=poles), tolerance=1e-9)


def tangent(pole: Real) -> Real:
    return np.stack(
        [(moved_unit_vector(pole, e) - moved_unit_vector(pole, -e)) / (2 * np.sin(1)) for e in np.eye(2)], 1
    )


# -- energies over manifolds -----------------------------------------------------------------------------------------


def test_fixed_elements_have_empty_columns_and_others_three_each() -> None:
    mask = op.Array("mask", (N,), dtype=bool)
    energy = op.Energy(r=R3[n].log() - R3[n + 1].log(), fixed={R3: mask[n]})
    data = dict(R3=quaternions(np.random.default_rng(0), 4), mask=np.array([1, 0, 0, 1], bool))
    J = energy.jacobian(data).toarray()
    assert J.shape == (12, 12)
    assert np.any(J, axis=0).tolist() == [False] * 3 + [True] * 6 + [False] * 3
    assert op.check_gradients(energy, data)


def test_what_is_stopped_does_not_move() -> None:
    energy = op.Energy(r=op.stop_gradient(R3[n] @ [1, 2, 3]) * (R3[n] @ [1, 0, 0]))
    assert op.check_gradients(energy, data_for(energy))
    held = op.Energy(r=op.stop_gradient(R3[n] @ [1, 2, 3]) + p[n])
    np.testing.assert_array_equal(held.jacobian(data_for(held)).toarray(), np.eye(12, 24, 12))


def test_robust_losses_weigh_residuals_of_rotations() -> None:
    energy = op.Energy(r=op.robust((R3[n].T @ R3[n + 1]).log(), "cauchy", scale=0.5))
    data = data_for(energy)
    assert op.check_gradients(energy, data)
    plain = op.Energy(r=(R3[n].T @ R3[n + 1]).log())
    r, J = plain.residuals(data)["r"], plain.jacobian(data).toarray()
    weight = np.repeat(1 / np.sqrt(1 + np.sum(r**2, axis=1) / 0.25), 3)
    np.testing.assert_allclose(energy.jacobian(data).toarray(), weight[:, None] * J, atol=1e-14)
    with pytest.raises(op.EnergyError, match="depends on the unknown 'R3'"):
        op.robust(p[n], "huber", scale=op.norm(R3[n] @ [1, 2, 3]))


def test_a_diagnosis_counts_tangents() -> None:
    """A rotation about the axis that it is seen by changes nothing; neither does turning all of them together."""
    data = dict(R3=quaternions(np.random.default_rng(1), 4))
    along = op.Energy(r=R3[n] @ [0, 0, 1] - [0.6, 0, 0.8]).diagnose(data)
    assert (along.columns, along.null_dimension) == (12, 4)
    together = op.Energy(r=(R3[n].T @ R3[n + 1]).log()).diagnose(data)
    assert (together.columns, together.null_dimension) == (12, 3)
    assert [(g.unknown, g.channel) for g in together.gauges] == [("R3", 0), ("R3", 1), ("R3", 2)]


def test_conditions_of_fixed_may_not_read_rotations() -> None:
    with pytest.raises(op.EnergyError, match="reads the unknown 'R3'"):
        op.Energy(r=R3[n].log(), fixed={R3: op.norm(R3[n].log()) > 1})


def test_sympy_and_latex_show_what_is_stored() -> None:
    energy = op.Energy(r=R2[n] @ [1, 0])
    assert str(energy.to_sympy("r")) == "Matrix([[R2[i0, 0]], [R2[i0, 1]]])"
    assert "R_{2}" in energy._repr_latex_()
