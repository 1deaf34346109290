"""Unknowns on manifolds from end to end: generated code against the dense Jacobian, sessions, known solutions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import optpy as op
from optpy import ir
from optpy.energy.data.binding import bind
from optpy.energy.derive.linearised import linearise
from optpy.energy.derive.vectors import candidate, vector
from optpy.ir import Group, VectorKind, tangent
from optpy.symbolic.count import count
from tests.support.manifold_data import (
    Real,
    matrices,
    moved_plane_pose,
    moved_pose,
    moved_rotation,
    moved_turn,
    moved_unit_vector,
    plane_pose_matrices,
    plane_poses,
    pose_matrices,
    poses,
    quaternions,
    turns,
    unit_vectors,
)
from tests.support.operator_checks import Operators, check_everything

pytestmark = pytest.mark.native

H, W = op.dims("H W")
i, j = op.indices(H, W)

PRECISIONS = [(np.float32, 2e-4), (np.float64, 1e-6)]
SOLVERS = [("gn", "jacobi"), ("lm", "jacobi"), ("gn", "block_jacobi"), ("lm", "block_jacobi")]
TIGHT: dict[str, Any] = dict(function_tolerance=1e-14, max_iterations=100, eta=1e-6)


# -- generated code ----------------------------------------------------------------------------------------------------


def everything() -> op.Energy:
    """Every manifold, beside an ordinary unknown on the same grid and one on another; elements fixed."""
    R2, R3 = op.Unknown("R2", (H, W), op.SO2), op.Unknown("R3", (H, W), op.SO3)
    T2, T3 = op.Unknown("T2", (H,), op.SE2), op.Unknown("T3", (H,), op.SE3)
    N, Z = op.Unknown("N", (H, W), op.UnitVector(3)), op.Array("Z", (H, W), op.SE3)
    X, mask = op.Unknown("X", (H, W), 3), op.Array("mask", (H, W), dtype=bool)
    return op.Energy(
        fixed={R3: mask[i, j], T3: op.value(i) == 1},
        turn=R2[i, j] @ X[i, j][:2] - R2[i, j + 1] @ [1, 2],
        between=(R3[i, j].T @ R3[i, j + 1]).log(),
        align=R3[i, j] @ (X[i, j] - X[i, j + 1]) - [1, 2, 3],
        plane=(T2[i].inverse() @ T2[i - 1]).log(),
        pose=(Z[i, j].inverse() @ T3[i]).log(),
        normal=[op.cross(N[i, j], N[i + 1, j]), op.dot(N[i, j], X[i, j])],
        global_pose=T3[0] @ X[i, j],
    )


def data_of_everything(height: int, width: int) -> dict[str, Any]:
    rng = np.random.default_rng(height * 10 + width)
    grid = height, width
    data = dict(
        R2=turns(rng, *grid), R3=quaternions(rng, *grid), T2=plane_poses(rng, height), T3=poses(rng, height),
        N=unit_vectors(rng, *grid, 3), Z=poses(rng, *grid), X=rng.normal(size=(*grid, 3)),
    )  # fmt: skip
    return data | dict(mask=rng.random(grid) < 0.3)


EVERYTHING = everything()


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (2, 5), (3, 35)])
def test_every_routine_agrees_with_the_dense_jacobian(size: tuple[int, int]) -> None:
    check_everything(EVERYTHING, data_of_everything(*size), epsilon=1e-10)


def test_float32_is_as_close_as_its_precision() -> None:
    check_everything(EVERYTHING, data_of_everything(3, 4), np.float32, epsilon=2e-4)


MOVES: dict[str, Any] = {
    "R2": moved_turn, "R3": moved_rotation, "T2": moved_plane_pose, "T3": moved_pose, "N": moved_unit_vector,
    "X": lambda x, delta: x + delta,
}  # fmt: skip


@pytest.mark.parametrize("size", [0.0, 1e-7, 1e-3, 1.0, 10.0])
@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_a_step_moves_every_unknown_along_its_manifold(size: float, dtype: Any, epsilon: float) -> None:
    data, ops = data_of_everything(3, 4), Operators(EVERYTHING, data_of_everything(3, 4), dtype)
    rng = np.random.default_rng(2)
    for u in EVERYTHING.problem.unknowns:
        grid = tuple(ops.bound.sizes[d] for d in u.dims)
        step = size * rng.normal(size=(*grid, tangent(u).channels))
        ops.problem.buffers.write(vector(VectorKind.DELTA, u), step)
        ops.problem.executor.queue(Group.STEP)
        found = ops.problem.buffers.read(candidate(u)).astype(np.float64)
        expected = np.array([MOVES[u.name](data[u.name][n], step[n]) for n in np.ndindex(grid)]).reshape(found.shape)
        if u.name in ("R3", "T3"):
            expected[..., :4] *= np.sign(np.sum(expected[..., :4] * found[..., :4], axis=-1, keepdims=True))
        np.testing.assert_allclose(found, expected, atol=epsilon * (1 + size))
        if size == 0:
            np.testing.assert_array_equal(found, ops.problem.read(u))


def test_the_norms_of_a_step_are_those_of_the_tangent() -> None:
    T = op.Unknown("T", (H,), op.SE3)
    energy = op.Energy(r=T[i].log())
    data = dict(T=poses(np.random.default_rng(0), 5))
    ops = Operators(energy, data)
    step = np.random.default_rng(1).normal(size=(5, 6))
    ops.problem.buffers.write(vector(VectorKind.DELTA, T.field), step)
    found = ops.problem.try_step()
    assert found.step_norm == pytest.approx(np.linalg.norm(step))
    assert found.x_norm == pytest.approx(np.sqrt(5 + np.sum(data["T"][:, 4:] ** 2)))


def test_generated_code_reads_no_tangent() -> None:
    """Only the step itself knows that there are tangents; their values are 0 everywhere else."""
    solver = op.compile(EVERYTHING, dtype=np.float64)
    fields = {a.field for group in solver.routines.values() for r in group for a in r.accesses()}
    assert not [f for f in fields if f.role is ir.Role.TANGENT]
    for group in ("cost", "evalF"):
        for routine in solver.routines[group]:
            assert not [a for a in routine.accesses() if a.field.role is ir.Role.VECTOR]


def test_turning_data_takes_few_operations() -> None:
    """A vector of data is turned by 15 multiplications and 9 by 2; the derivatives are its entries and negatives."""
    R, x, y = op.Unknown("R", (H,), op.SO3), op.Array("x", (H,), 3), op.Array("y", (H,), 3)
    energy = op.Energy(r=R[i] @ x[i] - y[i])
    (linearised,) = [linearise(r) for r in energy.problem.residuals]
    partials = [d for p in linearised.partials for d in p.values()]
    assert count(linearised.values).multiply <= 24
    assert count(partials).multiply <= 24 + 9


# -- sessions ----------------------------------------------------------------------------------------------------------


def averaging() -> op.Energy:
    """Rotations on a grid near given ones, and near their neighbours'."""
    R, A = op.Unknown("R", (H, W), op.SO3), op.Array("A", (H, W), op.SO3)
    w, mask = op.params("w"), op.Array("mask", (H, W), dtype=bool)
    return op.Energy(
        fixed={R: mask[i, j]},
        fit=(A[i, j].inverse() @ R[i, j]).log(),
        reg=[w * (R[i, j].inverse() @ R[i + 1, j]).log(), w * (R[i, j].inverse() @ R[i, j + 1]).log()],
    )


