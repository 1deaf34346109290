/* An algebraic multigrid preconditioner for a symmetric positive semi-definite A of m x m blocks: a cycle of
 * smoothed aggregation (Vanek, Mandel and Brezina 1996; A by blocks: Vanek, Brezina and Mandel 2001).
 *
 * The patterns are made once, in Python; the numbers here, level by level: T from the candidates by aggregates,
 * P = (I - omega D^-1 A) T, and the next A = P^T A P. The smoother is hybrid block Gauss-Seidel, forward before and
 * backward after, in chunks of rows that know of each other only the values from before the sweep; where these couple
 * rows too strongly, D is increased, so that it converges for every A (Baker, Falgout, Kolev and Yang 2011). A coarse
 * level is visited more than once where that is cheap, as in a W-cycle: the number of iterations then depends much less
 * on how many levels there are.
 *
 * Nothing depends on the number of threads: every row is computed alone, in the order of its pattern, and sums are
 * added up chunk by chunk. Unknowns without a pivot in their diagonal block (a zero row is one) are left out: 0 in
 * inverses, in T and in x.
 *
 * The cycle waits for memory, so it has a copy of A of its own, in the order in which it is read and, for single
 * precision, in 16 bits: A' = R^-T A R^-1 with D = R^T R, by blocks. The diagonal blocks of A' are 1 and need not be
 * stored, and no number of it exceeds 1, since A is semi-definite: rounding it to multiples of AMG_UNIT changes the
 * energy of no vector by more than a small part of its energy in D, whatever the units of the unknowns. So the smoother
 * stays a convergent one, of the matrix that is stored, and the preconditioner symmetric and positive definite.
 *
 * A row or a column of a block is read as a whole vector register, and so a little beyond its end: arrays of blocks
 * have AMG_LANES numbers more than their blocks. */

#define AMG_VECTOR(T) __attribute__((vector_size(AMG_LANES * sizeof(T)), aligned(sizeof(T)), may_alias))
typedef OPTPY_REAL AmgRow AMG_VECTOR(OPTPY_REAL);
typedef AmgCompact AmgColumn AMG_VECTOR(AmgCompact);

enum {
    AMG_SQUARE = AMG_BLOCK * AMG_BLOCK,
    AMG_POWER_ITERATIONS = 10,
    AMG_NEAR = 8,              /* columns of a row looked at one by one, before it is searched by halves */
};

static const double AMG_DAMPING = 4.0 / 3.0; /* over the largest eigenvalue of D^-1 A: Vanek, Mandel and Brezina */
static const double AMG_DOMINATED = 0.9; /* what couples a row of the smoother to other chunks, over its diagonal */
/* Pivots below this part of their diagonal are rounding; and so are the parts of columns that are orthogonal to those
 * before, below this part of their squared length. */
static const double AMG_SINGULAR = sizeof(OPTPY_REAL) == 4 ? 1e-6 : 1e-11;
static const double AMG_DEPENDENT = sizeof(OPTPY_REAL) == 4 ? 1e-12 : 1e-14;

/* A loop over those of `count` items that belong to this thread. */
#define AMG_SHARE(i, count, team, thread)                                            \
    ptrdiff_t amg_begin, amg_end;                                                    \
    team_share((ptrdiff_t)(count), thread, (team)->threads, &amg_begin, &amg_end);   \
    for (int64_t i = amg_begin; i < amg_end; i++)

OPTPY_FN int64_t amg_chunks(const AmgLevel *l) { return (l->nodes + AMG_CHUNK - 1) / AMG_CHUNK; }

OPTPY_FN int64_t amg_chunk_end(const AmgLevel *l, int64_t chunk) {
    return (chunk + 1) * AMG_CHUNK < l->nodes ? (chunk + 1) * AMG_CHUNK : l->nodes;
}

/* -- blocks -------------------------------------------------------------------------------------------------------- */

OPTPY_FN AmgRow amg_load(const OPTPY_REAL *p) { return *(const AmgRow *)p; }

