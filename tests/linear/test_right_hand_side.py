"""(J^T J + D) x = b for any b, with each preconditioner on the CPU."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from optpy.linear.registry import CPU_ONLY, REGISTRY
from optpy.solver.options import PreconditionerName
from tests.linear.assembled.test_assembled import uneven, uneven_data
from tests.support.any_right_hand_side import check
from tests.support.multigrid_cases import bending, values_of

pytestmark = pytest.mark.native


@pytest.mark.parametrize("preconditioner", [None, "auto", "jacobi", "block_jacobi", "multigrid"])
def test_on_a_grid(preconditioner: Any) -> None:
    energy = bending()
    check(energy, values_of(energy, (9, 11)), preconditioner)


@pytest.mark.parametrize("preconditioner", ["auto", "block_jacobi", "multigrid", "cholesky"])
def test_on_a_graph_with_fixed_unknowns_and_a_manifold(preconditioner: Any) -> None:
    check(uneven(), uneven_data(60, 150), preconditioner)


def test_the_options_name_the_preconditioners_of_the_registry() -> None:
    assert {*get_args(PreconditionerName)} == {record.option for record in REGISTRY}
    assert {"cholesky"} == CPU_ONLY
