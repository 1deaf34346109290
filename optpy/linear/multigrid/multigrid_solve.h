/* The part of multigrid.h that conjugate gradients call: all levels for a matrix that is known by its products, and a cycle, whose sweeps
 * on the finest level are kernels of the energy's own. */

typedef struct {
    const Context *context;
    const PcgKernels *kernels;
    Multigrid *multigrid;
    const double *scalar;
} MgCall;

/* The first coarse matrix, one probe after another. */
static void mg_probe_all(const MgCall *call, const Context *on_z, Team *team, int thread) {
    const PcgKernels *m = call->kernels;
    const Multigrid *g = call->multigrid;
    const MgLevel *l = &g->level[0];
    MgChannel z[MG_CHANNELS], Ap[MG_CHANNELS];
    mg_fine(call->context, g, g->z, NULL, g->C, z);
    mg_fine(call->context, g, g->Ap, NULL, NULL, Ap);
    for (int64_t n = 0; n < MG_NEIGHBOURS * MG_COLOURS; n++) {
        if (safe_point_of_team(g->safe, team, thread)) return;
        const int64_t point[3] = {n / MG_COLOURS / MG_NX / MG_NY, n / MG_COLOURS / MG_NX % MG_NY, n / MG_COLOURS % MG_NX};
        mg_probe(l, (int)(n % MG_COLOURS), point, team, thread);
        team_barrier(team);
        mg_interpolate(l, l->x, z, 0, team, thread);
        team_barrier(team);
        pcg_stage(on_z, m->apply, m->applied, call->scalar, team, thread);
        mg_restrict(l, Ap, team, thread);
        mg_collect(l, (int)(n % MG_COLOURS), point, team, thread); /* what this thread has restricted itself */
    }
    team_barrier(team);
}

/* omega of the finest level, as mg_estimate for the others. */
static void mg_estimate_finest(const MgCall *call, const Context *on_z, Team *team, int thread) {
    const PcgKernels *m = call->kernels;
    const Context *c = call->context;
    Multigrid *g = call->multigrid;
    MgChannel z[MG_CHANNELS];
    mg_fine(c, g, g->z, NULL, g->C, z);
    ptrdiff_t first, last;
    team_share((ptrdiff_t)(g->size[0] * g->size[1]), thread, team->threads, &first, &last);
    for (int64_t q = first; q < last; q++)
        for (int n = 0; n < MG_CHANNELS; n++) {
            const int64_t at = q / g->size[1] * g->slab + q % g->size[1] * g->row;
            for (int64_t i = 0; i < g->size[2]; i++)
                z[n].values[at + i] = z[n].mask[at + i] != 0 ? optpy_random_sign((uint64_t)(at + i) * MG_CHANNELS + (uint64_t)n) : 0;
        }
    team_barrier(team);
    double scalar[OPTPY_SCALARS], norm = 1;
    memcpy(scalar, call->scalar, sizeof scalar);
    for (int n = 0; n < MG_POWER_ITERATIONS; n++) {
        pcg_stage(on_z, m->apply, m->applied, scalar, team, thread);
        scalar[OMEGA] = 1 / norm;
        norm = sqrt(pcg_stage(c, g->power, m->grids, scalar, team, thread)); /* z = omega D^-1 A z;  z.z */
        if (!(norm > 0 && optpy_isfinite(norm))) break;
    }
    if (thread == 0) g->omega = norm > 0 && optpy_isfinite(norm) ? MG_DAMPING / norm : 0;
    team_barrier(team);
}

static void mg_build_body(void *argument, Team *team, int thread) {
    const MgCall *call = (const MgCall *)argument;
    Multigrid *g = call->multigrid;
    void *field[call->context->fields];
    int64_t plane[call->context->fields];
    const Context on_z = in_place_of_p(call->context, call->kernels, g->z_of, field, plane);
    mg_probe_all(call, &on_z, team, thread);
    for (int64_t l = 0; l < g->levels - 1; l++) {
        if (safe_point_of_team(g->safe, team, thread)) return;
        mg_invert_blocks(&g->level[l], team, thread);
        team_barrier(team);
        mg_estimate(&g->level[l], g->partial, team, thread);
        mg_coarsen(&g->level[l], &g->level[l + 1], team, thread);
        team_barrier(team);
    }
    if (safe_point_of_team(g->safe, team, thread)) return;
    if (thread == 0) mg_factor_coarsest(g);
    mg_estimate_finest(call, &on_z, team, thread);
}

/* All levels of the preconditioner for A as it now is, if no safe point stops it; p and Ap are not kept. */
OPTPY_EXPORT void optpy_multigrid(const Context *c, const PcgKernels *m, Multigrid *g, const double *scalar, int threads) {
    MgCall call = {c, m, g, scalar};
    safe_begin(g->safe);
    team_run(threads, mg_build_body, &call);
}

/* The rest of the V-cycle for z = M^-1 r when z holds its first sweep; returns r.z. */
OPTPY_EXPORT double optpy_apply_multigrid(void *preconditioner, const Context *c, const PcgKernels *m, const double *scalar,
                                          Team *team, int thread) {
    const Multigrid *g = (const Multigrid *)preconditioner;
    MgChannel channels[MG_CHANNELS];
    void *field[c->fields];
    int64_t plane[c->fields];
    const Context on_z = in_place_of_p(c, m, g->z_of, field, plane);
    pcg_stage(&on_z, m->apply, m->applied, scalar, team, thread); /* A z */
    mg_fine(c, g, g->r, g->Ap, NULL, channels);
    mg_restrict(&g->level[0], channels, team, thread);                 /* P^T (r - A z) */
    team_barrier(team);
    mg_cycle(g, 0, team, thread);
    mg_fine(c, g, g->z, NULL, g->C, channels);
    mg_interpolate(&g->level[0], g->level[0].t, channels, 1, team, thread);
    team_barrier(team);
    pcg_stage(&on_z, m->apply, m->applied, scalar, team, thread);
    return pcg_stage(c, g->smooth, m->grids, scalar, team, thread);     /* z += omega D^-1 (r - A z);  r.z */
}
