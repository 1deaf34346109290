from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

import optpy as op

N = op.dims("N")
i = op.indices(N)
a, r, q = op.Unknown("a", (N,)), op.Unknown("r", (N,), 3), op.Unknown("q", (N,), 4)
p, v = op.Array("p", (N,), 2), op.Array("v", (N,), 3)

PLANE = op.Energy(r=op.rotate2d(a[i], p[i]))
EULER = op.Energy(r=op.rotate3d(r[i], v[i]))
AXIS_ANGLE = op.Energy(r=op.rotate_axis_angle(r[i], v[i]))
QUATERNION = op.Energy(r=op.rotate_quaternion(q[i], v[i]))

Vector = NDArray[np.float64]


def vectors(n: int, size: float = 4.0) -> st.SearchStrategy[Vector]:
    return hnp.arrays(np.float64, (1, n), elements=st.floats(-size, size))


@given(hnp.arrays(np.float64, (1,), elements=st.floats(-7, 7)), vectors(2))
def test_a_turn_in_the_plane_is_a_complex_product(angle: Vector, point: Vector) -> None:
    found = PLANE.residuals({"a": angle, "p": point})["r"][0]
    expected = np.exp(1j * angle[0]) * (point[0, 0] + 1j * point[0, 1])
    np.testing.assert_allclose(found, [expected.real, expected.imag], atol=1e-14)


@given(vectors(3), vectors(3))
def test_euler_angles_are_those_of_scipy(angles: Vector, point: Vector) -> None:
    found = EULER.residuals({"r": angles, "v": point})["r"]
    np.testing.assert_allclose(found, Rotation.from_euler("xyz", angles).apply(point), atol=1e-13)


@given(vectors(3), vectors(3), st.sampled_from([1.0, 1e-3, 1e-8, 1e-160, 0.0]))
def test_rotation_vectors_are_those_of_scipy(axis: Vector, point: Vector, scale: float) -> None:
    found = AXIS_ANGLE.residuals({"r": scale * axis, "v": point})["r"]
    np.testing.assert_allclose(found, Rotation.from_rotvec(scale * axis).apply(point), atol=1e-13)


@settings(max_examples=40)
@given(vectors(3), vectors(3), st.sampled_from([1.0, 0.1, 1e-3, 1e-8]))
@example(np.array([[1.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 0.0]]), 1e-3)  # no rounding here, but near it
@example(np.array([[0.3, 0.4, 0.0]]), np.array([[1.0, 2.0, 3.0]]), 1.0)  # where the series and the closed form meet
def test_rotation_vectors_have_smooth_derivatives(axis: Vector, point: Vector, scale: float) -> None:
    assert op.check_gradients(AXIS_ANGLE, {"r": scale * axis, "v": point}, tolerance=1e-8)


def test_the_derivative_at_no_rotation_is_the_cross_product() -> None:
    point = np.array([[0.3, -1.2, 0.8]])
    J = AXIS_ANGLE.jacobian({"r": np.zeros((1, 3)), "v": point}).toarray()
    np.testing.assert_allclose(J, np.cross(np.eye(3), point[0]).T, atol=1e-16)


def test_series_and_closed_form_meet() -> None:
    direction = np.array([[1.0, 2.0, -2.0]]) / 3
    point = np.array([[0.3, -1.2, 0.8]])
    for energy_of in (lambda d: AXIS_ANGLE.residuals(d)["r"], lambda d: AXIS_ANGLE.jacobian(d).toarray()):
        below, above = (energy_of({"r": direction * t, "v": point}) for t in (0.5 - 1e-14, 0.5 + 1e-14))
        np.testing.assert_allclose(below, above, atol=1e-13)


@given(vectors(4).filter(lambda x: float(np.linalg.norm(x)) > 0.1), vectors(3))
def test_quaternions_of_any_length_are_those_of_scipy(quaternion: Vector, point: Vector) -> None:
    found = QUATERNION.residuals({"q": quaternion, "v": point})["r"]
    np.testing.assert_allclose(found, Rotation.from_quat(quaternion).apply(point), atol=1e-13)
    J = QUATERNION.jacobian({"q": quaternion, "v": point}).toarray()
    np.testing.assert_allclose(J @ quaternion[0], 0, atol=1e-12 * max(1, np.abs(J).max()))
