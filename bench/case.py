"""What is measured: an energy, its data at any size, and what its routines have to move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import optpy as op
from bench.traffic import Traffic

Data = dict[str, Any]


@final
@dataclass(frozen=True, slots=True)
class Famous:
    """Data that others have figures for.

    Args:
        data: None where its files are not there.
        target: the cost to reach.
    """

    name: str
    data: Callable[[], Data | None]
    target: float


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One energy.

    Args:
        data: what the energy needs, by name, for a square picture of so many pixels along each side.
        method: of the solves.
        ceres: whether native/ has the same energy for Ceres.
        famous: raced against Ceres.
    """

    name: str
    energy: op.Energy
    data: Callable[[int], Data]
    traffic: Traffic
    method: Literal["gn", "lm"]
    ceres: bool = False
    famous: Famous | None = None
