"""Values that registers do not hold: loads and stores of the stack in the machine code of kernels.

`python -m bench.spills [PROBLEM ...]`, or `OPTPY_CC=gcc python -m bench.spills` for another compiler: every problem in
problems/ and the energies of bench/conditions.py, with the statements of a body in two orders: as expressions are
walked through, which is what is printed, and in that of the Opt paper, which keeps few values alive. Of both the spills
(objdump has to be there), and the nanoseconds of the processor for each element: the least of runs that take turns.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final
from unittest.mock import patch

import optpy as op
from bench import conditions
from bench.best_schedule import PROBLEMS, as_real, subject
from bench.decisions import processor_seconds
from optpy.api import pipeline
from optpy.api.measured import LINEARISATION
from optpy.api.plan import build
from optpy.api.problem import CompiledProblem
from optpy.ir import Group
from optpy.ir.loops.arithmetic import SELECT, is_call
from optpy.kernels.codegen import body
from optpy.kernels.toolchain import compiler
from optpy.symbolic.expr import Expr
from optpy.symbolic.order import topological

ENOUGH = 0.02
"""Seconds of a run, of which the fastest of several counts."""
_REPEAT = 7

GROUPS: Final[dict[str, Sequence[Group]]] = {
    "J^T F": LINEARISATION, "J^T J p": (Group.PRODUCT,), "cost": (Group.COST,),
}  # fmt: skip

Order = Callable[[Iterable[Expr]], list[Expr]]
"""Every node once, children first."""

_FUNCTION = re.compile(r"^[0-9a-f]+ <(\w+)[^>]*>:$")
_STACK = re.compile(r"(?:-?0x[0-9a-f]+)?\(%r(?:sp|bp)\)")
"""A slot of the stack at a fixed place; arrays on it are read by an index."""


# -- the order of the Opt paper ----------------------------------------------------------------------------------------


def few_alive(roots: Iterable[Expr]) -> list[Expr]:
    """A greedy list schedule (DeVito et al. 2017): of the nodes that can be computed, one under the same condition as the
    last; of these, one after which fewest values are alive; of these, the oldest."""
    roots = list(roots)
    order = topological(roots)
    children = {node: set(node.children) for node in order}
    parents: dict[Expr, list[Expr]] = {node: [] for node in order}
    for node in order:
        for child in children[node]:
            parents[child].append(node)
    uses = {node: len(parents[node]) + roots.count(node) for node in order}
    missing = {node: len(children[node]) for node in order}
    guard = _guards(order, roots)
    ready = {node: None for node in order if not missing[node]}
    found: list[Expr] = []

    def key(node: Expr) -> tuple[bool, int]:
        return bool(found) and guard[node] is not guard[found[-1]], -sum(uses[c] == 1 for c in children[node])

    while ready:
        node = min(ready, key=key)  # of equals the first, which has been ready for longest
        del ready[node]
        found.append(node)
        for child in children[node]:
            uses[child] -= 1
        for parent in parents[node]:
            missing[parent] -= 1
            if not missing[parent]:
                ready[parent] = None
    return found


def _guards(order: Sequence[Expr], roots: Iterable[Expr]) -> dict[Expr, Expr | None]:
    """For each node the condition under which alone it is needed; None where there is none."""
    guard: dict[Expr, Expr | None] = dict.fromkeys(roots)
    for node in reversed(order):
        for n, child in enumerate(node.children):
            needed = node.children[0] if is_call(node, SELECT) and n == 1 else guard[node]
            guard[child] = needed if guard.get(child, needed) is needed else None
    return guard


ORDERS: Final[dict[str, Order]] = {"as walked": topological, "few alive": few_alive}


# -- what is measured --------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A problem with its statements in one order.

    Attributes:
        spills: loads and stores of the stack, in the machine code of each of GROUPS.
        nanoseconds: for an element, of each of GROUPS.
    """

    problem: str
    order: str
    spills: Mapping[str, tuple[int, int]]
    nanoseconds: Mapping[str, float]


def spilled(library: Path) -> dict[str, tuple[int, int]]:
    """Of each function of a library the instructions that load from fixed slots of the stack, and that store there."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(library)], check=True, capture_output=True, text=True
    ).stdout
    found: dict[str, tuple[int, int]] = {}
    name = ""
    for line in text.splitlines():
        if begun := _FUNCTION.match(line):
            name = begun[1]
            found[name] = 0, 0
        elif _STACK.search(line) and "lea" not in line and name:
            operands = line.split("#")[0].rstrip()
            stored = _STACK.search(operands.rsplit(",", 1)[-1]) is not None and "," in operands
            loads, stores = found[name]
            found[name] = (loads, stores + 1) if stored else (loads + 1, stores)
    return found


def measure(name: str, size: int, dtype: str) -> Iterator[Row]:
    """A row for each order."""
    energy, data_for = conditions.subject(name) if name in conditions.NAMES else subject(name)
    data = {k: as_real(v, dtype) for k, v in data_for(size).items()}
    bound = {order: _bound(energy, data, dtype, order) for order in ORDERS}
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(_REPEAT):
        for order, (problem, _) in bound.items():
            for group in GROUPS:
                times.setdefault((order, group), []).append(_seconds(problem, GROUPS[group]))
    for order, (problem, library) in bound.items():
        elements = sum(x.size for x in problem.unknowns.values())
        nanoseconds = {group: 1e9 * min(times[order, group]) / elements for group in GROUPS}
        yield Row(name, order, _by_group(problem, spilled(library)), nanoseconds)


def _bound(energy: op.Energy, data: Mapping[str, Any], dtype: str, order: str) -> tuple[CompiledProblem, Path]:
    """A problem that is linearised, with its kernels' library."""
    found: list[Path] = []
    load = compiler.load_library

    def noted(entry: Any) -> Any:
        found.append(entry.library)
        return load(entry)

    with (
        patch.object(body, "topological", ORDERS[order]),
        patch.object(pipeline, "kept_program", lambda problem, dtype, given, derived: derived()),
        patch.object(compiler, "load_library", noted),
    ):
        problem = build(energy, dtype).start(data, threads=1)._problem
    problem.linearise()
    return problem, found[0]
