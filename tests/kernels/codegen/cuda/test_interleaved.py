"""Interleaved channels: their padding, the vector loads that bring them, and that padding is never data."""

from __future__ import annotations

import functools
import re
from collections import Counter
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optpy as op
from optpy.api.pipeline import derive_cuda
from optpy.energy.derive.vectors import candidate, vector
from optpy.ir import Field, Group, Target, VectorKind
from optpy.kernels.codegen.cuda.program import CudaProgram
from optpy.kernels.codegen.layout import CPU, CUDA, cuda_layout, point_stride, storage_dtype, widest_load
from optpy.kernels.codegen.passes.pack_channels import windows
from optpy.kernels.runtime.buffers import Buffers, planned_bytes
from optpy.kernels.runtime.cuda.device import Device
from optpy.kernels.runtime.cuda.executor import largest_index
from tests.integration.test_operators_on_device import WAYS, solver_on
from tests.support.applications import ENERGIES
from tests.support.deep import but_deep
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.operator_checks import check_everything
from tests.support.schedules import GATHERS, SCATTERS, Way, by_hand

N, L = op.dims("N L")
n, m = op.indices(N, L)
CHANNELS = (1, 2, 3, 4, 5, 6, 7, 9)


@functools.cache
def chain(channels: int) -> op.Energy:
    """Records of every length and type at both ends of edges, and next to them, where they may be outside."""
    X, A = op.Unknown("X", (N,), channels), op.Array("A", (N,), channels)
    mask, number = op.Array("mask", (N,), 3, np.bool_), op.Array("number", (N,), 5, np.int32)
    exact = op.Array("exact", (N,), 3, np.float64)
    a, b = op.Graph("edges", L, (N, N))[m]
    last = channels - 1
    tie = [
        op.sin(X[a][c]) * A[b][last - c] - X[b][(c + 1) % channels] * number[b][c % 5] / 3 + exact[a][c % 3]
        for c in range(channels)
    ]
    near = X[a + 1][last] * X[a + 1][0] - op.where(mask[b][0] | mask[b][2], A[a - 1][last] * A[a - 1][0], X[b][last])
    return op.Energy(tie=op.vector(*tie), near=near, fit=X[n] - A[n], fixed={X: op.value(n) == 2})


def data_of_chain(channels: int, points: int, edges: int) -> dict[str, Any]:
    rng = np.random.default_rng(channels)
    return dict(
        X=rng.normal(size=(points, channels)), A=rng.normal(size=(points, channels)),
        mask=rng.random((points, 3)) < 0.5, number=rng.integers(-3, 4, (points, 5)).astype(np.int32),
        exact=rng.normal(size=(points, 3)), edges=rng.integers(0, points, (edges, 2)),
    )  # fmt: skip


@functools.cache
def program(channels: int, dtype: str, way: Way = None, architecture: str = "sm_90") -> CudaProgram:
    energy = chain(channels)
    target = Target.GPU if way in SCATTERS else Target.DETERMINISTIC_GPU
    return derive_cuda(energy.problem, dtype, by_hand(energy, way), target, cuda_layout(architecture)).listing


# -- how long they are -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("itemsize", "expected"),
    [(4, (1, 2, 4, 4, 8, 8, 8, 12)), (8, (1, 2, 4, 4, 6, 6, 8, 10)), (1, (1, 2, 4, 4, 8, 8, 8, 12))],
)
def test_what_graphs_read_is_padded_to_whole_loads_and_nothing_else_is(
    itemsize: int, expected: tuple[int, ...]
) -> None:
    assert tuple(CUDA.point_stride(c, itemsize, True) for c in CHANNELS) == expected
    assert tuple(CUDA.point_stride(c, itemsize, False) for c in CHANNELS) == CHANNELS
    assert tuple(CPU.point_stride(c, itemsize, True) for c in CHANNELS) == CHANNELS


@given(st.integers(1, 100), st.sampled_from([1, 4, 8]))
def test_no_load_of_a_point_straddles_two_sectors(channels: int, itemsize: int) -> None:
    stride = CUDA.point_stride(channels, itemsize, True)
    assert channels <= stride < channels + widest_load(itemsize)
    for window in windows(range(channels), stride, widest_load(itemsize)):
        begins = {(point * stride + window.first) * itemsize for point in range(64)}
        assert all(b % (window.width * itemsize) == 0 and b % 32 + window.width * itemsize <= 32 for b in begins)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fields_that_exchange_their_memory_have_strides_alike(dtype: str) -> None:
    symbols = program(3, dtype).symbols
    (X,) = chain(3).problem.unknowns

    def length(f: Field) -> int:
        assert f in symbols.fields
        return point_stride(f, symbols, dtype, CUDA)

    assert {length(f) for f in (X, candidate(X), vector(VectorKind.P, X), vector(VectorKind.DELTA, X))} == {4}
    swept = (VectorKind.R, VectorKind.AP, VectorKind.G, VectorKind.D, VectorKind.M)
    # Conjugate gradients sweep over these, and nothing gathers them.
    assert {length(vector(kind, X)) for kind in swept} == {3}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", but_deep(CHANNELS, (1, 3, 5)))
