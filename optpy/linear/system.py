"""The linear system of an energy as preconditioners see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, final

from optpy.ir import Extent, Field, Hypergraph
from optpy.kernels.runtime.tables import Connectivity
from optpy.linear.pcg_loop import PcgLoop

_T = TypeVar("_T")


@final
class System:
    """(J^T J + D) x = b of one energy with its data.

    Args:
        loop: runs conjugate gradients on the device.
        graphs: as they are bound; none: edges are of any length, until they are known.
        sizes: of the dims, where they are not those of the bound memory.
    """

    def __init__(
        self, loop: PcgLoop, graphs: Mapping[Hypergraph, Connectivity], sizes: Mapping[Extent, int] | None = None
    ) -> None:
        self.loop, self.graphs = loop, graphs
        self.sizes: Mapping[Extent, int] = loop.executor.buffers.sizes if sizes is None else sizes
        self._shared: dict[Any, Any] = {}

    @property
    def executor(self) -> Any:
        """See ``PcgLoop.executor``."""
        return self.loop.executor

    @property
    def program(self) -> Any:
        """The energy's ``Program`` or ``CudaProgram``."""
        return self.loop.executor.program

    @property
    def unknowns(self) -> Sequence[Field]:
        """The fields that x has, in the order of the problem."""
        return self.loop.unknowns

    def shared(self, make: Callable[[System], _T]) -> _T:
        """An object that several preconditioners use, made when it is first asked for."""
        if make not in self._shared:
            self._shared[make] = make(self)
        found: _T = self._shared[make]
        return found
