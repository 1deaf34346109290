"""What rotations and poses do in formulas, against SciPy and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

import optpy as op
from tests.support.manifold_data import (
    Real,
    matrices,
    plane_matrices,
    plane_pose_matrices,
    plane_poses,
    pose_matrices,
    poses,
    quaternions,
    turns,
)

N = op.dims("N")
n = op.indices(N)
zero = op.Unknown("zero", (N,))  # every energy has an unknown

SMALL_AND_LARGE = [0.0, 1e-200, 1e-12, 1e-8, 1e-4, 0.15, 0.2, 0.21, 0.4, 0.5, 0.51, 0.9, 1.1, 2.0, 3.0, 3.14159, np.pi]


def value(expression: op.Expression, **data: Any) -> Real:
    """An expression's values at all elements; data that it does not read may be there."""
    energy = op.Energy(r=expression + zero[n])
    count = len(next(iter(data.values())))
    read = {f.name: data.get(f.name, np.zeros(count)) for f in energy.fields}
    return energy.residuals(read)["r"]


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "SO2": (op.SO2, turns, plane_matrices),
    "SO3": (op.SO3, quaternions, matrices),
    "SE2": (op.SE2, plane_poses, plane_pose_matrices),
    "SE3": (op.SE3, poses, pose_matrices),
}


@pytest.mark.parametrize("declaration", [op.Array, op.Unknown])
@pytest.mark.parametrize("name", KINDS)
def test_elements_are_matrices(name: str, declaration: Any) -> None:
    kind, draw, matrices_of = KINDS[name]
    rng = np.random.default_rng(3)
    A, B = declaration("A", (N,), kind)[n], declaration("B", (N,), kind)[n]
    x = op.Array("x", (N,), kind.size)
    a, b, points = draw(rng, 7), draw(rng, 7), rng.normal(size=(7, kind.size))
    ma, mb = matrices_of(a), matrices_of(b)
    same: Any = dict(atol=1e-14, rtol=0)
    np.testing.assert_allclose(value(A.matrix(), A=a), ma, **same)
    np.testing.assert_allclose(value((A @ B).matrix(), A=a, B=b), ma @ mb, **same)
    np.testing.assert_allclose(value(A.inverse().matrix(), A=a), np.linalg.inv(ma), **same)
    between = (A.inverse() @ B @ A.inverse()).matrix()
    np.testing.assert_allclose(value(between, A=a, B=b), np.linalg.inv(ma) @ mb @ np.linalg.inv(ma), **same)
    homogeneous = np.concatenate([points, np.ones((7, 1))], axis=1)[:, : ma.shape[-1]]
    for element, m in ((A, ma), (A.inverse(), np.linalg.inv(ma)), (A @ B, ma @ mb)):
        expected = np.einsum("nij,nj->ni", m, homogeneous)[:, : kind.size]
        np.testing.assert_allclose(value(element @ x[n], A=a, B=b, x=points), expected, **same)


def test_transposes_are_inverses() -> None:
    rng = np.random.default_rng(4)
    for kind, draw, matrices_of in (KINDS["SO2"], KINDS["SO3"]):
        R = op.Array("R", (N,), kind)
        r = draw(rng, 5)
        found = value(R[n].T.matrix(), R=r)
        np.testing.assert_allclose(found, np.swapaxes(matrices_of(r), -1, -2), atol=1e-15)


def test_parts_of_poses() -> None:
    T, S = op.Array("T", (N,), op.SE3), op.Array("S", (N,), op.SE2)
    rng = np.random.default_rng(5)
    t, s = poses(rng, 4), plane_poses(rng, 4)
    np.testing.assert_allclose(value(T[n].translation, T=t), t[:, 4:])
    np.testing.assert_allclose(value(T[n].rotation.matrix(), T=t), matrices(t[:, :4]), atol=1e-15)
    np.testing.assert_allclose(value(S[n].translation, S=s), s[:, 2:])
    np.testing.assert_allclose(value(S[n].rotation.matrix(), S=s), plane_matrices(s[:, :2]), atol=1e-15)
    inverse = np.linalg.inv(pose_matrices(t))
    np.testing.assert_allclose(value(T[n].inverse().translation, T=t), inverse[:, :3, 3], atol=1e-14)


