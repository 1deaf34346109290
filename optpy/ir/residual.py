"""What an energy is to the builders of its routines: residuals, and how they couple the unknowns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from ..errors import Location
from ..symbolic.affine import Atom
from ..symbolic.expr import Expr
from .spaces import Dim, Domain, Element


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
    """What the cost sums the squares of."""
    linearised: tuple[Expr, ...]
    """What is differentiated: the components, but where a robust loss is, the residual within it times its weight.
    Where unknowns live on manifolds it is a function of their tangents, too, to be taken where those are 0."""
    shape: tuple[int, ...]
    location: Location | None = field(default=None, compare=False)
    written: tuple[Atom, ...] = field(default=(), compare=False)
    """The user's own loop variables, one for each of the domain's: for texts."""


@final
@dataclass(frozen=True, slots=True)
class Coupling:
    """The sparsity of J^T J where all unknowns stand on one grid and are read at constant offsets of one another.

    Attributes:
        dims: of the grid.
        elements: the channels of all unknowns, numbered in this order.
        reach: of each dim, how far apart two coupled points are at most.
        pairs: (row, column) of elements that are coupled, sorted; symmetric, with the diagonal.
        vectors: the solver's vectors that a preconditioner works on, by name, element by element.
    """

    dims: tuple[Dim, ...]
    elements: tuple[Element, ...]
    reach: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    vectors: Mapping[str, tuple[Element, ...]]

    @property
    def coarse_reach(self) -> tuple[int, ...]:
        """The reach of P^T J^T J P, where P interpolates linearly from every other point."""
        return tuple((r + 2) // 2 for r in self.reach)
