/* Conjugate gradients whose z is stored, and comes from multigrid: start, update and restart end with the first sweep on
 * the finest level, z = omega D^-1 r, and r.z is there after the last one. Between them A is applied to z, and the coarse
 * levels correct it (multigrid.cuh). The host queues all of that; what it queues too much does nothing. */

/* A new solve; what follows finds the method running. */
extern "C" __global__ void __launch_bounds__(OPTPY_BOUNDS_pcg_begin) pcg_begin(const __grid_constant__ Context context) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *context.pcg = PcgIteration();
}

PCG_STAGE(pcg_start, PCG_STATUS, phase_start(c, scalar, sum, false), 0)
PCG_STAGE(pcg_update, PCG_STATUS, phase_update(c, scalar, sum, false), c->pcg->alpha)
PCG_STAGE(pcg_restart, PCG_STATUS, phase_restart(c, scalar, sum, false), 0)

/* z += omega D^-1 (r - A z);  r.z;  by what has been made before it, of start, update or restart. */
PCG_STAGE_END(pcg_smooth_start, PCG_STATUS, phase_smooth(c, scalar, sum, false), 0, pcg_after_start(c->pcg, total[0]))
PCG_STAGE_END(pcg_smooth_update, PCG_STATUS, phase_smooth(c, scalar, sum, false), 0,
         pcg_after_update(c->pcg, &c->limits, total[0], c->trace))
PCG_STAGE_END(pcg_smooth_resume, PCG_STATUS, phase_smooth(c, scalar, sum, false), 0,
         pcg_after_resume(c->pcg, &c->limits, total[0], c->reduced))

/* -- the damping of the finest level ------------------------------------------------------------------------------- */

/* z = omega D^-1 A z;  omega = 1 / ||z||, times what the host asks for at the last step */
PCG_STAGE_SUM(pcg_power, PCG_STATUS, phase_power(c, scalar, sum, false), 0,
         *c->omega = c->factor * optpy_inverse_norm(total[0]))
