"""`optpy inspect`: what an energy reads, what its routines take, and the code generated from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from optpy.api.backend import Listing
from optpy.api.pipeline import Derived, derive, derive_cuda
from optpy.api.plan import DTYPES
from optpy.cli.energy_file import clear_errors, energy_file_argument, load_energy
from optpy.cli.schedule_file import schedule_file_option
from optpy.cli.screen import new_console, plain_table
from optpy.energy.check.jacobian import Partials
from optpy.energy.describe import declared
from optpy.energy.stencils import places_read
from optpy.ir import REAL, Group, Problem, Routine, Schedule, at_zero
from optpy.symbolic.count import KINDS, OperationCount, count, count_unshared
from optpy.symbolic.factor import factor

FROM_THE_RESIDUALS = (
    Group.COST, Group.RESIDUALS, Group.PRECOMPUTE, Group.JACOBIAN, Group.GRADIENT, Group.GRADIENT_BLOCKS, Group.PRODUCT,
    Group.MODEL_COST,
)  # fmt: skip
"""The groups of routines that the energy decides; the others are vector updates, the same for all."""


@click.command()
@energy_file_argument
@click.option(
    "--source",
    metavar="ROUTINE",
    help='Print the generated C, or CUDA C++, of one routine, such as applyJTJ, or of "all", and nothing else.',
)
@click.option(
    "--schedule",
    is_flag=True,
    help="Print what is stored, where and in which layout, and why; nothing else. It can be "
    "read back, by --schedule-file and by optpy.Schedule.parse.",
)
@schedule_file_option
@click.option("--dtype", type=click.Choice(DTYPES), default="float64", show_default=True)
@click.option(
    "--device", type=click.Choice(("cpu", "cuda")), default="cpu", show_default=True, help="It need not be there."
)
def inspect(
    energy_file: Path,
    energy_name: str | None,
    source: str | None,
    schedule: bool,
    given: Schedule | None,
    dtype: str,
    device: str,
) -> None:
    """Show terms, unknowns, stencils and operation counts of the energy in ENERGY_FILE. Compiles nothing."""
    with clear_errors():
        problem = load_energy(energy_file, energy_name).problem
        compiler = derive if device == "cpu" else derive_cuda
        derived: Derived[Listing] = compiler(problem, dtype, given or Schedule())
    listing = derived.listing
    if source is not None:
        click.echo(_source(listing, source))
        return
    if schedule:
        click.echo(str(derived.schedule))
        return
    console = new_console()
    for table in (
        _declarations(problem, dtype),
        _terms(problem),
        _stencils(problem),
        _simplification(problem),
        _operations(derived.routines.groups, listing),
    ):
        console.print(table)
        console.print()
    _print_hint(console, listing)


def _source(listing: Listing, routine: str) -> str:
    if routine == "all":
        return listing.source
    if routine not in listing.groups:
        names = ", ".join(listing.groups)
        raise click.BadParameter(f"there is no routine {routine!r}; there are: {names}, all", param_hint="--source")
    return "\n\n".join(listing.functions[n] for n in listing.groups[Group.named(routine)])


def _print_hint(console: Console, listing: Listing) -> None:
    lines = listing.source.count("\n")
    console.print(Text(f"{lines} lines of code: --source ROUTINE prints those of one of {', '.join(listing.groups)}"))


# ---- tables --------------------------------------------------------------------------------------------------


def _declarations(problem: Problem, real: str) -> Table:
    title = "Unknowns, arrays, graphs, params" + (", Funcs" if problem.funcs else "")
    table = plain_table(title, "name", "kind", "shape", "dtype", "keeps its value where")
    for d in declared(problem):
        dtype = real if d.dtype == REAL else d.dtype
        table.add_row(*map(Text, (d.name, d.kind, d.shape, dtype, d.fixed)))
    return table


def _terms(problem: Problem) -> Table:
    table = plain_table("Terms", "residual", "over", "values at each point", "written at")
    for residual in problem.residuals:
        over = ", ".join(str(index.dim) for index in residual.domain) or "nothing: it is a single residual"
        place = str(residual.location or "")
        table.add_row(*map(Text, (residual.label, over, str(len(residual.components)), place)))
    return table


def _stencils(problem: Problem) -> Table:
    table = plain_table("Stencils", "residual", "reads", "at")
    for residual in problem.residuals:
        for number, (field, places) in enumerate(places_read(residual).items()):
            table.add_row(*map(Text, ("" if number else residual.label, field.name, " ".join(places))))
    return table


def _simplification(problem: Problem) -> Table:
    """Each residual with its partials: as differentiation gives them, and factored with each subexpression once."""
    table = plain_table("Operations of residuals and their partials", "residual", "stage", *KINDS)
    for residual in problem.residuals:
        roots = [*at_zero(residual.linearised), *Partials(residual).expressions]
        table.add_section()
        table.add_row(Text(residual.label), "as differentiated", *_cells(count_unshared(roots)))
        table.add_row("", "factored, shared", *_cells(count(factor(roots))))
    return table


def _operations(derived: dict[Group, list[Routine]], listing: Listing) -> Table:
    table = plain_table("Operations for each point", "routine", "stage", *KINDS)
    for group in FROM_THE_RESIDUALS:
        if group not in listing.groups:
            continue
        kernels = [listing.kernels[n] for n in listing.groups[group]]
        stages: dict[str, Iterable[Routine]] = {
            "at any point": derived.get(group, []),
            "in the interior": [k.interior for k in kernels],
        }
        table.add_section()
        for row in _stage_rows(group, stages):
            table.add_row(*row)
    return table


def _stage_rows(group: str, stages: dict[str, Iterable[Routine]]) -> Iterator[list[str]]:
    label = group
    for stage, routines in stages.items():
        roots = [root for routine in routines for root in routine.roots]
        if not roots:  # what is stored is chosen late: it has no earlier stages
            continue
        yield [label, stage, *_cells(count(roots))]
        label = ""


def _cells(total: OperationCount) -> list[str]:
    return [str(getattr(total, kind)) for kind in KINDS]
