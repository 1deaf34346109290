"""The option by which a command takes a schedule from a text file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from optpy import Schedule
from optpy.cli.energy_file import clear_errors


def schedule_file_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --schedule-file, whose value is the schedule in the file, or None."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    text = "A text as `optpy inspect --schedule` prints it, or some of its lines."
    return click.option("--schedule-file", "given", type=file, callback=_read, help=text)(command)


def _read(context: click.Context, parameter: click.Parameter, path: Path | None) -> Schedule | None:
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} cannot be read as a text: {error}") from error
    with clear_errors():
        return Schedule.parse(text)
