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

from .. import meshes
from ..mesh_deformation import default_mesh
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
            scene.draw(work.vertices, work.handles, work.version)
            if frame.failed:
                scene.show_settings(work.settings)
            panel.show(frame)

        solving = SolvingThread(work, show)
        scene = MeshScene(server, mesh, solving.put)
        with solving:
            until_interrupted()


@click.command()
@click.option(
    "--mesh", type=click.Path(path_type=Path), help="Any file that trimesh reads.  [default: a pebble, or a penguin]"
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--host", default=LOCAL, show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
def main(mesh: Path | None, device: Device, host: str, port: int) -> None:
    """Drag a mesh in the browser: it follows as rigidly as possible."""
    try:
        found = default_mesh() if mesh is None else meshes.read_mesh(mesh)
        serve(found, device, host, port)
    except (op.OptpyError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
