"""The structures that native conjugate gradients take, declared once for C and Python."""

from __future__ import annotations

import ctypes

from optpy.kernels.codegen.structures import Structure

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
    /* limits */
    int64_t max_iterations, min_iterations, reset_period;
    double eta, r_tolerance;
    double precision;      /* of the vectors */
    SafePoint *safe;       /* after each iteration; where it stops: late, with PCG_TIME, else to be called again */
    /* state */
    int64_t k, status;
    int64_t resume;        /* go on from delta with another preconditioner than before; and ... */
    int64_t resumed;       /* ... the iteration after which that happened last */
    double rho, rho_0, alpha, beta, pAp, Q, zeta;
    int64_t k_seen;        /* the last iteration with progress to be seen, ... */
    double rho_seen, Q_seen; /* ... and what there was after it */
    double *trace;         /* k, rho, pAp, alpha, Q, zeta, rho_next of each iteration; or null */
""",
)


class PcgKernels(ctypes.Structure):
    """The kernels of an iteration."""

    keeps: object
    """Alive: what ``preconditioner`` and ``omega`` point at."""

    _fields_ = PCG_KERNELS.fields


class PcgState(ctypes.Structure):
    """The limits of the loop, and its scalars."""

    _fields_ = PCG_STATE.fields
