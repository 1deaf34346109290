"""Groups of routines: what each computes, when it runs, where, and at which points.

A group is its name, too, as generated sources and users spell it: ``Group.PRODUCT_DAMPED == "applyJTJ_damped"``.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Final, Self, final


@final
class When(Enum):
    """The moment of a solve at which a group runs."""

    BINDING = "when data is bound"
    LINEARISATION = "once at each linearisation"
    DAMPING = "once for each damping"
    PRODUCT = "in every product with J^T J"
    ITERATION = "between two products of conjugate gradients"
    CANDIDATE = "once for each candidate step"
    REQUEST = "when it is asked for"


@final
class Preconditioning(StrEnum):
    """The way in which conjugate gradients make z = M r; the ending of the names of their vector updates."""

    DIAGONAL = ""
    """By the diagonal M, wherever z is read."""
    BLOCKS = "_block"
    """By M of one block for each element, wherever z is read."""
    SMOOTHED = "_smoothed"
    """Stored: by a sweep of the damped diagonal before, and one after, a correction that is no routine."""
    ASSEMBLED = "_assembled"
    """Stored: by native code, all of it."""


@final
class Task(Enum):
    """The computation of a group, and the moment at which it runs.

    Attributes:
        text: the name of its groups, before any ending.
        when: it runs.
        over_unknowns: whether only points matter at which something is solved for.
    """

    text: str
    when: When
    over_unknowns: bool

    def __new__(cls, text: str, when: When, over_unknowns: bool) -> Self:
        task = object.__new__(cls)
        task._value_, task.text, task.when, task.over_unknowns = text, text, when, over_unknowns
        return task

    FUNCS = "funcs", When.BINDING, False
    SOLVED = "solved", When.BINDING, False
    PRECOMPUTE = "precompute", When.LINEARISATION, False
    JACOBIAN = "jacobian", When.LINEARISATION, False
    GRADIENT = "evalJTF", When.LINEARISATION, True
    NORMAL = "normal", When.LINEARISATION, False
    DAMPING = "damp", When.DAMPING, True
    PRODUCT = "applyJTJ", When.PRODUCT, True
    START = "start", When.ITERATION, True
    DIRECTION = "direction", When.ITERATION, True
    UPDATE = "update", When.ITERATION, True
    FLUSH = "flush", When.ITERATION, True
    RESTART = "restart", When.ITERATION, True
    SMOOTH = "smooth", When.ITERATION, True
    POWER = "power", When.ITERATION, True
    NORMS = "norms", When.REQUEST, True
    MODEL_COST = "modelcost", When.CANDIDATE, False
    STEP = "step", When.CANDIDATE, True
    COST = "cost", When.CANDIDATE, False
    COST_OF_STEP = "cost_of_step", When.CANDIDATE, False
    RESIDUALS = "evalF", When.REQUEST, False


VECTOR_UPDATES = (Task.START, Task.DIRECTION, Task.UPDATE, Task.FLUSH, Task.RESTART)
"""Of conjugate gradients: what is computed between two products with A."""

_PRECONDITIONED = frozenset({Task.GRADIENT, Task.DAMPING, *VECTOR_UPDATES})
_REPEATED = (Task.JACOBIAN, Task.GRADIENT, Task.PRODUCT, Task.MODEL_COST)


def _text(task: Task, preconditioning: Preconditioning, damped: bool) -> str:
    return f"{task.text}{'_damped' if damped else ''}{preconditioning.value}"


@final
class Group(StrEnum):
    """A group of routines: one routine for each domain or grid.

    Attributes:
        task: what it computes.
        preconditioning: of conjugate gradients, where that makes a difference.
        damped: whether A = J^T J + D, or J^T J alone.
    """

    task: Task
    preconditioning: Preconditioning
    damped: bool

    def __new__(
        cls, task: Task, preconditioning: Preconditioning = Preconditioning.DIAGONAL, damped: bool = False
    ) -> Self:
        text = _text(task, preconditioning, damped)
        group = str.__new__(cls, text)
        group._value_, group.task, group.preconditioning, group.damped = text, task, preconditioning, damped
        return group

    @property
    def reads_stored(self) -> bool:
        """Whether it runs many times at one linearisation, so that values stored there serve it."""
        return self.task in _REPEATED

    def begins(self, first: Preconditioning, damped: bool | None) -> bool:
        """Whether a solve runs it from the beginning, not only where it meets difficulties, or explains an error.

        Args:
            first: in which it makes z at first.
            damped: whether its steps are damped; None: not known.
        """
        if self.task is Task.PRODUCT:
            return damped in (None, self.damped)
        made = first if self.task in _PRECONDITIONED else Preconditioning.DIAGONAL
        return self.preconditioning is made and self.task not in (Task.NORMAL, Task.RESIDUALS)

    @classmethod
    def of(cls, task: Task, preconditioning: Preconditioning = Preconditioning.DIAGONAL, damped: bool = False) -> Group:
        """The group with these attributes.

        Raises:
            KeyError: there is none.
        """
        return cls.named(_text(task, preconditioning, damped))

    @classmethod
    def named(cls, text: str) -> Group:
        """The group of a name.

        Raises:
            KeyError: there is none.
        """
        return _BY_NAME[text]

    FUNCS = Task.FUNCS
    SOLVED = Task.SOLVED
    PRECOMPUTE = Task.PRECOMPUTE
    JACOBIAN = Task.JACOBIAN
    GRADIENT = Task.GRADIENT
    GRADIENT_BLOCKS = Task.GRADIENT, Preconditioning.BLOCKS
    NORMAL = Task.NORMAL
    DAMPING = Task.DAMPING
    DAMPING_BLOCKS = Task.DAMPING, Preconditioning.BLOCKS
    PRODUCT = Task.PRODUCT
    PRODUCT_DAMPED = Task.PRODUCT, Preconditioning.DIAGONAL, True
    MODEL_COST = Task.MODEL_COST
    STEP = Task.STEP
    COST = Task.COST
    COST_OF_STEP = Task.COST_OF_STEP
    RESIDUALS = Task.RESIDUALS
    START = Task.START
    DIRECTION = Task.DIRECTION
    UPDATE = Task.UPDATE
    FLUSH = Task.FLUSH
    RESTART = Task.RESTART
    START_BLOCKS = Task.START, Preconditioning.BLOCKS
    DIRECTION_BLOCKS = Task.DIRECTION, Preconditioning.BLOCKS
    UPDATE_BLOCKS = Task.UPDATE, Preconditioning.BLOCKS
    FLUSH_BLOCKS = Task.FLUSH, Preconditioning.BLOCKS
    RESTART_BLOCKS = Task.RESTART, Preconditioning.BLOCKS
    START_SMOOTHED = Task.START, Preconditioning.SMOOTHED
    DIRECTION_SMOOTHED = Task.DIRECTION, Preconditioning.SMOOTHED
    UPDATE_SMOOTHED = Task.UPDATE, Preconditioning.SMOOTHED
    FLUSH_SMOOTHED = Task.FLUSH, Preconditioning.SMOOTHED
    RESTART_SMOOTHED = Task.RESTART, Preconditioning.SMOOTHED
    SMOOTH_SMOOTHED = Task.SMOOTH, Preconditioning.SMOOTHED
    POWER_SMOOTHED = Task.POWER, Preconditioning.SMOOTHED
    NORMS_SMOOTHED = Task.NORMS, Preconditioning.SMOOTHED
    START_ASSEMBLED = Task.START, Preconditioning.ASSEMBLED
    DIRECTION_ASSEMBLED = Task.DIRECTION, Preconditioning.ASSEMBLED
    UPDATE_ASSEMBLED = Task.UPDATE, Preconditioning.ASSEMBLED
    FLUSH_ASSEMBLED = Task.FLUSH, Preconditioning.ASSEMBLED
    RESTART_ASSEMBLED = Task.RESTART, Preconditioning.ASSEMBLED
    NORMS_ASSEMBLED = Task.NORMS, Preconditioning.ASSEMBLED


_BY_NAME: Final = {group.value: group for group in Group}
