"""``compile`` and ``solve``: what is checked, and when."""

from __future__ import annotations

import copy
import gc
import pickle
import re
import weakref
from typing import Any

import numpy as np
import pytest

import optpy as op

pytestmark = pytest.mark.native


def small_energy() -> op.Energy:
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, Mask = op.Unknown("X", (H, W)), op.Array("Mask", (H, W), dtype=np.uint8)
    w = op.params("w")
    return op.Energy(fit=w * (X[i, j] - 1), reg=X[i, j] - X[i + 1, j], fixed={X: Mask[i, j] != 0})


def small_data() -> dict[str, Any]:
    return dict(X=np.zeros((4, 5)), Mask=np.zeros((4, 5), np.uint8), w=2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(Y=1.0), "reads no 'Y'"),
        (dict(w=np.ones(3)), "'w' must be a real number"),
        (dict(X=np.zeros((4, 6))), "W is 6 from 'X'"),
        (dict(Mask=np.zeros((4, 5))), "'Mask' has dtype float64"),
        (dict(X=np.full((4, 5), np.nan)), "is not finite"),
    ],
)
def test_mistakes_in_the_data_are_found_before_anything_is_compiled(
    change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optpy.api.compiled.build_backend", lambda *_, **__: pytest.fail("compiled first"))
    with pytest.raises(op.DataError, match=message):
        op.solve(small_energy(), small_data() | change)
    with pytest.raises(op.DataError, match="lacks 'w'"):
        op.solve(small_energy(), dict(X=np.zeros((4, 5)), Mask=np.zeros((4, 5), np.uint8)))


def test_mistakes_in_options_device_and_dtype_are_found_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optpy.api.compiled.build_backend", lambda *_, **__: pytest.fail("compiled first"))
    for wrong in (dict(max_iteration=3), dict(device="tpu"), dict(dtype=np.int32)):
        with pytest.raises(op.OptionError):
            op.solve(small_energy(), small_data(), **wrong)
    with pytest.raises(TypeError, match=r"op\.Energy"):
        op.solve(small_data(), small_data())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("factor", "named"), [(1e39, "1e[+]39"), (-1e39, "1e[+]39"), (10**39, "1e[+]39"), (1e30, "1e[+]60")]
)  # 1e30 fits, but not its square in J^T J
def test_a_constant_beyond_the_dtype_is_named(factor: float, named: str) -> None:
    (N,) = op.dims("N,")
    n = op.indices(N)
    X = op.Unknown("X", (N,))
    energy = op.Energy(fit=factor * X[n] - 1)
    message = rf"test_plan\.py:\d+: .*{named}, .* does not fit float32; use dtype=np.float64"
    with pytest.raises(op.EnergyError, match=message):
        op.compile(energy, dtype=np.float32)
    assert op.solve(energy, dict(X=np.zeros(3)), dtype=np.float64).cost < 1e-6


def test_the_largest_number_of_the_dtype_fits() -> None:
    (N,) = op.dims("N,")
    n = op.indices(N)
    X, A = op.Unknown("X", (N,)), op.Array("A", (N,))
    energy = op.Energy(fit=op.where(A[n] < 3.4028235e38, X[n] - 1, 0))  # as C prints FLT_MAX: a little more
    np.testing.assert_allclose(op.solve(energy, dict(X=np.zeros(3), A=np.zeros(3))).x["X"], 1)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies_of_a_compiled_energy_solve(copied: Any) -> None:
    energy = small_energy()
    expected = op.solve(energy, small_data())
    again = copied(energy)
    assert op.compile(again) is op.compile(energy)  # nothing is compiled twice
    np.testing.assert_array_equal(op.solve(again, small_data()).x["X"], expected.x["X"])
    np.testing.assert_array_equal(copied(op.compile(energy)).solve(small_data()).x["X"], expected.x["X"])


def test_pickling_is_refused_with_the_cure() -> None:
    energy = small_energy()
    for _ in range(2):  # before and after it is compiled
        with pytest.raises(TypeError, match=r"an energy cannot be pickled.*pickle the data.*a function of its own"):
            pickle.dumps(energy)
        solver = op.compile(energy)
    with pytest.raises(TypeError, match=r"a solver .* cannot be pickled: pickle the data.*a function of its own"):
        pickle.dumps(solver)
    with pytest.raises(TypeError, match=r"expressions cannot be pickled.*pickle the data"):
        pickle.dumps(op.params("w"))


def test_every_solver_says_why_it_runs_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "optpy.api.device_choice.available.cuda_or_reason", lambda: (None, "no GPU: none is plugged in")
    )
    energy = small_energy()
    asked, found = op.compile(energy, "cpu"), op.compile(energy)
    assert (asked.device_reason, found.device_reason) == ("the CPU, as asked", "the CPU; no GPU: none is plugged in")
    assert (op.compile(energy, "cpu"), op.compile(energy, "auto")) == (asked, found)
    assert found.compiled.backend(np.float64) is asked.compiled.backend(np.float64)  # nothing is compiled twice
    report = op.solve(energy, small_data()).report()
    assert re.search("^Device +cpu: the CPU; no GPU: none is plugged in$", report, re.MULTILINE)


def test_a_solver_says_what_it_solves() -> None:
    assert (
        repr(op.compile(small_energy(), dtype=np.float64)) == "<Solver of X (H, W) on cpu in float64; terms fit, reg>"
    )


def test_what_is_compiled_lives_as_long_as_the_energy_or_a_solver_of_it() -> None:
    energy = small_energy()
    op.solve(energy, small_data())
    solver = op.compile(energy)
    kept = weakref.ref(solver)
    del energy
    gc.collect()
    assert solver.solve(small_data()).success
    del solver
    gc.collect()
    assert kept() is None


def test_a_solvers_energy_is_the_one_that_was_compiled() -> None:
    energy = small_energy()
    assert op.compile(energy).energy.problem is energy.problem
