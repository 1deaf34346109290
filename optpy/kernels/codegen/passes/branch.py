"""Parts of a point's work that a condition guards, which are left out where it fails.

A GPU branches at each point. On a CPU, where several points are computed side by side, a row is cut into strips: where
the condition holds at none of a strip's points, the strip is left out, and with it what it would load, also through
graphs. A part with functions of libm, which is computed one point after the other, branches at each point of the
others, too. Where a part is left out it is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from optpy.ir import REAL, Access, Extent, Field, LocalName, Role, atoms_of, loops
from optpy.kernels.codegen.branch import computes_one_by_one
from optpy.kernels.codegen.dialect import Dialect
from optpy.kernels.codegen.passes.look_up import entries_in
from optpy.symbolic.affine import Affine, TableEntry
from optpy.symbolic.expr import ONE, ZERO, Expr, Var, var
from optpy.symbolic.traverse import map_variables, variables

STRIP = 64
"""Points of a strip: four vectors. As many as 512 take the same time to be asked (``python -m bench.conditions``), and
are left out less often."""

_STRIP, _END = loops.Variable("branch"), loops.Variable("branch_end")


def is_part(s: loops.Statement) -> bool:
    """Whether a statement is a sum over no loops: a part that a condition guards."""
    return isinstance(s, loops.Fold) and not any(isinstance(x, loops.Loop | loops.Edges) for x in loops.walk(s.body))


def branch_at_points(function: loops.Function) -> loops.Function:
    """Lower every part to a branch."""

    def rule(s: loops.Statement) -> loops.Block:
        if not isinstance(s, loops.Points):
            return (s,)
        blocks = {name: _at_point(b) for name, b in loops.blocks_of(s).items()}
        return (loops.with_blocks(s, blocks),)

    return replace(function, body=loops.rewrite(function.body, rule))


def branch_in_strips(function: loops.Function, dialect: Dialect) -> loops.Function:
    """Lower every part in loops over the points of rows to loops over the points of short strips.

    Args:
        function: as it visits the segments of rows.
        dialect: of where it runs.
    """

    def rule(s: loops.Statement) -> loops.Block:
        if not (isinstance(s, loops.Loop) and any(map(is_part, s.body))):
            return (s,)
        return (_in_strips(s, "float64" if dialect.real == "double" else REAL),)

    return replace(function, body=loops.rewrite(function.body, rule))


def _at_point(block: loops.Block) -> loops.Block:
    found: list[loops.Statement] = []
    memory: dict[str, Access] = {}
    for s in block:
        if isinstance(s, loops.Fold) and is_part(s):
            own = {name: Access(_field(name, REAL), (Affine(0),), 0) for name in s.names}
            stores = {name: loops.Store(loops.MemoryOperand(a), ZERO) for name, a in own.items()}
            condition, branch = _branch(s)
            found += [loops.Alloc(a.field, (1,)) for a in own.values()]
            found += [condition, replace(branch, then=_stored(branch.then, stores))]
            memory |= own
        else:
            found.append(s)
    return _reading(found, memory)


def _in_strips(points: loops.Loop, dtype: str) -> loops.Loop:
    """The loop over strips, in which each part has a loop of its own over points."""
    at = Affine.of(points.variable) - Affine.of(_STRIP)
    of_strip = replace(points, low=Affine.of(_STRIP), high=Affine.of(_END), kind="narrow")
    parts = [s for s in points.body if isinstance(s, loops.Fold) and is_part(s)]
    rest, stores = _stored_parts(points.body)
    names = [name for s in parts for name in s.names if name not in stores]
    memory = {name: Access(_field(name, dtype), (at,), 0) for name in names}
    stores |= {name: loops.Store(loops.MemoryOperand(a), ZERO) for name, a in memory.items()}
    found: list[loops.Statement] = [loops.Let(str(_END), loops.MinMax("min", Affine.of(_STRIP) + STRIP, points.high))]
    found += [loops.Alloc(a.field, (STRIP,), cleared=False) for a in memory.values()]
    for n, s in enumerate(parts):
        found += _part(of_strip, s, f"some{n}", stores)
    if any(not isinstance(s, loops.Evaluate | loops.Lookup) for s in rest):
        found.append(replace(of_strip, body=tuple(s for s in rest if not isinstance(s, loops.Lookup))))
    body = _looked_up(_reading(found, memory), [s for s in points.body if isinstance(s, loops.Lookup)], points)
    return replace(points, variable=_STRIP, body=body, kind="serial", step=STRIP)


def _looked_up(block: loops.Block, lookups: Sequence[loops.Lookup], points: loops.Loop) -> loops.Block:
    """The block with the entries of graphs that each loop over points mentions looked up at its beginning."""

    def rule(s: loops.Statement) -> loops.Block:
        if not (isinstance(s, loops.Loop) and s.variable == points.variable):
            return (s,)
        needed = set(entries_in(s.body))
        own: list[loops.Lookup] = []
        for found in reversed(lookups):  # those inside the rows of others come first
            if found.entry in needed:
                own.insert(0, found)
                needed.update(a for a in atoms_of([found.entry.row]) if isinstance(a, TableEntry))
        return (replace(s, body=(*own, *s.body)),)

    return loops.rewrite(block, rule)


def _part(of_strip: loops.Loop, part: loops.Fold, some: str, stores: Mapping[str, loops.Store]) -> loops.Block:
    """A part at the points of a strip: computed where its condition holds at some of them, else 0."""
    condition, branch = _branch(part)
    (flag,) = condition.values
    ask = replace(of_strip, body=(condition, loops.Accumulate(some, flag, maximum=True)))
    zeros: loops.Block = (loops.evaluate((ZERO,), "z"), *(replace(stores[name], value=ZERO) for name in part.names))
    then = _stored(branch.then, stores)
    loop = replace(of_strip, body=then)
    if computes_one_by_one(_values(branch.then)):
        loop = replace(loop, kind="serial", body=(condition, replace(branch, then=then, otherwise=zeros)))
    return (
        loops.Accumulator(some, maximum=True),
        ask,
        loops.If((loops.Flag(some),), (loop,), (replace(of_strip, body=zeros),)),
    )


def _stored_parts(block: loops.Block) -> tuple[loops.Block, dict[str, loops.Store]]:
    """The block without its parts and the stores of those that nothing else needs; and these, done with their part."""
    evaluated = [s for s in loops.walk(block) if isinstance(s, loops.Evaluate)]
    read = {key.field for s in evaluated for key in s.leaves if isinstance(key, Access)}
    results = [s for s in loops.walk(block) if isinstance(s, loops.Store | loops.Accumulate)]
    roots = [s.value for s in results] + [v for s in evaluated if s not in block for v in s.values]
    needed = Counter(v.key.name for r in roots for v in variables([r]) if isinstance(v.key, LocalName))
    alone: dict[str, loops.Store] = {}
    for s in block:
        match s:
            case loops.Store(operand=loops.MemoryOperand() as target, value=Var(key=LocalName(name)), atomic=False):
                if needed[name] == 1 and target.access.field not in read:
                    alone[name] = s
    done = {s.value for s in alone.values()}
    rest = [s for s in block if s not in alone.values() and not is_part(s)]
    return tuple(_without(s, done) if isinstance(s, loops.Evaluate) else s for s in rest), alone


def _without(s: loops.Evaluate, values: Collection[Expr]) -> loops.Evaluate:
    return replace(loops.evaluate((v for v in s.values if v not in values), s.prefix), reads=s.reads)


def _branch(part: loops.Fold) -> tuple[loops.Evaluate, loops.If]:
    """Its condition, and what is done where that holds: everywhere, if there is none left of it."""
    match part.body:
        case (loops.Evaluate() as condition, loops.If() as branch):
            return condition, branch
    return loops.evaluate((ONE,), "g"), loops.If((loops.Holds(ONE),), part.body)


def _values(block: loops.Block) -> list[Expr]:
    return [s.value for s in block if isinstance(s, loops.Accumulate)]


def _field(name: str, dtype: str) -> Field:
    return Field(name, (Extent("branch"),), 1, dtype, Role.STORED)


def _stored(block: loops.Block, stores: Mapping[str, loops.Store]) -> loops.Block:
    """The block that leaves its sums, each of one term, in memory."""

    def stored(s: loops.Statement) -> loops.Statement:
        return replace(stores[s.name], value=s.value) if isinstance(s, loops.Accumulate) else s

    return tuple(map(stored, block))


def _reading(block: Iterable[loops.Statement], memory: Mapping[str, Access]) -> loops.Block:
    """The block with parts read from memory."""
    done: dict[Expr, Expr] = {}

    def read(v: Var) -> Expr:
        return var(memory[v.key.name]) if isinstance(v.key, LocalName) and v.key.name in memory else v

    def new(e: Expr) -> Expr:
        return map_variables([e], read, done)[0]

    def rule(s: loops.Statement) -> loops.Block:
        match s:
            case loops.Evaluate():
                now = loops.evaluate(map(new, s.values), s.prefix)
                known = dict(s.reads)
                reads = [a for a in now.leaves if isinstance(a, Access)]
                return (replace(now, reads=tuple((a, known.get(a) or _load(a)) for a in reads)),)
            case loops.Store() | loops.Total() | loops.Accumulate():
                return (replace(s, value=new(s.value)),)
            case loops.If():
                held = (replace(c, value=new(c.value)) if isinstance(c, loops.Holds) else c for c in s.conditions)
                return (replace(s, conditions=tuple(held)),)
        return (s,)

    return loops.rewrite(tuple(block), rule)


def _load(a: Access) -> loops.Load:
    return loops.Load(loops.MemoryOperand(a))