AVERAGING = averaging()


def averaging_data(height: int, width: int, spread: float = 0.3) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    middle = Rotation.from_quat(quaternions(rng))
    A = (middle * Rotation.from_rotvec(spread * rng.normal(size=(height * width, 3)))).as_quat()
    A = A.reshape(height, width, 4)
    return dict(R=A.copy(), A=A, w=2.0, mask=np.zeros((height, width), bool))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fixed_rotations_keep_every_bit(dtype: Any) -> None:
    data = averaging_data(6, 70)
    data["mask"] = np.random.default_rng(0).random((6, 70)) < 0.5
    data["R"] = data["R"].astype(dtype)
    found = op.solve(AVERAGING, data, dtype=dtype).x["R"]
    np.testing.assert_array_equal(found[data["mask"]], data["R"][data["mask"]])
    assert (np.abs(found[~data["mask"]] - data["R"][~data["mask"]]).max(axis=-1) > 1e-4).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-6)


def test_a_session_reads_and_takes_rotations_in_either_form() -> None:
    data = averaging_data(3, 4)
    session = op.compile(AVERAGING, dtype=np.float64).start(data, method="gn", max_iterations=20)
    np.testing.assert_array_equal(session["R"], data["R"])
    session.step()
    after = session["R"]
    assert after.shape == (3, 4, 4)
    session.update(R=matrices(after))
    np.testing.assert_allclose(session["R"], matrices(after), atol=1e-15)
    session.run()
    np.testing.assert_allclose(session.result().x["R"], session["R"])
    session.update(R=data["R"], w=0.0)
    session.run()
    np.testing.assert_allclose(matrices(session["R"]), matrices(data["A"]), atol=1e-9)
    with pytest.raises(op.DataError, match=r"R\[0, 0\]: the quaternion"):
        session.update(R=2 * data["R"])


