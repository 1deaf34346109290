"""Work under conditions of data: what it takes where a condition holds somewhere, everywhere or at random.

`python -m bench.conditions [ENERGY ...] [--size N]`: energies whose dear parts stand under conditions. For each kind of
data a linearisation, a product with J^T J and a cost, with every dear part computed at all points and then selected,
and with branches: nanoseconds of the processor for each pixel on one thread, the least of runs
that take turns.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

import optpy as op
from bench import report
from bench.decisions import processor_seconds
from optpy.api.measured import LINEARISATION
from optpy.api.plan import build
from optpy.api.problem import CompiledProblem
from optpy.ir import Group

ENOUGH = 0.02
"""Seconds of a run, of which the fastest of several counts."""
_REPEAT = 7

H, W, E = op.dims("H W E")
i, j, e = op.indices(H, W, E)
X = op.Unknown("X", (H, W))
Y = op.Unknown("Y", (H, W))
A = op.Array("A", (H, W))
B = op.Array("B", (H, W))
Lit = op.Array("Lit", (H, W), dtype=np.uint8)
Wet = op.Array("Wet", (H, W), dtype=np.uint8)
Active = op.Array("Active", (E,), dtype=np.uint8)

smooth = [U[i, j] - U[i + di, j + dj] for U in (X, Y) for di, dj in ((0, 1), (1, 0))]


def _pointwise() -> op.Energy:
    """A dear function of a pixel's own two numbers, under one condition of the pixel."""
    x, y = X[i, j], Y[i, j]
    model = sum(op.exp(-((x - k) ** 2) / (k + 1)) * op.atan(y + k) for k in range(4))
    return op.Energy(fit=op.where(Lit[i, j] != 0, model - A[i, j], 0), smooth=smooth)


def _stencil() -> op.Energy:
    """Curvatures of two surfaces, under the condition of the pixel in their middle: each pixel is in nine of them."""

    def curvature(U: op.Unknown) -> Any:
        a, b = (U[i, j + 1] - U[i, j - 1]) / 2, (U[i + 1, j] - U[i - 1, j]) / 2
        aa, bb = U[i, j + 1] - 2 * U[i, j] + U[i, j - 1], U[i + 1, j] - 2 * U[i, j] + U[i - 1, j]
        ab = (U[i + 1, j + 1] - U[i + 1, j - 1] - U[i - 1, j + 1] + U[i - 1, j - 1]) / 4
        return ((1 + a * a) * bb - 2 * a * b * ab + (1 + b * b) * aa) / (1 + a * a + b * b) ** 1.5

    return op.Energy(bent=op.where(Lit[i, j] != 0, curvature(X) - A[i, j] * curvature(Y), 0), smooth=smooth)


def _two() -> op.Energy:
    """Two dear functions, computed in vectors, under conditions that need not hold together."""
    x, y = X[i, j], Y[i, j]
    first = sum(op.exp(-((x - k) ** 2) / (k + 1)) * op.sin(y + k) for k in range(9))
    second = sum(op.sin(k * x + y) * op.log(1 + (k * y) ** 2) for k in range(1, 10))
    lit = op.where(Lit[i, j] != 0, first - A[i, j], 0)
    return op.Energy(lit=lit, wet=op.where(Wet[i, j] != 0, second - B[i, j], 0), smooth=smooth)


def _edges() -> op.Energy:
    """A dear function of the two pixels of an edge, one edge for each pixel, under a condition of the edge."""
    first, second = op.Graph("pairs", E, ((H, W), (H, W)))[e]
    x, y = X[first], Y[second]
    model = sum(op.exp(-((x - k) ** 2) / (k + 1)) * op.atan(y + k) for k in range(4))
    return op.Energy(fit=op.where(Active[e] != 0, model - Y[first], 0), smooth=smooth)


