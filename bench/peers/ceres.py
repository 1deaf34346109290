"""Ceres on the same energy, where libceres-dev and a C++ compiler are: native/ceres_*.cc."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import ArrayLike

from bench.build import BuildError, build
from bench.case import CeresProgram, CeresRun, Data
from bench.curve import Curve, Point
from bench.peers import PeerMissingError

_INCLUDES = (Path("/usr/include"), Path("/usr/local/include"), Path("/opt/homebrew/include"))


def solve(program: CeresProgram, data: Data, budget: float, threads: int, chosen: CeresRun) -> Curve:
    """Levenberg-Marquardt with Ceres' defaults, but for what is chosen.

    Raises:
        PeerMissingError: it cannot be built here.
    """
    options = {
        "linear_solver": chosen.linear_solver,
        "eta": chosen.eta,
        "num_threads": threads,
        "max_num_iterations": chosen.max_iterations,
        "max_linear_solver_iterations": 5000,
        "max_solver_time_in_seconds": budget,
    }
    inner = {"cholesky": "sparse Cholesky", "cg": f"CG, eta {chosen.eta:g}"}[chosen.linear_solver]
    return run(program.source, [data[name] for name in program.arrays], options, f"Ceres, {inner}")


def run(source: str, arrays: Iterable[ArrayLike], options: Mapping[str, object], name: str) -> Curve:
    """Builds a program of native/, and runs it.

    Args:
        source: its file.
        arrays: what it reads.
        options: see ceres_program.h.
        name: of the curve.

    Raises:
        PeerMissingError: it cannot be built here.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_arrays(folder / "data.bin", arrays)
        command = [str(_build(source)), str(folder / "data.bin"), str(folder / "log.csv")]
        command += [f"{key}={value}" for key, value in options.items()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
        return read_log(folder / "log.csv", name)


_KINDS = {"f": "<f8", "i": "<i8", "u": "u1", "b": "u1"}


def write_arrays(path: Path, arrays: Iterable[ArrayLike]) -> None:
    """The format that stands at the top of ceres_program.h: floats as float64, indices as int64, masks as uint8."""
    with path.open("wb") as file:
        for array in map(np.asarray, arrays):
            numbers = np.ascontiguousarray(array, _KINDS[array.dtype.kind])
            file.write(np.array([numbers.itemsize, array.ndim, *array.shape], "<i8").tobytes())
            file.write(numbers.tobytes())


def read_log(path: Path, name: str) -> Curve:
    """The curve in a log; rejected steps repeat no cost that is lower than before, so they leave no point."""
    lines = path.read_text().splitlines()
    notes = dict(line[2:].split(": ", 1) for line in lines if line.startswith("#"))
    points: list[Point] = []
    linear_iterations = 0
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        linear_iterations += int(row["linear_iterations"])
        if not points or float(row["cost"]) < points[-1].cost:
            points.append(Point(float(row["seconds"]), float(row["cost"])))
    facts = {
        "build_seconds": float(notes["build_seconds"]),
        "total_seconds": float(notes["total_seconds"]),
        "linear_iterations": float(linear_iterations),
        "grown_mib": float(notes["grown_kib"]) / 1024,
    }
    return Curve(f"{name} ({notes['version']})", tuple(points), notes["message"], facts)


@cache
def _programs() -> TemporaryDirectory[str]:
    """Where the programs lie until this process ends."""
    return TemporaryDirectory()


@cache
def _build(source: str) -> Path:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    home = next((path for path in _INCLUDES if (path / "ceres" / "ceres.h").is_file()), None)
    if home is None or compiler is None:
        raise PeerMissingError("Ceres needs libceres-dev (Debian, Ubuntu) and a C++ compiler such as g++")
    eigen = next((p for path in _INCLUDES if (p := path / "eigen3").is_dir()), home)
    libraries = ("-lceres", "-lglog", "-lpthread")
    flags = ("-std=c++17", f"-I{home}", f"-I{eigen}", f"-L{home.parent / 'lib'}")
    try:
        return build((compiler,), source, Path(_programs().name) / Path(source).stem, *flags, *libraries)
    except BuildError as error:
        raise PeerMissingError(f"the Ceres program {source} does not build: {error}") from error