@pytest.mark.parametrize("as_matrix", [False, True])
def test_one_rotation_for_the_whole_grid(as_matrix: bool) -> None:
    """An unknown without axes: the singular value decomposition's answer for all points at once."""
    R, P, Q = op.Unknown("R", (), op.SO3), op.Array("P", (H, W), 3), op.Array("Q", (H, W), 3)
    energy = op.Energy(r=R[()] @ P[i, j] - Q[i, j])
    rng = np.random.default_rng(9)
    p, noise = rng.normal(size=(2, 4, 5, 3))
    q = np.einsum("ab,hwb->hwa", matrices(quaternions(rng)), p) + 0.1 * noise
    start = np.eye(3) if as_matrix else np.array([0, 0, 0, 1.0])
    result = op.solve(energy, dict(R=start, P=p, Q=q), dtype=np.float64, **TIGHT)
    best, _ = Rotation.align_vectors(q.reshape(-1, 3), p.reshape(-1, 3))
    assert result.x["R"].shape == start.shape
    found = result.x["R"] if as_matrix else matrices(result.x["R"])
    np.testing.assert_allclose(found, best.as_matrix(), atol=1e-5)


def test_the_same_data_gives_the_same_bits() -> None:
    data = averaging_data(9, 80)
    results = [op.solve(AVERAGING, data, threads=n, max_iterations=4).x["R"] for n in (1, 2, 2)]
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


# -- known solutions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize(("method", "preconditioner"), [*SOLVERS, ("lm", "multigrid")])
def test_averages_of_rotations(method: Any, preconditioner: Any, dtype: Any, tolerance: float) -> None:
    """With an infinitely stiff grid all rotations are the mean, at which the logarithms of the data add up to 0."""
    data = averaging_data(3, 4)
    result = op.solve(AVERAGING, data, dtype=dtype, method=method, preconditioner=preconditioner, **TIGHT)
    assert result.success, result.message
    gradient = AVERAGING.jacobian(data | result.x).T @ stacked(AVERAGING.residuals(data | result.x))
    np.testing.assert_allclose(gradient, 0, atol=30 * tolerance)
    # The terms between neighbours cancel, as far as they are small: what is left is the sum over the data.
    A, R = (Rotation.from_quat(x.reshape(-1, 4)) for x in (data["A"], result.x["R"]))
    assert np.linalg.norm((A.inv() * A.mean()).as_rotvec().sum(axis=0)) < 0.05
    assert (R.mean().inv() * A.mean()).magnitude() < 0.01


