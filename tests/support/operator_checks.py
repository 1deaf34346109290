"""The routines of an energy at some data, held to its dense Jacobian."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op
from optpy import ir
from optpy.energy.check.evaluation import solved_elements
from optpy.energy.data.binding import bind
from optpy.energy.derive.vectors import block_channel, vector
from optpy.ir import Group, Task, VectorKind
from optpy.kernels.runtime.executor import CpuExecutor
from optpy.linear.aggregation.levels import AlgebraicMultigrid
from optpy.linear.assembled.assembly import Assembly
from optpy.linear.driver import LinearSolver
from optpy.solver.protocol import Damping

Real = NDArray[np.float64]

DAMPED = Damping(3.0, 1e-6, 1e32, jacobi_scaling=True)
UNDAMPED = Damping(math.inf, 1e-6, 1e32, jacobi_scaling=True)


class Operators:
    """The routines of an energy at some data, as functions on stacked vectors."""

    def __init__(
        self,
        energy: op.Energy,
        data: dict[str, Any],
        dtype: Any = np.float64,
        threads: int = 1,
        solver: op.Solver | None = None,
    ) -> None:
        solver = solver or op.compile(energy, "cpu", dtype)
        self.energy = energy
        self.bound = bind(energy.problem, data, dtype, solver.compiled.choice.xp)
        self._on_gpu = solver.device == "cuda"
        on_host = bind(energy.problem, data, dtype) if self._on_gpu else self.bound
        self._solved = {u: solved_elements(energy.problem, u, on_host) for u in energy.problem.unknowns}
        self.unknowns = energy.problem.unknowns
        self.problem = solver.compiled.instance(self.bound, threads)
        if isinstance(self.problem.executor, CpuExecutor):  # all at once, not a library for each as it is first run
            self.problem.executor.library.need(self.problem.executor.groups)
        self.problem.buffers.provide(self.problem.buffers.memory)
        self._poison()
        self.problem.bind(self.bound.arrays, self.bound.params, solver.compiled.connectivity(self.bound))

    def _poison(self) -> None:
        """NaN in all memory beyond the fields: whoever reads there is found by the results."""
        for memory, view in self._memory():
            inside = view.copy()
            memory[...] = 255
            view[...] = inside

    def check_poison(self) -> None:
        """Whoever writes beyond the fields is found here; a GPU may write between their rows."""
        for memory, view in self._memory(written=self._on_gpu):
            inside = view.copy()
            view[...] = self._on_device(np.frombuffer(b"\xff" * view.itemsize, view.dtype))
            assert (memory == 255).all()
            view[...] = inside

    def _memory(self, written: bool = False) -> Iterator[tuple[Any, Any]]:
        """Of each field: all bytes, with paddings, and the elements alone, or all that may be written."""
        buffers = self.problem.buffers
        for f, memory in buffers.memory.items():
            assert memory.base.dtype == np.uint8
            rows, _ = buffers.shape(f.dims)
            points = -(-rows * buffers.pitch[f.dims] // 4) * 4
            yield memory.base, memory[:, :points] if written else buffers.view(f)

    def _on_device(self, value: NDArray[Any]) -> Any:
        """The same where the problem's memory is."""
        return self.bound.xp.asarray(value, blocking=True) if self._on_gpu else value

    def _on_host(self, value: Any) -> NDArray[Any]:
        return self.problem.executor.host(value)

    def linearise(self, preconditioner: Any = "jacobi") -> float:
        self.problem.set_preconditioner(preconditioner)
        return self.problem.linearise()

    def get(self, kind: VectorKind) -> Real:
        """One of the solver's vectors, over all unknowns."""
        vectors = [self._on_host(self.problem.read_vector(kind, u)) for u in self.unknowns]
        return np.concatenate([v.ravel() for v in vectors]).astype(np.float64)

    def put(self, kind: VectorKind, value: Real) -> None:
        start = 0
        for u in self.unknowns:
            n = self.elements(u) * ir.tangent(u).channels
            self.problem.buffers.write(vector(kind, u), self._on_device(value[start : start + n]))
            start += n

    def apply(self, p: Real, damped: bool = False) -> tuple[Real, float]:
        """(J^T J + D) p and p.Ap."""
        self.put(VectorKind.P, p)
        group = Group.of(Task.PRODUCT, damped=damped)
        self.problem.executor.queue(group)
        return self.get(VectorKind.AP), self.problem.executor.totals(group)["pAp"]

    def model_cost_change(self, delta: Real) -> float:
        self.put(VectorKind.DELTA, delta)
        return self.problem.model_cost_change()

    def blocks(self, u: ir.Field) -> Real:
        """The blocks of J^T J that linearise left: (elements, channels, channels)."""
        blocks = vector(VectorKind.C, u, blocks=True)
        packed = self._on_host(self.problem.buffers.read(blocks)).reshape(self.elements(u), blocks.channels)
        n = range(ir.tangent(u).channels)
        return np.array([[packed[:, block_channel(u, a, b)] for b in n] for a in n], np.float64).transpose(2, 0, 1)

    def assembled(self, damped: bool) -> Real | None:
        """The assembled J^T J (+ D) as a dense matrix over the stacked unknowns; None where the energy has none."""
        executor, linear = self.problem.executor, self.problem.linear_solver
        if not isinstance(executor, CpuExecutor) or isinstance(executor.program.normal, ir.Uncoupled):
            return None
        assert isinstance(linear, LinearSolver)
        assembly = linear.system.shared(Assembly)
        multigrid = AlgebraicMultigrid(assembly)
        assembly.assemble(multigrid.matrix, damped)
        first, columns = 0, []
        for u in self.unknowns:
            n, channels = self.elements(u), ir.tangent(u).channels
            columns.append(first + np.arange(n * channels).reshape(n, channels))
            first += n * channels
        place = np.concatenate(columns, axis=1)[multigrid.matrix.order].ravel()
        dense = np.zeros((first, first))
        dense[np.ix_(place, place)] = multigrid.matrix.as_scipy().toarray()
        return dense

    def elements(self, u: ir.Field) -> int:
        return math.prod(self.bound.sizes[d] for d in u.dims)

    def solved(self) -> NDArray[np.bool_]:
        """Which entries of the stacked unknowns are solved for."""
        elements = [(self._solved[u], ir.tangent(u).channels) for u in self.unknowns]
        return np.concatenate([np.repeat(solved.ravel(), channels) for solved, channels in elements])


