/* A geometric multigrid preconditioner for A = J^T J + D on one grid: one V-cycle with one sweep of damped Jacobi
 * before and after (Trottenberg et al., Multigrid, 2001, chapters 2 and 7; as preconditioner: Tatebe 1993).
 *
 * The finest A stays matrix-free. The first coarse matrix, P^T A P with linear interpolation P, is found by probing:
 * A is applied to sums of coarse basis functions that are too far apart to overlap in the product (Curtis, Powell and
 * Reid 1974). It and all coarser ones are stencils, of which the half with offset >= 0 is stored: A is symmetric.
 *
 * Coarse points are every other point of the finer grid, with one beyond its end where the size is even: so every
 * fine point has its parents, and the weights are 1/2, 1, 1/2 everywhere. Coarse arrays have a halo of zeros. */

typedef OPTPY_REAL MgVec __attribute__((vector_size(MG_CHUNK_BYTES / 2), aligned(sizeof(OPTPY_REAL)), may_alias));

enum {
    MG_CHUNK = MG_CHUNK_BYTES / sizeof(OPTPY_REAL), /* points that are visited at a time, as two vectors */
    MG_LANES = MG_CHUNK / 2,
    MG_STRIP = 256,           /* points of a row that are interpolated at a time */
    MG_ALONE = 1 << 17,       /* multiplications below which one thread is faster than a barrier */
};

OPTPY_FN MgVec mg_load(const OPTPY_REAL *p) { return *(const MgVec *)p; }
OPTPY_FN void mg_store(OPTPY_REAL *p, MgVec v) { *(MgVec *)p = v; }

/* A loop over the rows of a level that belong to this thread: `at` is the first point of each in its plane. */
#define MG_ROWS(l, team, thread)                                                                            \
    ptrdiff_t mg_begin, mg_end;                                                                             \
    team_share((ptrdiff_t)((l)->size[0] * (l)->size[1]), thread, (team)->threads, &mg_begin, &mg_end);      \
    for (int64_t q = mg_begin, at; q < mg_end && (at = mg_at(l, q), 1); q++)

OPTPY_FN int64_t mg_at(const MgLevel *l, int64_t q) {
    return l->origin + q / l->size[1] * l->slab + q % l->size[1] * l->row;
}

/* -- products on a level ------------------------------------------------------------------------------------------- */

/* b - A x of one channel, at two vectors of points. */
OPTPY_FN void mg_residual_at(const MgLevel *l, int channel, int64_t at, MgVec result[2]) {
    const OPTPY_REAL *b = l->b + channel * l->plane + at;
    MgVec sum0 = mg_load(b), sum1 = mg_load(b + MG_LANES);
    for (int p = mg_first[channel]; p < mg_first[channel + 1]; p++) {
        const OPTPY_REAL *x = l->x + mg_column[p] * l->plane + at;
        const OPTPY_REAL *A = l->matrix + (int64_t)p * MG_HALF * l->plane + at;
        const OPTPY_REAL *T = l->matrix + (int64_t)mg_transposed[p] * MG_HALF * l->plane + at;
        for (int n = 0; n < MG_HALF; n++) {
            const OPTPY_REAL *entry = A + n * l->plane, *value = x + l->offset[n];
            sum0 -= mg_load(entry) * mg_load(value);
            sum1 -= mg_load(entry + MG_LANES) * mg_load(value + MG_LANES);
        }
        for (int n = 1; n < MG_HALF; n++) {
            const OPTPY_REAL *entry = T + n * l->plane - l->offset[n], *value = x - l->offset[n];
            sum0 -= mg_load(entry) * mg_load(value);
            sum1 -= mg_load(entry + MG_LANES) * mg_load(value + MG_LANES);
        }
    }
    result[0] = sum0;
    result[1] = sum1;
}

/* One channel of the block diagonal's inverse times r. */
OPTPY_FN MgVec mg_inverse_at(const MgLevel *l, int channel, int64_t at, const MgVec r[][2], int half) {
    MgVec sum = {0};
    for (int p = mg_inverse_first[channel]; p < mg_inverse_first[channel + 1]; p++)
        sum += mg_load(l->inverse + p * l->plane + at + half * MG_LANES) * r[mg_inverse_column[p]][half];
    return sum;
}

