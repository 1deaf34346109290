/* The preconditioned conjugate gradient method on the device: solver/pcg.py line for line (Nocedal & Wright, algorithm
 * 5.3), with r = b - A delta here, so p = z + beta p. No number crosses to the host.
 *
 * Either one kernel for each line (pcg_start, pcg_direction, pcg_apply, pcg_update, ...), which does nothing once the
 * method has ended: all scalars live in c->pcg, and the block that arrives last at the end of a line computes them. Or
 * pcg_solve, all iterations in one kernel whose blocks wait for one another: then each block has the scalars for itself,
 * and computes them from the shares of all.
 *
 * The lines are phase_start, phase_direction, phase_update, phase_flush, phase_restart, and pcg_products for A p; their
 * last argument puts delta in the place of p. */

enum {
    PCG_RUNNING, PCG_NO_GRADIENT, PCG_BAD_START, PCG_NO_CURVATURE, PCG_NOT_POSITIVE, PCG_MODEL, PCG_ZERO, PCG_RESIDUAL,
    PCG_LIMIT, PCG_TIME
};

/* What the device knows now, not what a register or the nearest cache remembers. */
#define PCG_NOW(member) (*(volatile double *)&c->pcg->member)
#define PCG_STATUS (*(volatile long long *)&c->pcg->status)

/* -- what follows each line, in one thread, or in one of each block, of which one tells others ------------------ */

OPTPY_FN void pcg_tell(const Context *c, const Pcg *s) {
    if (c->progress) *(volatile long long *)c->progress = s->status ? -1 : s->k;
}

OPTPY_FN void pcg_after_start(const Context *c, Pcg *s, double rho, bool tells) {
    s->rho = s->rho_0 = rho;
    s->alpha = s->pending = s->beta = s->pAp = s->Q = s->zeta = 0;
    s->k = 0;
    s->status = rho == 0 ? PCG_NO_GRADIENT : optpy_isfinite(rho) && rho > 0 ? PCG_RUNNING : PCG_BAD_START;
    if (tells) pcg_tell(c, s);
}

OPTPY_FN void pcg_after_apply(const Context *c, Pcg *s, double pAp, bool tells) {
    s->pAp = pAp;
    s->pending = 0; /* the direction's line has taken the last step */
    if (!(optpy_isfinite(pAp) && pAp > 0 && optpy_isfinite(s->rho / pAp))) {
        s->status = PCG_NO_CURVATURE;
        if (tells) pcg_tell(c, s);
        return;
    }
    s->alpha = s->pending = s->rho / pAp;
    s->k++;
}

/* The tests after iteration k: first the quadratic model's, then the residual's, then the limits. */
OPTPY_FN long long pcg_ending(const Context *c, const Pcg *s, double rho_next) {
    if (!(optpy_isfinite(rho_next) && rho_next >= 0)) return PCG_NOT_POSITIVE;
    if (s->k >= c->min_iterations && s->zeta < c->eta) return PCG_MODEL;
    if (rho_next == 0) return PCG_ZERO;
    if (s->k >= c->min_iterations && sqrt(rho_next / s->rho_0) < c->r_tolerance) return PCG_RESIDUAL;
    if (s->k >= c->max_iterations) return PCG_LIMIT;
    return PCG_RUNNING;
}

OPTPY_FN void pcg_after_update(const Context *c, Pcg *s, double rho_next, bool tells) {
    const double gain = -0.5 * s->alpha * s->rho;
    s->Q += gain;
    s->zeta = s->Q != 0 ? (double)s->k * gain / s->Q : 0;
    if (tells && c->trace) {
        const double row[7] = {(double)s->k, s->rho, s->pAp, s->alpha, s->Q, s->zeta, rho_next};
#pragma unroll
        for (int n = 0; n < 7; ++n) c->trace[7 * (s->k - 1) + n] = row[n];
    }
    s->status = pcg_ending(c, s, rho_next);
    s->beta = rho_next / s->rho;
    s->rho = rho_next;
    if (tells) pcg_tell(c, s);
}

/* -- one kernel for each line ----------------------------------------------------------------------------------- */

