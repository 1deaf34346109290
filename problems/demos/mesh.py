"""A mesh in the browser that follows its handles as rigidly as possible: `optpy demo mesh`.

Click the mesh to make a handle, drag the handle's arrows; shift-click to hold a vertex where it is; click a handle to
let it go. With a radius, or by a rectangle (alt or shift held), a whole region is a handle, which turns too. With ctrl
(cmd) held, drag the mesh itself.
"""

from __future__ import annotations

from pathlib import Path

import click
from trimesh import Trimesh

import optpy as op
from optpy.cli.output_file import OutputFile

from .. import meshes
from ..mesh_deformation import default_mesh
from .mesh_recording import record
from .mesh_scene import MeshScene
from .mesh_work import Device, MeshWork
from .page import LOCAL, Panel, served, until_interrupted
from .solving import Frame, SolvingThread


def serve(mesh: Trimesh, device: Device, host: str, port: int) -> None:
    """Show a mesh until Ctrl-C."""
    work = MeshWork(mesh, device)
    with served("optpy: as rigid as possible", host, port) as server:
        panel = Panel(server, work.device_text)

        def show(frame: Frame) -> None:
            if frame.failed:
                scene.show_settings(work.settings)
            panel.show(frame)

        def draw() -> None:
            scene.draw(work.vertices, work.handles, work.version)

        solving = SolvingThread(work, show, draw)
        scene = MeshScene(server, mesh, solving.put)
        with solving:
            until_interrupted()


def find_script(path: Path) -> Path:
    """A script's file; where there is none, the one of that name that comes with the demos, which is said."""
    shipped = Path(__file__).with_name(path.name)
    if path.exists() or path.name != str(path) or path.suffix != ".json" or not shipped.is_file():
        return path
    click.echo(f"there is no {path} in this folder: the one of the demos is taken, {shipped}")
    return shipped


def _check_film(context: click.Context, parameter: click.Parameter, output: Path | None) -> Path | None:
    if output is not None and output.suffix.lower() != ".gif":
        raise click.BadParameter(f"{output.name!r} does not end in .gif")
    if output is not None and context.params.get("script") is None:
        raise click.UsageError("--output is the film of a script: name one by --script, such as drag.json")
    return output


@click.command()
@click.option(
    "--mesh", type=click.Path(path_type=Path), help="Any file that trimesh reads.  [default: a pebble, or a penguin]"
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--host", default=LOCAL, show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    is_eager=True,
    help="Record a film without a browser, as a file says, whose format is described in demos/script.py: such as "
    "drag.json, which comes with the demos.",
)
@click.option(
    "--output", type=OutputFile(), callback=_check_film, help="The film.  [default: the script's name with .gif]"
)
@click.option("--size", type=click.IntRange(16, 2000), default=360, show_default=True, help="Pixels of the film.")
def main(
    mesh: Path | None, device: Device, host: str, port: int, script: Path | None, output: Path | None, size: int
) -> None:
    """Drag a mesh in the browser: it follows as rigidly as possible."""
    try:
        found = default_mesh() if mesh is None else meshes.read_mesh(mesh)
        if script is None:
            serve(found, device, host, port)
            return
        film = output or Path(script.name).with_suffix(".gif")
        frames = record(MeshWork(found, device), find_script(script), film, size)
        click.echo(f"{frames} frames: {film.resolve()}")
    except (op.OptpyError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
