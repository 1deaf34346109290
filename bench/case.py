"""What is measured: an energy, its data at any size, and what its routines have to move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

import optpy as op
from bench.traffic import Traffic

Data = dict[str, Any]


@final
@dataclass(frozen=True, slots=True)
class CeresRun:
    """How Ceres solves, where its defaults do not.

    Args:
        linear_solver: as native/ceres_program.h names them; "cg" has the block-Jacobi preconditioner.
        eta: inner tolerance of "cg".
    """

    linear_solver: str = "cholesky"
    eta: float = 0.1
    max_iterations: int = 50


DIRECT_AND_ITERATIVE = (CeresRun("cholesky"), CeresRun("cg"))
"""Which of them is the faster one differs from problem to problem."""


@final
@dataclass(frozen=True, slots=True)
class CeresProgram:
    """The same energy in C++.

    Args:
        source: in native/.
        arrays: of the energy's data, in the order in which the program reads them.
        runs: in a race against all peers.
    """

    source: str
    arrays: tuple[str, ...]
    runs: tuple[CeresRun, ...] = DIRECT_AND_ITERATIVE


@final
@dataclass(frozen=True, slots=True)
class Famous:
    """Real data.

    Args:
        data: None where its files are not there.
        targets: the costs to reach, where others have figures for them.
        runs: of Ceres, to these costs.
    """

    name: str
    data: Callable[[], Data | None]
    targets: tuple[float, ...] = ()
    runs: tuple[CeresRun, ...] = ()


def elements(data: Data) -> tuple[int, int]:
    """Of square pictures: their pixels, and no edges."""
    return next(value.shape[0] * value.shape[1] for value in data.values() if np.ndim(value) >= 2), 0


@final
@dataclass(frozen=True, slots=True)
class Case:
    """One energy.

    Args:
        data: what the energy needs, by name, for a square picture of so many pixels along each side, or for a mesh
            of as many vertices.
        method: of the solves.
        ceres: the same energy for Ceres, if native/ has it.
        famous: real data.
        elements: of some data: how many elements its unknowns stand at, and its (directed) edges.
        unit: what is counted in a second: the elements, "pixel" or "point", or the edges, "edge".
        reweighted: whether weights change with the iterations: others than Ceres minimise another energy then.
        largest: size of the kernels' measurements; this one is taken in the place of larger ones.
    """

    name: str
    energy: op.Energy
    data: Callable[[int], Data]
    traffic: Traffic
    method: Literal["gn", "lm"]
    ceres: CeresProgram | None = None
    famous: Famous | None = None
    elements: Callable[[Data], tuple[int, int]] = elements
    unit: Literal["pixel", "point", "edge"] = "pixel"
    reweighted: bool = False
    largest: int | None = None
