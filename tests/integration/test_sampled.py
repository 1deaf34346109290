"""Routines of energies that sample arrays, against the dense Jacobian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.pipeline import derive
from optpy.api.plan import build
from optpy.ir import FuncSchedule, FuncStorage, Group, Plane
from optpy.symbolic.elements import is_element
from optpy.symbolic.order import topological
from tests.kernels.codegen.test_loops_of_energies import check_loops
from tests.support.deep import but_deep
from tests.support.operator_checks import check_everything
from tests.support.sampled_energies import ENERGIES, INEXACT_BLOCKS

pytestmark = pytest.mark.native


@pytest.mark.parametrize("name", ENERGIES)
def test_every_routine_agrees_with_the_dense_jacobian(name: str) -> None:
    energy, data = ENERGIES[name]()
    solver = op.compile(energy, "cpu", np.float64)
    for n in (2, 3, 6):
        made = data(np.random.default_rng(n), n)
        check_everything(energy, made, solver=solver, exact_blocks=name not in INEXACT_BLOCKS)


def test_an_intermediate_that_samples_may_be_stored() -> None:
    energy, data = ENERGIES["patches"]()
    solver = build(energy, "float64", [FuncSchedule("bright", FuncStorage.PARTIALS)])
    check_everything(energy, data(np.random.default_rng(0), 5), solver=solver, exact_blocks=False)


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("name", but_deep(ENERGIES, ("turned", "volume")))
def test_loops_compute_what_routines_say(name: str, cuda: bool) -> None:
    energy, data = ENERGIES[name]()
    check_loops(energy, data(np.random.default_rng(2), 2), cuda)


def test_a_product_reads_stored_slopes_and_no_image() -> None:
    """So that it is a stencil like any other."""
    energy, _ = ENERGIES["flow"]()
    groups = derive(energy.problem, "float32").routines.groups
    for group, samples in ((Group.PRODUCT, False), (Group.PRODUCT_DAMPED, False), (Group.JACOBIAN, True)):
        roots = [e for r in groups[group] for e in r.roots]
        assert any(map(is_element, topological(roots))) is samples


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_away_and_at_no_place_nothing_outside_is_read(dtype: type) -> None:
    """Where one coordinate is infinite the value is NaN, and the solve says so; however far it is, there is one."""
    H, V = op.dims("H V")
    v = op.indices(V)
    x, scale, curve = op.Unknown("x", (V,)), op.Array("scale", (V,)), op.Array("curve", (H,))
    solver = op.compile(op.Energy(fit=op.Sampled(curve)(x[v] * scale[v] * scale[v])), "cpu", dtype)
    ends: Any = np.array([3, 4, 5], dtype)
    places: Any = np.array([1, -1, 0, 2**31, -(2**31), 2**33], dtype)
    for far in (1.0, 1e3, 1e9, 1e13):
        data = dict(x=places, scale=np.full(6, far, dtype), curve=ends)
        at = np.clip(places.astype(float) * far**2, 0, 2)
        expected = np.interp(at, [0, 1, 2], ends.astype(float))
        assert solver.solve(data, max_iterations=1).initial_cost == pytest.approx(0.5 * (expected**2).sum(), rel=1e-6)
    with pytest.raises(op.DataError, match=r"'fit'.* is nan"):
        solver.solve(dict(x=places, scale=np.full(6, 1e38 if dtype is np.float32 else 1e308, dtype), curve=ends))


def test_an_image_that_changes_is_sampled_anew() -> None:
    energy, make = ENERGIES["flow"]()
    data = make(np.random.default_rng(0), 6)
    solver = op.compile(energy, "cpu", np.float64)
    session = solver.start(data, method="gn")
    session.step()
    second = data["second"][::-1].copy()
    session.update(second=second, U=data["U"])
    session.step()
    direct = solver.start(data | dict(second=second), method="gn")
    direct.step()
    np.testing.assert_allclose(session["U"], direct["U"], rtol=1e-10, atol=1e-10)


def test_what_is_kept_of_a_sampled_image_is_computed_again_with_it() -> None:
    """A Func and a sum that read no unknown are computed when data is bound; by index values alone, too."""
    H, K = op.dims("H K")
    i, k = op.indices(H, K)
    X, image, shift = op.Unknown("X", (H,)), op.Array("image", (H,)), op.Array("shift", (K,))
    half, mean = op.Func("half", (H,)), op.Func("mean", (H,))
    half[i] = op.Sampled(image)(0.5 * op.value(i))
    mean[i] = op.sum(op.Sampled(image)(op.value(i) + shift[k]), over=k)
    energy = op.Energy(fit=X[i] - half[i] * half[i] - mean[i])
    solver = op.compile(energy, "cpu", np.float64, schedule=op.Schedule(funcs={"half": "values"}))
    rng = np.random.default_rng(0)
    data = dict(X=np.zeros(7), image=rng.normal(size=7), shift=rng.normal(size=3))
    session = solver.start(data, method="gn")
    session.step()
    for image_now in (data["image"][::-1].copy(), rng.normal(size=7)):
        session.update(image=image_now, X=data["X"])
        session.step()
        places = np.arange(7)
        sampled = np.interp(places[:, None] + data["shift"], places, image_now).sum(axis=1)
        expected = np.interp(0.5 * places, places, image_now) ** 2 + sampled
        np.testing.assert_allclose(session["X"], expected, rtol=1e-10)
    stored = [s.target.field.name for r in derive(energy.problem, "float64", op.Schedule(funcs={"half": "values"}))
              .routines.groups[Group.FUNCS] for s in r.assignments]  # fmt: skip
    assert any("half" in name for name in stored)


def test_a_sampled_func_is_computed_again_with_its_data_and_only_then() -> None:
    energy, make = ENERGIES["blurred"]()
    data = make(np.random.default_rng(0), 6)
    solver = op.compile(energy, "cpu", np.float64)
    session = solver.start(data, method="gn")
    session.step()
    for changes in (dict(gain=1.3), dict(image=data["image"][::-1].copy()), dict(window=np.array([0.4, -0.2]))):
        data |= changes
        session.update(**changes, X=data["X"])
        session.step()
        direct = solver.start(data, method="gn")
        direct.step()
        np.testing.assert_array_equal(session["X"], direct["X"])
    groups = derive(energy.problem, "float64").routines.groups
    storing = {group for group, rs in groups.items() for r in rs for s in r.assignments if s.target.field.is_sampled}
    assert storing == {Group.FUNCS}
    with pytest.raises(op.OptionError, match=r"op\.Sampled reads it, so that it is always stored"):
        op.compile(energy, "cpu", np.float64, schedule=op.Schedule(funcs={"blur": "inline", "down": "values"}))


def test_what_a_routine_reads_of_an_image_is_told() -> None:
    energy, _ = ENERGIES["flow"]()
    keys = [k for r in derive(energy.problem, "float32").routines.groups[Group.COST] for k in r.keys]
    assert {k.field.name for k in keys if isinstance(k, Plane)} == {"second"}