def test_padding_is_allocated_planned_and_no_part_of_a_field(channels: int, dtype: str) -> None:
    symbols = program(channels, dtype).symbols
    sizes = dict.fromkeys(symbols.sizes, 70)
    made = Buffers(symbols, sizes, dtype, layout=CUDA)
    assert made.nbytes <= planned_bytes(symbols, sizes, dtype, CUDA) <= made.nbytes + 256 * len(symbols.fields)
    rng = np.random.default_rng(0)
    values = {f: rng.integers(0, 2, (70, f.channels)) for f in symbols.gathered}
    for f, value in values.items():
        made.write(f, value)
    for f, value in values.items():
        stride, memory = point_stride(f, symbols, dtype, CUDA), made.memory[f]
        np.testing.assert_array_equal(made.read(f), value)
        assert made.view(f).shape == (f.channels, 1, 70)
        assert made.view(f).strides[2] == stride * storage_dtype(f, dtype).itemsize
        assert memory.shape == (stride, 128)
        assert not memory[f.channels :].any()


@pytest.mark.parametrize(("channels", "largest"), [(3, 8000), (5, 15000)])
def test_padding_counts_where_32_bits_may_not_do(channels: int, largest: int) -> None:
    made = program(channels, "float32")
    buffers = Buffers(made.symbols, dict.fromkeys(made.symbols.sizes, 1000), "float32", layout=CUDA)
    # Five whole numbers, padded to eight; blocks of J^T J, of 15 numbers, which are not padded.
    assert largest_index(made, buffers) == largest


# -- which loads bring them ------------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 19)), st.integers(1, 20), st.sampled_from([1, 2, 4]))
def test_windows_are_aligned_disjoint_and_leave_single_channels_out(used: set[int], stride: int, widest: int) -> None:
    used = {c for c in used if c < stride}
    found = windows(used, stride, widest)
    covered: Counter[int] = Counter(c for w in found for c in w.channels)
    assert all(w.first % w.width == 0 == stride % w.width and 2 <= w.width <= widest for w in found)
    assert max(covered.values(), default=1) == 1
    assert max(covered, default=0) < stride
    assert all(len(used.intersection(w.channels)) >= 2 for w in found)
    left = sorted(used - set(covered))
    for pair in pairwise(left):  # no two of them would have fitted into one load
        assert not windows(pair, stride, widest)


@pytest.mark.parametrize(
    ("used", "stride", "widest", "expected"),
    [
        ((0, 1, 2), 4, 4, [(0, 4)]),
        ((0, 1), 4, 4, [(0, 2)]),
        ((1, 2), 4, 4, [(0, 4)]),
        ((2,), 4, 4, []),
        (range(6), 8, 4, [(0, 4), (4, 2)]),
        (range(6), 6, 4, [(0, 2), (2, 2), (4, 2)]),
        (range(3), 3, 4, []),
        (range(3), 4, 2, [(0, 2)]),
        (range(9), 12, 4, [(0, 4), (4, 4)]),
    ],
)
def test_windows_by_hand(used: Any, stride: int, widest: int, expected: list[tuple[int, int]]) -> None:
    assert [(w.first, w.width) for w in windows(used, stride, widest)] == expected


def product_source(name: str, dtype: str) -> str:
    made = derive_cuda(ENERGIES[name].problem, dtype, target=Target.DETERMINISTIC_GPU).listing
    return "\n".join(made.functions[k] for phase in made.phases[Group.PRODUCT_DAMPED] for k in phase.kernels)


def test_three_channels_are_gathered_by_one_load() -> None:
    text = product_source("mesh_deformation euler", "float32")
    loads = re.findall(r"optpy_get<(\d)>\(f\d+_\d+(?: - \d)? \+ \(table\w+\) \* (\d+)\)", text)
    # UrShape and p.Offset at the other end; those, p.Angle, and six numbers stored, at the end that an edge comes from.
    assert Counter(loads) == {("4", "4"): 5, ("4", "8"): 1, ("2", "8"): 1}
    assert not re.search(r"f\d+_\d+\[\(table", text)


