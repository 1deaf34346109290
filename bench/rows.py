"""What products with J^T J take where edges have rows of numbers, in each way of storing, beside what is counted.

`python -m bench.rows [--side N] [--length T]`: nanoseconds for each number of an edge, on one thread, for residuals of
some dearness over the edges of a mesh of N * N vertices that have T numbers each: what the constants for rows of
optpy/scheduling/costs.py are held to.
"""

from __future__ import annotations

import argparse
from typing import Final

import numpy as np
from numpy.typing import NDArray

import optpy as op
from bench.decisions import processor_seconds
from optpy.api.plan import build
from optpy.energy.derive.linearised import linearise
from optpy.ir import Group
from optpy.scheduling.residuals import costs, gathers

_REPEAT = 5
V, E, T = op.dims("V E T")
e, t = op.indices(E, T)
X, Y, Z = op.Unknown("X", (V, T)), op.Unknown("Y", (V, T), 3), op.Array("Z", (V, T), 3)
a, b = op.Graph("g", E, (V, V))[e]
apart = X[a, t] - X[b, t]

ENERGIES: Final = {
    "difference": op.Energy(r=apart),
    "root": op.Energy(r=op.sqrt(1 + apart**2)),
    "sine": op.Energy(r=op.sin(apart)),
    "vectors": op.Energy(r=(Y[a, t] - Y[b, t]) * op.norm(Y[a, t] - Y[b, t] + Z[b, t])),
    "dear": op.Energy(r=op.exp(op.sin(X[a, t] * X[b, t])) * op.cos(X[a, t] + X[b, t]) / (1 + X[a, t] ** 2)),
}


def mesh(side: int) -> NDArray[np.int64]:
    """The edges of a grid of triangles."""
    n = np.arange(side * side).reshape(side, side)
    pairs = (n[:, :-1], n[:, 1:]), (n[:-1], n[1:]), (n[:-1, :-1], n[1:, 1:])
    return np.concatenate([np.stack([first.ravel(), second.ravel()], axis=1) for first, second in pairs])


def measure(name: str, side: int, length: int) -> dict[str, tuple[float, int]]:
    """By way: nanoseconds, and the additions that are counted."""
    energy, edges, rng = ENERGIES[name], mesh(side), np.random.default_rng(0)
    (residual,) = energy.problem.residuals
    arrays = {"X": (side**2, length), "Y": (side**2, length, 3), "Z": (side**2, length, 3)}
    read = {f.name for f in energy.problem.fields}
    data = {k: rng.normal(size=shape).astype(np.float32) for k, shape in arrays.items() if k in read} | {"g": edges}
    found = {}
    for way, counted in costs(linearise(residual), gathers("r")).items():
        problem = build(energy, "float32", [way]).start(data, threads=1)._problem
        problem.linearise()
        seconds = min(processor_seconds(problem, Group.PRODUCT, 0.1) for _ in range(_REPEAT))
        found[way.choice] = 1e9 * seconds / len(edges) / length, counted
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measures, and prints a line for each way."""
    made = argparse.ArgumentParser(prog="python -m bench.rows", description=(__doc__ or "").split("\n\n")[0])
    made.add_argument("--side", type=int, default=24)
    made.add_argument("--length", type=int, default=1000)
    settings = made.parse_args(arguments)
    for name in ENERGIES:
        for way, (nanoseconds, counted) in measure(name, settings.side, settings.length).items():
            print(f"{name:12s} {way:8s} {counted:6d} additions, {nanoseconds:8.2f} ns", flush=True)


if __name__ == "__main__":
    main()