ENERGIES: Final[dict[str, Callable[[], op.Energy]]] = {
    "pointwise": _pointwise, "stencil": _stencil, "two": _two, "edges": _edges,
}  # fmt: skip
KINDS: Final = ("nowhere", "blocks", "random", "dense")
"""Of masks: 0 everywhere; 1 in squares that cover a tenth; 1 at a tenth of the pixels, each for itself; 1 at 97 of 100,
but for squares."""


def mask(kind: str, size: int, seed: int) -> NDArray[np.uint8]:
    """A mask of one of KINDS."""
    rng = np.random.default_rng(seed)
    if kind == "random":
        return (rng.random((size, size)) < 0.1).astype(np.uint8)
    found = np.zeros((size, size), np.uint8)
    side = max(1, size // 8)
    wanted = {"nowhere": 0.0, "blocks": 0.1, "dense": 0.03}[kind]
    while found.mean() < wanted:
        y, x = rng.integers(0, size, 2)
        found[y : y + side, x : x + side] = 1
    return 1 - found if kind == "dense" else found


def data(energy: op.Energy, size: int, kind: str = "blocks") -> dict[str, Any]:
    """What an energy here needs."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {n: rng.standard_normal((size, size)).astype(np.float32) for n in ("X", "Y", "A", "B")}
    found |= {"Lit": mask(kind, size, 1), "Wet": mask(kind, size, 2)}
    found["Active"] = found["Lit"].ravel()
    if energy.graphs:
        rows, columns = np.divmod(np.arange(size * size), size)
        found["pairs"] = np.stack([rows, columns, rows, (columns + 1) % size], axis=1)
    read = {f.name for f in energy.problem.fields} | {g.name for g in energy.graphs}
    return {name: value for name, value in found.items() if name in read}


WAYS: Final = ("select", "branch")
GROUPS: Final = {"linearisation": LINEARISATION, "product": (Group.PRODUCT,), "cost": (Group.COST,)}


def seconds(problem: CompiledProblem) -> dict[str, float]:
    """Of the processor, for one run of each of GROUPS."""
    there = problem.executor.groups
    return {
        name: sum(processor_seconds(problem, group, ENOUGH) for group in groups if group in there)
        for name, groups in GROUPS.items()
    }


def least(problems: Mapping[str, CompiledProblem]) -> dict[str, dict[str, float]]:
    """The least seconds of each problem, of runs that take turns."""
    turns = [{name: seconds(problem) for name, problem in problems.items()} for _ in range(_REPEAT)]
    return {name: {group: min(turn[name][group] for turn in turns) for group in GROUPS} for name in problems}


def measure(name: str, size: int, dtype: str) -> Iterator[tuple[str, dict[str, dict[str, float]]]]:
    """For each kind of mask, the least seconds of all in GROUPS, selected and branched."""
    energy = ENERGIES[name]()
    plans = {way: build(energy, dtype, op.Schedule(conditions={"*": way})) for way in WAYS}
    for kind in KINDS:
        bound = {way: plan.start(data(energy, size, kind), threads=1)._problem for way, plan in plans.items()}
        for problem in bound.values():
            problem.linearise()
        yield kind, least(bound)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and prints a table for each energy."""
    made = argparse.ArgumentParser(prog="python -m bench.conditions", description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("energies", nargs="*", choices=ENERGIES, default=[*ENERGIES], metavar="ENERGY")
    made.add_argument("--size", type=int, default=512, help="pixels along a side")
    made.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    settings = made.parse_args(arguments)
    for name in settings.energies:
        title = f"{name}, {settings.size}², {settings.dtype}: nanoseconds for each pixel, selected and branched"
        table = Table("mask", *GROUPS, title=title)
        for kind, times in measure(name, settings.size, settings.dtype):
            pixel = 1e9 / settings.size**2
            table.add_row(kind, *(" / ".join(f"{pixel * times[way][group]:.2f}" for way in WAYS) for group in GROUPS))
        report.show(table)


if __name__ == "__main__":
    main()
