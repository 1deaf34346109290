"""An array module that is NumPy underneath, but as strict as CuPy: nothing turns into a NumPy array unasked.

Arrays are opaque to NumPy, functions take none of NumPy's, results without axes are arrays, too, and only what the real
CuPy has is there, with its arguments, where that is installed. What is copied to the host, element by element, is
counted.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

_REAL: Any = importlib.import_module("cupy") if importlib.util.find_spec("cupy") else None

OPERATORS = (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod"),
    *(
        "lshift",
        "rlshift",
        "rshift",
        "rrshift",
        "pow",
        "rpow",
        "and",
        "rand",
        "or",
        "ror",
        "xor",
        "rxor",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ),
    *("neg", "abs", "invert"),
)
"""No ``matmul``: it needs cuBLAS, which need not be installed beside CuPy."""

NEEDS_LIBRARIES = ("matmul", "dot", "einsum", "linalg.det", "linalg.inv", "linalg.solve", "linalg.qr", "linalg.svd")
NEEDS_MEMORY = ("bincount", "histogram")
"""For the counts of every block of their kernels: gigabytes, which CuPy's pool then keeps."""

UFUNC_OPTIONS = ("out", "dtype", "casting")


class StrictCupy:
    """The module.

    Args:
        device: the number of the current GPU.

    Attributes:
        downloaded: elements that were copied to the host.
        uploaded: elements that were copied to the device.
        check: called where the device works: arrays are made, written and copied to the host.
    """

    def __init__(self, device: int = 0) -> None:
        self.device = device
        self.downloaded = self.uploaded = 0
        self.check: Callable[[], None] = lambda: None
        self.cuda = SimpleNamespace(Device=lambda: SimpleNamespace(id=device))
        self.linalg = _Functions(self, np.linalg, "linalg.")
        self.ndarray = Array
        self.functions = _Functions(self, np, "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functions, name)

    def asarray(self, a: Any, dtype: Any = None, blocking: bool = False) -> Array:
        """An upload, if it is not there already."""
        if isinstance(a, Array):
            return a if dtype is None else a.astype(dtype, copy=False)
        if hasattr(a, "__cuda_array_interface__"):
            return Array(a.array, self, a.device)
        if isinstance(a, np.ndarray) and not blocking:
            raise AssertionError("the host may write to an array while it is uploaded")
        array = np.array(a, dtype)
        if array.dtype.char not in "?bhilqBHILQefdFD" or not array.dtype.isnative:
            raise ValueError(f"Unsupported dtype {array.dtype}")
        self.uploaded += array.size
        return Array(array, self)

    def from_dlpack(self, value: Any) -> Array:
        """The same memory, which must be this GPU's."""
        assert value.__dlpack_device__() == (2, self.device)
        return Array(np.from_dlpack(_OnHost(value)), self)

    def wrap(self, value: Any, device: int | None = None) -> Array:
        """An array on the device that shares memory with a NumPy array: for tests."""
        return Array(np.asarray(value), self, device)


class _OnHost:
    """What is said to lie on a GPU, as NumPy will take it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class _Functions:
    """NumPy's functions on the device's arrays."""

    def __init__(self, module: StrictCupy, numpy: Any, prefix: str) -> None:
        self._module, self._numpy, self._prefix = module, numpy, prefix

    def __getattr__(self, name: str) -> Any:
        real = getattr(_REAL, self._prefix.rstrip("."), _REAL) if self._prefix else _REAL
        if (_REAL is not None and not hasattr(real, name)) or self._prefix + name in NEEDS_LIBRARIES + NEEDS_MEMORY:
            raise AttributeError(f"cupy has no {self._prefix}{name} that can be used here")
        function = getattr(self._numpy, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if _REAL is not None:
                _check_arguments(getattr(real, name), arguments, options)
            result = function(*map(_unwrapped, arguments), **_unwrapped(options))
            return _wrapped(np.bool_(result) if type(result) is bool else result, self._module)

        return call


class Array:
    """An array on a GPU that does not exist."""

    __array_ufunc__ = None  # NumPy's scalars and arrays leave operators to this class
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: Any, module: StrictCupy, device: int | None = None) -> None:
        module.check()
        self.on_host, self._module = np.asarray(array), module
        self.device = SimpleNamespace(id=module.device if device is None else device)
        self.data = SimpleNamespace(ptr=self.on_host.ctypes.data)

    def __array__(self, *arguments: Any, **options: Any) -> NoReturn:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()` explicitly.")

    def __array_function__(self, *arguments: Any) -> NoReturn:
        raise TypeError("a function of NumPy was called with an array on the device")

    def __dlpack__(self, **options: Any) -> Any:
        return self.on_host.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device.id)

    def _download(self) -> Any:
        self._module.check()
        self._module.downloaded += self.on_host.size
        return self.on_host.copy()

    def get(self) -> Any:
        """A copy in main memory."""
        return self._download()

    def item(self) -> Any:
        return self._download().item()

    def tolist(self) -> Any:
        return self._download().tolist()

    def __bool__(self) -> bool:
        return bool(self._download())

    def __int__(self) -> int:
        return int(self.item())

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.item())

    def __format__(self, spec: str) -> str:
        return format(self._download()[()], spec)

    def __len__(self) -> int:
        return len(self.on_host)

    def __getitem__(self, key: Any) -> Array:
        return Array(self.on_host[_unwrapped(key)], self._module)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._module.check()
        self.on_host[_unwrapped(key)] = _unwrapped(value)

    def __getattr__(self, name: str) -> Any:
        # Also without CuPy to ask: the protocols by which NumPy would take the array for one of its own.
        if name.startswith("__") or (_REAL is not None and not hasattr(_REAL.ndarray, name)):
            raise AttributeError(f"arrays of cupy have no {name}")
        value = getattr(self.on_host, name)
        if not callable(value):
            return _wrapped(value, self._module)

        def call(*arguments: Any, **options: Any) -> Any:
            if _REAL is not None:
                _check_arguments(getattr(_REAL.ndarray, name), (self, *arguments), options)
            return _wrapped(value(*map(_unwrapped, arguments), **_unwrapped(options)), self._module)

        return call


def _check_arguments(real: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise a TypeError for arguments that NumPy's function takes, and CuPy's does not."""
    if isinstance(real, _REAL.ufunc):
        known = options.keys() <= set(UFUNC_OPTIONS)
    else:
        try:
            inspect.signature(real).bind(*arguments, **options)
        except ValueError:  # compiled: the first line of its text has them
            head = (real.__doc__ or "").partition("\n")[0]
            known = all(re.search(rf"\b{name}=", head) for name in options)
        else:
            known = True
    if not known:
        raise TypeError(f"{real.__name__} of cupy does not take all of {', '.join(options)}")


def _operator(name: str) -> Any:
    def operate(self: Array, *other: Any) -> Any:
        return _wrapped(getattr(self.on_host, name)(*map(_unwrapped, other)), self._module)

    return operate


for _name in OPERATORS:
    setattr(Array, f"__{_name}__", _operator(f"__{_name}__"))


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Array):
        return value.on_host
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, tuple | list):
        return type(value)(map(_unwrapped, value))
    return {k: _unwrapped(v) for k, v in value.items()} if isinstance(value, dict) else value


def _wrapped(value: Any, module: StrictCupy) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return Array(value, module)
    return tuple(_wrapped(v, module) for v in value) if type(value) is tuple and _holds_arrays(value) else value


def _holds_arrays(values: tuple[Any, ...]) -> bool:
    return any(isinstance(v, np.ndarray) for v in values)
