"""The limits and the scalars of conjugate gradients, declared once for C, CUDA and Python."""

from __future__ import annotations

import ctypes

from optpy.kernels.codegen.structures import Structure

PCG_LIMITS = Structure(
    "PcgLimits",
    """
    int64_t max_iterations, min_iterations, reset_period;
    double eta, r_tolerance;
    double precision;      /* of the vectors */
""",
)
PCG_ITERATION = Structure(
    "PcgIteration",
    """
    int64_t k, status;     /* iterations done; PCG_... */
    int64_t resumed;       /* the iteration after which another preconditioner has taken over last */
    double rho, rho_0, pAp, alpha, beta, Q, zeta;
    double pending;        /* alpha while delta += alpha p is still to be done; else 0 */
    double prepared;       /* on a GPU: what kernels before the last one of A p have left of p.Ap */
    int64_t k_seen;        /* the last iteration with progress to be seen, ... */
    double rho_seen, Q_seen; /* ... and what there was after it */
""",
)


class PcgLimits(ctypes.Structure):
    """The numbers that the method tests by."""

    _fields_ = PCG_LIMITS.fields


class PcgIteration(ctypes.Structure):
    """The scalars after an iteration: all that the next one needs beside the vectors."""

    _fields_ = PCG_ITERATION.fields
