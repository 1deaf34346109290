/* The preconditioned conjugate gradient method on the device; what follows each stage is in pcg_iteration.h. No number
 * crosses to the host.
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

/* How far the method is, to the host. */
OPTPY_FN void pcg_tell(const Context *c, const PcgIteration *s) {
    if (c->progress) *(volatile long long *)c->progress = s->status ? -1 : s->k;
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

/* The same, where the method may end. */
#define PCG_STAGE_END(name, done, stage, step, after) \
    PCG_STAGE_SUM(name, done, stage, step, after; pcg_tell(c, c->pcg))

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
         pcg_after_apply(c->pcg, total[0] + (PCG_PREPARES_SUM ? PCG_NOW(prepared) : 0));
         if (c->pcg->status) pcg_tell(c, c->pcg))
PCG_STAGE_SUM(pcg_product, PCG_STATUS, PCG_LAST_APPLY(c, scalar, sum, false), 0, (void)total)
