"""The page of a demo in the browser: its server, and the panel that all demos have."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import click
import numpy as np
import viser

from .solving import Frame

LOCAL: Final = "127.0.0.1"
"""Nobody on another machine reaches it."""

_SHOWN_EVERY: Final = 0.1
"""Seconds between two texts of the panel: more often nobody can read."""

_CURVE: Final = 200
"""Frames of the curve of costs."""


@contextmanager
def served(title: str, host: str, port: int) -> Iterator[viser.ViserServer]:
    """A server, while the block runs; says where its page is.

    Args:
        title: of the page.
        host: address to listen on.
        port: likewise; where it is taken the next free one is, and that is said.

    Raises:
        click.ClickException: this machine does not have the address.
    """
    _check_host(host)
    named = f"[{host}]" if ":" in host else host  # of IPv6, as addresses of pages have it
    server = viser.ViserServer(host=host, port=port, label=title, verbose=False)
    try:
        found = server.get_port()
        if found != port:
            click.echo(f"port {port} is taken: {found} is used")
        click.echo(f"{title}: http://{'localhost' if host == LOCAL else named}:{found} (Ctrl-C ends it)")
        if host != LOCAL:
            click.echo(f"anyone who reaches {named}:{found} can see this page and drive it")
        server.scene.configure_default_lights(cast_shadow=False)
        yield server
    finally:
        server.stop()


def _check_host(host: str) -> None:
    """The server itself would wait for ever."""
    if not host:
        raise click.ClickException(f"--host is empty: give an address of this machine, or leave it out for {LOCAL}")
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as tried:
            tried.bind((host, 0))
    except OSError as error:
        cure = f"give an address of this machine as --host, or leave it out for {LOCAL}"
        raise click.ClickException(f"{host!r} cannot be listened on ({error}): {cure}") from error


def until_interrupted() -> None:
    """Sleep until Ctrl-C."""
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        click.echo("\nended")


@final
class Panel:
    """The numbers of the solver: seconds of a frame, rates, costs, the device, what went wrong.

    Args:
        server: whose page it stands on.
        device: on which is solved.
        clock: seconds.
    """

    def __init__(self, server: viser.ViserServer, device: str, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._shown = -np.inf
        self._costs: deque[float] = deque(maxlen=_CURVE)
        with server.gui.add_folder("Solver"):
            self._status: Any = server.gui.add_text("status", "", multiline=True, disabled=True)
            self._frame: Any = server.gui.add_text("frame", "", disabled=True)
            self._rate: Any = server.gui.add_text("rate", "", disabled=True)
            server.gui.add_text("device", device, disabled=True)
            self._curve = server.gui.add_uplot(
                (np.zeros(1), np.zeros(1)),
                ({"label": "frame"}, {"label": "cost", "stroke": "#2a7", "width": 2}),
                title="cost",
                aspect=2.0,
                scales={"x": {"time": False}},
            )

    def show(self, frame: Frame) -> None:
        """Show a frame's numbers: at once where it has failed or the solve has ended, else some times a second."""
        if np.isfinite(frame.cost):
            self._costs.append(frame.cost)
        now = self._clock()
        if not frame.message and now - self._shown < _SHOWN_EVERY:
            return
        self._shown = now
        self._status.value = f"failed: {frame.message}" if frame.failed else frame.message or "solving"
        latency = "" if frame.latency is None else f", {1e3 * frame.latency:.0f} ms after its input"
        self._frame.value = f"{1e3 * frame.seconds:.1f} ms{latency}"
        self._rate.value = (
            f"{frame.frames_per_second:.0f} frames, {frame.linear_iterations_per_second:.0f} linear iterations a second"
        )
        costs = np.array(self._costs or [0.0])
        self._curve.data = (np.arange(len(costs), dtype=np.float64), costs)