def stacked(energy: op.Energy, data: dict[str, Any], linearised: bool = False) -> Real:
    """F by the interpreter."""
    return np.concatenate([r.ravel() for r in energy.residuals(data, linearised=linearised).values()])


# -- the checks ------------------------------------------------------------------------------------------------------


def check_everything(
    energy: op.Energy,
    data: dict[str, Any],
    dtype: Any = np.float64,
    epsilon: float = 1e-11,
    solver: op.Solver | None = None,
    exact_blocks: bool = True,
) -> None:
    """Every routine against F and J; errors are measured against the sum of all magnitudes that were added up.

    Args:
        exact_blocks: whether the diagonal and the blocks are those of J^T J; else they are what ``op.sum`` says.
    """
    J = energy.jacobian(data).toarray()
    ops = Operators(energy, data, dtype, 2, solver)
    assert not J[:, ~ops.solved()].any()
    check_residuals(ops, data, stacked(energy, data), epsilon)
    F = stacked(energy, data, linearised=True)
    check_gradient(ops, F, J, epsilon)
    if exact_blocks:
        check_blocks(ops, J, epsilon)
    check_products(ops, F, J, epsilon, exact_blocks)
    ops.check_poison()


def near(actual: Any, expected: Any, magnitude: Any, epsilon: float) -> None:
    error = np.abs(np.asarray(actual) - np.asarray(expected))
    bound = epsilon * (1 + np.asarray(magnitude)) * np.ones_like(error)
    assert (error <= bound).all(), (
        f"error {error.max():.3e}, allowed {bound.ravel()[error.argmax()]:.3e}: {actual} for {expected}"
    )


def check_residuals(ops: Operators, data: dict[str, Any], F: Real, epsilon: float) -> None:
    got = ops.problem.residuals()
    assert list(got) == [r.label for r in ops.energy.problem.residuals]
    near(np.concatenate([r.ravel() for r in got.values()]), F, np.abs(F).max(initial=0), epsilon)
    cost = ops.problem.evaluate()
    near(cost.total, 0.5 * F @ F, F @ F, epsilon)
    assert list(cost.by_term) == list(ops.energy.terms)
    by_label = ops.energy.residuals(data)
    for term in ops.energy.terms:
        own = [by_label[r.label] for r in ops.energy.problem.residuals if r.term == term]
        near(cost.by_term[term], sum(0.5 * np.sum(r**2) for r in own), F @ F, epsilon)


