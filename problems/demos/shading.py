"""A depth scan in the browser, refined by the shading of a photograph while its light changes: `optpy demo shading`.

Sliders are the weights of the energy, and the nine coefficients of the light by which it explains the photograph. It is
solved in small sizes first; the surface before and after is a choice.
"""

from __future__ import annotations

import click

import optpy as op

from ..shape_from_shading import Scan, default_scan
from .mesh_work import Device
from .page import LOCAL, Panel, served, until_interrupted
from .shading_scene import ShadingScene
from .shading_work import ShadingWork
from .solving import Frame, SolvingThread


def serve(scan: Scan, device: Device, host: str, port: int) -> None:
    """Show a scan until Ctrl-C."""
    work = ShadingWork(scan, device)
    with served("optpy: shape from shading", host, port) as server:
        panel = Panel(server, work.device_text)

        def show(frame: Frame) -> None:
            if frame.failed:
                scene.show_settings(work.settings)
            panel.show(frame)

        def draw() -> None:
            scene.draw(work.depth, work.level)

        solving = SolvingThread(work, show, draw)
        scene = ShadingScene(server, work, solving.put)
        with solving:
            until_interrupted()


@click.command()
@click.option(
    "--size",
    type=click.IntRange(24, 4096),
    help="Pixels along each side of a made scan.  [default: the scan of the data folder, or 256]",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--host", default=LOCAL, show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
def main(size: int | None, device: Device, host: str, port: int) -> None:
    """Refine a depth scan by the shading of a photograph, live, in the browser."""
    try:
        serve(default_scan(size), device, host, port)
    except (op.OptpyError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
