"""Ceres on the same energy, where libceres-dev and a C++ compiler are: native/ceres_*.cc."""

from __future__ import annotations

import atexit
import csv
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from bench.build import BuildError, build
from bench.case import CeresProgram, CeresRun, Data
from bench.curve import Curve, Point
from bench.peers import PeerMissingError

_INCLUDES = (Path("/usr/include"), Path("/usr/local/include"), Path("/opt/homebrew/include"))


def solve(program: CeresProgram, data: Data, budget: float, threads: int, run: CeresRun) -> Curve:
    """Levenberg-Marquardt with Ceres' defaults, but for what `run` says.

    Raises:
        PeerMissingError: it cannot be built here.
    """
    executable = _built(program.source)
    with TemporaryDirectory() as name:
        folder = Path(name)
        program.write(folder / "data.bin", data)
        options = {
            "linear_solver": run.linear_solver,
            "eta": run.eta,
            "num_threads": threads,
            "max_num_iterations": run.max_iterations,
            "max_linear_solver_iterations": 5000,
            "max_solver_time_in_seconds": budget,
        }
        command = [str(executable), str(folder / "data.bin"), str(folder / "log.csv")]
        command += [f"{key}={value}" for key, value in options.items()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
        return read_log(folder / "log.csv", f"Ceres, {_inner(run)}")


def _inner(run: CeresRun) -> str:
    names = {"cholesky": "sparse Cholesky", "cg": f"CG, eta {run.eta:g}"}
    return names.get(run.linear_solver, run.linear_solver)


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
    }
    if "peak_kib" in notes:
        facts["memory_mib"] = float(notes["peak_kib"]) / 1024
    return Curve(f"{name} ({notes['version']})", tuple(points), notes["message"], facts)


@cache
def _built(source: str) -> Path:
    """The program of native/`source`, built once for this process."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    home = next((path for path in _INCLUDES if (path / "ceres" / "ceres.h").is_file()), None)
    if home is None or compiler is None:
        raise PeerMissingError("Ceres needs libceres-dev (Debian, Ubuntu) and a C++ compiler such as g++")
    eigen = next((p for path in _INCLUDES if (p := path / "eigen3").is_dir()), home)
    libraries = ("-lceres", "-lglog", "-lpthread")
    flags = ("-std=c++17", f"-I{home}", f"-I{eigen}", f"-L{home.parent / 'lib'}")
    folder = Path(mkdtemp(prefix="optpy-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return build((compiler,), source, folder / "ceres", *flags, *libraries)
    except BuildError as error:
        raise PeerMissingError(f"the Ceres program {source} does not build: {error}") from error
