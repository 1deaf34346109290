/* Runs kernels on a team of threads, and the preconditioned conjugate gradient method around them.
 *
 * The method is solver/pcg.py line for line (Nocedal & Wright, algorithm 5.3), with r = b - A delta here, so p = z + beta p.
 * Each thread keeps its own copy of the scalars: all read the same sums after a barrier, so all compute the same. Sums are
 * added up segment by segment in a fixed order, so that they do not depend on the number of threads. */

/* The segments [*first, *last) of a thread: shares of about as much work each. */
OPTPY_FN void kernel_share(const Context *c, int list, int thread, int threads, int64_t *first, int64_t *last) {
    const Segment *s = c->segments[list];
    const int64_t n = c->count[list];
    const int64_t work = n ? s[n - 1].before + s[n - 1].work : 0;
    int64_t bound[2];
    for (int side = 0; side < 2; side++) {
        const int64_t t = thread + side;
        const int64_t target = work / threads * t + work % threads * t / threads;
        int64_t low = 0, high = n;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (s[middle].before < target) low = middle + 1; else high = middle;
        }
        bound[side] = t == threads ? n : low;
    }
    *first = bound[0];
    *last = bound[1];
}

OPTPY_FN void kernel_run(const Kernel *k, const Context *c, const double *scalar, int thread, int threads) {
    int64_t first, last;
    kernel_share(c, k->list, thread, threads, &first, &last);
    if (first < last) k->range(c, scalar, first, last);
}

/* The total of a kernel's n-th reduction, after a barrier. */
OPTPY_FN double kernel_total(const Kernel *k, const Context *c, int n) {
    const double *part = c->partial[k->reduction + n];
    const int64_t count = c->count[k->list];
    double total = 0;
    if (k->maximum) {
        for (int64_t i = 0; i < count; i++) total = optpy_max(total, part[i]);
    } else {
        for (int64_t i = 0; i < count; i++) total += part[i];
    }
    return total;
}

/* -- one kernel ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const Context *context;
    const Kernel *kernel;
    const double *scalar;
    int64_t repeat;
} KernelCall;

static void kernel_body(void *argument, Team *team, int thread) {
    const KernelCall *call = (const KernelCall *)argument;
    for (int64_t n = 0; n < call->repeat; n++) {
        kernel_run(call->kernel, call->context, call->scalar, thread, team->threads);
        team_barrier(team);
    }
}

/* Runs a kernel `repeat` times and writes the totals of its reductions. */
OPTPY_EXPORT void optpy_run(const Context *c, int kernel, const double *scalar, int threads, int64_t repeat, double *total) {
    KernelCall call = {c, &optpy_kernels[kernel], scalar, repeat};
    team_run(threads, kernel_body, &call);
    for (int n = 0; n < call.kernel->reductions; n++) total[n] = kernel_total(call.kernel, c, n);
}

/* -- conjugate gradients ------------------------------------------------------------------------------------------- */

/* x = M^-1 b by what has been built from an assembled matrix; all threads of the team call it, when b is there. Comes from
 * the library of matrix_solvers.h. */
typedef void (*MatrixSolve)(void *solver, const OPTPY_REAL *b, OPTPY_REAL *x, Team *team, int thread);

/* The kernels of each line, one for each grid of unknowns; those of apply may have others before them. */
typedef struct {
    int64_t grids, applied;
    const int *start, *direction, *apply, *update, *flush, *restart;
    /* Fields p and delta of each unknown: the residual is computed afresh by applying A to delta in the place of p. */
    int64_t unknowns;
    const int *p, *delta;
    /* With multigrid, z is stored, and only its first sweep is in the lines above. */
    struct Multigrid *multigrid; /* or null */
    const int *z, *smooth, *power;
    /* With an assembled matrix, z is what a solver that works on it makes of r. */
    struct NormalMatrix *normal; /* or null */
    MatrixSolve solve;
    void *solver;
} PcgKernels;

