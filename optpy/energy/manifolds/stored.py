"""Elements of manifolds as data: checks, and conversion from and to matrices. Grids of any shape come first."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import ir
from ...errors import DataError
from .kind import Floats

TOLERANCE = 1e-3
"""How far a norm may be from 1, or an entry of R^T R from the identity's: numbers typed with four digits are meant."""


def unit(field: ir.Field, array: Floats, precision: float, what: str, channels: slice = slice(None)) -> Floats:
    """The array with these channels of unit length; elements that are so to within the precision stay as they are.

    Raises:
        DataError: an element's length is not 1.
    """
    vectors = array[..., channels]
    norm = np.linalg.norm(vectors, axis=-1)
    off = np.abs(norm - 1)
    if (off > TOLERANCE).any():
        at = tuple(int(n) for n in np.argwhere(off > TOLERANCE)[0])
        raise DataError(
            f"{_element(field, at)}: {what} {_text(vectors[at])} has length {norm[at]:.6g}, not 1; divide by it: "
            "q / np.linalg.norm(q, axis=-1, keepdims=True)",
            field.location,
        )
    if (off <= precision).all():
        return array
    result = array.copy()
    result[..., channels] = np.where((off > precision)[..., None], vectors / norm[..., None], vectors)
    return result


def check_rotations(field: ir.Field, matrices: Floats) -> None:
    """Raise a DataError unless every matrix is orthogonal with determinant 1."""
    n = matrices.shape[-1]
    off = np.abs(np.swapaxes(matrices, -1, -2) @ matrices - np.eye(n)).max(axis=(-1, -2))
    if (off > TOLERANCE).any():
        at = tuple(int(k) for k in np.argwhere(off > TOLERANCE)[0])
        raise DataError(
            f"{_element(field, at)} is no rotation: R^T R differs from the identity by {off[at]:.3g}", field.location
        )
    mirrored = np.linalg.det(matrices) < 0
    if mirrored.any():
        at = tuple(int(k) for k in np.argwhere(mirrored)[0])
        raise DataError(f"{_element(field, at)} is a reflection, no rotation: its determinant is -1", field.location)


def check_last_rows(field: ir.Field, matrices: Floats) -> None:
    """Raise a DataError unless every matrix ends with the row 0, ..., 0, 1."""
    last = matrices[..., -1, :]
    off = np.abs(last - np.eye(last.shape[-1])[-1]).max(axis=-1) > TOLERANCE
    if off.any():
        at = tuple(int(k) for k in np.argwhere(off)[0])
        raise DataError(
            f"{_element(field, at)} is no pose: the last row of its matrix is {_text(last[at])}, not 0, ..., 0, 1",
            field.location,
        )


def quaternions_of(matrices: Floats) -> Floats:
    """(..., 4) unit quaternions (x, y, z, w) of rotation matrices (..., 3, 3).

    Of the four multiples of q that the entries give, the one with the largest factor: no cancellation.

    Reference: S. W. Shepperd, "Quaternion from rotation matrix", Journal of Guidance and Control, 1978.
    """
    m = np.moveaxis(matrices, (-2, -1), (0, 1))
    symmetric = {(a, b): m[a, b] + m[b, a] for a in range(3) for b in range(3)}
    turn = [m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]
    trace = m[0, 0] + m[1, 1] + m[2, 2]
    rows = [[1 - trace + 2 * m[a, a] if a == b else symmetric[a, b] for b in range(3)] + [turn[a]] for a in range(3)]
    rows.append([*turn, 1 + trace])
    multiples = np.moveaxis(np.array(rows), (0, 1), (-2, -1))
    largest = np.argmax(np.diagonal(multiples, axis1=-2, axis2=-1), axis=-1)
    q = np.take_along_axis(multiples, largest[..., None, None], axis=-2)[..., 0, :]
    result: Floats = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return result


def matrices_of(quaternions: NDArray[Any]) -> NDArray[Any]:
    """(..., 3, 3) rotation matrices of unit quaternions (x, y, z, w): (..., 4)."""
    x, y, z, w = np.moveaxis(quaternions, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def plane_rotations_of(matrices: Floats) -> Floats:
    """(..., 2) cosine and sine of rotation matrices (..., 2, 2)."""
    cs = np.stack([matrices[..., 0, 0] + matrices[..., 1, 1], matrices[..., 1, 0] - matrices[..., 0, 1]], axis=-1)
    result: Floats = cs / np.linalg.norm(cs, axis=-1, keepdims=True)
    return result


def plane_matrices_of(cs: NDArray[Any]) -> NDArray[Any]:
    """(..., 2, 2) rotation matrices of cosine and sine (..., 2)."""
    c, s = cs[..., 0], cs[..., 1]
    return np.moveaxis(np.array([[c, -s], [s, c]]), (0, 1), (-2, -1))


def homogeneous(rotations: NDArray[Any], translations: NDArray[Any]) -> NDArray[Any]:
    """(..., n + 1, n + 1) from rotation matrices (..., n, n) and translations (..., n)."""
    n = rotations.shape[-1]
    result = np.zeros((*rotations.shape[:-2], n + 1, n + 1), rotations.dtype)
    result[..., :n, :n] = rotations
    result[..., :n, n] = translations
    result[..., n, n] = 1
    return result


def _element(field: ir.Field, at: tuple[int, ...]) -> str:
    return f"{field.name}[{', '.join(map(str, at)) or '()'}]"


def _text(vector: Floats) -> str:
    return f"({', '.join(f'{x:.6g}' for x in vector)})"
