"""The contributions of one component of a residual to J^T F, J^T J p and the blocks of J^T J."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from optpy.energy.derive.vectors import AP, C, G
from optpy.ir import FieldChannel
from optpy.symbolic.expr import Expr, mul


def gradient_and_blocks(
    column: Mapping[FieldChannel, Expr], full: Mapping[FieldChannel, Expr], value: Expr, jvp: Expr
) -> dict[Hashable, Expr]:
    """Contributions of one component of a residual to g and the blocks of J^T J (see ``gather.Contribution``)."""
    gradient: dict[Hashable, Expr] = {(G, u, a): mul(d, value) for (u, a), d in column.items()}
    blocks: dict[Hashable, Expr] = {
        (C, u, a, b): mul(d, e) for (u, a), d in column.items() for (w, b), e in full.items() if u == w and a <= b
    }
    return gradient | blocks


def times_jvp(
    column: Mapping[FieldChannel, Expr], full: Mapping[FieldChannel, Expr], value: Expr, jvp: Expr
) -> dict[Hashable, Expr]:
    """The contributions of one component of a residual to J^T (J p) (see ``gather.Contribution``)."""
    return {(AP, u, a): mul(d, jvp) for (u, a), d in column.items()}
