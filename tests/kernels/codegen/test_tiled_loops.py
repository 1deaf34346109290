"""Nested loops over computed tiles, and reductions with updates: built by hand, printed, compiled, against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from optpy.ir import REAL, Access, Domain, Extent, Field, InBounds, LoopVariable, Role, loops
from optpy.kernels.codegen.arithmetic import arithmetic
from optpy.kernels.codegen.conventions import Conventions
from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.codegen.kernel_header import kernel_header
from optpy.kernels.codegen.layout import CPU
from optpy.kernels.codegen.passes.declare import declare
from optpy.kernels.codegen.passes.flatten import flatten
from optpy.kernels.codegen.printer import CPrinter
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Expr, add, var

pytestmark = pytest.mark.native

T = 8
"""Rows and columns of a tile."""
H, W = Extent("H"), Extent("W")
TI, Y, A = (LoopVariable(name, H) for name in ("ti", "i", "a"))
TJ, X, B = (LoopVariable(name, W) for name in ("tj", "j", "b"))
IMAGE, BLURRED = Field("image", (H, W), 1, REAL, Role.DATA), Field("blurred", (H, W), 1, REAL, Role.VECTOR)
SUMS, LARGEST = Field("sums", (H,), 1, REAL, Role.VECTOR), Field("largest", (W,), 1, REAL, Role.VECTOR)
TILE = Field("tile", (H, W), 1, REAL, Role.STORED)


def at(field: Field, *index: Affine | LoopVariable) -> Access:
    return Access(field, tuple(map(Affine.of, index)), 0)


def compute(value: Expr, reads: Iterable[Access], prefix: str, guarded: bool = False) -> loops.Evaluate:
    """The evaluation of one expression, whose reads are guarded, or are known to be inside."""

    def load(a: Access) -> loops.Load:
        checks = (InBounds(i, dim) for i, dim in zip(a.index, a.field.dims, strict=True))
        return loops.Load(loops.MemoryOperand(a), tuple(checks) if guarded else ())

    return replace(loops.evaluate([value], prefix), reads=tuple((a, load(a)) for a in reads))


def every(domain: Domain, extents: tuple[loops.Integer, ...], body: loops.Block, step: int = 1) -> loops.Block:
    """Loops from 0 below the extents, the last one innermost."""
    for i, high in reversed(list(zip(domain, extents, strict=True))):
        body = (loops.Loop(i, Affine(0), high, body, step=step),)
    return body


def tiled_blur() -> loops.Function:
    """3 x 3 sums of an image, tile by tile with its halo in local memory; the sum of each row and the largest number of
    each column of what comes out, as updates."""
    around = Affine.of(TI) + Affine.of(A) + -1, Affine.of(TJ) + Affine.of(B) + -1
    source = at(IMAGE, *around)
    stage = every(
        (A, B),
        (Affine(T + 2), Affine(T + 2)),
        (
            compute(var(source), [source], "s", guarded=True),
            loops.Store(loops.MemoryOperand(at(TILE, A, B)), var(source)),
        ),
    )
    y, x = Affine.of(Y) - Affine.of(TI), Affine.of(X) - Affine.of(TJ)
    taps = [at(TILE, y + di, x + dj) for di in range(3) for dj in range(3)]
    total = add(*map(var, taps))
    result = var(at(BLURRED, Y, X))
    blur = (
        compute(total, taps, "t"),
        loops.Store(loops.MemoryOperand(at(BLURRED, Y, X)), total),
        compute(result, [at(BLURRED, Y, X)], "u"),
        loops.Store(loops.MemoryOperand(at(SUMS, Y)), result, "+="),
        loops.Store(loops.MemoryOperand(at(LARGEST, X)), result, "max="),
    )
    ends = [loops.MinMax("min", Affine.of(t) + T, Affine.of(t.dim)) for t in (TI, TJ)]
    inside = (loops.Loop(X, Affine.of(TJ), Affine.of(loops.Variable("right")), blur),)
    tile = (
        loops.Alloc(TILE, (T + 2, T + 2)),
        *stage,
        loops.Let("bottom", ends[0]),
        loops.Let("right", ends[1]),
        loops.Loop(Y, Affine.of(TI), Affine.of(loops.Variable("bottom")), inside),
    )
    return loops.Function("tiled_blur", every((TI, TJ), (Affine.of(H), Affine.of(W)), tile, step=T))


class Context(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("field", "plane", "size", "pitch", "segments", "count", "param")),
        *((name, ctypes.c_void_p) for name in ("partial", "table", "kernels")),
        ("fields", ctypes.c_int64),
    )


@pytest.fixture(scope="module", params=["float32", "float64"])
def blur(request: pytest.FixtureRequest) -> tuple[str, ctypes.CDLL]:
    dtype: str = request.param
    symbols = SymbolTable(
        fields={f: n for n, f in enumerate((IMAGE, BLURRED, SUMS, LARGEST))}, sizes={H: 0, W: 1}, grids={(H, W): 0}
    )
    conventions = Conventions(symbols, c_dialect(dtype), CPU, ())
    headers = [native_header("kernels/c/prelude.h"), kernel_header()]
    lowered = arithmetic(tiled_blur(), conventions.dialect)
    text = CPrinter(conventions).function(declare(flatten(lowered, conventions)))
    run = "OPTPY_EXPORT void run(const Context *c) { tiled_blur(c, 0, 0, 0); }\n"
    return dtype, compile_c("\n".join([*headers, text, run]), name="tiled", werror=True).library


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (8, 16), (13, 21)])
def test_tiles_with_halos_and_updates_are_right(blur: tuple[str, ctypes.CDLL], rows: int, columns: int) -> None:
    dtype, library = blur
    pitch = columns + 3
    image = np.full((rows, pitch), np.nan, dtype)  # padding that nothing may read
    image[:, :columns] = np.random.default_rng(rows).integers(-9, 10, (rows, columns))
    blurred, sums, largest = np.zeros((rows, pitch), dtype), np.zeros(rows, dtype), np.full(columns, -100, dtype)
    fields = np.array([a.ctypes.data for a in (image, blurred, sums, largest)], np.uint64)
    plane, size, pitches = np.zeros(4, np.int64), np.array([rows, columns]), np.array([pitch])
    context = Context(field=fields.ctypes.data, plane=plane.ctypes.data, size=size.ctypes.data, fields=4)
    context.pitch = pitches.ctypes.data
    library.run(ctypes.byref(context))

    padded = np.pad(image[:, :columns], 1)
    expected = sum(padded[di : di + rows, dj : dj + columns] for di in range(3) for dj in range(3))
    np.testing.assert_array_equal(blurred[:, :columns], expected)
    np.testing.assert_array_equal(blurred[:, columns:], 0)
    np.testing.assert_array_equal(sums, np.sum(expected, axis=1))
    np.testing.assert_array_equal(largest, np.max(expected, axis=0))


def test_the_text_shows_tiles_guards_and_updates() -> None:
    text = str(tiled_blur())
    assert "for ti in [0, H) by 8" in text
    assert "alloc tile[10, 10]" in text
    assert "if in_bounds(a + ti - 1, H) and in_bounds(b + tj - 1, W) else 0" in text
    assert "sums[i] += blurred[i, j]" in text
    assert "largest[j] max= blurred[i, j]" in text
