"""What the problems' programs have in common: options, the solve with its progress, the report at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

import optpy as op
from optpy.cli.output_file import OutputFile

from . import pictures


@dataclass(frozen=True, slots=True)
class SolveSettings:
    """The choices that every program has."""

    device: Literal["auto", "cpu", "cuda"]
    dtype: str
    method: str
    iterations: int
    """At most so many nonlinear iterations."""
    output: Path
    """Where the picture of before and after goes."""
    quiet: bool
    """Neither progress nor report."""


@dataclass(frozen=True, slots=True)
class Settings(SolveSettings):
    """The choices of one run on a picture."""

    size: int | None
    """Pixels along the picture's longer side; None: as the picture is."""


S = TypeVar("S", bound=SolveSettings)


def problem_command(
    *, output: str, method: str, iterations: int
) -> Callable[[Callable[[Settings], None]], click.Command]:
    """Makes a problem's `main(settings)` a program with the usual options; the arguments are defaults."""
    return command(Settings, [size_option()], output=output, method=method, iterations=iterations)


def size_option() -> click.Option:
    """The option --size of `Settings`."""
    help = "Pixels along the longer side.  [default: the picture's]"
    return click.Option(["--size"], type=click.IntRange(min=1), help=help)


def command(
    settings_class: type[S],
    own: Sequence[click.Parameter],
    *,
    output: str,
    method: str,
    iterations: int,
    dtype: str = "float32",
) -> Callable[[Callable[[S], None]], click.Command]:
    """Makes a `main(settings)` a program whose options are `own` ones, then those that every program has.

    Its exit status is 0 if all files are written, also where the solve has not converged: a line on stderr says so.

    Args:
        settings_class: has a field for each option.
        own: options that only some programs have.
        output, method, iterations, dtype: defaults.
    """

    def decorate(main: Callable[[S], None]) -> click.Command:
        def run(**options: Any) -> None:
            settings = settings_class(**options)
            try:
                main(settings)
            except (op.OptpyError, OSError) as error:
                raise click.ClickException(str(error)) from error
            if not settings.quiet:
                click.echo(f"before and after: {settings.output.resolve()}")

        options = [*own, *_options(Path(output), method, iterations, dtype)]
        return click.Command(main.__module__, callback=run, params=options, help=main.__doc__)

    return decorate


def _options(output: Path, method: str, iterations: int, dtype: str) -> list[click.Parameter]:
    return [
        choice("--device", ["auto", "cpu", "cuda"], "auto", "Where it is solved; auto: on a GPU if one is there."),
        choice("--dtype", ["float32", "float64"], dtype, "Of the solve; sums are always in float64."),
        choice("--method", ["gn", "lm"], method, "Gauss-Newton or Levenberg-Marquardt."),
        click.Option(
            ["--iterations"],
            type=click.IntRange(min=1),
            default=iterations,
            show_default=True,
            help="Nonlinear iterations at most.",
        ),
        click.Option(
            ["--output"],
            type=OutputFile(),
            default=output,
            show_default=True,
            is_eager=True,  # before what lies beside it
            callback=_check_output,
            help="The picture of before and after.",
        ),
        click.Option(["--quiet"], is_flag=True, help="Neither progress nor report."),
    ]


def choice(name: str, choices: list[str], default: str, help: str) -> click.Option:
    """An option that takes one of a few words."""
    return click.Option([name], type=click.Choice(choices), default=default, show_default=True, help=help)


def _check_output(context: click.Context, parameter: click.Parameter, output: Path) -> Path:
    if not pictures.is_picture_name(output):
        raise click.BadParameter(f"{output.name!r} has no ending of a picture file, such as .png")
    return output


def result_option(what: str, check: Callable[[Path], None] = lambda file: None) -> click.Option:
    """The option --result: a file beside the picture, with its name and .ply, unless another is given.

    Args:
        what: of the help: what is in the file.
        check: raises `click.BadParameter` for a name that it does not take.
    """

    def callback(context: click.Context, parameter: click.Parameter, file: Path | None) -> Path:
        if file is None:
            beside = context.params["output"].with_suffix(".ply")
            file = OutputFile().convert(beside, parameter, context)
        check(file)
        return file

    help = f"{what}  [default: --output's name with .ply]"
    return click.Option(["--result"], type=OutputFile(), callback=callback, help=help)


def solve(energy: op.Energy, data: dict[str, Any], settings: SolveSettings, **options: Any) -> op.SolveResult:
    """Solves with the settings of the command line; prints each iteration, then the report, unless quiet.

    Where the solve has not converged, a line on stderr says so in any case.

    Args:
        options: further ones of `op.solve`.
    """
    result = op.solve(
        energy,
        data,
        device=settings.device,
        dtype=settings.dtype,
        method=settings.method,
        max_iterations=settings.iterations,
        verbose=0 if settings.quiet else 2,
        **options,
    )
    if not settings.quiet:
        click.echo(f"\n{result.report(table=False)}")
    if not result.success:
        click.echo(f"{result.status.name}: {result.message} What was reached is drawn.", err=True)
    return result
