"""What the problems' programs on meshes have in common: the mesh that comes in, the mesh and picture that go out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
from trimesh import Trimesh

from . import mesh_picture, meshes, pictures
from .command import SolveSettings, command, result_option
from .mesh_picture import Colours


@dataclass(frozen=True, slots=True)
class MeshSettings(SolveSettings):
    """The choices of one run on a mesh."""

    mesh: Path | None
    """The file of the mesh to start from; None: the problem's own."""
    result: Path
    """Where the solved mesh goes."""


S = TypeVar("S", bound=MeshSettings)


def mesh_command(
    settings_class: type[S], own: Sequence[click.Parameter] = (), *, output: str, method: str, iterations: int
) -> Callable[[Callable[[S], None]], click.Command]:
    """Makes a problem's `main(settings)` a program on a mesh: see `problems.command.command`."""
    path = click.Path(dir_okay=False, path_type=Path)
    own = [
        click.Option(["--mesh"], type=path, help="Any mesh file that trimesh reads.  [default: the problem's own]"),
        result_option("The solved mesh.", _check_result),
        *own,
    ]
    return command(settings_class, own, output=output, method=method, iterations=iterations)


def _check_result(result: Path) -> None:
    if result.suffix.lower() not in meshes.FORMATS:
        raise click.BadParameter(f"{result.name!r} has none of the endings {', '.join(meshes.FORMATS)}")


def leave(
    settings: MeshSettings, before: Trimesh, panels: Sequence[Trimesh], colours: Sequence[Colours] | None = None
) -> None:
    """Writes the solved mesh, the last of `panels`, and a picture of `before` and all of them.

    Args:
        colours: of the faces of `before`, then of each panel.
    """
    meshes.write_mesh(settings.result, panels[-1])
    pictures.save_side_by_side(settings.output, mesh_picture.draw([before, *panels], colours))
    if not settings.quiet:
        click.echo(f"solved mesh: {settings.result.resolve()}")
