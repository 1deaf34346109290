"""The kernels of all applications compile for every architecture, without a warning, and keep to their registers.

All of them at once take long. Without OPTPY_ALL_ARCHITECTURES=1 in the environment, every energy is compiled in every
form and precision, but each of them for one architecture: the oldest, the newest or one between, which takes two of the
four. Others take each form and precision of one energy.
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
from optpy.linear.multigrid.cuda_levels import multigrid_source
from tests.cuda.applications import ENERGIES
from tests.schedules import by_hand
from tests.test_operators import exact_functions

pytest.importorskip("cupy", reason="CuPy is not installed")

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
FULL = "sm_90"
WITH_ALL_ENERGIES = (ARCHITECTURES[0], FULL, ARCHITECTURES[-1])
EVERYTHING = os.environ.get("OPTPY_ALL_ARCHITECTURES") == "1"

Form = Literal["gather", "scatter"]
FORMS: tuple[Form, ...] = ("gather", "scatter")
VARIANTS = tuple(product(FORMS, ("float32", "float64")))
PCG = tuple(product(("", "_block"), (False, True)))
MULTIGRID = tuple(("_multigrid", damped) for damped in (False, True))


@dataclass(frozen=True)
class Source:
    """A text to compile, and what it is."""

    name: str
    text: str


@functools.cache
def program(name: str, form: Form, dtype: str) -> CudaProgram:
    way = by_hand(ENERGIES[name], "scatter" if form == "scatter" else None)
    return derive_cuda(ENERGIES[name].problem, dtype, way, Target.DETERMINISTIC_GPU).program


def sources(
    name: str, form: Form, dtype: str, pcg: tuple[tuple[str, bool], ...], index: str = "int"
) -> Iterator[Source]:
    """The groups' kernels, and conjugate gradients by some (suffix, damped)."""
    made = program(name, form, dtype)
    what = f"{name}, {form}, {dtype}, {index}"
    yield Source(f"{what}: routines", made.routines_source(index))
    for suffix, damped in pcg:
        if f"start{suffix}" in made.phases:
            yield Source(f"{what}: pcg{suffix} {damped}", made.pcg_source(suffix, damped, index))
            if suffix == "_multigrid" and isinstance(made.coupling, Coupling):
                yield Source(f"{what}: multigrid", multigrid_source(made.coupling, dtype))


def chosen(architecture: str) -> Iterator[Source]:
    if EVERYTHING:
        for name, (form, dtype) in product(ENERGIES, VARIANTS):
            yield from sources(name, form, dtype, PCG + MULTIGRID)
        return
    at = ARCHITECTURES.index(architecture)
    for n, name in enumerate(ENERGIES):
        turn = n + n // 2 + at  # of each energy another variant for each architecture
        pcg = (PCG[(n // 4 + at) % 2 * 2 + n % 2], MULTIGRID[(n // 2 + at) % 2]) if n % 2 == at % 2 else ()
        if architecture in WITH_ALL_ENERGIES or (pcg and n < 2 * len(VARIANTS)):
            yield from sources(name, *VARIANTS[turn % len(VARIANTS)], pcg)
        if architecture == FULL:
            yield from sources(name, *VARIANTS[(turn - 1) % len(VARIANTS)], ())


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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_applications_compile_without_warnings_within_their_registers(architecture: str) -> None:
    check(chosen(architecture), architecture)


@pytest.mark.parametrize("form", FORMS)
def test_indices_of_64_bits_compile(form: Form) -> None:
    check(sources("mesh_deformation so3", form, "float32", PCG[3:], "long long"), FULL)


def test_every_energy_is_compiled_in_every_form_and_precision_and_these_for_every_architecture() -> None:
    names = {architecture: [s.name for s in chosen(architecture)] for architecture in ARCHITECTURES}
    for architecture, found in names.items():
        energies = ENERGIES if architecture in WITH_ALL_ENERGIES else ()
        for part in (*energies, *FORMS, "float32", "float64", "routines", "pcg"):
            assert any(part in name for name in found), (architecture, part)
    together = " ".join(name for found in names.values() for name in found)
    for energy, (form, dtype) in product(ENERGIES, VARIANTS):
        assert f"{energy}, {form}, {dtype}, int: routines" in together
    for suffix, damped in PCG + MULTIGRID:
        assert f"pcg{suffix} {damped}" in together


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_functions_of_vecmath_compile(dtype: str) -> None:
    made = derive_cuda(exact_functions().problem, dtype, target=Target.DETERMINISTIC_GPU).program
    check(iter([Source("functions", made.routines_source("int"))]), FULL)
