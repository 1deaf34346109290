"""An energy with its data as a page: terms, unknowns, stencils, the pattern of J, operations."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, final

import numpy as np

from optpy import ir
from optpy.drawing.figures import as_img, new_figure
from optpy.drawing.formulas import cost_formula, residual_formula
from optpy.drawing.markup import Markup, page, section, table
from optpy.energy.check.evaluation import residuals
from optpy.energy.check.jacobian import Partials, jacobian
from optpy.energy.data.binding import bind
from optpy.energy.describe import declared, reads
from optpy.energy.stencils import offsets_read, places_read
from optpy.symbolic.count import KINDS, OperationCount, count
from optpy.symbolic.factor import factor

LARGEST_PATTERN: Final = 2_000_000
"""Rows of J up to which its pattern is drawn: the interpreter makes all its entries in memory."""

_CELLS: Final = 400
"""Cells of the picture of J along a side, at most."""


@final
@dataclass(frozen=True, slots=True)
class EnergyPage:
    """A page about an energy. Notebooks show it; `save` and `open` are for scripts.

    Attributes:
        html: the whole page, which needs no other file and no network.
    """

    html: str

    def save(self, path: str | Path) -> None:
        """Write the page to a file.

        Raises:
            OSError: it cannot be written.
        """
        Path(path).write_text(self.html, encoding="utf-8")

    def open(self) -> Path:
        """Show the page in the browser, from a temporary file.

        Returns:
            The file, which stays.
        """
        with NamedTemporaryFile("w", suffix=".html", delete=False, encoding="utf-8") as file:
            file.write(self.html)
        webbrowser.open(Path(file.name).as_uri())
        return Path(file.name)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html)}" style="width: 100%; height: 40rem; border: 0"></iframe>'


def energy_page(problem: ir.Problem, data: Mapping[str, Any]) -> EnergyPage:
    """See ``Energy.show``."""
    sizes = bind(problem, data, np.dtype(np.float64)).sizes
    rows = ((d.name, d.kind, d.shape, d.fixed) for d in declared(problem, sizes))
    parts = (
        section("Terms", table(("residual", "points", "values", "cost", "reads", "written at"), _terms(problem, data))),
        section("Formulas", cost_formula(problem), *map(residual_formula, problem.residuals)),
        section("Declared", table(("name", "kind", "shape", "fixed where"), rows)),
        section("Stencils", *_stencils(problem)),
        section("Pattern of J", *_pattern(problem, data, sizes)),
        section("Operations of residuals and partials at a point", table(("residual", *KINDS), _operations(problem))),
    )
    return EnergyPage(page(f"Energy: {', '.join(problem.terms)}", *parts))


def _terms(problem: ir.Problem, data: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    values = residuals(problem, data, linearised=False)
    for r in problem.residuals:
        over = " x ".join(v.dim.name for v in r.domain) or "one"
        cost = 0.5 * float(np.square(values[r.label]).sum())
        yield r.label, over, len(r.components), cost, ", ".join(reads(r)), str(r.location or "")


def _stencils(problem: ir.Problem) -> Iterator[str]:
    """Pictures of those on grids of one or two axes; the places of all others in words."""
    drawn: list[tuple[str, frozenset[tuple[int, ...]]]] = []
    told: list[tuple[str, str, str]] = []
    for r in problem.residuals:
        offsets = offsets_read(r) if len(r.domain) in (1, 2) else {}
        for field, places in places_read(r).items():
            if field in offsets:
                drawn.append((f"{r.label} reads {field.name}", offsets[field]))
            else:
                told.append((r.label, field.name, " ".join(places)))
    if drawn:
        yield _drawn_stencils(drawn)
    if told:
        yield table(("residual", "reads", "at"), told)


def _drawn_stencils(stencils: Sequence[tuple[str, frozenset[tuple[int, ...]]]]) -> str:
    across = min(len(stencils), 6)
    rows = -(-len(stencils) // across)
    figure = new_figure(1.8 * across, 1.9 * rows)
    for number, (title, offsets) in enumerate(stencils, 1):
        axes: Any = figure.add_subplot(rows, across, number)
        points = np.array([(0,) * (2 - len(o)) + o for o in offsets])
        reach = max(int(np.abs(points).max()), 1) + 0.5
        axes.imshow([[1.0]], cmap="Greys", vmin=0, vmax=5, extent=(-0.5, 0.5, 0.5, -0.5))  # the residual's own point
        axes.plot(points[:, 1], points[:, 0], "o", color="C0")
        axes.set(xlim=(-reach, reach), ylim=(reach, -reach), aspect="equal")
        ticks = np.arange(-reach, reach + 1)
        axes.set_xticks(ticks, labels=[])
        axes.set_yticks(ticks, labels=[])
        axes.tick_params(length=0)
        axes.grid(color="0.8")
        axes.set_title(title, fontsize=7)
    return as_img(figure, "each stencil: the points read, around the residual's own point in grey")


def _pattern(problem: ir.Problem, data: Mapping[str, Any], sizes: Mapping[ir.Extent, int]) -> Iterator[str]:
    rows = sum(len(r.components) * int(np.prod([sizes[v.dim] for v in r.domain])) for r in problem.residuals)
    if rows > LARGEST_PATTERN:
        yield Markup(f"<p>J has {rows:,} rows: too many to draw. Show the energy with smaller data.</p>")
        return
    matrix = jacobian(problem, data).tocoo()
    stored = matrix.data != 0
    yield Markup(f"<p>{matrix.shape[0]:,} rows, {matrix.shape[1]:,} columns, {int(stored.sum()):,} entries not 0.</p>")
    if min(matrix.shape) == 0:
        return
    cells = tuple(min(n, _CELLS) for n in matrix.shape)
    counted, *_ = np.histogram2d(
        matrix.row[stored], matrix.col[stored], cells, [(0, matrix.shape[0]), (0, matrix.shape[1])]
    )
    figure = new_figure(6, 6)
    axes: Any = figure.add_subplot()
    right, bottom = matrix.shape[1] - 0.5, matrix.shape[0] - 0.5
    axes.imshow(counted > 0, cmap="Greys", aspect="auto", interpolation="nearest", extent=(-0.5, right, bottom, -0.5))
    axes.set(xlabel="unknowns", ylabel="residuals")
    yield as_img(figure, "black where an entry of J is not 0")


def _operations(problem: ir.Problem) -> Iterator[tuple[object, ...]]:
    for r in problem.residuals:
        total: OperationCount = count(factor([*ir.at_zero(r.linearised), *Partials(r).expressions]))
        yield r.label, *(getattr(total, kind) for kind in KINDS)
