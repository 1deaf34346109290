/* The levels of aggregation.h, from the matrix and the candidates of the finest one. */

/* -- building the levels ------------------------------------------------------------------------------------------- */

/* R and R^-1, with R^T R = D; on a level that is solved directly they are 1. */
static void amg_factor_blocks(const Aggregation *g, const AmgLevel *l, const Team *team, int thread) {
    const int direct = g->factor && l == &g->level[g->levels - 1];
    AMG_SHARE(i, l->nodes, team, thread) {
        double D[AMG_SQUARE] = {0}, R[AMG_SQUARE], inverse[AMG_SQUARE];
        for (int n = 0; n < AMG_SQUARE; n++)
            D[n] = direct ? n % (AMG_BLOCK + 1) == 0 : (double)l->matrix[l->diagonal[i] * AMG_SQUARE + n];
        amg_cholesky(D, AMG_SINGULAR, R);
        amg_invert(R, inverse);
        for (int n = 0; n < AMG_SQUARE; n++) {
            l->root[i * AMG_SQUARE + n] = (OPTPY_REAL)R[n];
            l->inverse[i * AMG_SQUARE + n] = (OPTPY_REAL)inverse[n];
        }
    }
}

/* A number from -1 to 1 as it is stored; 1 where it is none. */
OPTPY_FN AmgCompact amg_pack(OPTPY_REAL value) {
    value = value < 1 ? value : 1;
    value = value > -1 ? value : -1;
    return (AmgCompact)AMG_ROUND(value * (OPTPY_REAL)(1 / AMG_UNIT));
}

/* A', column by column: each entry below the diagonal, and the same numbers for the one that is its transpose. */
static void amg_scale(const AmgLevel *l, const Team *team, int thread) {
    AMG_SHARE(i, l->nodes, team, thread) {
        const int64_t begin = i / AMG_CHUNK * AMG_CHUNK;
        AmgCompact *near = l->near + l->near_rows[i] * AMG_SQUARE, *far = l->far + amg_far_row(l, i) * AMG_SQUARE;
        for (int64_t k = l->rows[i]; k < l->diagonal[i]; k++) {
            const int64_t j = l->columns[k];
            OPTPY_REAL left[AMG_SQUARE + AMG_LANES] = {0}, scaled[AMG_SQUARE + AMG_LANES] = {0};
            amg_add_transposed_product(left, l->matrix + k * AMG_SQUARE, l->inverse + i * AMG_SQUARE);
            amg_add_transposed_product(scaled, l->inverse + j * AMG_SQUARE, left); /* A'_ij^T */
            AmgCompact *own = j >= begin ? near : far, *twin = l->far + (int64_t)l->twin[k] * AMG_SQUARE;
            for (int n = 0; n < AMG_SQUARE; n++) own[n] = amg_pack(scaled[n]);
            for (int n = 0; n < AMG_SQUARE; n++) twin[n] = own[n % AMG_BLOCK * AMG_BLOCK + n / AMG_BLOCK];
            if (j >= begin) near += AMG_SQUARE; else far += AMG_SQUARE;
        }
    }
}

/* 1 + excess is 1 / weight of the smoother, which has to make 2 / weight - 1 - (A' outside of the chunks) positive definite:
 * no row of that A' exceeds the sum of the Frobenius norms of its blocks. (Baker et al. take sums of numbers of A, which
 * depend on the units of the unknowns, and keep D where they are small, as here.) */
static void amg_weigh(const AmgLevel *l, const Team *team, int thread) {
    AMG_SHARE(i, l->nodes, team, thread) {
        const int64_t begin = i / AMG_CHUNK * AMG_CHUNK, end = begin + AMG_CHUNK;
        double coupling = 0;
        for (int64_t k = amg_far_row(l, i); k < amg_far_row(l, i + 1); k++) {
            if (l->far_columns[k] >= begin && l->far_columns[k] < end) continue;
            const AmgCompact *block = l->far + k * AMG_SQUARE;
            double square = 0;
            for (int n = 0; n < AMG_SQUARE; n++) square += (double)block[n] * (double)block[n];
            coupling += AMG_UNIT * sqrt(square);
        }
        const double excess = 0.5 * (coupling - AMG_DOMINATED);
        l->weight[i] = (OPTPY_REAL)(excess > 0 ? 1 / (1 + excess) : 1);
    }
}

