"""Where a run took place: figures mean nothing without it."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def describe() -> dict[str, str | int]:
    """Processor, cores, versions, date; the load says how busy others kept the machine."""
    facts: dict[str, str | int] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.2f}",
        "OPTPY_CC": os.environ.get("OPTPY_CC", ""),
    }
    for package in ("numpy", "scipy", "cholespy", "ziglang"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
