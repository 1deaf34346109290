"""Residuals: the vectors whose squares are summed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from optpy.errors import Location
from optpy.ir.spaces import Domain
from optpy.symbolic.affine import Atom
from optpy.symbolic.expr import Expr


@final
@dataclass(frozen=True, slots=True)
class Residual:
    """One residual vector at every point of a domain, with the boundary rule already applied.

    Its components are scalar expressions over ``domain``'s loop variables.
    """

    term: str
    """The keyword of ``Energy``: "reg"."""
    label: str
    """Unique: "reg[0]" for entries of a list, else the term's name."""
    domain: Domain
    components: tuple[Expr, ...]
    """The expressions whose squares the cost sums."""
    linearised: tuple[Expr, ...]
    """Expressions to differentiate: components, but where a robust loss is, the residual within it times its weight.
    Where unknowns live on manifolds it is a function of their tangents, too, to be taken where those are 0."""
    shape: tuple[int, ...]
    location: Location | None = field(default=None, compare=False)
    written: tuple[Atom, ...] = field(default=(), compare=False)
    """The user's own loop variables, one for each of the domain's: for texts."""