enum { PCG_RUNNING, PCG_NO_GRADIENT, PCG_BAD_START, PCG_NO_CURVATURE, PCG_NOT_POSITIVE, PCG_MODEL, PCG_ZERO, PCG_RESIDUAL, PCG_LIMIT, PCG_TIME, PCG_STAGNATED };

enum { PCG_PATIENCE = 100 }; /* iterations without progress */

typedef struct {
    /* limits */
    int64_t max_iterations, min_iterations, reset_period;
    double eta, r_tolerance;
    double precision;      /* of the vectors */
    double slice;          /* seconds after which it returns with status PCG_RUNNING, to be called again; and ... */
    double time_left;      /* ... seconds until PCG_TIME; negative: none */
    /* state */
    int64_t k, status;
    int64_t resume;        /* go on from delta with another preconditioner than before; and ... */
    int64_t resumed;       /* ... the iteration after which that happened last */
    double rho, rho_0, alpha, beta, pAp, Q, zeta;
    int64_t k_seen;        /* the last iteration with progress to be seen, ... */
    double rho_seen, Q_seen; /* ... and what there was after it */
    double *trace;         /* k, rho, pAp, alpha, Q, zeta, rho_next of each iteration; or null */
} PcgState;

typedef struct {
    const Context *context;
    const PcgKernels *kernels;
    PcgState *state;
    const double *scalar;
    double started;
    int halted;
} PcgCall;

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A line of the method on every grid; returns the sum of its first reduction, if it has one. */
OPTPY_FN double pcg_line(const Context *c, const int *kernels, int64_t count, const double *scalar, Team *team, int thread) {
    for (int64_t g = 0; g < count; g++) {
        const Kernel *k = &optpy_kernels[kernels[g]];
        kernel_run(k, c, scalar, thread, team->threads);
        if (k->prepares) team_barrier(team);
    }
    team_barrier(team);
    double total = 0;
    for (int64_t g = 0; g < count; g++) {
        const Kernel *k = &optpy_kernels[kernels[g]];
        if (k->reductions) total += kernel_total(k, c, 0);
    }
    return total;
}

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

/* A context in which one field of each unknown stands in the place of p, so that A can be applied to it. */
typedef struct {
    Context context;
    void *field[OPTPY_FIELDS];
    int64_t plane[OPTPY_FIELDS];
} Redirected;

OPTPY_FN void in_place_of_p(Redirected *to, const Context *c, const PcgKernels *m, const int *v) {
    memcpy(to->field, c->field, sizeof to->field);
    memcpy(to->plane, c->plane, sizeof to->plane);
    for (int64_t u = 0; u < m->unknowns; u++) {
        to->field[m->p[u]] = c->field[v[u]];
        to->plane[m->p[u]] = c->plane[v[u]];
    }
    to->context = *c;
    to->context.field = to->field;
    to->context.plane = to->plane;
}

#ifdef MG_CHANNELS
OPTPY_FN double mg_omega(const Multigrid *g) { return g->omega; }

/* What is left of the V-cycle for z = M^-1 r when z holds its first sweep; r.z. */
static double pcg_multigrid(const Context *c, const PcgKernels *m, double *scalar, Team *team, int thread) {
    Multigrid *g = m->multigrid;
    MgChannel channels[MG_CHANNELS];
    Redirected on_z;
    in_place_of_p(&on_z, c, m, m->z);
    pcg_line(&on_z.context, m->apply, m->applied, scalar, team, thread); /* A z */
    mg_fine(c, g, mg_r, mg_Ap, NULL, channels);
    mg_restrict(&g->level[0], channels, team, thread);                 /* P^T (r - A z) */
    team_barrier(team);
    mg_cycle(g, 0, team, thread);
    mg_fine(c, g, mg_z, NULL, mg_C, channels);
    mg_interpolate(&g->level[0], g->level[0].t, channels, 1, team, thread);
    team_barrier(team);
    pcg_line(&on_z.context, m->apply, m->applied, scalar, team, thread);
    return pcg_line(c, m->smooth, m->grids, scalar, team, thread);     /* z += omega D^-1 (r - A z);  r.z */
}