OPTPY_FN void amg_store(OPTPY_REAL *p, AmgRow v) {
    for (int c = 0; c < AMG_BLOCK; c++) p[c] = v[c];
}

/* Another thread may be writing what stands beyond: no more is read than there is. */
OPTPY_FN AmgRow amg_load_vector(const OPTPY_REAL *p) {
    AmgRow v = {0};
    for (int c = 0; c < AMG_BLOCK; c++) v[c] = p[c];
    return v;
}

OPTPY_FN OPTPY_REAL amg_sum(AmgRow v) {
    OPTPY_REAL sum = 0;
    for (int c = 0; c < AMG_BLOCK; c++) sum += v[c];
    return sum;
}

/* sum += A x, each row's terms not yet added up. */
OPTPY_FN void amg_gather(AmgRow sum[AMG_BLOCK], const OPTPY_REAL *block, const OPTPY_REAL *x) {
    const AmgRow v = amg_load_vector(x);
    for (int a = 0; a < AMG_BLOCK; a++) sum[a] += amg_load(block + a * AMG_BLOCK) * v;
}

/* A^T v */
OPTPY_FN AmgRow amg_transposed(const OPTPY_REAL *block, const OPTPY_REAL *v) {
    AmgRow sum = v[0] * amg_load(block);
    for (int a = 1; a < AMG_BLOCK; a++) sum += v[a] * amg_load(block + a * AMG_BLOCK);
    return sum;
}

/* c += A B */
OPTPY_FN void amg_add_product(OPTPY_REAL *c, const OPTPY_REAL *A, const OPTPY_REAL *B) {
    AmgRow row[AMG_BLOCK];
    for (int k = 0; k < AMG_BLOCK; k++) row[k] = amg_load(B + k * AMG_BLOCK);
    for (int i = 0; i < AMG_BLOCK; i++) {
        AmgRow sum = amg_load_vector(c + i * AMG_BLOCK);
        for (int k = 0; k < AMG_BLOCK; k++) sum += A[i * AMG_BLOCK + k] * row[k];
        amg_store(c + i * AMG_BLOCK, sum);
    }
}

/* c += A^T B */
OPTPY_FN void amg_add_transposed_product(OPTPY_REAL *c, const OPTPY_REAL *A, const OPTPY_REAL *B) {
    AmgRow row[AMG_BLOCK];
    for (int k = 0; k < AMG_BLOCK; k++) row[k] = amg_load(B + k * AMG_BLOCK);
    for (int i = 0; i < AMG_BLOCK; i++) {
        AmgRow sum = amg_load_vector(c + i * AMG_BLOCK);
        for (int k = 0; k < AMG_BLOCK; k++) sum += A[k * AMG_BLOCK + i] * row[k];
        amg_store(c + i * AMG_BLOCK, sum);
    }
}

/* In units of AMG_UNIT. */
OPTPY_FN AmgRow amg_unpack(const AmgCompact *p) { return __builtin_convertvector(*(const AmgColumn *)p, AmgRow); }

/* sum += A v / AMG_UNIT of a block that is stored column by column, each column's terms not yet added up. */
OPTPY_FN void amg_apply(AmgRow sum[AMG_BLOCK], const AmgCompact *block, const OPTPY_REAL *v) {
    for (int c = 0; c < AMG_BLOCK; c++) sum[c] += v[c] * amg_unpack(block + c * AMG_BLOCK);
}

OPTPY_FN AmgRow amg_applied(const AmgRow sum[AMG_BLOCK]) {
    AmgRow total = sum[0];
    for (int c = 1; c < AMG_BLOCK; c++) total += sum[c];
    return total * (OPTPY_REAL)AMG_UNIT;
}

