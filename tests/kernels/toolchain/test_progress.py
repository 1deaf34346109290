"""What is printed while a compiler runs: one line where it is asked for, or where a terminal waits for long."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api import compiled
from optpy.api.backend import Backend
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.progress import reported, reporting
from optpy.linear.driver import LinearSolver
from tests.support.compilers import Counter, wait_for

pytestmark = pytest.mark.native


def test_only_who_asks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with reported("digging"):
        pass
    with reporting(True):
        with reporting(False), reported("digging"):
            pass
        other = threading.Thread(target=lambda: reported("digging").__enter__())  # of another solve
        other.start()
        other.join()
    assert capsys.readouterr().out == ""


def test_the_line_stands_there_before_the_work_and_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with reporting(True), reported("digging"):
        assert capsys.readouterr().out == "digging ..."
    assert re.fullmatch(r" \d+\.\d s\n", capsys.readouterr().out)
    with pytest.raises(KeyError), reporting(True), reported("digging"):
        raise KeyError
    assert re.fullmatch(r"digging \.\.\. failed after \d+\.\d s\n", capsys.readouterr().out)


def test_what_is_compiled_is_told_and_what_is_found_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    source = f"int add(int a, int b) {{ return a + b; }} /* {uuid.uuid4()} */"
    compile_c(f"{source} /* silently */", name="add")
    assert capfd.readouterr().out == ""
    for expected in (r"compiling 3 kernels for the CPU \.\.\. \d+\.\d s\n", ""):
        with reporting(True):
            compile_c(source, name="add", what="3 kernels")
        assert re.fullmatch(expected, capfd.readouterr().out)


class Terminal(io.StringIO):
    """A terminal's stream."""

    def isatty(self) -> bool:
        return True


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, patience: float) -> Terminal:
    """Not a fixture: pytest gives each test its stderr after the fixtures."""
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setattr("optpy.terminal.PATIENCE", patience)
    return made


def test_a_terminal_is_told_of_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch, patience=0.01)
    threads = threading.active_count()
    with reported("digging"):
        wait_for(lambda: terminal.getvalue() == "digging ...")
    assert re.fullmatch(r"digging \.\.\. \d+\.\d s\n", terminal.getvalue())
    assert threading.active_count() == threads


def test_a_terminal_is_told_of_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch, patience=0.01)
    with pytest.raises(AssertionError, match="in vain"), reported("digging"):
        wait_for(lambda: terminal.getvalue() == "never", seconds=0.5)
    assert re.fullmatch(r"digging \.\.\. failed after \d+\.\d s\n", terminal.getvalue())


def test_a_terminal_is_not_told_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch, patience=1000.0)
    threads = threading.active_count()
    with reported("digging"):
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_what_is_no_terminal_is_told_nothing(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    threads = threading.active_count()
    with reported("digging"):
        assert threading.active_count() == threads
    assert stream is None or stream.getvalue() == ""


def test_a_terminal_that_has_gone_stops_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> int:
        written.append(text)
        raise OSError(5, "Input/output error")

    written: list[str] = []
    terminal = at_a_terminal(monkeypatch, patience=0.0)
    monkeypatch.setattr(terminal, "write", refuse)
    with reported("digging"):
        wait_for(lambda: written == ["digging ..."])
    assert len(written) == 2


def test_who_asks_is_told_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_a_terminal(monkeypatch, patience=0.0)
    with reporting(True), reported("digging"):
        pass
    assert terminal.getvalue() == ""
    assert capsys.readouterr().out.startswith("digging ...")


COMPILING = """
from optpy.kernels.toolchain.compiler import compile_c
compile_c("int add(int a, int b) { return a + b; }", name="add")
"""
COMPILING_FOR_THE_GPU = """
from optpy import terminal
from optpy.kernels.toolchain.nvrtc import compile_cuda
terminal.PATIENCE = 0.0
compile_cuda('extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }', "sm_90")
"""


def read_until(terminal: int, text: str, printed: str = "") -> str:
    """What a terminal shows, up to a text, or to the end of its program."""
    while text not in printed:
        try:
            more = os.read(terminal, 1000)
        except OSError:  # Linux: nobody has it open any more
            more = b""
        if not more:
            break
        printed += more.decode()
    return printed


@contextmanager
def on_a_terminal(program: str) -> Iterator[int]:
    """A Python program that runs with a terminal as its stderr."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stderr=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        yield ours
        assert process.communicate()[0] == ""
    assert process.returncode == 0
    os.close(ours)


def test_a_slow_compiler_on_a_terminal(counter: Counter, root: Path) -> None:
    counter.hang.touch()
    with on_a_terminal(COMPILING) as terminal:
        assert read_until(terminal, "...") == "compiling 1 kernel for the CPU ..."
        counter.hang.unlink()
        assert re.fullmatch(r" \d+\.\d s\r\n", read_until(terminal, "never"))


def test_a_slow_compiler_and_no_terminal(counter: Counter, root: Path) -> None:
    script = Path(os.environ["OPTPY_CC"])
    script.write_text(script.read_text().replace("while", "sleep 3\nwhile"))
    done = subprocess.run([sys.executable, "-c", COMPILING], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr, counter.compilations()) == ("", "", 1)


def test_another_process_that_compiles_is_waited_for(counter: Counter, root: Path) -> None:
    counter.hang.touch()
    with subprocess.Popen([sys.executable, "-c", COMPILING]) as first:
        wait_for(lambda: counter.compilations() == 1)
        with on_a_terminal(COMPILING) as terminal:
            assert read_until(terminal, "...") == "waiting for another process that compiles ..."
            counter.hang.unlink()
            assert re.fullmatch(r" \d+\.\d s\r\n", read_until(terminal, "never"))
    assert first.returncode == 0
    assert counter.compilations() == 1


@pytest.mark.nvrtc
def test_nvrtc_on_a_terminal(root: Path) -> None:
    pytest.importorskip("cupy", reason="CuPy is not installed")
    with on_a_terminal(COMPILING_FOR_THE_GPU) as terminal:
        assert re.fullmatch(r"compiling kernels for the GPU, sm_90 \.\.\. \d+\.\d s\r\n", read_until(terminal, "never"))


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_solve_and_a_session_tell_it_as_verbose_asks(
    verbose: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def building(*args: Any, **options: Any) -> Backend:
        with reported("building"):
            return build(*args, **options)

    build = compiled.build_backend
    monkeypatch.setattr(compiled, "build_backend", building)
    monkeypatch.setattr(LinearSolver, "prepare", lambda *_, **__: reported("preparing").__enter__())
    N = op.dims("N")
    X = op.Unknown("X", (N,))
    energy = op.Energy(fit=X[op.indices(N)] - 0.8125)
    data = dict(X=np.zeros(3))
    op.solve(energy, data, device="cpu", verbose=verbose)
    printed = capfd.readouterr().out
    assert bool(re.match(r"building \.\.\. \d+\.\d s\npreparing \.\.\.", printed)) is bool(verbose)
    assert bool(printed) is bool(verbose)
    op.compile(energy, device="cpu").start(data, verbose=verbose)
    assert ("preparing" in capfd.readouterr().out) is bool(verbose)
