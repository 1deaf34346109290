/* The preconditioned conjugate gradient method on the device: solver/pcg.py line for line (Nocedal & Wright, algorithm
 * 5.3), with r = b - A delta here, so p = z + beta p. No number crosses to the host.
 *
 * Either one kernel for each stage (pcg_start, pcg_direction, pcg_apply, pcg_update, ...), which does nothing once the
 * method has ended: all scalars live in c->pcg, and the block that arrives last at the end of a stage computes them. Or
 * pcg_solve, all iterations in one kernel whose blocks wait for one another: then each block has the scalars for itself,
 * and computes them from the shares of all.
 *
 * This is what both have, whatever the preconditioner; each preconditioner's own header is the rest. The stages are
 * phase_start, phase_direction, phase_update, phase_flush, phase_restart, and phase_apply_0, ... for A p, which may take
 * several; their last argument puts delta in the place of p. */

/* The value in memory now, not what a register or the nearest cache remembers. */
#define PCG_NOW(member) (*(volatile double *)&c->pcg->member)
#define PCG_STATUS (*(volatile long long *)&c->pcg->status)

/* -- what follows each stage, in one thread, or in one of each block, of which one tells others ------------------ */

OPTPY_FN void pcg_tell(const Context *c, const Pcg *s) {
    if (c->progress) *(volatile long long *)c->progress = s->status ? -1 : s->k;
}

OPTPY_FN void pcg_see(Pcg *s, double rho) {
    s->k_seen = s->k;
    s->rho_seen = rho;
    s->Q_seen = s->Q;
}

OPTPY_FN void pcg_after_start(const Context *c, Pcg *s, double rho, bool tells) {
    s->rho = s->rho_0 = rho;
    s->alpha = s->pending = s->beta = s->pAp = s->Q = s->zeta = 0;
    s->k = s->resumed = 0;
    pcg_see(s, rho);
    s->status = rho == 0 ? PCG_NO_GRADIENT : optpy_isfinite(rho) && rho > 0 ? PCG_RUNNING : PCG_BAD_START;
    if (tells) pcg_tell(c, s);
}

OPTPY_FN void pcg_after_apply(const Context *c, Pcg *s, double pAp, bool tells) {
    s->pAp = pAp;
    s->pending = 0; /* the direction's stage has taken the last step */
    if (!(optpy_isfinite(pAp) && pAp > 0 && optpy_isfinite(s->rho / pAp))) {
        s->status = PCG_NO_CURVATURE;
        if (tells) pcg_tell(c, s);
        return;
    }
    s->alpha = s->pending = s->rho / pAp;
    s->k++;
}

/* Whether rounding alone moves the method: see Progress of solver/pcg.py. */
OPTPY_FN bool pcg_stagnates(const Context *c, Pcg *s, double rho_next) {
    if (2 * rho_next < s->rho_seen || fabs(s->Q - s->Q_seen) > c->precision * fabs(s->Q)) {
        pcg_see(s, rho_next);
        return false;
    }
    return s->k - s->k_seen >= PCG_PATIENCE && 5 * (s->k - s->k_seen) >= s->k;
}

/* The tests after iteration k: first the quadratic model's, then the residual's, then whether anything is left to gain,
 * then the limits. */
OPTPY_FN long long pcg_ending(const Context *c, Pcg *s, double rho_next) {
    if (!(optpy_isfinite(rho_next) && rho_next >= 0)) return PCG_NOT_POSITIVE;
    if (s->k > s->resumed && s->k >= c->min_iterations && s->zeta < c->eta) return PCG_MODEL; /* not another one's gain */
    if (rho_next == 0) return PCG_ZERO;
    if (s->k >= c->min_iterations && sqrt(rho_next / s->rho_0) < c->r_tolerance) return PCG_RESIDUAL;
    if (pcg_stagnates(c, s, rho_next)) return PCG_STAGNATED;
    if (s->k >= c->max_iterations) return PCG_LIMIT;
    return PCG_RUNNING;
}

OPTPY_FN void pcg_after_update(const Context *c, Pcg *s, double rho_next, bool tells) {
    const double gain = -0.5 * s->alpha * s->rho;
    s->Q += gain;
    s->zeta = s->Q != 0 ? (double)(s->k - s->resumed) * gain / s->Q : 0;
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

OPTPY_FN void pcg_after_resume(const Context *c, Pcg *s, double rho) {
    s->rho = rho;
    s->rho_0 = rho / c->reduced; /* measured in another norm, but as far reduced as before */
    s->alpha = s->pending = s->beta = 0;
    s->resumed = s->k;
    pcg_see(s, rho);
    s->status = pcg_ending(c, s, rho);
    pcg_tell(c, s);
}

/* -- one kernel for each stage ----------------------------------------------------------------------------------- */

/* The solver's scalars for a stage, with those that live on the device. */
OPTPY_FN void pcg_scalars(const Context *c, double *scalar, double alpha, double beta) {
#pragma unroll
    for (int n = 0; n < OPTPY_SCALARS; ++n) scalar[n] = c->scalar[n];
    scalar[ALPHA] = alpha;
    scalar[BETA] = beta;
    scalar[OMEGA] = c->omega ? *(volatile double *)c->omega : 0;
}

/* The kernel of a stage, and what comes after it in every thread. */
#define PCG_KERNEL(name, done, stage, step, ending)                                                        \
    extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_##name)                                      \
        name(const __grid_constant__ Context context) {                                                    \
        const Context *c = &context;                                                                       \
        if (done) return;                                                                                  \
        double scalar[OPTPY_SCALARS], sum[1] = {0};                                                        \
        pcg_scalars(c, scalar, step, c->pcg->beta);                                                        \
        stage;                                                                                             \
        ending                                                                                             \
    }

/* A stage that leaves a sum, and what the block that arrives last makes of it. */
#define PCG_STAGE_SUM(name, done, stage, step, after)                                                      \
    PCG_KERNEL(name, done, stage, step,                                                                    \
        if (!optpy_arrive<1>(c, sum, 0)) return;                                                           \
        double total[1];                                                                                   \
        optpy_totals<1>(c, total, 0);                                                                      \
        if (threadIdx.x == 0) { after; })

/* A stage that leaves none. */
#define PCG_STAGE(name, done, stage, step) PCG_KERNEL(name, done, stage, step, )

/* A solve that has ended, or been left by another preconditioner, goes on. */
extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_pcg_go_on) pcg_go_on(const __grid_constant__ Context context) {
    if (blockIdx.x == 0 && threadIdx.x == 0) context.pcg->status = PCG_RUNNING;
}

PCG_STAGE(pcg_direction, PCG_STATUS, phase_direction(c, scalar, sum, false), PCG_NOW(pending))
/* After the end too: the last step may still have to be taken. */
PCG_STAGE_SUM(pcg_flush, PCG_NOW(pending) == 0, phase_flush(c, scalar, sum, false), PCG_NOW(pending), c->pcg->pending = 0)

/* A p: whatever comes before the last pass, and that. A product with another vector is of no consequence. */
PCG_PREPARE
PCG_STAGE_SUM(pcg_apply, PCG_STATUS, PCG_LAST_APPLY(c, scalar, sum, false), 0,
         pcg_after_apply(c, c->pcg, total[0] + (PCG_PREPARES_SUM ? PCG_NOW(prepared) : 0), true))
PCG_STAGE_SUM(pcg_product, PCG_STATUS, PCG_LAST_APPLY(c, scalar, sum, false), 0, (void)total)
