"""The loops of random energies, for the CPU and for a GPU, compute what their routines say."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import optpy as op
from optpy import ir
from optpy.api.pipeline import derive, derive_cuda
from optpy.energy.check.evaluation import solved_elements
from optpy.energy.data.binding import bind
from optpy.energy.derive.vectors import vector
from optpy.ir import Group, VectorKind
from optpy.kernels.codegen import branch
from optpy.kernels.codegen.passes import branch as strips
from optpy.kernels.codegen.passes import in_stages
from tests.integration.test_graph_operators import SIZES, possible
from tests.support.interpret_loops import LoopInterpreter
from tests.support.interpret_routines import Interpreter
from tests.support.operator_checks import near
from tests.support.random_energies import RandomEnergy, random_energies
from tests.support.random_graphs import RandomGraphEnergy, random_graph_energies
from tests.support.schedules import Way, by_hand

EXAMPLES = settings(max_examples=5)
GROUPS = (Group.COST, Group.RESIDUALS, Group.GRADIENT, Group.GRADIENT_BLOCKS, Group.PRODUCT, Group.PRODUCT_DAMPED)


def check_loops(
    energy: op.Energy, data: dict[str, Any], cuda: bool, way: Way = None, conditions: str | None = None
) -> None:
    """Every vector and every total, after each group."""
    compiled = derive_cuda if cuda else derive
    asked = {} if conditions is None else {"*": conditions}
    given = op.Schedule(residuals=by_hand(energy, way), conditions=asked)
    derived = compiled(energy.problem, "float64", given)
    bound = bind(energy.problem, data, np.float64)
    expected, found = Interpreter(derived.routines.groups, bound), LoopInterpreter(derived, bound)
    rng = np.random.default_rng(0)
    for machine in (expected, found):
        for group in (Group.SOLVED, Group.PRECOMPUTE, Group.JACOBIAN):
            machine.run(group)
    unknowns = [ir.tangent(u) for u in energy.problem.unknowns]
    for kind in (VectorKind.P, VectorKind.D):
        for u in unknowns:
            value = rng.uniform(1, 2, expected.field(vector(kind, u)).shape)
            if kind is VectorKind.P:  # 0 where nothing is solved for: loads of several points compute there, too
                value[~solved_elements(energy.problem, u, bound).ravel()] = 0
            expected.field(vector(kind, u))[...] = found.field(vector(kind, u))[...] = value
    for group in GROUPS:
        totals, others = expected.run(group), found.run(group)
        assert totals.keys() == others.keys()
        for name, total in totals.items():
            near(others[name], total, abs(total), 1e-9)
        for u in unknowns:
            for kind in (VectorKind.G, VectorKind.C, VectorKind.AP):
                value = expected.field(vector(kind, u))
                near(found.field(vector(kind, u)), value, np.abs(value).max(initial=0), 1e-9)


@settings(EXAMPLES, max_examples=6)
@given(random_energies(), st.integers(1, 40))
def test_loops_in_stages(random: RandomEnergy, size: int) -> None:
    with patch.multiple(in_stages, LONGEST=0, STAGE=size, TERMS=2):
        check_loops(random.energy, random.data(random.sizes(3, 4)), cuda=False)


@settings(EXAMPLES, max_examples=4)
@given(random_energies(), st.booleans())
def test_loops_with_branches(random: RandomEnergy, cuda: bool) -> None:
    with (
        patch.multiple(branch, LEAST=1, _SMALLEST=1, _EXTRA=0),
        patch.object(strips, "STRIP", 2),
    ):
        check_loops(random.energy, random.data(random.sizes(3, 5)), cuda, conditions="branch")


@EXAMPLES
@given(random_energies(), st.booleans())
def test_loops_over_grids(random: RandomEnergy, cuda: bool) -> None:
    for cycle in ((3, 4), (1, 2)):
        check_loops(random.energy, random.data(random.sizes(*cycle)), cuda)


@EXAMPLES
@given(random_graph_energies(), st.sampled_from([(False, None), (True, None), (True, "scatter")]))
def test_loops_over_graphs(random: RandomGraphEnergy, target: tuple[bool, Way]) -> None:
    for sizes in SIZES:
        if possible(random.energy, sizes):
            check_loops(random.energy, random.data(**sizes), *target)