def test_elements_are_made_from_expressions_of_any_length() -> None:
    q, t, cs = op.Array("q", (N,), 4), op.Array("t", (N,), 3), op.Array("cs", (N,), 2)
    rng = np.random.default_rng(6)
    data = dict(q=quaternions(rng, 4), t=rng.normal(size=(4, 3)), cs=turns(rng, 4))
    T = pose_matrices(np.concatenate([data["q"], data["t"]], axis=1))
    longer = data | dict(q=3.7 * data["q"], cs=0.2 * data["cs"])
    np.testing.assert_allclose(value(op.SO3(q[n]).matrix(), q=longer["q"]), T[:, :3, :3], atol=1e-14)
    np.testing.assert_allclose(value(op.SE3(q[n], t[n]).matrix(), q=longer["q"], t=longer["t"]), T, atol=1e-14)
    found = value(op.SE2(cs[n], t[n][:2]).matrix(), cs=longer["cs"], t=longer["t"])
    expected = plane_pose_matrices(np.concatenate([data["cs"], data["t"][:, :2]], axis=1))
    np.testing.assert_allclose(found, expected, atol=1e-14)
    found = value(op.SE3(op.SO3([0, 0, 0, 1]), t[n]).matrix(), t=data["t"])
    np.testing.assert_allclose(found[:, :3], np.concatenate([np.tile(np.eye(3), (4, 1, 1)), data["t"][..., None]], -1))
    assert value(op.SO2.exp(0.3).log(), any=np.zeros(1)) == pytest.approx(0.3)


# -- logarithms and exponentials -------------------------------------------------------------------------------------


def rotation_vectors(angles: list[float]) -> Real:
    axes = np.random.default_rng(7).normal(size=(len(angles), 3))
    return np.asarray(np.array(angles)[:, None] * axes / np.linalg.norm(axes, axis=1, keepdims=True))


def test_logarithms_of_rotations_are_those_of_scipy() -> None:
    R, r = op.Array("R", (N,), op.SO3), rotation_vectors(SMALL_AND_LARGE)
    q = Rotation.from_rotvec(r).as_quat()
    for sign in (1, -1):
        found = value(R[n].log(), R=sign * q)
        same_turn = matrices(Rotation.from_rotvec(found).as_quat())  # at pi, phi and -phi are the same
        np.testing.assert_allclose(same_turn, matrices(q), atol=3e-16 * 10)
        np.testing.assert_allclose(found[:-1], r[:-1], rtol=1e-13)
        assert (np.linalg.norm(found, axis=1) <= np.pi + 1e-15).all()


def test_exponentials_undo_logarithms() -> None:
    r, a = op.Array("r", (N,), 3), op.Array("a", (N,))
    vectors = rotation_vectors(SMALL_AND_LARGE[:-1])
    np.testing.assert_allclose(value(op.SO3.exp(r[n]).log(), r=vectors), vectors, rtol=1e-13)
    np.testing.assert_allclose(
        value(op.SO3.exp(r[n]).matrix(), r=vectors), Rotation.from_rotvec(vectors).as_matrix(), atol=1e-15
    )
    angles = np.array([-x for x in SMALL_AND_LARGE[:-1]])
    np.testing.assert_allclose(value(op.SO2.exp(a[n]).log(), a=angles), angles, rtol=1e-15)


@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
def test_poses_follow_the_matrix_exponential(size: float) -> None:
    xi, eta = op.Array("xi", (N,), 6), op.Array("eta", (N,), 3)
    v = size * np.random.default_rng(8).normal(size=(len(SMALL_AND_LARGE) - 1, 3))
    omega = rotation_vectors(SMALL_AND_LARGE[:-1])
    twists = np.concatenate([omega, v], axis=1)
    found = value(op.SE3.exp(xi[n]).matrix(), xi=twists)
    np.testing.assert_allclose(found, [expm(space_twist(x)) for x in twists], atol=1e-13 * (1 + size))
    np.testing.assert_allclose(value(op.SE3.exp(xi[n]).log(), xi=twists), twists, atol=1e-13 * (1 + size))
    plane = np.concatenate([np.array(SMALL_AND_LARGE[:-1])[:, None], v[:, :2]], axis=1)
    found = value(op.SE2.exp(eta[n]).matrix(), eta=plane)
    np.testing.assert_allclose(found, [expm(plane_twist(x)) for x in plane], atol=1e-13 * (1 + size))
    np.testing.assert_allclose(value(op.SE2.exp(eta[n]).log(), eta=plane), plane, atol=1e-13 * (1 + size))


def space_twist(x: Real) -> Real:
    a, b, c = x[:3]
    return np.array([[0, -c, b, x[3]], [c, 0, -a, x[4]], [-b, a, 0, x[5]], [0, 0, 0, 0]])


def plane_twist(x: Real) -> Real:
    return np.array([[0, -x[0], x[1]], [x[0], 0, x[2]], [0, 0, 0]])


LOGARITHM = op.Energy(r=op.Array("R", (N,), op.SO3)[n].log() + zero[n])


