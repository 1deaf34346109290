"""The groups of tests: by what they need, and by what makes them long."""

from __future__ import annotations

from types import ModuleType

import pytest

GROUPS = ("deep", "native", "emulated", "gpu", "nvrtc", "tensors", "applications", "bench")
"""What a test or its file may say. Those that say nothing, and need neither a compiler nor PyTorch, are `core`."""


def group_of(item: pytest.Item) -> str:
    """The marker of a test: what it or its file says; its GPU; the rooms that its file imports; else core."""
    for marker in item.iter_markers():  # the test's own before those of its file
        if marker.name in GROUPS:
            return marker.name
    assert isinstance(item, pytest.Function)
    if "gpu" in item.fixturenames and item.callspec.params["gpu"] == "cuda":
        return "gpu"
    if {"emulated", "gpu"} & set(item.fixturenames):
        return "emulated"
    imported = {_room(value) for value in vars(item.module).values()}
    if "bench" in imported:
        return "bench"
    return "applications" if "problems" in imported else "core"


def _room(value: object) -> str:
    """The first part of the name of a module, or of that in which something was defined."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""
