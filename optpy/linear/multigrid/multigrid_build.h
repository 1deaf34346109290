/* The numbers of multigrid.h: matrices of the coarse levels, the inverses of their diagonal blocks, each level's
 * damping, and the factor of the coarsest. The finest level's part is in multigrid_solve.h. */

/* The position of a neighbour, numbered in the whole stencil. */
OPTPY_FN void mg_neighbour(int code, int64_t d[3]) {
    d[0] = code / (MG_NY * MG_NX) - MG_REACH_Z;
    d[1] = code / MG_NX % MG_NY - MG_REACH_Y;
    d[2] = code % MG_NX - MG_REACH_X;
}

OPTPY_FN int64_t mg_modulo(int64_t a, int64_t n) { return (a % n + n) % n; }

/* x = 1 in the channels of a colour, at the points of a colour; 0 elsewhere. */
static void mg_probe(const MgLevel *l, int colour, const int64_t *point, const Team *team, int thread) {
    MG_ROWS(l, team, thread) {
        const int row = q / l->size[1] % MG_NZ == point[0] && q % l->size[1] % MG_NY == point[1];
        for (int c = 0; c < MG_CHANNELS; c++)
            for (int64_t i = 0; i < l->size[2]; i++)
                l->x[c * l->plane + at + i] = row && mg_colour[c] == colour && i % MG_NX == point[2];
    }
}

/* The entries of the matrix that a probe has put into b. */
static void mg_collect(const MgLevel *l, int colour, const int64_t *point, const Team *team, int thread) {
    MG_ROWS(l, team, thread)
        for (int p = 0; p < MG_PAIRS; p++) {
            if (mg_colour[mg_column[p]] != colour) continue;
            const int64_t Z = q / l->size[1], Y = q % l->size[1];
            const int64_t dz = mg_modulo(point[0] - Z + MG_REACH_Z, MG_NZ), dy = mg_modulo(point[1] - Y + MG_REACH_Y, MG_NY);
            const int64_t z = Z + dz - MG_REACH_Z, y = Y + dy - MG_REACH_Y;
            const int inside = z >= 0 && z < l->size[0] && y >= 0 && y < l->size[1];
            for (int64_t i = 0; i < l->size[2]; i++) {
                const int64_t dx = mg_modulo(point[2] - i + MG_REACH_X, MG_NX), x = i + dx - MG_REACH_X;
                const int64_t n = (dz * MG_NY + dy) * MG_NX + dx - (MG_HALF - 1);
                if (n < 0) continue;
                l->matrix[(p * MG_HALF + n) * l->plane + at + i] =
                    inside && x >= 0 && x < l->size[2] ? l->b[mg_row[p] * l->plane + at + i] : 0;
            }
        }
}

/* One dim of P^T A P: from coarse I over i = step I + near and j = i + far to J = I + coarse. */
typedef struct { int64_t near, far, coarse; double weight; } MgPath;

static int mg_paths(int64_t step, int64_t reach, MgPath *paths) {
    int n = 0;
    for (int64_t near = 1 - step; near < step; near++)
        for (int64_t far = -reach; far <= reach; far++) {
            const int64_t j = near + far;
            const double weight = near ? 0.5 : 1.0;
            if (step == 1) paths[n++] = (MgPath){near, far, j, weight};
            else if (j % 2 == 0) paths[n++] = (MgPath){near, far, j / 2, weight};
            else for (int64_t up = -1; up <= 1; up += 2) paths[n++] = (MgPath){near, far, (j + up) / 2, 0.5 * weight};
        }
    return n;
}

/* One path's contribution to one row of a coarse matrix. */
OPTPY_FN void mg_add_path(const MgLevel *fine, const MgLevel *l, const MgPath *z, const MgPath *y, const MgPath *x,
                          int64_t Z, int64_t Y, int64_t at) {
    const int64_t n = (z->coarse * MG_NY + y->coarse) * MG_NX + x->coarse;
    const int64_t m = (z->far * MG_NY + y->far) * MG_NX + x->far;
    const int64_t iz = l->step[0] * Z + z->near, iy = l->step[1] * Y + y->near;
    if (n < 0 || iz < 0 || iz >= fine->size[0] || iy < 0 || iy >= fine->size[1]) return;
    const int64_t step = l->step[2], first = x->near < 0 ? 1 : 0;
    int64_t last = (fine->size[2] - 1 - x->near) / step + 1; /* step X + near < size */
    if (last > l->size[2]) last = l->size[2];
    const int64_t from = fine->origin + iz * fine->slab + iy * fine->row + x->near;
    const OPTPY_REAL weight = (OPTPY_REAL)(z->weight * y->weight * x->weight);
    for (int p = 0; p < MG_PAIRS; p++) {
        const OPTPY_REAL *source = m >= 0 ? fine->matrix + (p * MG_HALF + m) * fine->plane + from
            : fine->matrix + (mg_transposed[p] * MG_HALF - m) * fine->plane + from - fine->offset[-m];
        OPTPY_REAL *target = l->matrix + (p * MG_HALF + n) * l->plane + at;
        if (step == 2) for (int64_t X = first; X < last; X++) target[X] += weight * source[2 * X];
        else for (int64_t X = first; X < last; X++) target[X] += weight * source[X];
    }
}