@settings(max_examples=20)
@given(hnp.arrays(np.float64, (50, 4), elements=st.floats(-1, 1)))
def test_any_rotation_survives_its_logarithm(drawn: Real) -> None:
    lengths = np.linalg.norm(drawn, axis=1)
    assume((lengths >= 0.1).any())
    q = drawn[lengths >= 0.1] / lengths[lengths >= 0.1, None]
    found = Rotation.from_rotvec(LOGARITHM.residuals(dict(R=q, zero=np.zeros(len(q))))["r"]).as_matrix()
    np.testing.assert_allclose(found, matrices(q), atol=1e-14)


# -- what they are not -----------------------------------------------------------------------------------------------

R3, T3 = op.Unknown("R", (N,), op.SO3), op.Unknown("T", (N,), op.SE3)


@pytest.mark.parametrize(
    ("use", "parts"),
    [
        (lambda: R3[n] - R3[n + 1], ["SO3", "no number", ".log()", "@"]),
        (lambda: 2 * R3[n], ["SO3", "no number"]),
        (lambda: op.value(n) + R3[n], ["SO3", "no number"]),
        (lambda: R3[n] // 2, ["SO3", "no number"]),
        (lambda: np.sin(R3[n]), ["SO3", "no number"]),
        (lambda: R3 @ [1, 2, 3], ["'R'", "R[i]"]),
        (lambda: R3[n] * [1, 2, 3], ["SO3", "R @ v"]),
        (lambda: np.eye(3) @ R3[n], ["SO3", "no number"]),
        (lambda: R3[n][0], ["SO3", ".matrix()"]),
        (lambda: R3[n] == R3[n + 1], ["SO3", "no number"]),
        (lambda: op.norm(T3[n]), ["SE3", "no number"]),
        (lambda: op.Energy(r=R3[n]), ["SO3", "no number"]),
        (lambda: op.Energy(r=[T3[n]]), ["SE3", "no number"]),
        (lambda: R3[n] @ T3[n], ["SO3", "SE3", "do not compose"]),
        (lambda: R3[n] @ [1, 2], ["SO3", "vectors of 3", "(2,)"]),
        (lambda: R3[n] @ np.eye(3), ["vectors of 3", "(3, 3)", ".matrix()"]),
        (lambda: op.SO3([1, 2, 3]), ["op.SO3", "vector of 4", "(3,)"]),
        (lambda: op.SO3([0, 0, 0, 0]), ["/"]),
        (lambda: op.SE3([0, 0, 0, 1], [1, 2]), ["op.SE3", "translation", "vector of 3"]),
        (lambda: op.SE2.exp([1, 2]), ["op.SE2.exp", "vector of 3"]),
        (lambda: op.UnitVector(1), ["op.UnitVector", "2 or more", "1"]),
        (lambda: op.UnitVector(True), ["op.UnitVector", "True"]),
        (lambda: op.Array("A", (N,), op.SO3, dtype=np.uint8), ["'A'", "SO3", "uint8"]),
        (lambda: op.Unknown("A", (N,), op.Energy), ["'A'", "op.SO3"]),  # type: ignore[arg-type]
        (lambda: R3[n, n], ["'R'", "1 index"]),
    ],
)
def test_mistakes_with_elements(use: Any, parts: list[str]) -> None:
    with pytest.raises(op.EnergyError) as caught:
        use()
    assert "test_elements.py" in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_declarations_and_energies_name_their_manifolds() -> None:
    assert repr(R3) == "Unknown('R', (N,), SO3)"
    assert repr(op.Array("A", (N,), op.UnitVector(3))) == "Array('A', (N,), UnitVector(3))"
    energy = op.Energy(r=R3[n].log())
    assert "R (N, 4) SO3" in repr(energy)
    assert energy.unknowns == (R3,)
    assert energy.unknowns != (op.Unknown("R", (N,), 4),)
    assert op.in_bounds(n, of=R3).is_condition


@pytest.mark.parametrize(
    ("kind", "name", "cure"),
    [
        (
            op.SE3,
            "T",
            r"write \.inverse\(\); it has \.inverse\(\), \.log\(\), \.matrix\(\), \.rotation, \.translation$",
        ),
        (op.SE2, "inv", r"write \.inverse\(\); "),
        (op.SE3, "R", r"write \.rotation; "),
        (op.SO3, "as_matrix", r"write \.matrix\(\); "),
        (op.SO2, "apply", "write R @ v; "),
        (op.SO2, "invers", r"write \.inverse\(\); "),
        (op.SO2, "as_quat", r"it has \.T, "),
    ],
)
def test_an_attribute_that_does_not_exist_leads_to_those_that_do(kind: Any, name: str, cure: str) -> None:
    element = op.Unknown("element", (N,), kind)[n]
    with pytest.raises(AttributeError, match=rf"an element of {kind.__name__} has no \.{name}: {cure}") as caught:
        getattr(element, name)
    assert isinstance(caught.value, op.EnergyError)
    assert "test_elements.py" in str(caught.value)
    assert not hasattr(element, name)
    assert not hasattr(element, "__deepcopy__")
