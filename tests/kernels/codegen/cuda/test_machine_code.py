"""What the machine code of products for GPUs has, and has not: counted in the disassembly, for two architectures."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product as product_of

import pytest

from optpy.api.pipeline import derive_cuda
from optpy.ir import Coupling, Group, Target
from optpy.kernels.codegen.layout import cuda_layout
from optpy.kernels.toolchain.cubin import KernelResources, read_cubin
from optpy.kernels.toolchain.nvrtc import compile_cuda
from optpy.linear.multigrid.cuda_grid import ON_GRID
from optpy.linear.multigrid.cuda_levels import multigrid_source
from tests.support.applications import ENERGIES
from tests.support.deep import but_deep
from tests.support.sass import Code, Instruction, find_nvdisasm, machine_code
from tests.support.schedules import by_hand

pytest.importorskip("cupy", reason="CuPy is not installed")
NVDISASM = find_nvdisasm() or ""
pytestmark = [
    pytest.mark.nvrtc,
    pytest.mark.skipif(not NVDISASM, reason="no nvdisasm; pip install nvidia-cuda-nvdisasm"),
]

ARCHITECTURES = ("sm_80", "sm_90")


@dataclass(frozen=True)
class Kernel:
    """The last kernel of a product with J^T J."""

    code: Code
    resources: KernelResources


@functools.cache
def product(name: str, architecture: str, dtype: str = "float32", scatters: bool = False) -> Kernel:
    """Of an energy of problems/, compiled alone."""
    target = Target.GPU if scatters else Target.DETERMINISTIC_GPU
    way = by_hand(ENERGIES[name], "scatter" if scatters else None)
    made = derive_cuda(ENERGIES[name].problem, dtype, way, target, cuda_layout(architecture))
    phases = made.listing.phases[Group.PRODUCT]
    text = replace(made.listing, phases={Group.PRODUCT: phases}).routines_source("int")
    compiled = compile_cuda(text, architecture)
    last = phases[-1].launch
    return Kernel(machine_code(NVDISASM, compiled.path)[last], read_cubin(compiled.image)[last])


POISSON, WARPING, MESH = "poisson_image_editing", "image_warping", "mesh_deformation euler"
VOLUME = "volumetric_deformation"
ON_GRIDS = but_deep(product_of((POISSON, WARPING), ARCHITECTURES), tuple(product_of((POISSON,), ARCHITECTURES)))
ON_ALL_GRIDS = (*ON_GRIDS, *product_of((VOLUME,), ARCHITECTURES))
OVER_EDGES = but_deep(product_of((True, False), ARCHITECTURES), tuple(product_of((True,), ARCHITECTURES)))


@pytest.mark.parametrize("case", ON_ALL_GRIDS, ids=str)
def test_products_on_grids_do_not_divide(case: tuple[str, str]) -> None:
    code = product(*case).code
    assert code.count("LDG") > 20
    assert code.count("I2F", "MUFU.RCP") == 0  # by which whole numbers and others are divided


@pytest.mark.parametrize("case", OVER_EDGES, ids=str)
def test_products_over_edges_do_not_divide(case: tuple[bool, str]) -> None:
    scatters, architecture = case
    code = product(MESH, architecture, scatters=scatters).code
    assert code.count("LDG") > 5
    assert code.count("I2F", "MUFU.RCP") == 0


@pytest.mark.parametrize("case", but_deep(product_of((POISSON, VOLUME), ARCHITECTURES), ((POISSON, "sm_80"),)), ids=str)
def test_no_kernel_divides_whole_numbers(case: tuple[str, str]) -> None:
    """Neither sweeps do, nor the levels of multigrid."""
    name, architecture = case
    made = derive_cuda(ENERGIES[name].problem, "float32", target=Target.DETERMINISTIC_GPU).listing
    assert isinstance(made.coupling, Coupling)
    sources = [ON_GRID.source(made, True, "int"), multigrid_source(made.coupling, "float32")]
    sources += [made.routines_source("int")] * (name == POISSON)
    codes: dict[str, Code] = {}
    for text in sources:
        codes |= machine_code(NVDISASM, compile_cuda(text, architecture).path)
    assert {"pcg_smooth_update", "mg_interpolate_to_finest", "mg_build_small_levels"} <= codes.keys()
    assert not {name for name, code in codes.items() if code.divisions_of_whole_numbers}


@pytest.mark.parametrize("case", ON_GRIDS, ids=str)
def test_no_row_waits_for_its_mask(case: tuple[str, str]) -> None:
    """The rows of a strip begin with a bit; the loop before them loads eight of the mask, and waits for none."""
    code = product(*case).code
    rows = next(loop for loop in code.loops() if operations(loop, "STG") and len(operations(loop, "LDG")) > 5)
    branch = operations(rows, "BRA")[0]
    assert not operations(rows[:branch], "LD")
    masks = next(loop for loop in code.loops() if operations(loop, "LDG.E.U8"))
    loads = operations(masks, "LDG")
    assert len(loads) == 8
    for n in loads:
        assert not [i for i in masks[n + 1 : loads[-1]] if reads(i, masks[n].operands.split(",")[0])]


def operations(instructions: Sequence[Instruction], beginning: str) -> list[int]:
    """Where some operations stand, given by how they begin."""
    return [n for n, i in enumerate(instructions) if i.operation.startswith(beginning)]


def reads(instruction: Instruction, register: str) -> bool:
    """Whether an instruction has to wait for a register."""
    return re.search(rf"\b{register}\b", instruction.operands.partition(",")[2]) is not None


@pytest.mark.parametrize(
    "case",
    but_deep(
        (("sm_80", "float32", 9), ("sm_90", "float32", 3), ("sm_90", "float64", 9)),
        (("sm_80", "float32", 9), ("sm_90", "float32", 3)),
    ),
    ids=str,
)
def test_edges_add_without_bringing_what_was_there(case: tuple[str, str, int]) -> None:
    """An edge adds to three numbers of one end and to six of the other: to three vectors where the GPU can."""
    architecture, dtype, expected = case
    code = product(MESH, architecture, dtype, scatters=True).code
    assert code.count("RED") == expected
    assert code.count("ATOM") == 1  # who arrives last


@pytest.mark.parametrize(
    "case",
    but_deep(
        REGISTERS := (
            (POISSON, False, "sm_80", 40),
            (POISSON, False, "sm_90", 40),
            (MESH, True, "sm_80", 40),
            (MESH, True, "sm_90", 40),
            (WARPING, False, "sm_80", 64),
            (WARPING, False, "sm_90", 64),
        ),
        REGISTERS[:4],
    ),
    ids=str,
)
def test_products_keep_to_few_registers_without_spilling(case: tuple[str, bool, str, int]) -> None:
    name, scatters, architecture, registers = case
    found = product(name, architecture, scatters=scatters).resources
    assert found.registers <= registers
    assert found.local_bytes == 0