/* t = b - A x */
static void mg_residual(const MgLevel *l, const Team *team, int thread) {
    MG_ROWS(l, team, thread)
        for (int64_t i = 0; i < l->size[2]; i += MG_CHUNK)
            for (int c = 0; c < MG_CHANNELS; c++) {
                MgVec r[2];
                mg_residual_at(l, c, at + i, r);
                mg_store(l->t + c * l->plane + at + i, r[0]);
                mg_store(l->t + c * l->plane + at + i + MG_LANES, r[1]);
            }
}

/* t = x + omega D^-1 (b - A x) */
static void mg_smooth(const MgLevel *l, const Team *team, int thread) {
    const OPTPY_REAL omega = (OPTPY_REAL)l->omega;
    MG_ROWS(l, team, thread)
        for (int64_t i = 0; i < l->size[2]; i += MG_CHUNK) {
            MgVec r[MG_CHANNELS][2];
            for (int c = 0; c < MG_CHANNELS; c++) mg_residual_at(l, c, at + i, r[c]);
            for (int c = 0; c < MG_CHANNELS; c++)
                for (int half = 0; half < 2; half++) {
                    const int64_t here = c * l->plane + at + i + half * MG_LANES;
                    mg_store(l->t + here, mg_load(l->x + here) + omega * mg_inverse_at(l, c, at + i, r, half));
                }
        }
}

/* x = scale D^-1 v; leaves the sum of x^2 of each row in `partial` if there is one. */
static void mg_invert(const MgLevel *l, const OPTPY_REAL *v, double scale, double *partial, const Team *team, int thread) {
    MG_ROWS(l, team, thread) {
        double squares = 0;
        for (int64_t i = 0; i < l->size[2]; i += MG_CHUNK) {
            MgVec r[MG_CHANNELS][2];
            for (int c = 0; c < MG_CHANNELS; c++)
                for (int half = 0; half < 2; half++) r[c][half] = mg_load(v + c * l->plane + at + i + half * MG_LANES);
            for (int c = 0; c < MG_CHANNELS; c++)
                for (int half = 0; half < 2; half++) {
                    const MgVec x = (OPTPY_REAL)scale * mg_inverse_at(l, c, at + i, r, half);
                    mg_store(l->x + c * l->plane + at + i + half * MG_LANES, x);
                    if (partial)
                        for (int k = 0; k < MG_LANES; k++) squares += (double)x[k] * (double)x[k];
                }
        }
        if (partial) partial[q] = squares;
    }
}

/* -- between two grids --------------------------------------------------------------------------------------------- */

/* strip[k] = the sum over the neighbouring rows, with their weights, at x = begin + k; 0 outside. */
OPTPY_FN void mg_gather_rows(const MgChannel *f, const int64_t *step, int64_t Z, int64_t Y, int64_t begin, int64_t count,
                             OPTPY_REAL *strip) {
    const int64_t low = begin < 0 ? 0 : begin, high = begin + count < f->size[2] ? begin + count : f->size[2];
    for (int64_t k = 0; k < count; k++) strip[k] = 0;
    for (int64_t dz = 1 - step[0]; dz < step[0]; dz++)
        for (int64_t dy = 1 - step[1]; dy < step[1]; dy++) {
            const int64_t z = step[0] * Z + dz, y = step[1] * Y + dy;
            if (z < 0 || z >= f->size[0] || y < 0 || y >= f->size[1]) continue;
            const OPTPY_REAL weight = (OPTPY_REAL)((dz ? 0.5 : 1.0) * (dy ? 0.5 : 1.0));
            const OPTPY_REAL *v = f->values + z * f->slab + y * f->row;
            if (f->minus) {
                const OPTPY_REAL *m = f->minus + z * f->slab + y * f->row;
                for (int64_t x = low; x < high; x++) strip[x - begin] += weight * (v[x] - m[x]);
            } else {
                for (int64_t x = low; x < high; x++) strip[x - begin] += weight * v[x];
            }
        }
}

