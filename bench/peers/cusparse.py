"""J^T J p by cuSPARSE through CuPy: with J^T J formed, as CSR, or as two products, J^T (J p).

J comes from `energy.jacobian`, on the CPU. Where that takes too long, J^T J is put together from optpy's own products
on the device: columns whose entries cannot meet are taken at once, as for a sparse matrix by finite differences
(A. Curtis, M. Powell, J. Reid: On the Estimation of Sparse Jacobian Matrices, 1974). On a grid where residuals join
direct neighbours the columns of every third pixel in both directions are such a set.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from bench.gpu.bench import Bench
from bench.peers.products import PeerProduct

COLOURED = {"image_warping": False, "poisson": False, "laplacian": False, "mesh_deformation": True}
"""Cases whose J^T J joins grid neighbours only, diagonal ones included; and whether the grid goes round (the torus)."""

_PERIOD = 3
_AROUND = tuple((i, j) for i in (-1, 0, 1) for j in (-1, 0, 1))


def formed(bench: Bench, p: Any, matrix: Any, how: str) -> PeerProduct:
    """One product with J^T J.

    Args:
        p: stacked.
        matrix: CSR of the device's module.
        how: where it comes from.
    """
    multiply = _multiply(bench.device.xp, matrix)
    return PeerProduct(
        f"cuSPARSE, J^T J formed ({how})",
        lambda: multiply(p),
        lambda _: bench.device.mark().wait(),
        lambda result: _to_host(bench, result),
        _nbytes(matrix),
    )


def two_products(bench: Bench, p: Any, J: Any) -> PeerProduct:
    """J p, then the product with J^T, which is stored as CSR, too: that is faster than with J transposed."""
    xp = bench.device.xp
    first, transposed = _on_device(xp, J), _on_device(xp, sparse.csr_matrix(J.T))
    forward, back = _multiply(xp, first), _multiply(xp, transposed)
    return PeerProduct(
        "cuSPARSE, J^T (J p)",
        lambda: back(forward(p)),
        lambda _: bench.device.mark().wait(),
        lambda result: _to_host(bench, result),
        _nbytes(first) + _nbytes(transposed),
    )


def jacobian(bench: Bench) -> Any:
    """SciPy's CSR matrix of the energy, from NumPy's arrays; of the solve's dtype."""
    data = {name: bench.device.to_host(a) if hasattr(a, "get") else a for name, a in bench.data.items()}
    J = sparse.csr_matrix(bench.case.energy.jacobian(data)).astype(bench.dtype)
    J.sum_duplicates()
    return J


def normal_matrix(bench: Bench, J: Any) -> Any:
    """J^T J of the device's module, multiplied on the CPU in float64."""
    wide = J.astype(np.float64)
    matrix = sparse.csr_matrix(wide.T @ wide).astype(J.dtype)
    matrix.sum_duplicates()
    return _on_device(bench.device.xp, matrix)


def from_products(bench: Bench) -> Any:
    """J^T J of the device's module, put together from optpy's products with 0 and 1.

    Raises:
        ValueError: the case, or its size, is not one for which this is exact.
    """
    around = COLOURED.get(bench.case.name)
    shapes = list(bench.shapes.values())
    height, width = _grid(bench)
    if around is None or (around and (height % _PERIOD or width % _PERIOD)):
        raise ValueError(
            f"{bench.case.name} at {height} x {width}: its J^T J cannot be had from products with every third column"
        )
    xp, slots, positions = bench.device.xp, len(_AROUND), height * width
    channels = sum(shape[-1] for shape in shapes)
    # [pixel, row's channel, column's unknown and channel, neighbour that the column stands at]
    values = xp.zeros((positions, channels, channels, slots), bench.dtype)
    free = bench.free()
    for column, p, where in _probes(bench, height, width):
        image = bench.apply_jtj({name: kept * p[name] for name, kept in free.items()})
        rows = xp.concatenate([image[name].reshape(positions, -1) for name in bench.shapes], axis=1)
        of_column = values[:, :, column]
        of_column[xp.arange(positions), :, where] = rows
    return _as_csr(bench, values, height, width)