def stacked(residuals: dict[str, Any]) -> Real:
    return np.concatenate([r.ravel() for r in residuals.values()])


@functools.cache
def alignment() -> op.Energy:
    R, P, Q = op.Unknown("R", (H,), op.SO3), op.Array("P", (H, W), 3), op.Array("Q", (H, W), 3)
    return op.Energy(r=R[i] @ P[i, j] - Q[i, j])


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize(("method", "preconditioner"), SOLVERS)
def test_points_are_aligned_as_by_kabsch(method: Any, preconditioner: Any, dtype: Any, tolerance: float) -> None:
    """One rotation for each of 5 pairs of point sets: the solution is that of the singular value decomposition."""
    energy = alignment()
    rng = np.random.default_rng(3)
    p = rng.normal(size=(5, 9, 3))
    truth = Rotation.from_rotvec(rng.normal(size=(5, 3)))
    q = np.stack([truth[k].apply(p[k]) for k in range(5)]) + 0.05 * rng.normal(size=p.shape)
    start = np.tile([0.0, 0, 0, 1], (5, 1))
    options = TIGHT | dict(method=method, preconditioner=preconditioner)
    result = op.solve(energy, dict(R=start, P=p, Q=q), dtype=dtype, **options)
    assert result.success, result.message
    for k in range(5):
        best, _ = Rotation.align_vectors(q[k], p[k])
        np.testing.assert_allclose(matrices(result.x["R"][k]), best.as_matrix(), atol=tolerance)


@functools.cache
def odometry(space: str) -> op.Energy:
    """Steps between the poses of a chain, of which the first is fixed."""
    kind = op.SE2 if space == "plane" else op.SE3
    T, Z = op.Unknown("T", (H,), kind), op.Array("Z", (H,), kind)
    return op.Energy(odometry=(Z[i].inverse() @ (T[i].inverse() @ T[i + 1])).log(), fixed={T: op.value(i) == 0})


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize(("method", "preconditioner"), SOLVERS)
@pytest.mark.parametrize("space", ["plane", "space"])
def test_a_chain_of_poses_is_the_product_of_its_steps(
    space: str, method: Any, preconditioner: Any, dtype: Any, tolerance: float
) -> None:
    """From a fixed first pose, with exact measurements: T[k] = T[0] Z[0] ... Z[k - 1]."""
    energy, draw = odometry(space), plane_poses if space == "plane" else poses
    as_matrices = plane_pose_matrices if space == "plane" else pose_matrices
    rng = np.random.default_rng(4)
    z, start = draw(rng, 6), draw(rng, 6)
    m = chain(as_matrices(start[0]), as_matrices(z[:-1]))
    start[1:] = perturbed(space, m[1:], rng)
    options = TIGHT | dict(method=method, preconditioner=preconditioner)
    result = op.solve(energy, dict(T=start, Z=z), dtype=dtype, **options)
    assert result.success, result.message
    np.testing.assert_allclose(as_matrices(result.x["T"].astype(np.float64)), m, atol=20 * tolerance)


def chain(first: Real, steps: Real) -> Real:
    """The partial products of matrices."""
    found = [first]
    for step in steps:
        found.append(found[-1] @ step)
    return np.stack(found)


def perturbed(space: str, m: Real, rng: np.random.Generator) -> Real:
    """Stored poses near matrices."""
    if space == "plane":
        angle = np.arctan2(m[:, 1, 0], m[:, 0, 0]) + 0.4 * rng.normal(size=len(m))
        return np.stack([np.cos(angle), np.sin(angle), *(m[:, :2, 2] + 0.3 * rng.normal(size=(len(m), 2))).T], axis=1)
    turn = Rotation.from_rotvec(0.3 * rng.normal(size=(len(m), 3))) * Rotation.from_matrix(m[:, :3, :3])
    return np.concatenate([turn.as_quat(), m[:, :3, 3] + 0.3 * rng.normal(size=(len(m), 3))], axis=1)


