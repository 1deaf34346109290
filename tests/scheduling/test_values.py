"""What is stored once for each linearisation, told by counts; and that stored values are those recomputed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import optpy as op
from optpy import ir
from optpy.api.pipeline import derive
from optpy.ir import Group
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.program import ProgramListing
from optpy.symbolic.count import count
from optpy.symbolic.expr import Call, Expr
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import variables
from tests.support.operator_checks import check_everything
from tests.support.warping import arap_data, arap_energy

pytestmark = pytest.mark.native

H, W = op.dims("H W")
i, j = op.indices(H, W)
X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (H, W))
A, B = op.Array("A", (H, W)), op.Array("B", (H, W), dtype=np.uint8)
s = op.Unknown("s", ())
w = op.params("w")


def program(energy: op.Energy) -> ProgramListing:
    return derive(energy.problem, "float32").listing


def kernels(p: ProgramListing, group: Group) -> list[Kernel]:
    return [p.kernels[n] for n in p.groups.get(group, ())]


def calls(roots: Iterable[Expr]) -> set[str]:
    return {node.op.name for node in topological(roots) if isinstance(node, Call)}


def stored_reads(roots: Iterable[Expr]) -> set[ir.Field]:
    keys = (v.key for v in variables(roots))
    return {k.field for k in keys if isinstance(k, ir.Access) and k.field.role is ir.Role.STORED}


def bounds_checks(roots: Iterable[Expr]) -> int:
    return sum(isinstance(v.key, ir.InBounds) for v in variables(roots))


# -- image warping ---------------------------------------------------------------------------------------------------

WARPING = program(arap_energy())
REPEATED = (Group.PRODUCT, Group.PRODUCT_DAMPED, Group.GRADIENT, Group.MODEL_COST)


@pytest.mark.parametrize("group", REPEATED)
def test_sines_of_angles_are_stored(group: Group) -> None:
    for kernel in kernels(WARPING, group):
        assert not {"sin", "cos"} & calls(kernel.border.roots)
        assert stored_reads(kernel.border.roots)
    assert {"sin", "cos"} <= calls(kernels(WARPING, Group.PRECOMPUTE)[0].border.roots)


@pytest.mark.parametrize("group", [Group.COST, Group.RESIDUALS])
def test_costs_at_other_points_store_nothing(group: Group) -> None:
    for kernel in kernels(WARPING, group):
        assert {"sin", "cos"} <= calls(kernel.border.roots)
        assert not stored_reads(kernel.border.roots)


def test_handles_are_read_as_one_byte() -> None:
    """Constraints are needed only for whether they are there; J does not depend on where they pull."""
    for kernel in kernels(WARPING, Group.PRODUCT):
        fields = {a.field.name: a.field for a in kernel.border.accesses()}
        assert "Constraints" not in fields
        assert [f.dtype for f in stored_reads(kernel.border.roots)].count("bool") == 1
    assert any(a.field.name == "Constraints" for a in kernels(WARPING, Group.GRADIENT)[0].border.accesses())


@pytest.mark.parametrize(
    "group", [Group.COST, Group.RESIDUALS, Group.MODEL_COST, Group.GRADIENT, Group.PRODUCT, Group.PRODUCT_DAMPED]
)
def test_the_interior_has_no_bounds_checks_and_the_border_has_them(group: Group) -> None:
    for kernel in kernels(WARPING, group):
        assert kernel.margins == ((1, 1), (1, 1))
        assert bounds_checks(kernel.interior.roots) == 0
        assert bounds_checks(kernel.border.roots) == 4
        assert count(kernel.interior.roots).cost <= count(kernel.border.roots).cost


def test_operations_of_a_product_with_the_normal_matrix() -> None:
    (kernel,) = kernels(WARPING, Group.PRODUCT)
    operations = count(kernel.interior.roots)
    assert operations.function == operations.divide == 0
    assert operations.add + operations.multiply <= 200
    assert operations.cost <= 270
    # p, UrShape, sine and cosine at five points (both of UrShape's and Offset's channels), Mask at five, the handle, w.
    assert operations.load <= 5 * 3 + 5 * 2 + 5 * 2 + 5 + 1 + 2


# -- small energies --------------------------------------------------------------------------------------------------


def test_one_stored_field_serves_all_neighbours_and_routines() -> None:
    p = program(op.Energy(a=[op.exp(X[i, j]) - A[i, j], op.exp(X[i, j + 1]) * Y[i, j] - 1, op.exp(X[i - 2, j])]))
    stores = [x.target.field for k in kernels(p, Group.PRECOMPUTE) for x in k.border.assignments]
    assert len(stores) == 1
    assert calls(kernels(p, Group.PRECOMPUTE)[0].border.roots) == {"exp"}


def test_what_depends_on_two_points_or_on_an_index_is_not_stored() -> None:
    energy = op.Energy(two=op.sin(X[i, j] + X[i, j + 1]), index=op.sin(X[i, j] * op.value(i)))
    p = program(energy)
    assert Group.PRECOMPUTE not in p.groups
    check_everything(energy, dict(X=np.random.default_rng(0).standard_normal((4, 5))))


def test_what_only_stored_values_are_made_of_is_not_stored() -> None:
    """Of sin(sin(sin(X))) products with J read the three cosines, and the gradient the outermost sine."""
    energy = op.Energy(a=op.sin(op.sin(op.sin(X[i, j]))) - op.sin(op.sin(op.sin(X[i, j + 1]))))
    assert len(kernels(program(energy), Group.PRECOMPUTE)[0].border.assignments) == 4
    check_everything(energy, dict(X=np.random.default_rng(0).standard_normal((4, 5))))


def test_params_may_take_part_in_what_is_stored() -> None:
    energy = op.Energy(a=op.sin(w * X[i, j] + A[i, j]) - 0.5 * op.sin(w * X[i, j + 1] + A[i, j + 1]))
    assert len(kernels(program(energy), Group.PRECOMPUTE)[0].border.assignments) == 2  # sine and cosine
    rng = np.random.default_rng(0)
    check_everything(energy, dict(X=rng.standard_normal((4, 5)), A=rng.standard_normal((4, 5)), w=1.5))


def test_outside_the_grid_a_stored_value_is_that_of_zero() -> None:
    """The term asks for bounds itself, so what it reads outside is 0, and cos(0) is 1."""
    n = (i + 1, j - 1)
    energy = op.Energy(
        cosine=op.where(op.in_bounds(i), op.cos(X[n]) * Y[i, j] + X[i, j], 0),
        exponential=op.where(op.in_bounds(j), op.exp(X[n] + A[n]) * X[i, j], 0),
        conditions=op.where(op.in_bounds(i, j) & (A[n] < 0.5) & (A[n] > -0.5) & (B[n] == 0), X[i, j] * Y[i, j], 0),
        both=op.where(op.in_bounds(i, j) & ((A[n] > 0.25) | (B[i, j] > 1)), X[i, j], Y[n] * Y[i, j]),
    )
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (1, 6), (5, 1), (4, 70)):
        data = dict(zip("XYA", rng.standard_normal((3, *shape)), strict=True))
        check_everything(energy, data | dict(B=rng.integers(0, 3, shape, np.uint8)))


def test_a_stored_condition_may_be_infinite_arithmetic_elsewhere() -> None:
    energy = op.Energy(a=op.where(A[i, j] > 0, op.exp(X[i, j] / A[i, j]), X[i, j]) + Y[i, j])
    rng = np.random.default_rng(0)
    A_ = np.array([[0.0, 1, -1], [2, 0, 0]])
    check_everything(energy, dict(X=1 + rng.random((2, 3)), Y=rng.random((2, 3)), A=A_))


def test_storing_does_not_change_the_values() -> None:
    """Also for an unknown without axes, and for several grids."""
    energy = op.Energy(
        a=op.sin(s[()]) * X[i, j] + op.cos(Y[i, j + 1]),
        b=op.tanh(X[2 * i, j]) - s[()] * op.exp(0.1 * Y[i, j]),
    )
    rng = np.random.default_rng(0)
    check_everything(energy, dict(X=rng.random((5, 4)), Y=rng.random((5, 4)), s=np.array(0.5)))


def test_the_warping_energy_agrees_with_its_jacobian() -> None:
    for shape in ((1, 1), (2, 3), (6, 7)):
        check_everything(arap_energy(), arap_data(*shape))
