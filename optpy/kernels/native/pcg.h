/* Runs kernels on a team of threads, and the preconditioned conjugate gradient method around them.
 *
 * The method is solver/pcg.py line for line (Nocedal & Wright, algorithm 5.3), with r = b - A delta here, so p = z + beta p.
 * Each thread keeps its own copy of the scalars: all read the same sums after a barrier, so all compute the same. Sums are
 * added up segment by segment in a fixed order, so that they do not depend on the number of threads. */

enum { ALPHA, BETA };

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

/* The kernels of each line, one for each grid of unknowns; those of apply may have others before them. */
typedef struct {
    int64_t grids, applied;
    const int *start, *direction, *apply, *update, *flush, *restart;
    /* Fields p and delta of each unknown: the residual is computed afresh by applying A to delta in the place of p. */
    int64_t unknowns;
    const int *p, *delta;
} PcgKernels;

enum { PCG_RUNNING, PCG_NO_GRADIENT, PCG_BAD_START, PCG_NO_CURVATURE, PCG_NOT_POSITIVE, PCG_MODEL, PCG_ZERO, PCG_RESIDUAL, PCG_LIMIT, PCG_TIME };

typedef struct {
    /* limits */
    int64_t max_iterations, min_iterations, reset_period;
    double eta, r_tolerance;
    double slice;          /* seconds after which it returns with status PCG_RUNNING, to be called again; and ... */
    double time_left;      /* ... seconds until PCG_TIME; negative: none */
    /* state */
    int64_t k, status;
    double rho, rho_0, alpha, beta, pAp, Q, zeta;
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

/* The tests after iteration k: first the quadratic model's, then the residual's, then the limits. */
OPTPY_FN int64_t pcg_ending(const PcgState *s, double rho_next) {
    if (!(optpy_isfinite(rho_next) && rho_next >= 0)) return PCG_NOT_POSITIVE;
    if (s->k >= s->min_iterations && s->zeta < s->eta) return PCG_MODEL;
    if (rho_next == 0) return PCG_ZERO;
    if (s->k >= s->min_iterations && sqrt(rho_next / s->rho_0) < s->r_tolerance) return PCG_RESIDUAL;
    if (s->k >= s->max_iterations) return PCG_LIMIT;
    return PCG_RUNNING;
}

static void pcg_body(void *argument, Team *team, int thread) {
    PcgCall *call = (PcgCall *)argument;
    const PcgKernels *m = call->kernels;
    const Context *c = call->context;
    PcgState s = *call->state;
    double scalar[OPTPY_SCALARS];
    memcpy(scalar, call->scalar, sizeof scalar);
    void *field[OPTPY_FIELDS];
    int64_t plane[OPTPY_FIELDS];
    memcpy(field, c->field, sizeof field);
    memcpy(plane, c->plane, sizeof plane);
    for (int64_t u = 0; u < m->unknowns; u++) {
        field[m->p[u]] = c->field[m->delta[u]];
        plane[m->p[u]] = c->plane[m->delta[u]];
    }
    Context on_delta = *c;
    on_delta.field = field;
    on_delta.plane = plane;
    team_barrier(team); /* everyone has read the state */
    if (s.k == 0 && s.rho_0 < 0) {
        s.rho = s.rho_0 = pcg_line(c, m->start, m->grids, scalar, team, thread);
        if (s.rho == 0) s.status = PCG_NO_GRADIENT;
        else if (!(optpy_isfinite(s.rho) && s.rho > 0)) s.status = PCG_BAD_START;
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
            pcg_line(&on_delta, m->apply, m->applied, scalar, team, thread);    /* A delta */
            rho_next = pcg_line(c, m->restart, m->grids, scalar, team, thread); /* r = b - A delta;  r.z */
        } else {
            rho_next = pcg_line(c, m->update, m->grids, scalar, team, thread);  /* r -= alpha Ap;  r.z */
        }
        s.Q -= 0.5 * alpha * s.rho;
        s.zeta = s.Q != 0 ? (double)s.k * (-0.5 * alpha * s.rho) / s.Q : 0;
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