OPTPY_FN int amg_has_pivot(const AmgLevel *l, int64_t i, int a) {
    return l->root[i * AMG_SQUARE + a * (AMG_BLOCK + 1)] > 0;
}

/* to = scale A' from; leaves the sums of its squares of each chunk. */
static void amg_power(const Aggregation *g, const AmgLevel *l, OPTPY_REAL *from, OPTPY_REAL *to, double scale,
                      const Team *team, int thread) {
    AMG_SHARE(chunk, amg_chunks(l), team, thread) {
        double total = 0;
        for (int64_t i = chunk * AMG_CHUNK; i < amg_chunk_end(l, chunk); i++) {
            const AmgRow y = (OPTPY_REAL)scale * (amg_get(from, i) + amg_row_product(l, i, from));
            amg_put(to, i, y);
            for (int a = 0; a < AMG_BLOCK; a++) total += (double)y[a] * (double)y[a];
        }
        g->partial[chunk] = total;
    }
}

/* omega from the largest eigenvalue of A', which is that of D^-1 A: by power iteration, whose vector grows at a rate
 * that rises towards it. Takes u and t. */
static void amg_estimate(const Aggregation *g, AmgLevel *l, Team *team, int thread) {
    OPTPY_REAL *from = l->u, *to = l->t;
    double square = 1;
    AMG_SHARE(i, l->nodes, team, thread)
        for (int a = 0; a < AMG_BLOCK; a++)
            amg_at(from, i)[a] = amg_has_pivot(l, i, a) ? optpy_random_sign((uint64_t)(i * AMG_BLOCK + a)) : 0;
    team_barrier(team);
    for (int n = 0; n < AMG_POWER_ITERATIONS; n++) {
        amg_power(g, l, from, to, 1 / sqrt(square), team, thread);
        team_barrier(team);
        square = 0;
        for (int64_t chunk = 0; chunk < amg_chunks(l); chunk++) square += g->partial[chunk];
        team_barrier(team); /* everyone has read the sums */
        if (!(optpy_isfinite(square) && square > 0)) break;
        OPTPY_REAL *swapped = from;
        from = to;
        to = swapped;
    }
    if (thread == 0) l->omega = optpy_isfinite(square) && square > 0 ? AMG_DAMPING / sqrt(square) : 0;
    team_barrier(team);
}

/* T R = the candidates of each aggregate, T with orthogonal columns of length 1; R are the candidates of the next level.
 * By the Cholesky factor of the products of all columns: they are added up in double, so that columns are told apart
 * down to the rounding of the candidates. */
static void amg_orthogonalise(const Aggregation *g, const AmgLevel *l, const AmgLevel *coarse, const Team *team, int thread) {
    AMG_SHARE(I, l->aggregates, team, thread) {
        double gram[AMG_SQUARE] = {0}, R[AMG_SQUARE], inverse[AMG_SQUARE];
        for (int64_t i = l->members[I]; i < l->members[I + 1]; i++)
            for (int a = 0; a < AMG_BLOCK; a++) {
                const OPTPY_REAL *c = l->candidates + i * AMG_SQUARE + a * AMG_BLOCK;
                if (!amg_has_pivot(l, i, a)) continue;
                for (int j = 0; j < AMG_BLOCK; j++)
                    for (int k = 0; k < AMG_BLOCK; k++) gram[j * AMG_BLOCK + k] += (double)c[j] * (double)c[k];
            }
        amg_cholesky(gram, AMG_DEPENDENT, R);
        amg_invert(R, inverse);
        for (int n = 0; n < AMG_SQUARE; n++) coarse->candidates[I * AMG_SQUARE + n] = (OPTPY_REAL)R[n];
        for (int64_t i = l->members[I]; i < l->members[I + 1]; i++)
            for (int a = 0; a < AMG_BLOCK; a++) {
                const int64_t at = i * AMG_SQUARE + a * AMG_BLOCK;
                const int kept = amg_has_pivot(l, i, a);
                const OPTPY_REAL *c = l->candidates + at;
                for (int k = 0; k < AMG_BLOCK; k++) {
                    double sum = 0;
                    for (int n = 0; n <= k; n++) sum += (double)c[n] * inverse[n * AMG_BLOCK + k];
                    g->tentative[at + k] = kept ? (OPTPY_REAL)sum : 0;
                }
            }
    }
}

