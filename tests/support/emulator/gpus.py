"""The GPUs that tests run on: one that is emulated, always, and the real one where there is one."""

from __future__ import annotations

import functools

import pytest

from optpy.kernels.runtime.cuda import available
from optpy.kernels.runtime.cuda.device import Device
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.emulator.strict_cupy import StrictCupy


@functools.cache
def _emulated() -> EmulatedDevice:
    """One for all tests: energies keep a solver for each device."""
    device = EmulatedDevice(xp=StrictCupy())
    device.number = -1  # no number of a real one
    return device


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """The emulated GPU, which `optpy.compile` finds; its counts begin at 0."""
    device = _emulated()
    device.reset()
    text = f"the GPU {device.name} ({device.architecture}) is there"
    monkeypatch.setattr(available, "find_device", lambda: device)
    monkeypatch.setattr(available, "cuda_or_reason", lambda: (device, text))
    return device


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated GPU refuses work in threads whose current device it is not."""
    monkeypatch.setattr(_emulated(), "strict", True)


@pytest.fixture(params=["emulated", "cuda"])
def gpu(request: pytest.FixtureRequest) -> Device:
    """Each GPU that `optpy.compile` can find: the emulated one, and the real one where there is one."""
    if request.param == "emulated":
        device: Device = request.getfixturevalue("emulated")
        return device
    real, reason = available.cuda_or_reason()
    if real is None:
        pytest.skip(reason)
    return real
