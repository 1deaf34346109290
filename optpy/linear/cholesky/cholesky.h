/* A sparse Cholesky factorisation P A P^T = L L^T by supernodes, for blocks of CHOL_BLOCK x CHOL_BLOCK (left-looking;
 * Ng and Peyton, SIAM J. Sci. Comput. 14, 1993). Its pattern comes from symbolic.h.
 *
 * A supernode's columns of L are cut into panels, each one dense array, column by column. A panel takes its blocks of A,
 * subtracts the products of the panels to its left that reach it, and is factored; all with vectors along its rows.
 *
 * A pivot that is not above rounding is singular: its column of L is 0, and so is that element of every solution. With
 * E the 1 or 0 of each pivot, what is solved is x = P^T L^-T E L^-1 P b: symmetric and positive semidefinite always.
 *
 * Threads take whole subtrees of the panels' tree, which share nothing, and then work together on the panels above them.
 * How sums are cut into tiles never depends on the threads, and so no bit of a result does. */

#if defined(__AVX512F__)
#define CHOL_LANES 8
#define CHOL_VECTORS (CHOL_BLOCK <= 8 ? 3 : 2) /* of rows in a tile: with its columns they fill the registers */
#elif defined(__AVX__)
#define CHOL_LANES 4
#define CHOL_VECTORS (CHOL_BLOCK <= 6 ? 2 : 1)
#else
#define CHOL_LANES 2
#define CHOL_VECTORS (CHOL_BLOCK <= 6 ? 2 : 1)
#endif

typedef double CholVec __attribute__((vector_size(8 * CHOL_LANES), aligned(8), may_alias));

enum {
    CHOL_STEP = CHOL_BLOCK <= 2 ? 4 : CHOL_BLOCK == 3 ? 6 : CHOL_BLOCK, /* columns of a tile, if there are so many */
    CHOL_STRIP = 8,                            /* block rows that are worked on at a time */
    CHOL_ROWS = CHOL_STRIP * CHOL_BLOCK,
    CHOL_GROUP = 4 * CHOL_STEP / CHOL_BLOCK,   /* block columns of a panel that one thread updates */
};

/* Pivots below this part of A's diagonal are rounding: of A's numbers, or of the factorisation in double. */
static const double CHOL_SINGULAR = sizeof(OPTPY_REAL) == 4 ? 1e-6 : 1e-13;

/* -- one panel ----------------------------------------------------------------------------------------------------- */

typedef struct {
    int64_t index, columns, ld; /* in scalars: its columns, its rows */
    double *value, *inverse;
} CholPanel;

OPTPY_FN CholPanel chol_panel(const Cholesky *f, int64_t p) {
    const int64_t width = f->pattern.first[p + 1] - f->pattern.first[p];
    const int64_t height = width + f->pattern.start[p + 1] - f->pattern.start[p];
    return (CholPanel){p, width * CHOL_BLOCK, height * CHOL_BLOCK, f->value + f->value_at[p],
                       f->inverse + f->pattern.first[p] * (int64_t)CHOL_BLOCK};
}

OPTPY_FN CholVec chol_load(const double *p) { return *(const CholVec *)p; }
OPTPY_FN void chol_store(double *p, CholVec v) { *(CholVec *)p = v; }

/* The columns of the next tile: 1, 1/2 or 1/4 of CHOL_STEP. */
OPTPY_FN int chol_columns(int64_t left) {
    if (left >= CHOL_STEP) return CHOL_STEP;
    return left >= CHOL_STEP / 2 && CHOL_STEP / 2 % CHOL_BLOCK == 0 ? CHOL_STEP / 2 : CHOL_BLOCK;
}

/* Calls with the number of columns as a constant. */
#define CHOL_FOR_COLUMNS(count, call, ...)                                                                       \
    do {                                                                                                         \
        if ((count) == CHOL_STEP) call(__VA_ARGS__, CHOL_STEP);                                                   \
        else if (CHOL_BLOCK < CHOL_STEP && CHOL_STEP / 2 % CHOL_BLOCK == 0 && (count) == CHOL_STEP / 2)            \
            call(__VA_ARGS__, CHOL_STEP / 2 > 0 ? CHOL_STEP / 2 : 1);                                             \
        else if (CHOL_BLOCK == 1) call(__VA_ARGS__, 1);                                                          \
    } while (0)

