/* The numbers of multigrid.cuh, as multigrid_build.h has them: matrices of the coarse levels, the inverses of their
 * diagonal blocks, each level's damping, and the inverse of the coarsest. The products with the finest A are queued by the
 * host. */

OPTPY_FN int mg_modulo(int a, int n) { return (a % n + n) % n; }

/* x = 1 in the channels of a colour, at the points of a colour; 0 elsewhere. */
MG_KERNEL(mg_make_probe) {
    MG_CONTEXT
    const MgLevel *l = &c->level;
    const MgShare share = mg_of_grid();
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const MgPoint p = mg_point(l, q);
        const bool here = p.z % MG_NZ == c->probe[0] && p.y % MG_NY == c->probe[1] && p.x % MG_NX == c->probe[2];
#pragma unroll MG_EACH_CHANNEL
        for (int channel = 0; channel < MG_CHANNELS; ++channel)
            l->x[channel * l->plane + mg_at(l, p)] = (OPTPY_REAL)(here && mg_colour[channel] == c->colour);
    }
}

/* The entries of the matrix that a probe has put into b. */
MG_KERNEL(mg_collect) {
    MG_CONTEXT
    const MgLevel *l = &c->level;
    const MgShare share = mg_of_grid();
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const MgPoint p = mg_point(l, q);
        const MgPoint d = {mg_modulo(c->probe[0] - p.z + MG_REACH_Z, MG_NZ), mg_modulo(c->probe[1] - p.y + MG_REACH_Y, MG_NY),
                           mg_modulo(c->probe[2] - p.x + MG_REACH_X, MG_NX)};
        const int n = (d.z * MG_NY + d.y) * MG_NX + d.x - (MG_HALF - 1);
        if (n < 0) continue;
        const int z = p.z + d.z - MG_REACH_Z, y = p.y + d.y - MG_REACH_Y, x = p.x + d.x - MG_REACH_X;
        const bool inside = z >= 0 && z < l->size[0] && y >= 0 && y < l->size[1] && x >= 0 && x < l->size[2];
        const int at = mg_at(l, p);
        for (int pair = 0; pair < MG_PAIRS; ++pair)
            if (mg_colour[mg_column[pair]] == c->colour)
                l->matrix[((long long)pair * MG_HALF + n) * l->plane + at] =
                    inside ? l->b[mg_row[pair] * l->plane + at] : (OPTPY_REAL)0;
    }
}

/* -- P^T A P ------------------------------------------------------------------------------------------------------- */

/* One dim of P^T A P: a coarse I and J = I + coarse meet in the fine i = step I + near and j = step J + other. */
struct MgMeeting { int near, far; double weight; };

OPTPY_FN bool mg_meets(long long step, int reach, int coarse, int number, MgMeeting *m) {
    const int near = step == 2 ? number / 3 - 1 : 0, other = step == 2 ? number % 3 - 1 : 0;
    *m = {near, (int)step * coarse + other - near, (near ? 0.5 : 1.0) * (other ? 0.5 : 1.0)};
    return m->far >= -reach && m->far <= reach;
}

/* A(row, i; column, i + far) of a level. */
OPTPY_FN OPTPY_REAL mg_entry(const MgLevel *l, int pair, int at, MgPoint far) {
    const int n = (far.z * MG_NY + far.y) * MG_NX + far.x;
    if (n >= 0) return mg_entries(l, pair, n)[at];
    return mg_entries(l, mg_transposed[pair], -n)[at + mg_offset(l, far)];
}

/* One number of a coarse matrix. */
OPTPY_FN OPTPY_REAL mg_coarse_entry(const MgLevel *fine, const MgLevel *l, int pair, MgPoint coarse, MgPoint at) {
    OPTPY_REAL sum = 0;
    MgMeeting z, y, x;
    for (int nz = 0; nz < (l->step[0] == 2 ? 9 : 1); ++nz) {
        const bool meets = mg_meets(l->step[0], MG_REACH_Z, coarse.z, nz, &z);
        const long long iz = l->step[0] * at.z + z.near;
        if (!meets || iz < 0 || iz >= fine->size[0]) continue;
        for (int ny = 0; ny < (l->step[1] == 2 ? 9 : 1); ++ny) {
            const bool meets = mg_meets(l->step[1], MG_REACH_Y, coarse.y, ny, &y);
            const long long iy = l->step[1] * at.y + y.near;
            if (!meets || iy < 0 || iy >= fine->size[1]) continue;
            for (int nx = 0; nx < (l->step[2] == 2 ? 9 : 1); ++nx) {
                const bool meets = mg_meets(l->step[2], MG_REACH_X, coarse.x, nx, &x);
                const long long ix = l->step[2] * at.x + x.near;
                if (!meets || ix < 0 || ix >= fine->size[2]) continue;
                const int i = mg_at(fine, {(int)iz, (int)iy, (int)ix});
                sum += (OPTPY_REAL)(z.weight * y.weight * x.weight) * mg_entry(fine, pair, i, {z.far, y.far, x.far});
            }
        }
    }
    return sum;
}

