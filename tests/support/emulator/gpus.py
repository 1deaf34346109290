"""The GPUs that tests run on: one that is emulated, always, and the real one where there is one."""

from __future__ import annotations

import functools

import pytest

from optpy.kernels.runtime.cuda import available, executor
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import THREADS
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.emulator.strict_cupy import StrictCupy

SHORT_BLOCK = 64
"""Threads of a block in most tests: two warps, which have to wait for one another as eight have."""


@functools.cache
def _emulated(threads: int) -> EmulatedDevice:
    """One for all tests, for each length of blocks: energies keep a solver for each device."""
    device = EmulatedDevice(xp=StrictCupy(), threads=threads)
    device.number = -1 - threads  # no number of a real one
    return device


@pytest.fixture
def emulated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """The emulated GPU, which `optpy.compile` finds; its counts begin at 0.

    Its blocks are short, since each of their threads takes time, unless the test is deep or marked `whole_blocks`.
    """
    whole = any(request.node.get_closest_marker(name) for name in ("deep", "whole_blocks"))
    device = _emulated(THREADS if whole else SHORT_BLOCK)
    monkeypatch.setattr(executor, "THREADS", device.threads)
    device.reset()
    text = f"the GPU {device.name} ({device.architecture}) is there"
    monkeypatch.setattr(available, "find_device", lambda: device)
    monkeypatch.setattr(available, "cuda_or_reason", lambda: (device, text))
    return device


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated GPU refuses work in threads whose current device it is not."""
    for threads in (SHORT_BLOCK, THREADS):
        monkeypatch.setattr(_emulated(threads), "strict", True)


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
