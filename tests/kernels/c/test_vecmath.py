"""Our own sine, cosine, exponential and logarithm against true values, in loops that vectorise."""

from __future__ import annotations

import ctypes
import shutil

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from optpy.kernels.toolchain import toolchain
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.headers import native_header

pytestmark = pytest.mark.native

COMPILERS = {"clang": "clang", "zig": f"{toolchain.zig_binary()} cc", "gcc": "gcc"}
FUNCTIONS = ("sin", "cos", "exp", "log", "expm1", "log1p")
PRECISIONS = (("f", "float"), ("", "double"))
LOOPS = "\n".join(
    f"void loop_{name}{suffix}(const {real} *x, long n, {real} *out)"
    f" {{ for (long i = 0; i < n; i++) out[i] = optpy_{name}{suffix}(x[i]); }}"
    for name in FUNCTIONS
    for suffix, real in PRECISIONS
) + "\n".join(
    f"void loop_hypot{suffix}(const {real} *x, const {real} *y, long n, {real} *out)"
    f" {{ for (long i = 0; i < n; i++) out[i] = optpy_hypot{suffix}(x[i], y[i]); }}"
    for suffix, real in PRECISIONS
)
DTYPES = [np.float32, np.float64]

Array = NDArray[np.floating]


@pytest.fixture(scope="module", params=COMPILERS)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    """One loop for each function and precision, from each compiler of this machine."""
    command = COMPILERS[request.param]
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"no {request.param} on this machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTPY_CC", command)
        return compile_c(native_header("kernels/c/vecmath.h") + LOOPS, name="vecmath", werror=True).library


def call(library: ctypes.CDLL, name: str, x: Array) -> Array:
    out = np.empty_like(x)
    loop = library[f"loop_{name}{'f' if x.dtype == np.float32 else ''}"]
    loop(x.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(x.size), out.ctypes.data_as(ctypes.c_void_p))
    return out


def error_in_units(got: Array, x: Array, name: str) -> Array:
    """|got - true| in units in the last place of the true value; subtraction in 40 digits."""
    if x.dtype == np.float32:  # a double is then as good as the truth
        true = getattr(np, name)(x.astype(np.float64))
        unit = np.spacing(np.abs(true).astype(np.float32)).astype(np.float64)
        return np.asarray(np.abs(got.astype(np.float64) - true) / unit)
    with mpmath.workdps(40):
        exact = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
        off = [abs(mpmath.mpf(float(g)) - t) for g, t in zip(got, exact, strict=True)]
        return np.array([float(o) / np.spacing(abs(float(t))) for o, t in zip(off, exact, strict=True)])


def samples(name: str, dtype: type[np.floating], count: int) -> Array:
    rng = np.random.default_rng(7)
    sizes = rng.uniform(size=count)
    signs = rng.choice([-1.0, 1.0], size=count)
    tiny, huge = float(np.finfo(dtype).smallest_subnormal), float(np.finfo(dtype).max)
    if name in ("sin", "cos"):
        turns = np.round(np.exp(sizes * 30)) * np.pi / 2  # next to zeros and extrema, out to 10^13
        x = np.concatenate([signs * np.exp(-20 + 54 * sizes), signs * turns, rng.uniform(-8, 8, count)])
    elif name in ("exp", "expm1"):
        low, high = (np.log(tiny), np.log(huge)) if name == "exp" else (-60.0, np.log(huge))
        x = np.concatenate([rng.uniform(low, high, count), signs * np.exp(-40 * sizes)])
    elif name == "log1p":
        sizes = np.exp(np.log(tiny) + sizes * (np.log(huge) - np.log(tiny)))
        x = np.concatenate([sizes, -np.exp(-40 * rng.uniform(size=count)), rng.uniform(-0.9, 3, count)])
        x = x[x.astype(dtype) > -1]
    else:
        exponents = np.log(tiny) + sizes * (np.log(huge) - np.log(tiny))
        x = np.concatenate([np.exp(exponents), 1 + signs * np.exp(-1 - 30 * sizes), rng.uniform(0.3, 3, count)])
    x = x.astype(dtype)
    return np.asarray(x[x > 0] if name == "log" else x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_two_units_in_the_last_place(library: ctypes.CDLL, name: str, dtype: type[np.floating]) -> None:
    x = samples(name, dtype, 300_000 if dtype == np.float32 else 3_000)
    errors = error_in_units(call(library, name, x), x, name)
    worst = int(np.argmax(errors))
    assert errors[worst] <= 2.0, f"{name}({float(x[worst]).hex()})"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values_are_those_of_numpy(library: ctypes.CDLL, name: str, dtype: type[np.floating]) -> None:
    largest, tiny = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    values = [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, -1.0, -tiny]
    if name not in ("sin", "cos"):
        values += [largest, -largest]
    x = np.array(values * 9, dtype)  # in vectors, and in what is left over
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x)
    np.testing.assert_allclose(call(library, name, x), expected, rtol=4 * float(np.finfo(dtype).eps), atol=0)


