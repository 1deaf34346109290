/* Solves with the factors of cholesky.h: L y = P b up the tree of panels, and L^T P x = y down again. A panel has
 * a front, its own elements and then those of its rows; what it adds to these goes to the front of its parent. */

OPTPY_FN double *chol_front(const Cholesky *f, int64_t p) { return f->front + (f->pattern.first[p] + f->pattern.start[p]) * CHOL_BLOCK; }

/* L y = front for some columns, and what they send to the elements after them. */
OPTPY_FN void chol_forward_step(const CholPanel *p, double *restrict front, int64_t at, const int columns) {
    const double *restrict value = p->value + at * p->ld;
    double y[CHOL_STEP];
    for (int c = 0; c < columns; c++) {
        double sum = front[at + c];
        for (int k = 0; k < c; k++) sum -= value[k * p->ld + at + c] * y[k];
        front[at + c] = y[c] = sum * p->inverse[at + c];
    }
    for (int64_t r = at + columns; r < p->ld; r++) {
        double sum = 0;
#pragma GCC unroll 12
        for (int c = 0; c < columns; c++) sum += value[c * p->ld + r] * y[c];
        front[r] -= sum;
    }
}

/* L^T x = front for some columns, all elements after them known. */
OPTPY_FN void chol_backward_step(const CholPanel *p, double *restrict front, int64_t at, const int columns) {
    const double *restrict value = p->value + at * p->ld;
    double sum[CHOL_STEP] = {0};
    for (int64_t r = at + columns; r < p->ld; r++)
#pragma GCC unroll 12
        for (int c = 0; c < columns; c++) sum[c] += value[c * p->ld + r] * front[r];
    for (int c = columns - 1; c >= 0; c--) {
        for (int k = c + 1; k < columns; k++) sum[c] += value[c * p->ld + at + k] * front[at + k];
        front[at + c] = (front[at + c] - sum[c]) * p->inverse[at + c];
    }
}

static void chol_forward(const Cholesky *f, const double *b, int64_t index) {
    const CholPanel p = chol_panel(f, index);
    double *front = chol_front(f, index);
    const int32_t *node = f->order + f->pattern.first[index];
    for (int64_t k = 0; k < p.columns / CHOL_BLOCK; k++)
        for (int a = 0; a < CHOL_BLOCK; a++) front[k * CHOL_BLOCK + a] = b[node[k] * (int64_t)CHOL_BLOCK + a];
    memset(front + p.columns, 0, (size_t)(p.ld - p.columns) * sizeof *front);
    for (int64_t u = f->pattern.update[index]; u < f->pattern.update[index + 1]; u++) {
        if (f->pattern.begin[u] > 0) continue; /* not a child: what it sends has come to one */
        const int64_t source = f->pattern.source[u], count = chol_update_rows(f, u);
        const double *from = chol_front(f, source) + (f->pattern.first[source + 1] - f->pattern.first[source]) * (int64_t)CHOL_BLOCK;
        const int32_t *position = f->pattern.position + f->pattern.offset[u];
        for (int64_t k = 0; k < count; k++) {
            double *block = front + position[k] * (int64_t)CHOL_BLOCK;
            for (int a = 0; a < CHOL_BLOCK; a++) block[a] += from[k * CHOL_BLOCK + a];
        }
    }
    int columns;
    for (int64_t at = 0; at < p.columns; at += columns) {
        columns = chol_columns(p.columns - at);
        CHOL_FOR_COLUMNS(columns, chol_forward_step, &p, front, at);
    }
}

static void chol_backward(const Cholesky *f, double *x, int64_t index) {
    const CholPanel p = chol_panel(f, index);
    double *front = chol_front(f, index), *below = front + p.columns;
    const int32_t *row = f->pattern.row + f->pattern.start[index], *node = f->order + f->pattern.first[index];
    for (int64_t k = 0; k < (p.ld - p.columns) / CHOL_BLOCK; k++)
        for (int a = 0; a < CHOL_BLOCK; a++) below[k * CHOL_BLOCK + a] = f->y[row[k] * (int64_t)CHOL_BLOCK + a];
    for (int64_t at = p.columns; at > 0;) {
        const int columns = at % CHOL_STEP ? chol_columns(at % CHOL_STEP) : CHOL_STEP;
        at -= columns;
        CHOL_FOR_COLUMNS(columns, chol_backward_step, &p, front, at);
    }
    memcpy(f->y + f->pattern.first[index] * (int64_t)CHOL_BLOCK, front, (size_t)p.columns * sizeof *front);
    for (int64_t k = 0; k < p.columns / CHOL_BLOCK; k++) {
        double *block = x + node[k] * (int64_t)CHOL_BLOCK;
        for (int a = 0; a < CHOL_BLOCK; a++) block[a] = front[k * CHOL_BLOCK + a];
    }
}

static void chol_solve_by_all(Cholesky *f, const double *b, double *x, Team *team, int thread) {
    for (int64_t t; (t = chol_take(f, 1)) < f->tasks;)
        for (int64_t p = f->task[2 * t]; p < f->task[2 * t + 1]; p++) chol_forward(f, b, p);
    team_barrier(team);
    if (thread == 0) {
        atomic_store(&f->next[1], 0);
        for (int64_t n = 0; n < f->tops; n++) chol_forward(f, b, f->top[2 * n]);
        for (int64_t n = f->tops; n-- > 0;) chol_backward(f, x, f->top[2 * n]);
    }
    team_barrier(team);
    for (int64_t t; (t = chol_take(f, 2)) < f->tasks;)
        for (int64_t p = f->task[2 * t + 1]; p-- > f->task[2 * t];) chol_backward(f, x, p);
    team_barrier(team);
    if (thread == 0) atomic_store(&f->next[2], 0); /* before the barrier in the next solve that lets others take again */
}

/* x = A^-1 b, both [node][channel], once all of b is there; they may be the same. */
static void chol_solve(Cholesky *f, const double *b, double *x, Team *team, int thread) {
    if (team->threads > 1 && f->solve_shared) {
        chol_solve_by_all(f, b, x, team, thread);
        return;
    }
    if (thread == 0) {
        for (int64_t p = 0; p < f->pattern.panels; p++) chol_forward(f, b, p);
        for (int64_t p = f->pattern.panels; p-- > 0;) chol_backward(f, x, p);
    }
    team_barrier(team);
}
