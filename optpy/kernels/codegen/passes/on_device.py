"""Arrays of a GPU: read in place of others on demand, and side by side where that is known."""

from __future__ import annotations

from dataclasses import replace

from optpy.ir import Field, Vector, VectorKind, loops
from optpy.kernels.codegen.conventions import Conventions


def on_device(function: loops.Function, conventions: Conventions) -> loops.Function:
    """Declare p as delta where the caller asks for A delta, and channels side by side, which saves registers."""

    def rule(s: loops.Statement) -> loops.Block:
        if not isinstance(s, loops.Declare) or not isinstance(s.what, loops.ChannelPointer):
            return (s,)
        field = s.what.field
        adjacent = conventions.interleaved(field)
        # The true residual of conjugate gradients takes A delta: with delta in the place of p.
        instead = _delta(field.identity) if field.identity and field.identity.kind is VectorKind.P else None
        return (loops.Declare(replace(s.what, instead=instead, adjacent=adjacent)),)

    return replace(function, body=loops.rewrite(function.body, rule))


def _delta(p: Vector) -> Field:
    return replace(p, kind=VectorKind.DELTA).field
