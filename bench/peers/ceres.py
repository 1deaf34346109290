"""Ceres on the same problems, where libceres-dev and a C++ compiler are: the programs native/ceres_*.cc."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from bench.build import BuildError, build
from bench.case import Data
from bench.curve import Curve, Point
from bench.peers import PeerMissingError

LinearSolver = Literal["cholesky", "cg"]

_INCLUDES = (Path("/usr/include"), Path("/usr/local/include"), Path("/opt/homebrew/include"))


def solve(
    data: Data, budget: float, linear_solver: LinearSolver, threads: int, eta: float = 0.1, max_iterations: int = 50
) -> Curve:
    """Levenberg-Marquardt with Ceres' defaults, on image warping.

    Args:
        data: of the image warping energy.
        linear_solver: "cholesky", or "cg" with the block-Jacobi preconditioner.
        eta: inner tolerance of "cg".

    Raises:
        PeerMissingError: it cannot be built here.
    """
    inner = "sparse Cholesky" if linear_solver == "cholesky" else f"CG, eta {eta:g}"
    options = {
        "linear_solver": linear_solver,
        "eta": eta,
        "num_threads": threads,
        "max_num_iterations": max_iterations,
        "max_linear_solver_iterations": 5000,
        "max_solver_time_in_seconds": budget,
    }
    return run("ceres_image_warping.cc", lambda path: write_data(path, data), options, f"Ceres, {inner}")


def run(source: str, write: Callable[[Path], None], options: Mapping[str, object], name: str) -> Curve:
    """Builds a program of native/, and runs it.

    Args:
        source: its file.
        write: writes the data that it reads to a path.
        options: see ceres_program.h.
        name: of the curve.

    Raises:
        PeerMissingError: it cannot be built here.
    """
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder / "data.bin")
        command = [str(_build(source)), str(folder / "data.bin"), str(folder / "log.csv")]
        command += [f"{key}={value}" for key, value in options.items()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
        return read_log(folder / "log.csv", name)


def write_data(path: Path, data: Data) -> None:
    """Writes what the program reads; the format stands at its top."""
    height, width = data["Mask"].shape
    with path.open("wb") as file:
        file.write(np.array([height, width], "<i8").tobytes())
        file.write(np.array([data["w_fit"], data["w_reg"]], "<f8").tobytes())
        for name in ("Offset", "Angle", "UrShape", "Constraints"):
            file.write(np.ascontiguousarray(data[name], "<f8").tobytes())
        file.write(np.ascontiguousarray(data["Mask"], np.uint8).tobytes())


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
        raise PeerMissingError(f"the Ceres program does not build: {error}") from error
