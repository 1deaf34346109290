"""Everything that optpy raises on purpose; each class says who can mend it."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Self

_PACKAGE = str(Path(__file__).parent) + os.sep


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the user's own code: where an expression or a declaration was made."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @classmethod
    def of_caller(cls) -> Self:
        """The line of the caller's frame."""
        frame = callers_frame()
        return cls(frame.f_code.co_filename, frame.f_lineno)


def callers_frame() -> FrameType:
    """The innermost frame outside optpy itself."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return frame


class OptpyError(Exception):
    """Base of every error that optpy raises on purpose."""


class PrecisionWarning(UserWarning):
    """Float32 makes distinct values of an array equal, or shifts a param by more than ordinary rounding."""


def warn(message: str, category: type[Warning]) -> None:
    """``warnings.warn`` at the line of the user's own code that is running."""
    frame = callers_frame()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    module = frame.f_globals.get("__name__")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


class _Located(OptpyError):
    def __init__(self, message: str, location: Location | None = None) -> None:
        self.location = location
        super().__init__(f"{location}: {message}" if location is not None else message)


class EnergyError(_Located, ValueError):
    """The energy as written makes no sense; found when it is built."""


class DataError(_Located, ValueError):
    """The data does not fit the energy: names, shapes, dtypes, non-finite values; found when it is bound."""


class OptionError(OptpyError, ValueError):
    """An option is unknown, out of range or not supported here."""


class CompileError(OptpyError, RuntimeError):
    """No compiler was found, or the compiler refused the generated source (its own message is in the text)."""


class DeviceMemoryError(OptpyError, MemoryError):
    """The data does not fit into the memory of the GPU; found before anything is allocated for solving."""


class DeviceError(OptpyError, RuntimeError):
    """A GPU has failed while it worked, and can be used again by another process only."""


class InternalError(OptpyError, AssertionError):
    """A mistake of optpy itself; please report it."""