def _probes(bench: Bench, height: int, width: int) -> Iterator[tuple[int, dict[str, Any], Any]]:
    """Vectors of 0 and 1: the column's channel, the vector, and for each pixel which neighbour has the 1."""
    xp = bench.device.xp
    rows, columns = xp.arange(height)[:, None], xp.arange(width)[None, :]
    for i in range(_PERIOD):
        for j in range(_PERIOD):
            chosen = ((rows % _PERIOD == i) & (columns % _PERIOD == j)).ravel()
            # The step from each pixel to the chosen one next to it: -1, 0 or 1 in each direction.
            down, right = ((n - at + 1) % _PERIOD - 1 for n, at in ((i, rows), (j, columns)))
            where = ((down + 1) * _PERIOD + right + 1).ravel()
            column = 0
            for name, shape in bench.shapes.items():
                for channel in range(shape[-1]):
                    p = {n: xp.zeros(s, bench.dtype) for n, s in bench.shapes.items()}
                    p[name].reshape(-1, shape[-1])[:, channel] = chosen
                    yield column, p, where
                    column += 1


def _as_csr(bench: Bench, values: Any, height: int, width: int) -> Any:
    """Rows and columns in the order of `Bench.stacked`."""
    xp = bench.device.xp
    rows, columns = xp.divmod(xp.arange(height * width), width)
    neighbours = [(rows + i) % height * width + (columns + j) % width for i, j in _AROUND]
    at = xp.stack(neighbours, axis=-1).astype(np.int32)
    widths = [shape[-1] for shape in bench.shapes.values()]
    firsts = np.concatenate([[0], np.cumsum(widths)])
    data, indices, counts = [], [], []
    for u, own in enumerate(widths):
        block = values[:, firsts[u] : firsts[u + 1]]
        cut, ends = [], []
        for v, other in enumerate(widths):
            # By neighbour, then by channel: in the order of the columns, but where the grid goes round.
            part = xp.swapaxes(block[:, :, firsts[v] : firsts[v + 1]], 2, 3)
            place = height * width * int(firsts[v]) + at[:, :, None] * other + xp.arange(other, dtype=np.int32)
            cut.append(part.reshape(-1, own, len(_AROUND) * other))
            ends.append(xp.broadcast_to(place.reshape(-1, 1, len(_AROUND) * other), cut[-1].shape))
        joined = xp.concatenate(cut, axis=2).reshape(height * width * own, -1)
        kept = joined != 0
        data.append(joined[kept])
        indices.append(xp.concatenate(ends, axis=2).reshape(joined.shape)[kept])
        counts.append(kept.sum(axis=1))
        del cut, ends, joined, kept
    indptr = xp.concatenate([xp.zeros(1, np.int64), xp.cumsum(xp.concatenate(counts))])
    if int(indptr[-1]) >= 2**31:
        raise ValueError(f"J^T J has {int(indptr[-1])} entries, more than cuSPARSE's 32-bit indices count")
    matrix = sparse_module(xp).csr_matrix(
        (xp.concatenate(data), xp.concatenate(indices).astype(np.int32), indptr.astype(np.int32)),
        shape=(len(indptr) - 1,) * 2,
    )
    matrix.sort_indices()
    return matrix


def _grid(bench: Bench) -> tuple[int, int]:
    shape = next(iter(bench.shapes.values()))
    if len(shape) == 3:
        return shape[0], shape[1]
    side = math.isqrt(shape[0])
    return side, side


def sparse_module(xp: Any) -> Any:
    """The module of sparse matrices whose arrays are those of `xp`: SciPy's or CuPy's."""
    if xp is np:
        return sparse
    return importlib.import_module("cupyx.scipy.sparse")


def _on_device(xp: Any, matrix: Any) -> Any:
    return matrix if xp is np else sparse_module(xp).csr_matrix(matrix)


def _multiply(xp: Any, matrix: Any) -> Callable[[Any], Any]:
    """The product with a vector by cuSPARSE; by SciPy where the device is emulated."""
    if xp is np:
        return lambda p: matrix @ p
    cusparse = importlib.import_module("cupyx.cusparse")
    result = xp.zeros(matrix.shape[0], matrix.dtype)
    matrix.sum_duplicates()  # cuSPARSE wants that said
    return lambda p: cusparse.spmv(matrix, p, result)


def _to_host(bench: Bench, result: Any) -> dict[str, Any]:
    return bench.split(bench.device.to_host(result))


def _nbytes(matrix: Any) -> int:
    return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)
