"""An energy as text, as SymPy and as LaTeX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from typing import Any, final

from optpy import ir
from optpy.energy.language.canonical import rename
from optpy.energy.language.declarations import shape_text
from optpy.energy.language.graph import slots_text
from optpy.energy.language.written_out import moved_to, with_summands, written_out
from optpy.errors import EnergyError, Location
from optpy.symbolic.affine import Affine, Atom, FloorDiv, TableEntry


def to_sympy(problem: ir.Problem, name: str) -> Any:
    """See ``Energy.to_sympy``."""
    entries = [r for r in problem.residuals if name in (r.term, r.label)]
    if not entries:
        labels = dict.fromkeys(n for r in problem.residuals for n in (r.term, r.label))
        raise EnergyError(f"the energy has no term {name!r}; it has {', '.join(labels)}", Location.of_caller())
    if entries[0].label == name:
        return _residual_to_sympy(entries[0])
    return [_residual_to_sympy(r) for r in entries]


def _residual_to_sympy(residual: ir.Residual) -> Any:
    import sympy

    from optpy.symbolic.sympy_bridge import to_sympy

    components = [to_sympy(c, sympy_leaf) for c in residual.components]
    if not residual.shape:
        return components[0]
    return sympy.Matrix(residual.shape[0], len(components) // residual.shape[0], components)


def sympy_leaf(key: Any) -> Any:
    """Reads as ``Indexed`` (``X[i0 + 1, i1]``, ``X[edges[i0, 1]]``, the channel last); the others as symbols."""
    import sympy

    if isinstance(key, ir.Access) and key.field.is_sum:
        return _sympy_sum(key)
    if isinstance(key, ir.Access):
        index = [*map(_sympy_index, key.index), *([key.channel] if key.field.channel_axis else [])]
        name = key.field.name
        return sympy.IndexedBase(name, real=True)[tuple(index)] if index else sympy.Symbol(name, real=True)
    if isinstance(key, ir.IndexValue):
        return _sympy_index(key.index)
    return sympy.Symbol(str(key), real=True)


def _sympy_sum(access: ir.Access) -> Any:
    import sympy

    from optpy.symbolic.sympy_bridge import to_sympy

    definition = access.field.definition
    assert definition is not None
    used = {str(atom) for atom in ir.atoms_of(access.index)}
    free = (name for n in count() if (name := f"s{n}") not in used)  # sums stand within sums
    loops = [ir.LoopVariable(name, k.dim) for k, name in zip(definition.loops, free, strict=False)]
    values = written_out([definition.values[access.channel]], attrgetter("values"))
    own: dict[Atom, Affine] = {k: Affine.of(new) for k, new in zip(definition.loops, loops, strict=True)}
    (summand,) = moved_to(rename(values, own), access.field, access.index)
    ends = ((sympy.Symbol(k.name, integer=True), 0, sympy.Symbol(k.dim.name, integer=True) - 1) for k in loops)
    return sympy.Sum(to_sympy(summand, sympy_leaf), *ends)


def _sympy_index(index: Affine) -> Any:
    import sympy

    def number(atom: Atom) -> Any:
        if isinstance(atom, TableEntry):
            row = map(_sympy_index, atom.table.index_of(atom.row))
            return sympy.IndexedBase(atom.table.name, integer=True)[(*row, atom.column)]
        if isinstance(atom, FloorDiv):
            return sympy.floor(_sympy_index(atom.numerator) / atom.denominator)
        return sympy.Symbol(str(atom), integer=True)

    return sympy.Integer(index.constant) + sum(c * number(atom) for atom, c in index.terms)


def to_latex(problem: ir.Problem) -> str:
    """The cost as a sum over the residuals, then each residual."""
    lines = [f.replace("=", "&=", 1) for f in (cost_latex(problem), *map(residual_latex, problem.residuals))]
    return r"$\displaystyle \begin{aligned} " + r" \\ ".join(lines) + r" \end{aligned}$"


def cost_latex(problem: ir.Problem) -> str:
    """The cost as a sum over the squares of the residuals, which have names."""
    squares = (_squares(r, _residual_name(r)) for r in problem.residuals)
    return r"\mathrm{cost} = \tfrac{1}{2} \Big( " + " + ".join(squares) + r" \Big)"


def residual_latex(residual: ir.Residual) -> str:
    """A residual by its name, and its formula."""
    return f"{_residual_name(residual)} = {_components_latex(residual)}"


def _residual_name(residual: ir.Residual) -> str:
    return rf"r_{{\mathrm{{{_escaped(residual.label)}}}}}"


def _squares(residual: ir.Residual, name: str) -> str:
    square = rf"\lVert {name} \rVert^2" if residual.shape else f"{name}^2"
    if not residual.domain:
        return square
    bounds = ", ".join(rf"0 \le {_escaped(i.name)} < {_escaped(i.dim.name)}" for i in residual.domain)
    return rf"\sum_{{{bounds}}} {square}"


def _components_latex(residual: ir.Residual) -> str:
    from optpy.symbolic.latex import to_latex

    entries = [to_latex(c, sympy_leaf) for c in residual.components]
    if not residual.shape:
        return entries[0]
    width = len(entries) // residual.shape[0]
    rows = [" & ".join(entries[n : n + width]) for n in range(0, len(entries), width)]
    return r"\begin{pmatrix} " + r" \\ ".join(rows) + r" \end{pmatrix}"


def _escaped(name: str) -> str:
    return name.replace("_", r"\_")


def summary(problem: ir.Problem) -> str:
    """The residuals with their shapes and what they read, then the unknowns, the data and the intermediates."""
    rows = [(r.label, residual_shape_text(r), ", ".join(reads(r))) for r in problem.residuals]
    widths = [max(len(row[k]) for row in rows) for k in range(2)]
    lines = ["Energy: 1/2 sum of squares of"]
    lines += [f"  {label:<{widths[0]}}  {shape:<{widths[1]}}  reads {names}" for label, shape, names in rows]
    lines.append(f"unknowns: {', '.join(f'{u} {shape_text(u)}' + _dtype(u) for u in problem.unknowns)}")
    arrays = [f for f in problem.fields if f.role is not ir.Role.UNKNOWN]
    if arrays:
        lines.append(f"arrays: {', '.join(f'{a} {shape_text(a)}' + _dtype(a) for a in arrays)}")
    if problem.graphs:
        lines.append(f"graphs: {', '.join(f'{g} {g.edges} of {slots_text(g)}' for g in problem.graphs)}")
    if problem.params:
        lines.append(f"params: {', '.join(p.name for p in problem.params)}")
    if problem.funcs:
        lines.append(f"funcs: {', '.join(f'{f} {shape_text(f)}' + _dtype(f) for f in problem.funcs)}")
    lines += [f"fixed: {u} where {condition}" for u, condition in problem.fixed_as_written.items()]
    return "\n".join(lines)


@final
@dataclass(frozen=True, slots=True)
class Declared:
    """A row about something that an energy declares.

    Attributes:
        name: as the user gave it.
        kind: "unknown", "array", "graph", "param" or "Func", with the manifold of fields.
        shape: with sizes where they are known; of a graph its edges and what they point to.
        dtype: `ir.REAL` stands for that of the solve; "" for params.
        fixed: the condition under which its elements keep their values, or "".
    """

    name: str
    kind: str
    shape: str
    dtype: str
    fixed: str = ""


def declared(problem: ir.Problem, sizes: dict[ir.Extent, int] | None = None) -> Iterator[Declared]:
    """All that an energy declares: unknowns, arrays, graphs, params, Funcs.

    Args:
        problem: of the energy.
        sizes: as data gives them; None: there is no data.
    """
    for f in sorted(problem.fields, key=lambda f: f.role is not ir.Role.UNKNOWN):
        kind = "unknown" if f.role is ir.Role.UNKNOWN else "array"
        kind += f" {f.manifold}" if f.manifold is not None else ""
        yield Declared(f.name, kind, shape_text(f, sizes), f.dtype, str(problem.fixed_as_written.get(f, "")))
    for g in problem.graphs:
        size = "" if sizes is None else f"={sizes[g.edges]}"
        yield Declared(g.name, "graph", f"{g.edges}{size} of {slots_text(g)}", "integers")
    for p in problem.params:
        yield Declared(p.name, "param", "", "")
    for f in problem.funcs:
        yield Declared(f.name, "Func", shape_text(f, sizes), f.dtype)


def reads(residual: ir.Residual) -> list[str]:
    """The names of the fields, graphs and params in a residual, sorted."""
    roots = with_summands(residual.components)
    names = {d.name for d in ir.declared_in(roots) if not (isinstance(d, ir.Field) and d.definition is not None)}
    return sorted(names | {g.name for g in ir.graphs_in(roots)})


def residual_shape_text(residual: ir.Residual) -> str:
    """``(H, W, 2)``: its domain, then its own shape."""
    parts = [*(i.dim.name for i in residual.domain), *map(str, residual.shape)]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _dtype(field: ir.Field) -> str:
    manifold = "" if field.manifold is None else f" {field.manifold}"
    return manifold if field.dtype == ir.REAL else f"{manifold} {field.dtype}"
