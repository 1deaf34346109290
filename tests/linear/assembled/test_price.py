"""The price of assembling J^T J, by counts, and what "auto" makes of it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import optpy as op
from bench.bundle_fusion import CASE
from optpy.linear.assembled.applicability import PATIENCE
from optpy.linear.assembled.price import assembling, blocks_of_a_point
from optpy.linear.cholesky.record import CHOLESKY
from optpy.linear.driver import LinearSolver
from optpy.linear.system import System
from tests.support.bound_problem import bound_problem

pytestmark = pytest.mark.native

V, E, T = op.dims("V E T")
v, e, t = op.indices(V, E, T)
X = op.Unknown("X", (V,), 3)
a, b = op.Graph("edges", E, (V, V))[e]
Slope, Level = op.Array("Slope", (E, T), 6), op.Array("Level", (E, T))

springs = op.Energy(hold=0.1 * X[v], spring=X[a] - X[b] - 1)
measured = op.Energy(hold=0.1 * X[v], row=op.dot(Slope[e, t][:3], X[a]) + op.dot(Slope[e, t][3:], X[b]) - Level[e, t])
"""Each edge has a row of measurements, so that J has far more rows than columns."""

held = op.Energy(begin=X[0], spring=X[a] - X[b] - 1)
"""The first vertex is held by a residual of its own, which has no domain."""


def chain(vertices: int, length: int = 0) -> dict[str, Any]:
    """Successive vertices, with rows of measurements where they have a length."""
    rng = np.random.default_rng(0)
    edges = np.stack([np.arange(vertices - 1), np.arange(1, vertices)], 1)
    data: dict[str, Any] = dict(X=np.zeros((vertices, 3)), edges=edges)
    if length:
        shape = (vertices - 1, length)
        data |= dict(Slope=rng.normal(size=(*shape, 6)), Level=rng.normal(size=shape))
    return data


def system(energy: op.Energy, data: dict[str, Any]) -> System:
    solver = bound_problem(op.compile(energy, device="cpu", dtype=np.float64), data).linear_solver
    assert isinstance(solver, LinearSolver)
    return solver.system


@functools.cache
def fusion() -> dict[str, Any]:
    return CASE.data(12)


@pytest.mark.parametrize(("energy", "data"), [(springs, chain(6)), (measured, chain(6, 4)), (held, chain(6))])
def test_what_is_counted_is_what_the_jacobian_has(energy: op.Energy, data: dict[str, Any]) -> None:
    J = energy.jacobian(data)
    found = system(energy, data)
    points = [int(np.prod([found.sizes[i.dim] for i in term.domain])) for term in found.program.normal.terms]
    entries = sum(n * term.entries for n, term in zip(points, found.program.normal.terms, strict=True))
    assert entries == J.nnz
    # Each component of these reads other numbers than the next, so that each adds the squares of its own.
    added = sum(
        n * len(entry)
        for n, term in zip(points, found.program.normal.terms, strict=True)
        for entry in term.blocks.values()
    )
    assert added == int((np.diff(J.indptr) ** 2).sum())


def test_edges_alone_are_assembled_for_little_more_than_a_product() -> None:
    found = system(springs, chain(6))
    assert 0 < assembling(found) < 2
    assert CHOLESKY.patience_for(found) == PATIENCE


def test_rows_of_edges_are_dear_however_many_they_are() -> None:
    few, many = (system(measured, chain(6, length)) for length in (40, 400))
    *_, row = few.program.normal.terms
    assert assembling(few) == pytest.approx(blocks_of_a_point(row) / (2 * row.entries), rel=0.1)
    assert assembling(many) == pytest.approx(assembling(few), rel=0.1)
    assert assembling(few) > 5 * PATIENCE
    assert CHOLESKY.patience_for(few) == np.ceil(assembling(few))


def test_auto_does_not_assemble_where_that_takes_longer_than_the_solves() -> None:
    found = system(CASE.energy, fusion())
    assert assembling(found) > 5 * PATIENCE
    result = op.solve(CASE.energy, fusion(), dtype=np.float32, max_iterations=6)
    most = max(record.linear_iterations for record in result.iterations)
    assert PATIENCE < most < assembling(found)
    assert result.facts["Preconditioners used"] == "block_jacobi"


@pytest.mark.parametrize("energy", [springs, held])
def test_auto_assembles_where_solves_take_longer_than_that(energy: op.Energy) -> None:
    assert op.solve(energy, chain(300)).facts["Preconditioners used"] == "jacobi, then cholesky"
