"""`optpy solve`: an energy from a Python file, data from an .npz file, the solution into an .npz file."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

import optpy
from optpy.api.plan import DTYPES
from optpy.cli.array_file import read_data, write_arrays
from optpy.cli.energy_file import clear_errors, energy_file_argument, load_energy
from optpy.cli.output_file import OutputFile
from optpy.cli.schedule_file import schedule_file_option

NOT_CONVERGED = 3
"""The exit status; 1 is an error's, and 2 is click's for a command line that is wrong."""


@click.command()
@energy_file_argument
@click.option(
    "--data",
    "data_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An .npz file with all arrays, unknowns and params by name.",
)
@click.option(
    "--out",
    "out_file",
    required=True,
    type=OutputFile(),
    help="The .npz file to write the unknowns to, by name.",
)
@click.option("--method", type=click.Choice(["gn", "lm"]), help="Gauss-Newton or Levenberg-Marquardt.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), help="Of the solve.  [default: what holds the unknowns in the data]"
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@schedule_file_option
@click.option(
    "--option",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of optpy.solve, as in --option max_iterations=20; may be repeated.",
)
@click.option("--quiet", is_flag=True, help="Neither progress nor report.")
@click.pass_context
def solve(
    context: click.Context,
    energy_file: Path,
    energy_name: str | None,
    data_file: Path,
    out_file: Path,
    method: str | None,
    dtype: str | None,
    device: Literal["auto", "cpu", "cuda"],
    given: optpy.Schedule | None,
    assignments: Sequence[str],
    quiet: bool,
) -> None:
    """Minimise the energy in ENERGY_FILE; Ctrl-C keeps the best solution so far.

    \b
    Exit status:
      0  converged
      1  an error; nothing is written
      2  the command line is wrong
      3  not converged; what was reached is written, and a line on stderr says why it ended
    """
    options = {"verbose": 0 if quiet else 2, **_parse_assignments(assignments)}
    if method is not None:
        if "method" in options:
            raise click.UsageError("the method is given twice: by --method and by --option")
        options["method"] = method
    with clear_errors():
        data = read_data(data_file)
        energy = load_energy(energy_file, energy_name)
        result = optpy.solve(energy, data, device=device, dtype=dtype, schedule=given or "auto", **options)
    write_arrays(out_file, result.x)
    if not quiet:
        report = result.report(table=options["verbose"] != 2)  # then the lines are there already
        click.echo(f"\n{report}\nsolution: {out_file}")
    if not result.success:
        click.echo(f"{result.status.name}: {result.message} What was reached is written to {out_file}.", err=True)
        context.exit(NOT_CONVERGED)


_LITERALS = {"none": "None", "true": "True", "false": "False"}


def _parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """`name=value` each; a value that is no Python literal is a text, but for none, true and false in small letters."""
    options: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--option")
        if name in ("energy", "data", "device", "dtype", "schedule"):
            raise click.BadParameter(f"{name} is no option of the solver", param_hint="--option")
        if name in options:
            raise click.BadParameter(f"{name} is given twice", param_hint="--option")
        try:
            options[name] = ast.literal_eval(_LITERALS.get(text, text))
        except (ValueError, SyntaxError):
            options[name] = text
    return options
