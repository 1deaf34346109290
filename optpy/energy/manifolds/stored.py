"""Elements of manifolds as data: checks, and conversion from and to matrices. Grids of any shape come first.

The arrays are those of a module ``xp``: NumPy, or CuPy, whose libraries for matrices need not be installed; so
products and determinants of these small ones are written out.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from optpy import ir
from optpy.energy.data.origin import first_true
from optpy.energy.language.manifold import Floats
from optpy.errors import DataError

TOLERANCE = 1e-3
"""The tolerance of a norm against 1, and of R^T R against the identity: numbers typed with four digits pass."""


def unit(field: ir.Field, array: Floats, precision: float, xp: Any, what: str, channels: slice = slice(None)) -> Floats:
    """The array with these channels of unit length; elements that are so to within the precision stay as they are.

    Raises:
        DataError: an element's length is not 1.
    """
    vectors = array[..., channels]
    norm = xp.linalg.norm(vectors, axis=-1)
    off = abs(norm - 1)
    if (off > TOLERANCE).any():
        at = first_true(off > TOLERANCE)
        raise DataError(
            f"{_element(field, at)}: {what} {_text(vectors[at])} has length {float(norm[at]):.6g}, not 1; divide by "
            "it: q / np.linalg.norm(q, axis=-1, keepdims=True)",
            field.location,
        )
    if (off <= precision).all():
        return array
    result = array.copy()
    result[..., channels] = xp.where((off > precision)[..., None], vectors / norm[..., None], vectors)
    return result


def check_rotations(field: ir.Field, matrices: Floats, xp: Any) -> None:
    """Raise a DataError unless every matrix, (2, 2) or (3, 3), is orthogonal with determinant 1."""
    off = _from_identity(matrices, xp)
    if (off > TOLERANCE).any():
        at = first_true(off > TOLERANCE)
        raise DataError(
            f"{_element(field, at)} is no rotation: R^T R differs from the identity by {float(off[at]):.3g}",
            field.location,
        )
    mirrored = _determinant(matrices) < 0
    if mirrored.any():
        at = first_true(mirrored)
        raise DataError(f"{_element(field, at)} is a reflection, no rotation: its determinant is -1", field.location)


def _from_identity(matrices: Floats, xp: Any) -> Floats:
    """The largest entry of ``|R^T R - 1|`` of each matrix."""
    n = matrices.shape[-1]
    found: Floats = xp.zeros(matrices.shape[:-2])
    for a in range(n):
        for b in range(a, n):
            product = (matrices[..., a] * matrices[..., b]).sum(axis=-1)
            found = xp.maximum(found, abs(product - (a == b)))
    return found


def _determinant(matrices: Floats) -> Floats:
    m = {(a, b): matrices[..., a, b] for a in range(matrices.shape[-1]) for b in range(matrices.shape[-1])}
    if matrices.shape[-1] == 2:
        return m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    turns = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
    return sum((m[0, a] * (m[1, b] * m[2, c] - m[1, c] * m[2, b]) for a, b, c in turns), start=0 * m[0, 0])


def check_last_rows(field: ir.Field, matrices: Floats, xp: Any) -> None:
    """Raise a DataError unless every matrix ends with the row 0, ..., 0, 1."""
    last = matrices[..., -1, :]
    off = abs(last - xp.eye(last.shape[-1])[-1]).max(axis=-1) > TOLERANCE
    if off.any():
        at = first_true(off)
        raise DataError(
            f"{_element(field, at)} is no pose: the last row of its matrix is {_text(last[at])}, not 0, ..., 0, 1",
            field.location,
        )


def quaternions_of(matrices: Floats, xp: Any) -> Floats:
    """(..., 4) unit quaternions (x, y, z, w) of rotation matrices (..., 3, 3).

    Of the four multiples of q that the entries give, the one with the largest factor: no cancellation.

    Reference: S. W. Shepperd, "Quaternion from rotation matrix", Journal of Guidance and Control, 1978.
    """
    m = xp.moveaxis(matrices, (-2, -1), (0, 1))
    symmetric = {(a, b): m[a, b] + m[b, a] for a in range(3) for b in range(3)}
    turn = [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    rows = [[1 - trace + 2 * m[a, a] if a == b else symmetric[a, b] for b in range(3)] + [turn[a]] for a in range(3)]
    rows.append([*turn, 1 + trace])
    multiples = _entries(rows, xp)
    largest = xp.argmax(xp.diagonal(multiples, axis1=-2, axis2=-1), axis=-1)
    q = xp.take_along_axis(multiples, largest[..., None, None], axis=-2)[..., 0, :]
    result: Floats = q / xp.linalg.norm(q, axis=-1, keepdims=True)
    return result


def matrices_of(quaternions: NDArray[Any], xp: Any) -> NDArray[Any]:
    """(..., 3, 3) rotation matrices of unit quaternions (x, y, z, w): (..., 4)."""
    x, y, z, w = (quaternions[..., k] for k in range(4))
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return _entries(rows, xp)


def plane_rotations_of(matrices: Floats, xp: Any) -> Floats:
    """(..., 2) cosine and sine of rotation matrices (..., 2, 2)."""
    cs = xp.stack([matrices[..., 0, 0] + matrices[..., 1, 1], matrices[..., 1, 0] - matrices[..., 0, 1]], axis=-1)
    result: Floats = cs / xp.linalg.norm(cs, axis=-1, keepdims=True)
    return result


def plane_matrices_of(cs: NDArray[Any], xp: Any) -> NDArray[Any]:
    """(..., 2, 2) rotation matrices of cosine and sine (..., 2)."""
    c, s = cs[..., 0], cs[..., 1]
    return _entries([[c, -s], [s, c]], xp)


def homogeneous(rotations: NDArray[Any], translations: NDArray[Any], xp: Any) -> NDArray[Any]:
    """(..., n + 1, n + 1) from rotation matrices (..., n, n) and translations (..., n)."""
    n = rotations.shape[-1]
    result: NDArray[Any] = xp.zeros((*rotations.shape[:-2], n + 1, n + 1), rotations.dtype)
    result[..., :n, :n] = rotations
    result[..., :n, n] = translations
    result[..., n, n] = 1
    return result


def _entries(rows: list[list[Any]], xp: Any) -> NDArray[Any]:
    """(..., rows, columns) from the entries, one array each."""
    result: NDArray[Any] = xp.stack([xp.stack(row, axis=-1) for row in rows], axis=-2)
    return result


def _element(field: ir.Field, at: tuple[int, ...]) -> str:
    return f"{field.name}[{', '.join(map(str, at)) or '()'}]"


def _text(vector: Floats) -> str:
    return f"({', '.join(f'{x:.6g}' for x in vector.tolist())})"
