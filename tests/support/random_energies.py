"""Random energies for hypothesis: everything that users may write on grids, in small, with data of any size for it.

An energy is drawn once and compiled once; its data can then be made for any sizes of its dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st
from numpy.typing import NDArray

import optpy as op

BIG = 2**24
"""From here on float32 cannot tell neighbouring whole numbers apart."""


@dataclass
class RandomEnergy:
    """An energy with what is needed to make data for it."""

    energy: op.Energy
    seed: int
    text: list[str] = field(default_factory=list)
    smooth: bool = True
    """No stop_gradient: differences of the residuals are the derivatives."""

    @property
    def dims(self) -> list[str]:
        return [d.name for d in self.energy.dims]

    def sizes(self, *cycle: int) -> dict[str, int]:
        """The sizes in turn, for the dims in their order."""
        return {d: cycle[n % len(cycle)] for n, d in enumerate(self.dims)}

    def long_sizes(self) -> dict[str, int]:
        """Small, but for the rows of the first unknown: longer than many vector registers, and than the runs of points
        that are skipped where all is fixed."""
        sizes, dims = self.sizes(2, 3), [d.name for d in self.energy.problem.unknowns[0].dims]
        if dims and dims.count(dims[-1]) == 1:
            sizes[dims[-1]] = 150
        return sizes

    def data(self, sizes: dict[str, int]) -> dict[str, Any]:
        """Values that float32 holds exactly; masks, and whole numbers that float32 does not hold exactly."""
        rng = np.random.default_rng(self.seed)
        arrays: dict[str, Any] = {}
        for f in self.energy.fields:
            shape = [sizes[d.name] for d in f.dims] + [f.channels] * f.channel_axis
            arrays[f.name] = _values(rng, f.dtype, tuple(shape))
        return arrays | {p.name: float(np.float32(rng.uniform(0.5, 1.5))) for p in self.energy.params}

    def __repr__(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.text])


def _values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    if dtype == "bool":
        return rng.random(shape) < 0.7
    if dtype == "uint8":
        return rng.integers(0, 4, shape).astype(np.uint8)
    if dtype == "int32":
        return rng.integers(BIG - 1, BIG + 3, shape).astype(np.int32)
    values = rng.uniform(-1.5, 1.5, shape)
    values[rng.random(shape) < 0.1] = 0
    return values.astype(np.float32).astype(np.float32 if dtype == "float32" else np.float64)


@dataclass
class Space:
    """A residual's loop variables with the dims they run over, in order."""

    loops: list[Any]
    dims: list[Any]