/* R with R^T R = gram; rows of columns that depend on those before are 0. */
OPTPY_FN void amg_cholesky(const double gram[AMG_SQUARE], double least, double R[AMG_SQUARE]) {
    double rest[AMG_SQUARE];
    memcpy(rest, gram, sizeof rest);
    memset(R, 0, AMG_SQUARE * sizeof *R);
    for (int k = 0; k < AMG_BLOCK; k++) {
        const double square = rest[k * AMG_BLOCK + k];
        if (!(square > least * gram[k * AMG_BLOCK + k])) continue;
        const double scale = 1 / sqrt(square);
        for (int j = k; j < AMG_BLOCK; j++) R[k * AMG_BLOCK + j] = scale * rest[k * AMG_BLOCK + j];
        for (int i = k + 1; i < AMG_BLOCK; i++)
            for (int j = i; j < AMG_BLOCK; j++)
                rest[i * AMG_BLOCK + j] -= R[k * AMG_BLOCK + i] * R[k * AMG_BLOCK + j];
    }
}

/* R^-1; rows and columns without a pivot become 0. */
OPTPY_FN void amg_invert(const double R[AMG_SQUARE], double inverse[AMG_SQUARE]) {
    for (int i = AMG_BLOCK - 1; i >= 0; i--) {
        const double pivot = R[i * AMG_BLOCK + i], scale = pivot > 0 ? 1 / pivot : 0;
        double row[AMG_BLOCK] = {0};
        row[i] = 1;
        for (int n = i + 1; n < AMG_BLOCK; n++)
            for (int j = 0; j < AMG_BLOCK; j++) row[j] -= R[i * AMG_BLOCK + n] * inverse[n * AMG_BLOCK + j];
        for (int j = 0; j < AMG_BLOCK; j++) inverse[i * AMG_BLOCK + j] = scale > 0 ? scale * row[j] : 0;
    }
}

/* The position of a column that is known to be there, at `at` or after. */
OPTPY_FN int64_t amg_find(const int32_t *columns, int64_t at, int64_t end, int32_t column) {
    for (int n = 0; n < AMG_NEAR; n++, at++)
        if (columns[at] == column) return at;
    while (at < end) {
        const int64_t middle = at + (end - at) / 2;
        if (columns[middle] < column) at = middle + 1; else end = middle;
    }
    return at;
}

/* -- the cycle, in the units of R ---------------------------------------------------------------------------------- */

OPTPY_FN OPTPY_REAL *amg_at(OPTPY_REAL *vector, int64_t node) { return vector + node * AMG_LANES; }
OPTPY_FN AmgRow amg_get(const OPTPY_REAL *vector, int64_t node) { return amg_load(vector + node * AMG_LANES); }
OPTPY_FN void amg_put(OPTPY_REAL *vector, int64_t node, AmgRow v) { *(AmgRow *)(vector + node * AMG_LANES) = v; }

OPTPY_FN int64_t amg_far_row(const AmgLevel *l, int64_t i) { return l->rows[i] - i - l->near_rows[i]; }

/* u = M^-1 f, where M = 1 / weight + the near part of A; t = f less the same part of A u and less u: where D is, A' is 1.
 * Both from nothing but the chunk itself. */
static void amg_sweep_from_zero(const AmgLevel *l, const Team *team, int thread) {
    AMG_SHARE(chunk, amg_chunks(l), team, thread) {
        for (int64_t i = chunk * AMG_CHUNK; i < amg_chunk_end(l, chunk); i++) {
            AmgRow sum[AMG_BLOCK] = {{0}};
            for (int64_t k = l->near_rows[i]; k < l->near_rows[i + 1]; k++)
                amg_apply(sum, l->near + k * AMG_SQUARE, amg_at(l->u, l->near_columns[k]));
            const AmgRow r = amg_get(l->f, i) - amg_applied(sum), u = l->weight[i] * r;
            amg_put(l->u, i, u);
            amg_put(l->t, i, r - u);
        }
    }
}

/* t = f - A u, by what the sweep from zero has left to do. */
static void amg_finish_residual(const AmgLevel *l, const Team *team, int thread) {
    AMG_SHARE(i, l->nodes, team, thread) {
        AmgRow sum[AMG_BLOCK] = {{0}};
        for (int64_t k = amg_far_row(l, i); k < amg_far_row(l, i + 1); k++)
            amg_apply(sum, l->far + k * AMG_SQUARE, amg_at(l->u, l->far_columns[k]));
        amg_put(l->t, i, amg_get(l->t, i) - amg_applied(sum));
    }
}

