"""A kernel to the functions of the CPU: the passes, in their order."""

from __future__ import annotations

from optpy.ir import loops
from optpy.kernels.codegen.arithmetic import arithmetic
from optpy.kernels.codegen.branch import has_parts
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.passes.branch import branch_in_strips
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.declare import declare
from optpy.kernels.codegen.passes.fetch_ahead import fetch_ahead
from optpy.kernels.codegen.passes.flatten import flatten
from optpy.kernels.codegen.passes.follow_edges import follow_edges
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.hoist import hoist
from optpy.kernels.codegen.passes.in_stages import in_stages
from optpy.kernels.codegen.passes.limit_loops import limit_loops
from optpy.kernels.codegen.passes.look_up import look_up
from optpy.kernels.codegen.passes.over_segments import over_segments
from optpy.kernels.codegen.passes.sum_in_strips import sum_in_strips
from optpy.kernels.codegen.passes.sum_serially import sum_serially


def cpu_functions(
    kernel: Kernel, conventions: Conventions, segments: int, reduction: int
) -> tuple[loops.Function, ...]:
    """The functions of a kernel, ready to be printed.

    Args:
        kernel: what is computed.
        conventions: those of where it runs.
        segments: number of the list of segments that it visits.
        reduction: number of its first reduction.
    """
    function = guard_reads(build_loops(kernel))
    if conventions.symbols.tables:
        function = follow_edges(look_up(function, conventions.symbols))
    functions = over_segments(function, segments, reduction)
    if len(functions) > 1:
        functions = tuple(fetch_ahead(f, conventions) for f in functions)
    if has_parts(kernel.border):
        functions = tuple(branch_in_strips(f, conventions.dialect) for f in functions)
    if kernel.border.locals:
        functions = tuple(sum_serially(limit_loops(sum_in_strips(f))) for f in functions)
    else:
        functions = tuple(map(limit_loops, functions))
    computed = (in_stages(hoist(arithmetic(f, conventions.dialect)), conventions.dialect) for f in functions)
    return tuple(declare(flatten(f, conventions)) for f in computed)
