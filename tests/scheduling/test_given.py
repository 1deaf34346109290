"""Schedules of users: all of one, parts of one, and what cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import optpy as op
from optpy.api.pipeline import derive, derive_cuda, whole_schedule
from optpy.api.plan import build
from optpy.ir import Group, Schedule, Target
from tests.support.applications import ENERGIES
from tests.support.deep import but_deep
from tests.support.operator_checks import check_everything
from tests.support.random_energies import RandomEnergy, random_energies

H, W, V, E, K = op.dims("H W V E K")
i, j, v, e, k = op.indices(H, W, V, E, K)
Z, A = op.Unknown("Z", (H, W)), op.Array("A", (H, W), 2)
X = op.Unknown("X", (V,), 2)
a, b = op.Graph("edges", E, (V, V))[e]
(pixel,) = op.Graph("seen", E, ((H, W),))[e]
Steep = op.Func("Steep", (H, W))
Steep[i, j] = op.exp(op.sin(Z[i, j]) * Z[i, j + 1])
Known = op.Func("Known", (H, W))
Known[i, j] = op.exp(A[i, j][0])

MIXED = op.Energy(
    steep=[Steep[i, j] - Steep[i, j + 1], Known[i, j] * Steep[i + 1, j]],
    edges=op.exp(X[a][0]) * X[b] - 1,
    seen=op.sin(Z[pixel]) - X[a][0],
    all=X[v] - 1,
)
GRID = op.Energy(fit=op.where(A[i, j][0] > 0, Z[i, j], 0), smooth=op.sin(Z[i, j]) * Z[i + 1, j] - Z[i, j + 1])


EVERY_RUN = (
    *("image_warping", "mesh_deformation so3", "sparse_warping", "cotangent_smoothing", "shape_from_shading inline"),
    *("bundle_adjustment", "blendshape_fitting", "intrinsic_images"),
)


@pytest.mark.parametrize("name", but_deep(ENERGIES, EVERY_RUN))
def test_the_text_of_a_decided_schedule_is_that_schedule(name: str) -> None:
    decided = whole_schedule(ENERGIES[name].problem, "float32", Target.CPU)
    text = str(decided)
    assert len(text.splitlines()) == len(list(decided.decisions))
    assert all("  # " in line for line in text.splitlines())
    assert Schedule.parse(text) == decided
    assert str(Schedule.parse(text)) == text


def made(energy: op.Energy, target: Target, given: Schedule) -> tuple[Schedule, str]:
    if target is Target.CPU:
        on_cpu = derive(energy.problem, "float32", given)
        return on_cpu.schedule, on_cpu.listing.source
    on_gpu = derive_cuda(energy.problem, "float32", given, target)
    return on_gpu.schedule, on_gpu.listing.source


@pytest.mark.parametrize("target", Target)
def test_a_schedule_that_is_read_back_makes_the_same_program(target: Target) -> None:
    for energy in (MIXED, GRID):
        decided, source = made(energy, target, Schedule())
        again, same = made(energy, target, Schedule.parse(str(decided)))
        assert (again, str(again), same) == (decided, str(decided), source)


@settings(deadline=None, derandomize=True, max_examples=8, suppress_health_check=list(HealthCheck))
@given(random_energies(), st.sampled_from(Target), st.data())
def test_any_part_of_a_text_leaves_the_rest_as_it_was(
    random: RandomEnergy, target: Target, draw: st.DataObject
) -> None:
    problem = random.energy.problem
    decided = whole_schedule(problem, "float32", target)
    assert Schedule.parse(str(decided)) == decided
    part = "\n".join(line for line in str(decided).splitlines() if draw.draw(st.booleans()))
    assert whole_schedule(problem, "float32", target, Schedule.parse(part)) == decided


def test_a_star_switches_an_optimisation_off() -> None:
    plain = Schedule(
        funcs={"*": "inline"}, residuals={"*": "inline"}, values={"*": "recomputed"}, splits={"*": "together"},
        layouts={"*": "planar"},
    )  # fmt: skip
    found = derive(MIXED.problem, "float64", plain)
    choices = {d.kind: set[str]() for d in found.schedule.decisions}
    for d in found.schedule.decisions:
        choices[d.kind].add(d.choice)
    assert choices.pop("normal")
    assert choices == dict(
        func={"inline"},
        residual={"inline"},
        term={"merged"},
        value={"recomputed"},
        split={"together"},
        layout={"planar"},
    )
    assert not {Group.PRECOMPUTE, Group.JACOBIAN, Group.FUNCS} & found.listing.groups.keys()
    but = Schedule(residuals={"*": "inline", "edges": "J"})
    ways = {r.label: r.choice for r in whole_schedule(MIXED.problem, "float64", Target.CPU, but).residuals}
    assert ways.pop("edges") == "J"
    assert set(ways.values()) == {"inline"}


def test_a_star_names_residuals_of_which_nothing_is_decided_otherwise() -> None:
    """Those whose entries of J are constant."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    energy = op.Energy(fit=X[i, j] - A[i, j], reg=[X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 1]])
    ways = whole_schedule(energy.problem, "float32", CPU, Schedule(residuals={"*": "Jp"})).residuals
    assert {r.label: r.choice for r in ways} == {"fit": "Jp", "reg[0]": "Jp", "reg[1]": "Jp"}


