"""Expressions of a function to arithmetic that has one spelling: the passes, in their order. For C and CUDA alike."""

from __future__ import annotations

from optpy.ir import loops
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.passes.compare_whole import compare_whole
from optpy.kernels.codegen.passes.convert import convert
from optpy.kernels.codegen.passes.divide import divide
from optpy.kernels.codegen.passes.drop_marks import drop_marks
from optpy.kernels.codegen.passes.expand_powers import expand_powers
from optpy.kernels.codegen.passes.in_order import in_order
from optpy.kernels.codegen.passes.share_reciprocals import share_reciprocals
from optpy.kernels.codegen.passes.split_quotients import split_quotients


def arithmetic(function: loops.Function, dialect: Dialect) -> loops.Function:
    """The function with all that its expressions compute spelt out.

    Args:
        function: of any form.
        dialect: of where it runs.
    """
    function = split_quotients(share_reciprocals(drop_marks(in_order(function))))
    return convert(compare_whole(expand_powers(divide(function))), dialect)
