"""A problem with the derivatives of its intermediates and residuals: all that routines and schedules follow from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from optpy.energy.derive.coupling import coupling
from optpy.energy.derive.funcs import DerivedFuncs, derive_funcs
from optpy.energy.derive.linearised import LinearisedResidual, linearise
from optpy.ir import Coupling, Field, FuncSchedule, Problem, Uncoupled, tangent


@final
@dataclass(frozen=True, slots=True)
class LinearisedProblem:
    """A problem with its derivatives.

    Attributes:
        funcs: its intermediates, as they are stored.
        residuals: with their derivatives, by the chain rule through intermediates.
        unknowns: in coordinates of their tangent spaces.
        coupling: of the unknowns by J^T J.
    """

    funcs: DerivedFuncs
    residuals: tuple[LinearisedResidual, ...]
    unknowns: tuple[Field, ...]
    coupling: Coupling | Uncoupled


def linearised_problem(problem: Problem, schedules: Sequence[FuncSchedule] = ()) -> LinearisedProblem:
    """Differentiate a problem.

    Args:
        problem: what is minimised.
        schedules: of its intermediates; those without one are inlined.
    """
    funcs = derive_funcs(problem, schedules)
    pairs = zip(problem.residuals, problem.with_funcs, strict=True)
    residuals = tuple(linearise(r, with_funcs, funcs.linearised) for r, with_funcs in pairs)
    unknowns = tuple(map(tangent, problem.unknowns))
    return LinearisedProblem(funcs, residuals, unknowns, coupling(residuals, unknowns))
