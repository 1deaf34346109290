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

import numpy as np

import optpy as op
from bench import conditions
from bench.best_schedule import PROBLEMS, _real, subject
from bench.decisions import processor_seconds
from optpy.api import pipeline
from optpy.api.backend import CpuBackend
from optpy.api.measured import LINEARISATION
from optpy.api.plan import build
from optpy.api.problem import CompiledProblem
from optpy.ir import Group
from optpy.ir.loops.arithmetic import SELECT, is_call
from optpy.kernels.codegen import body
from optpy.kernels.codegen.program import ProgramListing
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
    """A greedy list schedule (DeVito et al. 2017): of the nodes that can be computed, one under the same condition as
    the last; of these, one after which fewest values are alive; of these, the oldest."""
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


def spilled(libraries: Iterable[Path]) -> dict[str, tuple[int, int]]:
    """Of each function of some libraries the instructions that load from fixed slots of the stack, or store there."""
    command = ["objdump", "-d", "--no-show-raw-insn", *map(str, libraries)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
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
    energy, data = _energy_and_data(name, size)
    data = {k: _real(v, dtype) for k, v in data.items()}
    bound = {order: _bound(energy, data, dtype, order) for order in ORDERS}
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(_REPEAT):
        for order, (problem, *_) in bound.items():
            for group in GROUPS:
                times.setdefault((order, group), []).append(_seconds(problem, GROUPS[group]))
    for order, (_, libraries, listing) in bound.items():
        elements = sum(np.size(data[u.name]) for u in problem.unknowns)
        nanoseconds = {group: 1e9 * min(times[order, group]) / elements for group in GROUPS}
        yield Row(name, order, _by_group(listing, spilled(libraries)), nanoseconds)


def _energy_and_data(name: str, size: int) -> tuple[op.Energy, Mapping[str, Any]]:
    if name in conditions.ENERGIES:
        energy = conditions.ENERGIES[name]()
        return energy, conditions.data(energy, size)
    energy, data_for = subject(name)
    return energy, data_for(size)


def _bound(
    energy: op.Energy, data: Mapping[str, Any], dtype: str, order: str
) -> tuple[CompiledProblem, tuple[Path, ...], ProgramListing]:
    """A problem that is linearised, with its kernels' libraries."""
    with (
        patch.object(body, "topological", ORDERS[order]),
        # No program in another order may be kept, or found, under the name of the compiler's own.
        patch.object(pipeline, "kept_program", lambda problem, dtype, given, derived: derived()),
    ):
        plan = build(energy, dtype)
        backend = plan.compiled.shown
        assert isinstance(backend, CpuBackend)
        problem = plan.start(data, threads=1)._problem
    problem.linearise()
    backend.library.need(g for groups in GROUPS.values() for g in groups)
    return problem, backend.library.files, backend.listing


def _seconds(problem: CompiledProblem, groups: Iterable[Group]) -> float:
    return sum(processor_seconds(problem, group, ENOUGH) for group in groups if group in problem.executor.groups)


def _by_group(listing: ProgramListing, spills: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Loads and stores of the kernels of each of GROUPS, their borders included."""
    found = {}
    for group, members in GROUPS.items():
        kernels = [listing.kernels[n].name for g in members for n in listing.groups.get(g, ())]
        own = [spills.get(f"{k}{part}", (0, 0)) for k in kernels for part in ("", "_border")]
        found[group] = sum(loads for loads, _ in own), sum(stores for _, stores in own)
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The settings of a run."""
    names = [*PROBLEMS, *conditions.ENERGIES]
    made = argparse.ArgumentParser(prog="python -m bench.spills", description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("problems", nargs="*", metavar="PROBLEM")
    made.add_argument("--size", type=int, default=128, help="pixels along a side; a mesh: N * N vertices")
    made.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    settings = made.parse_args(arguments)
    settings.problems = settings.problems or names
    return settings


def main(arguments: list[str] | None = None) -> None:
    """Measures, and prints a line for each problem and order."""
    settings = parse(arguments)
    print(f"loads + stores of the stack, nanoseconds for each number, {settings.dtype}: {', '.join(GROUPS)}")
    for name in settings.problems:
        for row in measure(name, settings.size, settings.dtype):
            cells = (f"{sum(row.spills[g]):6d} {row.nanoseconds[g]:9.3f}" for g in GROUPS)
            print(f"{name:26s} {row.order:10s} {'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
