/* Building what solves with the assembled matrix: called between linear solves, by whoever has filled the matrix. */

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
    team_run(threads, amg_build_body, &call);
}

/* The factorisation of the matrix as it has been assembled. */
OPTPY_EXPORT void optpy_factorise(Cholesky *f, const NormalMatrix *n, int threads) {
    SolverCall call = {NULL, f, n->matrix, NULL, NULL};
    team_run(threads, chol_build_body, &call);
}

/* x = A^-1 b of the matrix that has been factorised, both [node][channel]; they may be the same. */
OPTPY_EXPORT void optpy_solve_factorised(Cholesky *f, const double *b, double *x, int threads) {
    SolverCall call = {NULL, f, NULL, b, x};
    team_run(threads, chol_solve_body, &call);
}