/* b = P^T v on a level, from the next finer grid. */
static void mg_restrict(const MgLevel *l, const MgChannel *from, const Team *team, int thread) {
    MG_ROWS(l, team, thread)
        for (int c = 0; c < MG_CHANNELS; c++)
            for (int64_t begin = 0; begin < l->size[2]; begin += MG_STRIP) {
                const int64_t count = l->size[2] - begin < MG_STRIP ? l->size[2] - begin : MG_STRIP;
                OPTPY_REAL strip[2 * MG_STRIP + 1];
                OPTPY_REAL *b = l->b + c * l->plane + at + begin;
                const int64_t Z = q / l->size[1], Y = q % l->size[1];
                if (l->step[2] == 2) {
                    mg_gather_rows(&from[c], l->step, Z, Y, 2 * begin - 1, 2 * count + 1, strip);
                    for (int64_t k = 0; k < count; k++)
                        b[k] = strip[2 * k + 1] + (OPTPY_REAL)0.5 * (strip[2 * k] + strip[2 * k + 2]);
                } else {
                    mg_gather_rows(&from[c], l->step, Z, Y, begin, count, strip);
                    memcpy(b, strip, (size_t)count * sizeof *b);
                }
            }
}

/* The coarse rows that a fine one lies between: how many, and the first. */
OPTPY_FN int64_t mg_parents(int64_t at, int64_t step, int64_t *first) {
    *first = at / step;
    return step == 2 && at % 2 ? 2 : 1;
}

/* strip[k] = the mean of the parent rows at X = begin + k. */
OPTPY_FN void mg_mean_rows(const MgLevel *l, const OPTPY_REAL *v, int64_t z, int64_t y, int64_t begin, int64_t count,
                           OPTPY_REAL *strip) {
    int64_t Z, Y;
    const int64_t nz = mg_parents(z, l->step[0], &Z), ny = mg_parents(y, l->step[1], &Y);
    const OPTPY_REAL weight = (OPTPY_REAL)1 / (OPTPY_REAL)(nz * ny);
    for (int64_t k = 0; k < count; k++) strip[k] = 0;
    for (int64_t dz = 0; dz < nz; dz++)
        for (int64_t dy = 0; dy < ny; dy++) {
            const OPTPY_REAL *from = v + l->origin + (Z + dz) * l->slab + (Y + dy) * l->row + begin;
            for (int64_t k = 0; k < count; k++) strip[k] += weight * from[k];
        }
}

/* to += P v (or to = P v), from v on a level to the next finer grid. */
static void mg_interpolate(const MgLevel *l, const OPTPY_REAL *v, const MgChannel *to, int add, const Team *team, int thread) {
    ptrdiff_t first, last;
    const int64_t *size = to[0].size;
    team_share((ptrdiff_t)(size[0] * size[1]), thread, team->threads, &first, &last);
    for (int64_t q = first; q < last; q++)
        for (int c = 0; c < MG_CHANNELS; c++)
            for (int64_t begin = 0; begin < size[2]; begin += MG_STRIP) {
                const int64_t count = size[2] - begin < MG_STRIP ? size[2] - begin : MG_STRIP;
                const int64_t z = q / size[1], y = q % size[1], at = z * to[c].slab + y * to[c].row + begin;
                OPTPY_REAL strip[MG_STRIP + 2], fine[MG_STRIP + 2];
                OPTPY_REAL *value = to[c].values + at;
                const OPTPY_REAL *mask = to[c].mask ? to[c].mask + at : NULL;
                if (l->step[2] == 2) {
                    mg_mean_rows(l, v + c * l->plane, z, y, begin / 2, (count + 1) / 2 + 1, strip);
                    for (int64_t k = 0; k < (count + 1) / 2; k++) {
                        fine[2 * k] = strip[k];
                        fine[2 * k + 1] = (OPTPY_REAL)0.5 * (strip[k] + strip[k + 1]);
                    }
                } else {
                    mg_mean_rows(l, v + c * l->plane, z, y, begin, count, fine);
                }
                const OPTPY_REAL keep = (OPTPY_REAL)add;
                if (mask)
                    for (int64_t k = 0; k < count; k++) value[k] = keep * value[k] + (mask[k] != 0 ? fine[k] : 0);
                else
                    for (int64_t k = 0; k < count; k++) value[k] = keep * value[k] + fine[k];
            }
}

