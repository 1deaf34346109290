"""Right-hand sides of the linear system other than -g."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

from optpy.energy.derive.vectors import block_channel, vector
from optpy.ir import Field, VectorKind, tangent
from optpy.linear.system import System


@final
class RightHandSide:
    """b of (J^T J + D) x = b as conjugate gradients read it: as -b, in a vector that takes the place of g.

    Args:
        system: whose J^T J has been linearised.
        b: of each unknown, (*dims, channels), on the device; it counts as 0 where the diagonal of J^T J is 0.
        blocks: whether the blocks of J^T J are stored, not only its diagonal.
    """

    def __init__(self, system: System, b: Mapping[Field, Any], blocks: bool) -> None:
        buffers, xp = system.executor.buffers, system.executor.xp
        self._buffers = buffers
        self._own = [vector(VectorKind.G, u) for u in system.unknowns]
        self._negated: dict[Field, Any] = {}
        with self._replaced():
            for u in system.unknowns:
                g, channels = vector(VectorKind.G, u), range(tangent(u).channels)
                self._negated[g] = buffers.another(g)
                buffers.memory = {**buffers.memory, **self._negated}
                stored = vector(VectorKind.C, u, blocks)
                diagonal = buffers.view(stored)[[block_channel(u, a, a) if blocks else a for a in channels]]
                buffers.write(g, -b[u])
                buffers.view(g)[...] = xp.where(diagonal > 0, buffers.view(g), 0)

    @contextmanager
    def in_place_of_gradient(self) -> Iterator[None]:
        """Within it, what reads g reads -b."""
        with self._replaced():
            self._buffers.memory = {**self._buffers.memory, **self._negated}
            yield

    @contextmanager
    def _replaced(self) -> Iterator[None]:
        """The gradient's own memory is back afterwards."""
        gradient = {g: self._buffers.memory[g] for g in self._own}
        try:
            yield
        finally:
            self._buffers.memory = {**self._buffers.memory, **gradient}
