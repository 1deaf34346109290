"""The contributions of one component of a residual to J^T F, J^T J p and the blocks of J^T J."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from operator import attrgetter
from typing import Final

from optpy.energy.derive.gather import Contribution
from optpy.energy.derive.vectors import AP, C, G
from optpy.ir import FieldChannel
from optpy.symbolic.expr import Expr, mul


def _gradient_and_blocks(
    column: Mapping[FieldChannel, Expr], full: Mapping[FieldChannel, Expr], value: Expr
) -> dict[Hashable, Expr]:
    gradient: dict[Hashable, Expr] = {(G, u, a): mul(d, value) for (u, a), d in column.items()}
    blocks: dict[Hashable, Expr] = {
        (C, u, a, b): mul(d, e) for (u, a), d in column.items() for (w, b), e in full.items() if u == w and a <= b
    }
    return gradient | blocks


def _times_jvp(
    column: Mapping[FieldChannel, Expr], full: Mapping[FieldChannel, Expr], jvp: Expr
) -> dict[Hashable, Expr]:
    return {(AP, u, a): mul(d, jvp) for (u, a), d in column.items()}


GRADIENT_AND_BLOCKS: Final = Contribution(attrgetter("values"), _gradient_and_blocks)
"""To g and the blocks of J^T J."""

TIMES_JVP: Final = Contribution(attrgetter("jvps"), _times_jvp)
"""To J^T (J p)."""
