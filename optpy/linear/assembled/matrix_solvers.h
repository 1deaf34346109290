/* Solvers with an assembled matrix, as functions of a library of its own: they depend on the size of a block and on
 * the precision, but on no energy. They are called between linear solves, but for a cycle of the multigrid, which the team of
 * conjugate gradients calls: see PcgKernels. */

typedef struct {
    Aggregation *aggregation;
    Cholesky *cholesky;
    const double *matrix;
    const double *b;
    double *x;
} SolverCall;

static void amg_build_body(void *argument, Team *team, int thread) {
    amg_build(((SolverCall *)argument)->aggregation, team, thread);
}

static void chol_build_body(void *argument, Team *team, int thread) {
    const SolverCall *call = (const SolverCall *)argument;
    chol_build(call->cholesky, call->matrix, team, thread);
}

static void chol_solve_body(void *argument, Team *team, int thread) {
    const SolverCall *call = (const SolverCall *)argument;
    chol_solve(call->cholesky, call->b, call->x, team, thread);
}

/* All levels of the algebraic multigrid, from the matrix as it has been assembled. */
OPTPY_EXPORT void optpy_aggregate(Aggregation *g, int threads) {
    SolverCall call = {g, NULL, NULL, NULL, NULL};
    safe_begin(g->safe);
    team_run(threads, amg_build_body, &call);
}

/* z = M^-1 r by one cycle of the multigrid; r.z. */
OPTPY_EXPORT double optpy_apply_aggregation(void *preconditioner, const Context *c, const PcgKernels *m, const double *scalar,
                                            Team *team, int thread) {
    const AssembledSolve *solve = (const AssembledSolve *)preconditioner;
    (void)m, (void)scalar;
    normal_take(c, solve->matrix, team, thread);
    amg_cycle(solve->aggregation, team, thread);
    return normal_give(c, solve->matrix, team, thread);
}

/* The factorisation of the matrix as it has been assembled. */
OPTPY_EXPORT void optpy_factorise(Cholesky *f, const double *matrix, int threads) {
    SolverCall call = {NULL, f, matrix, NULL, NULL};
    safe_begin(f->safe);
    team_run(threads, chol_build_body, &call);
}

/* x = A^-1 b of the matrix that has been factorised, both [node][channel]; they may be the same. */
OPTPY_EXPORT void optpy_solve_factorised(Cholesky *f, const double *b, double *x, int threads) {
    SolverCall call = {NULL, f, NULL, b, x};
    team_run(threads, chol_solve_body, &call);
}