/* A of a level = P^T A P of the finer one. */
static void mg_coarsen(const MgLevel *fine, const MgLevel *l, const Team *team, int thread) {
    MgPath z[6 * MG_NZ], y[6 * MG_NY], x[6 * MG_NX];
    const int nz = mg_paths(l->step[0], MG_REACH_Z, z), ny = mg_paths(l->step[1], MG_REACH_Y, y);
    const int nx = mg_paths(l->step[2], MG_REACH_X, x);
    MG_ROWS(l, team, thread) {
        for (int64_t n = 0; n < MG_PAIRS * MG_HALF; n++)
            memset(l->matrix + n * l->plane + at, 0, (size_t)l->size[2] * sizeof *l->matrix);
        for (int iz = 0; iz < nz; iz++)
            for (int iy = 0; iy < ny; iy++)
                for (int ix = 0; ix < nx; ix++)
                    mg_add_path(fine, l, &z[iz], &y[iy], &x[ix], q / l->size[1], q % l->size[1], at);
    }
}

/* L and the inverse pivots of a symmetric matrix, in place (L below the diagonal); singular directions get 0. */
static void mg_factor(double *a, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double diagonal = a[i * n + i];
        for (int64_t k = 0; k < i; k++) {
            double sum = a[i * n + k];
            for (int64_t m = 0; m < k; m++) sum -= a[i * n + m] * a[k * n + m];
            a[i * n + k] = sum; /* L_ik D_k until the row is done */
        }
        double pivot = diagonal;
        for (int64_t k = 0; k < i; k++) {
            const double scaled = a[i * n + k] * a[k * n + k];
            pivot -= scaled * a[i * n + k];
            a[i * n + k] = scaled;
        }
        a[i * n + i] = pivot > MG_SINGULAR * diagonal ? 1 / pivot : 0;
    }
}

/* The inverses of the diagonal blocks. */
static void mg_invert_blocks(const MgLevel *l, const Team *team, int thread) {
    MG_ROWS(l, team, thread)
        for (int64_t i = 0; i < l->size[2]; i++) {
            double a[MG_CHANNELS * MG_CHANNELS] = {0};
            for (int p = 0; p < MG_PAIRS; p++)
                a[mg_row[p] * MG_CHANNELS + mg_column[p]] = (double)l->matrix[p * MG_HALF * l->plane + at + i];
            mg_factor(a, MG_CHANNELS);
            for (int c = 0; c < MG_CHANNELS; c++) {
                double y[MG_CHANNELS] = {0};
                y[c] = 1;
                mg_substitute(a, MG_CHANNELS, y);
                for (int p = mg_inverse_first[c]; p < mg_inverse_first[c + 1]; p++)
                    l->inverse[p * l->plane + at + i] = (OPTPY_REAL)y[mg_inverse_column[p]];
            }
        }
}

/* omega from the largest eigenvalue of D^-1 A, by power iteration: x <- D^-1 A x / ||x||. */
static void mg_estimate(MgLevel *l, double *partial, Team *team, int thread) {
    const int64_t rows = l->size[0] * l->size[1];
    double norm = 1, eigenvalue = 0;
    {
        MG_ROWS(l, team, thread)
            for (int c = 0; c < MG_CHANNELS; c++)
                for (int64_t i = 0; i < l->size[2]; i++) {
                    const int64_t n = c * l->plane + at + i;
                    l->x[n] = optpy_random_sign((uint64_t)n);
                    l->b[n] = 0;
                }
    }
    team_barrier(team);
    for (int n = 0; n < MG_POWER_ITERATIONS; n++) {
        mg_residual(l, team, thread); /* t = -A x */
        team_barrier(team);
        mg_invert(l, l->t, 1 / norm, partial, team, thread);
        team_barrier(team);
        double squares = 0;
        for (int64_t q = 0; q < rows; q++) squares += partial[q];
        eigenvalue = norm = sqrt(squares);
        if (!(norm > 0)) break;
        team_barrier(team); /* everyone has read the sums */
    }
    if (thread == 0) l->omega = eigenvalue > 0 ? MG_DAMPING / eigenvalue : 0;
    team_barrier(team);
}

/* The dense matrix of the coarsest level, factored. */
static void mg_factor_coarsest(const Multigrid *g) {
    const MgLevel *l = &g->level[g->levels - 1];
    const int64_t points = l->size[0] * l->size[1] * l->size[2], n = points * MG_CHANNELS;
    memset(g->factor, 0, (size_t)(n * n) * sizeof *g->factor);
    for (int64_t i = 0; i < points; i++)
        for (int h = 0; h < MG_HALF; h++) {
            int64_t d[3];
            mg_neighbour(h + MG_HALF - 1, d);
            const int64_t at = mg_at(l, i / l->size[2]) + i % l->size[2];
            const int64_t z = i / l->size[2] / l->size[1] + d[0], y = i / l->size[2] % l->size[1] + d[1], x = i % l->size[2] + d[2];
            if (z < 0 || z >= l->size[0] || y < 0 || y >= l->size[1] || x < 0 || x >= l->size[2]) continue;
            const int64_t j = (z * l->size[1] + y) * l->size[2] + x;
            for (int p = 0; p < MG_PAIRS; p++) {
                const double entry = (double)l->matrix[(p * MG_HALF + h) * l->plane + at];
                const int64_t a = i * MG_CHANNELS + mg_row[p], b = j * MG_CHANNELS + mg_column[p];
                g->factor[a * n + b] = g->factor[b * n + a] = entry;
            }
        }
    mg_factor(g->factor, n);
}
