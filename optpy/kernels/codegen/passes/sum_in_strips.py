"""Local sums that are the same loops at many points: a row is cut into strips, whose partial sums stay in the cache.

Point by point, a sum is a loop that compilers cannot vectorise where its reads are rows apart, as over a whole dim, or
over the edges at what is one point of a mesh for a whole row. In a strip the loop over
points is the innermost one, where they are neighbours; each point's numbers are still added in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import final

from optpy.ir import (
    Access,
    Extent,
    Field,
    IndexCondition,
    Leaf,
    LocalName,
    LoopVariable,
    Role,
    atoms_of,
    entries_of,
    indices_of,
    loops,
)
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE, ZERO, Expr, Product, mul, var
from optpy.symbolic.inversion import Divides
from optpy.symbolic.traverse import variables

LONGEST = 1024
"""Points of a strip at most: where all rows of a million numbers are added up, a strip of 128 points takes half as long
again, since memory is then read in short runs."""
VECTOR = 16
"""Points of a strip at least: the numbers of the widest vector register."""
_SUMS = 2048
"""Numbers in double that leave half of the first cache, and more, to what is read."""
_SPARSEST = 4
"""A condition that holds at one of so many points, or more, does not keep sums from being added up at all of them. No
measurement has set it."""


def sum_in_strips(function: loops.Function) -> loops.Function:
    """Lower every dense ``Fold`` in loops over the points of rows, where neighbouring points read neighbours.

    Those that are the same at all points of a row are added up once for each strip. Others stay as they are: those
    over other edges at each point, and those that read more neighbours along their own innermost loop than along the
    row.
    """

    def rule(s: loops.Statement) -> loops.Block:
        if isinstance(s, loops.Loop) and s.kind in ("independent", "narrow"):
            return _Strips(s).row()
        return (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


@final
@dataclass
class _Strips:
    """A loop over points of a row that is cut into strips.

    Attributes:
        points: the loop.
        before: what is done for a strip before its loop over points.
        arrays: where each sum that is added up for all points of a strip stands.
        done: all sums that are known before the loop over points.
        either: whether some sum reads neighbours along its own innermost loop as well, which is the better one to
            vectorise where the row is short.
    """

    points: loops.Loop
    before: list[loops.Statement] = field(default_factory=list)
    arrays: dict[str, loops.MemoryOperand] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    either: bool = False

    @property
    def variable(self) -> LoopVariable:
        assert isinstance(self.points.variable, LoopVariable)
        return self.points.variable

    def row(self) -> loops.Block:
        """The strips of the row; the loop itself, where nothing can be added up before it."""
        rest = tuple(s for s in self.points.body if not (isinstance(s, loops.Fold) and self._taken(s)))
        if not self.before:
            return (self.points,)
        strip, end = loops.Variable("strip"), loops.Variable("strip_end")
        length = max(VECTOR, min(LONGEST, _SUMS // max(1, len(self.arrays)) // VECTOR * VECTOR))
        stop = loops.MinMax("min", Affine.of(strip) + length, self.points.high)
        sums = (loops.Alloc(a.access.field, (length,), cleared=False) for a in self.arrays.values())
        body = (loops.Let(str(end), stop), *sums, *self.before, self._over_points(rest))
        strips = replace(self.points, variable=strip, body=body, kind="serial", step=length)
        if not self.either:
            return (strips,)
        assert isinstance(self.points.low, Affine)
        short = loops.Less(Affine.of(self.points.high) - self.points.low, Affine(VECTOR))
        return (loops.If((short,), (self.points,), (strips,)),)

    def _over_points(self, body: loops.Block) -> loops.Loop:
        """The loop over the points of a strip, which fetches the sums that it reads."""
        names = dict.fromkeys(key.name for key in _leaves(body) if isinstance(key, LocalName))
        body = (*(loops.LetSum(name, self.arrays[name]) for name in names if name in self.arrays), *body)
        low, high = Affine.of(loops.Variable("strip")), Affine.of(loops.Variable("strip_end"))
        return replace(self.points, low=low, high=high, body=body)

    def _taken(self, fold: loops.Fold) -> bool:
        """Whether a sum is now added up before the loop over points."""
        if not self._is_free(fold):
            return False
        if not any(map(self._reads_point, _leaves(fold.body))):
            self.before += [*map(loops.Accumulator, fold.names), *fold.body]
        elif not self._in_strips(fold):
            return False
        self.done.update(fold.names)
        return True

    def _is_free(self, fold: loops.Fold) -> bool:
        """Whether a sum is over the same loops at all points, and needs nothing that the loop over them finds."""
        looked_up = {s.entry for s in self.points.body if isinstance(s, loops.Lookup)}
        inside = list(loops.walk(fold.body))
        edges = any(isinstance(s, loops.Edges) or (isinstance(s, loops.Let) and self._varies(s)) for s in inside)
        needed = {key.name for key in _leaves(fold.body) if isinstance(key, LocalName)}
        entries = {e for key in _leaves(fold.body) for e in entries_of(key)}
        return not edges and needed <= self.done and looked_up.isdisjoint(entries)

    def _in_strips(self, fold: loops.Fold) -> bool:
        """Add a sum up for all points of a strip, where that is faster."""
        guard, body = _condition(fold)
        inner = [s.variable for s in loops.walk(body) if isinstance(s, loops.Loop)][-1]
        reads = [key for key in _leaves(body) if isinstance(key, Access)]
        factors = [b for value in guard.values for b in _factors(value)]
        at_point = [b for b in factors if any(self._reads_point(v.key) for v in variables([b]))]
        operands = {name: self._operand(name) for name in fold.names}
        nest = self._nest(body, operands)
        more = _jumps(reads, self.variable) - _jumps(reads, inner)
        if nest is None or more > 0 or any(map(_is_sparse, at_point)):
            return False
        self.either |= more == 0
        zeros = (loops.Store(a, ZERO) for a in operands.values())
        self.before.append(self._over_points((loops.evaluate((ZERO,), guard.prefix), *zeros)))
        own = mul(*(b for b in factors if b not in at_point))
        self.before += nest if own is ONE else [_part(guard, [own]), loops.If((loops.Holds(own),), nest)]
        self.arrays |= operands
        if at_point:
            values = {name: mul(*at_point, var(LocalName(name))) for name in fold.names}
            stores = (loops.Store(operands[name], value) for name, value in values.items())
            self.before.append(self._over_points((_part(guard, values.values()), *stores)))
        return True

    def _nest(self, block: loops.Block, operands: dict[str, loops.MemoryOperand]) -> loops.Block | None:
        """The loops of a sum around one over points; None where what stands between them is known at a point alone."""
        fixed = tuple(s for s in block if isinstance(s, loops.Lookup | loops.Let) and not self._varies(s))
        inside = tuple(s for s in block if s not in fixed)
        if isinstance(inside[-1], loops.Loop):
            body = self._nest(inside[-1].body, operands)
            return None if body is None or inside[:-1] else (*fixed, replace(inside[-1], body=body))

        def added(s: loops.Statement) -> loops.Statement:
            return loops.Store(operands[s.name], s.value, "+=") if isinstance(s, loops.Accumulate) else s

        return (*fixed, self._over_points(tuple(map(added, inside))))

    def _operand(self, name: str) -> loops.MemoryOperand:
        """The sum at a point of the strip."""
        sums = Field(f"strip_{name}", (Extent("strip"),), 1, "float64", Role.STORED)
        at = Affine.of(self.variable) - Affine.of(loops.Variable("strip"))
        return loops.MemoryOperand(Access(sums, (at,), 0))

    def _reads_point(self, key: Leaf) -> bool:
        """Whether a leaf is another one at each point of the row."""
        return self.variable in indices_of(key) or (isinstance(key, LocalName) and key.name in self.arrays)

    def _varies(self, s: loops.Lookup | loops.Let) -> bool:
        """Whether an integer that a loop needs, as an edge or the point whose edges it is over, is another one at each
        point of the row."""
        if isinstance(s, loops.Lookup):
            return self.variable in atoms_of([s.entry.row])
        found = s.value.index if isinstance(s.value, loops.Flat) else ()
        return any(isinstance(i, Affine) and i.reads([self.variable]) for i in found)


def _condition(fold: loops.Fold) -> tuple[loops.Evaluate, loops.Block]:
    """The condition of a sum, and its loops."""
    match fold.body:
        case (loops.Evaluate() as condition, loops.If(then=body)):
            return condition, body
    return loops.evaluate((), "g"), fold.body


def _part(of: loops.Evaluate, values: Iterable[Expr]) -> loops.Evaluate:
    """The evaluation of some parts of what is evaluated."""
    part = loops.evaluate(values, of.prefix)
    leaves = set(part.leaves)
    return replace(part, reads=tuple((key, load) for key, load in of.reads if key in leaves))


def _leaves(block: loops.Block) -> Iterator[Leaf]:
    return (key for s in loops.walk(block) if isinstance(s, loops.Evaluate) for key in s.leaves)


def _factors(condition: Expr) -> list[Expr]:
    return [b for b, _ in condition.factors] if isinstance(condition, Product) else [condition]


def _is_sparse(condition: Expr) -> bool:
    """Whether a condition holds at few points of a row."""
    found = [v.key.condition for v in variables([condition]) if isinstance(v.key, IndexCondition)]
    return any(not isinstance(c, Divides) or c.denominator > _SPARSEST for c in found)


def _jumps(reads: Iterable[Access], variable: LoopVariable | loops.Variable) -> int:
    """The number of reads that neither stay where they are nor go to their neighbours as a variable counts."""

    def stays_or_steps(a: Access) -> bool:
        *outer, last = (i - Affine.of(variable) * i.coefficient(variable) for i in a.index or (Affine(0),))
        steps = [i.coefficient(variable) for i in a.index]
        return not any(i.reads([variable]) for i in (*outer, last)) and not any(steps[:-1]) and abs(sum(steps)) <= 1

    return sum(not stays_or_steps(a) for a in reads)
