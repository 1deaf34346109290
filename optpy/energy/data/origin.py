"""NumPy, PyTorch, CuPy and other DLPack arrays, SciPy's rotations: in as arrays of one module, out as they came.

The module ``xp`` says where solving happens: NumPy, in main memory; or CuPy, which has NumPy's names, on the current
GPU. Whole arrays move between the two only where what the user gave, or wants back, lies on the other side.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from optpy.errors import DataError

_ON_GPU = (2, 13)
"""DLPack's numbers of CUDA memory and of managed memory."""


@final
@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an array: its library, and the device that it lay on."""

    library: str
    device: Any = None

    def give(self, array: Any) -> Any:
        """An array of this origin with the values of a NumPy or CuPy array (which it may share memory with).

        Nothing is copied where the array lies on this device already.
        """
        if self.library == "numpy":
            return to_host(array)
        if self is ROTATION:
            return _rotation_type().from_quat(to_host(array))
        if not isinstance(array, np.ndarray):
            if self.library == "cupy":
                return array
            if self.device.type == "cuda":
                return importlib.import_module(self.library).from_dlpack(array)
        module = importlib.import_module(self.library)
        if self.library == "torch":
            return module.from_numpy(to_host(array)).to(self.device)
        with module.cuda.Device(self.device):
            return module.asarray(array)


NUMPY = Origin("numpy")
ROTATION = Origin("scipy")
"""``scipy.spatial.transform.Rotation``, of one rotation or of a grid of them; its numbers are quaternions."""


def is_rotation(value: Any) -> bool:
    """Whether it is SciPy's ``Rotation``; SciPy is not imported for that."""
    return _ROTATIONS in sys.modules and isinstance(value, _rotation_type())


def _rotation_type() -> Any:
    return importlib.import_module(_ROTATIONS).Rotation


_ROTATIONS = "scipy.spatial.transform"


def to_array(name: str, value: Any, xp: Any) -> tuple[Any, Origin]:
    """The values as an array of ``xp``, without a copy where that is possible.

    On a GPU, arrays that lie there stay there: CuPy's, PyTorch's, and others of DLPack or the CUDA array interface.
    What lies in main memory is uploaded once, unless its dtype is none that can be bound: that is returned as it is,
    for ``casting`` to refuse.

    Raises:
        DataError: it is no array of numbers, or lies on another GPU.
    """
    if isinstance(value, np.ma.MaskedArray):
        cure = "fill it, a.filled(0), and bind its mask as an array of its own"
        raise DataError(f"{name!r} is a masked array, and its mask would be lost: {cure}")
    try:
        return _in_main_memory(value) if xp is np else _on_gpu(name, value, xp)
    except DataError:
        raise
    except (ValueError, TypeError, BufferError, RuntimeError) as error:
        raise DataError(f"{name!r} is no array of numbers that can be read here: {error}") from None


def to_host(array: Any) -> Any:
    """A NumPy array of the values of a NumPy or CuPy array; the array itself if it is one."""
    return array if isinstance(array, np.ndarray | np.generic) else array.get()


def first_true(mask: Any) -> tuple[int, ...]:
    """The index of the first true element in C order, of an array that has one."""
    return tuple(int(n) for n in np.unravel_index(int(mask.argmax()), mask.shape))


# -- into main memory ------------------------------------------------------------------------------------------------


def _in_main_memory(value: Any) -> tuple[NDArray[Any], Origin]:
    if isinstance(value, np.ndarray):
        return np.asarray(value), NUMPY  # memory maps and other subclasses: their methods may be their own
    if is_rotation(value):
        return np.asarray(value.as_quat()), ROTATION
    library = _library(value)
    if library == "torch":
        return value.detach().cpu().numpy(), Origin("torch", value.device)
    if library == "cupy":
        return value.get(), Origin("cupy", value.device.id)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value), NUMPY


def _library(value: Any) -> str:
    """PyTorch or CuPy, if it made the value's type or one that this derives from."""
    packages = (t.__module__.partition(".")[0] for t in type(value).__mro__)
    return next((p for p in packages if p in ("torch", "cupy") and p in sys.modules), "")


# -- onto a GPU ------------------------------------------------------------------------------------------------------


def _on_gpu(name: str, value: Any, xp: Any) -> tuple[Any, Origin]:
    gpu = int(xp.cuda.Device().id)
    if isinstance(value, xp.ndarray):
        _check_gpu(name, value.device.id, gpu, f"with cupy.cuda.Device({gpu}): a = cupy.array(a)")
        return xp.asarray(value), Origin("cupy", gpu)
    if _library(value) == "torch":
        return _tensor_on_gpu(name, value, gpu, xp)
    if hasattr(value, "__dlpack_device__"):
        place, number = value.__dlpack_device__()
        if place in _ON_GPU:
            _check_gpu(name, number, gpu, "move it there")
            return xp.from_dlpack(value), Origin("cupy", gpu)
    elif hasattr(value, "__cuda_array_interface__"):
        array = xp.asarray(value)
        _check_gpu(name, array.device.id, gpu, "move it there")
        return array, Origin("cupy", gpu)
    host, origin = _in_main_memory(value)
    return _uploaded(host, xp), origin


def _tensor_on_gpu(name: str, value: Any, gpu: int, xp: Any) -> tuple[Any, Origin]:
    origin = Origin("torch", value.device)
    if value.device.type != "cuda":
        return _uploaded(value.detach().cpu().numpy(), xp), origin
    _check_gpu(name, value.device.index, gpu, f'a.to("cuda:{gpu}")')
    # A view that says "negated" or "conjugated" has no memory of those values; DLPack refuses it, and gradients.
    return xp.from_dlpack(value.detach().resolve_conj().resolve_neg()), origin


def _check_gpu(name: str, number: int, gpu: int, cure: str) -> None:
    # Not copied from there: results would have to go back, and whoever spreads data over GPUs wants to know.
    if number != gpu:
        raise DataError(
            f"{name!r} lies on GPU {number}, but the solver works on GPU {gpu}: {cure}, or solve on GPU {number}"
        )


def _uploaded(array: NDArray[Any], xp: Any) -> Any:
    if array.dtype.kind not in "biuf":
        return array
    native = array.dtype.newbyteorder("=")
    if native.kind == "f" and native.itemsize > 8:  # long double: GPUs have none
        native = np.dtype(np.float64)
    with np.errstate(over="ignore"):
        array = array.astype(native, copy=False)
    return xp.asarray(array, blocking=True)  # when this returns, the user may write to the original