/* The launch bounds of each, which the compiler of this text may replace. */
#ifndef OPTPY_BOUNDS_pcg_start
#define OPTPY_BOUNDS_pcg_start OPTPY_CROWD
#endif
#ifndef OPTPY_BOUNDS_pcg_direction
#define OPTPY_BOUNDS_pcg_direction OPTPY_CROWD
#endif
#ifndef OPTPY_BOUNDS_pcg_apply
#define OPTPY_BOUNDS_pcg_apply OPTPY_CROWD
#endif
#ifndef OPTPY_BOUNDS_pcg_apply_delta
#define OPTPY_BOUNDS_pcg_apply_delta OPTPY_CROWD
#endif
#ifndef OPTPY_BOUNDS_pcg_update
#define OPTPY_BOUNDS_pcg_update OPTPY_CROWD
#endif
#ifndef OPTPY_BOUNDS_pcg_restart
#define OPTPY_BOUNDS_pcg_restart OPTPY_CROWD
#endif
#ifndef OPTPY_BOUNDS_pcg_flush
#define OPTPY_BOUNDS_pcg_flush OPTPY_CROWD
#endif
#ifndef OPTPY_BOUNDS_pcg_solve
#define OPTPY_BOUNDS_pcg_solve OPTPY_CROWD
#endif

/* The solver's scalars for a line, with those that live on the device. */
OPTPY_FN void pcg_scalars(const Context *c, double *scalar, double alpha, double beta) {
#pragma unroll
    for (int n = 0; n < OPTPY_SCALARS; ++n) scalar[n] = c->scalar[n];
    scalar[ALPHA] = alpha;
    scalar[BETA] = beta;
}

#define PCG_LINE(name, done, line, step, after)                                                            \
    extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_##name)                                     \
        name(const __grid_constant__ Context context) {                                                    \
        const Context *c = &context;                                                                       \
        if (done) return;                                                                                  \
        double scalar[OPTPY_SCALARS], sum[1] = {0};                                                        \
        pcg_scalars(c, scalar, step, c->pcg->beta);                                                        \
        line;                                                                                              \
        if (!optpy_arrive<1>(c, sum, 0)) return;                                                           \
        double total[1];                                                                                   \
        optpy_totals<1>(c, total, 0);                                                                      \
        if (threadIdx.x == 0) { after; }                                                                   \
    }

PCG_LINE(pcg_start, false, phase_start(c, scalar, sum, false), 0, pcg_after_start(c, c->pcg, total[0], true))
PCG_LINE(pcg_update, PCG_STATUS, phase_update(c, scalar, sum, false), c->pcg->alpha,
         pcg_after_update(c, c->pcg, total[0], true))
PCG_LINE(pcg_restart, PCG_STATUS, phase_restart(c, scalar, sum, false), 0, pcg_after_update(c, c->pcg, total[0], true))
/* After the end too: the last step may still have to be taken. */
PCG_LINE(pcg_flush, PCG_NOW(pending) == 0, phase_flush(c, scalar, sum, false), c->pcg->pending, c->pcg->pending = 0)

extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_pcg_direction)
    pcg_direction(const __grid_constant__ Context context) {
    const Context *c = &context;
    if (*(volatile long long *)&c->pcg->status) return;
    double scalar[OPTPY_SCALARS], sum[1] = {0};
    pcg_scalars(c, scalar, c->pcg->pending, c->pcg->beta);
    phase_direction(c, scalar, sum, false);
}

#if PCG_APPLIES == 1 /* a product in several passes is for pcg_solve alone */
PCG_LINE(pcg_apply, PCG_STATUS, phase_apply_0(c, scalar, sum, false), 0, pcg_after_apply(c, c->pcg, total[0], true))

/* A delta, for the true residual: with delta in the place of p, and nothing to be made of the sum. */
PCG_LINE(pcg_apply_delta, PCG_STATUS, phase_apply_0(c, scalar, sum, true), 0, (void)total)
#endif

/* -- all iterations in one kernel -------------------------------------------------------------------------------- */

