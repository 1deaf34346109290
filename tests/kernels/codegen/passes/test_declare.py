"""Declarations: all that is used, each once, and nothing else; on GPUs p may be delta."""

from __future__ import annotations

import re

from optpy import ir
from optpy.ir import loops
from optpy.kernels.codegen.cuda.functions import device_function
from optpy.kernels.codegen.cuda.printer import CudaPrinter
from optpy.kernels.codegen.functions import cpu_functions
from optpy.kernels.codegen.lower import lower
from optpy.kernels.codegen.printer import CPrinter
from optpy.symbolic.expr import ZERO
from tests.kernels.codegen.passes.routines import (
    DELTA,
    VERTICES,
    G,
    P,
    conventions,
    elementwise,
    gather,
    read,
    scatter,
    statements,
    stencil,
)

NAMES = r"\b(?:n_[A-Z]|pitch\d+|table\d+|f\d+_\d+|s_\w+)\b"


def check(text: str) -> None:
    names = re.findall(rf"({NAMES}) = [^;]*c->", text)
    assert len(names) == len(set(names))
    for name in set(re.findall(NAMES, text)):
        assert name in names
        assert len(re.findall(rf"\b{name}\b", text)) > 1


def test_what_is_declared_is_what_is_used() -> None:
    for routine in (stencil(), elementwise(), gather()):
        where = conventions(routine)
        for function in cpu_functions(lower(routine), where, 0, 0):
            check(CPrinter(where).function(function))


def test_what_is_stored_or_added_to_is_writable() -> None:
    (function,) = cpu_functions(lower(gather()), conventions(gather()), 0, 0)
    arrays = [s.what for s in statements(function.body, loops.Declare) if isinstance(s.what, loops.ChannelPointer)]
    assert {a.field.name: a.writable for a in arrays} == {"X": False, "p.X": False, "g": True}


def arrays_on_device(routine: ir.Routine) -> dict[str, loops.ChannelPointer]:
    delta = ir.Routine("delta", VERTICES, (ir.Assignment(read(DELTA, *VERTICES), ZERO),))
    where = conventions(routine, delta, cuda=True)
    function = device_function(lower(routine), where, 0, (0,), None)
    assert CudaPrinter(where).function(function)
    found = [s.what for s in statements(function.body, loops.Declare) if isinstance(s.what, loops.ChannelPointer)]
    return {a.field.name: a for a in found}


def test_on_a_gpu_p_gives_way_to_delta_and_channels_are_adjacent() -> None:
    found = arrays_on_device(gather())
    assert found[P.name].instead == DELTA
    assert found[P.name].adjacent
    added = arrays_on_device(scatter())[G.name]
    assert added.adjacent
    assert added.writable
