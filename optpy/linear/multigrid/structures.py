"""The structures of the multigrid of a grid, declared once: for C, for CUDA, and for Python."""

from __future__ import annotations

import ctypes

from optpy.kernels.codegen.cuda.context import Divisor
from optpy.kernels.codegen.structures import Structure

_LEVEL = """
    int64_t size[3];          /* z, y, x */
    int64_t step[3];          /* finer points to a coarse one: 2, or 1 where the dim is too short to halve */
    int64_t row, slab;        /* elements to the next row, to the next slab */
    int64_t plane, origin;    /* elements to the next channel; of the first point within its plane */
    OPTPY_REAL *matrix;       /* [pair][neighbour]: A(row channel, here; column channel, here + offset) */
    OPTPY_REAL *inverse;      /* [inverse pair]: of the diagonal blocks */
    OPTPY_REAL *x, *b, *t;    /* [channel] */"""
_CHANNEL = """
    OPTPY_REAL *values;
    const OPTPY_REAL *minus;  /* restricted: values - minus; or null */
    const OPTPY_REAL *mask;   /* interpolated to only where this is not 0; or null */"""

# -- on the CPU ------------------------------------------------------------------------------------------------------

LEVEL = Structure(
    "MgLevel",
    f"""{_LEVEL}
    const int64_t *offset;    /* of each neighbour of the half stencil */
    double omega;             /* the damping */
""",
)
# A channel of a grid without assuming a halo.
CHANNEL = Structure(
    "MgChannel",
    f"""
    const int64_t *size;
    int64_t row, slab;{_CHANNEL}
""",
)


class MultigridLevel(ctypes.Structure):
    """One level on the CPU."""

    _fields_ = LEVEL.fields


MULTIGRID = Structure(
    "Multigrid",
    """
    int64_t size[3], row, slab; /* of the finest grid */
    int64_t levels;
    MgLevel *level;
    double *factor;           /* L and D of the coarsest matrix, points * channels squared */
    double *work;             /* of the coarsest level: points * channels */
    double *partial;          /* rows of the first coarse level */
    double omega;             /* of the finest level */
    /* Where the solver's vectors stand on the finest grid: the field and the channel of each element. */
    const int (*r)[2], (*z)[2], (*Ap)[2], (*C)[2];
    const int *z_of;          /* the field z of each unknown */
    SafePoint *safe;          /* while all levels are computed; or null */
    const int *smooth, *power; /* kernels: z += omega D^-1 (r - A z), and z = omega D^-1 A z */
""",
    {"MgLevel": MultigridLevel},
)


class MultigridState(ctypes.Structure):
    """All levels on the CPU."""

    _fields_ = MULTIGRID.fields


# -- on a GPU --------------------------------------------------------------------------------------------------------

CUDA_LEVEL = Structure(
    "MgLevel",
    f"""{_LEVEL}
    double *omega;            /* the damping; while it is looked for, 1 / the last norm */
    Divisor by_size[2];       /* y, x */
""",
    {"Divisor": Divisor},
)
# A channel of a grid without a halo.
CUDA_CHANNEL = Structure("MgChannel", _CHANNEL)


class CudaLevel(ctypes.Structure):
    """One level on a GPU."""

    _fields_ = CUDA_LEVEL.fields


class CudaChannel(ctypes.Structure):
    """A channel of the finest grid on a GPU."""

    _fields_ = CUDA_CHANNEL.fields


def cuda_context(channels: int) -> Structure:
    """The one argument of the kernels on the levels.

    Args:
        channels: numbers at a point.
    """
    return Structure(
        "Context",
        f"""
    MgLevel level, coarser;
    const MgLevel *levels;    /* all of them */
    int64_t first, small, last; /* of the levels, for kernels that work on several; `small` is one block's first */
    int64_t size[3], row, slab; /* of the finest grid */
    Divisor by_size[2];       /* y, x; of 63 bits */
    MgChannel fine[{channels}];
    double *factor, *work;    /* of the coarsest level: points * channels squared, points * channels */
    Divisor by_coarsest;      /* points * channels */
    double *partial, *total;
    Sync *sync;
    const int64_t *status;  /* of conjugate gradients: once they have ended nothing is done; or null */
    double scale;             /* what the result is multiplied by */
    int add;                  /* whether what is interpolated is added to what is there */
    int colour, probe[3];     /* the channels, and the points, of a probe */
""",
        {"MgLevel": CudaLevel, "MgChannel": CudaChannel, "Divisor": Divisor},
    )