def lengths(library: ctypes.CDLL, x: Array, y: Array) -> Array:
    out = np.empty_like(x)
    loop = library[f"loop_hypot{'f' if x.dtype == np.float32 else ''}"]
    loop(*(a.ctypes.data_as(ctypes.c_void_p) for a in (x, y)), ctypes.c_long(x.size), ctypes.c_void_p(out.ctypes.data))
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_neither_overflow_nor_vanish(library: ctypes.CDLL, dtype: type[np.floating]) -> None:
    rng = np.random.default_rng(3)
    low, high = np.log(float(np.finfo(dtype).smallest_normal)), np.log(float(np.finfo(dtype).max) / 2)
    x = np.exp(rng.uniform(low, high, 20_000)) * rng.choice([-1.0, 1.0], 20_000)
    x = x.astype(dtype)
    y = (x * np.exp(rng.uniform(-12, 0, x.size))).astype(dtype)
    for a, b in ((x, y), (y, x)):
        true = np.hypot(a.astype(np.longdouble), b.astype(np.longdouble))
        assert np.max(np.abs(lengths(library, a, b) - true) / np.spacing(true.astype(dtype))) <= 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_special_lengths_are_those_of_numpy(library: ctypes.CDLL, dtype: type[np.floating]) -> None:
    values = np.array([0.0, -0.0, 1.0, -3.0, np.nan, np.inf, -np.inf, np.finfo(dtype).smallest_subnormal], dtype)
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(values, values))
    np.testing.assert_allclose(lengths(library, x, y), np.hypot(x, y), rtol=4 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_reaches_both_ends(library: ctypes.CDLL, dtype: type[np.floating]) -> None:
    low, high = (float(np.log(v)) for v in (np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max))
    x = np.array([high - 1e-3, high + 1e-3, low - 2, low + 2], dtype)
    largest, over, zero, denormal = call(library, "exp", x)
    assert np.isfinite(largest)
    assert over == np.inf
    assert zero == 0
    assert 0 < denormal < np.finfo(dtype).smallest_normal


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angle_beyond_the_range_is_not_silently_wrong(
    library: ctypes.CDLL, name: str, dtype: type[np.floating]
) -> None:
    x = np.array([2.0**50, -(2.0**50), 2.0**51, -(2.0**51), 1e30], dtype)
    assert np.isnan(call(library, name, x)).tolist() == [False, False, True, True, True]


@pytest.mark.parametrize("dtype", DTYPES)
def test_squares_of_sine_and_cosine_sum_to_one(library: ctypes.CDLL, dtype: type[np.floating]) -> None:
    x = np.linspace(-100, 100, 10_001, dtype=dtype)
    total = call(library, "sin", x) ** 2 + call(library, "cos", x) ** 2
    np.testing.assert_allclose(total, 1, rtol=4 * float(np.finfo(dtype).eps))
