/* What solves with an assembled matrix, as functions of a library of its own: they depend on the size of a block and on
 * the precision, but on no energy. Building goes on between linear solves, by whoever has filled the matrix; applying
 * within them, by the team of conjugate gradients: see MatrixSolve in pcg.h. */

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
OPTPY_EXPORT void optpy_factorise(Cholesky *f, const OPTPY_REAL *matrix, int threads) {
    SolverCall call = {NULL, f, matrix};
    team_run(threads, chol_build_body, &call);
}

/* One cycle of the multigrid: b and x are those of its finest level. */
OPTPY_EXPORT void optpy_apply_aggregation(void *solver, const OPTPY_REAL *b, OPTPY_REAL *x, Team *team, int thread) {
    (void)b, (void)x;
    amg_cycle((Aggregation *)solver, team, thread);
}

/* Both halves of the solve with the factor. */
OPTPY_EXPORT void optpy_apply_factor(void *solver, const OPTPY_REAL *b, OPTPY_REAL *x, Team *team, int thread) {
    chol_solve((Cholesky *)solver, b, x, team, thread);
}
