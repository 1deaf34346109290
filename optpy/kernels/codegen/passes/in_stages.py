"""A long body of a loop over points is cut into stages: loops of their own over short strips of the points.

Compilers take more than linear time for one block of straight-line code, and spill most of it. What a later stage needs
of an earlier one stands in an array as long as the strip, which the first cache holds. The body of no kernel of usual
size is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from optpy.ir import REAL, Access, Extent, Field, Role, loops
from optpy.ir.loops.arithmetic import signed_sum, signs_of, with_args
from optpy.kernels.codegen.dialect import Dialect
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Call, Expr, Var, var
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import transform

LONGEST = 4096
"""Operations of a body that stays whole (``operations``). For J p with 240 and 480 reads clang takes 3.6 and 8.4 s,
cut into stages 0.8 and 2.3 s (``python -m bench.compile_growth products_of_pairs`` measures all kernels)."""
STAGE = 1024
"""Operations of a stage."""
LOAD = 16
"""Operations that take a compiler as long as a load does: each array has its own pointer, which wants a register."""
TERMS = 8
"""Terms that a sum has at most where it is cut."""
POINTS = 256
"""Points of a strip at most."""
VECTOR = 16
"""Points of a strip at least: the numbers of the widest vector register."""
CACHE = 16384
"""Bytes of arrays that leave half of the first cache to what is read."""
NUMBER = 8
"""Bytes of a number at most."""
STACK = 262144
"""Bytes of arrays at most, as they stand on a thread's stack: a body whose stages would hand on more stays whole."""

_STRIP, _END = loops.Variable("stages"), loops.Variable("stages_end")
Result = loops.Store | loops.Accumulate
"""A use of a value that a body computes."""


def in_stages(function: loops.Function, dialect: Dialect) -> loops.Function:
    """The function with long loops over points cut into stages.

    Args:
        function: whose arithmetic is spelt out.
        dialect: of where it runs.
    """

    def rule(s: loops.Statement) -> loops.Block:
        if not (isinstance(s, loops.Loop) and s.kind in ("independent", "narrow")):
            return (s,)
        evaluated, results = s.body[0], [r for r in s.body[1:] if isinstance(r, Result)]
        if not isinstance(evaluated, loops.Evaluate) or len(results) < len(s.body) - 1:
            return (s,)
        return _in_strips(s, evaluated, results, dialect) if operations(evaluated.values) > LONGEST else (s,)

    return replace(function, body=loops.rewrite(function.body, rule))


def operations(values: Iterable[Expr]) -> int:
    """The operations of a body; a function counts as those that it is made of."""
    return sum(map(_weight, topological(values)))


def _weight(node: Expr) -> int:
    if isinstance(node, Call):
        return max(node.op.cost, len(node.args))
    return LOAD if isinstance(node, Var) and isinstance(node.key, Access) else 0


