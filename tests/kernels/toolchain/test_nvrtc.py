"""CUDA C++ to images, by the real NVRTC, which needs no GPU; and what is asked of one that is too old or too new."""

from __future__ import annotations

import multiprocessing
import re
import struct
import sys
from pathlib import Path
from queue import Queue

import pytest

from optpy.errors import CompileError
from optpy.kernels.toolchain import nvrtc
from optpy.kernels.toolchain.cache import open_cache
from optpy.kernels.toolchain.cubin import read_cubin
from optpy.kernels.toolchain.nvrtc import (
    Architecture,
    choose_architecture,
    compile_cuda,
    nvrtc_version,
    supported_architectures,
)
from optpy.kernels.toolchain.progress import reporting

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.nvrtc

TWICE = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2.0f; }\n'
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of its own for the test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("OPTPY_CACHE_DIR", str(folder))
    return folder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_machine_code_for_each_architecture(architecture: str) -> None:
    compiled = compile_cuda(TWICE, architecture, name="twice", werror=True)
    assert compiled.compiled_for == Architecture(int(architecture[3:]), "cubin")
    assert compiled.image.startswith(b"\x7fELF")
    (at,), (size, count) = struct.unpack_from("<Q", compiled.image, 32), struct.unpack_from("<HH", compiled.image, 54)
    assert at + size * count <= len(compiled.image)  # the table of what is loaded, often the last of the file, is whole
    assert compiled.path.read_bytes() == compiled.image
    assert compiled.path.name == "twice.cubin"
    assert compiled.source_path.read_text() == TWICE
    assert compiled.source_path.name == "twice.cu"


OCCUPIED = """
#define OPTPY_THREADS 256
struct Context { double *x; };
""" + "".join(
    f"""
#ifndef OPTPY_BOUNDS_keeps_{n}
#define OPTPY_BOUNDS_keeps_{n} OPTPY_OCCUPANCY
#endif
extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_keeps_{n}) keeps_{n}(const __grid_constant__ Context c) {{
    double kept[{n}];
#pragma unroll
    for (int k = 0; k < {n}; ++k) kept[k] = c.x[threadIdx.x + 256 * k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < {n}; ++k) c.x[threadIdx.x + 256 * ({n} - 1 - k)] = kept[k];
}}
"""
    for n in (10, 20, 25, 32, 50, 100)
)


def test_bounds_are_loosened_until_nothing_spills(root: Path) -> None:
    """Kernels that keep so many doubles, of two registers each, at once."""
    kernels = read_cubin(compile_cuda(OCCUPIED, "sm_90", werror=True).image)
    assert all(k.local_bytes == 0 for k in kernels.values())
    assert kernels["keeps_10"].registers <= 40 < kernels["keeps_20"].registers <= 48
    assert 48 < kernels["keeps_25"].registers <= 64 < kernels["keeps_32"].registers <= 80
    assert 100 < kernels["keeps_50"].registers <= 128
    assert kernels["keeps_100"].registers > 200


def test_second_time_is_a_hit(root: Path) -> None:
    first, second = compile_cuda(TWICE, "sm_90"), compile_cuda(TWICE, "sm_90")
    assert (first.cache_hit, second.cache_hit) == (False, True)
    assert (first.image, first.path) == (second.image, second.path)
    assert open_cache().size()[0] == 1
    for other in (
        compile_cuda(TWICE, "sm_80"),
        compile_cuda(TWICE + "\n", "sm_90"),
        compile_cuda(TWICE, "sm_90", name="other"),
        compile_cuda(TWICE, "sm_90", werror=True),
    ):
        assert not other.cache_hit
    assert open_cache().size()[0] == 5


