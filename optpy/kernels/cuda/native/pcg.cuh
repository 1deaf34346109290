/* The preconditioned conjugate gradient method on the device: solver/pcg.py line for line (Nocedal & Wright, algorithm
 * 5.3), with r = b - A delta here, so p = z + beta p. All scalars live in c->pcg; the block that arrives last at the
 * end of a line computes them, and no number crosses to the host.
 *
 * Either one kernel for each line (pcg_start, pcg_direction, pcg_apply, pcg_update, ...), which does nothing once the
 * method has ended, or pcg_solve: all iterations in one kernel whose blocks wait for one another.
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

/* -- what follows each line, in one thread -------------------------------------------------------------------- */

OPTPY_FN void pcg_tell(const Context *c) {
    Pcg *s = c->pcg;
    if (c->progress) *(volatile long long *)c->progress = s->status ? -1 : s->k;
}

OPTPY_FN void pcg_after_start(const Context *c, double rho) {
    Pcg *s = c->pcg;
    s->rho = s->rho_0 = rho;
    s->alpha = s->pending = s->beta = s->pAp = s->Q = s->zeta = 0;
    s->k = s->halted = 0;
    s->status = rho == 0 ? PCG_NO_GRADIENT : optpy_isfinite(rho) && rho > 0 ? PCG_RUNNING : PCG_BAD_START;
    pcg_tell(c);
}

/* pcg_solve goes on after a slice of time. */
OPTPY_FN void pcg_again(const Context *c) {
    c->pcg->halted = 0;
    c->pcg->began = optpy_nanoseconds();
}

OPTPY_FN void pcg_after_apply(const Context *c, double pAp) {
    Pcg *s = c->pcg;
    s->pAp = pAp;
    s->pending = 0; /* the direction's line has taken the last step */
    if (!(optpy_isfinite(pAp) && pAp > 0 && optpy_isfinite(s->rho / pAp))) {
        s->status = PCG_NO_CURVATURE;
        pcg_tell(c);
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

OPTPY_FN void pcg_after_update(const Context *c, double rho_next) {
    Pcg *s = c->pcg;
    const double gain = -0.5 * s->alpha * s->rho;
    s->Q += gain;
    s->zeta = s->Q != 0 ? (double)s->k * gain / s->Q : 0;
    if (c->trace) {
        const double row[7] = {(double)s->k, s->rho, s->pAp, s->alpha, s->Q, s->zeta, rho_next};
#pragma unroll
        for (int n = 0; n < 7; ++n) c->trace[7 * (s->k - 1) + n] = row[n];
    }
    s->status = pcg_ending(c, s, rho_next);
    s->beta = rho_next / s->rho;
    s->rho = rho_next;
    if (!s->status && c->slice > 0 && optpy_nanoseconds() - s->began > c->slice) s->halted = 1;
    pcg_tell(c);
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

PCG_LINE(pcg_start, false, phase_start(c, scalar, sum, false), 0, pcg_after_start(c, total[0]))
PCG_LINE(pcg_update, PCG_STATUS, phase_update(c, scalar, sum, false), c->pcg->alpha, pcg_after_update(c, total[0]))
PCG_LINE(pcg_restart, PCG_STATUS, phase_restart(c, scalar, sum, false), 0, pcg_after_update(c, total[0]))
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
PCG_LINE(pcg_apply, PCG_STATUS, phase_apply_0(c, scalar, sum, false), 0, pcg_after_apply(c, total[0]))

/* A delta, for the true residual: with delta in the place of p, and nothing to be made of the sum. */
PCG_LINE(pcg_apply_delta, PCG_STATUS, phase_apply_0(c, scalar, sum, true), 0, (void)total)
#endif

/* -- all iterations in one kernel -------------------------------------------------------------------------------- */

/* Waits for all blocks; `after` happens in the one that comes last, before any goes on. What a block has stored is
 * seen by all: its threads meet, then one of them fences, arrives, and fences again before they go on together. */
#define PCG_WAIT(arrive, after)                                                   \
    {                                                                             \
        const unsigned seen = *(volatile unsigned *)&c->sync->generation;         \
        if (arrive) {                                                             \
            after;                                                                \
            if (threadIdx.x == 0) {                                               \
                __threadfence();                                                  \
                *(volatile unsigned *)&c->sync->generation = seen + 1;            \
            }                                                                     \
        } else if (threadIdx.x == 0) {                                            \
            while (*(volatile unsigned *)&c->sync->generation == seen) __nanosleep(20); \
        }                                                                         \
        __threadfence();                                                          \
        __syncthreads();                                                          \
    }

#define PCG_TOTAL(after)                          \
    {                                             \
        double total[1];                          \
        optpy_totals<1>(c, total, 0);             \
        if (threadIdx.x == 0) { after; }          \
    }

/* The end of a line that leaves a sum: `after` is made of its total. */
#define PCG_BARRIER(after)                                   \
    PCG_WAIT(optpy_arrive<1>(c, sum, 0), PCG_TOTAL(after))   \
    sum[0] = 0;

/* The end of a line that leaves none. */
#define PCG_PLAIN_BARRIER PCG_WAIT(optpy_arrive_alone(c), )

extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_pcg_solve)
    pcg_solve(const __grid_constant__ Context context) {
    const Context *c = &context;
    double scalar[OPTPY_SCALARS], sum[1] = {0};
    pcg_scalars(c, scalar, 0, 0);
    if (context.fresh) {
        phase_start(c, scalar, sum, false);
        PCG_BARRIER(pcg_after_start(c, total[0]); c->pcg->began = optpy_nanoseconds())
    } else {
        PCG_WAIT(optpy_arrive_alone(c), if (threadIdx.x == 0) pcg_again(c))
    }
    while (PCG_STATUS == PCG_RUNNING && !*(volatile long long *)&c->pcg->halted) {
        scalar[ALPHA] = PCG_NOW(pending);
        scalar[BETA] = PCG_NOW(beta);
        phase_direction(c, scalar, sum, false); /* delta += alpha p;  p = z + beta p */
        PCG_PLAIN_BARRIER
        for (bool on_delta = false;; on_delta = true) {
            pcg_products(c, scalar, sum, on_delta) /* A p;  p.Ap;  or A delta */
            PCG_BARRIER(if (!on_delta) pcg_after_apply(c, total[0]))
            if (on_delta) {
                phase_restart(c, scalar, sum, false); /* r = b - A delta;  r.z */
                PCG_BARRIER(pcg_after_update(c, total[0]))
                break;
            }
            if (PCG_STATUS != PCG_RUNNING) break;
            const long long k = *(volatile long long *)&c->pcg->k;
            if (!c->reset_period || k % c->reset_period) {
                scalar[ALPHA] = PCG_NOW(alpha);
                phase_update(c, scalar, sum, false); /* r -= alpha Ap;  r.z */
                PCG_BARRIER(pcg_after_update(c, total[0]))
                break;
            }
            scalar[ALPHA] = PCG_NOW(pending);
            phase_flush(c, scalar, sum, false); /* delta += alpha p */
            PCG_WAIT(optpy_arrive_alone(c), if (threadIdx.x == 0) c->pcg->pending = 0)
        }
    }
    if (PCG_STATUS == PCG_RUNNING || PCG_NOW(pending) == 0) return;
    scalar[ALPHA] = PCG_NOW(pending);
    phase_flush(c, scalar, sum, false);
    PCG_WAIT(optpy_arrive_alone(c), if (threadIdx.x == 0) c->pcg->pending = 0)
}