OPTPY_FN void mg_channels_of_level(const MgLevel *l, OPTPY_REAL *v, MgChannel *channels) {
    for (int c = 0; c < MG_CHANNELS; c++)
        channels[c] = (MgChannel){l->size, l->row, l->slab, v + c * l->plane + l->origin, NULL, NULL};
}

OPTPY_FN OPTPY_REAL *mg_field(const Context *c, const int place[2]) {
    return (OPTPY_REAL *)c->field[place[0]] + place[1] * c->plane[place[0]];
}

/* The finest grid: of a vector, less another one, masked by a third; the two may be null. */
OPTPY_FN void mg_fine(const Context *c, const Multigrid *g, const int (*values)[2], const int (*minus)[2],
                      const int (*mask)[2], MgChannel *channels) {
    for (int n = 0; n < MG_CHANNELS; n++)
        channels[n] = (MgChannel){g->size, g->row, g->slab, mg_field(c, values[n]),
                                  minus ? mg_field(c, minus[n]) : NULL, mask ? mg_field(c, mask[n]) : NULL};
}

/* -- the cycle ----------------------------------------------------------------------------------------------------- */

/* y = A^-1 y, of a matrix that mg_factor has factored. */
OPTPY_FN void mg_substitute(const double *factor, int64_t n, double *y) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < i; k++) y[i] -= factor[i * n + k] * y[k];
    for (int64_t i = 0; i < n; i++) y[i] *= factor[i * n + i]; /* the inverse pivot */
    for (int64_t i = n - 1; i >= 0; i--)
        for (int64_t k = i + 1; k < n; k++) y[i] -= factor[k * n + i] * y[k];
}

/* t = A^-1 b on the coarsest level. */
static void mg_solve_coarsest(const Multigrid *g) {
    const MgLevel *l = &g->level[g->levels - 1];
    const int64_t n = l->size[0] * l->size[1] * l->size[2] * MG_CHANNELS;
#define MG_UNKNOWN(v, i) \
    (v)[(i) % MG_CHANNELS * l->plane + mg_at(l, (i) / MG_CHANNELS / l->size[2]) + (i) / MG_CHANNELS % l->size[2]]
    for (int64_t i = 0; i < n; i++) g->work[i] = (double)MG_UNKNOWN(l->b, i);
    mg_substitute(g->factor, n, g->work);
    for (int64_t i = 0; i < n; i++) MG_UNKNOWN(l->t, i) = (OPTPY_REAL)g->work[i];
#undef MG_UNKNOWN
}

OPTPY_FN int mg_is_small(const MgLevel *l) {
    return l->size[0] * l->size[1] * l->size[2] * MG_PAIRS * MG_NEIGHBOURS < MG_ALONE;
}

/* t ~ A^-1 b on a level: symmetric, because the sweeps before and after are the same. */
static void mg_cycle(const Multigrid *g, int64_t level, Team *team, int thread) {
    MgLevel *l = &g->level[level];
    if (team->threads > 1 && mg_is_small(l)) {
        Team alone = {.threads = 1};
        if (thread == 0) mg_cycle(g, level, &alone, 0);
        team_barrier(team);
        return;
    }
    if (level == g->levels - 1) {
        if (thread == 0) mg_solve_coarsest(g);
        team_barrier(team);
        return;
    }
    MgChannel channels[MG_CHANNELS];
    mg_invert(l, l->b, l->omega, NULL, team, thread);                        /* x = omega D^-1 b */
    team_barrier(team);
    mg_residual(l, team, thread);
    team_barrier(team);
    mg_channels_of_level(l, l->t, channels);
    mg_restrict(&g->level[level + 1], channels, team, thread);
    team_barrier(team);
    mg_cycle(g, level + 1, team, thread);
    mg_channels_of_level(l, l->x, channels);
    mg_interpolate(&g->level[level + 1], g->level[level + 1].t, channels, 1, team, thread);
    team_barrier(team);
    mg_smooth(l, team, thread);
    team_barrier(team);
}
