"""How long it takes from a fresh process to a runnable solver, with a cold and with a warm cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from bench.case import Case

FIRST_SOLVE_SIZE = 256
WARM_RUNS = 3


@final
@dataclass(frozen=True, slots=True)
class Startup:
    """A fresh process, in seconds. `first_solve` is one nonlinear iteration at 256 x 256, binding included."""

    case: str
    stage: str
    import_optpy: float
    build_energy: float
    compile: float
    first_solve: float
    cache_hit: bool


def measure(case: Case, dtype: str) -> list[Startup]:
    """In a cache of its own: a trivial energy, then the case twice.

    The trivial energy comes first: the first use on a machine tries the compiler, and compiles what no energy changes.
    Its time is the first record.
    """
    with TemporaryDirectory(prefix="optpy-bench-") as folder:
        first = _run("trivial", "first use of the compiler", dtype, folder)
        cold = _run(case.name, "cold", dtype, folder)
        warm = min((_run(case.name, "warm", dtype, folder) for _ in range(WARM_RUNS)), key=lambda s: s.compile)
    if cold.cache_hit or not warm.cache_hit:
        raise RuntimeError(f"the cache is not in OPTPY_CACHE_DIR: cold hit {cold.cache_hit}, warm hit {warm.cache_hit}")
    return [first, cold, warm]


def _run(name: str, stage: str, dtype: str, folder: str) -> Startup:
    command = [sys.executable, "-m", "bench.startup", name, str(FIRST_SOLVE_SIZE), dtype]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OPTPY_CACHE_DIR": folder},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
    return Startup(case=name, stage=stage, **json.loads(done.stdout))
