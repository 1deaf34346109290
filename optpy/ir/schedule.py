"""The schedule of an energy's routines: what is stored, where it is computed and how it lies in memory.

Every decision comes with its reason. ``str(schedule)`` prints one line for each, with the reason as a comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import final

from optpy.ir.fields import Field
from optpy.ir.leaves import Access
from optpy.ir.spaces import Extent
from optpy.symbolic.expr import Expr


@final
class Target(Enum):
    """The kind of processor that routines are scheduled for."""

    CPU = "cpu"
    GPU = "gpu"
    """Points may add to one element by atomic additions, in whatever order."""
    DETERMINISTIC_GPU = "deterministic gpu"
    """Without atomic additions, so that every run gives the same bits."""

    @property
    def gpu(self) -> bool:
        """Whether it is a GPU."""
        return self is not Target.CPU


@final
@dataclass(frozen=True, slots=True)
class ResidualSchedule:
    """The way in which a residual, over the edges of a graph or the points of a grid, enters products with J^T J.

    Attributes:
        label: of the residual.
        jacobian: whether its value and the entries of J are stored for each edge or point, at every linearisation.
        product: whether J p is stored for each edge or point, in every product with J^T J.
        scatter: whether each edge adds to what it reads by atomic additions; else each vertex gathers over its edges.
        reason: a sentence with the counted costs.
    """

    label: str
    jacobian: bool = False
    product: bool = False
    scatter: bool = False
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.scatter and self.product:
            raise ValueError(f"{self.label}: an edge that scatters computes J p once; storing it serves nothing")

    def __str__(self) -> str:
        stored = [name for name, kept in (("J", self.jacobian), ("J p", self.product)) if kept]
        way = "scatter" if self.scatter else "gather"
        return f"{self.label}: {way}, {' and '.join(stored) or 'nothing'} stored"


@final
class FuncStorage(StrEnum):
    """The part of an intermediate that is kept in memory at the points of its grid."""

    INLINE = "inline"
    """Nothing: its formula stands wherever it is read."""
    VALUES = "values"
    """Its values."""
    PARTIALS = "values and partials"
    """Its values, and its derivatives with respect to the unknowns that it reads."""


@final
@dataclass(frozen=True, slots=True)
class FuncSchedule:
    """The memory of an intermediate, ``op.Func``.

    Attributes:
        name: of the intermediate.
        storage: what is kept at each linearisation; of one that reads no unknown, whenever its data change.
        in_cost: whether a pass of its own stores its values before a cost is summed.
        reason: a sentence with the counted costs.
    """

    name: str
    storage: FuncStorage = FuncStorage.INLINE
    in_cost: bool = False
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.storage}; in the cost {'stored' if self.in_cost else 'inline'}"


@final
class NormalForm(Enum):
    """The form in which J^T J is there for preconditioners that take more of it than its diagonal, or its blocks."""

    LEVELS = "matrix-free, with coarser levels of the grid below it"
    MATRIX = "assembled as a sparse matrix"
    PRODUCTS = "in no form but its products"


@final
@dataclass(frozen=True, slots=True)
class NormalSchedule:
    """The form of J^T J.

    Attributes:
        form: for which routines are derived. Which preconditioner takes it, and when, is known once there is data.
        reason: a sentence.
    """

    form: NormalForm
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"J^T J: {self.form.value}"


@final
@dataclass(frozen=True, slots=True)
class StoredValue:
    """An expression that is computed once for each linearisation.

    Attributes:
        value: the expression at its own point, over ``canonical_domain(memory.field.dims)``.
        memory: the channel that holds it, at the same point.
        readers: names of the routines that read it in place of computing it.
        reason: a sentence with the counted costs.
    """

    value: Expr
    memory: Access
    readers: tuple[str, ...]
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.memory} = {self.value!r}"


@final
@dataclass(frozen=True, slots=True)
class Split:
    """A routine over a grid whose sums over edges get a pass of their own.

    Attributes:
        routine: its name.
        reason: a sentence.
    """

    routine: str
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.routine}: sums over edges in a pass of their own"


@final
@dataclass(frozen=True, slots=True)
class GridLayout:
    """The order of channels and points in the memory of all fields on a grid.

    The padding of rows and planes is no decision of a schedule: it follows from their lengths, which are known when
    data is bound (``Layout`` in ``kernels/codegen/layout.py``).

    Attributes:
        dims: of the grid.
        interleaved: whether the channels of a point stand side by side; else each channel is a plane.
        padded: whether a GPU pads the points of what graphs read to whole vector loads.
        reason: a sentence.
    """

    dims: tuple[Extent, ...]
    interleaved: bool
    padded: bool = False
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.padded and not self.interleaved:
            raise ValueError(f"{self}: where channels are planes, points have no padding")

    def __str__(self) -> str:
        order = "interleaved" if self.interleaved else "planar"
        return f"({', '.join(map(str, self.dims))}): {order}{', points padded' if self.padded else ''}"


@final
@dataclass(frozen=True, slots=True)
class ChannelOrder:
    """The position of each channel of a stored field among the channels of a point.

    Attributes:
        stored: the field.
        positions: of channel 0, 1, ... in the order in which expressions were met: a permutation.
        reason: a sentence.
    """

    stored: Field
    positions: tuple[int, ...]
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.stored}: channels at {' '.join(map(str, self.positions))}"


@final
@dataclass(frozen=True, slots=True)
class VectorSweep:
    """A kernel on a GPU that touches nothing but its own point, and whose threads take several neighbouring points.

    Attributes:
        routine: its name.
        points: that a thread takes at a time, each number of theirs by one vector load or store.
        reason: a sentence with the counted numbers.
    """

    routine: str
    points: int
    reason: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.routine}: {self.points} point{'s' if self.points > 1 else ''} at a time"


Decision = (
    FuncSchedule | ResidualSchedule | NormalSchedule | StoredValue | Split | GridLayout | ChannelOrder | VectorSweep
)


@final
@dataclass(frozen=True, slots=True)
class Schedule:
    """All decisions for an energy on one target.

    Attributes:
        funcs: for each intermediate.
        residuals: for each residual that reads unknowns through a graph, or as a stencil whose entries of J vary.
        normal: the form of J^T J; None, of a schedule by hand: it is decided.
        values: that are stored at each linearisation.
        splits: of the routines that have sums over edges on grids.
        layouts: of each grid; those that are not named are planar.
        orders: of channels that are not kept in the order in which expressions were met.
        sweeps: of what touches its own points alone on a GPU; what is not named takes one point at a time.
    """

    funcs: tuple[FuncSchedule, ...] = ()
    residuals: tuple[ResidualSchedule, ...] = ()
    normal: NormalSchedule | None = None
    values: tuple[StoredValue, ...] = ()
    splits: tuple[Split, ...] = ()
    layouts: tuple[GridLayout, ...] = ()
    orders: tuple[ChannelOrder, ...] = ()
    sweeps: tuple[VectorSweep, ...] = ()

    @property
    def decisions(self) -> Iterator[tuple[str, Decision]]:
        """All decisions, each with the kind of thing that it is about."""
        kinds: tuple[tuple[str, tuple[Decision, ...]], ...] = (
            ("func", self.funcs),
            ("residual", self.residuals),
            ("normal", () if self.normal is None else (self.normal,)),
            ("value", self.values),
            ("split", self.splits),
            ("layout", self.layouts),
            ("order", self.orders),
            ("sweep", self.sweeps),
        )
        return ((kind, decision) for kind, group in kinds for decision in group)

    @property
    def interleaved(self) -> frozenset[tuple[Extent, ...]]:
        """The grids on which the channels of a point stand side by side."""
        return frozenset(x.dims for x in self.layouts if x.interleaved)

    @property
    def padded(self) -> frozenset[tuple[Extent, ...]]:
        """The grids on which a GPU pads the points of what graphs read."""
        return frozenset(x.dims for x in self.layouts if x.padded)

    def __str__(self) -> str:
        return "\n".join(f"{kind} {decision}  # {decision.reason}" for kind, decision in self.decisions)
