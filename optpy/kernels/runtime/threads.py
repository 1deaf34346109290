"""The number of threads that a kernel runs with."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

from optpy.errors import OptionError
from optpy.kernels.toolchain.headers import header_constant

THREADS_VARIABLE = "OPTPY_NUM_THREADS"
MAX_THREADS = header_constant("kernels/c/team.h", "TEAM_MAX_THREADS")


def thread_count(requested: int | None = None) -> int:
    """The number of threads: the option, else `OPTPY_NUM_THREADS`, else the cores this process may use.

    Raises:
        OptionError: the option or the variable is not a whole number from 1 to 1024.
    """
    if requested is not None:
        return _checked(requested, "the number of threads")
    if text := os.environ.get(THREADS_VARIABLE, "").strip():
        return _checked(int(text) if text.isdecimal() else text, THREADS_VARIABLE)
    return min(available_cores(), MAX_THREADS)


def available_cores(cgroup_root: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self")) -> int:
    """The cores that the affinity mask of this process and the quota of its container leave to it."""
    # sched_getaffinity: Linux. Elsewhere there is no mask to respect.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(_cgroup_quota(cgroup_root, process))))


def _checked(count: int | str, source: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_THREADS:
        raise OptionError(f"{source} must be a whole number from 1 to {MAX_THREADS}, not {count!r}")
    return count


@cache  # a solve of a millisecond would spend a tenth of it here
def _cgroup_quota(root: Path, process: Path) -> float:
    """The processors that control groups (version 2) allow: the least of the group and its parents."""
    quota = float(MAX_THREADS)
    with suppress(OSError):  # no control groups here
        for line in (process / "cgroup").read_text().splitlines():
            if line.startswith("0::"):
                group = PurePosixPath(line.removeprefix("0::").lstrip("/"))
                for folder in (group, *group.parents):
                    quota = min(quota, _quota_of(root / folder / "cpu.max"))
    return quota


def _quota_of(file: Path) -> float:
    with suppress(OSError, ValueError):  # the root group has no such file; "max 100000" means no limit
        allowed, period = file.read_text().split()
        return float(int(allowed) / int(period))
    return float(MAX_THREADS)
