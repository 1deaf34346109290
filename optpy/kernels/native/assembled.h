/* Building what solves with the assembled matrix: called between linear solves, by whoever has filled the matrix. */

typedef struct {
    Aggregation *aggregation;
    Cholesky *cholesky;
    const OPTPY_REAL *matrix;
} SolverCall;

static void amg_build_body(void *argument, Team *team, int thread) {
    amg_build(((SolverCall *)argument)->aggregation, team, thread);
}

static void chol_build_body(void *argument, Team *team, int thread) {
    const SolverCall *call = (const SolverCall *)argument;
    chol_build(call->cholesky, call->matrix, team, thread);
}

/* All levels of the algebraic multigrid, from the matrix as it has been assembled. */
OPTPY_EXPORT void optpy_aggregate(Aggregation *g, int threads) {
    SolverCall call = {g, NULL, NULL};
    team_run(threads, amg_build_body, &call);
}

/* The factorisation of the matrix as it has been assembled. */
OPTPY_EXPORT void optpy_factorise(Cholesky *f, const NormalMatrix *n, int threads) {
    SolverCall call = {NULL, f, n->matrix};
    team_run(threads, chol_build_body, &call);
}
