"""Compilers: which one is taken, what it is told, and what its user sees when it refuses."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from optpy.errors import CompileError
from optpy.kernels.toolchain import build, toolchain
from optpy.kernels.toolchain.cache import open_cache
from optpy.kernels.toolchain.compiler import compile_c, describe_toolchain
from optpy.kernels.toolchain.compiler_process import run_compilers
from optpy.kernels.toolchain.headers import native_header
from optpy.kernels.toolchain.sections import in_sections
from optpy.kernels.toolchain.toolchain import find_toolchain, processor_identity

pytestmark = pytest.mark.native

ADD = "int add(int a, int b) { return a + b; }\n"
ZIG = toolchain.zig_binary()
COMPILERS = {"clang": "clang", "zig": f"{ZIG} cc", "gcc": "gcc"}


@pytest.fixture(params=COMPILERS)
def each_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the test once with each compiler of this machine, in the user's own cache."""
    command = COMPILERS[request.param]
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"no {request.param} on this machine")
    monkeypatch.setenv("OPTPY_CC", command)
    return command


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return path


@pytest.mark.usefixtures("each_compiler")
def test_compiles_and_calls() -> None:
    compiled = compile_c(ADD, name="add", werror=True)
    assert compiled.library.add(2, 3) == 5
    assert compiled.path.is_file()
    assert compiled.source_path.read_text() == ADD
    assert compiled.seconds > 0


IN_SECTIONS = """__attribute__((visibility("hidden"))) int doubled(int a);
""" + in_sections(
    [
        "int f(int a) { return doubled(a) + 1; }",
        "int doubled(int a) { return 2 * a; }",
        "int g(int a) { return 3 * doubled(a); }",
        "int h(int a) { return a; }",
    ]
)
FIRST_THREE = {1: [[0, 1, 2]], 2: [[0], [1, 2]], 3: [[0], [1], [2]]}


