"""Intermediates with names: ``B = op.Func("B", (H, W))``, then ``B[i, j] = formula``, then ``B[i + 1, j]`` anywhere.

The formula is made canonical where it is assigned: loop variables i0, i1, ... of the Func's own grid, and the boundary
rule, by which it is 0 where it reads outside an array.

Reference: computed arrays of Z. DeVito et al., "Opt: A Domain Specific Language for Non-linear Least Squares
Optimization", 2017; Funcs of J. Ragan-Kelley et al., "Halide", 2013.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NoReturn, final

from optpy import ir
from optpy.energy.language.canonical import canonical_definition, loop_variables
from optpy.energy.language.declarations import GridArray, declared_field, shape_text
from optpy.energy.language.expression import Expression, Operand, Source, as_expression
from optpy.energy.language.index import DeclaredIndex, Dim, Index, describe
from optpy.energy.language.naming import shown
from optpy.energy.language.robust import refuse_robust
from optpy.errors import EnergyError, Location


@final
class Func(GridArray):
    """An intermediate: a formula with a name, at each point of a grid.

    Once it is assigned, ``B[i, j] = formula``, it is read like an array, at any index that an array allows. Its formula
    may read unknowns, arrays and other Funcs. Where the formula reads outside an array and does not ask
    ``op.in_bounds`` itself, B is 0 there; where B is read outside its own grid, the residual is 0, as for any array.
    Whether B is kept in memory or computed wherever it is read does not change its value: the schedule says which.

    A condition, 0 or 1 by its form, stays one: ``op.where(B[i, j], x, y)``.

    Args:
        name: for texts and schedules; no other declaration of an energy may have it.
        dims: of its grid, such as (H, W); () for a single value.
        channels: length of the vector at every point; None takes that of the formula.

    Raises:
        EnergyError: name, dims or channels are none.
    """

    __slots__ = ("_sources",)
    _sources: tuple[Source, ...]

    def __init__(self, name: str, dims: Dim | Iterable[Dim], channels: int | None = None) -> None:
        self.field = declared_field(name, dims, channels, ir.REAL, ir.Role.FUNC)
        if self.field.manifold is not None:
            cure = "its numbers are a vector, channels=4 for a quaternion"
            raise EnergyError(f"the Func {name!r} cannot live on {self.field.manifold}: {cure}", Location.of_caller())
        self._sources = ()

    def __setitem__(self, key: Any, formula: Operand) -> None:
        """The formula at a point.

        Args:
            key: one loop variable for each axis, each another, as they are: ``B[i, j]``; ``B[()]`` for a single value.
            formula: over these loop variables and no others; a scalar, or a vector.

        Raises:
            EnergyError: the Func has a formula already, or key or formula are none.
        """
        if self.field.definition is not None:
            where = self.field.definition.location
            raise EnergyError(f"the Func '{self.name}' has a formula already ({where})", Location.of_caller())
        e = as_expression(formula)
        refuse_robust(f"the Func '{self.name}'", e)
        axes = self._axes(key)
        self._check_loops(e, axes)
        self.field = self._defined(e, axes)
        self._sources = e.sources

    def defined(self) -> ir.Field:
        """The intermediate with its formula.

        Raises:
            EnergyError: it has none yet.
        """
        if self.field.definition is None:
            at = f"{self._example} = ..."
            cure = f"assign {at} before it is read; a Func cannot depend on itself"
            raise EnergyError(f"the Func '{self.name}' has no formula yet: {cure}", Location.of_caller())
        return self.field

    @property
    def sources(self) -> tuple[Source, ...]:
        """Itself, and all that its formula mentions."""
        return (self.field, *self._sources)

    def stored(self, key: Any) -> Expression:
        self.defined()
        read = super().stored(key)
        return Expression(read.shape, read.components, tuple(dict.fromkeys([*read.sources, *self.sources])))

    def _axes(self, key: Any) -> list[DeclaredIndex]:
        entries = key if isinstance(key, tuple) else (key,)
        dims = self.field.dims
        if len(entries) != len(dims) or not all(isinstance(k, Index) for k in entries):
            self._refuse_key(entries)
        axes = [k.variable for k in entries]
        if len(set(axes)) < len(axes):
            self._refuse_key(entries)
        for axis, (v, dim) in enumerate(zip(axes, dims, strict=True)):
            if v.dim != dim:
                raise EnergyError(
                    f"axis {axis} of {self._text} runs over {dim}, but {shown(v)} runs over {v.dim}: assign it at "
                    f"k = op.indices({dim})",
                    Location.of_caller(),
                )
        return axes

    def _refuse_key(self, entries: tuple[Any, ...]) -> NoReturn:
        got = ", ".join(shown(k.affine) if hasattr(k, "affine") else describe(k) for k in entries)
        raise EnergyError(
            f"the Func {self._text} is assigned at one loop variable for each axis, each another, {self._example} = "
            f"...; got [{got}]",
            Location.of_caller(),
        )

    def _check_loops(self, e: Expression, axes: list[DeclaredIndex]) -> None:
        for v in loop_variables(e.components):
            if v not in axes:
                message = (
                    f"the formula of the Func '{self.name}' uses the loop variable {shown(v)}, at which it is not "
                )
                raise EnergyError(f"{message}assigned", e.location)

    def _defined(self, e: Expression, axes: list[DeclaredIndex]) -> ir.Field:
        f = self.field
        if len(e.shape) > 1:
            cure = "a Func holds a scalar or a vector; assign its rows to several Funcs"
            raise EnergyError(f"the formula of the Func '{self.name}' has shape {e.shape}: {cure}", e.location)
        if f.channel_axis and e.shape != (f.channels,):
            message = f"the formula of the Func {self._text} has shape {e.shape}, and ({f.channels},) is declared"
            raise EnergyError(message, e.location)
        definition = canonical_definition(e, axes, Location.of_caller())
        values = definition.values
        return replace(
            f,
            channels=len(values),
            channel_axis=bool(e.shape),
            dtype="bool" if all(v.boolean for v in values) else ir.REAL,
            finite=all(v.finite for v in values),
            definition=definition,
        )

    def __repr__(self) -> str:
        return f"Func({self.name!r}, {shape_text(self.field)})"
