from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from optpy.errors import OptionError
from optpy.solver import SolveOptions


def test_defaults() -> None:
    """Those of the trust region are Ceres'; tolerances that depend on the arithmetic, and the limit, are left open."""
    o = SolveOptions()
    assert (o.method, o.preconditioner, o.max_iterations) == ("lm", "auto", None)
    assert (o.function_tolerance, o.cosine_tolerance) == (None, None)
    assert (o.gradient_tolerance, o.parameter_tolerance) == (0.0, 1e-8)
    assert (o.initial_radius, o.max_radius, o.min_radius) == (None, 1e16, 1e-32)
    assert (o.first_radius(is_fit=False), o.first_radius(is_fit=True)) == (1e4, 1.0)
    assert SolveOptions(max_radius=10.0).first_radius(is_fit=False) == 10.0
    assert (o.min_relative_decrease, o.min_lm_diagonal, o.max_lm_diagonal) == (1e-3, 1e-6, 1e32)
    assert o.jacobi_scaling
    assert o.max_consecutive_invalid_steps == 5


def test_every_option_is_documented_and_checked() -> None:
    for name in [f.name for f in dataclasses.fields(SolveOptions)]:
        with pytest.raises(OptionError, match=f"'?{name}'?"):
            SolveOptions(**{name: object()})  # type: ignore[arg-type]
        assert f"{name}:" in (SolveOptions.__doc__ or "") or f"{name}, " in (SolveOptions.__doc__ or "")


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SolveOptions().verbose = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_iteration", "max_iterations"),
        ("ftol", "function_tolerance"),
        ("xtol", "parameter_tolerance"),
        ("gtol", "gradient_tolerance"),
        ("max_nfev", "max_iterations"),
        ("maxiter", "max_iterations"),
        ("max_num_iterations", "max_iterations"),
        ("initial_trust_region_radius", "initial_radius"),
        ("max_num_consecutive_invalid_steps", "max_consecutive_invalid_steps"),
        ("tol", "gradient_tolerance"),
        ("loss", "op.robust"),
        ("bounds", "a residual that is 0 between them"),
        ("jac", "always exact"),
        ("zzzz", "linear_iterations"),
        ("dtype", r"op\.compile\(energy, dtype="),
        ("device", "when the energy is compiled"),
        ("options", "by name: method='gn'"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_one_meant(name: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{name}'.*{meant}"):
        SolveOptions.of(**{name: 1})


def test_every_foreign_name_leads_to_an_option_of_ours() -> None:
    from optpy.solver.options import _ELSEWHERE

    names = {f.name for f in dataclasses.fields(SolveOptions)}
    assert not names & set(_ELSEWHERE)
    for ours in _ELSEWHERE.values():
        assert set(ours.split("' or '")) <= names


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ({"method": "LM"}, "'lm'"),
        ({"method": "Gauss-Newton"}, "'gn'"),
        ({"method": "levenberg_marquardt"}, "'lm'"),
        ({"verbose": "1"}, "1"),
    ],
)
def test_a_value_that_is_nearly_right_leads_to_the_one_meant(option: dict[str, Any], meant: str) -> None:
    with pytest.raises(OptionError, match=rf"must be one of .*; did you mean {meant}\?"):
        SolveOptions.of(**option)


@pytest.mark.parametrize(
    "option",
    [
        {"method": "newton"},
        {"method": "none"},
        {"verbose": 10},
    ],
)
def test_where_nothing_is_nearly_right_nothing_is_suggested(option: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"must be one of [^;]*$"):
        SolveOptions.of(**option)


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "newton"},
        {"method": None},
        {"preconditioner": False},
        {"max_iterations": -1},
        {"max_iterations": True},
        {"max_iterations": 10.0},
        {"max_iterations": "10"},
        {"linear_iterations": 0},
        {"linear_iterations": 5, "min_linear_iterations": 6},
        {"function_tolerance": float("nan")},
        {"function_tolerance": -1e-6},
        {"gradient_tolerance": float("inf")},
        {"parameter_tolerance": True},
        {"eta": 1.0},
        {"r_tolerance": -0.1},
        {"residual_reset_period": -1},
        {"initial_radius": 0.0},
        {"initial_radius": "1e4"},
        {"initial_radius": 1e17},
        {"min_radius": 1e5, "initial_radius": 1e4},
        {"min_lm_diagonal": 1.0, "max_lm_diagonal": 0.5},
        {"min_relative_decrease": 1},
        {"jacobi_scaling": 1},
        {"max_consecutive_invalid_steps": 0},
        {"max_time": 0},
        {"max_time": float("nan")},
        {"callback": 3},
        {"verbose": 3},
        {"verbose": True},
        {"threads": 0},
        {"threads": 1.5},
    ],
)
def test_a_wrong_value_is_an_error_that_names_the_option(wrong: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as caught:
        SolveOptions.of(**wrong)
    assert any(f"'{name}'" in str(caught.value) for name in wrong)


def test_numpy_scalars_become_python_numbers() -> None:
    o = SolveOptions.of(max_iterations=np.int64(7), eta=np.float32(0.5), max_time=3)
    assert (type(o.max_iterations), type(o.eta), type(o.max_time)) == (int, float, float)
    assert (o.max_iterations, o.eta, o.max_time) == (7, 0.5, 3.0)


def test_none_where_none_is_meant() -> None:
    o = SolveOptions.of(preconditioner=None, threads=None, max_time=None, callback=None)
    assert o.preconditioner is None


@pytest.mark.parametrize("radius", [10.0, 1e4])
def test_gauss_newton_refuses_what_it_does_not_use(radius: float) -> None:
    with pytest.raises(OptionError, match="method='gn' does not use 'initial_radius'"):
        SolveOptions.of(method="gn", initial_radius=radius)


def test_gauss_newton_refuses_when_built_directly_too() -> None:
    with pytest.raises(OptionError, match="jacobi_scaling"):
        SolveOptions(method="gn", jacobi_scaling=False)
    assert SolveOptions(method="gn").method == "gn"
