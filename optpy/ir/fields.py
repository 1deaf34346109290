"""Arrays over grids: the user's own, those that are stored on the way, and the vectors of the solver."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import final

from optpy.errors import Location
from optpy.ir.spaces import Extent, LoopVariable
from optpy.symbolic.affine import Atom
from optpy.symbolic.expr import Expr


class Role(Enum):
    """The part that a field plays in a solve."""

    UNKNOWN = "unknown"
    DATA = "data"
    FUNC = "func"
    """An intermediate that users have named, ``op.Func``: a formula at each point, whether it is stored or not."""
    STORED = "stored"
    """An intermediate in memory, computed before what reads it."""
    VECTOR = "vector"
    """A vector of the solver: of an unknown (``Vector``), or of a residual, such as F and J p."""
    TANGENT = "tangent"
    """The displacement of an unknown on a manifold from its value: differentiated by, and 0 wherever it is
    read."""


REAL = "real"
"""The dtype name of fields in the solver's own precision."""

DTYPES = (REAL, "float32", "float64", "uint8", "int32", "bool")


@dataclass(frozen=True)
class ManifoldShape:
    """The manifold in which the elements of a field live, if not a vector space.

    Attributes:
        name: "SO3".
        channels: how many numbers store an element.
        dimension: in how many independent directions it can move.
    """

    name: str
    channels: int
    dimension: int

    def __str__(self) -> str:
        return self.name


@final
class VectorKind(StrEnum):
    """The solver's vectors, one for each unknown; A is J^T J, or J^T J + D."""

    G = "g"
    """The gradient J^T F."""
    P = "p"
    """The search direction."""
    AP = "Ap"
    """The product A p."""
    R = "r"
    """The residual -g - A delta of the linear system."""
    Z = "z"
    """The preconditioned residual M r, where it is stored."""
    DELTA = "delta"
    """The step."""
    CANDIDATE = "candidate"
    """The unknown at the end of a step: x + delta, or what that means on its manifold."""
    C = "C"
    """The diagonal of J^T J, or its blocks."""
    D = "D"
    """The damping."""
    M = "M"
    """The inverse of the diagonal of J^T J + D, or of its blocks."""


@final
@dataclass(frozen=True, slots=True)
class Vector:
    """A vector of the solver.

    Attributes:
        kind: which one.
        unknown: to which it belongs, in the coordinates in which that moves; a candidate's, as it is stored.
        blocks: whether each element has a symmetric block, as the upper triangle row by row, not only its diagonal.
    """

    kind: VectorKind
    unknown: Field
    blocks: bool = False

    @property
    def field(self) -> Field:
        """The array that holds it, over the grid of the unknown."""
        n = self.unknown.channels
        channels = n * (n + 1) // 2 if self.blocks else n
        # The dot keeps them apart from the user's arrays, whose names are identifiers.
        name = f"{self.kind}.{self.unknown.name}"
        return Field(name, self.unknown.dims, channels, REAL, Role.VECTOR, identity=self)


@final
@dataclass(frozen=True, slots=True)
class Definition:
    """The formula of an intermediate, over ``canonical_domain`` of its grid, with the boundary rule already applied.

    One that is summed, ``sum over loops of values``, is no formula that could stand where it is read.

    Attributes:
        values: one for each channel.
        linearised: the same as functions of the tangents, too, of unknowns on manifolds: to be taken where those are 0.
        funcs: the intermediates that it reads.
        loops: over which it is summed, each a whole dim.
        location: the user's line.
        written: the user's own loop variables, one for each of the loops, as long as they stand in an expression of the
            user's; a problem has none, so that equal sums are one whatever their indices are.
    """

    values: tuple[Expr, ...]
    linearised: tuple[Expr, ...]
    funcs: tuple[Field, ...]
    loops: tuple[LoopVariable, ...] = ()
    location: Location | None = field(default=None, compare=False)
    written: tuple[Atom, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Field:
    """An array over a grid, with a fixed number of channels at every point."""

    name: str
    dims: tuple[Extent, ...]
    channels: int
    dtype: str
    role: Role
    channel_axis: bool = False
    """Whether users see a channel axis: shape (H, W, 1) is not (H, W)."""
    location: Location | None = field(default=None, compare=False)
    finite: bool = True
    """Whether no element is ever infinite or NaN (data is checked when it is bound), so that it needs no guard."""
    manifold: ManifoldShape | None = None
    identity: Vector | None = None
    """The vector that it holds, if it is one of an unknown's. Its name and channels do not say of which: another energy
    may have an unknown of the same name on a manifold."""
    definition: Definition | None = None
    """The formula of an intermediate."""

    @property
    def is_sum(self) -> bool:
        """Whether it is an intermediate that is summed over loops."""
        return self.definition is not None and bool(self.definition.loops)

    @property
    def is_sampled(self) -> bool:
        """Whether it is the memory of an intermediate that is read at computed places."""
        return self.role is Role.STORED and self.definition is not None

    def __hash__(self) -> int:
        return hash(self.name)  # each expression hashes its fields again and again

    def __str__(self) -> str:
        return self.name


SAMPLED = "sampled."
"""In front of the names of intermediates that are read at computed places."""


def sampled(func: Field) -> Field:
    """The memory of an intermediate that is read at computed places, with its formula: it is always stored."""
    return replace(func, name=f"{SAMPLED}{func.name}", dtype=REAL, role=Role.STORED)


def tangent(unknown: Field) -> Field:
    """The coordinates in which an unknown moves: itself, or those of its manifold's tangent space at its value."""
    if unknown.manifold is None:
        return unknown
    return Field(unknown.name, unknown.dims, unknown.manifold.dimension, REAL, Role.TANGENT, True, unknown.location)


FieldChannel = tuple[Field, int]
"""A channel of a field."""
