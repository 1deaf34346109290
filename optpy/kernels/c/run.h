/* Runs one kernel on a team of its own. */

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
    KernelCall call = {c, &c->kernels[kernel], scalar, repeat};
    team_run(threads, kernel_body, &call);
    for (int n = 0; n < call.kernel->reductions; n++) total[n] = kernel_total(call.kernel, c, n);
}
