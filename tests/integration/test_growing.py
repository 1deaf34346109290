"""Energies that grow: their code in proportion, and right where it is cut into stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from bench.growing import FAMILIES
from optpy.api.pipeline import derive
from optpy.energy.derive.linearised_problem import linearised_problem
from optpy.energy.derive.normal_matrix import matrix_obstacle
from optpy.ir import Group, InBounds, Uncoupled, loops
from optpy.kernels.codegen.passes.in_stages import LOAD, LONGEST, STAGE, operations
from optpy.kernels.codegen.program import ProgramListing
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import variables
from tests.support.deep import but_deep
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.operator_checks import check_everything

SIZES = {
    "blur": (7, 11),
    "sines": (150, 300),
    "sines_in_funcs": (150, 300),
    "mixed_functions": (75, 150),
    "products_of_pairs": (120, 240),
    "polynomial": (40, 80),
    "length": (60, 120),
    "power_of_sum": (60, 120),
    "terms": (20, 40),
    "conditions": (25, 50),
}


def listing(family: str, size: int) -> ProgramListing:
    return derive(FAMILIES[family].energy(size).problem, "float32").listing


def evaluated(found: ProgramListing) -> list[loops.Evaluate]:
    return [s for fs in found.loops for f in fs for s in loops.walk(f.body) if isinstance(s, loops.Evaluate)]


def counts(found: ProgramListing) -> tuple[int, int, int]:
    """Nodes, operations, characters of C."""
    nodes = sum(len(topological(k.border.roots)) for k in found.kernels)
    return nodes, sum(operations(s.values) for s in evaluated(found)), len("".join(found.functions))


@pytest.mark.parametrize("family", but_deep(SIZES, ("blur", "sines", "length", "terms", "conditions")))
def test_code_grows_as_the_energy_does(family: str) -> None:
    small, large = SIZES[family]
    reads = (large / small) ** (2 if family == "blur" else 1)
    for before, after in zip(counts(listing(family, small)), counts(listing(family, large)), strict=True):
        assert after <= 1.25 * reads * before  # where bodies are cut, some loads are repeated


@pytest.mark.parametrize(("family", "size"), [("products_of_pairs", 180), ("sines", 300)])
def test_no_loop_has_a_long_body(family: str, size: int) -> None:
    """Beside what a stage computes, it reads what earlier ones have left."""
    longest = max(operations(s.values) for s in evaluated(listing(family, size)))
    assert longest <= max(LONGEST, STAGE * (1 + LOAD))


def test_many_entries_of_j_are_stored_by_several_routines() -> None:
    routines = derive(FAMILIES["products_of_pairs"].energy(150).problem, "float32").routines.groups[Group.JACOBIAN]
    assert [len(r.assignments) for r in routines] == [128, 23]


def test_many_reads_have_no_matrix() -> None:
    problem = FAMILIES["products_of_pairs"].energy(65).problem
    linear = linearised_problem(problem)
    assert "'fit' reads the unknowns at 65 places" in str(matrix_obstacle(linear.unknowns, linear.residuals))


def test_many_slots_have_no_levels() -> None:
    coupled = linearised_problem(FAMILIES["edges"].energy(65).problem).coupling
    assert isinstance(coupled, Uncoupled)
    assert "reads 65 elements whose distances are not the same everywhere" in coupled.reason


@pytest.mark.parametrize(("reads", "checks"), [(9, 8), (10, 2), (100, 2)])
def test_of_many_bounds_the_outermost_are_checked(reads: int, checks: int) -> None:
    (fit,) = FAMILIES["products_of_pairs"].energy(reads).problem.residuals
    assert sum(isinstance(v.key, InBounds) for v in variables(fit.components)) == checks


def filled(energy: op.Energy, size: int) -> dict[str, Any]:
    """Data for an energy all of whose dims are of one size."""
    rng = np.random.default_rng(0)
    shapes = {f.name: (size,) * len(f.dims) + ((f.channels,) if f.channels > 1 else ()) for f in energy.problem.fields}
    data: dict[str, Any] = {name: rng.uniform(0.2, 0.8, shape) for name, shape in shapes.items()}
    return data | {p.name: 0.7 for p in energy.problem.params}


@pytest.mark.native
@pytest.mark.parametrize(
    ("family", "size", "points"),
    [
        ("sines", 500, 30),
        ("mixed_functions", 300, 60),
        ("conditions", 80, 30),
        ("products_of_pairs", 180, 200),
        ("length", 150, 160),
        ("blur", 7, 20),
    ],
)
def test_long_code_is_right(family: str, size: int, points: int) -> None:
    energy = FAMILIES[family].energy(size)
    check_everything(energy, filled(energy, points), epsilon=1e-10)


@pytest.mark.deep
def test_two_thousand_nested_functions_are_right() -> None:
    energy = FAMILIES["sines"].energy(2000)
    check_everything(energy, filled(energy, 30), epsilon=1e-10)


def test_many_reads_on_a_gpu(emulated: EmulatedDevice) -> None:
    """J and J p are stored by passes there, too, at pixels where nothing is solved for as well."""
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, fixed = op.Unknown("X", (H, W)), op.Array("fixed", (H, W))
    reads = [X[i + a, j + b] for a in range(3) for b in range(11)]
    energy = op.Energy(fit=sum(op.sin(x) for x in reads), keep=X[i, j], fixed={X: fixed[i, j] > 0.5})
    data = filled(energy, 14)
    check_everything(energy, data, solver=op.compile(energy, "cuda", np.float64))
