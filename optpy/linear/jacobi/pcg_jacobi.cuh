/* Conjugate gradients whose preconditioner is part of the stages: start, update and restart leave r.z. */

PCG_STAGE_END(pcg_start, false, phase_start(c, scalar, sum, false), 0, pcg_after_start(c->pcg, total[0]))
PCG_STAGE_END(pcg_update, PCG_STATUS, phase_update(c, scalar, sum, false), c->pcg->alpha,
         pcg_after_update(c->pcg, &c->limits, total[0], c->trace))
PCG_STAGE_END(pcg_restart, PCG_STATUS, phase_restart(c, scalar, sum, false), 0,
         pcg_after_update(c->pcg, &c->limits, total[0], c->trace))
/* The first residual of a solve that goes on from another preconditioner's delta. */
PCG_STAGE_END(pcg_resume, PCG_STATUS, phase_restart(c, scalar, sum, false), 0,
         pcg_after_resume(c->pcg, &c->limits, total[0], c->reduced))

/* -- all iterations in one kernel -------------------------------------------------------------------------------- */

/* The total of all blocks, in every thread of every block, if the stage leaves a sum: all add the shares in the
 * same order. Two rows of shares take turns, since a block may leave its next one while another still adds up these. */
OPTPY_FN double pcg_total(const Context *c, double *sum, bool leaves, bool *turn) {
    double *shares = c->partial + (*turn ? gridDim.x : 0), total = 0;
    if (leaves) {
        const double own = optpy_over_block(sum[0], false);
        if (threadIdx.x == 0) shares[blockIdx.x] = own;
    }
    optpy_barrier(c);
    if (leaves) {
        total = optpy_total(shares, false);
        sum[0] = 0;
        *turn = !*turn;
    }
    return total;
}

enum Stage { STAGE_START, STAGE_DIRECTION, STAGE_APPLY, STAGE_UPDATE, STAGE_FLUSH, STAGE_APPLY_DELTA, STAGE_RESTART, STAGE_END };

/* Does what follows a stage, with the total that it may have left, in one thread of each block, of which one `tells`;
 * returns the next stage. */
OPTPY_FN Stage pcg_after(const Context *c, PcgIteration *s, Stage stage, double total, bool halt, bool tells) {
    switch (stage) {
    case STAGE_START:
        pcg_after_start(s, total);
        if (tells) pcg_tell(c, s);
        return s->status ? STAGE_END : STAGE_DIRECTION;
    case STAGE_DIRECTION:
        return STAGE_APPLY;
    case STAGE_APPLY:
        pcg_after_apply(s, total);
        if (s->status && tells) pcg_tell(c, s);
        if (s->status) return STAGE_END;
        return pcg_resets(s, &c->limits) ? STAGE_FLUSH : STAGE_UPDATE;
    case STAGE_FLUSH:
        s->pending = 0;
        return s->status ? STAGE_END : STAGE_APPLY_DELTA;
    case STAGE_APPLY_DELTA:
        return STAGE_RESTART;
    default:
        pcg_after_update(s, &c->limits, total, tells ? c->trace : nullptr);
        if (tells) pcg_tell(c, s);
        if (s->status) return s->pending != 0 ? STAGE_FLUSH : STAGE_END;
        return halt || s->k == c->pause ? STAGE_END : STAGE_DIRECTION;
    }
}

extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_pcg_solve)
    pcg_solve(const __grid_constant__ Context context) {
    const Context *c = &context;
    OPTPY_SHARED(PcgIteration, state, 1);
    OPTPY_SHARED(Stage, shared_stage, 1);
    PcgIteration *s = state;
    /* Volatile, or else the compiler makes a copy of what follows for each stage, in more registers. */
    volatile Stage *next = shared_stage;
    const bool tells = blockIdx.x == 0 && threadIdx.x == 0;
    const long long began = optpy_nanoseconds();
    double sum[1] = {0};
    bool turn = false;
    if (threadIdx.x == 0) {
        /* If the method goes on, it is running: no block ends, and writes c->pcg, before all have read it. */
        *s = c->fresh ? PcgIteration() : *c->pcg;
        *next = c->fresh ? STAGE_START : STAGE_DIRECTION;
    }
    __syncthreads();
    while (*next != STAGE_END) {
        const Stage stage = *next;
        double scalar[OPTPY_SCALARS];
        pcg_scalars(c, scalar, stage == STAGE_UPDATE ? s->alpha : s->pending, s->beta);
        switch (stage) {
        case STAGE_START: phase_start(c, scalar, sum, false); break;         /* r = b;  r.z */
        case STAGE_DIRECTION: phase_direction(c, scalar, sum, false); break; /* delta += alpha p;  p = z + beta p */
        case STAGE_UPDATE: phase_update(c, scalar, sum, false); break;       /* r -= alpha Ap;  r.z */
        case STAGE_FLUSH: phase_flush(c, scalar, sum, false); break;         /* delta += alpha p */
        case STAGE_RESTART: phase_restart(c, scalar, sum, false); break;     /* r = b - A delta;  r.z */
        default: pcg_products(c, scalar, sum, stage == STAGE_APPLY_DELTA)     /* A p;  p.Ap;  or A delta */
        }
        const Stage done = *next;
        /* One block's clock decides for all; they have read it when two more stages have been waited for. */
        if (tells && (done == STAGE_UPDATE || done == STAGE_RESTART))
            c->sync->halt = c->slice > 0 && optpy_nanoseconds() - began > c->slice;
        const double total = pcg_total(c, sum, done != STAGE_DIRECTION && done != STAGE_FLUSH, &turn);
        if (threadIdx.x == 0) *next = pcg_after(c, s, done, total, *(volatile unsigned *)&c->sync->halt, tells);
        __syncthreads();
    }
    if (tells) *c->pcg = *s;
}