class Draw:
    """The choices that make up one energy."""

    def __init__(self, draw: Callable[..., Any]) -> None:
        self._draw = draw
        self.smooth = True
        self.text: list[str] = []
        rank = self.choose([2, 1, 2, 3])
        names = ["D0", "D1", "D2"][:rank]
        if rank >= 2 and self.chance(5):
            names[-1] = names[-2]  # a square grid, which may be read transposed
        self.main = [op.Dim(n) for n in names]
        self.coarse = [op.Dim(f"C{n}") for n in range(rank)]
        self.window = op.Dim("K")
        self.unknowns = self._unknowns()
        self.arrays: list[Any] = []
        self.funcs: list[Any] = []
        self.params = list(op.params("w v"))

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self._draw(st.integers(0, len(options) - 1))]

    def chance(self, one_in: int) -> bool:
        return bool(self._draw(st.integers(0, one_in - 1)) == one_in - 1)

    # -- declarations ----------------------------------------------------------------------------------------------

    def _grid(self) -> list[Any]:
        """A grid over all main dims, over some of them, or over none."""
        kind = self.choose(["main", "main", "main", "first", "last", "none"])
        return {"main": self.main, "first": self.main[:1], "last": self.main[-1:], "none": []}[kind]

    def _unknowns(self) -> list[Any]:
        made = [op.Unknown("X0", self.main, self.choose([None, 2, 1, 3]))]
        for n in range(1, self.choose([1, 2, 3])):
            made.append(op.Unknown(f"X{n}", self._grid(), self.choose([None, 2])))
        self.text += [repr(u) for u in made]
        return made

    def _array(self, dims: list[Any], dtypes: Sequence[str | None]) -> Any:
        a = op.Array(f"A{len(self.arrays)}", dims, self.choose([None, None, 2]), dtype=self.choose(dtypes))
        self.arrays.append(a)
        self.text.append(repr(a))
        return a

    def _func(self) -> Any:
        """An intermediate over a grid of its own: a condition, a number or two; it may read those before it."""
        dims = self.choose([self.main, self.main, self.main[:1], self.main[-1:]])
        loops = op.indices(*dims)
        space = Space([loops] if len(dims) == 1 else list(loops), list(dims))
        if self.chance(3):
            formula = self.condition(space, 1)
        else:
            formula = self.number(space, self.choose([1, 2]))
            if self.chance(3):
                formula = op.vector(formula, self.number(space, 1))
        made = op.Func(f"F{len(self.funcs)}", dims)
        made[loops] = formula
        self.funcs.append(made)
        self.text.append(f"{made!r} = {formula!r}")
        return made

    # -- reads -----------------------------------------------------------------------------------------------------

    def _index(self, dim: Any, axis: int, space: Space) -> Any:
        """An index along an axis over dim."""
        own = [i for i, d in zip(space.loops, space.dims, strict=True) if d == dim]
        if axis < len(space.dims) and space.dims[axis] == dim and not self.chance(6):
            own = [space.loops[axis]]
        coarse = [i for i, d in zip(space.loops, space.dims, strict=True) if d.name[0] == "C"]
        window = [i for i, d in zip(space.loops, space.dims, strict=True) if d.name == "K"]
        i = self.choose(own) if own else None
        offset = self.choose([0, 1, -1, 0, 2, -3, 3])
        kinds = ["constant"]
        if i is not None:
            kinds = ["shift"] * 8 + ["mirror", "constant", "stride"] + ["window"] * 6 * bool(window)
            kinds += ["diagonal"] * 2 * (len(space.loops) > 1) + ["quotient", "remainder"]
        elif coarse:
            kinds = ["coarse"] * 6 + ["constant"]
        kind = self.choose(kinds)
        if kind == "shift":
            return i + offset
        if kind == "mirror":
            return dim - 1 - i + offset
        if kind == "stride":
            stride = self.choose([2, 3, -2])
            # Backwards from below the first element every read is outside, which is refused.
            return stride * i + (offset if stride > 0 else abs(offset))
        if kind in ("quotient", "remainder"):
            return self._divided(i, kind == "quotient") + self.choose([0, 0, 1])
        if kind == "window":
            return self.choose([1, 1, 2]) * i + self.choose([1, -1, 2]) * self.choose(window) + offset
        if kind == "diagonal":
            other = self.choose([k for k in space.loops if k is not i])
            return self.choose([1, 2]) * i + self.choose([1, -1, 3]) * other + offset
        if kind == "coarse":
            k = coarse[axis] if axis < len(coarse) else coarse[0]
            return self.choose([2, 2, 4]) * k + offset
        return abs(offset)

    def _divided(self, i: Any, quotient: bool) -> Any:
        """A quotient, or a remainder, of an index of one of several forms."""
        numerator = self.choose([i, i + self.choose([1, -1]), 3 * i + 1, 2 - i])
        return numerator // self.choose([2, 2, 4, 5]) if quotient else numerator % self.choose([2, 3])

    def read(self, of: Any, space: Space) -> Any:
        """A scalar read of an array, an unknown or an intermediate."""
        value = of[tuple(self._index(d, n, space) for n, d in enumerate(of.dims))]
        return value[self.choose(range(of.channels))] if of.channels else value

    def plain(self, of: Any, space: Space) -> Any:
        """The read at the point itself, or along those axes that the space has."""
        loops = dict(zip([d.name for d in space.dims], space.loops, strict=True))
        value = of[tuple(loops.get(d.name, 0) for d in of.dims)]
        return value[0] if of.channels else value

    # -- formulas --------------------------------------------------------------------------------------------------

    def condition(self, space: Space, depth: int) -> Any:
        flags = [f for f in self.funcs if f.field.dtype == "bool"]
        if flags and self.chance(2):
            return self.read(self.choose(flags), space)
        kinds = ["bool", "uint8", "int32", "two int32", "value", "bounds", "number", "unknown", "and", "or", "not"]
        kind = self.choose(kinds)
        if kind == "bool":
            return self.read(self._array(self._grid(), ["bool"]), space)
        if kind == "uint8":
            return self.read(self._array(self._grid(), ["uint8"]), space) == self.choose([0, 1, 2])
        if kind == "int32":
            return self.read(self._array(self._grid(), ["int32"]), space) >= BIG + 1
        if kind == "two int32":
            a = self._array(self._grid(), ["int32"])
            return self.read(a, space) != self.read(a, space)
        if kind == "value":
            return op.value(self.choose(space.loops)) < self.choose([1, 2, 0])
        if kind == "bounds":
            n = self.choose(range(len(space.loops)))
            return op.in_bounds(space.loops[n] + self.choose([1, -1, 2]))
        if kind == "number":
            return self.read(self._array(self._grid(), [None, "float64", "float32"]), space) > self.choose([0, -0.5])
        if kind == "unknown" or depth == 0:
            return self.read(self.choose(self.unknowns), space) > self.choose([0, 0.25])
        if kind == "and":
            return self.condition(space, depth - 1) & self.condition(space, depth - 1)
        if kind == "or":
            return self.condition(space, depth - 1) | self.condition(space, depth - 1)
        return ~self.condition(space, depth - 1)

    def leaf(self, space: Space) -> Any:
        if self.funcs and self.chance(2):
            return self.read(self.choose(self.funcs), space)
        kind = self.choose(["unknown", "unknown", "unknown", "array", "param", "number", "value"])
        if kind == "unknown":
            return self.read(self.choose(self.unknowns), space)
        if kind == "array":
            return self.read(self._array(self._grid(), [None, "float64", "float32", "uint8", "bool"]), space)
        if kind == "param":
            return self.choose(self.params) * 1
        if kind == "number":
            return op.vector(self.choose([1, -0.5, 0.1, 2]))[0]
        i = self.choose(space.loops)
        return 0.1 * op.value(self.choose([i, i, i // 2, i % 3]))

    def _sampled(self, space: Space) -> Any:
        """An array read at coordinates that unknowns move, also beyond its ends."""
        dims = self.choose([self.main, self.main[-1:]])
        array = self._array(dims, [None, "float32", "uint8"])
        boundary = self.choose(["nearest", "constant", "mirror", "wrap"])
        sampled = op.Sampled(array, method=self.choose(["linear", "linear", "cubic"]), boundary=boundary)
        at = [self.leaf(space) + 0.3 + self.choose([0, 1, 0.5]) * op.value(self.choose(space.loops)) for _ in dims]
        value = sampled(*at)
        return value[1] if array.channels else value

    def number(self, space: Space, depth: int) -> Any:
        """A formula without poles."""
        if depth == 0:
            return self.leaf(space)
        if self.chance(10):
            return self._sampled(space)
        x = self.number(space, depth - 1)
        kind = self.choose(["+", "-", "*", "unary", "unary", "/", "where", "guarded", "two", "stop"])
        if kind == "unary":
            return self._unary(x)
        if kind == "where":
            return op.where(self.condition(space, 1), x, self.number(space, depth - 1))
        if kind == "guarded":
            z = self.read(self.choose(self.unknowns), space)
            safe = self.choose([x / z, op.sqrt(z), op.log(z) * x, z**-2, x / (z * z)])
            return op.where(z > 0.125, safe, 0)
        if kind == "stop":
            self.smooth = False
            return x * op.stop_gradient(self.read(self.choose(self.unknowns), space))
        y = self.number(space, depth - 1)
        if kind == "two":
            return self.choose([op.minimum(x, y), op.maximum(y, x), op.atan2(x, 2 + y * y), x**2 * y, (x - y) ** 3])
        return {"+": x + y, "-": x - 0.5 * y, "*": x * y, "/": x / (1.5 + y * y)}[kind]

    def _unary(self, x: Any) -> Any:
        return self.choose(
            [
                *(op.sin(x), op.cos(x), op.tanh(x), op.exp(op.minimum(x, 2)), op.sqrt(0.5 + x * x)),
                *(op.abs(x), op.floor(x) + x, x * x, -x),
            ]
        )

    # -- residuals -------------------------------------------------------------------------------------------------

    def residual(self) -> Any:
        kind = self.choose(["main", "main", "main", "main", "coarse", "window", "subset"])
        windowed, last = [*self.main, self.window], self.main[-1:]
        dims = {"main": self.main, "coarse": self.coarse, "window": windowed, "subset": last}[kind]
        loops = op.indices(*dims)
        space = Space([loops] if len(dims) == 1 else list(loops), list(dims))
        u = self.unknowns[0] if self.chance(2) else self.choose(self.unknowns)
        e = self.read(u, space) * self.choose([1, 2, -0.5]) + self.number(space, self.choose([1, 0, 2, 2]))
        if kind in ("coarse", "window"):  # binds the sizes
            e = e * self.plain(self._array(dims, [None, "float32"]), space)
        if self.chance(3):
            e = op.where(self.condition(space, 2), e, self.choose([0, 0, 0.5 * e, 1]))
        if self.chance(3):
            e = op.vector(e, self.choose([e * e, self.read(self.choose(self.unknowns), space), 3 * e + 1]))
        return self._robust(e, space) if self.chance(8) else e

    def _robust(self, e: Any, space: Space) -> Any:
        self.smooth = False
        losses = ["linear", "huber", "soft_l1", "cauchy", "arctan", "tukey", "geman_mcclure"]
        r = op.robust(e, self.choose(losses), scale=self.choose([1, 0.5, self.params[0], 2 * self.params[1]]))
        r = r * self.choose([1, -2, self.params[0]])
        return op.where(self.condition(space, 1), r, self.choose([0, e, 1])) if self.chance(2) else r

    def fixed(self) -> dict[Any, Any]:
        found = {}
        for u in self.unknowns:
            if u.dims and len({d.name for d in u.dims}) == len(u.dims) and self.chance(3):
                loops = op.indices(*u.dims)
                mask = self._array(list(u.dims), ["uint8"])
                read = mask[loops]
                found[u] = (read if not mask.channels else read[1]) == 1
        return found

    def energy(self) -> RandomEnergy:
        for _ in range(self.choose([0, 1, 2, 3])):
            self._func()
        made = [self.residual() for _ in range(self.choose([2, 1, 3, 4]))]
        terms = {"a": made[0]} | ({"b": made[1:]} if len(made) > 1 else {})
        fixed = self.fixed()
        self.text += [f"residual {r!r}" for r in made]
        self.text += [f"fixed {u.name}: {c!r}" for u, c in fixed.items()]
        try:
            energy = op.Energy(fixed=fixed, **terms)
        except op.EnergyError as error:
            # x - x, or a size that only values of indices mention: not what is tested here.
            if any(text in str(error) for text in ("reads no unknown", "no term reads", "is bound by no data")):
                reject()
            raise
        return RandomEnergy(energy, self._draw(st.integers(0, 2**16)), self.text, self.smooth)


@st.composite
def random_energies(draw: st.DrawFn) -> RandomEnergy:
    return Draw(draw).energy()
