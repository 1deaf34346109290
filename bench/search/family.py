"""What a family of random problems is: an energy, and how its data are drawn."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

import optpy as op

Data = dict[str, Any]
Array = NDArray[np.float64]

DTYPES = ("float32", "float64")


@final
@dataclass(frozen=True, slots=True)
class Drawn:
    """A problem.

    Attributes:
        data: of the energy; the unknowns are where the solvers begin.
        truth: the unknowns at the minimum, or in its basin.
    """

    data: Data
    truth: Data

    def rounded(self, dtype: str) -> Drawn:
        """What a solver in that dtype reads, in float64."""
        return Drawn({name: _rounded(x, dtype) for name, x in self.data.items()}, self.truth)


def _rounded(x: Any, dtype: str) -> Any:
    array = np.asarray(x)
    if array.dtype.kind != "f":
        return x
    return array.astype(dtype).astype(np.float64)


@dataclass(frozen=True)
class Family:
    """Problems of one energy.

    Attributes:
        make: the energy; compiled once for each dtype.
        draw: (generator, unit roundoff): a problem for arithmetic of that precision.
        objective: what is minimised where that is not the energy's cost: with weights that `op.stop_gradient` holds,
            the function whose gradient J^T F is.
    """

    name: str
    make: Callable[[], op.Energy]
    draw: Callable[[Generator, float], Drawn]
    objective: Callable[[Data], float] | None = field(default=None)

    @cached_property
    def energy(self) -> op.Energy:
        """Built when it is first asked for."""
        return self.make()

    def problem(self, seed: int, dtype: str) -> Drawn:
        """The same for the same seed, on every machine."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        return self.draw(rng, float(np.finfo(dtype).eps) / 2).rounded(dtype)

    def value(self, data: Data) -> float:
        """The objective."""
        with np.errstate(all="ignore"):
            return self.energy.cost(data) if self.objective is None else self.objective(data)


def between(rng: Generator, low: float, high: float) -> float:
    """Log-uniform: every order of magnitude is as likely."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def noise_level(rng: Generator) -> float:
    """In a third of the problems none, so that the residuals can be zero."""
    return 0.0 if rng.random() < 1 / 3 else between(rng, 1e-6, 0.1)
