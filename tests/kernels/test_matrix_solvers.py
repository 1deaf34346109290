"""The library of what solves with an assembled matrix: one for all energies of a block size and a precision."""

from __future__ import annotations

import shutil

import pytest

import optpy as op
from optpy.backend import CpuBackend, derive
from optpy.kernels import toolchain
from optpy.kernels.compiler import compile_c
from optpy.kernels.matrix_solvers import matrix_solvers, matrix_solvers_source

COMPILERS = {"zig": f"{toolchain._zig_binary()} cc", "gcc": "gcc"}

N, E = op.dims("N E")
n, e = op.indices(N, E)


def springs(stiffness: float) -> op.Energy:
    X, A = op.Unknown("X", (N,), 2), op.Array("A", (N,), 2)
    a, b = op.Graph("edges", E, (N, N))[e]
    return op.Energy(fit=X[n] - A[n], spring=stiffness * (X[a] - X[b]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_it_compiles_without_warnings(compiler: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(COMPILERS[compiler].split()[0]) is None:
        pytest.skip(f"no {compiler} on this machine")
    monkeypatch.setenv("OPTPY_CC", COMPILERS[compiler])
    assert compile_c(matrix_solvers_source(3, dtype), name="solvers", werror=True).path.exists()


def test_energies_share_it() -> None:
    """What an energy is compiled from has no part of it."""
    for stiffness in (1.5, 2.5):
        energy = springs(stiffness)
        backend = op.compile(energy, "cpu", "float64").backend("float64")
        assert isinstance(backend, CpuBackend)
        assert "chol_" not in derive(energy, "float64").program.source
        assert not hasattr(backend.compiled.library, "optpy_factorise")
    assert matrix_solvers(2, "float64") is matrix_solvers(2, "float64")
    assert matrix_solvers(2, "float64").compiled.path != matrix_solvers(2, "float32").compiled.path


def test_compiling_an_energy_compiles_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the energy has an assembled matrix: not with unknowns over different dims."""
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr("optpy.backend.matrix_solvers", lambda block, dtype: asked.append((block, dtype)))
    op.compile(springs(3.5), "cpu", "float32")
    x, y = op.Unknown("x", (N,)), op.Unknown("y", (E,))
    op.compile(op.Energy(fit=[x[n] - 1, y[e] - 2]), "cpu", "float32")
    assert asked == [(2, "float32")]
