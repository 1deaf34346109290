"""Whether a GPU can be used here: the device, or the reason why not, with its cure.

Asking imports CuPy, but only where it is installed together with an NVIDIA driver.
"""

from __future__ import annotations

import ctypes
import functools
import os
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from optpy.errors import CompileError, OptionError
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.toolchain.nvrtc import (
    choose_architecture,
    import_cupy,
    nvrtc_version,
    one_line,
    supported_architectures,
)

if TYPE_CHECKING:
    from optpy.kernels.runtime.cuda.cupy_device import CupyDevice

MINIMUM_CAPABILITY = (7, 0)
"""``__grid_constant__``, ``__nanosleep`` and threads that make progress one by one came with it."""

_DRIVER = "libcuda.so.1"
# Packages that all install the module cupy, and overwrite one another's files.
_CUPY_PACKAGES = ("cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "cupy-rocm-7-0", "cupy-rocm-7-1")


class _UnavailableError(Exception):
    """CUDA cannot be used; the text is the reason and its cure."""


def find_device() -> Device:
    """The GPU that is current in this thread, as CuPy has it; the same object at every call.

    Raises:
        OptionError: CUDA cannot run here; the text has the reason and its cure.
    """
    device, reason = cuda_or_reason()
    if device is None:
        raise OptionError(f"device='cuda': {reason.removeprefix('no GPU: ')}")
    return device


def cuda_or_reason() -> tuple[Device | None, str]:
    """The GPU that is current in this thread, or None; and a sentence that says what was found.

    The sentence is as "the GPU NVIDIA H200 (sm_90) is there", or "no GPU: CuPy is not installed; ...".
    """
    reason = why_unavailable()
    if reason is None:
        try:
            found = device_or_reason(import_cupy().cuda.runtime.getDevice())
        except _UnavailableError as error:
            return None, f"no GPU: {error}"
        if not isinstance(found, str):
            return found, f"the GPU {found.name} ({found.architecture}) is there"
        reason = found
    return None, f"no GPU: {reason}"


def driver_version() -> int | None:
    """The latest version of CUDA that the NVIDIA driver knows, 12040 for 12.4; None where no driver is installed."""
    try:
        library = ctypes.CDLL(_DRIVER)
    except OSError:
        return None
    found = ctypes.c_int()
    # The library of the same name that CUDA's compiler is linked with is no driver, and answers with an error.
    try:
        return found.value if library.cuDriverGetVersion(ctypes.byref(found)) == 0 else None
    except AttributeError:  # nor is one without that function
        return None


def describe_cuda() -> dict[str, str]:
    """The rows of `optpy doctor` on CUDA: CuPy, NVRTC, driver, devices; "error" is the reason why it does not work."""
    described = {}
    packages = cupy_packages()
    if packages:
        described["CuPy"] = ", ".join(f"{package} {number}" for package, number in packages.items())
    known = driver_version()
    if known is not None:
        described["driver"] = f"up to CUDA {_text(known)}"
    if find_spec("cupy") is not None:
        try:
            described["NVRTC"] = ".".join(map(str, nvrtc_version()))
        except CompileError as error:
            described["NVRTC"] = str(error)
    device, reason = cuda_or_reason()
    if device is None:
        return {**described, "error": reason.removeprefix("no GPU: ")}
    return described | _describe_devices(device)


def _describe_devices(current: Device) -> dict[str, str]:
    runtime = current.xp.cuda.runtime
    described = {}
    for number in range(runtime.getDeviceCount()):
        properties = runtime.getDeviceProperties(number)
        described[f"device {number}"] = (
            f"{properties['name'].decode()}, sm_{properties['major']}{properties['minor']}, "
            f"{properties['multiProcessorCount']} multiprocessors, {properties['totalGlobalMem'] / 2**30:.1f} GiB"
            f"{', current' if number == current.number else ''}"
        )
    return described


@functools.cache
def why_unavailable() -> str | None:
    """The reason why no device at all can be used in this process; None where one can."""
    try:
        known = _check_installed()
        cupy = _import_cupy()
        _check_driver(cupy, known)
        _check_devices(cupy)
        nvrtc_version()
    except (_UnavailableError, CompileError) as error:
        return str(error)
    return None


@functools.cache
def device_or_reason(number: int) -> CupyDevice | str:
    """The device, or why it will never do; what may pass, as memory that others hold, is raised and so not kept."""
    from optpy.kernels.runtime.cuda.cupy_device import CupyDevice

    device = CupyDevice(number)
    capability = device.architecture.removeprefix("sm_")
    major, minor = int(capability[:-1]), int(capability[-1])
    if (major, minor) < MINIMUM_CAPABILITY:
        least = ".".join(map(str, MINIMUM_CAPABILITY))
        return f"the GPU {device.name} has compute capability {major}.{minor}, and optpy needs {least} or later"
    try:
        choose_architecture(device.architecture, supported_architectures())
    except CompileError as error:
        return f"the GPU {device.name}: {error}"
    _check_computes(device)
    return device


def _check_computes(device: CupyDevice) -> None:
    """That CuPy's own kernels run: they need CUDA's headers, some memory, and a device that is not another process's
    alone."""
    try:
        with device.current():
            device.xp.arange(2).tolist()
    except Exception as error:  # whatever it is, it is the reason
        raise _UnavailableError(
            f"CuPy cannot compute on the GPU {device.name} ({one_line(error)}); {_cure(error, device.xp)}"
        ) from error


def _cure(error: Exception, cupy: Any) -> str:
    runtime = cupy.cuda.runtime
    if isinstance(error, MemoryError | runtime.CUDARuntimeError | cupy.cuda.driver.CUDADriverError):
        return "another process may hold it, or its memory: nvidia-smi lists who does"
    packages = " ".join(cupy_packages()) or "cupy"
    extra = _extra(runtime.runtimeGetVersion())
    return f"pip install 'optpy[{extra}]' has what {packages} needs beside the driver, CUDA's headers among it"


def _check_installed() -> int:
    """The version of the driver, if there is one and CuPy is installed once."""
    known = driver_version()
    if find_spec("cupy") is None:
        if known is None:
            raise _UnavailableError(
                f"CuPy is not installed, nor is an NVIDIA driver ({_DRIVER}); install the driver, "
                "then pip install 'optpy[cuda12]' or 'optpy[cuda13]'"
            )
        raise _UnavailableError(f"CuPy is not installed; pip install 'optpy[{_extra(known)}]'")
    packages = cupy_packages()
    if len(packages) > 1:
        names = " ".join(packages)
        extra = "cuda12" if known is None else _extra(known)
        raise _UnavailableError(
            f"the packages {' and '.join(packages)} overwrite one another; pip uninstall {names}, "
            f"then pip install 'optpy[{extra}]'"
        )
    if known is None:
        raise _UnavailableError(
            f"no NVIDIA driver is installed ({_DRIVER} cannot be loaded, or is a stub of the compiler's); install "
            "NVIDIA's driver; in a container, start it with the GPU (--gpus all)"
        )
    return known


def _import_cupy() -> Any:
    try:
        cupy = import_cupy()
    except Exception as error:  # whatever is wrong with the installation, it is the reason
        raise _UnavailableError(
            f"CuPy does not import ({one_line(error)}); pip install --force-reinstall {' '.join(cupy_packages())}"
        ) from error
    if cupy.cuda.runtime.is_hip:
        raise _UnavailableError("CuPy is installed for AMD's ROCm, and optpy needs it for CUDA")
    return cupy


def _check_driver(cupy: Any, known: int) -> None:
    needed = cupy.cuda.runtime.runtimeGetVersion()
    if known // 1000 < needed // 1000:  # within a major version, older drivers do
        newer = f"install a driver for CUDA {needed // 1000}"
        older = f"pip uninstall {' '.join(cupy_packages())}, then pip install 'optpy[cuda12]'"
        raise _UnavailableError(
            f"the NVIDIA driver knows CUDA {_text(known)}, and CuPy is built for CUDA {_text(needed)}; "
            f"{f'{older}, or {newer}' if known >= 12000 else newer}"
        )


def _check_devices(cupy: Any) -> None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cure = "" if visible is None else f"; the environment has CUDA_VISIBLE_DEVICES={visible!r}, unset it or change it"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise _UnavailableError(f"the NVIDIA driver finds no device it can use ({one_line(error)}){cure}") from error
    if count == 0:
        raise _UnavailableError(f"the NVIDIA driver finds no device{cure}")


def cupy_packages() -> dict[str, str]:
    """The installed ones among those that bring the module, with their versions."""
    found = {}
    for package in _CUPY_PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _extra(known: int) -> str:
    return "cuda13" if known >= 13000 else "cuda12"


def _text(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