/* The first coarse matrix, one probe after another. */
static void mg_probe_all(const PcgCall *call, const Context *on_z, Team *team, int thread) {
    const PcgKernels *m = call->kernels;
    const MgLevel *l = &m->multigrid->level[0];
    MgChannel z[MG_CHANNELS], Ap[MG_CHANNELS];
    mg_fine(call->context, m->multigrid, mg_z, NULL, mg_C, z);
    mg_fine(call->context, m->multigrid, mg_Ap, NULL, NULL, Ap);
    for (int64_t n = 0; n < MG_NEIGHBOURS * MG_COLOURS; n++) {
        const int64_t point[3] = {n / MG_COLOURS / MG_NX / MG_NY, n / MG_COLOURS / MG_NX % MG_NY, n / MG_COLOURS % MG_NX};
        mg_probe(l, (int)(n % MG_COLOURS), point, team, thread);
        team_barrier(team);
        mg_interpolate(l, l->x, z, 0, team, thread);
        team_barrier(team);
        pcg_line(on_z, m->apply, m->applied, call->scalar, team, thread);
        mg_restrict(l, Ap, team, thread);
        mg_collect(l, (int)(n % MG_COLOURS), point, team, thread); /* what this thread has restricted itself */
    }
    team_barrier(team);
}

/* omega of the finest level, as mg_estimate for the others. */
static void mg_estimate_finest(const PcgCall *call, const Context *on_z, Team *team, int thread) {
    const PcgKernels *m = call->kernels;
    const Context *c = call->context;
    Multigrid *g = m->multigrid;
    MgChannel z[MG_CHANNELS];
    mg_fine(c, g, mg_z, NULL, mg_C, z);
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
        pcg_line(on_z, m->apply, m->applied, scalar, team, thread);
        scalar[OMEGA] = 1 / norm;
        norm = sqrt(pcg_line(c, m->power, m->grids, scalar, team, thread)); /* z = omega D^-1 A z;  z.z */
        if (!(norm > 0 && optpy_isfinite(norm))) break;
    }
    if (thread == 0) g->omega = norm > 0 && optpy_isfinite(norm) ? MG_DAMPING / norm : 0;
    team_barrier(team);
}

static void mg_build_body(void *argument, Team *team, int thread) {
    PcgCall *call = (PcgCall *)argument;
    Multigrid *g = call->kernels->multigrid;
    Redirected on_z;
    in_place_of_p(&on_z, call->context, call->kernels, call->kernels->z);
    mg_probe_all(call, &on_z.context, team, thread);
    for (int64_t l = 0; l < g->levels - 1; l++) {
        mg_invert_blocks(&g->level[l], team, thread);
        team_barrier(team);
        mg_estimate(&g->level[l], g->partial, team, thread);
        mg_coarsen(&g->level[l], &g->level[l + 1], team, thread);
        team_barrier(team);
    }
    if (thread == 0) mg_factor_coarsest(g);
    mg_estimate_finest(call, &on_z.context, team, thread);
}

/* All levels of the preconditioner for A as it now is; p and Ap are not kept. */
OPTPY_EXPORT void optpy_multigrid(const Context *c, const PcgKernels *m, const double *scalar, int threads) {
    PcgCall call = {c, m, NULL, scalar, 0, 0};
    team_run(threads, mg_build_body, &call);
}
#else
/* Without multigrid z = M^-1 r is part of the lines. */
OPTPY_FN double mg_omega(const struct Multigrid *g) {
    (void)g;
    return 0;
}

OPTPY_FN double pcg_multigrid(const Context *c, const PcgKernels *m, double *scalar, Team *team, int thread) {
    (void)c, (void)m, (void)scalar, (void)team, (void)thread;
    return 0;
}
#endif

