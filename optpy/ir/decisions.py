"""The decisions of a schedule: one about each thing that can be done in several ways.

Where it is about a thing that does not exist, or cannot be
so, the decider refuses it (``scheduling/given.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Self, final

from optpy.errors import OptionError
from optpy.ir.decision import ALL, Decision, either, only
from optpy.ir.spaces import Extent

NORMAL: Final = "J^T J"
"""The name of J^T J."""


@final
class FuncStorage(StrEnum):
    """The part of an intermediate that is kept in memory at the points of its grid."""

    INLINE = "inline"
    """Nothing: its formula stands wherever it is read."""
    VALUES = "values"
    """Its values."""
    PARTIALS = "partials"
    """Its values, and its derivatives with respect to the unknowns that it reads."""


@final
@dataclass(frozen=True, slots=True)
class FuncSchedule(Decision):
    """The memory of an intermediate, ``op.Func``.

    Attributes:
        name: of the intermediate.
        storage: what is kept at each linearisation; of one that reads no unknown, whenever its data change.
        in_cost: whether a pass of its own stores its values before a cost is summed.
        reason: a sentence with the counted costs.
    """

    kind: ClassVar[str] = "func"
    words: ClassVar[str] = "inline, values, partials, each alone or with cost"
    name: str
    storage: FuncStorage = FuncStorage.INLINE
    in_cost: bool = False
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        storage = [FuncStorage(w) for w in choice if w != "cost" and w in FuncStorage.__members__.values()]
        only(cls.words, choice, [*storage[:1], *(["cost"] if "cost" in choice else [])])
        return cls(name, storage[0] if storage else FuncStorage.INLINE, "cost" in choice, reason)

    @property
    def choice(self) -> str:
        return f"{self.storage}{', cost' if self.in_cost else ''}"


@final
@dataclass(frozen=True, slots=True)
class ResidualSchedule(Decision):
    """The way in which a residual, over the edges of a graph or the points of a grid, enters products with J^T J.

    Attributes:
        label: of the residual.
        jacobian: whether its value and the entries of J are stored for each edge or point, at every linearisation.
        product: whether J p is stored for each edge or point, in every product with J^T J.
        normal: whether what it adds to J^T J is stored at every linearisation, as a stencil on the unknowns' grid, or
            at edges and their vertices, and products read that in place of J.
        scatter: whether each edge adds to what it reads by atomic additions; else each vertex gathers over its edges.
        reason: a sentence with the counted costs.
    """

    kind: ClassVar[str] = "residual"
    named_by: ClassVar[str] = "label"
    words: ClassVar[str] = "inline, J, Jp, JTJ, scatter; J goes with each of the other three, of which there is one"
    label: str
    jacobian: bool = False
    product: bool = False
    scatter: bool = False
    normal: bool = False
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if (why := _apart([w for w, so in self._kept if so])) is not None:
            raise ValueError(f"{self.label}: {why}")

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        stored = [w for w in ("J", "Jp", "JTJ", "scatter") if w in choice]
        only(cls.words, choice, ["inline"] if "inline" in choice else stored)
        if (why := _apart(choice)) is not None:
            raise OptionError(why)
        return cls(name, "J" in choice, "Jp" in choice, "scatter" in choice, "JTJ" in choice, reason)

    @property
    def _kept(self) -> tuple[tuple[str, bool], ...]:
        return (("J", self.jacobian), ("Jp", self.product), ("JTJ", self.normal), ("scatter", self.scatter))

    @property
    def choice(self) -> str:
        return ", ".join(word for word, so in self._kept if so) or "inline"


def _apart(choice: Sequence[str]) -> str | None:
    """The reason why the words of a residual's choice do not go together; None: they do."""
    if "JTJ" in choice and not {"Jp", "scatter"}.isdisjoint(choice):
        return "where J^T J is stored, products visit no residual: leave out Jp and scatter, or JTJ"
    if "scatter" in choice and "Jp" in choice:
        return "an edge that scatters computes J p once, and storing it serves nothing: leave out Jp"
    return None


@final
@dataclass(frozen=True, slots=True)
class TermSchedule(Decision):
    """The passes over a term, in costs and at each point of the unknowns.

    Attributes:
        name: of the term.
        separate: whether it has passes of its own, in J^T F and products with J^T J, too; else it is evaluated together
            with all other terms there.
        reason: a sentence with the counted costs.
    """

    kind: ClassVar[str] = "term"
    words: ClassVar[str] = "merged or separate"
    name: str
    separate: bool = False
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        return cls(name, either("separate", "merged", cls.words, choice), reason)

    @property
    def choice(self) -> str:
        return "separate" if self.separate else "merged"


@final
class NormalForm(StrEnum):
    """The form in which J^T J is there for preconditioners that take more of it than its diagonal, or its blocks."""

    LEVELS = "levels"
    """Matrix-free, with coarser levels of the grid below it."""
    MATRIX = "matrix"
    """Assembled as a sparse matrix."""
    PRODUCTS = "products"
    """In no form but its products."""


@final
@dataclass(frozen=True, slots=True)
class NormalSchedule(Decision):
    """The form of J^T J.

    Attributes:
        form: for which routines are derived. Which preconditioner takes it, and when, is known once there is data.
        reason: a sentence.
    """

    kind: ClassVar[str] = "normal"
    words: ClassVar[str] = "levels, matrix or products"
    form: NormalForm
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        if name != NORMAL:
            raise OptionError(f"there is one form of J^T J only: write 'normal {NORMAL}: {', '.join(choice)}'")
        only(cls.words, choice, [form for form in NormalForm if list(choice) == [form]])
        return cls(NormalForm(choice[0]), reason)

    @property
    def about(self) -> str:
        return NORMAL

    @property
    def choice(self) -> str:
        return str(self.form)


