"""`optpy solve`: an energy from a Python file, data from an .npz file, the solution into an .npz file."""

from __future__ import annotations

import ast
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
from numpy.typing import NDArray

import optpy
from optpy.cli.energy_file import clear_errors, energy_file_argument, load_energy
from optpy.plan import DTYPES


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
    type=click.Path(dir_okay=False, path_type=Path),
    help="The .npz file to write the unknowns to, by name.",
)
@click.option("--method", type=click.Choice(["gn", "lm"]), help="Gauss-Newton or Levenberg-Marquardt.")
@click.option(
    "--dtype", type=click.Choice(DTYPES), help="Of the solve.  [default: what holds the unknowns in the data]"
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--option",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of optpy.solve, as in --option max_iterations=20; may be repeated.",
)
@click.option("--quiet", is_flag=True, help="Neither progress nor report.")
def solve(
    energy_file: Path,
    energy_name: str | None,
    data_file: Path,
    out_file: Path,
    method: str | None,
    dtype: str | None,
    device: Literal["auto", "cpu", "cuda"],
    assignments: Sequence[str],
    quiet: bool,
) -> None:
    """Minimise the energy in ENERGY_FILE; Ctrl-C keeps the best solution so far."""
    options = {"verbose": 0 if quiet else 2, **_parse_assignments(assignments)}
    if method is not None:
        if "method" in options:
            raise click.UsageError("the method is given twice: by --method and by --option")
        options["method"] = method
    if not out_file.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {out_file.absolute().parent}", param_hint="--out")
    with clear_errors():
        energy = load_energy(energy_file, energy_name)
        result = optpy.solve(energy, read_data(data_file), device=device, dtype=dtype, **options)
    write_arrays(out_file, result.x)
    if not quiet:
        report = result.report(table=options["verbose"] != 2)  # then the lines are there already
        click.echo(f"\n{report}\nsolution: {out_file}")


def read_data(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file by name; arrays without axes as numbers.

    Raises:
        click.ClickException: it is no .npz file, or holds Python objects instead of arrays of numbers.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(_NPY)) == _NPY:
                raise ValueError("it holds one array without a name, as np.save writes it; use np.savez")
        if not zipfile.is_zipfile(path):
            raise ValueError("such files are written by np.savez(file, X=..., A=...)")
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: _read_array(archive, name) for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise click.ClickException(f"{path} is no .npz file of arrays: {error}") from error
    return {name: array.item() if array.ndim == 0 else array for name, array in arrays.items()}


_NPY = b"\x93NUMPY"
"""How a file of one array begins."""


def _read_array(archive: Any, name: str) -> NDArray[Any]:
    try:
        array = archive[name]
    except ValueError:
        raise ValueError(f"what it holds as {name!r} are Python objects, not numbers, or no whole array") from None
    if not isinstance(array, np.ndarray):
        raise ValueError(f"its member {name!r} is no array")
    return array


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Writes an .npz file under exactly this name; a file that was there stays whole if the writing fails.

    Raises:
        click.ClickException: the folder or the disk does not take it.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Not np.savez: it takes no array by the name of one of its own arguments, such as "file".
        with zipfile.ZipFile(partial, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {error}") from error


_LITERALS = {"none": "None", "true": "True", "false": "False"}


def _parse_assignments(assignments: Sequence[str]) -> dict[str, Any]:
    """`name=value` each; a value that is no Python literal is a text, but for none, true and false in small letters."""
    options: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--option")
        if name in ("energy", "data", "device", "dtype"):
            raise click.BadParameter(f"{name} is no option of the solver", param_hint="--option")
        if name in options:
            raise click.BadParameter(f"{name} is given twice", param_hint="--option")
        try:
            options[name] = ast.literal_eval(_LITERALS.get(text, text))
        except (ValueError, SyntaxError):
            options[name] = text
    return options
