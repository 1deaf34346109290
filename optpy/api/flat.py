"""The solver's vectors as one flat array over all unknowns, in float64: what tests of endings compute with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.api.executor import Executor, Linear
from optpy.energy.derive.retraction import magnitudes
from optpy.energy.derive.vectors import block_channel, vector
from optpy.ir import Field, Group, VectorKind, tangent


@final
class FlatVectors:
    """Reads and writes vectors of length n, all unknowns one after the other, as arrays of one module.

    Args:
        executor: holds the vectors.
        unknowns: in their order.
        linear: says how the diagonal of J^T J is stored.
        xp: the arrays' module: the executor's own, where they stay on its device, or NumPy.
        product: that with J^T J, damped or not.
    """

    def __init__(
        self, executor: Executor, unknowns: tuple[Field, ...], linear: Linear, xp: Any, product: Group
    ) -> None:
        self._executor = executor
        self._unknowns = unknowns
        self._linear = linear
        self.xp = xp
        self._product = product

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the vectors' parts, (*dims, channels) for each unknown."""
        sizes = self._executor.buffers.sizes
        return [(*(sizes[d] for d in u.dims), tangent(u).channels) for u in self._unknowns]

    def read(self, kind: VectorKind) -> Any:
        """A copy of a vector; see ``ir.Vector``."""
        buffers = self._executor.buffers
        if self.xp is not self._executor.xp:
            return self._joined(lambda u: buffers.read(vector(kind, u)))
        shapes = self.shapes
        flat = self.xp.empty(sum(map(math.prod, shapes)))
        for u, part in zip(self._unknowns, _parts(flat, shapes), strict=True):
            stored = buffers.view(vector(kind, u))  # (channels, rows, length)
            self.xp.copyto(part.reshape(*stored.shape[1:], -1), self.xp.moveaxis(stored, 0, 2))
        return flat

    def write(self, kind: VectorKind, values: Any) -> None:
        """Overwrite a vector, in the precision of the solve."""
        own = self._executor.xp
        for u, part in zip(self._unknowns, _parts(values, self.shapes), strict=True):
            if self.xp is not own:
                part = own.asarray(part.astype(self._executor.dtype), blocking=True)
            self._executor.buffers.write(vector(kind, u), part)

    def apply_jtj(self, p: Any) -> Any:
        """J^T J p; the vectors p and Ap of the linear solver serve for it.

        p is 0 afterwards, as it must stay where nothing is solved for: `applyJTJ` reads it there, too.
        """
        views = self._executor.buffers.view
        damping = [views(vector(VectorKind.D, u)) for u in self._unknowns if self._product.damped]
        kept = [d.copy() for d in damping]
        try:
            for d in damping:
                d[...] = 0
            self.write(VectorKind.P, p)
            self._executor.queue(self._product)
            return self.read(VectorKind.AP)
        finally:
            for u in self._unknowns:
                views(vector(VectorKind.P, u))[...] = 0
            for d, value in zip(damping, kept, strict=True):
                d[...] = value

    def diagonal(self) -> Any:
        """diag(J^T J)."""
        if not self._linear.blocks:
            return self.read(VectorKind.C)
        return self._joined(self._diagonal_of_blocks)

    def magnitudes(self) -> Any:
        """The magnitudes of the unknowns along each coordinate."""
        executor = self._executor
        return self._joined(lambda u: magnitudes(u, executor.buffers.read(u), executor.xp))

    def _diagonal_of_blocks(self, unknown: Field) -> Any:
        n = tangent(unknown).channels
        blocks = self._executor.buffers.read(vector(VectorKind.C, unknown, blocks=True))
        return blocks[..., [block_channel(unknown, a, a) for a in range(n)]]

    def _joined(self, read: Callable[[Field], Any]) -> Any:
        parts = (read(u).ravel() for u in self._unknowns)
        here = self.xp is self._executor.xp
        host = self._executor.host
        joined = [(part if here else host(part)).astype(np.float64) for part in parts]
        return joined[0] if len(joined) == 1 else self.xp.concatenate(joined)


@final
class Smooth:
    """In each channel of each unknown: the constants and, if asked, the coordinates along its dims, from -1 to 1.

    See `solver.rounding.Span`. A residual of differences hardly sees them, however large its weight.

    Args:
        shapes: of the unknowns' vectors, (*dims, channels) each.
        free: where something is solved for, (n,); all directions are 0 elsewhere.
        xp: the module of `free`, and of the vectors.
        linear: whether coordinates are asked for.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], free: Any, xp: Any, *, linear: bool) -> None:
        self._shapes = shapes
        self._free = free
        self._xp = xp
        self._terms = [len(shape) if linear else 1 for shape in shapes]
        self.size = sum(shape[-1] * terms for shape, terms in zip(shapes, self._terms, strict=True))

    def vector(self, coefficients: NDArray[np.float64]) -> Any:
        """See `Span.vector`."""
        coefficient, parts = iter(coefficients), []
        for shape, terms in zip(self._shapes, self._terms, strict=True):
            part = self._xp.zeros(shape)
            for basis in self._bases(shape, terms):
                for channel in range(shape[-1]):
                    part[..., channel] += float(next(coefficient)) * basis
            parts.append(part.ravel())
        flat = parts[0] if len(parts) == 1 else self._xp.concatenate(parts)
        return self._xp.where(self._free, flat, 0.0)

    def moments(self, v: Any) -> NDArray[np.float64]:
        """See `Span.moments`."""
        return self._sums(self._xp.where(self._free, v, 0.0), lambda basis: basis)

    def squares(self, c: Any) -> NDArray[np.float64]:
        """See `Span.squares`."""
        return self._sums(self._xp.where(self._free, c, 0.0), lambda basis: basis**2)

    def _sums(self, v: Any, weight: Callable[[Any], Any]) -> NDArray[np.float64]:
        """sum(weight(b_k) v) for each k."""
        found: list[float] = []
        for part, terms in zip(_parts(v, self._shapes), self._terms, strict=True):
            for basis in self._bases(part.shape, terms):
                found += [float((part[..., channel] * weight(basis)).sum()) for channel in range(part.shape[-1])]
        return np.array(found)

    def _bases(self, shape: tuple[int, ...], terms: int) -> Iterator[Any]:
        """1, then each coordinate, to be broadcast over the dims."""
        yield 1.0
        for axis, n in enumerate(shape[: terms - 1]):
            along = self._xp.arange(n) * (2 / max(n - 1, 1)) - (1 if n > 1 else 0)
            yield along.reshape([-1 if a == axis else 1 for a in range(len(shape) - 1)])


def _parts(flat: Any, shapes: Sequence[tuple[int, ...]]) -> Iterator[Any]:
    """Views of a flat vector: what belongs to each unknown, in its shape."""
    first = 0
    for shape in shapes:
        yield flat[first : first + math.prod(shape)].reshape(shape)
        first += math.prod(shape)
