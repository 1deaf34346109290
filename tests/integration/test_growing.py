"""Energies that grow: their code in proportion, and right where it is cut into stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from bench.growing import FAMILIES
from optpy.api.pipeline import derive
from optpy.ir import Group, loops
from optpy.kernels.codegen.passes.in_stages import LOAD, LONGEST, STAGE, operations
from optpy.kernels.codegen.program import ProgramListing
from optpy.symbolic.order import topological
from tests.support.operator_checks import check_everything

SIZES = {
    "blur": (9, 13),
    "sines": (150, 300),
    "sines_in_funcs": (150, 300),
    "mixed_functions": (75, 150),
    "products_of_pairs": (80, 160),
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


@pytest.mark.parametrize("family", SIZES)
def test_code_grows_as_the_energy_does(family: str) -> None:
    small, large = SIZES[family]
    reads = (large / small) ** (2 if family == "blur" else 1)
    for before, after in zip(counts(listing(family, small)), counts(listing(family, large)), strict=True):
        assert after <= 1.1 * reads * before


@pytest.mark.parametrize(("family", "size"), [("products_of_pairs", 400), ("sines", 1000), ("length", 300)])
def test_no_loop_has_a_long_body(family: str, size: int) -> None:
    """Beside what a stage computes, it reads what earlier ones have left."""
    longest = max(operations(s.values) for s in evaluated(listing(family, size)))
    assert longest <= max(LONGEST, STAGE * (1 + LOAD))


def test_many_entries_of_j_are_stored_by_several_routines() -> None:
    routines = derive(FAMILIES["products_of_pairs"].energy(300).problem, "float32").routines.groups[Group.JACOBIAN]
    assert [len(r.assignments) for r in routines] == [128, 128, 45]


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
        ("sines", 2000, 70),
        ("mixed_functions", 400, 70),
        ("conditions", 120, 40),
        ("products_of_pairs", 200, 320),
        ("length", 150, 200),
        ("blur", 9, 30),
    ],
)
def test_long_code_is_right(family: str, size: int, points: int) -> None:
    energy = FAMILIES[family].energy(size)
    check_everything(energy, filled(energy, points), epsilon=1e-10)
