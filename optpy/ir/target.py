"""The kinds of processors that routines are scheduled for."""

from __future__ import annotations

from enum import Enum
from typing import final


@final
class Target(Enum):
    """The kind of processor that routines are scheduled for."""

    CPU = "cpu"
    GPU = "gpu"
    """Points may add to one element by atomic additions, in whatever order."""
    DETERMINISTIC_GPU = "deterministic gpu"
    """Without atomic additions, so that every run gives the same bits."""

    @property
    def gpu(self) -> bool:
        """Whether it is a GPU."""
        return self is not Target.CPU
