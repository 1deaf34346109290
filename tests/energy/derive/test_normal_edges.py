"""J^T J kept at edges and vertices: what is stored, what products read, and numbers against the dense Jacobian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.device_choice import DeviceChoice
from optpy.api.pipeline import derive, whole_schedule
from optpy.api.plan import build
from optpy.energy.derive.linearised import LinearisedResidual, linearise
from optpy.energy.derive.normal_edges import edges_obstacle, normal_edges
from optpy.energy.derive.normal_stencil import normal_stencils
from optpy.ir import Group, Target
from optpy.kernels.runtime.cuda.device import Device
from tests.support.operator_checks import check_everything

V, C, E, H, W = op.dims("V C E H W")
v, e = op.indices(V, E)
i, j = op.indices(H, W)
X, Angle, A = op.Unknown("X", (V,), 3), op.Unknown("Angle", (V,), 3), op.Array("A", (V,), 3)
Camera, Z, s = op.Unknown("Camera", (C,), 2), op.Unknown("Z", (H, W)), op.Unknown("s", ())
Weight, Seen = op.Array("Weight", (E,)), op.Array("Seen", (E,), 2)
w = op.params("w")
a, b = op.Graph("g", E, (V, V))[e]
c, x = op.Graph("seen", E, (C, V))[e]
pixel, near = op.Graph("match", E, ((H, W), V))[e]


def sources(**terms: Any) -> list[LinearisedResidual]:
    return [linearise(r) for r in op.Energy(**terms).problem.residuals]


def rigid(n: Any, m: Any) -> Any:
    return w * ((X[n] - X[m]) - op.rotate3d(Angle[n], A[n] - A[m]))


def test_differences_keep_no_diagonal() -> None:
    """The sum over edges of W^2 (p_a - p_b) has all digits of smooth p."""
    smooth = sources(smooth=Weight[e] * (X[a] - X[b]))
    (kept,) = normal_edges(smooth)
    assert len(kept.stores) == 1  # one number for three channels
    assert len(kept.implied) == 6
    assert not kept.beside
    (stencil,) = normal_stencils(smooth, kept.implied)
    assert not stencil.entries
    assert stencil.product == {}
    (other,) = normal_edges(sources(other=Weight[e] * (X[a] - 2 * X[b])))
    assert not other.implied
    assert len(other.beside) == 6


def test_residuals_over_one_graph_share_what_is_kept() -> None:
    both = sources(first=Weight[e] * (X[a] - X[b]), second=w * X[a] * X[b])
    (kept,) = normal_edges(both)
    alone = [normal_edges([s])[0] for s in both]
    assert len(kept.stores) == 3
    assert [len(x.stores) for x in alone] == [1, 3]
    assert not kept.implied


def test_products_read_no_residual() -> None:
    energy = op.Energy(reg=rigid(a, b))
    groups = derive(energy.problem, "float32", op.Schedule(residuals={"reg": "JTJ"})).routines.groups
    (product,) = groups[Group.PRODUCT]
    assert {x.field.name for x in product.accesses()} == {"p.X", "p.Angle", "JTJ.edges.E", "JTJ.V"}
    assert [r.name for r in groups[Group.JACOBIAN]] == ["jacobian_edges_0"]
    for group in (Group.GRADIENT, Group.GRADIENT_BLOCKS):  # the same loop has the diagonal blocks
        (gradient,) = groups[group]
        assert "JTJ.V" in {s.target.field.name for s in gradient.assignments}
    with_j = derive(energy.problem, "float32", op.Schedule(residuals={"reg": "J, JTJ"})).routines.groups
    assert "jacobian_edges_0" not in [r.name for r in with_j[Group.JACOBIAN]]  # w J is there


@pytest.mark.parametrize(
    ("residual", "why"),
    [
        (op.sum(Z[i, j] ** 2, over=(i, j)) * X[a][0], "reads an op.sum of unknowns"),
        (sum(op.dot(X[a + k], X[b - k]) for k in range(11)), "reads 66 numbers of unknowns, and the most is 64"),
    ],
)
def test_where_it_cannot_be(residual: object, why: str) -> None:
    problem = op.Energy(r=residual, plain=X[v]).problem
    refusal = rf"'residual r: JTJ': what it adds to J\^T J cannot be kept: .*{why}.*; of its edges J, Jp or both can be"
    with pytest.raises(op.OptionError, match=refusal):
        whole_schedule(problem, "float32", Target.CPU, op.Schedule(residuals={"r": "JTJ"}))


def test_no_unknown_is_an_obstacle() -> None:
    (found,) = sources(r=op.stop_gradient(X[a]) - A[b])
    assert edges_obstacle(found) == "it reads no unknown"


def energy() -> op.Energy:
    """Two unknowns at vertices, two graphs, cameras and points, pixels, a robust loss, neighbours, one number."""
    return op.Energy(
        fit=X[v] - A[v],
        reg=rigid(a, b),
        smooth=Weight[e] * (X[a] - X[b]),
        robust=op.robust(X[a] * X[b][0] - 1, "huber", scale=0.5),
        seen=op.exp(Camera[c] * X[x][0]) * X[x][1] - Seen[e],
        match=Weight[e] * (Z[pixel] * X[near][2] - Z[pixel[0], pixel[1] + 1]) * Z[pixel[0], pixel[1] + 1],
        whole=s[()] * X[a][1] - X[b + 1][0],
        fixed={X: op.value(v) == 1, Z: op.value(i) == 0},
    )


KEPT = ("reg", "smooth", "robust", "seen", "match", "whole")
SCHEDULES = (
    dict.fromkeys(KEPT, "JTJ"),
    dict.fromkeys((*KEPT, "fit"), "JTJ") | dict.fromkeys(("robust", "seen"), "J, JTJ"),
    {"reg": "J, JTJ", "match": "JTJ", "robust": "J, Jp", "whole": "inline"},
)


def data(vertices: int, edges: int) -> dict[str, Any]:
    """With a loop, an edge that is there twice, and vertices without any."""
    rng = np.random.default_rng(vertices)
    shapes: dict[str, Any] = dict(X=(vertices, 3), Angle=(vertices, 3), A=(vertices, 3), Camera=(3, 2), Z=(4, 5))
    found: dict[str, Any] = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    found |= dict(Weight=rng.normal(size=edges), Seen=rng.normal(size=(edges, 2)), s=0.3, w=0.7)
    ends, columns = rng.integers(0, max(vertices - 1, 1), edges), [4, 5, max(vertices - 1, 1)]
    g = np.stack([ends, rng.permutation(ends)], axis=1)
    g[:1] = g[-1:] = g[:1, :1]
    seen = np.stack([rng.integers(0, 3, edges), ends], axis=1)
    return found | dict(g=g, seen=seen, match=rng.integers(0, columns, (edges, 3)))


@pytest.mark.native
@pytest.mark.parametrize("residuals", SCHEDULES, ids=["all", "fit too", "some"])
def test_products_by_it_agree_with_the_dense_jacobian(residuals: dict[str, str]) -> None:
    solver = build(energy(), "float64", op.Schedule(residuals=residuals))
    for sizes in ((1, 1), (6, 17), (40, 90)):
        check_everything(energy(), data(*sizes), solver=solver)
    assert op.Schedule.parse(str(solver.schedule)) == solver.schedule


@pytest.mark.native
def test_terms_may_be_separate() -> None:
    schedule = op.Schedule(residuals=SCHEDULES[1], terms={"reg": "separate", "smooth": "separate"})
    check_everything(energy(), data(6, 17), solver=build(energy(), "float64", schedule))


@pytest.mark.emulated
def test_products_by_it_agree_with_the_dense_jacobian_on_a_device(gpu: Device) -> None:
    schedule = op.Schedule(residuals=SCHEDULES[0] | {"smooth": "scatter"})
    solver = build(energy(), "float64", schedule, DeviceChoice(gpu, "as asked", False))
    check_everything(energy(), data(6, 17), solver=solver)


@pytest.mark.native
def test_a_solve_with_it_ends_where_one_without_does() -> None:
    found = [
        op.compile(energy(), "cpu", np.float64, schedule=op.Schedule(residuals=dict.fromkeys(KEPT, way))).solve(
            data(6, 17), method="lm", max_iterations=8, preconditioner="jacobi"
        )
        for way in ("J", "JTJ")
    ]
    assert found[1].cost == pytest.approx(found[0].cost, rel=1e-6)
    assert found[1].cost < found[1].initial_cost
