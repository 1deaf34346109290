"""What cubins say of their kernels, for files of the real compiler and for damaged ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from optpy.kernels.toolchain.cubin import KernelResources, read_cubin, read_ptx_parameters
from optpy.kernels.toolchain.nvrtc import compile_cuda

pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.nvrtc

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120")

# `spilling` keeps 40 doubles, 80 registers, where its bounds allow it 64 registers of 32 bits at most.
SOURCE = r"""
struct Context { double *x; int n; int m; };
__device__ __noinline__ float callee(const double *p, int n) {
    float kept[40];
    for (int i = 0; i < 40; i++) kept[i] = p[i] * n;
    return kept[n % 40] + kept[n * 7 % 40];
}
extern "C" {
__global__ void __launch_bounds__(256) tiny(const __grid_constant__ Context c) { c.x[threadIdx.x] = c.n; }
__global__ void __launch_bounds__(1024) spilling(const __grid_constant__ Context c) {
    double a[40];
#pragma unroll
    for (int i = 0; i < 40; i++) a[i] = c.x[i * c.n + threadIdx.x];
#pragma unroll
    for (int k = 0; k < 8; k++) {
        double s = 0;
#pragma unroll
        for (int i = 0; i < 40; i++) s += a[i] * a[(i * 7 + k) % 40];
        c.x[k * c.m + threadIdx.x] = s;
    }
}
__global__ void calling(const __grid_constant__ Context c) { c.x[threadIdx.x] = callee(c.x, c.n); }
__global__ void sharing(const __grid_constant__ Context c) {
    __shared__ double s[300];
    s[threadIdx.x] = c.x[threadIdx.x];
    __syncthreads();
    c.x[threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void alone() {}
__global__ void many(double *x, float f, char last) { x[0] = f + last; }
}
"""


@cache
def image(architecture: str) -> bytes:
    return compile_cuda(SOURCE, architecture, name="cubin").image


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_of_known_behaviour(architecture: str) -> None:
    kernels = read_cubin(image(architecture))
    assert set(kernels) == {"tiny", "spilling", "calling", "sharing", "alone", "many"}  # and no callee
    assert 4 <= kernels["tiny"].registers <= 16
    assert kernels["tiny"].local_bytes == 0
    assert 32 <= kernels["spilling"].registers <= 64
    assert kernels["spilling"].local_bytes >= 40 * 8 - 64 * 4
    assert kernels["calling"].local_bytes >= 40 * 4  # of the function that it calls
    assert {name: k.shared_bytes for name, k in kernels.items() if k.shared_bytes} == {"sharing": 300 * 8}
    assert {k.parameter_bytes for k in (kernels["tiny"], kernels["spilling"], kernels["calling"])} == {16}
    assert kernels["alone"].parameter_bytes == 0
    assert kernels["many"].parameter_bytes == 13


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_as_ptxas_prints(architecture: str, tmp_path: Path) -> None:
    """On an image of its own: the compiler inside NVRTC may be of another version."""
    if shutil.which("ptxas") is None:
        pytest.skip("ptxas is not installed")
    text = tmp_path / "kernels.ptx"
    text.write_bytes(ptx(architecture))
    built = tmp_path / "kernels.cubin"
    command = ["ptxas", "-v", f"-arch={architecture}", str(text), "-o", str(built)]
    done = subprocess.run(command, capture_output=True, text=True)
    if "Unsupported .version" in done.stderr or "is not defined for option" in done.stderr:
        pytest.skip(f"this ptxas does not read it: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    kernels = read_cubin(built.read_bytes())
    printed = re.split(r"Compiling entry function '(\w+)'", done.stderr)
    assert len(printed) == 1 + 2 * len(kernels)
    for name, report in zip(printed[1::2], printed[2::2], strict=True):
        assert kernels[name].registers == number(r"Used (\d+) registers", report)
        assert kernels[name].shared_bytes == number(r"(\d+) bytes smem", report)
        stack = max(number(r"(\d+) bytes stack frame", report), number(r"(\d+) bytes cumulative stack", report))
        assert kernels[name].local_bytes == stack


def ptx(architecture: str) -> bytes:
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(SOURCE, "kernels.cu", (), ())
    nvrtc.compileProgram(program, (f"-arch=compute_{architecture[3:]}", "-std=c++17"))
    try:
        return bytes(nvrtc.getPTX(program))
    finally:
        nvrtc.destroyProgram(program)


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found[1]) if found else 0


def test_parameters_in_ptx() -> None:
    assert read_ptx_parameters(ptx("sm_90").decode()) == dict.fromkeys(("tiny", "spilling", "calling", "sharing"), 16)


@pytest.mark.parametrize("nothing", [b"", b"\x7fELF", b"not an image at all, but long enough to have a header" * 4])
def test_what_is_no_cubin(nothing: bytes) -> None:
    with pytest.raises(ValueError, match="cubin"):
        read_cubin(nothing)


def test_the_processors_own_code_is_no_cubin() -> None:
    with Path(sys.executable).open("rb") as file, pytest.raises(ValueError, match="cubin"):
        read_cubin(file.read(4096))


def test_damaged_files_are_refused_or_read() -> None:
    """Nothing but ValueError, whatever is cut off or overwritten."""
    whole = image("sm_90")
    headers = int.from_bytes(whole[40:48], "little")
    for length in range(16, headers, headers // 50):
        with pytest.raises(ValueError, match="cubin"):
            read_cubin(whole[:length])
    for at in [*range(16, 64), *range(headers, headers + 1200)]:
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        try:
            found = read_cubin(bytes(damaged))
        except ValueError:
            continue
        assert all(isinstance(kernel, KernelResources) for kernel in found.values())
