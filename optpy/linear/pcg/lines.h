/* The lines of conjugate gradients, which are kernels of an energy's library, as pcg.h and what preconditions it run them. */

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
