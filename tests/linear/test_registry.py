"""The registry alone knows preconditioners by name: one that is made here is solved with by its record."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, NoReturn, final

import numpy as np
import pytest

import optpy as op
from optpy.api.device_choice import choose_device
from optpy.energy.derive.vectors import vector
from optpy.errors import OptionError
from optpy.ir import Coupling, Group, Uncoupled, VectorKind
from optpy.linear import registry
from optpy.linear.jacobi.record import JACOBI
from optpy.linear.method import LinearMethod, Outcome, Solved, SolveRequest
from optpy.linear.pcg.state import PcgState
from optpy.linear.record import Implementation, Record
from optpy.linear.registry import check_name, is_for_the_cpu_only, is_sure_on_gpu
from optpy.linear.system import System
from optpy.solver.pcg import FloatArray, pcg
from tests.support.multigrid_cases import bending, values_of


@final
class TwoSweeps(LinearMethod):
    """Conjugate gradients in NumPy with z = 2 M r - M A M r, two sweeps with the diagonal M."""

    name = "two_sweeps"

    def __init__(self, system: System) -> None:
        self._system = system
        self._product = Group.PRODUCT

    def solve(self, state: PcgState, request: SolveRequest) -> Solved:
        self._product = Group.PRODUCT_DAMPED if request.damped else Group.PRODUCT
        delta, summary = pcg(self, -self._read(VectorKind.G), request.limits)
        self._write(VectorKind.DELTA, delta)
        state.k, state.status = summary.iterations, -1
        return Solved(summary, Outcome.SERVED, summary.iterations)

    def apply(self, p: FloatArray) -> FloatArray:
        self._write(VectorKind.P, p)
        self._system.executor.run(self._product)
        return self._read(VectorKind.AP)

    def precondition(self, r: FloatArray) -> FloatArray:
        M = self._read(VectorKind.M) / 2  # so that no eigenvalue of M A is 2 or more
        return M * (2 * r - self.apply(M * r))

    def _read(self, kind: VectorKind) -> FloatArray:
        buffers = self._system.executor.buffers
        parts = [buffers.read(vector(kind, u)).ravel() for u in self._system.unknowns]
        return np.concatenate(parts).astype(np.float64)

    def _write(self, kind: VectorKind, x: FloatArray) -> None:
        buffers, first = self._system.executor.buffers, 0
        for f in (vector(kind, u) for u in self._system.unknowns):
            view = buffers.read(f)
            buffers.write(f, x[first : first + view.size].reshape(view.shape))
            first += view.size


def nowhere(system: System) -> None:
    """It applies to every system."""
    return


TOY = Record(
    "two_sweeps",
    Implementation(TwoSweeps),
    "nothing is swept twice",
    nowhere,
    other_names=("polynomial",),
    starter=JACOBI,
    patience=2,
)


@pytest.fixture
def with_a_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in the registry."""
    monkeypatch.setattr(registry, "REGISTRY", (TOY, *registry.REGISTRY))


def solved(preconditioner: str) -> op.SolveResult:
    energy = bending()
    return op.solve(energy, values_of(energy, (9, 11)), "cpu", np.float64, preconditioner=preconditioner, eta=1e-6)


def used(result: op.SolveResult) -> str:
    (line,) = re.findall("^Preconditioners used +(.*)$", result.report(), re.MULTILINE)
    return str(line)


def linear_iterations(result: op.SolveResult) -> int:
    return sum(record.linear_iterations for record in result.iterations)


@pytest.mark.native
@pytest.mark.usefixtures("with_a_toy")
def test_one_that_is_added_is_solved_with_by_name() -> None:
    ours, theirs = solved("two_sweeps"), solved("jacobi")
    assert ours.success
    assert used(ours) == "two_sweeps"
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-6)
    assert linear_iterations(ours) < linear_iterations(theirs)


@pytest.mark.native
@pytest.mark.usefixtures("with_a_toy")
def test_auto_comes_to_one_that_is_added_by_its_record() -> None:
    assert used(solved("auto")) == "jacobi, then two_sweeps"


@pytest.mark.usefixtures("with_a_toy")
def test_one_that_is_added_is_offered_and_refused_by_its_record() -> None:
    for wrong in ("two_sweep", "Polynomial"):
        with pytest.raises(
            OptionError, match=r"must be one of None, 'auto', 'two_sweeps', .*did you mean 'two_sweeps'"
        ):
            check_name(wrong)
    assert choose_device("auto", False, "two_sweeps").gpu is None
    with pytest.raises(OptionError, match="preconditioner='two_sweeps' runs on the CPU only: use 'auto', 'jacobi', "):
        choose_device("cuda", False, "two_sweeps")


# -- names and devices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("none", "None"),
        ("None", "None"),
        ("jacobbi", "'jacobi'"),
        ("diagonal", "'jacobi'"),
        ("Block-Jacobi", "'block_jacobi'"),
        ("mg", "'multigrid'"),
        ("amg", "'multigrid'"),
    ],
)
def test_a_name_that_is_nearly_right_leads_to_the_one_meant(wrong: str, meant: str) -> None:
    with pytest.raises(OptionError, match=rf"'preconditioner' must be one of .*; did you mean {meant}\?"):
        check_name(wrong)


@pytest.mark.parametrize("wrong", ["nonsense", "ilu", "one", False, 3, ["jacobi"]])
def test_where_no_name_is_nearly_right_none_is_suggested(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"must be one of [^;]*$"):
        op.solve(bending(), {}, preconditioner=wrong)


def test_those_of_the_cpu_are_known() -> None:
    assert [name for name in registry.options() if is_for_the_cpu_only(name)] == ["cholesky"]
    assert not is_for_the_cpu_only("auto")
    offered = r"use 'auto', 'jacobi', 'block_jacobi' or 'multigrid' \(it is that of one grid\) with device='cuda'"
    with pytest.raises(OptionError, match=offered):
        registry.refuse_on_gpu("cholesky")


def unasked() -> NoReturn:
    pytest.fail("the energy need not be differentiated")


def test_the_multigrid_of_a_grid_is_sure_to_run_on_a_gpu_and_no_other() -> None:
    assert all(is_sure_on_gpu(name, unasked) for name in (None, "auto", "jacobi", "block_jacobi"))
    on_grid = Coupling((), (), (1,), (), {})
    assert is_sure_on_gpu("multigrid", lambda: on_grid)
    assert not is_sure_on_gpu("multigrid", lambda: Uncoupled("several grids"))
    assert not is_sure_on_gpu("cholesky", unasked)


# -- the rest of the house ---------------------------------------------------------------------------------------------

PACKAGE = Path(op.__file__).parent
FOLDERS = {file.parent for file in PACKAGE.glob("linear/*/record.py")}
ELSEWHERE = {
    PACKAGE / "linear" / "registry.py",
    PACKAGE / "solver" / "reference.py",  # a problem on dense matrices, with preconditioners of its own
    *(PACKAGE / "linear" / "assembled").glob("*.py"),  # what works on the matrix is compiled with it
}


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_no_other_file_knows_a_preconditioner(file: Path) -> None:
    """By a text that is its option, or by an import of what is in its folder."""
    if file in ELSEWHERE or file.parent in FOLDERS:
        return
    names = {name for record in registry.REGISTRY for name in (record.option, *record.other_names)}
    rooms = tuple(f"optpy.linear.{folder.name}" for folder in FOLDERS)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant):
            assert node.value not in names, f"{file}:{node.lineno}"
        if isinstance(node, ast.ImportFrom):
            assert not str(node.module).startswith(rooms), f"{file}:{node.lineno}"
