/* The stages of conjugate gradients, which are kernels of an energy's library, as pcg.h and what preconditions it run them. */

/* A stage of conjugate gradients on every grid; returns the sum of its first reduction, if it has one. */
OPTPY_FN double pcg_stage(const Context *c, const int *kernels, int64_t count, const double *scalar, Team *team, int thread) {
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