/* A of a level = P^T A P of the finer one. */
OPTPY_FN void mg_coarsen(const MgLevel *fine, const MgLevel *l, MgShare share) {
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const MgPoint p = mg_point(l, q);
        for (int pair = 0; pair < MG_PAIRS; ++pair)
            for (int n = 0; n < MG_HALF; ++n)
                l->matrix[((long long)pair * MG_HALF + n) * l->plane + mg_at(l, p)] =
                    mg_coarse_entry(fine, l, pair, mg_neighbour(n), p);
    }
}

/* -- diagonal blocks, and damping ------------------------------------------------------------------------------------ */

/* A^-1 of a symmetric matrix, by sweeping out one pivot after the other; singular directions get 0. */
OPTPY_FN void mg_sweep_block(double (&a)[MG_LARGEST][MG_LARGEST]) {
    double diagonal[MG_LARGEST];
#pragma unroll MG_EACH_MEMBER
    for (int k = 0; k < MG_LARGEST; ++k) diagonal[k] = a[k][k];
#pragma unroll MG_EACH_MEMBER
    for (int k = 0; k < MG_LARGEST; ++k) {
        const double pivot = a[k][k] > MG_SINGULAR * diagonal[k] ? 1 / a[k][k] : 0;
        double row[MG_LARGEST];
#pragma unroll MG_EACH_MEMBER
        for (int j = 0; j < MG_LARGEST; ++j) row[j] = a[k][j] * pivot;
#pragma unroll MG_EACH_MEMBER
        for (int i = 0; i < MG_LARGEST; ++i)
#pragma unroll MG_EACH_MEMBER
            for (int j = 0; j < MG_LARGEST; ++j)
                if (i != k && j != k) a[i][j] -= a[i][k] * row[j];
#pragma unroll MG_EACH_MEMBER
        for (int j = 0; j < MG_LARGEST; ++j) a[k][j] = a[j][k] = j == k ? -pivot : row[j];
    }
}

/* The inverses of the diagonal blocks. */
OPTPY_FN void mg_invert_blocks(const MgLevel *l, MgShare share) {
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const int at = mg_at(l, mg_point(l, q));
#pragma unroll MG_EACH_BLOCK
        for (int block = 0; block < MG_BLOCKS; ++block) {
            const int *member = mg_member + mg_block[block], count = mg_block[block + 1] - mg_block[block];
            double a[MG_LARGEST][MG_LARGEST] = {}; /* beyond the block all is 0, which stays so */
#pragma unroll MG_EACH_MEMBER
            for (int m = 0; m < MG_LARGEST; ++m) {
                if (m >= count) break;
#pragma unroll MG_EACH_MEMBER
                for (int p = mg_first[member[m]]; p < mg_first[member[m] + 1]; ++p)
                    a[m][mg_position[mg_column[p]]] = (double)mg_entries(l, p, 0)[at];
            }
            mg_sweep_block(a);
#pragma unroll MG_EACH_MEMBER
            for (int m = 0; m < MG_LARGEST; ++m) {
                if (m >= count) break;
                OPTPY_REAL *inverse = l->inverse + mg_inverse_first[member[m]] * l->plane + at;
#pragma unroll MG_EACH_MEMBER
                for (int n = 0; n < MG_LARGEST; ++n)
                    if (n < count) inverse[n * l->plane] = (OPTPY_REAL)-a[m][n];
            }
        }
    }
}

/* The start of the power iteration. */
OPTPY_FN void mg_begin_estimate(const MgLevel *l, MgShare share) {
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const int at = mg_at(l, mg_point(l, q));
#pragma unroll MG_EACH_CHANNEL
        for (int c = 0; c < MG_CHANNELS; ++c) {
            l->x[c * l->plane + at] = optpy_random_sign((uint64_t)(c * l->plane + at));
            l->b[c * l->plane + at] = 0;
        }
    }
}

