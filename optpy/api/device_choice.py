"""The device that a solver runs on, chosen by what is asked for and what is there, with the reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from optpy.api.pipeline import coupling_of
from optpy.energy.language.index import describe
from optpy.errors import OptionError
from optpy.ir import Problem, Target
from optpy.kernels.runtime.cuda import available
from optpy.kernels.runtime.cuda.device import Device
from optpy.linear.registry import is_for_the_cpu_only, is_sure_on_gpu, refuse_on_gpu

DeviceName = Literal["auto", "cpu", "cuda"]


@final
@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The device that a solver runs on.

    Attributes:
        gpu: the device; None for the CPU.
        reason: which that is, and why.
        deterministic: whether a GPU may not add by atomics.
    """

    gpu: Device | None
    reason: str
    deterministic: bool = False

    @property
    def key(self) -> str:
        """A text that two choices share where they share compiled code: "cpu", or "cuda:0"."""
        if self.gpu is None:
            return "cpu"
        return f"cuda:{self.gpu.number}{' deterministic' if self.deterministic else ''}"

    @property
    def target(self) -> Target:
        """The kind of processor that it is."""
        if self.gpu is None:
            return Target.CPU
        return Target.DETERMINISTIC_GPU if self.deterministic else Target.GPU

    @property
    def model(self) -> str:
        """The model of a GPU; of the CPU nothing."""
        return "" if self.gpu is None else f"{self.gpu.name} ({self.gpu.architecture})"

    @property
    def xp(self) -> Any:
        """The module of the device's arrays: NumPy or CuPy."""
        return np if self.gpu is None else self.gpu.xp

    def current(self) -> AbstractContextManager[None]:
        """Within it, a GPU is the current one of this thread."""
        return nullcontext() if self.gpu is None else self.gpu.current()


CPU = DeviceChoice(None, "the CPU, as asked")


def choose_device(
    device: object, deterministic: bool, preconditioner: object = None, problem: Problem | None = None
) -> DeviceChoice:
    """The device of that name; "auto" is the CPU where a preconditioner is asked for that runs only there.

    Args:
        device, deterministic: see ``compile``.
        preconditioner: what is asked for already.
        problem: what it is asked for.

    Raises:
        OptionError: there is none, or CUDA cannot run here.
    """
    if not isinstance(deterministic, bool):
        raise OptionError(f"'deterministic' must be True or False, not {deterministic!r}")
    if device == "cpu":
        return CPU
    if device == "cuda":
        refuse_on_gpu(preconditioner)
        gpu = available.find_device()
        return DeviceChoice(gpu, f"{gpu.name} ({gpu.architecture}), as asked", deterministic)
    if device == "auto" and is_for_the_cpu_only(preconditioner):
        return DeviceChoice(None, f"the CPU; preconditioner={preconditioner!r} runs there only")
    if device == "auto":
        found, reason = available.cuda_or_reason()
        if found and problem is not None and not is_sure_on_gpu(preconditioner, lambda: coupling_of(problem)):
            surely = f"the CPU; preconditioner={preconditioner!r} is sure to serve this energy only there"
            return DeviceChoice(None, surely)
        return DeviceChoice(found, reason if found else f"the CPU; {reason}", deterministic)
    asked = f"no device {device!r}" if isinstance(device, str | None) else f"{describe(device)} is no device"
    raise OptionError(f"{asked}; there are: 'auto', 'cpu', 'cuda'{_device_cure(device)}")


def _device_cure(device: object) -> str:
    """The device that was probably meant by a name that is none."""
    if isinstance(device, Mapping):
        return ". Data is given to the solver, op.compile(energy).solve(data), or to op.solve(energy, data)"
    if not isinstance(device, str):
        return ""
    if device.lower() in ("cpu", "cuda", "auto", "gpu"):
        return f"; did you mean {device.lower().replace('gpu', 'cuda')!r}?"
    if re.fullmatch(r"cuda:\d+", device):
        return f"; 'cuda' is CuPy's current GPU: with cupy.cuda.Device({device[5:]}): ..."
    return ". Options are given by name: method='gn'" if device in ("lm", "gn") else ""