#ifdef NORMAL_CHANNELS
/* z = M^-1 r of the assembled matrix; r.z. */
static double pcg_assembled(const Context *c, const PcgKernels *m, Team *team, int thread) {
    normal_take(c, m->normal, team, thread);
    m->solve(m->solver, m->normal->b, m->normal->x, team, thread);
    return normal_give(c, m->normal, team, thread);
}
#else
/* Without an assembled matrix nothing is solved with it. */
OPTPY_FN double pcg_assembled(const Context *c, const PcgKernels *m, Team *team, int thread) {
    (void)c, (void)m, (void)team, (void)thread;
    return 0;
}
#endif

/* A line that makes a new residual, and its z; r.z. */
OPTPY_FN double pcg_residual(const Context *c, const PcgKernels *m, const int *line, double *scalar, Team *team, int thread) {
    const double rho = pcg_line(c, line, m->grids, scalar, team, thread);
    if (m->multigrid) return pcg_multigrid(c, m, scalar, team, thread);
    return m->normal ? pcg_assembled(c, m, team, thread) : rho;
}

/* r = b - A delta; r.z */
OPTPY_FN double pcg_fresh_residual(const Context *c, const Context *on_delta, const PcgKernels *m, double *scalar,
                                   Team *team, int thread) {
    pcg_line(on_delta, m->apply, m->applied, scalar, team, thread);
    return pcg_residual(c, m, m->restart, scalar, team, thread);
}

static void pcg_body(void *argument, Team *team, int thread) {
    PcgCall *call = (PcgCall *)argument;
    const PcgKernels *m = call->kernels;
    const Context *c = call->context;
    PcgState s = *call->state;
    double scalar[OPTPY_SCALARS];
    memcpy(scalar, call->scalar, sizeof scalar);
    Redirected on_delta;
    in_place_of_p(&on_delta, c, m, m->delta);
    if (m->multigrid) scalar[OMEGA] = mg_omega(m->multigrid);
    team_barrier(team); /* everyone has read the state */
    if (s.k == 0 && s.rho_0 < 0) {
        s.rho = s.rho_0 = pcg_residual(c, m, m->start, scalar, team, thread);
        if (s.rho == 0) s.status = PCG_NO_GRADIENT;
        else if (!(optpy_isfinite(s.rho) && s.rho > 0)) s.status = PCG_BAD_START;
        pcg_see(&s, s.rho);
    }
    if (s.resume) {
        const double reduced = s.rho / s.rho_0;
        s.rho = pcg_fresh_residual(c, &on_delta.context, m, scalar, team, thread);
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
        pcg_line(c, m->direction, m->grids, scalar, team, thread);      /* delta += alpha p;  p = z + beta p */
        s.alpha = 0;
        s.pAp = pcg_line(c, m->apply, m->applied, scalar, team, thread); /* A p;  p.Ap */
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
            pcg_line(c, m->flush, m->grids, scalar, team, thread);              /* delta += alpha p */
            s.alpha = 0;
            rho_next = pcg_fresh_residual(c, &on_delta.context, m, scalar, team, thread);
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
        if (thread == 0) {
            const double spent = seconds_now() - call->started;
            call->halted = s.time_left >= 0 && spent >= s.time_left ? 2 : spent >= s.slice;
        }
        team_barrier(team); /* thread 0's clock decides for all */
        const int halted = call->halted;
        if (halted == 2) s.status = PCG_TIME;
        if (halted) break;
        team_barrier(team); /* everyone has read it */
    }
    if (s.status != PCG_RUNNING && s.alpha != 0) {
        scalar[ALPHA] = s.alpha;
        pcg_line(c, m->flush, m->grids, scalar, team, thread); /* delta += alpha p */
        s.alpha = 0;
    }
    team_barrier(team);
    if (thread == 0) *call->state = s;
}

/* Starts where rho_0 < 0, else goes on; returns when it has ended or when its slice of time is over. */
OPTPY_EXPORT void optpy_pcg(const Context *c, const PcgKernels *m, PcgState *state, const double *scalar, int threads) {
    PcgCall call = {c, m, state, scalar, seconds_now(), 0};
    team_run(threads, pcg_body, &call);
}