/* The same on the finest grid, which the host goes on with. */
MG_KERNEL(mg_begin_finest_estimate) {
    MG_CONTEXT
    const MgShare share = mg_of_grid();
    for (unsigned q = share.first; q < mg_finest_points(c); q += share.stride) {
        const MgPoint p = mg_finest_point(c, q);
        const long long at = mg_finest_at(c, p);
#pragma unroll MG_EACH_CHANNEL
        for (int n = 0; n < MG_CHANNELS; ++n)
            c->fine[n].values[at] =
                c->fine[n].mask[at] != 0 ? optpy_random_sign((uint64_t)at * MG_CHANNELS + n) : (OPTPY_REAL)0;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *c->level.omega = 1;
}

MG_KERNEL(mg_coarsen_level) {
    MG_CONTEXT
    mg_coarsen(&c->level, &c->coarser, mg_of_grid());
}

/* Also begins the power iteration, for omega from the largest eigenvalue of D^-1 A: x <- D^-1 A x / ||x||. */
MG_KERNEL(mg_invert_blocks_of_level) {
    MG_CONTEXT
    mg_invert_blocks(&c->level, mg_of_grid());
    mg_begin_estimate(&c->level, mg_of_grid());
    if (blockIdx.x == 0 && threadIdx.x == 0) *c->level.omega = 1;
}

/* One step, after t = -A x; the last one is scaled. */
MG_KERNEL(mg_power) {
    MG_CONTEXT
    const double squares = mg_invert(&c->level, c->level.t, mg_of_grid());
    if (!optpy_arrive<1>(c, &squares, 0)) return;
    double total[1];
    optpy_totals<1>(c, total, 0);
    if (threadIdx.x == 0) *c->level.omega = c->scale * optpy_inverse_norm(total[0]);
}

/* The dense matrix of the coarsest level. */
OPTPY_FN void mg_fill_coarsest(const Context *c) {
    const MgLevel *l = &c->levels[c->last];
    const unsigned points = mg_points(l), n = points * MG_CHANNELS;
    for (unsigned k = threadIdx.x; k < n * n; k += blockDim.x) c->factor[k] = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < points; i += blockDim.x) {
        const MgPoint p = mg_point(l, i);
        for (int h = 0; h < MG_HALF; ++h) {
            const MgPoint d = mg_neighbour(h), to = {p.z + d.z, p.y + d.y, p.x + d.x};
            if (to.z < 0 || to.z >= l->size[0] || to.y < 0 || to.y >= l->size[1] || to.x < 0 || to.x >= l->size[2]) continue;
            const unsigned j = (unsigned)((to.z * l->size[1] + to.y) * l->size[2] + to.x);
            for (int pair = 0; pair < MG_PAIRS; ++pair) {
                const unsigned a = i * MG_CHANNELS + mg_row[pair], b = j * MG_CHANNELS + mg_column[pair];
                c->factor[a * n + b] = c->factor[b * n + a] = (double)mg_entries(l, pair, h)[mg_at(l, p)];
            }
        }
    }
    __syncthreads();
}

/* Its inverse, as mg_sweep_block, with the column of the pivot set aside. */
OPTPY_FN void mg_invert_coarsest(const Context *c) {
    const unsigned n = mg_points(&c->levels[c->last]) * MG_CHANNELS;
    double *a = c->factor, *column = c->work, *diagonal = c->work + n;
    for (unsigned k = threadIdx.x; k < n; k += blockDim.x) diagonal[k] = a[k * n + k];
    __syncthreads();
    for (unsigned k = 0; k < n; ++k) {
        const double pivot = a[k * n + k] > MG_SINGULAR * diagonal[k] ? 1 / a[k * n + k] : 0;
        for (unsigned i = threadIdx.x; i < n; i += blockDim.x) column[i] = a[i * n + k];
        __syncthreads();
        for (unsigned e = threadIdx.x; e < n * n; e += blockDim.x) {
            const unsigned i = (unsigned)optpy_divided((int)e, c->by_coarsest), j = e - i * n;
            if (i != k && j != k) a[e] -= column[i] * (column[j] * pivot);
            else a[e] = i == j ? -pivot : column[i == k ? j : i] * pivot;
        }
        __syncthreads();
    }
    for (unsigned e = threadIdx.x; e < n * n; e += blockDim.x) a[e] = -a[e];
    __syncthreads();
}

/* The small levels, by one block; the matrix of the first one is there. */
MG_KERNEL(mg_build_small_levels) {
    MG_CONTEXT
    const MgShare share = mg_of_block();
    for (long long n = c->small; n < c->last; ++n) {
        const MgLevel *l = &c->levels[n];
        mg_invert_blocks(l, share);
        mg_begin_estimate(l, share);
        if (threadIdx.x == 0) *l->omega = 1;
        for (int k = 0; k < MG_POWER_ITERATIONS; ++k) {
            __syncthreads();
            mg_residual(l, share);
            __syncthreads();
            const double squares = optpy_over_block(mg_invert(l, l->t, share), false);
            if (threadIdx.x == 0)
                *l->omega = (k == MG_POWER_ITERATIONS - 1 ? MG_DAMPING : 1) * optpy_inverse_norm(squares);
        }
        mg_coarsen(l, &c->levels[n + 1], share);
        __syncthreads();
    }
    mg_fill_coarsest(c);
    mg_invert_coarsest(c);
}
