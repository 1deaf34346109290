"""`python -m bench.sums`: energies whose residuals read hundreds of elements, by `op.sum`.

- blendshape_fitting: weights of 200 shapes and a pose to 20,000 vertices, beside SciPy's `least_squares` with the exact
  sparse Jacobian and LSMR, both from the same start to their own end. Wanted: compiled in 3 s whatever the number of
  shapes, and solved 10 times faster than by SciPy.
- deconvolution: a product with J^T J for windows of 17 x 17. Wanted: compiled in 5 s, 10 Mpixel/s.

Compiling is that of an energy in an empty cache, after the trivial one has brought what all energies share.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy import sparse
from scipy.spatial.transform import Rotation

import optpy as op
from bench import machine, report, trivial
from bench.cotangent_smoothing import acute_torus
from problems import blendshape_fitting, deconvolution
from problems.blendshape_fitting import Fitting

Vector = NDArray[np.float64]

SECONDS = 1.0
"""For which a product is repeated."""


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One figure, and what is wanted of it."""

    problem: str
    what: str
    value: float
    unit: str
    wanted: str = ""


# -- blendshapes -------------------------------------------------------------------------------------------------------


def blendshapes(side: int, shapes: int, dtype: str) -> Iterator[Row]:
    """On a torus of `side` x `side` vertices."""
    name = "blendshape_fitting"
    yield Row(name, "compile", compiling(blendshape_fitting.energy, dtype), "s", "3")
    task = blendshape_fitting.fitting(acute_torus(side), shapes)
    solver = op.compile(blendshape_fitting.energy, "cpu", dtype)
    begin = time.perf_counter()
    ours = solver.solve(task.data)
    seconds = time.perf_counter() - begin
    yield Row(name, f"{side * side} vertices, {shapes} shapes: optpy, {dtype}", seconds, "s")
    begin = time.perf_counter()
    theirs = by_scipy(task)
    scipy_seconds = time.perf_counter() - begin
    yield Row(name, "SciPy least_squares (lsmr), its Jacobian by NumPy", scipy_seconds, "s")
    yield Row(name, "times faster", scipy_seconds / seconds, "", "10")
    yield Row(name, "cost, of SciPy's", ours.cost / float(theirs.cost), "", "1")


def by_scipy(task: Fitting) -> Any:
    """SciPy's result; its unknowns are a rotation vector, a translation and the weights."""
    from scipy.optimize import least_squares

    mean = np.asarray(task.mesh.vertices)
    count = task.shapes.shape[1]

    def residuals(x: Vector) -> Vector:
        fit = Rotation.from_rotvec(x[:3]).apply(shaped(x)) + x[3:6] - task.target
        return np.concatenate([fit.ravel(), task.w_prior * x[6:]])

    def shaped(x: Vector) -> Vector:
        return np.asarray(mean + np.tensordot(task.shapes, x[6:], axes=(1, 0)))

    def jacobian(x: Vector) -> Any:
        R = Rotation.from_rotvec(x[:3])
        turning = -crossing(R.apply(shaped(x))) @ left_jacobian(x[:3])
        moving = np.tile(np.eye(3), (len(mean), 1))
        weighing = (R.as_matrix() @ task.shapes.transpose(0, 2, 1)).reshape(-1, count)
        fit = sparse.csr_matrix(np.concatenate([turning.reshape(-1, 3), moving, weighing], axis=1))
        prior = sparse.csr_matrix((count, 6 + count)) + sparse.eye(count, 6 + count, k=6) * task.w_prior
        return sparse.vstack([fit, prior]).tocsr()

    return least_squares(residuals, np.zeros(6 + count), jac=jacobian, tr_solver="lsmr")


def crossing(a: Vector) -> Vector:
    """The matrices of b -> a x b, (..., 3, 3)."""
    return -np.cross(a[..., None, :], np.eye(3))


def left_jacobian(r: Vector) -> Vector:
    """Of the exponential of a rotation vector: exp(r + d) = exp(J d) exp(r) for small d."""
    angle, K = float(np.linalg.norm(r)), crossing(r)
    if angle < 1e-4:
        return np.asarray(np.eye(3) + K / 2 + K @ K / 6)
    return np.asarray(np.eye(3) + (1 - np.cos(angle)) / angle**2 * K + (angle - np.sin(angle)) / angle**3 * (K @ K))


# -- windows -----------------------------------------------------------------------------------------------------------


def windows(side: int, dtype: str) -> Iterator[Row]:
    """On a photograph of `side` x `side` pixels."""
    name = "deconvolution"
    yield Row(name, "compile", compiling(deconvolution.energy, dtype), "s", "5")
    session = op.compile(deconvolution.energy, "cpu", dtype).start(
        deconvolution.default_photograph(side).data, method="gn"
    )
    once = session.benchmark("applyJTJ", 1)
    seconds = session.benchmark("applyJTJ", max(1, round(SECONDS / once)))
    yield Row(name, f"{side} x {side}, {dtype}: applyJTJ", 1e-6 * side * side / seconds, "Mpixel/s", "10")


# -- the program -------------------------------------------------------------------------------------------------------


def compiling(energy: op.Energy, dtype: str) -> float:
    """Seconds."""
    with _empty_cache():
        op.compile(trivial.energy, "cpu", dtype)
        begin = time.perf_counter()
        op.compile(energy, "cpu", dtype)
        return time.perf_counter() - begin


@contextmanager
def _empty_cache() -> Iterator[None]:
    before = os.environ.get("OPTPY_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OPTPY_CACHE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["OPTPY_CACHE_DIR"]
            if before is not None:
                os.environ["OPTPY_CACHE_DIR"] = before


def table(rows: list[Row]) -> Table:
    """One line for each figure."""
    result = Table(title="sums over whole dims")
    for column in ("problem", "", "measured", "wanted"):
        result.add_column(column, justify="right" if column in ("measured", "wanted") else "left")
    for r in rows:
        result.add_row(r.problem, r.what, f"{r.value:.3g} {r.unit}", r.wanted)
    return result


def main(arguments: list[str] | None = None) -> None:
    """Prints the table; leaves JSON in bench/results."""
    parser = argparse.ArgumentParser(prog="python -m bench.sums", description=__doc__)
    parser.add_argument("--vertices", type=int, default=142, metavar="N", help="N * N vertices")
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--pixels", type=int, default=512, metavar="N", help="N * N pixels")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results"))
    settings = parser.parse_args(arguments)
    rows = [
        *blendshapes(settings.vertices, settings.shapes, settings.dtype),
        *windows(settings.pixels, settings.dtype),
    ]
    report.show(table(rows))
    settings.output.mkdir(parents=True, exist_ok=True)
    path = settings.output / "sums.json"
    path.write_text(json.dumps({"machine": machine.describe(), "rows": [asdict(r) for r in rows]}, indent=1))
    print(path)


if __name__ == "__main__":
    main()
