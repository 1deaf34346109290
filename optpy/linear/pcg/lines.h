/* The lines of conjugate gradients, which are kernels of an energy's library, as pcg.h and what preconditions it run them.
 * Sums are added up segment by segment in a fixed order, so that they do not depend on the number of threads. */

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

/* The kernels of each line, one for each grid of unknowns; those of apply may have others before them. */
typedef struct PcgKernels {
    int64_t grids, applied;
    const int *start, *direction, *apply, *update, *flush, *restart;
    /* Fields p and delta of each unknown: the residual is computed afresh by applying A to delta in the place of p. */
    int64_t unknowns;
    const int *p, *delta;
    /* What makes z = M^-1 r where the lines do not, and returns r.z: a function of the library of its preconditioner,
     * which all threads of the team call when r is there. Null: the lines do. */
    double (*precondition)(void *preconditioner, const Context *c, const struct PcgKernels *m, const double *scalar,
                           Team *team, int thread);
    void *preconditioner;
    const double *omega;      /* of the sweep that is part of the lines, or null */
} PcgKernels;

/* A line of conjugate gradients on every grid; returns the sum of its first reduction, if it has one. */
OPTPY_FN double pcg_line(const Context *c, const int *kernels, int64_t count, const double *scalar, Team *team, int thread) {
    for (int64_t g = 0; g < count; g++) {
        const Kernel *k = &c->kernels[kernels[g]];
        kernel_run(k, c, scalar, thread, team->threads);
        if (k->prepares) team_barrier(team);
    }
    team_barrier(team);
    double total = 0;
    for (int64_t g = 0; g < count; g++) {
        const Kernel *k = &c->kernels[kernels[g]];
        if (k->reductions) total += kernel_total(k, c, 0);
    }
    return total;
}

/* A context in which one field of each unknown stands in the place of p, so that A can be applied to it; `field` and `plane`
 * have room for all fields. */
OPTPY_FN Context in_place_of_p(const Context *c, const PcgKernels *m, const int *v, void **field, int64_t *plane) {
    memcpy(field, c->field, (size_t)c->fields * sizeof *field);
    memcpy(plane, c->plane, (size_t)c->fields * sizeof *plane);
    for (int64_t u = 0; u < m->unknowns; u++) {
        field[m->p[u]] = c->field[v[u]];
        plane[m->p[u]] = c->plane[v[u]];
    }
    Context to = *c;
    to.field = field;
    to.plane = plane;
    return to;
}
