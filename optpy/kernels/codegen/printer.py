"""Kernels to C functions: the loop harness of the CPU around the bodies.

Each kernel visits a range of segments (runs of points of one row). In a segment, points of the interior run in a
plain inner loop over contiguous memory that compilers vectorise; the rest goes through a function of its own that
checks its reads. Sums are kept in double, one for each segment, so that they do not depend on the number of threads.
"""

from __future__ import annotations

from optpy.errors import InternalError
from optpy.ir import Reduce
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.point import PointPrinter, indent, uses
from optpy.kernels.codegen.slots import Slots


class KernelPrinter(PointPrinter):
    """Prints the functions of one kernel.

    Args:
        kernel: what to print.
        slots: the numbering of the context.
        dialect: the spellings.
        solver_scalars: names of the run-time scalars, in order.
        segments: slot of the list of segments that it visits.
        first_reduction: slot of the kernel's first reduction.
    """

    def __init__(
        self,
        kernel: Kernel,
        slots: Slots,
        dialect: Dialect,
        solver_scalars: tuple[str, ...],
        segments: int,
        first_reduction: int,
    ) -> None:
        super().__init__(kernel, slots, dialect, solver_scalars)
        if kernel.border.accumulates:
            raise InternalError(f"{kernel.name} adds to what other points add to: there is no C for atomic additions")
        self._segments = segments
        self._first_reduction = first_reduction
        self._inner = str(self._domain[-1]) if self._domain else "only"

    def source(self) -> str:
        if all(m == (0, 0) for m in self._kernel.margins):
            return self._function("", self._points("begin", "end", checked=False), self._partials(add=False))
        # Border and interior in passes of their own: what a function sets up costs more than a border point.
        border = [
            "for (int part = 0; part < 2; ++part) {",
            "    const int64_t start = part ? high : begin, stop = part ? end : low;",
            *indent(self._points("start", "stop", checked=True)),
            "}",
        ]
        interior = self._points("low", "high", checked=False)
        first = f"{self._kernel.name}_border(c, scalar, first, last);"
        return "\n\n".join(
            [
                self._function("_border", [*self._limits(), *border], self._partials(add=False)),
                self._function("", [*self._limits(), *interior], self._partials(add=True), first),
            ]
        )

    # -- functions -----------------------------------------------------------------------------------------------

    def _function(self, suffix: str, segment: list[str], partials: list[str], before: str = "") -> str:
        """A function that visits the segments [first, last)."""
        routine = self._kernel.border if suffix else self._kernel.interior
        attribute = "__attribute__((noinline)) " if suffix else ""
        arguments = "const Context *c, const double *scalar, int64_t first, int64_t last"
        lines = [
            f"static {attribute}void {routine.name}{suffix}({arguments}) {{",
            *indent([before] if before else []),
            *indent(self._prologue(routine)),
            f"    const Segment *segments = c->segments[{self._segments}];",
            "    for (int64_t at = first; at < last; ++at) {",
            "        const int64_t row = segments[at].row, begin = segments[at].begin, end = segments[at].end;",
            *indent(self._outer_indices(), 2),
            *indent([self._accumulator(k, r) for k, r in enumerate(routine.reductions)], 2),
            *indent(segment, 2),
            *indent(partials, 2),
            *indent(uses("row"), 2),
            "    }",
            *indent(uses("scalar")),
            "}",
        ]
        return "\n".join(lines)

    def _points(self, begin: str, end: str, checked: bool) -> list[str]:
        """The loop over the points of a row from begin to end."""
        routine = self._kernel.border if checked else self._kernel.interior
        return [
            "OPTPY_INDEPENDENT",
            f"for (int64_t {self._inner} = {begin}; {self._inner} < {end}; ++{self._inner}) {{",
            *indent([*self._body(routine, checked), *uses(self._inner)]),
            "}",
        ]

    def _limits(self) -> list[str]:
        """The interior [low, high) of this segment; empty on a border row."""
        margins = self._kernel.margins
        outer = [
            f"{i} >= {low} && {i} < {self._size(i.dim)} - {high}"
            for i, (low, high) in zip(self._domain[:-1], margins[:-1], strict=True)
            if (low, high) != (0, 0)
        ]
        low, high = margins[-1]
        inside = " && ".join(outer) or "1"
        length = self._size(self._domain[-1].dim)
        return [
            f"const int inside = {inside};",
            # Rows and segments begin on cache lines: from there, few loads straddle two of them.
            f"const int64_t first_inside = optpy_whole_vectors({low}, {length});",
            "const int64_t from = begin > first_inside ? begin : first_inside;",
            f"const int64_t to = end < {length} - {high} ? end : {length} - {high};",
            "const int64_t low = inside && from < to ? from : end, high = inside && from < to ? to : end;",
        ]

    def _accumulator(self, n: int, reduction: Reduce) -> str:
        ctype = f"optpy_bits{self._dialect.suffix}_t" if reduction.maximum else "double"
        return f"{ctype} sum{n} = 0;"

    def _partials(self, add: bool) -> list[str]:
        """Store what the segment's points add up to, or add it to what the border has left there."""
        lines = []
        for n, reduction in enumerate(self._kernel.border.reductions):
            partial = f"c->partial[{self._first_reduction + n}][at]"
            total = f"sum{n}"
            if reduction.maximum:
                total = f"(double)optpy_from_bits{self._dialect.suffix}(sum{n})"
            if add:
                total = f"optpy_max({partial}, {total})" if reduction.maximum else f"{partial} + {total}"
            lines.append(f"{partial} = {total};")
        return lines
