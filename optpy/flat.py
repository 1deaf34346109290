"""The solver's vectors as one flat array over all unknowns, in float64: what tests of endings compute with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import numpy as np

from .energy.tangent import magnitudes
from .energy.vectors import block_channel, block_channels, vector
from .ir import Field, tangent
from .machine import Linear, Machine


@final
class FlatVectors:
    """Reads and writes vectors of length n, all unknowns one after the other, as arrays of one module.

    Args:
        machine: holds the vectors.
        unknowns: in their order.
        linear: says how the diagonal of J^T J is stored.
        xp: the arrays' module: the machine's own, where they stay on its device, or NumPy.
    """

    def __init__(self, machine: Machine, unknowns: tuple[Field, ...], linear: Linear, xp: Any) -> None:
        self._machine = machine
        self._unknowns = unknowns
        self._linear = linear
        self.xp = xp

    def read(self, kind: str) -> Any:
        """A copy of a vector; see ``energy.vectors``."""
        return self._joined(lambda u: self._machine.buffers.read(vector(kind, u)))

    def write(self, kind: str, values: Any) -> None:
        """Overwrite a vector, in the precision of the solve."""
        first, own, buffers = 0, self._machine.xp, self._machine.buffers
        for u in self._unknowns:
            field = vector(kind, u)
            shape = (*(buffers.sizes[d] for d in u.dims), field.channels)
            part = values[first : first + math.prod(shape)].reshape(shape)
            if self.xp is not own:
                part = own.asarray(part.astype(self._machine.dtype), blocking=True)
            buffers.write(field, part)
            first += math.prod(shape)

    def apply_jtj(self, p: Any) -> Any:
        """J^T J p; the vectors p and Ap of the linear solver serve for it.

        p is 0 afterwards, as it must stay where nothing is solved for: `applyJTJ` reads it there, too.
        """
        try:
            self.write("p", p)
            self._machine.queue("applyJTJ")
            return self.read("Ap")
        finally:
            self.write("p", self.xp.zeros_like(p))

    def diagonal(self) -> Any:
        """diag(J^T J)."""
        if not self._linear.blocks:
            return self.read("C")
        return self._joined(self._diagonal_of_blocks)

    def magnitudes(self) -> Any:
        """How large the unknowns are along each coordinate."""
        machine = self._machine
        return self._joined(lambda u: magnitudes(u, machine.buffers.read(u), machine.xp))

    def constants(self) -> list[Any]:
        """For each channel of each unknown a vector that is 1 there and 0 elsewhere."""
        sizes, counts = self._machine.buffers.sizes, [tangent(u).channels for u in self._unknowns]
        firsts = [sum(counts[:n]) for n in range(len(counts))]
        parts = [
            self.xp.tile(self.xp.arange(first, first + count), math.prod(sizes[d] for d in u.dims))
            for u, first, count in zip(self._unknowns, firsts, counts, strict=True)
        ]
        channel = self.xp.concatenate(parts)
        return [self.xp.where(channel == n, 1.0, 0.0) for n in range(sum(counts))]

    def _diagonal_of_blocks(self, unknown: Field) -> Any:
        n = tangent(unknown).channels
        blocks = self._machine.buffers.read(vector("C", unknown, block_channels(unknown)))
        return blocks[..., [block_channel(unknown, a, a) for a in range(n)]]

    def _joined(self, read: Callable[[Field], Any]) -> Any:
        parts = (read(u).ravel() for u in self._unknowns)
        here = self.xp is self._machine.xp
        host = self._machine.host
        return self.xp.concatenate([(part if here else host(part)).astype(np.float64) for part in parts])