/* Waits until all blocks are here; what each of them has stored is seen by all. */
OPTPY_FN void pcg_barrier(const Context *c) {
    __syncthreads();
    if (threadIdx.x == 0) {
        optpy_fence();
        /* What is added comes to 2^31 together: the highest bit changes when the last block comes, and only then. */
        const unsigned before = atomicAdd(&c->sync->barrier, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
        while (((before ^ *(volatile unsigned *)&c->sync->barrier) & 0x80000000u) == 0) __nanosleep(20);
        optpy_fence();
    }
    __syncthreads();
}

/* What all blocks have added up, in every thread of every block, if the line leaves a sum: all add the shares in the
 * same order. Two rows of shares take turns, since a block may leave its next one while another still adds up these. */
OPTPY_FN double pcg_total(const Context *c, double *sum, bool leaves, bool *turn) {
    double *shares = c->partial + (*turn ? gridDim.x : 0), total = 0;
    if (leaves) {
        const double own = optpy_over_block(sum[0], false);
        if (threadIdx.x == 0) shares[blockIdx.x] = own;
    }
    pcg_barrier(c);
    if (leaves) {
        total = optpy_total(shares, false);
        sum[0] = 0;
        *turn = !*turn;
    }
    return total;
}

enum Line { LINE_START, LINE_DIRECTION, LINE_APPLY, LINE_UPDATE, LINE_FLUSH, LINE_APPLY_DELTA, LINE_RESTART, LINE_END };

/* What follows a line, and the total that it may have left, in one thread of each block; returns the next line. */
OPTPY_FN Line pcg_after(const Context *c, Pcg *s, Line line, double total, bool halt, bool tells) {
    switch (line) {
    case LINE_START:
        pcg_after_start(c, s, total, tells);
        return s->status ? LINE_END : LINE_DIRECTION;
    case LINE_DIRECTION:
        return LINE_APPLY;
    case LINE_APPLY:
        pcg_after_apply(c, s, total, tells);
        if (s->status) return LINE_END;
        return c->reset_period && s->k % c->reset_period == 0 ? LINE_FLUSH : LINE_UPDATE;
    case LINE_FLUSH:
        s->pending = 0;
        return s->status ? LINE_END : LINE_APPLY_DELTA;
    case LINE_APPLY_DELTA:
        return LINE_RESTART;
    default:
        pcg_after_update(c, s, total, tells);
        if (s->status) return s->pending != 0 ? LINE_FLUSH : LINE_END;
        return halt ? LINE_END : LINE_DIRECTION;
    }
}

extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_pcg_solve)
    pcg_solve(const __grid_constant__ Context context) {
    const Context *c = &context;
    OPTPY_SHARED(Pcg, state, 1);
    OPTPY_SHARED(Line, shared_line, 1);
    Pcg *s = state;
    /* Volatile, or else the compiler makes a copy of what follows for each line, in more registers. */
    volatile Line *next = shared_line;
    const bool tells = blockIdx.x == 0 && threadIdx.x == 0;
    const long long began = optpy_nanoseconds();
    double sum[1] = {0};
    bool turn = false;
    if (threadIdx.x == 0) {
        /* Where the method goes on, it is running: no block ends, and writes c->pcg, before all have read it. */
        *s = c->fresh ? Pcg() : *c->pcg;
        *next = c->fresh ? LINE_START : LINE_DIRECTION;
    }
    __syncthreads();
    while (*next != LINE_END) {
        const Line line = *next;
        double scalar[OPTPY_SCALARS];
        pcg_scalars(c, scalar, line == LINE_UPDATE ? s->alpha : s->pending, s->beta);
        switch (line) {
        case LINE_START: phase_start(c, scalar, sum, false); break;         /* r = b;  r.z */
        case LINE_DIRECTION: phase_direction(c, scalar, sum, false); break; /* delta += alpha p;  p = z + beta p */
        case LINE_UPDATE: phase_update(c, scalar, sum, false); break;       /* r -= alpha Ap;  r.z */
        case LINE_FLUSH: phase_flush(c, scalar, sum, false); break;         /* delta += alpha p */
        case LINE_RESTART: phase_restart(c, scalar, sum, false); break;     /* r = b - A delta;  r.z */
        default: pcg_products(c, scalar, sum, line == LINE_APPLY_DELTA)     /* A p;  p.Ap;  or A delta */
        }
        const Line done = *next;
        /* One block's clock decides for all; they have read it when two more lines have been waited for. */
        if (tells && (done == LINE_UPDATE || done == LINE_RESTART))
            c->sync->halt = c->slice > 0 && optpy_nanoseconds() - began > c->slice;
        const double total = pcg_total(c, sum, done != LINE_DIRECTION && done != LINE_FLUSH, &turn);
        if (threadIdx.x == 0) *next = pcg_after(c, s, done, total, *(volatile unsigned *)&c->sync->halt, tells);
        __syncthreads();
    }
    if (tells) *c->pcg = *s;
}
