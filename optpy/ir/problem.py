"""The problem of nonlinear least squares: which residuals are summed, over which unknowns, and what they read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from optpy.errors import Location
from optpy.ir.fields import Field
from optpy.ir.leaves import Access, Plane, Scalar
from optpy.ir.residual import Residual
from optpy.ir.spaces import Extent, Hypergraph
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables


@final
@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of a robust loss, where it is a param or a number by itself: it must be positive."""

    label: str
    """Of the residual."""
    value: Scalar | float
    location: Location | None


@final
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Problem:
    """``min over x of 1/2 sum_k |F_k(x)|^2``: the residuals F_k, each over its whole domain, the unknowns x, and the
    data. A problem equals itself only, and may be the key of a weak dictionary.

    Attributes:
        residuals: entries of lists one by one, over canonical loop variables; all intermediates are written out.
        with_funcs: the same residuals as they read intermediates, of which each mentions only what is read here.
        unknowns: in the order in which the residuals first mention them.
        fixed: for an unknown, the condition over ``canonical_domain(unknown.dims)`` under which elements keep their
            values.
        fixed_as_written: the same conditions in the user's own indices, for texts.
        fields: the unknowns and arrays that are read, in the order of their first mention.
        graphs: that are read, in the order of their first mention.
        params: that are read, in the order of their first mention.
        scales: of robust losses, to be checked where data is bound.
        location: the user's line.
        sampled: the arrays that are read at computed places.
    """

    residuals: tuple[Residual, ...]
    with_funcs: tuple[Residual, ...]
    unknowns: tuple[Field, ...]
    fixed: Mapping[Field, Expr]
    fixed_as_written: Mapping[Field, str]
    fields: tuple[Field, ...]
    graphs: tuple[Hypergraph, ...]
    params: tuple[Scalar, ...]
    scales: tuple[Scale, ...]
    location: Location
    sampled: tuple[Field, ...] = ()

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the terms, in order."""
        return tuple(dict.fromkeys(r.term for r in self.residuals))

    @property
    def funcs(self) -> tuple[Field, ...]:
        """The intermediates that residuals read, by themselves or through others, each after those that it reads."""
        return funcs_read(e for r in self.with_funcs for e in (*r.components, *r.linearised))

    @property
    def dims(self) -> tuple[Extent, ...]:
        """All sizes, bound by the fields and the graphs."""
        axes = [d for f in self.fields for d in f.dims]
        return tuple(dict.fromkeys([*axes, *(d for g in self.graphs for d in (g.edges, *g.grid))]))


def funcs_read(roots: Iterable[Expr]) -> tuple[Field, ...]:
    """The intermediates that expressions read, by themselves or through others, each after those that it reads."""
    found: dict[Field, None] = {}
    keys = [v.key for v in variables(roots)]
    pending = [k.field for k in reversed(keys) if isinstance(k, Access | Plane) and k.field.definition is not None]
    while pending:
        func = pending[-1]
        assert func.definition is not None
        missing = [f for f in func.definition.funcs if f not in found]
        if missing:
            pending += reversed(missing)
        else:
            found[func] = None
            pending.pop()
    return tuple(found)
