"""The preconditioner that "auto" solves with, chosen by the time that the solves so far have taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import ismethod
from typing import final
from weakref import WeakMethod

from optpy.linear.method import Outcome
from optpy.linear.record import Record

HOPELESS = 80
"""Slow iterations with what has taken over, after which another is tried of which it is not known what it takes.
No benchmark has set it: an iteration with one that serves leaves a tenth of the error, so that 80 are far too many."""
_NO_GAIN = 1e-3
"""Who gains no more than that part of the model on top of a solve has found nothing that it missed: as little
as the gains at which a solve ends anyway (``LinearLimits.decided``)."""


@final
@dataclass(frozen=True, slots=True)
class Doubt:
    """A solve that another preconditioner goes on with, to find out whether the first one has missed errors."""

    record: Record
    cost: float
    Q: float


@final
class Choice:
    """The preconditioner in force, and a record of what each one's last solve has cost.

    The first one has a little patience in its first solve alone; what takes over is kept as long as it serves. One that
    did not is expected to take twice what it has spent, so that it is tried again once the others are dearer than that,
    or meet the limit: none is left for good but what cannot serve at all.

    Whether errors are missed, as is thought where the residual stays as it was, another preconditioner shows by going
    on with the solve: where it gains next to nothing, nothing was missed, and the first one is trusted from then on.

    Args:
        first: what is begun with.
        others: what may take the place of the one given, in the order in which they are tried where nothing is known
            of them. It is asked only then, as finding out may take time.
        patience: iterations that the first one may make in the solve in which others are first tried; None: there are
            no others.
    """

    def __init__(self, first: Record, others: Callable[[Record], Sequence[Record]], patience: int | None) -> None:
        self.record = first
        self._patience = patience
        # Its owner's own method is held weakly: in a cycle the memory of a whole problem would outlive its last user.
        self._others = WeakMethod(others) if ismethod(others) else lambda: others
        self._expected: dict[Record, float] = {}  # cost of a solve; not there: not known
        self._unfit: set[Record] = set()
        self._doubt: Doubt | None = None
        self._first = True  # no other has been tried
        self.disappointed = False  # one that took over from the first did not serve

    @property
    def has_changed(self) -> bool:
        """Whether another one than the first has been tried."""
        return not self._first

    @property
    def patience(self) -> int | None:
        """Iterations with the one in force after which another is to go on where it is slow; None: none is."""
        if self._first or self._patience is None:
            return self._patience
        if not self.record.is_left_midway:
            return None
        return max(HOPELESS, int(self._cheapest_other / self.record.iteration_cost))

    @property
    def _cheapest_other(self) -> float:
        """The time that a solve is expected to take with another one; 0 if that is not known."""
        return min((cost for record, cost in self._expected.items() if record is not self.record), default=0.0)

    def report(self, outcome: Outcome, iterations: int, Q: float = 0.0) -> None:
        """Takes the outcome of the one in force: from now on that may be another one.

        Args:
            outcome: see ``Outcome``.
            iterations: that it has made in this solve.
            Q: the model after them.
        """
        left, cost = self.record, iterations * self.record.iteration_cost
        if outcome is Outcome.SERVED:
            self._expected[left] = cost
            if self._doubt is None and not left.is_exact and cost > self._cheapest_other > 0:
                self.record = min(self._expected, key=lambda record: self._expected[record])
            return
        if outcome is Outcome.UNFIT:
            self._unfit.add(left)
            self._expected.pop(left, None)
        elif self._first:
            self._expected.pop(left, None)  # it has lost its patience: what a whole solve takes is not known
        elif outcome is Outcome.DOUBTED:
            self._doubt = Doubt(left, cost, Q)
            self._expected.pop(left, None)
        else:
            self._expected[left] = 2 * max(cost, self._expected.get(left, 0.0))
        self.disappointed |= not self._first or outcome is Outcome.UNFIT
        asked = self._others()
        assert asked is not None
        others = [record for record in asked(left) if record not in self._unfit]
        self._first = False
        if others:
            self.record = min(others, key=lambda record: self._expected.get(record, math.inf))

    def settle(self, Q: float, ended: bool) -> bool:
        """The end of a solve: where another one went on after a doubt, was that justified?

        Args:
            Q: the model at the end.
            ended: whether it ended by a test or at its limit, not by the clock.

        Returns:
            Whether there was a doubt without reason; the one that was doubted is in force again.
        """
        doubt, self._doubt = self._doubt, None
        if doubt is None or not ended or abs(Q - doubt.Q) > _NO_GAIN * abs(Q):
            return False
        self._expected.pop(self.record, None)  # going on with another's solve has told nothing of a whole one
        self._expected[doubt.record] = doubt.cost
        self.record = doubt.record
        return True