def test_a_point_that_may_be_outside_is_not_loaded_there() -> None:
    loads = [line for text in program(3, "float32").functions for line in text.split("\n") if "optpy_get<" in line]
    beside = [line for line in loads if re.search(r"\+ \(\w+ [+-] 1\) \* 4", line)]
    assert beside
    assert all(re.search(r", \(optpy_uindex\)\(\w+ [+-] 1\) < \(optpy_uindex\)n_N\)", line) for line in beside)


def loads_in_ptx(text: str, kernel: str) -> Counter[str]:
    """How many loads from global memory there are of each width and type."""
    entry = re.search(rf"\.entry {kernel}\(.*?\n}}\n", text, re.DOTALL)
    assert entry is not None
    return Counter(re.findall(r"\bld\.global\.((?:v\d\.)?[fu]\d+)", entry[0]))


@pytest.mark.nvrtc
@pytest.mark.parametrize(
    ("dtype", "wide", "narrow", "scalars"), [("float32", "v4.f32", "f32", 6), ("float64", "v2.f64", "f64", 20)]
)
def test_the_compiler_keeps_the_vector_loads(dtype: str, wide: str, narrow: str, scalars: int) -> None:
    nvrtc = pytest.importorskip("cupy", reason="CuPy is not installed").cuda.nvrtc
    made = derive_cuda(ENERGIES["mesh_deformation euler"].problem, dtype, target=Target.DETERMINISTIC_GPU).listing
    compiled = nvrtc.createProgram(made.routines_source("int"), "kernels.cu", (), ())
    nvrtc.compileProgram(compiled, ("-arch=compute_90", "-std=c++17"))
    loads = loads_in_ptx(nvrtc.getPTX(compiled).decode(), "run_applyJTJ_damped_0")
    # One by one come the six numbers of D at each point, which nothing gathers, and in float64 the third of three.
    assert loads[wide] >= 14
    assert loads[narrow] <= scalars


# -- that they are right ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers",
    but_deep(
        [*product(["float32"], (2, 3, 5, 6, 7, 9)), *product(["float64"], (1, 3, 4, 5, 7, 9))],
        [*product(["float32"], (2, 3, 7, 9)), *product(["float64"], (3, 4, 5))],  # every way once
    ),
)
def test_interleaved_channels_of_every_number_agree_with_the_dense_jacobian(
    gpu: Device, numbers: tuple[str, int]
) -> None:
    dtype, channels = numbers
    epsilon = 5e-5 if dtype == "float32" else 1e-11
    turn = CHANNELS.index(channels) + (dtype == "float64")  # nearly every way in both precisions
    solver = solver_on(gpu, chain(channels), dtype, WAYS[turn % len(WAYS)])
    for points, edges in ((3, 1), (20, 50)):
        data = data_of_chain(channels, points, edges)
        check_everything(chain(channels), data, np.dtype(dtype).type, epsilon, solver)


@pytest.mark.parametrize("way", [GATHERS[0], GATHERS[-1], *SCATTERS], ids=str)
def test_padded_points_in_every_form(gpu: Device, way: Way) -> None:
    # Only numbers in float32 are added to by vectors.
    dtype, epsilon = ("float32", 5e-5) if way in SCATTERS else ("float64", 1e-11)
    solver = solver_on(gpu, chain(3), dtype, way)
    check_everything(chain(3), data_of_chain(3, 20, 50), np.dtype(dtype).type, epsilon, solver)


@pytest.mark.parametrize(
    ("dtype", "architecture", "vectors"),
    [("float32", "sm_90", True), ("float32", "sm_100", True), ("float32", "sm_80", False), ("float64", "sm_90", False)],
)
def test_what_products_add_to_is_padded_where_there_are_vector_additions(
    dtype: str, architecture: str, vectors: bool
) -> None:
    made = program(3, dtype, SCATTERS[0], architecture)
    (X,) = chain(3).problem.unknowns
    ap, g = vector(VectorKind.AP, X), vector(VectorKind.G, X)
    assert point_stride(ap, made.symbols, dtype, made.layout) == (4 if vectors else 3)
    assert point_stride(g, made.symbols, dtype, made.layout) == 3
    text = "\n".join(made.functions[k] for phase in made.phases[Group.PRODUCT] for k in phase.kernels)
    assert ("optpy_add<7>(f" in text) == vectors
    assert ("optpy_add(&f" in text) == (not vectors)


def test_a_gpu_that_adds_one_number_at_a_time(emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "architecture", "sm_80")
    solver = solver_on(emulated, chain(3), "float32", SCATTERS[0])
    check_everything(chain(3), data_of_chain(3, 20, 50), np.float32, 5e-5, solver)
