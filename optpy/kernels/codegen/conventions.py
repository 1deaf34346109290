"""The conventions by which kernels are printed: how numbers are spelled, numbered and laid out in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from optpy.ir import Field
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.layout import Layout, point_stride, storage_dtype, widest_load
from optpy.kernels.codegen.symbol_table import SymbolTable


@final
@dataclass(frozen=True, slots=True)
class Conventions:
    """The conventions of a program's kernels.

    Attributes:
        symbols: the numbering of the context.
        dialect: the spellings.
        layout: how fields lie in memory.
        scalars: names of the solver's run-time scalars, in order.
    """

    symbols: SymbolTable
    dialect: Dialect
    layout: Layout
    scalars: tuple[str, ...]

    def interleaved(self, field: Field) -> bool:
        """Whether the channels of a point stand side by side."""
        return field.dims in self.symbols.interleaved and field.channels > 1

    def point_stride(self, field: Field) -> int:
        """Numbers from one point to the next where channels stand side by side; else 1."""
        return point_stride(field, self.symbols, self.dialect.dtype, self.layout)

    def widest(self, field: Field) -> int:
        """Numbers of a field in the widest load."""
        return widest_load(storage_dtype(field, self.dialect.dtype).itemsize)

    def widest_add(self, field: Field) -> int:
        """Numbers of a field in the widest atomic addition."""
        return self.layout.widest_add(storage_dtype(field, self.dialect.dtype).itemsize)