@pytest.mark.usefixtures("root")
def test_what_is_compiled_is_told_to_who_asks(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compile_cuda(TWICE, "sm_90")
    assert capsys.readouterr().out == ""
    for expected in (r"compiling kernels for the GPU, sm_80 \.\.\. \d+\.\d s\n", ""):
        with reporting(True):
            compile_cuda(TWICE, "sm_80")
        assert re.fullmatch(expected, capsys.readouterr().out)


def test_change_of_nvrtc_or_of_our_version_is_a_miss(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_cuda(TWICE, "sm_90")
    monkeypatch.setattr(nvrtc, "CUDA_VERSION", 1000)
    assert not compile_cuda(TWICE, "sm_90").cache_hit
    real = nvrtc.loaded_nvrtc()[0]
    monkeypatch.setattr(nvrtc, "loaded_nvrtc", lambda: (real, (99, 0)))
    assert not compile_cuda(TWICE, "sm_90").cache_hit


def test_damaged_image_is_compiled_again(root: Path) -> None:
    compiled = compile_cuda(TWICE, "sm_90")
    compiled.path.write_bytes(compiled.image[:-1])
    again = compile_cuda(TWICE, "sm_90")
    assert not again.cache_hit
    assert again.image == compiled.image
    assert compile_cuda(TWICE, "sm_90").cache_hit


def compile_in_process(answers: Queue[bool]) -> None:
    answers.put(compile_cuda(TWICE, "sm_90").cache_hit)


def test_of_many_processes_one_compiles(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Queue[bool] = context.Manager().Queue()
    processes = [context.Process(target=compile_in_process, args=(answers,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert sorted(answers.get() for _ in processes) == [False, True, True]


def test_refused_source_shows_the_compilers_own_message(root: Path) -> None:
    source = 'extern "C" __global__ void f(float *x) {\n    x[0] = not_declared;\n}\n'
    with pytest.raises(CompileError) as caught:
        compile_cuda(source, "sm_90", name="refused")
    text = str(caught.value)
    assert "refused.cu(2)" in text
    assert "not_declared" in text
    assert "-arch=sm_90" in text
    kept = next(Path(word) for word in text.split() if word.endswith("refused.cu"))
    assert kept.read_text() == source


def test_warnings_are_errors_only_where_asked() -> None:
    source = 'extern "C" __global__ void f(float *x) { int unused; x[0] = 1.0f; }\n'
    assert compile_cuda(source, "sm_90").image
    with pytest.raises(CompileError, match='"unused" was declared but never referenced'):
        compile_cuda(source, "sm_90", werror=True)


def test_divisions_and_denormals_are_those_of_ieee() -> None:
    """As text: no approximate division, no flushing to zero, and products fused into sums."""
    source = 'extern "C" __global__ void f(float *x) { x[0] = x[1] / x[2] + sqrtf(x[3]); x[4] += x[5] * x[6]; }\n'
    newer = f"sm_{max(supported_architectures()) + 1}"
    text = compile_cuda(source, newer).image.decode()
    assert "div.rn.f32" in text
    assert "sqrt.rn.f32" in text
    assert ".ftz" not in text
    assert "fma.rn.f32" in text


def test_an_architecture_that_the_compiler_does_not_know_gets_ptx(root: Path) -> None:
    known = max(supported_architectures())
    compiled = compile_cuda(TWICE, f"sm_{known + 1}", name="twice")
    assert compiled.compiled_for == Architecture(known, "ptx")
    assert compiled.path.name == "twice.ptx"
    assert b".entry twice" in compiled.image
    assert compile_cuda(TWICE, f"sm_{known}").image.startswith(b"\x7fELF")


@pytest.mark.parametrize(
    ("architecture", "expected", "option"),
    [
        ("sm_90", Architecture(90, "cubin"), "-arch=sm_90"),
        ("sm_100", Architecture(100, "cubin"), "-arch=sm_100"),
        ("sm_101", Architecture(100, "ptx"), "-arch=compute_100"),
        ("sm_130", Architecture(100, "ptx"), "-arch=compute_100"),
        ("sm_89", Architecture(86, "ptx"), "-arch=compute_86"),
        ("sm_75", Architecture(75, "cubin"), "-arch=sm_75"),
    ],
)
def test_choice_of_architecture(architecture: str, expected: Architecture, option: str) -> None:
    found = choose_architecture(architecture, (75, 80, 86, 90, 100))
    assert found == expected
    assert found.option == option


def test_a_gpu_that_is_too_old_for_the_compiler() -> None:
    with pytest.raises(CompileError, match=r"sm_75 and later, not for sm_70.*optpy\[cuda12\]"):
        choose_architecture("sm_70", (75, 80, 90))


@pytest.mark.parametrize("name", ["90", "sm90", "sm_", "sm_90a", "compute_90", "sm_90; rm"])
def test_architecture_must_be_one(name: str) -> None:
    with pytest.raises(ValueError, match="an architecture is sm_ and a number"):
        choose_architecture(name, (90,))


@pytest.mark.parametrize("name", ["", "a/b", "../up", "a b"])
def test_name_must_be_a_plain_file_name(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits and underscores"):
        compile_cuda(TWICE, "sm_90", name=name)


@pytest.mark.parametrize(("runtime", "extra"), [(12090, "cuda12"), (13020, "cuda13")])
def test_without_the_library_the_cure_is_given(runtime: int, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise RuntimeError("libnvrtc.so: cannot open shared object file")

    monkeypatch.setattr(cupy.cuda.nvrtc, "getVersion", missing)
    monkeypatch.setattr(cupy.cuda.runtime, "runtimeGetVersion", lambda: runtime)
    with pytest.raises(CompileError, match=rf"NVRTC.*cannot open shared object file.*pip install 'optpy\[{extra}\]'$"):
        compile_cuda(TWICE, "sm_90")


def test_without_cupy_the_cure_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(CompileError, match=r"through CuPy, which does not import.*pip install 'optpy\[cuda12\]'"):
        compile_cuda(TWICE, "sm_90")


def test_versions() -> None:
    assert nvrtc_version() >= (12, 0)
    assert {80, 90} <= set(supported_architectures())