def _in_strips(
    points: loops.Loop, evaluated: loops.Evaluate, results: Sequence[Result], dialect: Dialect
) -> loops.Block:
    short: dict[Expr, Expr] = {}
    values = _in_short_sums(evaluated.values, short)
    stages = _Stages(values, [replace(r, value=short[r.value]) for r in results], evaluated, dialect.real)
    bodies = [*stages.bodies(points)]
    count = max(1, len(stages.arrays))
    if NUMBER * VECTOR * count > STACK:
        return (points,)
    length = min(POINTS, max(VECTOR, CACHE // (NUMBER * count) // VECTOR * VECTOR))
    of_strip = replace(points, low=Affine.of(_STRIP), high=Affine.of(_END))
    over = [loops.BodyStage((replace(of_strip, body=body),)) for body in bodies]
    stop = loops.MinMax("min", Affine.of(_STRIP) + length, points.high)
    arrays = (loops.Alloc(f, (length,), cleared=False) for f in stages.arrays)
    return (
        replace(points, variable=_STRIP, body=(loops.Let(str(_END), stop), *arrays, *over), kind="serial", step=length),
    )


def _in_short_sums(values: Iterable[Expr], done: dict[Expr, Expr]) -> list[Expr]:
    """Long sums as the sum of their first terms, and that with the next, and so on; what takes most steps comes
    first, so that few terms wait for it.

    Args:
        values: what is computed.
        done: the new form of each node is added.
    """
    steps: dict[Expr, int] = {}

    def rule(node: Expr, children: tuple[Expr, ...]) -> Expr:
        signs = signs_of(node.op) if isinstance(node, Call) else None
        new = with_args(node, children)
        if signs is not None:
            terms = sorted(zip(signs, children, strict=True), key=lambda term: -steps[term[1]])
            new = signed_sum(terms[:TERMS])
            for n in range(TERMS, len(terms), TERMS):
                new = signed_sum((("+", new), *terms[n : n + TERMS]))
        steps[new] = 1 + max((steps[c] for c in children), default=0)
        return new

    return transform(values, rule, done)


@final
@dataclass
class _Stages:
    """The stages of a body.

    Attributes:
        values: that it computes.
        results: what it does with them.
        whole: its evaluation.
        real: the type of its numbers.
        arrays: in which stages leave numbers to later ones.
    """

    values: Sequence[Expr]
    results: Sequence[Result]
    whole: loops.Evaluate
    real: str
    arrays: list[Field] = field(default_factory=list)
    _reads: dict[Access, loops.Load] = field(init=False)

    def __post_init__(self) -> None:
        self._reads = dict(self.whole.reads)

    def bodies(self, points: loops.Loop) -> Iterator[loops.Block]:
        """The block of each stage, at a point."""
        stage = _stages(self.values)
        count = 1 + max(stage.values(), default=0)
        ends = self._ends(stage, count)
        needed = _last_uses(stage, zip(self.results, ends, strict=True))
        at = Affine.of(points.variable) - Affine.of(_STRIP)
        own: list[list[Result]] = [[] for _ in range(count)]
        for result, end in zip(self.results, ends, strict=True):
            own[end].append(result)
        kept: list[list[Expr]] = [[] for _ in range(count)]
        for node, n in stage.items():
            if needed.get(node, n) > n:
                kept[n].append(node)
        given_up: list[list[Field]] = [[] for _ in range(count)]
        free: dict[str, deque[Field]] = {}
        done: dict[Expr, Expr] = {}
        for n in range(count):
            held = {node: self._array(node, free) for node in kept[n]}
            yield self._body(n, {node: Access(f, (at,), 0) for node, f in held.items()}, own[n], done)
            for node, f in held.items():
                given_up[needed[node]].append(f)
            for f in given_up[n]:
                free.setdefault(f.dtype, deque()).append(f)

    def _body(
        self, n: int, arrays: Mapping[Expr, Access], own: Sequence[Result], done: dict[Expr, Expr]
    ) -> loops.Block:
        """The block of a stage.

        Args:
            n: its number.
            arrays: where it leaves what later stages need.
            own: the results that it does.
            done: of what earlier stages have computed, how it is read; what this one leaves is added.
        """
        new = transform([*arrays, *(r.value for r in own)], with_args, done)
        stored = [loops.Store(loops.MemoryOperand(array), done[node]) for node, array in arrays.items()]
        values = [done[r.value] for r in own]
        done |= {node: var(array) for node, array in arrays.items()}
        part = loops.evaluate(dict.fromkeys(new), f"{self.whole.prefix}{n}_")
        reads = [k for k in part.leaves if isinstance(k, Access)]
        loads = tuple((k, self._reads.get(k) or loops.Load(loops.MemoryOperand(k))) for k in reads)
        finished = (replace(r, value=value) for r, value in zip(own, values, strict=True))
        return (replace(part, reads=loads), *stored, *finished)

    def _ends(self, stage: Mapping[Expr, int], count: int) -> list[int]:
        """For each result, the stage that does it: where its value is known, or the last one, if it changes what is
        read."""
        read = {key.field for key in self.whole.leaves if isinstance(key, Access)}
        targets = (r.operand for r in self.results if isinstance(r, loops.Store))
        stored = {t.access.field for t in targets if isinstance(t, loops.MemoryOperand)}
        late = not read.isdisjoint(stored)
        return [count - 1 if late else stage.get(r.value, 0) for r in self.results]

    def _array(self, node: Expr, free: Mapping[str, deque[Field]]) -> Field:
        """An array that nothing is in any more, or a new one."""
        dtype = "bool" if node.boolean else "float64" if self.real == "double" else REAL
        if free.get(dtype):
            return free[dtype].popleft()
        self.arrays.append(Field(f"stage{len(self.arrays)}", (Extent("stages"),), 1, dtype, Role.STORED))
        return self.arrays[-1]


def _stages(values: Sequence[Expr]) -> dict[Expr, int]:
    """For each operation the number of its stage, in the order in which they are computed."""
    found: dict[Expr, int] = {}
    stage = size = 0
    for node in topological(values):
        if not isinstance(node, Call):
            continue
        weight = _weight(node) + sum(_weight(c) for c in node.children if not c.children)
        if size + weight > STAGE and size:
            stage, size = stage + 1, 0
        size += weight
        found[node] = stage
    return found


def _last_uses(stage: Mapping[Expr, int], results: Iterable[tuple[Result, int]]) -> dict[Expr, int]:
    """For each operation the last stage that needs it."""
    found: dict[Expr, int] = {}
    for node, own in stage.items():
        for child in node.children:
            if child in stage:
                found[child] = max(found.get(child, 0), own)
    for r, end in results:
        if r.value in stage:
            found[r.value] = max(found.get(r.value, 0), end)
    return found
