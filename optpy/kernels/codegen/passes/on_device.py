"""Arrays of a GPU: read in place of others on demand, and side by side where that is known."""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import Field, Vector, VectorKind, loops
from optpy.kernels.codegen.conventions import Conventions


def on_device(function: loops.Function, conventions: Conventions) -> loops.Function:
    """Declare p as delta where the caller asks for A delta, and channels side by side where nothing is added to."""
    added = {
        s.operand.access.field
        for s in loops.walk(function.body)
        if isinstance(s, loops.Store) and s.atomic and isinstance(s.operand, loops.MemoryOperand)
    }

    def rule(s: loops.Statement) -> loops.Block:
        if not isinstance(s, loops.Declare) or not isinstance(s.what, loops.ChannelPointer):
            return (s,)
        field = s.what.field
        # That it is 1 saves a register for each channel; but where it knows that atomics are side by side, the compiler
        # for sm_100 keeps all that they add until the end.
        adjacent = conventions.interleaved(field) and field not in added
        # The true residual of conjugate gradients takes A delta: with delta in the place of p.
        instead = _delta(field.identity) if field.identity and field.identity.kind is VectorKind.P else None
        return (loops.Declare(replace(s.what, instead=instead, adjacent=adjacent)),)

    return replace(function, body=loops.rewrite(function.body, rule))


def _delta(p: Vector) -> Field:
    return replace(p, kind=VectorKind.DELTA).field
