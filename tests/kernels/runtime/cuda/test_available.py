"""Whether a GPU can be used: each reason why not, with its cure, without any GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from optpy.errors import CompileError, OptionError
from optpy.kernels.runtime.cuda import available
from optpy.kernels.runtime.cuda.available import cuda_or_reason, describe_cuda, driver_version, find_device
from tests.support.emulator.recording_cupy import FakeRuntimeError, RecordingCupy

ROOT = Path(__file__).resolve().parents[4]


class Machine:
    """What is installed, as the module under test sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cupy = RecordingCupy()
        self.packages = {"cupy-cuda12x": "14.2.0"}
        self.driver: int | None = 12040
        self.nvrtc_error: str | None = None
        self.supported = (75, 80, 90)
        monkeypatch.setattr(available, "driver_version", lambda: self.driver)
        monkeypatch.setattr(available, "cupy_packages", lambda: self.packages)
        monkeypatch.setattr(available, "find_spec", lambda name: object() if self.packages else None)
        monkeypatch.setattr(available, "nvrtc_version", self._nvrtc_version)
        monkeypatch.setattr(available, "supported_architectures", lambda: self.supported)
        monkeypatch.setitem(sys.modules, "cupy", self.cupy.module)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def _nvrtc_version(self) -> tuple[int, int]:
        if self.nvrtc_error is not None:
            raise CompileError(self.nvrtc_error)
        return 12, 9

    def reason(self) -> str:
        """Why there is no device, as both functions say it."""
        device, text = cuda_or_reason()
        assert device is None
        assert text.startswith("no GPU: ")
        reason = text.removeprefix("no GPU: ")
        with pytest.raises(OptionError) as caught:
            find_device()
        assert str(caught.value) == f"device='cuda': {reason}"
        assert describe_cuda()["error"] == reason
        return reason


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A healthy one with two GPUs."""
    _forget()
    yield Machine(monkeypatch)
    _forget()


def _forget() -> None:
    available.why_unavailable.cache_clear()
    available.device_or_reason.cache_clear()


def test_a_healthy_machine(machine: Machine) -> None:
    device, text = cuda_or_reason()
    assert device is find_device()
    assert device is not None
    assert (device.number, device.architecture) == (0, "sm_90")
    assert text == "the GPU GPU 0 (sm_90) is there"
    assert describe_cuda() == {
        "CuPy": "cupy-cuda12x 14.2.0",
        "driver": "up to CUDA 12.4",
        "NVRTC": "12.9",
        "device 0": "GPU 0, sm_90, 10 multiprocessors, 16.0 GiB, current",
        "device 1": "GPU 1, sm_91, 11 multiprocessors, 16.0 GiB",
    }


def test_the_current_device_is_taken(machine: Machine) -> None:
    first = find_device()
    with machine.cupy.module.cuda.Device(1):
        second = find_device()
        assert find_device() is second
    assert (first.number, second.number) == (0, 1)
    assert find_device() is first


@pytest.mark.parametrize(("driver", "extra"), [(12040, "cuda12"), (13000, "cuda13"), (11080, "cuda12")])
def test_without_cupy(driver: int, extra: str, machine: Machine) -> None:
    machine.packages, machine.driver = {}, driver
    assert machine.reason() == f"CuPy is not installed; pip install 'optpy[{extra}]'"


def test_without_cupy_and_without_a_driver(machine: Machine) -> None:
    machine.packages, machine.driver = {}, None
    assert machine.reason().startswith("CuPy is not installed, nor is an NVIDIA driver (libcuda.so.1); install")


def test_without_a_driver_cupy_is_not_imported(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.driver = None
    monkeypatch.setitem(sys.modules, "cupy", None)  # importing it would raise
    assert machine.reason() == (
        "no NVIDIA driver is installed (libcuda.so.1 cannot be loaded, or is a stub of the compiler's); install "
        "NVIDIA's driver; in a container, start it with the GPU (--gpus all)"
    )


def test_two_packages_of_cupy(machine: Machine) -> None:
    machine.packages = {"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"}
    machine.driver = 13000
    reason = machine.reason()
    assert "cupy-cuda12x and cupy-cuda13x overwrite one another" in reason
    assert "pip uninstall cupy-cuda12x cupy-cuda13x, then pip install 'optpy[cuda13]'" in reason


@pytest.mark.parametrize(
    ("driver", "runtime", "cures"),
    [
        (12040, 13000, ["pip uninstall cupy-cuda12x, then pip install 'optpy[cuda12]'", "a driver for CUDA 13"]),
        (11080, 12090, ["a driver for CUDA 12"]),
    ],
)
def test_a_driver_that_is_too_old(driver: int, runtime: int, cures: list[str], machine: Machine) -> None:
    machine.driver, machine.cupy.runtime_version = driver, runtime
    reason = machine.reason()
    assert f"knows CUDA {driver // 1000}.{driver % 1000 // 10}, and CuPy is built for" in reason
    assert all(cure in reason for cure in cures)
    assert ("optpy[cuda12]" in reason) == (driver >= 12000)


def test_a_driver_that_is_older_within_a_major_version_will_do(machine: Machine) -> None:
    machine.driver, machine.cupy.runtime_version = 12000, 12090
    assert find_device().number == 0


@pytest.mark.parametrize("visible", [None, "", "7"])
@pytest.mark.parametrize("error", [None, "cudaErrorNoDevice: no CUDA-capable device is detected"])
def test_no_device_is_visible(
    visible: str | None, error: str | None, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.cupy.properties, machine.cupy.refuses_devices = [], error
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    reason = machine.reason()
    assert "the NVIDIA driver finds no device" in reason
    assert (error or "") in reason
    assert (f"CUDA_VISIBLE_DEVICES={visible!r}, unset it" in reason) == (visible is not None)


def test_without_nvrtc(machine: Machine) -> None:
    machine.nvrtc_error = "NVRTC cannot be loaded: pip install nvidia-cuda-nvrtc-cu12"
    assert machine.reason() == machine.nvrtc_error
    assert describe_cuda()["NVRTC"] == machine.nvrtc_error


def test_a_gpu_that_is_too_old(machine: Machine) -> None:
    machine.cupy.properties[0].update(name=b"old", major=6, minor=1)
    assert machine.reason() == "the GPU old has compute capability 6.1, and optpy needs 7.0 or later"
    with machine.cupy.module.cuda.Device(1):
        assert find_device().number == 1


def test_a_gpu_that_is_too_old_for_nvrtc(machine: Machine) -> None:
    machine.cupy.properties[0].update(name=b"old", major=7, minor=0)
    assert "the GPU old: this NVRTC compiles for sm_75 and later" in machine.reason()


def test_a_gpu_of_two_digits(machine: Machine) -> None:
    machine.cupy.properties[0].update(major=12, minor=1)
    assert find_device().architecture == "sm_121"


def test_a_gpu_on_which_cupy_cannot_compute(machine: Machine) -> None:
    machine.cupy.refuses_kernels = RuntimeError("Failed to find CUDA headers.")
    reason = machine.reason()
    assert reason.startswith("CuPy cannot compute on the GPU GPU 0 (RuntimeError: Failed to find CUDA headers.); ")
    assert "pip install 'optpy[cuda12]' has what cupy-cuda12x needs" in reason
    for error in (MemoryError("out of memory"), FakeRuntimeError("cudaErrorDevicesUnavailable")):
        machine.cupy.refuses_kernels = error
        assert "another process may hold it, or its memory: nvidia-smi lists who does" in machine.reason()
    machine.cupy.refuses_kernels = None  # what has passed is not remembered
    assert find_device().number == 0


def test_cupy_for_rocm(machine: Machine) -> None:
    machine.cupy.module.cuda.runtime.is_hip = True
    assert "ROCm" in machine.reason()


def test_a_cupy_that_does_not_import(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy does not import (ModuleNotFoundError" in machine.reason()
    assert "pip install --force-reinstall cupy-cuda12x" in machine.reason()


def test_what_cupy_warns_of_at_its_import_is_no_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where warnings are errors, as in these tests."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object, target: object = None) -> Any:
            if name != "cupy":
                return None
            return importlib.util.spec_from_loader(
                name, SimpleNamespace(create_module=_warn, exec_module=lambda m: None)
            )

    def _warn(spec: object) -> Any:
        import warnings

        warnings.warn("nccl could not be loaded", UserWarning, stacklevel=1)
        return machine.cupy.module

    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.warns(UserWarning, match="nccl"):
        assert find_device().number == 0


def test_the_answer_is_kept(machine: Machine) -> None:
    find_device()
    machine.packages = {}  # as a change that only a new process sees
    assert find_device().number == 0


class Library:
    """As ctypes loads it."""

    def __init__(self, status: int) -> None:
        self.status = status

    def cuDriverGetVersion(self, version: Any) -> int:  # noqa: N802
        version._obj.value = 12080
        return self.status


def test_version_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(0))
    assert driver_version() == 12080
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library(34))  # CUDA_ERROR_STUB_LIBRARY
    assert driver_version() is None

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert driver_version() is None


def test_this_machine_gives_a_device_or_a_reason() -> None:
    device, text = cuda_or_reason()
    assert text.startswith("no GPU: " if device is None else "the GPU ")
    assert ("error" in describe_cuda()) == (device is None)


@pytest.mark.native
def test_the_cpu_needs_no_cupy() -> None:
    program = (
        "import sys, numpy as np, optpy as op\n"
        "H = op.dims('H'); i = op.indices(H); X = op.Unknown('X', (H,))\n"
        "energy = op.Energy(fit=X[i] - 3)\n"
        "op.compile(energy, device='cpu').solve(dict(X=np.zeros(4, np.float32)))\n"
        "print('cupy' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
