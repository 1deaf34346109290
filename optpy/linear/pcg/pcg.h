/* The preconditioned conjugate gradient method around the kernels of an energy, on a team of threads.
 *
 * What follows each stage is in pcg_iteration.h. Each thread keeps its own copy of the scalars: all read the same sums
 * after a barrier, so all compute the same. */

typedef struct {
    const Context *context;
    const PcgKernels *kernels;
    PcgState *state;
    const double *scalar;
} PcgCall;

/* A stage that makes a new residual, and its z; r.z. */
OPTPY_FN double pcg_residual(const Context *c, const PcgKernels *m, const int *stage, double *scalar, Team *team, int thread) {
    const double rho = pcg_stage(c, stage, m->grids, scalar, team, thread);
    return m->precondition ? m->precondition(m->preconditioner, c, m, scalar, team, thread) : rho;
}

/* r = b - A delta; r.z */
OPTPY_FN double pcg_fresh_residual(const Context *c, const Context *on_delta, const PcgKernels *m, double *scalar,
                                   Team *team, int thread) {
    pcg_stage(on_delta, m->apply, m->applied, scalar, team, thread);
    return pcg_residual(c, m, m->restart, scalar, team, thread);
}

static void pcg_body(void *argument, Team *team, int thread) {
    PcgCall *call = (PcgCall *)argument;
    const PcgKernels *m = call->kernels;
    const Context *c = call->context;
    PcgState state = *call->state;
    const PcgLimits *limits = &state.limits;
    PcgIteration *s = &state.iteration;
    double scalar[OPTPY_SCALARS];
    memcpy(scalar, call->scalar, sizeof scalar);
    void *field[c->fields];
    int64_t plane[c->fields];
    const Context on_delta = in_place_of_p(c, m, m->delta, field, plane);
    if (m->omega) scalar[OMEGA] = *m->omega;
    team_barrier(team); /* everyone has read the state */
    if (s->k == 0 && s->rho_0 < 0) pcg_after_start(s, pcg_residual(c, m, m->start, scalar, team, thread));
    if (state.resume) {
        const double reduced = s->rho / s->rho_0;
        pcg_after_resume(s, limits, pcg_fresh_residual(c, &on_delta, m, scalar, team, thread), reduced);
        state.resume = 0;
    }
    while (s->status == PCG_RUNNING) {
        scalar[ALPHA] = s->pending;
        scalar[BETA] = s->beta;
        pcg_stage(c, m->direction, m->grids, scalar, team, thread); /* delta += alpha p;  p = z + beta p */
        pcg_after_apply(s, pcg_stage(c, m->apply, m->applied, scalar, team, thread)); /* A p;  p.Ap */
        if (s->status != PCG_RUNNING) break;
        scalar[ALPHA] = s->alpha;
        double rho_next;
        if (pcg_resets(s, limits)) {
            pcg_stage(c, m->flush, m->grids, scalar, team, thread); /* delta += alpha p */
            s->pending = 0;
            rho_next = pcg_fresh_residual(c, &on_delta, m, scalar, team, thread);
        } else {
            rho_next = pcg_residual(c, m, m->update, scalar, team, thread); /* r -= alpha Ap;  r.z */
        }
        pcg_after_update(s, limits, rho_next, thread == 0 ? state.trace : NULL);
        if (s->status != PCG_RUNNING) break;
        const int stopped = safe_point_of_team(state.safe, team, thread);
        if (stopped == SAFE_LATE) s->status = PCG_TIME;
        if (stopped) break;
    }
    if (s->status != PCG_RUNNING && s->pending != 0) {
        scalar[ALPHA] = s->pending;
        pcg_stage(c, m->flush, m->grids, scalar, team, thread); /* delta += alpha p */
        s->pending = 0;
    }
    team_barrier(team);
    if (thread == 0) *call->state = state;
}

/* Starts where rho_0 < 0, else goes on; returns when it has ended or at a safe point. */
OPTPY_EXPORT void optpy_pcg(const Context *c, const PcgKernels *m, PcgState *state, const double *scalar, int threads) {
    PcgCall call = {c, m, state, scalar};
    safe_begin(state->safe);
    team_run(threads, pcg_body, &call);
}
