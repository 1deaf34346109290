"""Names the element of a compiled problem that is not finite, as a sentence for its user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optpy.api.executor import Executor
from optpy.energy.check.jacobian import Columns
from optpy.energy.check.non_finite import explain_gradient, explain_values
from optpy.energy.check.unrolled import unrolled
from optpy.energy.data.binding import BoundData
from optpy.energy.derive.routines import residual_field
from optpy.energy.derive.vectors import vector
from optpy.errors import CompileError, DataError
from optpy.ir import Group, Hypergraph, Problem, Role, VectorKind
from optpy.kernels.runtime.tables import Connectivity
from optpy.solver.protocol import Cost
from optpy.solver.termination import non_finite


def residuals(problem: Problem, executor: Executor) -> dict[str, NDArray[Any]]:
    """evalF: each residual at x by its label, as (*domain, components)."""
    executor.buffers.provide(map(residual_field, problem.residuals))
    executor.queue(Group.RESIDUALS)
    return {r.label: executor.host(executor.buffers.read(residual_field(r))) for r in problem.residuals}


def explained_cost(
    problem: Problem,
    executor: Executor,
    params: Mapping[str, float],
    graphs: Mapping[Hypergraph, Connectivity],
    cost: Cost,
) -> str:
    """Names the term of a cost that is not finite, its element, and what it reads there."""
    try:
        values = residuals(problem, executor)
    except CompileError as error:  # their kernels are compiled now
        return f"{non_finite(cost)}; its residuals cannot be looked at, since {error}"
    bound = _bound(executor, params, graphs)
    try:
        written = unrolled(problem, bound.sizes)
    except DataError:  # a sum has too many terms
        return f"{non_finite(cost)}: guard what a term of op.sum may divide by or overflow with, or start elsewhere"
    return explain_values(written, values, cost.non_finite_terms, bound)


def explained_gradient(
    problem: Problem, executor: Executor, params: Mapping[str, float], graphs: Mapping[Hypergraph, Connectivity]
) -> str:
    """Names the derivative that is not finite, and its element; the gradient is the one computed last."""
    bound = _bound(executor, params, graphs)
    gradient = {u.name: executor.host(executor.buffers.read(vector(VectorKind.G, u))) for u in problem.unknowns}
    try:
        written = unrolled(problem, bound.sizes)
    except DataError:
        names = ", ".join(name for name, g in gradient.items() if not np.isfinite(g).all())
        return (
            f"the gradient J^T F by {names} is not finite: a term of op.sum has an infinite slope at the initial values"
        )
    return explain_gradient(written.residuals, Columns.of(problem, bound), bound, gradient, executor.dtype)


def _bound(executor: Executor, params: Mapping[str, float], graphs: Mapping[Hypergraph, Connectivity]) -> BoundData:
    """The data as it stands, in main memory."""
    host, buffers = executor.host, executor.buffers
    inputs = {f: host(buffers.read(f)) for f in buffers.memory if f.role in (Role.UNKNOWN, Role.DATA)}
    arrays = {f.name: a if f.channel_axis else a[..., 0] for f, a in inputs.items()}
    edges = {g.name: host(c.edges) for g, c in graphs.items()}
    return BoundData(dict(buffers.sizes), arrays, dict(params), {}, edges, {}, np.dtype(executor.dtype))
