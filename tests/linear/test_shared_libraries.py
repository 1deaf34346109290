"""The native code that no energy changes: compiled once, into libraries that energies share."""

from __future__ import annotations

import ctypes
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import optpy as op
from optpy.api.backend import CpuBackend
from optpy.api.pipeline import derive
from optpy.energy.derive.updates import SOLVER_SCALARS
from optpy.ir import Coupling
from optpy.kernels.toolchain import toolchain
from optpy.kernels.toolchain.compiler import compile_c
from optpy.linear.assembled.native import compiled_solvers, matrix_solvers_source
from optpy.linear.multigrid.native import grid_multigrid_source
from optpy.linear.pcg.native import conjugate_gradients_source
from tests.support.deep import but_deep
from tests.support.kernel_flags import flags_behind
from tests.support.multigrid_cases import bending, chain, poisson, volume

pytestmark = pytest.mark.native

COMPILERS = {"zig": f"{toolchain.zig_binary()} cc", "gcc": "gcc"}

N, E = op.dims("N E")
n, e = op.indices(N, E)


def springs(stiffness: float) -> op.Energy:
    X, A = op.Unknown("X", (N,), 2), op.Array("A", (N,), 2)
    a, b = op.Graph("edges", E, (N, N))[e]
    return op.Energy(fit=X[n] - A[n], spring=stiffness * (X[a] - X[b]))


def two_dims() -> op.Energy:
    """It has neither a grid of all unknowns nor an assembled matrix."""
    x, y = op.Unknown("x", (N,)), op.Unknown("y", (E,))
    return op.Energy(fit=[x[n] - 1, y[e] - 2])


def entries(root: Path) -> Counter[str]:
    """What is in a cache, by name."""
    found = Counter(folder.name.rpartition("-")[0] for folder in root.glob("*-" + "[0-9a-f]" * 64))
    del found["program"]  # no library
    return found


def backend_of(energy: op.Energy) -> CpuBackend:
    backend = op.compile(energy, "cpu", "float64").compiled.backend("float64")
    backend.prepare(damped=None)
    assert isinstance(backend, CpuBackend)
    return backend


# -- without warnings ------------------------------------------------------------------------------------------------


@pytest.fixture(params=but_deep(["zig -Xclang -O0", "gcc -O1", "zig", "gcc"], ("zig -Xclang -O0", "gcc -O1")))
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """That which has to find nothing to warn of; both take long for all that they optimise for users."""
    name, *less = request.param.split()
    if shutil.which(COMPILERS[name].split()[0]) is None:
        pytest.skip(f"no {name} on this machine")
    monkeypatch.setenv("OPTPY_CC", COMPILERS[name])
    with flags_behind(*less):
        yield


@pytest.mark.usefixtures("compiler")
def test_conjugate_gradients_compile_without_warnings() -> None:
    assert compile_c(conjugate_gradients_source(SOLVER_SCALARS), name="pcg", werror=True).path.exists()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("dtype", but_deep(["float32", "float64"], ("float32",)))
@pytest.mark.parametrize("build", but_deep([chain, bending, volume], (bending,)))
def test_multigrid_compiles_without_warnings(build: Callable[[], op.Energy], dtype: str) -> None:
    coupling = derive(build().problem, dtype).listing.program.coupling
    assert isinstance(coupling, Coupling)
    source = grid_multigrid_source(coupling, dtype, SOLVER_SCALARS)
    assert compile_c(source, name="multigrid", werror=True).path.exists()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("dtype", but_deep(["float32", "float64"], ("float64",)))
def test_solvers_of_matrices_compile_without_warnings(dtype: str) -> None:
    source = matrix_solvers_source(3, dtype, SOLVER_SCALARS)
    assert compile_c(source, name="solvers", werror=True).path.exists()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("dtype", but_deep(["float32", "float64"], ("float32",)))
@pytest.mark.parametrize("build", [bending, lambda: springs(0.5)], ids=["grid", "graph"])
def test_energies_compile_without_warnings(build: Callable[[], op.Energy], dtype: str) -> None:
    assert compile_c(derive(build().problem, dtype).listing.source, name="energy", werror=True).path.exists()


# -- shared ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [bending, lambda: springs(1.5)], ids=["grid", "graph"])
def test_an_energy_is_compiled_from_its_own_kernels_alone(build: Callable[[], op.Energy]) -> None:
    energy = build()
    source = derive(energy.problem, "float64").listing.source
    assert not re.search(r"\b(pcg_stage|pcg_body|kernel_run|mg_\w+|amg_\w+|chol_\w+|team_\w+|normal_rows)\(", source)
    library = ctypes.CDLL(str(compile_c(source, name="energy").path))
    assert hasattr(library, "evalJTF_0")
    for function in ("optpy_run", "optpy_pcg", "optpy_multigrid", "optpy_assemble", "optpy_factorise"):
        assert not hasattr(library, function)


def test_an_equal_energy_compiles_nothing_and_another_its_own_kernels_only(root: Path) -> None:
    solver = op.compile(springs(1.5), "cpu", "float64")
    assert not solver.timing.cache_hit
    first = backend_of(springs(1.5))  # that of an equal energy
    assert first.timing.cache_hit
    assert entries(root) == {"energy": 1, "pcg": 1}
    second = backend_of(springs(2.5))
    assert entries(root) == {"energy": 2, "pcg": 1}
    assert second.library.loops._name == first.library.loops._name
    backend_of(two_dims())
    assert entries(root) == {"energy": 3, "pcg": 1}
    compiled_solvers(2, "float64", SOLVER_SCALARS)
    data = dict(X=np.zeros((3, 2)), A=np.ones((3, 2)), edges=[[0, 1], [1, 2]])
    for stiffness in (1.5, 2.5):
        op.compile(springs(stiffness), "cpu", "float64").start(data)
    assert entries(root) == {"energy": 3, "pcg": 1, "solvers": 1}


def test_multigrid_is_compiled_by_the_first_solve_that_uses_it(root: Path) -> None:
    energy, data = poisson(8)
    solver = op.compile(energy, "cpu", "float64")
    solver.solve(data, preconditioner="jacobi")
    assert "multigrid" not in entries(root)
    before = solver.timing.build
    solver.solve(data, linear_iterations=5)  # it has no need of it
    assert "multigrid" not in entries(root)
    assert solver.solve(data, max_iterations=1, preconditioner="multigrid").timing.cache == "miss"
    assert entries(root) == {"energy": 1, "pcg": 1, "multigrid": 1}
    assert solver.timing.build > before
    i, j = op.indices(*op.dims("H W"))
    X = op.Unknown("X", op.dims("H W"))
    other = op.Energy(fit=0.5 * (X[i, j] - 1), smooth=[X[i, j] - X[i, j + 1], X[i, j] - X[i + 1, j]])
    op.solve(other, dict(X=np.zeros((9, 9))), dtype="float64", preconditioner="multigrid")
    assert entries(root) == {"energy": 2, "pcg": 1, "multigrid": 1}


def test_solvers_of_matrices_are_those_of_a_block_and_a_precision(root: Path) -> None:
    kinds = [(1, "float32"), (2, "float32"), (2, "float64")]  # of each two only one is another
    paths = {compiled_solvers(m, d, SOLVER_SCALARS).path for m, d in kinds}
    assert len(paths) == 3
    assert compiled_solvers(2, "float64", SOLVER_SCALARS).path in paths
