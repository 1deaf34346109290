"""Random energies with data, for hypothesis: stencils, strides, mirrors, guards, vectors, several grids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import optpy as op
from optpy.energy.language.declarations import GridArray


@dataclass(frozen=True)
class Case:
    """An energy and data that fit it; ``repr`` is what a failing test shows."""

    energy: op.Energy
    data: dict[str, Any]


class Builder:
    """Draws the parts of one energy over a grid of one to three dimensions."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        rank = draw(st.integers(1, 3))
        self.dims = op.dims(" ".join("DHW"[:rank]) + ",")
        self.coarse = op.dims(" ".join(("Dc", "Hc", "Wc")[:rank]) + ",")
        self.indices = tuple(op.indices(d) for d in self.dims)
        channels = draw(st.sampled_from([None, 2]))
        self.X = op.Unknown("X", self.dims, channels)
        self.Y = op.Unknown("Y", draw(st.sampled_from([self.dims, self.coarse])))
        self.g = op.Unknown("g", (), draw(st.sampled_from([None, 3])))
        self.A = op.Array("A", self.dims, channels)
        self.Mask = op.Array("Mask", self.dims, dtype=np.uint8)
        self.Flag = op.Array("Flag", self.dims, dtype=bool)
        self.w = op.params("w")

    def index(self, array: GridArray) -> tuple[Any, ...]:
        """An affine index into an array; over its own grid mostly a neighbour."""
        result = []
        for i, own, dim in zip(self.indices, self.dims, array.dims, strict=True):
            kinds = ["neighbour"] * 4 + ["constant"] if own == dim else []
            kinds += ["stride", "mirror", "quotient", "remainder"]
            kind = self.draw(st.sampled_from(kinds))
            d = self.draw(st.integers(-1, 2))
            choices = {
                "neighbour": i + d, "stride": 2 * i + d, "mirror": dim - 1 - i + d, "constant": max(d, 0),
                "quotient": (i + d) // 2, "remainder": (2 * i + d) % 3,
            }  # fmt: skip
            result.append(choices[kind])
        return tuple(result)

    def read(self, array: GridArray) -> Any:
        if not array.dims:
            return array[()] if array.channels is None else array[()][self.draw(st.integers(0, 2))]
        value = array[self.index(array)]
        return value if not value.shape or self.draw(st.booleans()) else value[self.draw(st.integers(0, 1))]

    def condition(self) -> Any:
        kind = self.draw(st.sampled_from(["mask", "flag", "index", "data"]))
        if kind == "mask":
            return self.Mask[self.index(self.Mask)] == 0
        if kind == "flag":
            return self.Flag[self.index(self.Flag)]
        if kind == "index":
            return op.value(self.indices[0]) < self.draw(st.integers(0, 3))
        return (self.A[self.index(self.A)] > 0.2).sum() > 0.5

    def expression(self, depth: int) -> Any:
        if depth == 0:
            return self.read(self.draw(st.sampled_from([self.X, self.X, self.Y, self.A, self.g])))
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        operation = self.draw(
            st.sampled_from(["+", "-", "*", "sin", "root", "exp", "where", "scaled", "value", "safe", "turn"])
        )
        if operation == "turn" and a.shape == (2,) and not b.shape:
            return op.rotate2d(b, a)
        if operation == "safe":
            # Infinite where it is not taken.
            return op.where(self.condition(), a, b / (b.sum() - b.sum() + op.stop_gradient(b) * 0 + 2))
        results: dict[str, Any] = {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "sin": lambda: op.sin(a) - b,
            "root": lambda: op.sqrt(1 + a**2 + b**2),
            "exp": lambda: op.exp(-(a**2)) * b,
            "where": lambda: op.where(self.condition(), a, b),
            "scaled": lambda: self.w * a + 0.5 * b,
            "value": lambda: a * op.value(self.indices[-1]) + b,
            "turn": lambda: op.cos(a) + b,
        }
        result: op.Expression = results[operation]()
        return result

    def residual(self) -> op.Expression:
        # The arc tangent stands nowhere else, so that it cannot cancel and leave a residual without unknowns.
        unknown = self.read(self.draw(st.sampled_from([self.X, self.Y])))
        r = self.expression(self.draw(st.integers(0, 2))) + op.atan(unknown)
        guard = self.draw(st.sampled_from(["rule", "own", "condition"]))
        if guard == "own":
            return op.where(op.in_bounds(*self.index(self.X), of=self.X), r, 0.25 * self.read(self.X))
        return r if guard == "rule" else op.where(self.condition(), r, 0)

    def energy(self) -> op.Energy:
        terms: dict[str, Any] = {"fit": self.X[self.indices] - self.A[self.indices]}
        for n in range(self.draw(st.integers(0, 2))):
            residuals = [self.residual() for _ in range(self.draw(st.integers(1, 2)))]
            terms[f"term{n}"] = residuals if len(residuals) > 1 else residuals[0]
        fixed = {self.X: self.Mask[self.indices] == 2} if self.draw(st.booleans()) else None
        return op.Energy(**terms, fixed=fixed)

    def data(self, energy: op.Energy) -> dict[str, Any]:
        rng = np.random.default_rng(self.draw(st.integers(0, 2**16)))
        sizes = {d: self.draw(st.integers(1, 4 if len(self.dims) < 3 else 3)) for d in energy.dims}
        data: dict[str, Any] = {p.name: rng.normal() for p in energy.params}
        for f in energy.fields:
            shape = [sizes[d] for d in f.dims] + ([f.channels] if f.channel_axis else [])
            if f.dtype == "real":
                data[f.name] = rng.normal(size=shape)
            else:
                data[f.name] = rng.integers(0, 3, shape).astype(f.dtype)
        return data


@st.composite
def cases(draw: st.DrawFn) -> Case:
    builder = Builder(draw)
    energy = builder.energy()
    return Case(energy, builder.data(energy))
