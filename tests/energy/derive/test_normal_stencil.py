"""J^T J in memory: what is stored, what products read, and where it can be; numbers against the dense Jacobian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.device_choice import DeviceChoice
from optpy.api.pipeline import derive, whole_schedule
from optpy.api.plan import build
from optpy.energy.derive.linearised import LinearisedResidual, linearise
from optpy.energy.derive.normal_stencil import normal_stencils, stencil_obstacle
from optpy.ir import Group, Target
from optpy.kernels.runtime.cuda.device import Device
from tests.support.operator_checks import check_everything

H, W, N, E = op.dims("H W N E")
i, j, n, e = op.indices(H, W, N, E)
X, A, M = op.Unknown("X", (H, W), 2), op.Array("A", (H, W), 2), op.Array("M", (H, W), dtype=bool)
b, Y, s, w = op.Unknown("b", (), 3), op.Unknown("Y", (N,), 2), op.Unknown("s", ()), op.params("w")
graph = op.Graph("g", E, (N, N))
first, second = graph[e]
Photo, T = op.Array("Photo", (E,), 3), op.Array("T", (N,))


def sources(**terms: Any) -> list[LinearisedResidual]:
    return [linearise(r) for r in op.Energy(**terms).problem.residuals]


def entries(**terms: Any) -> set[tuple[int, int, tuple[int, ...]]]:
    (stencil,) = normal_stencils(sources(**terms))
    return {(row, column, offset) for (_, row), (_, column), offset in stencil.entries}


def test_one_half_of_the_stencil_is_stored_and_all_residuals_share_it() -> None:
    right = A[i, j][0] * (X[i, j][0] - X[i, j + 1][0])
    assert entries(r=right) == {(0, 0, (0, 0)), (0, 0, (0, 1))}
    both = dict(right=right, down=A[i, j][1] * (X[i, j][0] - X[i + 1, j][0]), fit=A[i, j] * X[i, j])
    assert entries(**both) == {(0, 0, (0, 0)), (0, 0, (0, 1)), (0, 0, (1, 0)), (1, 1, (0, 0))}
    assert entries(r=A[i, j][0] * X[i, j][0] * X[i, j + 1][1]) == {(0, 0, (0, 0)), (1, 1, (0, 0)), (0, 1, (0, 1))}


def test_what_is_the_same_everywhere_is_not_stored() -> None:
    (stencil,) = normal_stencils(sources(smooth=w * (X[i, j] - X[i, j + 1]), fit=A[i, j] * X[i, j]))
    (routine,) = stencil.stores
    assert len(routine.assignments) == 2  # the diagonals; beside them there is -w^2 within bounds
    (plain,) = normal_stencils(sources(smooth=w * (X[i, j] - X[i, j + 1])))
    assert plain.stores == ()


@pytest.mark.parametrize(
    ("residual", "why"),
    [
        (X[i, j][0] * s[()], "several grids"),
        (Y[n][0] * Y[2 * n][0], "not the same everywhere"),
        (sum(Y[n + k][0] ** 2 for k in range(65)), "reads 65 elements, and the most is 64"),
    ],
)
def test_where_there_is_none(residual: object, why: str) -> None:
    (found,) = sources(r=residual)
    assert why in str(stencil_obstacle(found))
    with pytest.raises(op.OptionError, match=rf"'residual r: JTJ': .*what it adds to J\^T J is no stencil: .*{why}"):
        whole_schedule(op.Energy(r=residual).problem, "float32", Target.CPU, op.Schedule(residuals={"r": "JTJ"}))


def energy() -> op.Energy:
    """On grids, with a mask; along a loop; over the edges at one end; and what is no stencil."""
    return op.Energy(
        fit=op.sin(X[i, j][0] * A[i, j][1]) * X[i, j][1],
        reg=[A[i, j][0] * op.exp(X[i, j] - X[i + 1, j]), X[i, j][0] * X[i, j + 2][1] - X[i - 1, j + 1][0]],
        plain=w * (X[i, j] - X[i, j + 1]),
        curve=b[()][0] * op.exp(b[()][1] * T[n]) + b[()][2],
        seen=op.vector(*(Photo[e][k] * op.exp(Y[first][0]) * Y[first][1] ** (k + 1) for k in range(3))),
        joined=Y[first] - Y[second],
        fixed={X: M[i, j], Y: op.value(n) == 1},
    )


KEPT = dict.fromkeys(("reg[0]", "reg[1]", "plain", "curve", "seen"), "JTJ") | {"fit": "J, JTJ"}


def data(sizes: tuple[int, int, int, int]) -> dict[str, Any]:
    rng, (height, width, count, edges) = np.random.default_rng(0), sizes
    normal: dict[str, Any] = dict(
        X=(height, width, 2), A=(height, width, 2), b=3, Y=(count, 2), T=count, Photo=(edges, 3)
    )
    given: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in normal.items()}
    return given | dict(M=rng.random((height, width)) < 0.2, w=0.7, g=rng.integers(0, count, (edges, 2)))


SIZES = ((1, 1, 1, 1), (5, 7, 3, 9), (2, 9, 20, 4), (6, 70, 5, 40))


@pytest.mark.native
@pytest.mark.parametrize("terms", ["merged", "separate"])
def test_products_by_it_agree_with_the_dense_jacobian(terms: str) -> None:
    solver = build(energy(), "float64", op.Schedule(residuals=KEPT, terms={"*": terms}))
    for sizes in SIZES:
        check_everything(energy(), data(sizes), solver=solver)


@pytest.mark.emulated
def test_products_by_it_agree_with_the_dense_jacobian_on_a_device(gpu: Device) -> None:
    choice = DeviceChoice(gpu, "as asked", False)
    solver = build(
        energy(), "float64", op.Schedule(residuals=KEPT | {"joined": "scatter"}, terms={"reg": "separate"}), choice
    )
    for sizes in SIZES[1:3]:
        check_everything(energy(), data(sizes), solver=solver)


@pytest.mark.native
def test_products_visit_no_residual_whose_part_is_stored() -> None:
    only = op.Energy(curve=b[()][0] * op.exp(b[()][1] * T[n]) + b[()][2])
    solver = op.compile(only, "cpu", np.float64, schedule=op.Schedule(residuals={"curve": "JTJ"}))
    assert "JTJ" in solver.dump("applyJTJ", stage="routine")
    assert "T[" not in solver.dump("applyJTJ", stage="routine")
    (line,) = (x for x in str(solver.schedule).splitlines() if x.startswith("residual"))
    assert line == "residual curve: JTJ  # as asked"
    assert op.Schedule.parse(str(solver.schedule)) == solver.schedule


def test_separate_terms_have_passes_of_their_own() -> None:
    two = op.Energy(fit=A[i, j] * X[i, j], reg=X[i, j] - X[i, j + 1], other=s[()] - 1)
    merged, apart = (
        derive(two.problem, "float32", op.Schedule(terms={"*": t})).routines.groups for t in ("merged", "separate")
    )
    names = {group: [r.name for r in apart[group]] for group in (Group.PRODUCT, Group.GRADIENT, Group.COST)}
    assert names[Group.PRODUCT] == ["applyJTJ_0", "applyJTJ_0_term1", "applyJTJ_1"]
    assert [len(x[Group.COST]) for x in (merged, apart)] == [2, 3]
    assert {a.field.name for a in apart[Group.PRODUCT][1].accesses()} == {"Ap.X", "p.X"}  # the other one reads A
    schedule = derive(two.problem, "float32", op.Schedule(terms={"reg": "separate"})).schedule
    assert [str(t) for t in schedule.terms] == ["fit: merged", "reg: separate", "other: merged"]
    assert op.Schedule.parse(str(schedule)).terms == schedule.terms
    with pytest.raises(op.OptionError, match="there is no other term"):
        derive(op.Energy(r=X[i, j]).problem, "float32", op.Schedule(terms={"r": "separate"}))
    with pytest.raises(op.OptionError, match="did you mean 'reg'"):
        derive(two.problem, "float32", op.Schedule(terms={"rag": "separate"}))
