"""NumPy, PyTorch and CuPy arrays, and others of the DLPack protocol: in as NumPy, results out as they came."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """Which library an array came from, and where it lay."""

    library: str
    device: Any = None

    def give(self, array: NDArray[Any]) -> Any:
        """An array of this kind with the values of a NumPy array (which it may share memory with)."""
        if self.library == "numpy":
            return array
        module = importlib.import_module(self.library)
        if self.library == "torch":
            return module.from_numpy(array).to(self.device)
        with module.cuda.Device(self.device):
            return module.asarray(array)


NUMPY = Kind("numpy")


def to_numpy(name: str, value: Any) -> tuple[NDArray[Any], Kind]:
    """The values as a NumPy array in main memory, without a copy where that is possible.

    Raises:
        DataError: it is no array of numbers.
    """
    if isinstance(value, np.ma.MaskedArray):
        cure = "fill it, a.filled(0), and bind its mask as an array of its own"
        raise DataError(f"{name!r} is a masked array, and its mask would be lost: {cure}")
    if isinstance(value, np.ndarray):
        return np.asarray(value), NUMPY  # memory maps and other subclasses: their methods may be their own
    try:
        return _converted(value)
    except (ValueError, TypeError, BufferError, RuntimeError) as error:
        raise DataError(f"{name!r} is no array of numbers that can be read here: {error}") from None


def _converted(value: Any) -> tuple[NDArray[Any], Kind]:
    library = type(value).__module__.partition(".")[0]
    if library == "torch" and library in sys.modules:
        return value.detach().cpu().numpy(), Kind("torch", value.device)
    if library == "cupy" and library in sys.modules:
        return value.get(), Kind("cupy", value.device.id)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value), NUMPY
