"""A cache and a compiler of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compilers import Counter, make_counter


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of its own for the test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPTPY_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter:
    """The compiler of this machine behind a script. Before `root`: its runtime is built already."""
    made, script = make_counter(tmp_path)
    monkeypatch.setenv("OPTPY_CC", str(script))
    return made
