/* J^T J + D as a sparse matrix of dense blocks, assembled row by row from what the residuals have stored, and the way
 * of r to a solver that works on the matrix, and of z back. NORMAL_CHANNELS is the size of a block; what adds up a row is in the
 * energy's library.
 *
 * A row is visited by one thread alone and goes through the residuals around its node in a fixed order, so the sums do not
 * depend on the number of threads. */

enum { NORMAL_BLOCK = NORMAL_CHANNELS * NORMAL_CHANNELS };

OPTPY_FN OPTPY_REAL *normal_field(const Context *c, const int element[3], int64_t place) {
    return (OPTPY_REAL *)c->field[element[0]] + element[1] * c->plane[element[0]] + element[2] * place;
}

/* -- assembly ------------------------------------------------------------------------------------------------------ */

static void normal_rows(const Context *c, const NormalMatrix *n, int damped, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        memset(n->matrix + n->row[i] * NORMAL_BLOCK, 0, (size_t)(n->row[i + 1] - n->row[i]) * NORMAL_BLOCK * sizeof(double));
        n->add_row(c, n->visits, i, n->matrix);
        double *diagonal = n->matrix + n->diagonal[i] * NORMAL_BLOCK;
        for (int a = 0; damped && a < NORMAL_CHANNELS; a++)
            diagonal[a * (NORMAL_CHANNELS + 1)] += *normal_field(c, n->D[a], n->place[i]);
    }
}

typedef struct {
    const Context *context;
    NormalMatrix *matrix;
    int damped;
} NormalCall;

static void normal_body(void *argument, Team *team, int thread) {
    const NormalCall *call = (const NormalCall *)argument;
    ptrdiff_t first, last;
    team_share((ptrdiff_t)call->matrix->nodes, thread, team->threads, &first, &last);
    normal_rows(call->context, call->matrix, call->damped, first, last);
}

/* The matrix at the present linearisation, with D where it is damped. */
OPTPY_EXPORT void optpy_assemble(const Context *c, NormalMatrix *n, int damped, int threads) {
    NormalCall call = {c, n, damped};
    team_run(threads, normal_body, &call);
}

/* -- z = M^-1 r ---------------------------------------------------------------------------------------------------- */

/* The chunks of rows that belong to a thread: sums over a chunk do not depend on the number of threads. */
#define NORMAL_CHUNKS(n, team, thread)                                                                          \
    ptrdiff_t normal_first, normal_last;                                                                        \
    const int64_t normal_count = ((n)->nodes + NORMAL_CHUNK - 1) / NORMAL_CHUNK;                                \
    team_share((ptrdiff_t)normal_count, thread, (team)->threads, &normal_first, &normal_last);                  \
    for (int64_t chunk = normal_first; chunk < normal_last; chunk++)

#define NORMAL_ROWS(n)                                                                                          \
    for (int64_t i = chunk * NORMAL_CHUNK; i < (chunk + 1) * NORMAL_CHUNK && i < (n)->nodes; i++)

/* b = r */
OPTPY_FN void normal_take(const Context *c, const NormalMatrix *n, Team *team, int thread) {
    NORMAL_CHUNKS(n, team, thread) NORMAL_ROWS(n)
        for (int a = 0; a < NORMAL_CHANNELS; a++)
            n->b[i * NORMAL_CHANNELS + a] = *normal_field(c, n->r[a], n->place[i]);
    team_barrier(team);
}

/* z = x; r.z */
OPTPY_FN double normal_give(const Context *c, const NormalMatrix *n, Team *team, int thread) {
    NORMAL_CHUNKS(n, team, thread) {
        double sum = 0;
        NORMAL_ROWS(n)
            for (int a = 0; a < NORMAL_CHANNELS; a++) {
                const OPTPY_REAL z = n->x[i * NORMAL_CHANNELS + a];
                *normal_field(c, n->z[a], n->place[i]) = z;
                sum += (double)z * (double)*normal_field(c, n->r[a], n->place[i]);
            }
        n->partial[chunk] = sum;
    }
    team_barrier(team);
    double total = 0;
    for (int64_t chunk = 0; chunk < (n->nodes + NORMAL_CHUNK - 1) / NORMAL_CHUNK; chunk++) total += n->partial[chunk];
    return total;
}
