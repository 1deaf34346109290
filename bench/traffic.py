"""How many bytes a routine has to move for each pixel, or vertex, if every array goes through memory exactly once.

That is the least possible, whatever an implementation really does: storing intermediates or reading an array
twice makes it slower, not the count larger. So a fraction of the copy bandwidth says how much is left to gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

Kind = Literal["real", "uint8", "shared"]


@final
@dataclass(frozen=True, slots=True)
class Operand:
    """An array of an energy that the product with J^T J depends on.

    Args:
        kind: "real" has the dtype of the solve; what is "shared" by all elements counts nothing.
    """

    name: str
    channels: int = 1
    kind: Kind = "real"

    def nbytes(self, itemsize: int) -> int:
        """Bytes for each pixel."""
        return self.channels * {"real": itemsize, "uint8": 1, "shared": 0}[self.kind]


@final
@dataclass(frozen=True, slots=True)
class Movement:
    """So many passes of an array between memory and processor."""

    name: str
    nbytes: int
    """For each pixel and pass."""
    passes: int

    @property
    def total(self) -> int:
        """Bytes for each pixel."""
        return self.nbytes * self.passes

    def __str__(self) -> str:
        return f"{self.name} {self.passes} x {self.nbytes}" if self.passes > 1 else f"{self.name} {self.nbytes}"


@final
@dataclass(frozen=True, slots=True)
class Traffic:
    """The arrays around J^T J of one energy.

    Args:
        unknown_channels: of all unknowns together.
        operands: what J depends on, the unknowns among them; an array that only the residual's value depends
            on is none, as no product with J^T J reads it.
        damped: Levenberg-Marquardt, so the diagonal D is added.
        edge_slots: indices of 4 bytes that every edge of the graph has.
        edge_operands: what J depends on that stands at the edges.
    """

    unknown_channels: int
    operands: tuple[Operand, ...]
    damped: bool
    edge_slots: int = 0
    edge_operands: tuple[Operand, ...] = ()

    def bytes_per_edge(self, itemsize: int) -> int:
        """Read in every product with J^T J; nothing else needs to be there for an edge."""
        return 4 * self.edge_slots + sum(operand.nbytes(itemsize) for operand in self.edge_operands)

    def apply_jtj(self, itemsize: int) -> tuple[Movement, ...]:
        """Ap = (J^T J + D) p."""
        vector = self.unknown_channels * itemsize
        return (Movement("p", vector, 1), Movement("Ap", vector, 1), *self._operator(itemsize))

    def pcg(self, itemsize: int) -> tuple[Movement, ...]:
        """One iteration: applyJTJ, p.Ap, x += alpha p, r -= alpha Ap, z = M r, r.z, p = z + beta p.

        x, r and p are read and written, Ap is written and read, M is read.
        """
        vector = self.unknown_channels * itemsize
        updated = tuple(Movement(name, vector, 2) for name in ("x", "r", "p", "Ap"))
        return (*updated, Movement("M", vector, 1), *self._operator(itemsize))

    def _operator(self, itemsize: int) -> tuple[Movement, ...]:
        read = tuple(Movement(o.name, o.nbytes(itemsize), 1) for o in self.operands)
        return (*read, Movement("D", self.unknown_channels * itemsize, 1)) if self.damped else read


def bytes_per_pixel(movements: tuple[Movement, ...]) -> int:
    """The sum over all arrays."""
    return sum(m.total for m in movements)


def explain(movements: tuple[Movement, ...], bytes_per_edge: int = 0) -> str:
    """The count as a sum, for tables: "p 12 + Ap 12 + Mask 1 = 25 bytes/pixel"."""
    total = " + ".join(map(str, movements)) + f" = {bytes_per_pixel(movements)} bytes/"
    return f"{total}element, and {bytes_per_edge} bytes/edge" if bytes_per_edge else f"{total}pixel"