@pytest.mark.native
@settings(deadline=None, derandomize=True, max_examples=4, suppress_health_check=list(HealthCheck))
@given(random_energies())
def test_interleaved_grids_of_any_rank_compute_the_same(random: RandomEnergy) -> None:
    given_ = Schedule(normal="products", layouts={"*": "interleaved"}, values={"*": "recomputed"})
    solver = build(random.energy, "float64", given_)
    for cycle in ((1, 4), (5, 3, 7)):
        check_everything(random.energy, random.data(random.sizes(*cycle)), solver=solver)


CPU, GPU = Target.CPU, Target.GPU


@pytest.mark.parametrize(
    ("energy", "target", "written", "message"),
    [
        (MIXED, CPU, dict(funcs={"Step": "values"}), "no func 'Step'; there are: .*; did you mean 'Steep'"),
        (MIXED, CPU, dict(funcs={"Known": "inline, cost"}), "'Known' reads no unknown: with its values kept"),
        (MIXED, CPU, dict(residuals={"steep": "J"}), r"no residual 'steep'; there are: steep\[0\], .* mean 'steep"),
        (MIXED, CPU, dict(residuals={"edges": "scatter"}), "no atomic additions on the CPU"),
        (MIXED, Target.DETERMINISTIC_GPU, dict(residuals={"edges": "scatter"}), "deterministic"),
        (MIXED, GPU, dict(residuals={"steep[0]": "scatter"}), "through no graph"),
        (GRID, CPU, dict(residuals={"*": "scatter"}), r"'residual \*: scatter': it reads unknowns through no graph"),
        (MIXED, CPU, dict(normal="levels"), r"J\^T J cannot be levels: the unknowns must all stand on one grid"),
        (MIXED, CPU, dict(values={"sin(Y[i0])": "stored"}), "no value 'sin(Y"),
        (MIXED, CPU, dict(splits={"applyJTJ_9": "apart"}), "no split 'applyJTJ_9'; .* did you mean 'applyJTJ_0'"),
        (MIXED, GPU, dict(splits={"applyJTJ_0": "apart"}), "no split 'applyJTJ_0', nor any other here"),
        (MIXED, CPU, dict(layouts={("H", "V"): "planar"}), r"no layout '\(H, V\)'; there are: "),
        (MIXED, CPU, dict(layouts={"V": "interleaved, padded"}), "only a GPU pads points"),
        (GRID, CPU, dict(layouts={("H", "W"): "interleaved"}), "walks along rows"),
        (MIXED, GPU, dict(orders={"stored.2": [1, 0]}), "it has channels 0 to 0, each of which"),
        (MIXED, CPU, dict(orders={"J.edges": [0, 1]}), "no order 'J.edges', nor any other here"),
        (MIXED, CPU, dict(sweeps={"step_0": 4}), "no sweep 'step_0', nor any other here"),
    ],
)  # fmt: skip
def test_what_there_is_not_and_what_cannot_be_is_refused(
    energy: op.Energy, target: Target, written: dict[str, Any], message: str
) -> None:
    schedule = Schedule(**written)
    with pytest.raises(op.OptionError, match=message.replace("(Y", r"\(Y")):
        whole_schedule(energy.problem, "float32", target, schedule)
    (decision,) = schedule.decisions
    with pytest.raises(op.OptionError, match=r"^schedule, line 2, '") as caught:
        whole_schedule(energy.problem, "float32", target, Schedule.parse(f"\n{schedule}"))
    assert f"'{decision.kind} {decision}'" in str(caught.value)