@functools.cache
def between_two_ends() -> op.Energy:
    N = op.Unknown("N", (H, W), op.UnitVector(3))
    last = op.value(j) == op.value(W - 1)
    return op.Energy(reg=N[i, j] - N[i, j + 1], fixed={N: (op.value(j) == 0) | last})


@pytest.mark.parametrize(("dtype", "tolerance"), PRECISIONS)
@pytest.mark.parametrize(("method", "preconditioner"), SOLVERS)
def test_smoothed_normals_lie_on_the_great_circle(
    method: Any, preconditioner: Any, dtype: Any, tolerance: float
) -> None:
    """Between two fixed unit vectors, a chain of nearest neighbours is evenly spaced on the arc between them."""
    energy = between_two_ends()
    count, angle = 7, 2.0
    arc = angle * np.arange(count) / (count - 1)
    a, b = np.array([1.0, 0, 0]), np.array([0, 0.6, 0.8])
    expected = np.cos(arc)[:, None] * a + np.sin(arc)[:, None] * b
    start = expected + 0.3 * np.random.default_rng(5).normal(size=(3, count, 3))
    start /= np.linalg.norm(start, axis=-1, keepdims=True)
    start[:, [0, -1]] = expected[[0, -1]]
    options = TIGHT | dict(method=method, preconditioner=preconditioner)
    result = op.solve(energy, dict(N=start), dtype=dtype, **options)
    np.testing.assert_allclose(result.x["N"], np.tile(expected, (3, 1, 1)), atol=10 * tolerance)


def test_a_linear_chain_of_turns_takes_one_step() -> None:
    """Angles add up: in SO2 the residuals are linear in the tangent, whatever the starting angles."""
    R, A = op.Unknown("R", (H,), op.SO2), op.Array("A", (H,), op.SO2)
    energy = op.Energy(fit=(A[i].T @ R[i]).log(), reg=2 * (R[i].T @ R[i + 1]).log())
    angles = 0.2 * np.random.default_rng(6).normal(size=40) + np.pi  # around where angles wrap around
    a = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    result = op.solve(energy, dict(R=a, A=a), dtype=np.float64, method="gn", eta=0, r_tolerance=1e-14, max_iterations=1)
    D = np.diff(np.eye(40), axis=0)
    smooth = np.linalg.solve(np.eye(40) + 4 * D.T @ D, angles)
    np.testing.assert_allclose(result.x["R"], np.stack([np.cos(smooth), np.sin(smooth)], axis=1), atol=1e-9)


def test_quaternions_of_either_sign_are_one_rotation() -> None:
    data = averaging_data(3, 4)
    signs = np.where(np.random.default_rng(7).random((3, 4, 1)) < 0.5, 1, -1)
    plain = op.solve(AVERAGING, data, dtype=np.float64).x["R"]
    mixed = op.solve(AVERAGING, data | dict(R=signs * data["R"], A=-signs * data["A"]), dtype=np.float64).x["R"]
    np.testing.assert_allclose(mixed, signs * plain, atol=1e-12)


def test_rotations_far_from_the_solution_are_found_by_the_trust_region() -> None:
    energy = alignment()
    rng = np.random.default_rng(8)
    p = rng.normal(size=(50, 6, 3))
    turn = Rotation.from_rotvec(rng.uniform(2.5, 3.0, (50, 1)) * unit_vectors(rng, 50, 3))
    q = np.stack([turn[k].apply(p[k]) for k in range(50)])
    result = op.solve(energy, dict(R=np.tile(np.eye(3), (50, 1, 1)), P=p, Q=q), dtype=np.float64, **TIGHT)
    np.testing.assert_allclose(result.x["R"], turn.as_matrix(), atol=1e-6)
    bound = bind(energy.problem, dict(R=result.x["R"], P=p, Q=q))  # what came out may go in again
    assert bound.arrays["R"].shape == (50, 4)
