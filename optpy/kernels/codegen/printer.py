"""The loop IR to C functions: who visits which segment, and where the sums go."""

from __future__ import annotations

from optpy.ir import loops
from optpy.kernels.codegen.statements import StatementPrinter, indent, uses


class CPrinter(StatementPrinter):
    """Prints the functions of the CPU."""

    def function(self, f: loops.Function) -> str:
        """A function that visits the segments [first, last)."""
        linkage = "static __attribute__((noinline))" if f.noinline else "OPTPY_KERNEL"
        unused = indent(uses("scalar", "first", "last"))
        declared = f"{linkage} void {f.name}(const Context *c, const double *scalar, int64_t first, int64_t last)"
        return "\n".join([f"{declared} {{", *self.block(f.body, 1), *unused, "}"])

    def statement(self, s: loops.Statement) -> list[str]:
        """The lines of a statement."""
        match s:
            case loops.FunctionCall():
                return [f"{s.name}(c, scalar, {s.first}, {s.last});"]
            case loops.Fetch():
                return [self._fetch(s)]
            case loops.Segments():
                return [
                    f"const Segment *segments = c->segments[{s.number}];",
                    "for (int64_t at = first; at < last; ++at) {",
                    "    const int64_t row = segments[at].row, begin = segments[at].begin, end = segments[at].end;",
                    "    const int64_t later = segments[at].later;",
                    *self.block(s.body, 1),
                    *indent(uses("row", "later")),
                    "}",
                ]
            case loops.Partial():
                return [self._partial(s)]
        return super().statement(s)

    def _fetch(self, s: loops.Fetch) -> str:
        array, address = s.operand.access, s.operand.address
        assert address is not None
        place = f"{self._spell.array(array.field, array.channel)}, {self._spell.integer(address)}"
        return f"OPTPY_FETCH({place}, {int(s.stored)});"

    def _partial(self, s: loops.Partial) -> str:
        partial = f"c->partial[{s.number}][at]"
        total = f"(double)optpy_from_bits{self._dialect.suffix}({s.name})" if s.maximum else s.name
        if s.join:
            total = f"optpy_max({partial}, {total})" if s.maximum else f"{partial} + {total}"
        return f"{partial} = {total};"

    def _accumulator(self, maximum: bool) -> str:
        return f"optpy_bits{self._dialect.suffix}_t" if maximum else "double"

    def _raise(self, s: loops.Accumulate) -> str:
        # NaN is kept: as bits, it is larger than every number, infinity included.
        magnitude = f"{self._dialect.functions['abs']}({self._spell.values[s.value]})"
        bits = f"optpy_bits{self._dialect.suffix}({magnitude})"
        return f"{s.name} = {bits} > {s.name} ? {bits} : {s.name};"
