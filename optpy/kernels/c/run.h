/* Runs kernels, each on a team of its own. */

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

/* Runs kernels one after the other, each on its number of threads and `repeat` times, and writes the totals of all their
 * reductions. */
OPTPY_EXPORT void optpy_run(const Context *c, const int *kernels, const int *threads, int64_t count, const double *scalar,
                            int64_t repeat, double *total) {
    for (int64_t i = 0; i < count; i++) {
        KernelCall call = {c, &c->kernels[kernels[i]], scalar, repeat};
        team_run(threads[i], kernel_body, &call);
        for (int n = 0; n < call.kernel->reductions; n++) *total++ = kernel_total(call.kernel, c, n);
    }
}