/* One row of a sweep from t to u. In its chunk it sees what rows before it have become: those below the diagonal, the
 * near ones, are read from `before`, and those above it, in the chunk that ends at `fresh_end`, from u. */
OPTPY_FN void amg_sweep_row(const AmgLevel *l, int64_t i, OPTPY_REAL *before, int64_t fresh_end) {
    AmgRow sum[AMG_BLOCK] = {{0}};
    for (int64_t k = l->near_rows[i + 1] - 1; k >= l->near_rows[i]; k--)
        amg_apply(sum, l->near + k * AMG_SQUARE, amg_at(before, l->near_columns[k]));
    for (int64_t k = amg_far_row(l, i + 1) - 1; k >= amg_far_row(l, i); k--) {
        const int64_t j = l->far_columns[k];
        amg_apply(sum, l->far + k * AMG_SQUARE, amg_at(j > i && j < fresh_end ? l->u : l->t, j));
    }
    const AmgRow t = amg_get(l->t, i);
    amg_put(l->u, i, t + l->weight[i] * (amg_get(l->f, i) - amg_applied(sum) - t));
}

/* u = t + M^-1 (f - A t), or with M^T */
static void amg_sweep(const AmgLevel *l, int backward, const Team *team, int thread) {
    AMG_SHARE(chunk, amg_chunks(l), team, thread) {
        const int64_t begin = chunk * AMG_CHUNK, end = amg_chunk_end(l, chunk);
        if (backward) for (int64_t i = end - 1; i >= begin; i--) amg_sweep_row(l, i, l->t, end);
        else for (int64_t i = begin; i < end; i++) amg_sweep_row(l, i, l->u, i);
    }
}

/* A u of a row, but for the diagonal */
OPTPY_FN AmgRow amg_row_product(const AmgLevel *l, int64_t i, OPTPY_REAL *u) {
    AmgRow sum[AMG_BLOCK] = {{0}};
    for (int64_t k = l->near_rows[i]; k < l->near_rows[i + 1]; k++)
        amg_apply(sum, l->near + k * AMG_SQUARE, amg_at(u, l->near_columns[k]));
    for (int64_t k = amg_far_row(l, i); k < amg_far_row(l, i + 1); k++)
        amg_apply(sum, l->far + k * AMG_SQUARE, amg_at(u, l->far_columns[k]));
    return amg_applied(sum);
}

/* t = f - A u */
static void amg_residual(const AmgLevel *l, const Team *team, int thread) {
    AMG_SHARE(i, l->nodes, team, thread)
        amg_put(l->t, i, amg_get(l->f, i) - amg_get(l->u, i) - amg_row_product(l, i, l->u));
}

/* f of the coarser level = P^T t */
static void amg_restrict(const AmgLevel *l, const AmgLevel *coarse, const Team *team, int thread) {
    AMG_SHARE(i, coarse->nodes, team, thread) {
        AmgRow sum[AMG_BLOCK] = {{0}};
        for (int64_t k = l->pt_rows[i]; k < l->pt_rows[i + 1]; k++)
            amg_apply(sum, l->qt + k * AMG_SQUARE, amg_at(l->t, l->pt_nodes[k]));
        amg_put(coarse->f, i, l->q_scale[i] * amg_applied(sum));
    }
}

/* t = u + P u of the coarser level */
static void amg_interpolate(const AmgLevel *l, const AmgLevel *coarse, const Team *team, int thread) {
    AMG_SHARE(i, l->nodes, team, thread) {
        AmgRow sum[AMG_BLOCK] = {{0}}, t = amg_get(l->u, i);
        for (int64_t k = l->p_rows[i]; k < l->p_rows[i + 1]; k++) {
            const AmgRow v = l->q_scale[l->p_columns[k]] * amg_get(coarse->u, l->p_columns[k]);
            for (int a = 0; a < AMG_BLOCK; a++) sum[a] += v * amg_unpack(l->q + k * AMG_SQUARE + a * AMG_BLOCK);
        }
        for (int a = 0; a < AMG_BLOCK; a++) t[a] += (OPTPY_REAL)AMG_UNIT * amg_sum(sum[a]);
        amg_put(l->t, i, t);
    }
}

