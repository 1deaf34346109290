"""The product with J^T J by optpy beside cuSPARSE, JAX and PyTorch: each is checked before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from bench.case import Data
from bench.gpu.bench import Bench
from bench.gpu.kernels import Budget
from bench.peers import PeerMissingError, cusparse, jax_products, torch_products
from bench.peers.products import PeerProduct
from optpy.ir import Group

TOLERANCE = {"float32": 1e-4, "float64": 1e-9}
"""Of a peer's product, in norm, relative to that of optpy's."""

JACOBIAN_AT_MOST = 2**20
"""Pixels or vertices up to which J is computed on the CPU; beyond, seconds would become minutes."""
FORMED_ON_CPU_AT_MOST = 2**18
"""And J^T J multiplied there."""


@final
@dataclass(frozen=True, slots=True)
class Beside:
    """One peer, or why it was not timed."""

    case: str
    size: int
    dtype: str
    peer: str
    optpy_seconds: float
    seconds: float | None
    error: float | None
    """Of the peer's product against optpy's."""
    nbytes: int
    """Of the matrices that it stores."""
    note: str = ""

    @property
    def times_faster(self) -> float | None:
        """optpy."""
        return None if self.seconds is None else self.seconds / self.optpy_seconds


def measure(bench: Bench, size: int, budget: Budget) -> Iterator[Beside]:
    """All peers on the data of a bench: J^T J p, without damping."""
    p = bench.random_vector()
    reference = {name: bench.device.to_host(a) for name, a in bench.apply_jtj(p).items()}
    bench.run(Group.PRODUCT, 3)
    repeat = max(1, min(budget.repeat, round(budget.seconds / bench.run(Group.PRODUCT, 3))))
    ours = min(bench.run(Group.PRODUCT, repeat) for _ in range(budget.runs))
    for name, make in _peers(bench, p):
        yield _timed(bench, size, name, make, reference, ours, budget)
        free_memory(bench.device.xp)


def _peers(bench: Bench, p: dict[str, Any]) -> Iterator[tuple[str, Callable[[], PeerProduct]]]:
    stacked = bench.stacked(p)
    elements = bench.case.elements(bench.data)[0]
    if elements <= JACOBIAN_AT_MOST:
        J = cusparse.jacobian(bench)
        yield "cuSPARSE", lambda: cusparse.two_products(bench, stacked, J)
        if elements <= FORMED_ON_CPU_AT_MOST:
            yield "cuSPARSE", lambda: cusparse.formed(bench, stacked, cusparse.normal_matrix(bench, J), "from J")
    if elements > FORMED_ON_CPU_AT_MOST:
        yield "cuSPARSE", lambda: cusparse.formed(bench, stacked, cusparse.from_products(bench), "from products")
    if bench.dtype == "float32":
        case, data = bench.case.name, _of_float32(bench.data)
        yield jax_products.NAME, lambda: jax_products.product(case, data, p)
        yield torch_products.NAME, lambda: torch_products.product(case, data, p)


def _timed(
    bench: Bench,
    size: int,
    name: str,
    make: Callable[[], PeerProduct],
    reference: dict[str, Any],
    ours: float,
    budget: Budget,
) -> Beside:
    def row(
        peer: str, seconds: float | None = None, error: float | None = None, nbytes: int = 0, note: str = ""
    ) -> Beside:
        return Beside(bench.case.name, size, bench.dtype, peer, ours, seconds, error, nbytes, note)

    try:
        peer = make()
        result = peer.run()
        peer.wait(result)
        error = relative_error(peer.to_host(result), reference)
        if not error <= TOLERANCE[bench.dtype]:
            note = f"computes something else: relative error {error:.1e}"
            return row(peer.name, error=error, nbytes=peer.nbytes, note=note)
        seconds = _seconds(bench, peer, budget)
    except PeerMissingError as missing:
        return row(name, note=str(missing))
    except Exception as failed:  # memory above all; one peer must not take the others along
        note = f"{type(failed).__name__}: {' '.join(str(failed).split())[:300]}"
        return row(name, note=note)
    return row(peer.name, seconds, error, peer.nbytes)


def _seconds(bench: Bench, peer: PeerProduct, budget: Budget) -> float:
    """Of one product: the fastest of some runs, each of several products."""

    def run(repeat: int) -> float:
        def queue() -> None:
            result = None
            for _ in range(repeat):
                result = peer.run()
            peer.wait(result)

        return bench.timed(queue) / repeat

    run(2)
    repeat = max(1, min(budget.repeat, round(budget.seconds / run(3))))
    return min(run(repeat) for _ in range(budget.runs))


def relative_error(found: dict[str, Any], reference: dict[str, Any]) -> float:
    """The norm of the difference over that of the reference, over all unknowns together."""
    difference = square = 0.0
    for name, expected in reference.items():
        wide = np.asarray(expected, np.float64).ravel()
        difference += float(np.sum((np.asarray(found[name], np.float64).ravel() - wide) ** 2))
        square += float(np.sum(wide**2))
    return (difference / square) ** 0.5 if square else float(difference > 0)


def _of_float32(data: Data) -> Data:
    return {
        name: a.astype(np.float32) if hasattr(a, "dtype") and a.dtype == np.float64 else a for name, a in data.items()
    }


def free_memory(xp: Any) -> None:
    """What CuPy's pool keeps is of no use to the libraries that come next."""
    if xp is not np:
        xp.get_default_memory_pool().free_all_blocks()


def as_record(row: Beside) -> dict[str, Any]:
    """For JSON."""
    return {**asdict(row), "times_faster": row.times_faster}
