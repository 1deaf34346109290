"""The structures that Python fills in lie in memory as the compiler lays them out."""

from __future__ import annotations

import ctypes
from ctypes import c_int64

import numpy as np
import pytest

from optpy.errors import InternalError
from optpy.kernels.codegen.cuda import context as cuda
from optpy.kernels.codegen.kernel_header import CONTEXT, KERNEL, SEGMENT
from optpy.kernels.codegen.normal_rows import NORMAL_VISITS
from optpy.kernels.codegen.pcg_structures import PCG_ITERATION, PCG_LIMITS
from optpy.kernels.codegen.structures import Structure, enumeration
from optpy.kernels.codegen.symbol_table import SymbolTable
from optpy.kernels.runtime.cuda.context import SYNC
from optpy.kernels.runtime.segments import SEGMENT as SEGMENT_DTYPE
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.headers import native_header
from optpy.linear.aggregation import structures as aggregation
from optpy.linear.assembled.matrix import ASSEMBLED_SOLVE, NORMAL_MATRIX
from optpy.linear.cholesky import structures as cholesky
from optpy.linear.multigrid import structures as multigrid
from optpy.linear.pcg.state import PCG_KERNELS, PCG_ROW, PCG_STATE
from optpy.linear.pcg.status import PcgStatus
from optpy.linear.safe_work import SAFE_POINT

pytestmark = pytest.mark.native

NATIVE = [
    SAFE_POINT, SEGMENT, CONTEXT, KERNEL, PCG_KERNELS, PCG_LIMITS, PCG_ITERATION, PCG_ROW, PCG_STATE, NORMAL_VISITS,
    NORMAL_MATRIX, aggregation.LEVEL, aggregation.AGGREGATION, ASSEMBLED_SOLVE, multigrid.LEVEL, multigrid.CHANNEL,
    multigrid.MULTIGRID, cholesky.PANELS, cholesky.CHOLESKY,
]  # fmt: skip
CUDA = [cuda.SYNC, cuda.DIVISOR, cuda.TILES, PCG_LIMITS, PCG_ITERATION, cuda.context_structure(SymbolTable(), 10, 7)]
LEVELS = [cuda.DIVISOR, multigrid.CUDA_LEVEL, multigrid.CUDA_CHANNEL, cuda.SYNC, multigrid.cuda_context(3)]
SETS = {"native": NATIVE, "cuda": CUDA, "multigrid on cuda": LEVELS}

TYPES = """
#include <stdatomic.h>
#define OPTPY_REAL float
typedef int16_t AmgCompact;
typedef struct Team Team;
typedef void (*NormalRow)(void);
typedef void (*KernelRange)(void);
struct Kernel;
"""


@pytest.mark.parametrize("name", SETS)
def test_sizes_and_offsets_are_those_of_the_compiler(name: str) -> None:
    structures = SETS[name]
    tables = [
        f"OPTPY_EXPORT const int64_t layout_{n}[] = {{sizeof({s.name}), "
        + ", ".join(f"offsetof({s.name}, {member})" for member, _ in s.fields)
        + "};"
        for n, s in enumerate(structures)
    ]
    texts = [native_header("kernels/c/prelude.h"), TYPES, *(s.text for s in structures), *tables]
    library = compile_c("\n".join(texts) + "\n", name="structures", werror=True).library
    for n, s in enumerate(structures):
        ours = type(s.name, (ctypes.Structure,), {"_fields_": s.fields})
        found = list((c_int64 * (1 + len(s.fields))).in_dll(library, f"layout_{n}"))
        assert found == [ctypes.sizeof(ours), *(getattr(ours, member).offset for member, _ in s.fields)], s.name


def test_arrays_of_structures_lie_as_the_structures_do() -> None:
    for dtype, s in ((SEGMENT_DTYPE, SEGMENT), (SYNC, cuda.SYNC)):
        ours = type(s.name, (ctypes.Structure,), {"_fields_": s.fields})
        assert dtype.itemsize == ctypes.sizeof(ours)
        assert dtype.names == tuple(member for member, _ in s.fields)
    assert np.zeros(1, SEGMENT_DTYPE)["work"].dtype == np.int64


def test_enumerations_have_the_numbers_of_python() -> None:
    members = ", ".join(f"PCG_{status.name}" for status in PcgStatus)
    count = f"OPTPY_EXPORT const int64_t statuses[] = {{{members}}};"
    source = "\n".join([native_header("kernels/c/prelude.h"), enumeration("PCG_", PcgStatus), count])
    library = compile_c(source + "\n", name="structures", werror=True).library
    assert list((c_int64 * len(PcgStatus)).in_dll(library, "statuses")) == list(PcgStatus)


def test_a_declaration_that_is_not_understood_is_refused() -> None:
    with pytest.raises(InternalError, match="the structure Odd has a declaration that is not understood: x : 3"):
        _ = Structure("Odd", "int x : 3;").fields