/* product[column][row] = sum over k of a[row, k] b[column, k]: one tile, and reads beyond the last row. */
OPTPY_FN void chol_tile(const double *restrict a, const double *restrict b, int64_t ld, int64_t depth,
                        double *restrict product, const int vectors, const int columns) {
    CholVec sum[CHOL_STEP][CHOL_VECTORS] = {{{0}}};
    for (int64_t k = 0; k < depth; k++) {
        CholVec rows[CHOL_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) rows[v] = chol_load(a + k * ld + v * CHOL_LANES);
#pragma GCC unroll 12
        for (int c = 0; c < columns; c++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[c][v] += rows[v] * b[k * ld + c];
    }
#pragma GCC unroll 12
    for (int c = 0; c < columns; c++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) chol_store(product + c * CHOL_ROWS + v * CHOL_LANES, sum[c][v]);
}

OPTPY_FN void chol_tiles(const double *a, const double *b, int64_t ld, int64_t depth, double *product, int64_t rows,
                         const int columns) {
    for (int64_t r = 0; r < rows;) {
        const int64_t left = (rows - r + CHOL_LANES - 1) / CHOL_LANES;
        if (CHOL_VECTORS >= 3 && left >= 3) {
            chol_tile(a + r, b, ld, depth, product + r, CHOL_VECTORS >= 3 ? 3 : 1, columns);
            r += 3 * CHOL_LANES;
        } else if (CHOL_VECTORS >= 2 && left >= 2) {
            chol_tile(a + r, b, ld, depth, product + r, CHOL_VECTORS >= 2 ? 2 : 1, columns);
            r += 2 * CHOL_LANES;
        } else {
            chol_tile(a + r, b, ld, depth, product + r, 1, columns);
            r += CHOL_LANES;
        }
    }
}

/* The product of up to CHOL_ROWS rows with some columns' rows. */
static __attribute__((noinline)) void chol_product(const double *a, const double *b, int64_t ld, int64_t depth,
                                                   double *product, int64_t rows, int columns) {
    CHOL_FOR_COLUMNS(columns, chol_tiles, a, b, ld, depth, product, rows);
}

/* The block rows of an update. */
OPTPY_FN int64_t chol_update_rows(const Cholesky *f, int64_t u) {
    return f->pattern.start[f->pattern.source[u] + 1] - f->pattern.start[f->pattern.source[u]] - f->pattern.begin[u];
}

/* -- building ------------------------------------------------------------------------------------------------------ */

/* A's blocks in the scalar columns [from, to). */
static void chol_assemble(const Cholesky *f, const CholPanel *p, const double *matrix, int64_t from, int64_t to) {
    memset(p->value + from * p->ld, 0, (size_t)((to - from) * p->ld) * sizeof *p->value);
    for (int64_t e = f->pattern.entry[p->index]; e < f->pattern.entry[p->index + 1]; e++) {
        if (f->pattern.target[e] < from * p->ld || f->pattern.target[e] >= to * p->ld) continue;
        const double *block = matrix + f->pattern.block_of[e] * CHOL_BLOCK * CHOL_BLOCK;
        double *target = p->value + f->pattern.target[e];
        for (int c = 0; c < CHOL_BLOCK; c++) /* the block's row is the column here: A is symmetric */
            for (int r = 0; r < CHOL_BLOCK; r++) target[c * p->ld + r] = block[c * CHOL_BLOCK + r];
    }
    for (int64_t c = from; c < to; c++) p->inverse[c] = p->value[c * p->ld + c];
}

/* Subtracts a product from the block rows and columns at given positions of a panel. */
OPTPY_FN void chol_scatter(const CholPanel *p, const double *restrict product, const int32_t *row, int64_t rows,
                           const int32_t *column, int columns) {
    const int contiguous = row[rows - 1] - row[0] == rows - 1;
    for (int c = 0; c < columns; c++) {
        double *restrict target = p->value + (column[c / CHOL_BLOCK] * (int64_t)CHOL_BLOCK + c % CHOL_BLOCK) * p->ld;
        const double *restrict from = product + c * CHOL_ROWS;
        if (contiguous) {
            target += row[0] * (int64_t)CHOL_BLOCK;
            for (int64_t r = 0; r < rows * CHOL_BLOCK; r++) target[r] -= from[r];
        } else {
            for (int64_t r = 0; r < rows; r++) {
                double *restrict block = target + row[r] * (int64_t)CHOL_BLOCK;
                for (int a = 0; a < CHOL_BLOCK; a++) block[a] -= from[r * CHOL_BLOCK + a];
            }
        }
    }
}

/* The block columns of a tile that starts with the `at`-th of an update: adjacent rows of the source, in one group. */
OPTPY_FN int chol_tile_width(const int32_t *position, int64_t at, int64_t end) {
    const int32_t group = position[at] / CHOL_GROUP;
    int64_t width = 1;
    while (width < CHOL_STEP / CHOL_BLOCK && at + width < end && position[at + width] / CHOL_GROUP == group) width++;
    return chol_columns(width * CHOL_BLOCK) / CHOL_BLOCK;
}

/* Subtracts what an earlier panel contributes to the block columns [from, to): bounds of groups. */
static void chol_update(const Cholesky *f, const CholPanel *p, int64_t u, int64_t from, int64_t to) {
    const CholPanel source = chol_panel(f, f->pattern.source[u]);
    const int32_t *position = f->pattern.position + f->pattern.offset[u];
    const int64_t columns = f->pattern.end[u] - f->pattern.begin[u], rows = chol_update_rows(f, u);
    const double *value = source.value + source.columns + f->pattern.begin[u] * (int64_t)CHOL_BLOCK;
    double product[CHOL_STEP * CHOL_ROWS];
    for (int64_t r = 0; r < rows; r += CHOL_STRIP) {
        const int64_t count = rows - r < CHOL_STRIP ? rows - r : CHOL_STRIP;
        int width;
        for (int64_t c = 0; c < columns && c < r + count; c += width) { /* those further right are above the diagonal */
            width = chol_tile_width(position, c, columns);
            if (position[c] < from || position[c] >= to) continue;
            chol_product(value + r * CHOL_BLOCK, value + c * CHOL_BLOCK, source.ld, source.columns, product,
                         count * CHOL_BLOCK, width * CHOL_BLOCK);
            chol_scatter(p, product, position + r, count, position + c, width * CHOL_BLOCK);
        }
    }
}

/* Factors the diagonal at `at`, from which the columns to its left are yet to be subtracted; returns how many of its
 * pivots are singular. */
OPTPY_FN int chol_pivots_of(const CholPanel *p, int64_t at, const int columns) {
    double product[CHOL_STEP * CHOL_ROWS], *value = p->value + at * p->ld + at, *inverse = p->inverse + at;
    int singular = 0;
    chol_product(p->value + at, p->value + at, p->ld, at, product, columns, columns);
    for (int c = 0; c < columns; c++) {
        double l[CHOL_STEP];
        for (int r = c; r < columns; r++) {
            l[r] = value[c * p->ld + r] - product[c * CHOL_ROWS + r];
            for (int k = 0; k < c; k++) l[r] -= value[k * p->ld + r] * value[k * p->ld + c];
        }
        const int sound = l[c] > 0 && l[c] > CHOL_SINGULAR * inverse[c] && optpy_isfinite(l[c]);
        singular += !sound;
        inverse[c] = sound ? 1 / sqrt(l[c]) : 0;
        for (int r = c; r < columns; r++) value[c * p->ld + r] = sound ? l[r] * inverse[c] : 0;
    }
    return singular;
}

/* Columns at `column` of L, in up to CHOL_ROWS rows below their diagonal. */
OPTPY_FN void chol_eliminate(const CholPanel *p, int64_t column, int64_t row, int64_t rows, const int columns) {
    double product[CHOL_STEP * CHOL_ROWS], *value = p->value + column * p->ld;
    const double *inverse = p->inverse + column;
    chol_product(p->value + row, p->value + column, p->ld, column, product, rows, columns);
    for (int64_t r = 0; r < rows; r += CHOL_LANES) {
        CholVec x[CHOL_STEP];
#pragma GCC unroll 12
        for (int c = 0; c < columns; c++) {
            x[c] = chol_load(value + c * p->ld + row + r) - chol_load(product + c * CHOL_ROWS + r);
            for (int k = 0; k < c; k++) x[c] -= x[k] * value[k * p->ld + column + c];
            if (inverse[c] > 0) x[c] *= inverse[c];
            else x[c] = (CholVec){0}; /* and not 0 times what may be infinite */
            chol_store(product + c * CHOL_ROWS + r, x[c]);
        }
    }
    for (int c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r++) value[c * p->ld + row + r] = product[c * CHOL_ROWS + r];
}

/* The columns of a panel above its first row below the diagonal. */
static void chol_factor_diagonal(const Cholesky *f, const CholPanel *p) {
    int64_t singular = 0;
    int columns;
    for (int64_t at = 0; at < p->columns; at += columns) {
        int found = 0;
        columns = chol_columns(p->columns - at);
#define CHOL_PIVOTS(p, at, columns) found = chol_pivots_of(p, at, columns)
        CHOL_FOR_COLUMNS(columns, CHOL_PIVOTS, p, at);
#undef CHOL_PIVOTS
        singular += found;
        for (int64_t r = at + columns; r < p->columns; r += CHOL_ROWS) {
            const int64_t rows = p->columns - r < CHOL_ROWS ? p->columns - r : CHOL_ROWS;
            CHOL_FOR_COLUMNS(columns, chol_eliminate, p, at, r, rows);
        }
    }
    f->corrected[p->index] = singular;
}

/* The strips [from, to) of rows below the diagonal. */
static void chol_factor_strips(const CholPanel *p, int64_t from, int64_t to) {
    for (int64_t strip = from; strip < to; strip++) {
        const int64_t row = p->columns + strip * CHOL_ROWS, rows = p->ld - row < CHOL_ROWS ? p->ld - row : CHOL_ROWS;
        int columns;
        for (int64_t at = 0; at < p->columns; at += columns) {
            columns = chol_columns(p->columns - at);
            CHOL_FOR_COLUMNS(columns, chol_eliminate, p, at, row, rows);
        }
    }
}

OPTPY_FN int64_t chol_strips(const CholPanel *p) { return (p->ld - p->columns + CHOL_ROWS - 1) / CHOL_ROWS; }

static void chol_factor_panel(const Cholesky *f, const double *matrix, int64_t index) {
    const CholPanel p = chol_panel(f, index);
    chol_assemble(f, &p, matrix, 0, p.columns);
    for (int64_t u = f->pattern.update[index]; u < f->pattern.update[index + 1]; u++) chol_update(f, &p, u, 0, p.columns);
    chol_factor_diagonal(f, &p);
    chol_factor_strips(&p, 0, chol_strips(&p));
}

/* The same by all threads: shares of its columns, and then of its rows. */
static void chol_factor_together(const Cholesky *f, const double *matrix, int64_t index, Team *team, int thread) {
    const CholPanel p = chol_panel(f, index);
    const int64_t width = p.columns / CHOL_BLOCK;
    ptrdiff_t from, to;
    team_share((ptrdiff_t)((width + CHOL_GROUP - 1) / CHOL_GROUP), thread, team->threads, &from, &to);
    from *= CHOL_GROUP;
    to = to * CHOL_GROUP < width ? to * CHOL_GROUP : (ptrdiff_t)width;
    if (from < to) {
        chol_assemble(f, &p, matrix, from * CHOL_BLOCK, to * CHOL_BLOCK);
        for (int64_t u = f->pattern.update[index]; u < f->pattern.update[index + 1]; u++) chol_update(f, &p, u, from, to);
    }
    team_barrier(team);
    if (thread == 0) chol_factor_diagonal(f, &p);
    team_barrier(team);
    team_share((ptrdiff_t)chol_strips(&p), thread, team->threads, &from, &to);
    chol_factor_strips(&p, from, to);
}

/* The number of a task that nobody has taken, or one beyond the last. */
OPTPY_FN int64_t chol_take(Cholesky *f, int phase) { return atomic_fetch_add(&f->next[phase], 1); }

/* Whether a thread is to leave out a panel; the clock is not asked before each of many small ones. */
OPTPY_FN int chol_stops(Cholesky *f, int64_t p, int thread) {
    const int asks = thread == 0 && (p % 8 == 0 || f->value_at[p + 1] - f->value_at[p] > 4096);
    return asks ? safe_point(f->safe) : safe_stopped(f->safe);
}

static void chol_build_by_all(Cholesky *f, const double *matrix, Team *team, int thread) {
    for (int64_t t; (t = chol_take(f, 0)) < f->tasks;)
        for (int64_t p = f->task[2 * t]; p < f->task[2 * t + 1] && !chol_stops(f, p, thread); p++)
            chol_factor_panel(f, matrix, p);
    int shared = 1; /* the last panel was worked on by others, too */
    for (int64_t n = 0; n < f->tops; n++) {
        const int64_t p = f->top[2 * n];
        const int share = f->top[2 * n + 1];
        if (share || shared) team_barrier(team);
        shared = share;
        if (share && safe_point_of_team(f->safe, team, thread)) break;
        if (share) chol_factor_together(f, matrix, p, team, thread);
        else if (thread == 0 && !chol_stops(f, p, 0)) chol_factor_panel(f, matrix, p);
    }
    team_barrier(team);
    if (thread == 0) atomic_store(&f->next[0], 0);
}

/* Factors A, given as blocks [nnz][CHOL_BLOCK][CHOL_BLOCK], once all of it is there, if no safe point stops it; returns how
 * many of its pivots are singular. */
static int chol_build(Cholesky *f, const double *matrix, Team *team, int thread) {
    if (team->threads > 1 && f->build_shared) {
        chol_build_by_all(f, matrix, team, thread);
    } else if (thread == 0) {
        for (int64_t p = 0; p < f->pattern.panels && !chol_stops(f, p, 0); p++) chol_factor_panel(f, matrix, p);
    }
    if (thread == 0) {
        f->all_corrected = 0;
        for (int64_t p = 0; p < f->pattern.panels; p++) f->all_corrected += f->corrected[p];
    }
    team_barrier(team);
    const int corrected = f->all_corrected < INT32_MAX ? (int)f->all_corrected : INT32_MAX;
    team_barrier(team); /* everyone has read it, before somebody builds again */
    return corrected;
}
