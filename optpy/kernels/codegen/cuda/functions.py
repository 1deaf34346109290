"""A kernel to a device function: the passes, in their order."""

from __future__ import annotations

from optpy.ir import Field, loops
from optpy.kernels.codegen.arithmetic import arithmetic
from optpy.kernels.codegen.branch import has_parts
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.lower import Kernel
from optpy.kernels.codegen.passes.branch import branch_at_points
from optpy.kernels.codegen.passes.build_loops import build_loops
from optpy.kernels.codegen.passes.declare import declare
from optpy.kernels.codegen.passes.flatten import flatten
from optpy.kernels.codegen.passes.follow_edges import follow_edges
from optpy.kernels.codegen.passes.guard_reads import guard_reads
from optpy.kernels.codegen.passes.hoist import hoist
from optpy.kernels.codegen.passes.in_vectors import in_vectors
from optpy.kernels.codegen.passes.look_up import look_up
from optpy.kernels.codegen.passes.on_device import on_device
from optpy.kernels.codegen.passes.on_grid import on_grid
from optpy.kernels.codegen.passes.pack_channels import pack_channels
from optpy.kernels.codegen.passes.sum_over_lanes import sum_over_lanes


def device_function(
    kernel: Kernel,
    conventions: Conventions,
    number: int,
    sums: tuple[int, ...],
    solved: Field | None,
    points: int | None = None,
) -> loops.Function:
    """The device function of a kernel, ready to be printed.

    Args:
        kernel: what is computed.
        conventions: those of where it runs.
        number: of the kernel: what ``Context.lane_bits`` has for it.
        sums: for each of its reductions, which of its launch's sums it adds to.
        solved: where on its grid something is solved for, if other points are to be left out.
        points: that a thread takes at a time in a sweep; None: it is no sweep.
    """
    mask = None if solved is None else loops.Mask(solved)
    function = guard_reads(build_loops(kernel))
    if has_parts(kernel.border):
        function = branch_at_points(function)
    function = arithmetic(function, conventions.dialect)
    if points is not None:
        function = in_vectors(function, conventions, sums, mask, points)
    else:
        if conventions.symbols.tables:
            function = follow_edges(look_up(function, conventions.symbols))
        function = sum_over_lanes(function)
        function = pack_channels(on_grid(function, number, sums, mask), conventions)
    return on_device(declare(flatten(hoist(function), conventions)), conventions)