@final
@dataclass(frozen=True, slots=True)
class ValueSchedule(Decision):
    """An expression of one point that is dear, or a condition on wide data.

    Attributes:
        name: the expression's text, at its own point ``[i0, i1]``.
        stored: whether it is computed once for each linearisation; else wherever it is read.
        reason: a sentence with the counted costs.
    """

    kind: ClassVar[str] = "value"
    words: ClassVar[str] = "stored or recomputed"
    name: str
    stored: bool
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        return cls(name, either("stored", "recomputed", cls.words, choice), reason)

    @property
    def choice(self) -> str:
        return "stored" if self.stored else "recomputed"


@final
@dataclass(frozen=True, slots=True)
class Split(Decision):
    """A routine over a grid that has sums over edges, or over one point that has sums over whole grids.

    Attributes:
        routine: its name.
        apart: whether the sums get a pass of their own.
        reason: a sentence.
    """

    kind: ClassVar[str] = "split"
    named_by: ClassVar[str] = "routine"
    words: ClassVar[str] = "apart or together"
    routine: str
    apart: bool = True
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        return cls(name, either("apart", "together", cls.words, choice), reason)

    @property
    def choice(self) -> str:
        return "apart" if self.apart else "together"


@final
@dataclass(frozen=True, slots=True)
class ConditionalWork(Decision):
    """A routine of which much is computed under conditions on data.

    Attributes:
        routine: its name.
        branched: whether that is left out where the conditions fail; else it is computed everywhere, and then selected.
        reason: a sentence with the counted costs.
    """

    kind: ClassVar[str] = "condition"
    named_by: ClassVar[str] = "routine"
    words: ClassVar[str] = "branch or select"
    routine: str
    branched: bool
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        return cls(name, either("branch", "select", cls.words, choice), reason)

    @property
    def choice(self) -> str:
        return "branch" if self.branched else "select"


@final
@dataclass(frozen=True, slots=True)
class GridLayout(Decision):
    """The order of channels and points in the memory of all fields on a grid.

    The padding of rows and planes is no decision of a schedule: it follows from their lengths, which are known when
    data is bound (``Layout`` in ``kernels/codegen/layout.py``).

    Attributes:
        dims: of the grid.
        interleaved: whether the channels of a point stand side by side; else each channel is a plane.
        padded: whether a GPU pads the points of what graphs read to whole vector loads, and of what products add to to
            whole vector additions, where it has those.
        reason: a sentence.
    """

    kind: ClassVar[str] = "layout"
    named_by: ClassVar[str] = "dims"
    words: ClassVar[str] = "planar, interleaved, or interleaved, padded"
    dims: tuple[Extent, ...]
    interleaved: bool
    padded: bool = False
    reason: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.padded and not self.interleaved:
            raise ValueError(f"{self.about}: where channels are planes, points have no padding")

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        names = (ALL,) if name == ALL else name.removeprefix("(").removesuffix(")").split(",")
        dims = tuple(Extent(n.strip()) for n in names if n.strip())
        together = [w for w in ("interleaved", "padded") if w in choice]
        only(cls.words, choice, together if "interleaved" in choice else ["planar"])
        return cls(dims, "interleaved" in choice, "padded" in choice, reason)

    @property
    def about(self) -> str:
        return ALL if self.dims == (Extent(ALL),) else f"({', '.join(map(str, self.dims))})"

    @property
    def choice(self) -> str:
        return f"{'interleaved' if self.interleaved else 'planar'}{', padded' if self.padded else ''}"


@final
@dataclass(frozen=True, slots=True)
class ChannelOrder(Decision):
    """The position of each channel of a stored field among the channels of a point.

    Attributes:
        stored: the field's name.
        positions: of channel 0, 1, ... in the order in which expressions were met: a permutation.
        reason: a sentence.
    """

    kind: ClassVar[str] = "order"
    named_by: ClassVar[str] = "stored"
    words: ClassVar[str] = "the position of each channel, 0 to one less than there are, each once"
    stored: str
    positions: tuple[int, ...]
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        positions = tuple(map(_whole, choice))
        only(cls.words, choice, choice if sorted(positions) == [*range(len(positions))] else [])
        return cls(name, positions, reason)

    @property
    def choice(self) -> str:
        return ", ".join(map(str, self.positions))


@final
@dataclass(frozen=True, slots=True)
class VectorSweep(Decision):
    """A kernel on a GPU that touches nothing but its own point, and whose threads take several neighbouring points.

    Attributes:
        routine: its name.
        points: that a thread takes at a time, each number of theirs by one vector load or store.
        reason: a sentence with the counted numbers.
    """

    kind: ClassVar[str] = "sweep"
    named_by: ClassVar[str] = "routine"
    words: ClassVar[str] = "1, 2 or 4"
    routine: str
    points: int
    reason: str = field(default="", compare=False)

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        only(cls.words, choice, [w for w in ("1", "2", "4") if list(choice) == [w]])
        return cls(name, int(choice[0]), reason)

    @property
    def choice(self) -> str:
        return str(self.points)


def _whole(word: str) -> int:
    return int(word) if word.isascii() and word.isdigit() and len(word) < 9 else -1
