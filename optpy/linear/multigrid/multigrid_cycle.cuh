/* One V-cycle on the levels of multigrid.cuh, below the finest grid, and the steps from there and back. */

/* The element of a vector of the coarsest level that stands in a row of its dense matrix. */
OPTPY_FN OPTPY_REAL *mg_unknown(const MgLevel *l, OPTPY_REAL *v, unsigned row) {
    return v + row % MG_CHANNELS * l->plane + mg_at(l, mg_point(l, row / MG_CHANNELS));
}

/* t = A^-1 b on the coarsest level, by one block. */
OPTPY_FN void mg_solve_coarsest(const Context *c) {
    const MgLevel *l = &c->levels[c->last];
    const unsigned n = mg_points(l) * MG_CHANNELS;
    for (unsigned row = threadIdx.x; row < n; row += blockDim.x) {
        double sum = 0;
        for (unsigned k = 0; k < n; ++k) sum += c->factor[k * n + row] * (double)*mg_unknown(l, l->b, k); /* symmetric */
        *mg_unknown(l, l->t, row) = (OPTPY_REAL)sum;
    }
    __syncthreads();
}

/* The small levels, by one block: t ~ A^-1 b of the first of them. */
OPTPY_FN void mg_cycle_small(const Context *c) {
    const MgShare share = mg_of_block();
    for (long long n = c->small; n < c->last; ++n) {
        mg_invert(&c->levels[n], c->levels[n].b, share);
        __syncthreads();
        mg_residual(&c->levels[n], share);
        __syncthreads();
        mg_restrict(&c->levels[n + 1], &c->levels[n], share);
        __syncthreads();
    }
    mg_solve_coarsest(c);
    for (long long n = c->last - 1; n >= c->small; --n) {
        mg_interpolate(&c->levels[n], &c->levels[n + 1], share);
        __syncthreads();
        mg_smooth(&c->levels[n], share);
        __syncthreads();
    }
}

MG_KERNEL(mg_small_levels) {
    MG_CONTEXT
    mg_cycle_small(c);
}

/* The levels from `first` on, by blocks that wait for one another: t ~ A^-1 b of that one. */
MG_KERNEL(mg_levels_cooperative) {
    MG_CONTEXT
    const MgShare share = mg_of_grid();
    for (long long n = c->first; n < c->small; ++n) {
        mg_invert(&c->levels[n], c->levels[n].b, share);
        optpy_barrier(c);
        mg_residual(&c->levels[n], share);
        optpy_barrier(c);
        mg_restrict(&c->levels[n + 1], &c->levels[n], share);
        optpy_barrier(c);
    }
    if (blockIdx.x == 0) mg_cycle_small(c);
    optpy_barrier(c);
    for (long long n = c->small - 1; n >= c->first; --n) {
        mg_interpolate(&c->levels[n], &c->levels[n + 1], share);
        optpy_barrier(c);
        mg_smooth(&c->levels[n], share);
        optpy_barrier(c);
    }
}

MG_KERNEL(mg_first_sweep) {
    MG_CONTEXT
    mg_invert(&c->level, c->level.b, mg_of_grid());
}

MG_KERNEL(mg_residual_of_level) {
    MG_CONTEXT
    mg_residual(&c->level, mg_of_grid());
}

MG_KERNEL(mg_restrict_to_coarser) {
    MG_CONTEXT
    mg_restrict(&c->coarser, &c->level, mg_of_grid());
}

MG_KERNEL(mg_interpolate_from_coarser) {
    MG_CONTEXT
    mg_interpolate(&c->level, &c->coarser, mg_of_grid());
}

MG_KERNEL(mg_last_sweep) {
    MG_CONTEXT
    mg_smooth(&c->level, mg_of_grid());
}

/* b of the first level = P^T (values - minus) of the finest grid. */
MG_KERNEL(mg_restrict_finest) {
    MG_CONTEXT
    const MgLevel *l = &c->level;
    const MgShare share = mg_of_grid();
    for (unsigned q = share.first; q < mg_points(l); q += share.stride) {
        const MgPoint p = mg_point(l, q);
#pragma unroll MG_EACH_CHANNEL
        for (int channel = 0; channel < MG_CHANNELS; ++channel) {
            const MgChannel *f = &c->fine[channel];
            l->b[channel * l->plane + mg_at(l, p)] = mg_restricted(l, c->size, p, [=](MgPoint i) {
                const long long at = mg_finest_at(c, i);
                return f->minus ? f->values[at] - f->minus[at] : f->values[at];
            });
        }
    }
}

/* values (+)= P v of the finest grid, with v = t of the first level, or x where nothing is added. */
MG_KERNEL(mg_interpolate_to_finest) {
    MG_CONTEXT
    const MgLevel *l = &c->level;
    const MgShare share = mg_of_grid();
    for (unsigned q = share.first; q < mg_finest_points(c); q += share.stride) {
        const MgPoint p = mg_finest_point(c, q);
        const long long at = mg_finest_at(c, p);
#pragma unroll MG_EACH_CHANNEL
        for (int channel = 0; channel < MG_CHANNELS; ++channel) {
            const MgChannel *f = &c->fine[channel];
            const OPTPY_REAL *v = (c->add ? l->t : l->x) + channel * l->plane;
            const OPTPY_REAL fine = f->mask[at] != 0 ? mg_interpolated(l, v, p) : (OPTPY_REAL)0;
            f->values[at] = c->add ? f->values[at] + fine : fine;
        }
    }
}
