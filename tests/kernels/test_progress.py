"""What is printed while a compiler runs: one line where it is asked for, and nothing else."""

from __future__ import annotations

import re
import threading
import uuid
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy import plan
from optpy.backend import Backend
from optpy.kernels.compiler import compile_c
from optpy.kernels.progress import telling, told
from optpy.linear.solver import LinearSolver


def test_only_who_asks_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with told("digging"):
        pass
    with telling(True):
        with telling(False), told("digging"):
            pass
        other = threading.Thread(target=lambda: told("digging").__enter__())  # of another solve
        other.start()
        other.join()
    assert capsys.readouterr().out == ""


def test_the_line_stands_there_before_the_work_and_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with telling(True), told("digging"):
        assert capsys.readouterr().out == "digging ..."
    assert re.fullmatch(r" \d+\.\d s\n", capsys.readouterr().out)
    with pytest.raises(KeyError), telling(True), told("digging"):
        raise KeyError
    assert re.fullmatch(r"digging \.\.\. failed after \d+\.\d s\n", capsys.readouterr().out)


def test_what_is_compiled_is_told_and_what_is_found_is_not(capfd: pytest.CaptureFixture[str]) -> None:
    source = f"int add(int a, int b) {{ return a + b; }} /* {uuid.uuid4()} */"
    compile_c(f"{source} /* silently */", name="add")
    assert capfd.readouterr().out == ""
    for expected in (r"compiling 3 kernels for the CPU \.\.\. \d+\.\d s\n", ""):
        with telling(True):
            compile_c(source, name="add", kernels=3)
        assert re.fullmatch(expected, capfd.readouterr().out)


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_solve_and_a_session_tell_it_as_verbose_asks(
    verbose: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def building(*args: Any, **options: Any) -> Backend:
        with told("building"):
            return build(*args, **options)

    build = plan.build_backend
    monkeypatch.setattr(plan, "build_backend", building)
    monkeypatch.setattr(LinearSolver, "prepare", lambda *_, **__: told("preparing").__enter__())
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