/* u = A^-1 f on the coarsest level, of the matrix that amg_factor has factored. */
static void amg_solve_coarsest(const Aggregation *g) {
    const AmgLevel *l = &g->level[g->levels - 1];
    const int64_t n = l->nodes * AMG_BLOCK;
    double *y = g->work;
    for (int64_t i = 0; i < n; i++) {
        double sum = (double)l->f[i / AMG_BLOCK * AMG_LANES + i % AMG_BLOCK];
        for (int64_t k = 0; k < i; k++) sum -= g->factor[i * n + k] * y[k];
        y[i] = sum;
    }
    for (int64_t i = 0; i < n; i++) y[i] *= g->factor[i * n + i]; /* the inverse pivot */
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t k = 0; k < i; k++) y[k] -= g->factor[i * n + k] * y[i];
    for (int64_t i = 0; i < n; i++) l->u[i / AMG_BLOCK * AMG_LANES + i % AMG_BLOCK] = (OPTPY_REAL)y[i];
}

OPTPY_FN int amg_is_small(const AmgLevel *l) { return l->rows[l->nodes] * AMG_SQUARE < AMG_ALONE; }

/* u ~ A^-1 f on a level: symmetric, because the sweep after is the adjoint of the one before. */
static void amg_cycle_from(const Aggregation *g, int64_t level, Team *team, int thread) {
    const AmgLevel *l = &g->level[level];
    if (team->threads > 1 && (amg_is_small(l) || amg_chunks(l) == 1)) {
        Team alone = {.threads = 1};
        if (thread == 0) amg_cycle_from(g, level, &alone, 0);
        team_barrier(team);
        return;
    }
    if (level == g->levels - 1) {
        if (!g->factor) amg_sweep_from_zero(l, team, thread);
        else if (thread == 0) amg_solve_coarsest(g);
        team_barrier(team);
        return;
    }
    for (int64_t visit = 0; visit < l->visits; visit++) {
        if (visit == 0) {
            amg_sweep_from_zero(l, team, thread);
            team_barrier(team);
            amg_finish_residual(l, team, thread);
        } else {
            AMG_SHARE(i, l->nodes, team, thread) amg_put(l->t, i, amg_get(l->u, i));
            team_barrier(team);
            amg_sweep(l, 0, team, thread);
            team_barrier(team);
            amg_residual(l, team, thread);
        }
        team_barrier(team);
        amg_restrict(l, l + 1, team, thread);
        team_barrier(team);
        amg_cycle_from(g, level + 1, team, thread);
        amg_interpolate(l, l + 1, team, thread);
        team_barrier(team);
        amg_sweep(l, 1, team, thread);
        team_barrier(team);
    }
}

/* Level 0's x ~ A^-1 b: all threads of the team call it, when b is there; ends with a barrier. b is kept. */
static void amg_cycle(Aggregation *g, Team *team, int thread) {
    const AmgLevel *l = &g->level[0];
    AMG_SHARE(i, l->nodes, team, thread)
        amg_put(l->f, i, amg_transposed(l->inverse + i * AMG_SQUARE, l->b + i * AMG_BLOCK));
    team_barrier(team);
    amg_cycle_from(g, 0, team, thread);
    for (int64_t i = amg_begin; i < amg_end; i++) {
        AmgRow row[AMG_BLOCK] = {{0}};
        amg_gather(row, l->inverse + i * AMG_SQUARE, amg_at(l->u, i));
        for (int a = 0; a < AMG_BLOCK; a++) l->x[i * AMG_BLOCK + a] = amg_sum(row[a]);
    }
    team_barrier(team);
}
