"""Random energies over hyper-edges for hypothesis: graphs of every arity, into vertices and grids, mixed with grids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import optpy as op
from optpy import ir

V, H, W = op.dims("V H W")
E, F = op.dims("E F")
SLOTS: dict[str, Any] = {"V": V, "HW": (H, W), "E": E}
"""What slots point into; edges of one graph may be points of another's slots."""


@dataclass
class RandomGraphEnergy:
    """An energy with what is needed to make data for it."""

    energy: op.Energy
    seed: int
    text: list[str]

    def data(self, **sizes: int) -> dict[str, Any]:
        """Random data; the edges repeat and loop, and leave vertices out."""
        rng = np.random.default_rng(self.seed)
        values: dict[str, Any] = {}
        for f in self.energy.fields:
            shape = [sizes[d.name] for d in f.dims] + [f.channels] * f.channel_axis
            values[f.name] = rng.uniform(0.2, 1.5, shape) * rng.choice([-1, 1], shape)
        for g in self.energy.graphs:
            values[g.name] = random_edges(rng, g, sizes)
        return values | {p.name: float(rng.uniform(0.5, 1.5)) for p in self.energy.params}

    def __repr__(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.text])


def random_edges(rng: np.random.Generator, graph: ir.Hypergraph, sizes: dict[str, int]) -> Any:
    n = sizes[graph.edges.name]
    columns = [rng.integers(0, max(1, sizes[d.name] - (sizes[d.name] > 3)), n) for d in graph.columns]
    edges = np.stack(columns, axis=1)
    if n > 2:
        edges[n - 1] = edges[0]  # twice
        same = [c for c, d in enumerate(graph.columns) if d == graph.columns[0] and len(graph.slots[0]) == 1]
        edges[1, same] = edges[1, same[0]] if same else edges[1, same]  # a loop
    return edges.astype(rng.choice(["int64", "int32", "uint16"]))


@st.composite
def random_graph_energies(draw: st.DrawFn) -> RandomGraphEnergy:
    """One to three terms over the edges of up to two graphs, some over vertices or pixels, some with fixed elements."""
    text: list[str] = []
    unknowns: dict[str, Any] = {
        "V": [op.Unknown("X", (V,), draw(st.integers(1, 3))), op.Unknown("Y", (V,))],
        "HW": [op.Unknown("Z", (H, W), 2)],
        "E": [op.Unknown("U", (E,))],
    }
    rows = [op.Unknown("Q", (V, W), draw(st.integers(1, 2))), op.Unknown("R", (H, V))]
    arrays: dict[str, Any] = {
        "V": op.Array("A", (V,), 2), "HW": op.Array("B", (H, W)), "E": op.Array("Weight", (E,)),
    }  # fmt: skip
    w = op.params("w")
    terms: dict[str, Any] = {}
    at_edges: list[Any] = []
    for name, dim in (("g", E), ("h", F))[: draw(st.integers(1, 2))]:
        kinds = ["V", "V", "HW"] + (["E"] if dim is F else [])
        slots = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
        graph = op.Graph(name, dim, [SLOTS[s] for s in slots])
        e = op.indices(dim)
        ends = list(zip(slots, graph[e], strict=True))
        scale = arrays["E"][e] if dim is E and draw(st.booleans()) else w
        beside = op.indices(W) if draw(st.integers(0, 2)) == 0 else None
        parts = [_read(draw, unknowns[s], end) for s, end in ends if beside is None or s != "V"]
        if beside is not None:
            parts += [_beside(draw, rows, end, beside) for s, end in ends if s == "V"]
            parts.append(arrays["HW"][0, beside])  # it binds the size
        parts += [arrays[s][end] for s, end in ends if s != "E" and draw(st.booleans())]
        if dim is E and draw(st.booleans()):
            parts += [unknowns["E"][0][n] for n in draw(st.lists(st.sampled_from([e, *_elsewhere(e)]), max_size=3))]
            at_edges += [arrays["V"][end][0] for s, end in ends if s == "V"]
        terms[name] = _combined(draw, parts, scale)
        text.append(f"{name} {slots}: {terms[name]!r}")
    v, i, j = op.indices(V, H, W)
    if draw(st.booleans()):
        terms["fit"] = w * (unknowns["V"][0][v] - arrays["V"][v][0])
    if draw(st.booleans()):
        terms["smooth"] = unknowns["HW"][0][i, j] - unknowns["HW"][0][i, j + 1]
        terms["tie"] = unknowns["V"][1][0] * op.sin(unknowns["HW"][0][i, j][0])
    fixed: dict[Any, Any] = {}
    energy = op.Energy(**terms)
    for u in energy.unknowns:
        if draw(st.integers(0, 3)) == 0:
            k = op.indices(op.Dim(u.dims[0].name))
            fixed[u] = op.value(k) == 0
            if u.dims[0].name == "E" and at_edges:  # a condition that goes through a graph itself
                fixed[u] = draw(st.sampled_from(at_edges)) > 0
    return RandomGraphEnergy(op.Energy(fixed=fixed, **terms), draw(st.integers(0, 2**16)), text)


def _read(draw: st.DrawFn, unknowns: list[Any], end: Any) -> Any:
    unknown = draw(st.sampled_from(unknowns))
    if isinstance(end, tuple) and draw(st.integers(0, 2)) == 0:  # a neighbour of the pixel
        return unknown[end[0], end[1] + draw(st.sampled_from([-1, 1]))]
    if not isinstance(end, tuple) and draw(st.integers(0, 3)) == 0:
        return unknown[end + draw(st.sampled_from([-1, 1]))]
    return unknown[end]


def _beside(draw: st.DrawFn, rows: list[Any], end: Any, j: Any) -> Any:
    """A vertex beside a loop variable, on the axis before or after it."""
    row, column = rows
    if draw(st.integers(0, 2)) == 0:
        return column[draw(st.sampled_from([0, 1, j // 2, j % 2])), end]
    return row[
        end + draw(st.sampled_from([0, 0, 1])), draw(st.sampled_from([j, j, j + 1, j - 1, 2 * j, j // 2, j % 2, 0]))
    ]


def _elsewhere(e: Any) -> list[Any]:
    """Other edges than e, as e determines them."""
    return [e - 1, e + 1, 2 * e, 2 * e - 1, E - 1 - e]


def _combined(draw: st.DrawFn, parts: list[Any], scale: Any) -> Any:
    """A scalar or a vector residual of all parts."""
    scalars = [c for p in parts for c in (p if p.shape else [p])]
    functions: list[Callable[[Any], Any]] = [op.sin, op.exp, lambda x: x * x, lambda x: x, lambda x: 1 / (2 + x * x)]
    made = [draw(st.sampled_from(functions))(s) for s in scalars]
    total = sum(made[1:], made[0])
    if len(scalars) > 1 and draw(st.booleans()):
        total = total * scalars[0] - scalars[-1] * made[1]
    if draw(st.booleans()):
        return op.vector(scale * total, op.where(scalars[-1] > 0, scalars[0] * scalars[-1], scale))
    return scale * total
