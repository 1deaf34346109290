"""Rounding, stiffness and gains left of a compiled problem where it is linearised: see ``solver.protocol``.

All of it is computed on flat vectors, in float64, from what the linearisation has stored, and products with J^T J. The
vectors p and Ap, and where that is said the step, are others afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, final

import numpy as np

from optpy.api.executor import Executor, Linear
from optpy.api.flat import FlatVectors, Smooth
from optpy.energy.derive.vectors import vector
from optpy.ir import Group, Problem, VectorKind, tangent
from optpy.solver.protocol import Cost, Hidden, Rounding
from optpy.solver.rounding import (
    PROBES,
    Changes,
    Everything,
    Span,
    changes_by_rounding,
    cosine,
    is_stiff,
    largest_changes,
    left_in,
    random_signs,
    rounded_gradient,
    rounding,
)
from optpy.solver.safe_point import OutOfTime, SafePoint

_T = TypeVar("_T")

_FEW = 150
"""Numbers that are solved for, up to which what is left is computed: by four products with J for each."""


@final
class Arithmetic:
    """Rounding, stiffness, and what may be left to gain, at the x where the problem is linearised.

    Args:
        executor: the energy's routines with their memory.
        problem: whose routines they are.
        linear: says how the diagonal of J^T J is stored.

    Attributes:
        n_residuals, n_unknowns: the lengths of F and of x, in the coordinates in which it moves.
        product: that with J^T J which solves run, too: no other has to be compiled.
    """

    def __init__(self, executor: Executor, problem: Problem, linear: Linear) -> None:
        self._executor = executor
        self._unknowns = unknowns = problem.unknowns
        self._linear = linear
        sizes, terms = executor.buffers.sizes, problem.residuals
        self.n_residuals = sum(len(r.components) * math.prod(sizes[i.dim] for i in r.domain) for r in terms)
        self.n_unknowns = sum(tangent(u).channels * math.prod(sizes[d] for d in u.dims) for u in unknowns)
        self.product = Group.PRODUCT
        self.stiff: bool | None = None  # at this x; None: not known
        self._changes: tuple[float, Any, Changes] | None = None  # likewise, with the cost, and the module of the arrays

    def moved(self) -> None:
        """The problem is to be linearised elsewhere, or with other data."""
        self.stiff = self._changes = None

    @property
    def is_exact(self) -> bool:
        """See `NonlinearProblem.hidden_is_exact`."""
        return self.n_unknowns <= _FEW

    def curvature(self) -> float:
        """See `NonlinearProblem.curvature`."""
        # The entries of a block off its diagonal are none larger.
        blocks = self._linear.blocks
        stored = (vector(VectorKind.C, u, blocks) for u in self._unknowns)
        return max(float(self._executor.buffers.view(c).max()) for c in stored)

    def sensitivities(self) -> dict[str, float]:
        """See `NonlinearProblem.sensitivities`."""
        found = {}
        for u in self._unknowns:
            if not u.dims:
                of_one = FlatVectors(self._executor, (u,), self._linear, np, self.product)
                c, x = of_one.diagonal(), of_one.magnitudes()
                for a, value in enumerate(np.sqrt(c) * np.maximum(x, 1.0)):
                    found[f"{u.name}[{a}]" if len(c) > 1 else u.name] = float(value)
        return found

    def rounding(self, cost: float) -> Rounding:
        """See `NonlinearProblem.rounding`."""

        def found(xp: Any) -> Rounding:
            v = self._flat(xp)
            changes = self._changes_by_rounding(v, cost)
            return rounding(v.read(VectorKind.G), v.diagonal(), v.read(VectorKind.DELTA), changes, xp)

        return self._where_there_is_room(found)

    def _changes_by_rounding(self, v: FlatVectors, cost: float) -> Changes:
        """Computed once for each x: several products with J^T J."""
        if self._changes is None or self._changes[:2] != (cost, v.xp):
            changes = changes_by_rounding(v.diagonal(), v.magnitudes(), cost, v.apply_jtj, v.xp)
            self._changes = cost, v.xp, changes
        return self._changes[2]

    def cosine(self, cost: float) -> float:
        """See `NonlinearProblem.cosine`."""

        def largest(xp: Any) -> float:
            v = self._flat(xp)
            return cosine(v.read(VectorKind.G), v.diagonal(), cost, xp)

        return self._where_there_is_room(largest)

    def promised_change(self) -> float:
        """See `NonlinearProblem.promised_change`."""

        def change(xp: Any) -> float:
            v = self._flat(xp)
            g, step = v.read(VectorKind.G), v.read(VectorKind.DELTA)
            return -float((step * (g + v.apply_jtj(step) / 2)).sum())

        return self._where_there_is_room(change)

    def change_by_rounding(self, here: Cost, unit: float, there: Callable[[], Cost]) -> dict[str, float]:
        """See `NonlinearProblem.change_by_rounding`; overwrites the step.

        Args:
            here: the cost at x.
            there: the cost at the end of a step.
        """

        def costs(xp: Any) -> dict[str, float]:
            v = self._flat(xp)
            x = xp.where(v.diagonal() > 0, unit * v.magnitudes(), 0.0)  # what is fixed stays

            def at(probe: int) -> Cost:
                v.write(VectorKind.DELTA, random_signs(len(x), probe, xp) * x)
                return there()

            return largest_changes(here, map(at, range(PROBES)))

        return self._where_there_is_room(costs)

    def is_stiff(self) -> bool:
        """See `NonlinearProblem.is_stiff`."""
        if self.stiff is None:
            self.stiff = self._stiff_in_all() if self.is_exact else self._where_there_is_room(self._stiff_in_constants)
        return self.stiff

    def _stiff_in_all(self) -> bool:
        v = self._flat(np)
        c = v.diagonal()
        return is_stiff(Everything(c > 0), c, v.apply_jtj, self._unit)

    def _stiff_in_constants(self, xp: Any) -> bool:
        v = self._flat(xp)
        c = v.diagonal()
        return is_stiff(Smooth(v.shapes, c > 0, xp, linear=False), c, v.apply_jtj, self._unit)

    @property
    def _unit(self) -> float:
        return float(np.finfo(self._executor.dtype).eps)

    def hidden_in_all(self, cost: float, unit: float, safe_point: SafePoint) -> Hidden:
        """The gain of a full step, where `is_exact`; it is the step afterwards. See `NonlinearProblem.hidden`."""
        v = self._flat(np)
        return self._hidden_in(Everything(v.diagonal() > 0), v, cost, unit, safe_point)

    def hidden_in_smooth(self, cost: float, unit: float, safe_point: SafePoint) -> Hidden:
        """The gain of a step by constants and along coordinates; it is the step afterwards."""

        def found(xp: Any) -> Hidden:
            v = self._flat(xp)
            return self._hidden_in(Smooth(v.shapes, v.diagonal() > 0, xp, linear=True), v, cost, unit, safe_point)

        return self._where_there_is_room(found)

    def _hidden_in(self, span: Span, v: FlatVectors, cost: float, unit: float, safe_point: SafePoint) -> Hidden:
        def apply(p: Any) -> Any:
            safe_point.check()
            return v.apply_jtj(p)

        def model(step: Any) -> float:
            safe_point.check()
            v.write(VectorKind.DELTA, step)
            self._executor.queue(Group.MODEL_COST)
            return self._executor.totals(Group.MODEL_COST)["model_cost_change"]

        c = v.diagonal()
        try:
            left, step = left_in(span, c, cost, self.n_residuals, apply, model, unit)
        except OutOfTime:
            left, step = math.inf, v.xp.zeros(len(c))
        v.write(VectorKind.DELTA, step)
        return Hidden(left, is_next=math.isfinite(left))

    def write_noise(self, cost: float, unit: float) -> None:
        """Put in the place of the gradient what rounding may make of one that is 0."""

        def write(xp: Any) -> None:
            v = self._flat(xp)
            v.write(VectorKind.G, unit * rounded_gradient(v.diagonal(), self._changes_by_rounding(v, cost), xp))

        self._where_there_is_room(write)

    def change_along_step(self) -> float:
        """1/2 ||J e||^2 for the step e."""

        def energy(xp: Any) -> float:
            v = self._flat(xp)
            e = v.read(VectorKind.DELTA)
            return float((e * v.apply_jtj(e)).sum()) / 2

        return self._where_there_is_room(energy)

    def _flat(self, xp: Any) -> FlatVectors:
        return FlatVectors(self._executor, self._unknowns, self._linear, xp, self.product)

    def _where_there_is_room(self, compute: Callable[[Any], _T]) -> _T:
        """Computes with more vectors than the solve has: on the device, or in main memory if that is full."""
        xp = self._executor.xp
        try:
            return compute(xp)
        except MemoryError:
            if xp is np:
                raise
        return compute(np)  # not above, where the error still holds the vectors that there were