def test_a_sum_is_no_decision_and_neither_is_what_stores_nothing() -> None:
    weight = op.Unknown("weight", (K,))
    Basis = op.Array("Basis", (V, K))
    energy = op.Energy(fit=op.sum(Basis[v, k] * op.sin(weight[k]), over=k) - 1, at=Z[2 * i, j] - Z[i, j])
    (name,) = (f.name for f in energy.problem.funcs)
    with pytest.raises(op.OptionError, match=r"it is an op\.sum, which is always stored"):
        whole_schedule(energy.problem, "float32", CPU, Schedule(funcs={name: "inline"}))
    with pytest.raises(op.OptionError, match="'residual at: J': nothing of it can be kept"):
        whole_schedule(energy.problem, "float32", CPU, Schedule(residuals={"at": "J"}))


# -- as users call it --------------------------------------------------------------------------------------------------


def test_a_schedule_that_cannot_be_is_found_when_the_energy_is_compiled() -> None:
    for dtype in (None, np.float32):
        with pytest.raises(op.OptionError, match="did you mean 'smooth'"):
            op.compile(GRID, "cpu", dtype, schedule=Schedule(residuals={"smoot": "J"}))
    for wrong, cure in (
        ("fast", r"op\.Schedule\.parse"),
        (None, "must be 'auto'"),
        ({"smooth": "J"}, "an op.Schedule"),
    ):
        with pytest.raises(op.OptionError, match=cure):
            op.compile(GRID, "cpu", schedule=wrong)  # type: ignore[arg-type]
    with pytest.raises(op.OptionError, match=r"op.compile\(energy, schedule=\.\.\.\)"):
        op.compile(GRID, "cpu").solve({}, schedule="auto")


@pytest.mark.native
def test_a_solver_shows_the_schedule_in_force() -> None:
    rng = np.random.default_rng(0)
    data = dict(Z=rng.normal(size=(6, 7)), A=rng.normal(size=(6, 7, 2)))
    stored = Schedule(residuals={"smooth": "J"}, values={"*": "recomputed"})
    solver, auto = op.compile(GRID, "cpu", schedule=stored), op.compile(GRID, "cpu")
    assert solver is op.compile(GRID, "cpu", schedule=Schedule.parse(str(stored)))
    assert solver is not auto
    assert auto.schedule == whole_schedule(GRID.problem, "float64", CPU)
    lines = str(solver.schedule).splitlines()
    assert "residual smooth: J  # as asked" in lines
    assert Schedule.parse(str(solver.schedule)) == solver.schedule
    assert "jacobian" in solver.routines
    assert "jacobian" not in auto.routines
    found, expected = solver.solve(data), op.solve(GRID, data, device="cpu")
    assert found.cost == pytest.approx(expected.cost, rel=1e-9)
    again = op.solve(GRID, data, device="cpu", schedule=stored)
    assert again.cost == found.cost  # the same program, to the bit