def check_gradient(ops: Operators, F: Real, J: Real, epsilon: float) -> None:
    g, magnitude = J.T @ F, np.abs(J).T @ np.abs(F)
    for preconditioner in ("jacobi", "block_jacobi"):
        largest = ops.linearise(preconditioner)
        near(ops.get(VectorKind.G), g, magnitude.max(initial=0), epsilon)
        near(largest, np.abs(g).max(initial=0), magnitude.max(initial=0), epsilon)


def check_blocks(ops: Operators, J: Real, epsilon: float) -> None:
    """The diagonal and the blocks of J^T J."""
    ops.linearise("jacobi")
    near(ops.get(VectorKind.C), (J**2).sum(axis=0), (J**2).sum(axis=0).max(initial=0), epsilon)
    ops.linearise("block_jacobi")
    start = 0
    for u in ops.unknowns:
        channels = ir.tangent(u).channels
        columns = J[:, start : start + ops.elements(u) * channels].reshape(len(J), ops.elements(u), channels)
        start += ops.elements(u) * channels
        expected = np.einsum("rea,reb->eab", columns, columns)
        if ops.problem.linear_solver.blocks:
            near(ops.blocks(u), expected, (J**2).sum(axis=0).max(initial=0), epsilon)
        else:  # there are no routines for blocks only where all are diagonal
            assert not (expected * (1 - np.eye(channels))).any()


def check_products(ops: Operators, F: Real, J: Real, epsilon: float, exact_diagonal: bool = True) -> None:
    """A p with its dot product, that A is symmetric and positive semidefinite, and the model's cost."""
    rng = np.random.default_rng(0)
    solved = ops.solved()
    for damping in (UNDAMPED, DAMPED):
        ops.linearise()
        ops.problem.damp(damping)
        diagonal = (J**2).sum(axis=0) if exact_diagonal else ops.get(VectorKind.C)
        assert (diagonal >= 0).all()
        A = J.T @ J + np.diag(damping.diagonal(diagonal) * solved)
        p, u = rng.standard_normal((2, len(solved))) * solved
        Ap, pAp = ops.apply(p, damped=damping is DAMPED)
        Au, uAu = ops.apply(u, damped=damping is DAMPED)
        magnitude = (np.abs(J).T @ np.abs(J) + np.abs(np.diag(np.diag(A)))) @ np.abs(p)
        near(Ap, A @ p, magnitude.max(initial=0), epsilon)
        near([pAp, p @ Au], [p @ A @ p, u @ Ap], np.abs(p).max(initial=0) * magnitude.sum() + np.abs(Au).sum(), epsilon)
        assert pAp >= 0
        assert uAu >= 0
        assert not Ap[~solved].any()
        assembled = ops.assembled(damped=damping is DAMPED)
        if assembled is not None:
            near(assembled * np.outer(solved, solved), A, (np.abs(J).T @ np.abs(J) + np.abs(A)).max(initial=0), epsilon)
            assert not (assembled - np.diag(np.diag(assembled)))[~solved].any()
    delta = rng.standard_normal(len(solved)) * solved
    predicted = 0.5 * F @ F - 0.5 * np.sum((F + J @ delta) ** 2)
    near(ops.model_cost_change(delta), predicted, np.sum((np.abs(F) + np.abs(J) @ np.abs(delta)) ** 2), epsilon)


def outcomes(ops: Operators) -> list[Any]:
    """Everything that the routines compute, to be compared bit by bit."""
    cost, largest = ops.problem.evaluate(), ops.linearise()
    ops.problem.damp(DAMPED)
    g = ops.get(VectorKind.G)
    Ap, pAp = ops.apply(g, damped=True)
    change = ops.model_cost_change(g)
    step = ops.problem.try_step()
    return [cost, largest, g.tolist(), ops.get(VectorKind.C).tolist(), Ap.tolist(), pAp, change, step]
