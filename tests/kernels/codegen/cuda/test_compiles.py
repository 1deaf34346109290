"""The kernels of all applications compile for GPUs, without a warning, and keep to their registers.

All of them at once take long. In each run a few energies are compiled for one architecture, each in one form, one
precision and one of the conjugate gradients; in `deep` runs all of them are, for every architecture.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from typing import Literal

import pytest

from optpy.api.pipeline import derive_cuda
from optpy.ir import Coupling, Target
from optpy.kernels.codegen.cuda.program import CudaProgram
from optpy.kernels.toolchain.cubin import read_cubin
from optpy.kernels.toolchain.nvrtc import compile_cuda
from optpy.linear.jacobi.jacobi import BLOCKS, DIAGONAL
from optpy.linear.multigrid.cuda_grid import ON_GRID
from optpy.linear.multigrid.cuda_levels import multigrid_source
from optpy.linear.pcg.variant import Variant
from tests.integration.test_operators import exact_functions
from tests.support.applications import ENERGIES
from tests.support.deep import but_deep
from tests.support.schedules import by_hand

pytest.importorskip("cupy", reason="CuPy is not installed")
pytestmark = pytest.mark.nvrtc

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
FULL = "sm_90"

Form = Literal["gather", "scatter"]
FORMS: tuple[Form, ...] = ("gather", "scatter")
VARIANTS = tuple(product(FORMS, ("float32", "float64")))
PCG = tuple(product((DIAGONAL, BLOCKS), (False, True)))
MULTIGRID = tuple((ON_GRID, damped) for damped in (False, True))


SOME: tuple[tuple[str, Form, str, tuple[Variant, bool]], ...] = (
    ("image_warping", "gather", "float32", (ON_GRID, False)),
    ("poisson_image_editing", "gather", "float64", (ON_GRID, True)),
    ("laplacian_smoothing", "scatter", "float32", (DIAGONAL, False)),
    ("mesh_deformation euler", "scatter", "float64", (BLOCKS, True)),
    ("mesh_deformation so3", "gather", "float32", (BLOCKS, False)),
    ("pose_graph plane", "scatter", "float32", (DIAGONAL, True)),
    ("blendshape_fitting", "gather", "float32", (DIAGONAL, True)),
    ("optical_flow", "gather", "float32", (BLOCKS, True)),
)
"""What is compiled in each run: all forms, precisions and conjugate gradients, as few as have them all."""


@dataclass(frozen=True)
class Source:
    """A text to compile, and what it is."""

    name: str
    text: str


@functools.cache
def program(name: str, form: Form, dtype: str) -> CudaProgram:
    scatters = form == "scatter"
    way = by_hand(ENERGIES[name], "scatter" if scatters else None)
    return derive_cuda(ENERGIES[name].problem, dtype, way, Target.GPU if scatters else Target.DETERMINISTIC_GPU).listing


def sources(
    name: str, form: Form, dtype: str, pcg: tuple[tuple[Variant, bool], ...], index: str = "int"
) -> Iterator[Source]:
    """The groups' kernels, and conjugate gradients by some (variant, damped)."""
    made = program(name, form, dtype)
    what = f"{name}, {form}, {dtype}, {index}"
    yield Source(f"{what}: routines", made.routines_source(index))
    for variant, damped in pcg:
        if variant.start in made.phases:
            yield Source(f"{what}: pcg{variant.preconditioning} {damped}", variant.source(made, damped, index))
            if variant is ON_GRID and isinstance(made.coupling, Coupling):
                yield Source(f"{what}: multigrid", multigrid_source(made.coupling, dtype))


def everything() -> Iterator[Source]:
    for name, (form, dtype) in product(ENERGIES, VARIANTS):
        yield from sources(name, form, dtype, PCG + MULTIGRID)


def chosen() -> Iterator[Source]:
    """Of each of some energies one variant, and one of the conjugate gradients."""
    for name, form, dtype, pcg in SOME:
        yield from sources(name, form, dtype, (pcg,))


def problems_of(source: Source, architecture: str) -> list[str]:
    """Kernels that spill registers; a source with warnings is an error."""
    kernels = read_cubin(compile_cuda(source.text, architecture, werror=True).image)
    assert kernels, source.name
    return [
        f"{source.name}: {name} has {k.registers} registers and {k.local_bytes} bytes of local memory"
        for name, k in kernels.items()
        if k.local_bytes
    ]


def check(found: Iterator[Source], architecture: str) -> None:
    distinct = {s.text: s for s in found}.values()
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # NVRTC runs without the lock of the interpreter
        problems = [p for ps in pool.map(lambda s: problems_of(s, architecture), distinct) for p in ps]
    assert not problems, "\n".join(problems)


def test_applications_compile_without_warnings_within_their_registers() -> None:
    check(chosen(), FULL)


@pytest.mark.deep
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_do_so_in_every_form_and_precision_for_every_architecture(architecture: str) -> None:
    check(everything(), architecture)


@pytest.mark.parametrize(
    "form_and_part",
    but_deep(product(FORMS, ("routines", "pcg_block")), (("gather", "routines"), ("scatter", "pcg_block"))),
)
def test_indices_of_64_bits_compile(form_and_part: tuple[Form, str]) -> None:
    form, part = form_and_part
    found = sources("mesh_deformation so3", form, "float32", ((BLOCKS, True),), "long long")
    (one,) = (s for s in found if f": {part}" in s.name)
    check(iter([one]), FULL)


def test_every_form_and_precision_and_all_conjugate_gradients_are_compiled() -> None:
    names = [s.name for s in chosen()]
    for part in (
        *(name for name, *_ in SOME),
        *(f"{form}, {dtype}, int: routines" for form, dtype in VARIANTS),
        ": multigrid",
    ):
        assert any(part in name for name in names), part
    for variant, damped in PCG + MULTIGRID:
        assert any(f"pcg{variant.preconditioning} {damped}" in name for name in names), (variant, damped)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_functions_of_vecmath_compile(dtype: str) -> None:
    made = derive_cuda(exact_functions().problem, dtype, target=Target.DETERMINISTIC_GPU).listing
    check(iter([Source("functions", made.routines_source("int"))]), FULL)
