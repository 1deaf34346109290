"""What all tests share: hypothesis without a clock, and a cache of compiled kernels of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test asserts on time, so none may fail by it: compiling inside an example is slow the first time.
settings.register_profile("optpy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("optpy"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "optpy")


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests compile into a folder of their own, unless the environment names one."""
    named = os.environ.get("OPTPY_CACHE_DIR")
    if named:
        yield Path(named)
        return
    folder = tmp_path_factory.mktemp("optpy-cache")
    folder.chmod(0o700)
    os.environ["OPTPY_CACHE_DIR"] = str(folder)
    yield folder
    del os.environ["OPTPY_CACHE_DIR"]
