/* The scalars of the preconditioned conjugate gradient method, on every device: solver/pcg.py line for line (Nocedal &
 * Wright, algorithm 5.3), with r = b - A delta here, so p = z + beta p. Each function is what follows a stage, given the
 * sum that the stage leaves. */

OPTPY_FN void pcg_see(PcgIteration *s, double rho) {
    s->k_seen = s->k;
    s->rho_seen = rho;
    s->Q_seen = s->Q;
}

/* Whether rounding alone moves the method: see Progress of solver/pcg.py. */
OPTPY_FN int pcg_stagnates(PcgIteration *s, const PcgLimits *limits, double rho_next) {
    if (2 * rho_next < s->rho_seen || fabs(s->Q - s->Q_seen) > limits->precision * fabs(s->Q)) {
        pcg_see(s, rho_next);
        return 0;
    }
    return s->k - s->k_seen >= PCG_PATIENCE && 5 * (s->k - s->k_seen) >= s->k;
}

/* The tests after iteration k: first the quadratic model's, then the residual's, then whether anything is left to gain,
 * then the limits. */
OPTPY_FN int64_t pcg_ending(PcgIteration *s, const PcgLimits *limits, double rho_next) {
    if (!(optpy_isfinite(rho_next) && rho_next >= 0)) return PCG_NOT_POSITIVE;
    const int may_converge = s->k >= limits->min_iterations;
    if (s->k > s->resumed && may_converge && s->zeta < limits->eta) return PCG_MODEL; /* not another one's gain */
    if (rho_next == 0) return PCG_ZERO;
    if (may_converge && sqrt(rho_next / s->rho_0) < limits->r_tolerance) return PCG_RESIDUAL;
    if (pcg_stagnates(s, limits, rho_next)) return PCG_STAGNATED;
    if (s->k >= limits->max_iterations) return PCG_LIMIT;
    return PCG_RUNNING;
}

/* After the first residual, that of delta = 0. */
OPTPY_FN void pcg_after_start(PcgIteration *s, double rho) {
    s->rho = s->rho_0 = rho;
    s->alpha = s->pending = s->beta = s->pAp = s->Q = s->zeta = 0;
    s->k = s->resumed = 0;
    pcg_see(s, rho);
    s->status = rho == 0 ? PCG_NO_GRADIENT : optpy_isfinite(rho) && rho > 0 ? PCG_RUNNING : PCG_BAD_START;
}

/* After the residual of another preconditioner's delta; `reduced` is r.z over that of the start, as it measured them. */
OPTPY_FN void pcg_after_resume(PcgIteration *s, const PcgLimits *limits, double rho, double reduced) {
    s->rho = rho;
    s->rho_0 = rho / reduced; /* measured in another norm, but as far reduced as before */
    s->alpha = s->pending = s->beta = 0;
    s->resumed = s->k;
    pcg_see(s, rho);
    s->status = pcg_ending(s, limits, rho);
}

/* After A p, before which the direction's stage has done the pending step. */
OPTPY_FN void pcg_after_apply(PcgIteration *s, double pAp) {
    s->pAp = pAp;
    s->pending = 0;
    if (!(optpy_isfinite(pAp) && pAp > 0 && optpy_isfinite(s->rho / pAp))) {
        s->status = PCG_NO_CURVATURE;
        return;
    }
    s->alpha = s->pending = s->rho / pAp;
    s->k++;
}

/* Whether the residual of this iteration is computed from delta, not by the recurrence. */
OPTPY_FN int pcg_resets(const PcgIteration *s, const PcgLimits *limits) {
    return limits->reset_period && s->k % limits->reset_period == 0;
}

/* After an iteration's residual; `trace` has the rows of all iterations, or is null. */
OPTPY_FN void pcg_after_update(PcgIteration *s, const PcgLimits *limits, double rho_next, PcgRow *trace) {
    s->Q -= 0.5 * s->alpha * s->rho;
    s->zeta = s->Q != 0 ? (double)(s->k - s->resumed) * (-0.5 * s->alpha * s->rho) / s->Q : 0;
    if (trace) {
        PcgRow *row = &trace[s->k - 1];
        row->k = (double)s->k;
        row->rho = s->rho;
        row->pAp = s->pAp;
        row->alpha = s->alpha;
        row->Q = s->Q;
        row->zeta = s->zeta;
        row->rho_next = rho_next;
    }
    s->status = pcg_ending(s, limits, rho_next);
    s->beta = rho_next / s->rho;
    s->rho = rho_next;
}
