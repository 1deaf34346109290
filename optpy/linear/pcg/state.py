"""The structures that native conjugate gradients take, declared once for C and Python; the trace's for CUDA, too."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np

from optpy.kernels.codegen.pcg_structures import PcgIteration, PcgLimits
from optpy.kernels.codegen.structures import Structure
from optpy.solver.pcg import PCGScalars
from optpy.solver.protocol import LinearLimits

# The kernels of each stage of an iteration, one for each grid of unknowns; those of apply may have others before them.
PCG_KERNELS = Structure(
    "PcgKernels",
    """
    int64_t grids, applied;
    const int *start, *direction, *apply, *update, *flush, *restart;
    /* Fields p and delta of each unknown: the residual is computed afresh by applying A to delta in the place of p. */
    int64_t unknowns;
    const int *p, *delta;
    /* What makes z = M^-1 r where the kernels do not, and returns r.z: a function of the library of its preconditioner,
     * which all threads of the team call when r is there. Null: the kernels do. */
    double (*precondition)(void *preconditioner, const Context *c, const struct PcgKernels *m, const double *scalar,
                           Team *team, int thread);
    void *preconditioner;
    const double *omega;      /* of the sweep that is part of the kernels, or null */
""",
)
PCG_STATE = Structure(
    "PcgState",
    """
    PcgLimits limits;
    PcgIteration iteration;
    int64_t resume;        /* go on from delta with another preconditioner than before */
    PcgRow *trace;         /* of each iteration; or null */
    SafePoint *safe;       /* after each iteration; where it stops: late, with PCG_TIME, else to be called again */
""",
    {"PcgLimits": PcgLimits, "PcgIteration": PcgIteration},
)
# A row of the trace.
PCG_ROW = Structure("PcgRow", f"\n    double {', '.join(f.name for f in dataclasses.fields(PCGScalars))};")


class PcgKernels(ctypes.Structure):
    """The kernels of an iteration."""

    keeps: object
    """Alive: what ``preconditioner`` and ``omega`` point at."""

    _fields_ = PCG_KERNELS.fields


class PcgState(ctypes.Structure):
    """A linear solve, whatever the device: its limits, and where it stands; the latter's members are its own, too."""

    _anonymous_ = ("iteration",)
    _fields_ = PCG_STATE.fields


def pcg_limits(limits: LinearLimits, max_iterations: int, dtype: str) -> PcgLimits:
    """The numbers that the native loop tests by.

    Args:
        limits: of the solve.
        max_iterations: from its begin; those of ``limits``, or fewer.
        dtype: of the vectors.
    """
    return PcgLimits(
        max_iterations=max_iterations,
        min_iterations=limits.min_iterations,
        reset_period=limits.residual_reset_period,
        eta=limits.eta,
        r_tolerance=limits.r_tolerance,
        precision=float(np.finfo(dtype).eps),
    )