/* P = T - omega D^-1 A T, or T alone where rows are plain. */
static void amg_smooth_prolongator(const Aggregation *g, const AmgLevel *l, const Team *team, int thread) {
    AMG_SHARE(i, l->nodes, team, thread) {
        const int64_t first = l->p_rows[i], last = l->p_rows[i + 1];
        if (first == last) continue;
        memset(l->p + first * AMG_SQUARE, 0, (size_t)(last - first) * AMG_SQUARE * sizeof *l->p);
        if (!l->plain[i]) {
            for (int64_t k = l->rows[i]; k < l->rows[i + 1]; k++) {
                const int64_t at = amg_find(l->p_columns, first, last, l->aggregate[l->columns[k]]);
                amg_add_product(l->p + at * AMG_SQUARE, l->matrix + k * AMG_SQUARE, g->tentative + l->columns[k] * (int64_t)AMG_SQUARE);
            }
            for (int64_t at = first; at < last; at++) {
                OPTPY_REAL product[AMG_SQUARE + AMG_LANES] = {0};
                amg_add_transposed_product(product, l->inverse + i * AMG_SQUARE, l->p + at * AMG_SQUARE);
                for (int n = 0; n < AMG_SQUARE; n++) product[n] *= (OPTPY_REAL)-l->omega;
                memset(l->p + at * AMG_SQUARE, 0, AMG_SQUARE * sizeof *product);
                amg_add_product(l->p + at * AMG_SQUARE, l->inverse + i * AMG_SQUARE, product);
            }
        }
        OPTPY_REAL *own = l->p + amg_find(l->p_columns, first, last, l->aggregate[i]) * AMG_SQUARE;
        for (int n = 0; n < AMG_SQUARE; n++) own[n] += g->tentative[i * AMG_SQUARE + n];
    }
}

/* A P */
static void amg_multiply(const Aggregation *g, const AmgLevel *l, const Team *team, int thread) {
    AMG_SHARE(i, l->nodes, team, thread) {
        const int64_t first = l->ap_rows[i], last = l->ap_rows[i + 1];
        memset(g->product + first * AMG_SQUARE, 0, (size_t)(last - first) * AMG_SQUARE * sizeof *g->product);
        for (int64_t k = l->rows[i]; k < l->rows[i + 1]; k++) {
            const int64_t j = l->columns[k];
            int64_t at = first;
            for (int64_t n = l->p_rows[j]; n < l->p_rows[j + 1]; n++) {
                at = amg_find(l->ap_columns, at, last, l->p_columns[n]);
                amg_add_product(g->product + at * AMG_SQUARE, l->matrix + k * AMG_SQUARE, l->p + n * AMG_SQUARE);
            }
        }
    }
}

/* A of the coarser level = P^T (A P) */
static void amg_coarsen(const Aggregation *g, const AmgLevel *l, const AmgLevel *coarse, const Team *team, int thread) {
    AMG_SHARE(I, coarse->nodes, team, thread) {
        const int64_t first = coarse->rows[I], last = coarse->rows[I + 1];
        memset(coarse->matrix + first * AMG_SQUARE, 0, (size_t)(last - first) * AMG_SQUARE * sizeof *coarse->matrix);
        for (int64_t k = l->pt_rows[I]; k < l->pt_rows[I + 1]; k++) {
            const int64_t i = l->pt_nodes[k];
            int64_t at = first;
            for (int64_t n = l->ap_rows[i]; n < l->ap_rows[i + 1]; n++) {
                at = amg_find(coarse->columns, at, last, l->ap_columns[n]);
                amg_add_transposed_product(coarse->matrix + at * AMG_SQUARE, l->p + l->pt_entries[k] * AMG_SQUARE,
                                           g->product + n * AMG_SQUARE);
            }
        }
    }
}

