"""A library by the compiler's linker, against the C library of this process."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from pathlib import Path

import pytest

from optpy.kernels.toolchain import toolchain
from optpy.kernels.toolchain.build import Recipe, loaded_c_library, zig_recipe
from optpy.kernels.toolchain.compiler_process import compiler_environment

ZIG = toolchain.zig_binary()

pytestmark = [
    pytest.mark.skipif(not os.path.exists(ZIG), reason="the compiler of the ziglang wheel is asked about"),
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere zig's driver links"),
]


def made(recipe: Recipe, folder: Path, text: str) -> ctypes.CDLL:
    source, library = folder / "made.c", folder / "made.so"
    source.write_text(text)
    done = recipe.run(folder, source, library)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def test_the_c_library_is_that_of_this_process_in_the_same_order_for_all() -> None:
    files = loaded_c_library()
    assert files == sorted(files)
    assert all(os.path.exists(file) for file in files)
    assert {"libc", "libm"} <= {Path(file).name.partition(".")[0].partition("-")[0] for file in files}


def test_zig_builds_nothing_for_itself(tmp_path: Path) -> None:
    text = "#include <math.h>\n#include <pthread.h>\ndouble f(double x) { return pthread_self() ? sin(x) : 0; }\n"
    library = made(zig_recipe(ZIG), tmp_path, text)
    library.f.restype, library.f.argtypes = ctypes.c_double, [ctypes.c_double]
    assert library.f(0.5) == math.sin(0.5)
    runtime = Path(compiler_environment(tmp_path, tmp_path)["ZIG_GLOBAL_CACHE_DIR"])
    assert not any(file.is_file() for file in runtime.rglob("*"))
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix) == ["made.c", "made.so"]


def test_what_only_the_drivers_runtime_has_is_linked_by_the_driver(tmp_path: Path) -> None:
    """Here the linker knows of no library at all, and the driver, asked for more than an object file, of anything."""
    driver = tmp_path / "driver"
    links = 'while [ "$1" != -o ]; do shift; done; echo linked > "$2"'
    driver.write_text(f'#!/bin/sh\ncase " $* " in *" -c "*) exec "{ZIG}" cc "$@";; esac\n{links}\n')
    driver.chmod(0o755)
    source, library = tmp_path / "made.c", tmp_path / "made.so"
    source.write_text("#include <math.h>\ndouble f(double x) { return sin(x); }\n")
    done = Recipe((str(driver),), (ZIG, "ld.lld", "-shared", "-z", "defs")).run(tmp_path, source, library)
    assert done.returncode == 0, done.stderr
    assert library.read_text() == "linked\n"


def test_what_the_compiler_refuses_is_not_linked(tmp_path: Path) -> None:
    source, library = tmp_path / "made.c", tmp_path / "made.so"
    source.write_text("int f(void) { return not_declared; }\n")
    done = zig_recipe(ZIG).run(tmp_path, source, library)
    assert done.returncode != 0
    assert "not_declared" in done.stderr
    assert not library.exists()
