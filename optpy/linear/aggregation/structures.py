"""The structures of the algebraic multigrid, declared once for C and Python."""

from __future__ import annotations

import ctypes

from optpy.kernels.codegen.structures import Structure

LEVEL = Structure(
    "AmgLevel",
    """
    int64_t nodes;
    int64_t visits;            /* cycles on this level in one of the finer level */
    const int64_t *rows;       /* A: where each row begins, and the last one ends */
    const int32_t *columns;    /* sorted in each row */
    const int64_t *diagonal;   /* of each row: the entry on the diagonal */
    OPTPY_REAL *matrix;        /* of each entry: a block, row by row */
    OPTPY_REAL *candidates;    /* of each row: a block; column k is the k-th candidate */
    OPTPY_REAL *b, *x;         /* of the finest level: what the cycle is given, and what it gives */
    /* What the cycle works on, in the units of D = R^T R. */
    OPTPY_REAL *root;          /* of each row: R */
    OPTPY_REAL *inverse;       /* of each row: R^-1 */
    OPTPY_REAL *weight;        /* of each row: the smoother's */
    const int64_t *near_rows;  /* entries below the diagonal in their chunk: where each row begins */
    const int32_t *near_columns;
    AmgCompact *near;
    const int32_t *far_columns; /* all others but those on the diagonal */
    AmgCompact *far;
    const int32_t *twin;       /* of each entry below the diagonal: the far one that is its transpose */
    OPTPY_REAL *f, *u, *t;     /* R^-T b, R x and a third one, AMG_LANES for each row */
    /* All below lead to the next level; the last one has none. */
    int64_t aggregates;
    const int64_t *members;    /* where the rows of each aggregate begin; those of none come after all */
    const int32_t *aggregate;  /* of each row; -1: none */
    const uint8_t *plain;      /* of each row: P is T there, not smoothed */
    const int64_t *p_rows;     /* P */
    const int32_t *p_columns;
    OPTPY_REAL *p;
    /* P as the cycle needs it, R P R^-1 (the last of the coarser level), over the largest number of each column of
     * blocks: in the order of P, and in that of P^T. */
    AmgCompact *q, *qt;
    OPTPY_REAL *q_scale;
    const int64_t *pt_rows;    /* P^T: the rows of P, and their entries, that stand in each of its columns */
    const int32_t *pt_nodes;
    const int64_t *pt_entries;
    const int64_t *ap_rows;    /* A P */
    const int32_t *ap_columns;
    double omega;
""",
)


class AggregationLevel(ctypes.Structure):
    """One level, for native code."""

    _fields_ = LEVEL.fields


AGGREGATION = Structure(
    "Aggregation",
    """
    int64_t levels;
    AmgLevel *level;
    double *factor;            /* L and D of the coarsest matrix; null: its rows are not coupled */
    double *work;              /* of the coarsest level */
    double *partial;           /* of each chunk of the finest level */
    SafePoint *safe;           /* while all levels are computed; or null */
    /* Of the level that is being built. */
    OPTPY_REAL *tentative;     /* T: of each row, a block in the column of its aggregate */
    OPTPY_REAL *product;       /* A P */
""",
    {"AmgLevel": AggregationLevel},
)


class AggregationState(ctypes.Structure):
    """All levels, for native code."""

    _fields_ = AGGREGATION.fields
