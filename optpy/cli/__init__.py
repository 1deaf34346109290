"""The command line: `optpy solve`, `optpy inspect`, `optpy doctor`, `optpy example`, `optpy demo`."""

from __future__ import annotations

import click

import optpy
from optpy.cli.doctor import doctor
from optpy.cli.examples import demo, example
from optpy.cli.inspect import inspect
from optpy.cli.solve import solve


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(optpy.__version__, prog_name="optpy")
def main() -> None:
    """Nonlinear least squares over images, meshes and graphs, from an energy of ten lines.

    An ENERGY_FILE is a Python file with an optpy.Energy at its top level.
    """


main.add_command(solve)
main.add_command(inspect)
main.add_command(doctor)
main.add_command(example)
main.add_command(demo)
