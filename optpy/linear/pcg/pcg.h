/* The preconditioned conjugate gradient method around the kernels of an energy, on a team of threads.
 *
 * The method is solver/pcg.py line for line (Nocedal & Wright, algorithm 5.3), with r = b - A delta here, so p = z + beta p.
 * Each thread keeps its own copy of the scalars: all read the same sums after a barrier, so all compute the same. */

typedef struct {
    const Context *context;
    const PcgKernels *kernels;
    PcgState *state;
    const double *scalar;
} PcgCall;

OPTPY_FN void pcg_see(PcgState *s, double rho) {
    s->k_seen = s->k;
    s->rho_seen = rho;
    s->Q_seen = s->Q;
}

/* Whether rounding alone moves the method: see Progress of solver/pcg.py. */
OPTPY_FN int pcg_stagnates(PcgState *s, double rho_next) {
    if (2 * rho_next < s->rho_seen || fabs(s->Q - s->Q_seen) > s->precision * fabs(s->Q)) {
        pcg_see(s, rho_next);
        return 0;
    }
    return s->k - s->k_seen >= PCG_PATIENCE && 5 * (s->k - s->k_seen) >= s->k;
}

/* The tests after iteration k: first the quadratic model's, then the residual's, then whether anything is left to gain,
 * then the limits. */
OPTPY_FN int64_t pcg_ending(PcgState *s, double rho_next) {
    if (!(optpy_isfinite(rho_next) && rho_next >= 0)) return PCG_NOT_POSITIVE;
    if (s->k > s->resumed && s->k >= s->min_iterations && s->zeta < s->eta) return PCG_MODEL; /* not another one's gain */
    if (rho_next == 0) return PCG_ZERO;
    if (s->k >= s->min_iterations && sqrt(rho_next / s->rho_0) < s->r_tolerance) return PCG_RESIDUAL;
    if (pcg_stagnates(s, rho_next)) return PCG_STAGNATED;
    if (s->k >= s->max_iterations) return PCG_LIMIT;
    return PCG_RUNNING;
}

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
    PcgState s = *call->state;
    double scalar[OPTPY_SCALARS];
    memcpy(scalar, call->scalar, sizeof scalar);
    void *field[c->fields];
    int64_t plane[c->fields];
    const Context on_delta = in_place_of_p(c, m, m->delta, field, plane);
    if (m->omega) scalar[OMEGA] = *m->omega;
    team_barrier(team); /* everyone has read the state */
    if (s.k == 0 && s.rho_0 < 0) {
        s.rho = s.rho_0 = pcg_residual(c, m, m->start, scalar, team, thread);
        if (s.rho == 0) s.status = PCG_NO_GRADIENT;
        else if (!(optpy_isfinite(s.rho) && s.rho > 0)) s.status = PCG_BAD_START;
        pcg_see(&s, s.rho);
    }
    if (s.resume) {
        const double reduced = s.rho / s.rho_0;
        s.rho = pcg_fresh_residual(c, &on_delta, m, scalar, team, thread);
        s.rho_0 = s.rho / reduced; /* measured in another norm, but as far reduced as before */
        s.beta = s.alpha = 0;
        s.resume = 0;
        s.resumed = s.k;
        pcg_see(&s, s.rho);
        s.status = pcg_ending(&s, s.rho);
    }
    while (s.status == PCG_RUNNING) {
        scalar[ALPHA] = s.alpha;
        scalar[BETA] = s.beta;
        pcg_stage(c, m->direction, m->grids, scalar, team, thread);      /* delta += alpha p;  p = z + beta p */
        s.alpha = 0;
        s.pAp = pcg_stage(c, m->apply, m->applied, scalar, team, thread); /* A p;  p.Ap */
        if (!(optpy_isfinite(s.pAp) && s.pAp > 0 && optpy_isfinite(s.rho / s.pAp))) {
            s.status = PCG_NO_CURVATURE;
            break;
        }
        s.alpha = s.rho / s.pAp;
        scalar[ALPHA] = s.alpha;
        s.k++;
        double rho_next;
        const double alpha = s.alpha;
        if (s.reset_period && s.k % s.reset_period == 0) {
            pcg_stage(c, m->flush, m->grids, scalar, team, thread);              /* delta += alpha p */
            s.alpha = 0;
            rho_next = pcg_fresh_residual(c, &on_delta, m, scalar, team, thread);
        } else {
            rho_next = pcg_residual(c, m, m->update, scalar, team, thread); /* r -= alpha Ap;  r.z */
        }
        s.Q -= 0.5 * alpha * s.rho;
        s.zeta = s.Q != 0 ? (double)(s.k - s.resumed) * (-0.5 * alpha * s.rho) / s.Q : 0;
        if (s.trace && thread == 0) {
            const double row[7] = {(double)s.k, s.rho, s.pAp, alpha, s.Q, s.zeta, rho_next};
            memcpy(s.trace + 7 * (s.k - 1), row, sizeof row);
        }
        s.status = pcg_ending(&s, rho_next);
        s.beta = rho_next / s.rho;
        s.rho = rho_next;
        if (s.status != PCG_RUNNING) break;
        const int stopped = safe_point_of_team(s.safe, team, thread);
        if (stopped == SAFE_LATE) s.status = PCG_TIME;
        if (stopped) break;
    }
    if (s.status != PCG_RUNNING && s.alpha != 0) {
        scalar[ALPHA] = s.alpha;
        pcg_stage(c, m->flush, m->grids, scalar, team, thread); /* delta += alpha p */
        s.alpha = 0;
    }
    team_barrier(team);
    if (thread == 0) *call->state = s;
}

/* Starts where rho_0 < 0, else goes on; returns when it has ended or at a safe point. */
OPTPY_EXPORT void optpy_pcg(const Context *c, const PcgKernels *m, PcgState *state, const double *scalar, int threads) {
    PcgCall call = {c, m, state, scalar};
    safe_begin(state->safe);
    team_run(threads, pcg_body, &call);
}
