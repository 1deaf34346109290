"""The programs that `python -m bench.gpu --all` runs: the sanitizer, and what happens to those that do not end."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from bench.gpu import __main__ as program
from bench.gpu import everything
from bench.gpu.cases import Screen
from bench.gpu.everything import Everything
from tests.support.emulator.emulated_device import EmulatedDevice


@pytest.fixture
def begun(tmp_path: Path) -> Everything:
    """A run without steps."""
    settings = program.parse(f"--all --quick --output {tmp_path}".split())
    return Everything(settings, program.new_run(settings, EmulatedDevice(), Screen()), {}, program.plot, 0.0)


def test_the_sanitizer_runs_short_measurements_in_memory_of_their_own(
    begun: Everything, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(Everything, "output_of", lambda self, command, seconds: commands.append(command))
    begun.sanitizer("memcheck", 60.0)
    (command,) = commands
    assert command[0] == "/bin/compute-sanitizer"
    settings = program.parse(command[command.index("bench.gpu") + 1 :])
    assert (settings.quick, settings.no_pool, settings.threads) == (True, True, 0)


@pytest.mark.parametrize(("at_the_end", "last"), [("print('off')", "on off"), ("time.sleep(60)", "on")])
def test_a_program_that_does_not_end_is_stopped(
    at_the_end: str, last: str, begun: Everything, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everything, "GRACE", 1.0)
    lines = ("import time", "try:", "  print('on', flush=True)", "  time.sleep(60)", "except KeyboardInterrupt:")
    endless = "\n".join([*lines, f"  {at_the_end}"])
    assert begun.output_of([sys.executable, "-c", endless], 3.0) == f"stopped after 3 s: {last}"
