"""Elements of manifolds as data: stored numbers and matrices in and out, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optpy as op
from optpy.energy.data.binding import bind, bind_update
from optpy.energy.manifolds.stored import quaternions_of
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
    unit_vectors,
)

pytestmark = pytest.mark.native

H, W = op.dims("H W")
i, j = op.indices(H, W)


def read(kind: Any) -> Any:
    """An energy that does nothing but keep its unknown X near the array A."""
    X, A = op.Unknown("X", (H, W), kind), op.Array("A", (H, W), kind)
    if isinstance(kind, op.UnitVector):
        return op.Energy(r=X[i, j] - A[i, j])
    return op.Energy(r=(A[i, j].inverse() @ X[i, j]).log())


KINDS: dict[str, tuple[Any, Any, Any]] = {
    "SO2": (op.SO2, turns, plane_matrices),
    "SO3": (op.SO3, quaternions, matrices),
    "SE2": (op.SE2, plane_poses, plane_pose_matrices),
    "SE3": (op.SE3, poses, pose_matrices),
}
ENERGIES = {name: read(kind) for name, (kind, _, _) in KINDS.items()} | {"UnitVector": read(op.UnitVector(3))}


def flip(stored: Real, like: Real) -> Real:
    """Quaternions with the signs of others."""
    result = stored.copy()
    result[..., :4] *= np.sign(np.sum(stored[..., :4] * like[..., :4], axis=-1, keepdims=True))
    return result


@pytest.mark.parametrize("name", KINDS)
def test_matrices_are_stored_and_given_back(name: str) -> None:
    _, draw, matrices_of = KINDS[name]
    rng = np.random.default_rng(0)
    a, x = draw(rng, 2, 3), draw(rng, 2, 3)
    bound = bind(ENERGIES[name].problem, dict(A=matrices_of(a), X=x))
    stored = bound.arrays["A"]
    np.testing.assert_allclose(flip(stored, a) if name in ("SO3", "SE3") else stored, a, atol=1e-15)
    np.testing.assert_allclose(bound.give_back("A", stored), matrices_of(a), atol=1e-15)
    np.testing.assert_array_equal(bound.arrays["X"], x)
    np.testing.assert_array_equal(bound.give_back("X", x), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", KINDS)
def test_what_comes_in_as_matrices_comes_out_as_matrices(name: str, dtype: Any) -> None:
    _, draw, matrices_of = KINDS[name]
    a = draw(np.random.default_rng(1), 2, 3)
    start = draw(np.random.default_rng(2), 2, 3)
    stored = op.solve(ENERGIES[name], dict(A=a, X=start), dtype=dtype).x["X"]
    found = op.solve(ENERGIES[name], dict(A=matrices_of(a), X=matrices_of(start)), dtype=dtype).x["X"]
    assert (stored.shape, found.shape) == (a.shape, matrices_of(a).shape)
    assert stored.dtype == found.dtype == dtype
    tolerance = 2e-5 if dtype == np.float32 else 1e-6
    np.testing.assert_allclose(found, matrices_of(a), atol=tolerance)
    np.testing.assert_allclose(matrices_of(stored.astype(np.float64)), matrices_of(a), atol=tolerance)


def test_every_rotation_matrix_has_its_quaternion() -> None:
    rng = np.random.default_rng(2)
    half_turns = 2 * np.einsum("ni,nj->nij", axes := unit_vectors(rng, 30, 3), axes) - np.eye(3)
    signed = [np.diag(s) for s in ([1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1])]
    R = np.concatenate([half_turns, signed, matrices(quaternions(rng, 100))])
    q = quaternions_of(R, np)
    np.testing.assert_allclose(np.linalg.norm(q, axis=1), 1, rtol=1e-15)
    np.testing.assert_allclose(Rotation.from_quat(q).as_matrix(), R, atol=1e-15)


def test_nearly_unit_elements_are_normalised_and_exact_ones_left_alone() -> None:
    q = quaternions(np.random.default_rng(3), 2, 3)
    off = q.copy()
    off[0, 1] *= 1.0005
    for value, dtype in ((q, np.float64), (q.astype(np.float32), np.float32)):
        np.testing.assert_array_equal(bind(ENERGIES["SO3"].problem, dict(A=value, X=value), dtype).arrays["X"], value)
    kept = off.copy()
    bound = bind(ENERGIES["SO3"].problem, dict(A=off, X=off)).arrays["X"]
    np.testing.assert_array_equal(off, kept)
    np.testing.assert_allclose(bound, q, atol=1e-15)
    single = bind(ENERGIES["SO3"].problem, dict(A=q.astype(np.float32), X=q)).arrays["A"]
    np.testing.assert_allclose(np.linalg.norm(single, axis=-1), 1, rtol=1e-15)
    rounded = np.round(matrices(q), 5)
    stored = bind(ENERGIES["SO3"].problem, dict(A=rounded, X=q)).arrays["A"]
    np.testing.assert_allclose(matrices(stored), rounded, atol=1e-5)


def test_whole_numbers_and_lists_will_do() -> None:
    bound = bind(ENERGIES["SO3"].problem, dict(A=[[[0, 0, 0, 1]]], X=np.eye(3, dtype=np.int64)[None, None]))
    np.testing.assert_array_equal(bound.arrays["A"], bound.arrays["X"])
    unit = bind(ENERGIES["UnitVector"].problem, dict(A=[[[0, 0, 1]]], X=[[[0, -1, 0]]]))
    np.testing.assert_array_equal(unit.arrays["X"], [[[0, -1, 0]]])


GOOD: dict[str, Any] = {
    name: dict(A=draw(np.random.default_rng(4), 2, 3), X=draw(np.random.default_rng(5), 2, 3))
    for name, (_, draw, _) in KINDS.items()
} | {"UnitVector": dict(A=np.tile([0.0, 0, 1], (2, 3, 1)), X=np.tile([1.0, 0, 0], (2, 3, 1)))}


def changed(array: Real, at: Any, value: Any) -> Real:
    result = array.copy()
    result[at] = value
    return result


SO3, SE3 = matrices(GOOD["SO3"]["X"]), pose_matrices(GOOD["SE3"]["X"])


@pytest.mark.parametrize(
    ("name", "x", "parts"),
    [
        ("SO3", changed(GOOD["SO3"]["X"], (1, 2), [0, 0, 0, 1.01]), ["X[1, 2]", "length 1.01", "np.linalg.norm"]),
        ("SO3", np.zeros((2, 3, 4)), ["X[0, 0]", "the quaternion (0, 0, 0, 0)", "length 0"]),
        ("SO2", changed(GOOD["SO2"]["X"], (0, 1), [1, 1]), ["X[0, 1]", "(cosine, sine) = (1, 1)", "length 1.41421"]),
        ("SE3", changed(GOOD["SE3"]["X"], (1, 0), [1, 1, 0, 0, 0, 0, 0]), ["X[1, 0]", "quaternion", "1.41421"]),
        ("SE2", changed(GOOD["SE2"]["X"], (1, 1), [0.5, 0, 1, 2]), ["X[1, 1]", "length 0.5"]),
        ("UnitVector", np.ones((2, 3, 3)), ["X[0, 0]", "the vector (1, 1, 1)", "length 1.73205"]),
        ("SO3", changed(SO3, (1, 1), 2 * np.eye(3)), ["X[1, 1]", "no rotation", "R^T R", "by 3"]),
        ("SO3", changed(SO3, (0, 2), np.diag([1, 1, -1])), ["X[0, 2]", "reflection", "determinant is -1"]),
        ("SO2", np.tile(np.diag([1.0, -1]), (2, 3, 1, 1)), ["X[0, 0]", "reflection"]),
        ("SE3", changed(SE3, (0, 1, 3, 3), 2), ["X[0, 1]", "no pose", "(0, 0, 0, 2)"]),
        ("SE3", changed(SE3, (1, 2, 0, 0), 7), ["X[1, 2]", "no rotation"]),
        ("SE2", np.ones((2, 3, 3, 3)), ["X[0, 0]", "no pose", "(1, 1, 1)"]),
        ("SO3", changed(SO3, (1, 2, 0, 1), np.nan), ["X[1, 2, 0, 1] = nan", "not finite"]),
        ("SO3", changed(GOOD["SO3"]["X"], (0, 0, 2), np.inf), ["X[0, 0, 2] = inf"]),
        ("SO3", np.zeros((2, 3, 3)), ["(H=2, W=3, 4)", "unit quaternions (x, y, z, w)", "(H=2, W=3, 3, 3): matrices"]),
        ("SO3", np.zeros((2, 3, 4, 4)), ["(H=2, W=3, 4)", "got (2, 3, 4, 4)"]),
        ("SO3", np.zeros((2,)), ["(H=2, W=3, 4)", "got (2,)"]),
        ("SE3", np.zeros((2, 3, 6)), ["(H=2, W=3, 7)", "(x, y, z, w, tx, ty, tz)", "(H=2, W=3, 4, 4): matrices"]),
        ("SO2", np.zeros((2, 3)), ["(H=2, W=3, 2)", "(cosine, sine)"]),
        ("UnitVector", np.zeros((2, 3, 3, 3)), ["(H, W, 3): unit vectors", "got (2, 3, 3, 3)"]),
        ("SO3", matrices(quaternions(np.random.default_rng(0), 2, 4)), ["W is 3 from 'A'"]),
        ("SO3", np.zeros((2, 3, 4), complex), ["'X'", "complex"]),
    ],
)
def test_mistakes_in_elements(name: str, x: Any, parts: list[str]) -> None:
    with pytest.raises(op.DataError) as caught:
        bind(ENERGIES[name].problem, GOOD[name] | dict(X=x))
    assert "test_data.py" in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_missing_data_is_asked_for_in_both_forms() -> None:
    with pytest.raises(op.DataError, match=r"unit quaternions \(x, y, z, w\), or \(H, W, 3, 3\): matrices"):
        bind(ENERGIES["SO3"].problem, dict(A=GOOD["SO3"]["A"]))


def test_updates_may_change_the_form() -> None:
    energy, q = ENERGIES["SO3"], GOOD["SO3"]
    bound = bind(energy.problem, q)
    R = matrices(quaternions(np.random.default_rng(6), 2, 3))
    first, arrays = bind_update(energy.problem, bound, dict(X=R))
    assert list(arrays) == ["X"]
    np.testing.assert_allclose(first.give_back("X", first.arrays["X"]), R, atol=1e-15)
    second, _ = bind_update(energy.problem, first, dict(A=R))
    assert second.give_back("X", second.arrays["X"]).shape == R.shape
    third, _ = bind_update(energy.problem, second, dict(X=q["X"]))
    np.testing.assert_array_equal(third.give_back("X", third.arrays["X"]), q["X"])
    with pytest.raises(op.DataError, match="no rotation"):
        bind_update(energy.problem, third, dict(X=2 * R))


def test_a_translation_that_does_not_fit_the_precision_is_named() -> None:
    far = changed(GOOD["SE3"]["X"], (1, 0, 4), 1e300)
    with pytest.raises(op.DataError, match=r"X\[1, 0, 4\] = 1e\+300 does not fit into float32, dtype=np"):
        bind(ENERGIES["SE3"].problem, GOOD["SE3"] | dict(X=far), np.float32)


# -- SciPy's rotations -----------------------------------------------------------------------------------------------

V = op.dims("V")
v = op.indices(V)
TURNS = op.Unknown("R", (V,), op.SO3)
MEASURED = op.Array("Q", (V,), op.SO3)
LINE = op.Energy(fit=(MEASURED[v].inverse() @ TURNS[v]).log())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_comes_in_as_scipys_rotations_comes_out_as_such(dtype: Any) -> None:
    start = (
        Rotation.random(5, random_state=1) if dtype == np.float32 else Rotation.from_rotvec(np.eye(3)[[0, 1, 2, 0, 1]])
    )
    goal = Rotation.from_rotvec(0.1 * np.arange(15).reshape(5, 3))
    result = op.solve(LINE, dict(R=start, Q=goal), device="cpu", dtype=dtype, max_iterations=100)
    found = result.x["R"]
    assert isinstance(found, Rotation)
    assert (found.inv() * goal).magnitude() == pytest.approx(np.zeros(5), abs=1e-3)
    as_numbers = op.solve(LINE, dict(R=start.as_quat(), Q=goal), device="cpu", dtype=dtype, max_iterations=100).x["R"]
    assert isinstance(as_numbers, np.ndarray)


def test_one_rotation_alone_and_in_a_session() -> None:
    R, Q = op.Unknown("R", (), op.SO3), op.Array("Q", (), op.SO3)
    energy = op.Energy(fit=(Q[()].inverse() @ R[()]).log())
    start, goal = Rotation.identity(), Rotation.from_euler("xyz", [0.1, 0.2, 0.3])
    assert energy.cost(dict(R=start, Q=goal)) == pytest.approx(0.5 * goal.magnitude() ** 2)
    session = op.compile(energy, "cpu", np.float64).start(dict(R=start.as_quat(), Q=goal))
    session.run()
    assert isinstance(session["R"], np.ndarray)
    session.update(R=start)
    session.run()
    assert isinstance(session["R"], Rotation)
    assert session["R"].single
    assert (session["R"].inv() * goal).magnitude() < 1e-6


def test_rotations_in_a_grid_bind_where_scipy_has_them() -> None:
    q = quaternions(np.random.default_rng(8), 2, 3)
    try:
        grid = Rotation.from_quat(q)
    except ValueError:
        pytest.skip("this SciPy has rows of rotations only")
    bound = bind(ENERGIES["SO3"].problem, dict(A=grid, X=grid))
    given = bound.give_back("X", bound.arrays["X"])
    assert isinstance(given, Rotation)
    np.testing.assert_allclose(given.as_matrix(), matrices(q), atol=1e-14)


@pytest.mark.parametrize("kind", [op.SO2, 4, None])
def test_rotations_are_data_of_nothing_else(kind: Any) -> None:
    A, x = op.Array("A", (V,), kind), op.Unknown("x", (V,))
    read = A[v].log() if kind is op.SO2 else A[v]
    with pytest.raises(op.DataError, match=r"'A' is given as SciPy's Rotation, .*op.Array\('A', ..., op.SO3\)"):
        op.Energy(fit=x[v] - read).cost(dict(A=Rotation.identity(3), x=np.zeros(3)))


def test_a_wrong_number_of_rotations() -> None:
    with pytest.raises(op.DataError, match=r"'R' must have shape \(V=3, 4\), got \(5, 4\)"):
        LINE.cost(dict(R=Rotation.identity(5), Q=Rotation.identity(3)))
