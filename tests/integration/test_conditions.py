"""Energies with dear work under conditions, by branches: on the CPU and on the emulated device, against the dense J."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.device_choice import DeviceChoice
from optpy.api.pipeline import derive
from optpy.api.plan import Solver, build
from optpy.ir import Schedule
from optpy.kernels.runtime.cuda.device import Device
from tests.support.operator_checks import Operators, check_everything

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (H, W))
A = op.Array("A", (H, W))
Lit, Wet = (op.Array(name, (H, W), dtype=np.uint8) for name in ("Lit", "Wet"))
x, y = X[i, j], Y[i, j]

one_by_one = sum(op.atan(k * x + y) * op.sqrt(A[i, j] + k) / A[i, j] for k in range(1, 4))
in_vectors = sum(op.exp(-k * x * y) * op.log(A[i, j]) * op.sin(y + k) for k in range(1, 4))
across = (x - X[i, j + 1]) * (Y[i + 1, j] - y) / (A[i, j] * A[i, j + 1]) + op.exp(x - X[i + 1, j])
energy = op.Energy(
    lit=op.where((Lit[i, j] != 0) & (A[i, j] > -5), one_by_one - 1, 0),
    wet=op.where(Wet[i, j] != 0, in_vectors, 0),
    edge=op.where((Wet[i, j] != 0) & (Wet[i, j + 1] != 0), across, x / 7),
    smooth=[x - X[i + 1, j], y - Y[i, j + 1]],
)
"""What the conditions guard is infinite or NaN where A is 0 or negative."""

MASKS = ("nowhere", "somewhere", "everywhere")


def data(mask: str, width: int = 90) -> dict[str, Any]:
    """Rows of more than two strips, of which the last one is short."""
    rng = np.random.default_rng(3)
    numbers = {name: rng.uniform(-0.5, 0.5, (3, width)) for name in ("X", "Y")}
    share = {"nowhere": 0.0, "somewhere": 0.1, "everywhere": 1.0}[mask]
    flags = {name: (rng.random((3, width)) < share).astype(np.uint8) for name in ("Lit", "Wet")}
    if mask == "somewhere":
        for flag in flags.values():
            flag[:, 20:75] = 0
    needed = (flags["Lit"] | flags["Wet"] | np.roll(flags["Wet"], 1, axis=1)) != 0
    values = np.where(needed, rng.uniform(0.5, 2, (3, width)), rng.choice([0.0, -1.0], (3, width)))
    return {**numbers, **flags, "A": values}


BRANCHES = Schedule(conditions={"*": "branch"})
SELECTS = Schedule(conditions={"*": "select"})


@pytest.fixture(scope="module")
def branching() -> Solver:
    return build(energy, "float64", BRANCHES)


def branched(solver: Solver) -> set[str]:
    return {c.routine for c in solver.schedule.conditions if c.branched}


@pytest.mark.native
@pytest.mark.parametrize("mask", MASKS)
def test_what_a_branch_leaves_out_is_not_seen(branching: Solver, mask: str) -> None:
    assert {"cost_0", "precompute_0"} <= branched(branching)
    check_everything(energy, data(mask), solver=branching)


@pytest.mark.emulated
def test_what_a_branch_leaves_out_is_not_seen_on_a_device(gpu: Device) -> None:
    solver = build(energy, "float64", BRANCHES, DeviceChoice(gpu, "as asked"))
    assert {"cost_0", "precompute_0"} <= branched(solver)
    check_everything(energy, data("somewhere", 30), solver=solver)


@pytest.mark.native
def test_a_cost_is_the_same_whether_it_branches(branching: Solver) -> None:
    selecting = build(energy, "float64", SELECTS)
    assert not branched(selecting)
    for mask in MASKS:
        costs = [Operators(energy, data(mask), solver=s).problem.evaluate().total for s in (branching, selecting)]
        assert costs[0] == pytest.approx(costs[1], rel=1e-13)


V, E = op.dims("V E")
e = op.indices(E)
P, T = op.Unknown("P", (V,), 3), op.Array("T", (E,))
Active, Known = op.Array("Active", (E,), dtype=np.uint8), op.Array("Known", (V,), dtype=np.uint8)
first, second = op.Graph("g", E, (V, V))[e]
between = P[first] - P[second]
dear = sum(op.exp(-k * op.dot(between, between)) * op.log(T[e]) * op.sin(k * P[second][1]) for k in range(1, 5))
libm = sum(op.atan(k * between[0] * P[second][2]) * op.sqrt(T[e] + k) for k in range(1, 4))
over_edges = op.Energy(
    dear=op.where(Active[e] != 0, dear, 0),
    libm=op.where((Active[e] != 0) & (Known[first] != 0), libm, 0),
    plain=between,
)


def data_of_edges(share: float, edges: int = 200) -> dict[str, Any]:
    """T is such that what is masked is NaN; some strips of edges have none that is active."""
    rng = np.random.default_rng(5)
    active = (rng.random(edges) < share) & ~((np.arange(edges) >= 64) & (np.arange(edges) < 128) & (share < 1))
    found: dict[str, Any] = dict(P=rng.normal(size=(9, 3)), Known=rng.integers(0, 2, 9).astype(np.uint8))
    found |= dict(g=rng.integers(0, 9, (edges, 2)), Active=active.astype(np.uint8))
    return found | dict(T=np.where(active, rng.uniform(0.5, 2, edges), -9.0))


@pytest.mark.native
@pytest.mark.parametrize("residuals", ["J", "JTJ"])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_edges_branch_too(share: float, residuals: str) -> None:
    schedule = Schedule(conditions={"*": "branch"}, residuals={"dear": residuals, "libm": residuals})
    solver = build(over_edges, "float64", schedule)
    assert {"cost_0", {"J": "jacobian_0", "JTJ": "jacobian_edges_0"}[residuals]} <= branched(solver)
    check_everything(over_edges, data_of_edges(share), solver=solver)


@pytest.mark.emulated
def test_edges_branch_too_on_a_device(gpu: Device) -> None:
    schedule = Schedule(conditions={"*": "branch"}, residuals={"dear": "J", "libm": "J"})
    solver = build(over_edges, "float64", schedule, DeviceChoice(gpu, "as asked"))
    assert {"cost_0", "jacobian_0"} <= branched(solver)
    check_everything(over_edges, data_of_edges(0.2, 70), solver=solver)


def test_a_branch_over_edges_is_taken_where_it_pays() -> None:
    given = Schedule(residuals={"dear": "J", "libm": "J"})
    decided = derive(over_edges.problem, "float32", given).schedule.conditions
    (cost,) = (c for c in decided if c.routine == "cost_0")
    assert cost.branched  # functions of libm are computed edge by edge
