"""The structures of the factorisation, declared once for C and Python."""

from __future__ import annotations

import ctypes

from optpy.kernels.codegen.structures import Structure

# The pattern of L in P A P^T = L L^T: symbolic.h finds it, and cholesky.h works by it. A supernode is cut into panels;
# the columns of the later ones are rows of the earlier. Panel p has the columns first[p] .. first[p + 1] - 1 and the
# rows row[start[p]] .. row[start[p + 1] - 1] below them.
PANELS = Structure(
    "Panels",
    """
    int32_t n, panels, block, tallest; /* tallest: rows of a panel at most, columns counted too */
    const int32_t *first;
    int64_t *start;
    int32_t *row;
    /* Updates of panel p by earlier ones: update[p] .. update[p + 1] - 1. The rows begin .. end - 1 of the source are
     * columns of p, and those from begin on are its rows at position[offset ..], columns counted too. Where these are
     * all in a row, the offset is into the numbers from 0 to `tallest`, with which `position` begins. */
    int64_t *update;
    int32_t *source, *begin, *end;
    int64_t *offset;
    int32_t *position;
    /* Blocks of A in panel p: entry[p] .. entry[p + 1] - 1; which of A's, and to which scalar of the panel each
     * goes. */
    int64_t *entry, *block_of, *target;
""",
)


class Panels(ctypes.Structure):
    """The pattern of L, for native code."""

    _fields_ = PANELS.fields


CHOLESKY = Structure(
    "Cholesky",
    """
    Panels pattern;
    int64_t tasks, tops;
    int64_t build_shared, solve_shared; /* whether there is enough to do for more than one thread */
    const int32_t *order;    /* nodes of A */
    const int64_t *value_at; /* [panels + 1]: of its scalars in value */
    const int32_t *task;     /* [tasks][2]: panels first to last + 1, the subtrees that one thread does */
    const int32_t *top;      /* [tops][2]: the panels above them, and whether all threads do one together */
    double *value;           /* L */
    double *inverse;         /* 1 / L_kk, or 0 where the pivot is singular; while a panel is built, the diagonal of A */
    double *front;           /* of the solves: each panel's elements, and what it sends to its rows */
    double *y;               /* of the solves: x in the order of elimination */
    int64_t *corrected;      /* [panels]: singular pivots */
    SafePoint *safe;         /* of a factorisation; or null */
    atomic_int next[3];      /* task, of a factorisation and the two halves of a solve */
    int64_t all_corrected;
""",
    {"Panels": Panels},
)


class FactorState(ctypes.Structure):
    """The factor, for native code."""

    _fields_ = CHOLESKY.fields