/* L and the inverse pivots of the coarsest matrix, dense (L below the diagonal); singular directions get 0. */
static void amg_factor(const Aggregation *g) {
    const AmgLevel *l = &g->level[g->levels - 1];
    const int64_t n = l->nodes * AMG_BLOCK;
    double *f = g->factor;
    memset(f, 0, (size_t)(n * n) * sizeof *f);
    for (int64_t i = 0; i < l->nodes; i++)
        for (int64_t k = l->rows[i]; k < l->rows[i + 1]; k++)
            for (int e = 0; e < AMG_SQUARE; e++)
                f[(i * AMG_BLOCK + e / AMG_BLOCK) * n + l->columns[k] * (int64_t)AMG_BLOCK + e % AMG_BLOCK] =
                    (double)l->matrix[k * AMG_SQUARE + e];
    for (int64_t i = 0; i < n; i++) {
        double pivot = f[i * n + i];
        const double diagonal = pivot, least = AMG_SINGULAR * pivot;
        for (int64_t k = 0; k < i; k++) {
            double sum = f[i * n + k];
            for (int64_t m = 0; m < k; m++) sum -= f[i * n + m] * f[k * n + m];
            f[i * n + k] = sum; /* L_ik D_k until the row is done */
        }
        for (int64_t k = 0; k < i; k++) {
            const double scaled = f[i * n + k] * f[k * n + k];
            pivot -= scaled * f[i * n + k];
            f[i * n + k] = scaled;
        }
        f[i * n + i] = pivot > least && pivot > 0 ? 1 / pivot : diagonal > 0 ? 1 / diagonal : 0;
    }
}

OPTPY_FN OPTPY_REAL amg_larger(OPTPY_REAL a, OPTPY_REAL b) { return b > a ? b : -b > a ? -b : a; }

/* q and qt. */
static void amg_scale_prolongator(const AmgLevel *l, const AmgLevel *coarse, const Team *team, int thread) {
    AMG_SHARE(I, coarse->nodes, team, thread) {
        OPTPY_REAL largest = 0;
        for (int64_t k = l->pt_rows[I]; k < l->pt_rows[I + 1]; k++) {
            OPTPY_REAL right[AMG_SQUARE + AMG_LANES] = {0}, *p = l->p + l->pt_entries[k] * AMG_SQUARE;
            amg_add_product(right, p, coarse->inverse + I * AMG_SQUARE);
            memset(p, 0, AMG_SQUARE * sizeof *p);
            amg_add_product(p, l->root + (int64_t)l->pt_nodes[k] * AMG_SQUARE, right);
            for (int n = 0; n < AMG_SQUARE; n++) largest = amg_larger(largest, p[n]);
        }
        l->q_scale[I] = largest;
        const OPTPY_REAL inverse = largest > 0 ? 1 / largest : 0;
        for (int64_t k = l->pt_rows[I]; k < l->pt_rows[I + 1]; k++)
            for (int n = 0; n < AMG_SQUARE; n++) {
                const int64_t at = l->pt_entries[k] * AMG_SQUARE + n;
                l->q[at] = l->qt[k * AMG_SQUARE + n] = amg_pack(inverse * l->p[at]);
            }
    }
}

static void amg_build_from(Aggregation *g, int64_t level, Team *team, int thread) {
    AmgLevel *l = &g->level[level];
    if (team->threads > 1 && amg_is_small(l)) {
        Team alone = {.threads = 1};
        if (thread == 0) amg_build_from(g, level, &alone, 0);
        team_barrier(team);
        return;
    }
    if (safe_point_of_team(g->safe, team, thread)) return;
    amg_factor_blocks(g, l, team, thread);
    team_barrier(team);
    amg_scale(l, team, thread);
    team_barrier(team);
    amg_weigh(l, team, thread);
    if (level == g->levels - 1) {
        if (thread == 0 && g->factor) amg_factor(g);
        team_barrier(team);
        return;
    }
    amg_orthogonalise(g, l, l + 1, team, thread);
    amg_estimate(g, l, team, thread);
    amg_smooth_prolongator(g, l, team, thread);
    if (safe_point_of_team(g->safe, team, thread)) return;
    team_barrier(team);
    amg_multiply(g, l, team, thread);
    if (safe_point_of_team(g->safe, team, thread)) return;
    team_barrier(team);
    amg_coarsen(g, l, l + 1, team, thread);
    team_barrier(team);
    amg_build_from(g, level + 1, team, thread);
    if (safe_stopped(g->safe)) return;
    amg_scale_prolongator(l, l + 1, team, thread);
    team_barrier(team);
}

/* All levels from the matrix and the candidates of level 0, whose b is kept, if no safe point stops it: all threads of the
 * team call it; ends with a barrier. */
static __attribute__((unused)) void amg_build(Aggregation *g, Team *team, int thread) {
    amg_build_from(g, 0, team, thread);
}
