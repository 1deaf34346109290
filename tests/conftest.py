"""What all tests share: groups, hypothesis without a clock, one cache of compiled kernels, the compiler's flags."""

from __future__ import annotations

import gc
import os
import signal

# One thread for each process of the tests: those of BLAS would wait for one another by spinning. Before NumPy loads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.emulator.gpus import emulated as emulated
from tests.support.emulator.gpus import gpu as gpu
from tests.support.emulator.gpus import strict as strict
from tests.support.groups import group_of
from tests.support.kernel_flags import compiled_with, quick
from tests.support.own_cache import counter as counter
from tests.support.own_cache import root as root

# No test asserts on time, so none may fail by it: compiling inside an example is slow the first time.
settings.register_profile("optpy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("optpy"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "optpy")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: the garbage collector need not go through them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each test is in one group."""
    for item in items:
        item.add_marker(group_of(item))


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests compile into one folder, that of all processes of this run, unless the environment names one."""
    named = os.environ.get("OPTPY_CACHE_DIR")
    if named:
        yield Path(named)
        return
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "optpy-cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ["OPTPY_CACHE_DIR"] = str(folder)
    yield folder
    del os.environ["OPTPY_CACHE_DIR"]


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """Shells ignore Ctrl-C in what they start in the background; tests send it to themselves."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def compiler_of_the_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """None for `core`. Energies are compiled without optimisation, but for `deep` and `optimised` tests."""
    # Not by the fixture `monkeypatch`: what a test patches over this has to be undone before this is.
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("core"):
            patch.setenv("OPTPY_CC", "no compiler: this test is in the group core")
        as_users = any(request.node.get_closest_marker(name) for name in ("deep", "optimised"))
        with nullcontext() if as_users else compiled_with(quick):
            yield