@pytest.fixture(params=[None, *COMPILERS])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler of this machine as users have it, its linker included, and each one by its driver alone."""
    if request.param is not None:
        if shutil.which(COMPILERS[request.param].split()[0]) is None:
            pytest.skip(f"no {request.param} on this machine")
        monkeypatch.setenv("OPTPY_CC", COMPILERS[request.param])


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("compilers", FIRST_THREE)
def test_parts_are_one_library(compilers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def counted(commands: Sequence[Sequence[str]], *rest: Any) -> list[subprocess.CompletedProcess[str]]:
        ran.append(len(commands))
        return run_compilers(commands, *rest)

    monkeypatch.setattr(build, "run_compilers", counted)
    text = f"/* {uuid4()} */\n{IN_SECTIONS}"  # compiled now, whatever the cache has
    compiled = compile_c(text, name="parts", parts=FIRST_THREE[compilers], werror=True)
    assert (compiled.library.f(5), compiled.library.g(5)) == (11, 30)
    assert not hasattr(compiled.library, "h")
    assert ran[-1] == compilers  # before it the compiler may have been tried
    assert not list(compiled.path.parent.glob("*.o"))
    last = compile_c(text, name="parts", parts=[[3]], werror=True)
    assert last.path != compiled.path
    assert (last.library.h(5), hasattr(last.library, "f")) == (5, False)


def test_the_library_is_the_same_however_many_compilers_make_it() -> None:
    paths = {compile_c(IN_SECTIONS, name="parts", parts=parts, werror=True).path for parts in FIRST_THREE.values()}
    assert len(paths) == 1


@pytest.mark.usefixtures("each_way")
def test_an_error_in_any_part_is_shown() -> None:
    wrong = IN_SECTIONS.replace("3 * doubled", "3 * unheard_of")
    with pytest.raises(CompileError, match="unheard_of"):
        compile_c(wrong, name="wrong", parts=FIRST_THREE[3], werror=True)


@pytest.mark.usefixtures("each_compiler")
def test_no_time_is_spent_on_debug_information() -> None:
    assert b".debug_" not in compile_c(ADD, name="add", werror=True).path.read_bytes()


@pytest.mark.usefixtures("each_compiler")
@pytest.mark.parametrize("header", ["kernels/c/prelude.h", "kernels/c/team.h", "kernels/c/vecmath.h"])
def test_native_headers_compile_without_warnings(header: str) -> None:
    # prelude.h comes first in every source.
    text = native_header("kernels/c/prelude.h") + (native_header(header) if header != "kernels/c/prelude.h" else "")
    compile_c(text + ADD, name="header", werror=True)


@pytest.mark.usefixtures("each_compiler")
def test_flags_keep_nan_and_infinity() -> None:
    source = (
        native_header("kernels/c/prelude.h")
        + r"""
    void classify(const float *x, int n, int *out) {
        for (int i = 0; i < n; i++)
            out[i] = (x[i] != x[i]) + 2 * !isfinite(x[i]) + 4 * !optpy_isfinitef(x[i]) + 8 * (x[i] > 1e30f);
    }
    void classify_double(const double *x, int n, int *out) {
        for (int i = 0; i < n; i++)
            out[i] = (x[i] != x[i]) + 2 * !isfinite(x[i]) + 4 * !optpy_isfinite(x[i]) + 8 * (x[i] > 1e30);
    }
    float sum(const float *x, int n) { float s = 0; for (int i = 0; i < n; i++) s += x[i]; return s; }
    """
    )
    library = compile_c(source, name="nan", werror=True).library
    library.sum.restype = ctypes.c_float
    x = np.array([1.0, np.nan, np.inf, -np.inf, 0.0] * 13)
    expected = [0, 7, 14, 6, 0] * 13
    for dtype, classify in ((np.float32, library.classify), (np.float64, library.classify_double)):
        values = x.astype(dtype)
        out = np.empty(len(x), np.int32)
        classify(values.ctypes.data_as(ctypes.c_void_p), len(x), out.ctypes.data_as(ctypes.c_void_p))
        assert out.tolist() == expected
    values = np.ones(100, np.float32)
    for special in (np.nan, np.inf):
        values[57] = special
        total = library.sum(values.ctypes.data_as(ctypes.c_void_p), 100)
        assert np.array_equal(total, special, equal_nan=True)


@pytest.mark.usefixtures("each_compiler")
def test_minimum_and_maximum_are_those_of_numpy() -> None:
    source = (
        native_header("kernels/c/prelude.h")
        + r"""
    void extremes(const double *a, const double *b, int n,
                  double *low, double *high, float *lowf, float *highf) {
        for (int i = 0; i < n; i++) {
            low[i] = optpy_min(a[i], b[i]);
            high[i] = optpy_max(a[i], b[i]);
            lowf[i] = optpy_minf((float)a[i], (float)b[i]);
            highf[i] = optpy_maxf((float)a[i], (float)b[i]);
        }
    }
    """
    )
    values = np.array([-np.inf, -1.5, 0.0, 2.0, np.inf, np.nan])
    a, b = (np.ascontiguousarray(grid.ravel()) for grid in np.meshgrid(values, values))
    outs = [np.empty(a.size, dtype) for dtype in (np.float64, np.float64, np.float32, np.float32)]
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, *outs)]
    compile_c(source, name="extremes", werror=True).library.extremes(*pointers[:2], a.size, *pointers[2:])
    for got, expected in zip(outs, (np.minimum(a, b), np.maximum(a, b)) * 2, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.usefixtures("each_compiler")
def test_refused_source_shows_the_compilers_own_message() -> None:
    with pytest.raises(CompileError) as caught:
        compile_c("float f(float x) {\n    return x + not_declared;\n}\n", name="refused")
    text = str(caught.value)
    assert "refused.c:2" in text
    assert "not_declared" in text
    assert "-O3" in text
    kept = next(Path(word) for word in text.split() if word.endswith("refused.c"))
    assert "not_declared" in kept.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="other linkers say it in other words")
@pytest.mark.usefixtures("each_compiler")
def test_undefined_symbol_is_found_when_compiled() -> None:
    source = "int missing_symbol(void);\nint f(void) { return missing_symbol(); }\n"
    with pytest.raises(CompileError, match=r"status 1 on (?s:.*)missing_symbol"):
        compile_c(source, name="undefined")


def test_warnings_are_errors_only_where_asked() -> None:
    source = "int f(int unused) { return 1; }\n"
    assert compile_c(source, name="warned").library.f(0) == 1
    with pytest.raises(CompileError, match="unused"):
        compile_c(source, name="warned", werror=True)


@pytest.mark.parametrize("name", ["", "a/b", "../up", "a b", "a.b", "ä"])
def test_name_must_be_a_plain_file_name(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits and underscores"):
        compile_c(ADD, name=name)


@pytest.mark.parametrize("command", ["no-such-compiler", "false", "/", "gcc 'unbalanced"])
def test_variable_that_does_not_run_is_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_CC", command)
    with pytest.raises(CompileError, match=r"OPTPY_CC is set to .* does not run: ") as caught:
        compile_c(ADD, name="add")
    assert ": ;" not in str(caught.value)
    assert "OPTPY_CC" in describe_toolchain()["error"]


def test_variable_may_carry_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_toolchain(open_cache().root).command
    wrapper = script(tmp_path / "my tools" / "launcher", 'exec "$@"')
    words = " ".join(f"'{word}'" for word in (str(wrapper), *real, "-DVALUE=7"))
    monkeypatch.setenv("OPTPY_CC", words)
    assert compile_c("int value(void) { return VALUE; }\n", name="value").library.value() == 7


PRETENDS = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done'
"""As a compiler that makes what it is asked for."""


def test_order_of_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTPY_CC", raising=False)
    cache, path = tmp_path / "cache", tmp_path / "bin"
    cache.mkdir()
    monkeypatch.setenv("PATH", str(path))
    zig = script(tmp_path / "zig" / "zig", f'echo "zig $1"; {PRETENDS}')
    monkeypatch.setattr(toolchain, "zig_binary", lambda: str(zig))

    def origin() -> str:
        toolchain.toolchain_for.cache_clear()
        return find_toolchain(cache).origin

    script(path / "gcc", f"echo gcc; {PRETENDS}")
    script(path / "cc", f"echo cc; {PRETENDS}")
    clang = script(path / "clang", f"echo clang; {PRETENDS}")
    assert origin() == "clang on PATH"
    script(clang, "echo broken >&2; exit 3")  # as the clang of a macOS without its developer tools
    assert origin() == "clang of the ziglang wheel"
    zig.unlink()
    assert origin() == "cc on PATH"
    (path / "cc").unlink()
    assert origin() == "gcc on PATH"
    (path / "gcc").unlink()
    with pytest.raises(CompileError, match=r"(?s)no C compiler works.*status 3: broken.*pip install ziglang"):
        origin()


def test_a_compiler_without_headers_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTPY_CC", raising=False)
    cache, path, log = tmp_path / "cache", tmp_path / "bin", tmp_path / "log"
    cache.mkdir()
    refuses = 'case "$*" in *trial.c*) echo "math.h not found" >&2; exit 1;; esac; echo clang'
    clang = script(path / "clang", refuses)
    zig = script(tmp_path / "zig" / "zig", f'echo "$*" >> {log}; echo zig; {PRETENDS}')
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(toolchain, "zig_binary", lambda: str(zig))
    for _ in range(2):
        toolchain.toolchain_for.cache_clear()  # as a new process
        assert find_toolchain(cache).origin == "clang of the ziglang wheel"
    assert log.read_text().count("trial.c") == 1  # the success is remembered
    zig.unlink()
    toolchain.toolchain_for.cache_clear()
    with pytest.raises(CompileError, match=r"clang on PATH: it compiles no library \(status 1\).*math\.h not found"):
        find_toolchain(cache)
    script(clang, f"echo clang; {PRETENDS}")  # its headers have come
    toolchain.toolchain_for.cache_clear()
    assert find_toolchain(cache).origin == "clang on PATH"


def test_what_the_user_chose_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuses = script(tmp_path / "cc", 'case "$*" in *--version) echo mine;; *) echo "no math.h" >&2; exit 1;; esac')
    monkeypatch.setenv("OPTPY_CC", str(refuses))
    (tmp_path / "cache").mkdir()
    assert find_toolchain(tmp_path / "cache").version == "mine"
    with pytest.raises(CompileError, match=r"no math\.h"):
        compile_c("int of_mine(void) { return 1; }\n", name="mine")


def test_version_is_asked_again_only_when_the_compiler_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, log = tmp_path / "cache", tmp_path / "log"
    cache.mkdir()
    compiler = script(tmp_path / "cc", f"echo asked >> {log}; echo version one")
    monkeypatch.setenv("OPTPY_CC", str(compiler))

    def version() -> str:
        toolchain.toolchain_for.cache_clear()  # as a new process
        return find_toolchain(cache).version

    assert (version(), version()) == ("version one", "version one")
    assert log.read_text().count("asked") == 1
    script(compiler, f"echo asked >> {log}; echo version twenty")
    assert version() == "version twenty"
    (cache / "compilers.json").write_text("{ cut sho")
    assert version() == "version twenty"
    assert log.read_text().count("asked") == 3


def test_description_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPTPY_CC", raising=False)
    described = describe_toolchain()
    assert set(described) == {
        "processor", "compiler", "compiler command", "compiler found as", "compiler flags",
    }  # fmt: skip
    assert "-fno-math-errno" in described["compiler flags"]
    assert "finite-math" not in described["compiler flags"]


def test_processor_identity_tells_of_instruction_sets() -> None:
    identity = processor_identity()
    assert identity == processor_identity()
    if sys.platform == "linux":
        assert "flags" in identity or "Features" in identity
        assert "MHz" not in identity
