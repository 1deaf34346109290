"""Conjugate gradients on a GPU with each preconditioner: what a variant names is what its headers define."""

from __future__ import annotations

import functools
import re

import pytest

from optpy.api.pipeline import derive_cuda
from optpy.ir import VECTOR_UPDATES, Group, Task
from optpy.kernels.codegen.cuda.program import CudaProgram
from optpy.kernels.toolchain.headers import native_header
from optpy.kernels.toolchain.nvrtc import BOUNDS
from optpy.linear.jacobi.jacobi import BLOCKS, DIAGONAL
from optpy.linear.multigrid.cuda_grid import ON_GRID
from optpy.linear.pcg.variant import Variant
from tests.support.applications import ENERGIES

VARIANTS = (DIAGONAL, BLOCKS, ON_GRID)


def ids(variant: Variant) -> str:
    return str(variant.preconditioning) or "diagonal"


@functools.cache
def program_with(variant: Variant) -> CudaProgram:
    """The program of an energy with which it may be solved: blocks that are not diagonal, or pixels."""
    energy = ENERGIES["mesh_deformation so3" if variant is BLOCKS else "image_warping"]
    return derive_cuda(energy.problem, "float32").listing


def kernels(header: str) -> set[str]:
    """The kernels that a header defines, by their own definition or by a macro of pcg.cuh."""
    text = re.sub(r"#define.*?[^\\]\n", "", native_header(header), flags=re.DOTALL)
    return set(re.findall(r"(?:\bPCG_STAGE(?:_SUM|_END)?\(|\) |\n    )(pcg_\w+)(?=\(const __grid|, )", text))


@pytest.mark.parametrize("variant", VARIANTS, ids=ids)
def test_every_kernel_has_its_launch_bounds_and_no_others_have(variant: Variant) -> None:
    program = program_with(variant)
    bounds = set(re.findall(rf"#ifndef {BOUNDS}(pcg_\w+)", variant.source(program, True, "int")))
    defined = kernels("linear/pcg/pcg.cuh") | kernels(variant.header)
    assert len(defined) > 8
    assert {name for name in bounds if "prepare" not in name} == defined


@pytest.mark.parametrize("variant", VARIANTS, ids=ids)
def test_the_vector_updates_are_those_of_its_own_preconditioning(variant: Variant) -> None:
    program = program_with(variant)
    text = variant.source(program, False, "int")
    for task in (*VECTOR_UPDATES, *variant.further):
        (phase,) = program.phases[Group.of(task, variant.preconditioning)]
        assert f"#define phase_{task.text} {phase.name}\n" in text
        assert text.count(f"void {phase.name}(") == 1
    assert program.phases[Group.PRODUCT][0].name in text
    assert program.phases[Group.PRODUCT_DAMPED][0].name not in text
    assert (f"{BOUNDS}pcg_solve" in text) == variant.in_one_kernel


def test_the_kernels_of_groups_know_no_sweeps() -> None:
    program = program_with(ON_GRID)
    text = program.routines_source("int")
    assert program.phases[Group.NORMS_SMOOTHED][0].launch in text
    for task in (*VECTOR_UPDATES, Task.SMOOTH, Task.POWER):
        assert f"run_{task.text}" not in text
        assert f"phase_{task.text}" not in text
