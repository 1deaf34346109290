/* The pattern of L for a given order of elimination: its tree and its supernodes (Liu, SIAM J. Matrix Anal. Appl. 11,
 * 1990; relaxed as Ashcraft and Grimes, ACM TOMS 15, 1989). A supernode is columns in a row whose patterns are about the
 * same; its blocks are stored as one dense panel. */

/* Columns with many zeros in their panel cost less than many small panels: up to a width, the zeros that are let in. */
static const struct {
    int32_t width;
    double zeros;
} symbolic_relaxed[] = {{8, 0.8}, {16, 0.4}, {48, 0.1}, {INT32_MAX, 0.05}};

/* -- tree ---------------------------------------------------------------------------------------------------------- */

/* parent[j] = the first row below the diagonal of column j of L, or -1; of A permuted to inverse_order[node]. */
static void symbolic_tree(int32_t n, const int64_t *rows, const int32_t *columns, const int32_t *order,
                          const int32_t *inverse_order, int32_t *parent, int32_t *ancestor) {
    for (int32_t i = 0; i < n; i++) {
        parent[i] = ancestor[i] = -1;
        for (int64_t k = rows[order[i]]; k < rows[order[i] + 1]; k++)
            for (int32_t j = inverse_order[columns[k]], up; j >= 0 && j < i; j = up) {
                up = ancestor[j];
                ancestor[j] = i;
                if (up < 0) parent[j] = i;
            }
    }
}

/* count[j] = the blocks in column j of L. */
static void symbolic_count(int32_t n, const int64_t *rows, const int32_t *columns, const int32_t *order,
                           const int32_t *inverse_order, const int32_t *parent, int32_t *count, int32_t *mark) {
    for (int32_t i = 0; i < n; i++) {
        mark[i] = i;
        count[i] = 1;
        for (int64_t k = rows[order[i]]; k < rows[order[i] + 1]; k++)
            for (int32_t j = inverse_order[columns[k]]; j < i && mark[j] != i; j = parent[j]) {
                mark[j] = i;
                count[j]++;
            }
    }
}

/* after[k] = the k-th column in a postorder in which the child with the longest column comes last. */
static void symbolic_postorder(int32_t n, const int32_t *parent, const int32_t *count, int32_t *after,
                               int32_t *scratch) {
    int32_t *first = scratch, *next = scratch + n + 1, *stack = scratch + 2 * (n + 1);
    int32_t depth = 0, k = 0;
    for (int32_t i = 0; i <= n; i++) first[i] = -1;
    for (int32_t i = n - 1; i >= 0; i--) { /* the roots are children of n */
        int32_t *link = &first[parent[i] < 0 ? n : parent[i]];
        if (*link >= 0 && count[i] < count[*link]) { /* the longest stays in front, to be taken last */
            next[i] = next[*link];
            next[*link] = i;
        } else {
            next[i] = *link;
            *link = i;
        }
    }
    /* Backwards: a node, then its children from the last to the first. */
    for (int32_t i = first[n]; i >= 0; i = next[i]) stack[depth++] = i;
    for (int32_t low = 0, high = depth - 1; low < high; low++, high--) {
        const int32_t swap = stack[low];
        stack[low] = stack[high];
        stack[high] = swap;
    }
    while (depth > 0) {
        const int32_t i = stack[--depth];
        const int32_t bottom = depth;
        after[n - 1 - k++] = i;
        for (int32_t c = first[i]; c >= 0; c = next[c]) stack[depth++] = c;
        for (int32_t low = bottom, high = depth - 1; low < high; low++, high--) {
            const int32_t swap = stack[low];
            stack[low] = stack[high];
            stack[high] = swap;
        }
    }
}

/* Brings the order into a postorder of its tree; fills in the tree and the lengths of L's columns. `scratch`: 5 (n + 1)
 * numbers. */
OPTPY_EXPORT void optpy_elimination_tree(int32_t n, const int64_t *rows, const int32_t *columns, int32_t *order,
                                         int32_t *inverse_order, int32_t *parent, int32_t *count, int32_t *scratch) {
    for (int32_t k = 0; k < n; k++) inverse_order[order[k]] = k;
    symbolic_tree(n, rows, columns, order, inverse_order, parent, scratch);
    symbolic_count(n, rows, columns, order, inverse_order, parent, count, scratch);
    int32_t *after = scratch, *old = scratch + n + 1;
    symbolic_postorder(n, parent, count, after, scratch + 2 * (n + 1));
    memcpy(old, order, (size_t)n * sizeof *old);
    for (int32_t k = 0; k < n; k++) order[k] = old[after[k]];
    int32_t *moved = old, *parents = scratch + 2 * (n + 1), *counts = scratch + 3 * (n + 1);
    for (int32_t k = 0; k < n; k++) moved[after[k]] = k;
    for (int32_t k = 0; k < n; k++) {
        inverse_order[order[k]] = k;
        parents[k] = parent[after[k]] < 0 ? -1 : moved[parent[after[k]]];
        counts[k] = count[after[k]];
    }
    memcpy(parent, parents, (size_t)n * sizeof *parent);
    memcpy(count, counts, (size_t)n * sizeof *count);
}

/* -- supernodes ---------------------------------------------------------------------------------------------------- */

/* Whether columns [from, to) may be one panel that holds `filled` blocks and `below` rows more. */
static int symbolic_may_merge(int32_t from, int32_t to, int32_t below, int64_t filled, int32_t block, int relaxed) {
    const int64_t width = to - from, stored = width * (width + 1) / 2 + width * below;
    if (stored == filled) return 1;
    if (!relaxed) return 0;
    const double zeros = 1 - (double)filled / (double)stored;
    for (int k = 0;; k++)
        if (width * block <= symbolic_relaxed[k].width) return zeros <= symbolic_relaxed[k].zeros;
}

/* Supernodes, merged with the one before where it is a child, at first only those that are the same. Writes the first
 * column of each, and after the last n; returns how many. `filled`: n numbers. */
OPTPY_EXPORT int32_t optpy_supernodes(int32_t n, const int32_t *parent, const int32_t *count, int32_t block,
                                      int32_t *first, int64_t *filled) {
    int32_t supernodes = n;
    for (int32_t k = 0; k <= n; k++) first[k] = k;
    for (int32_t k = 0; k < n; k++) filled[k] = count[k];
    for (int relaxed = 0; relaxed < 2; relaxed++) {
        int32_t top = 0; /* those before are done, and `first` is read further on than written */
        for (int32_t s = 0; s < supernodes; s++) {
            int32_t from = first[s];
            const int32_t to = first[s + 1], below = count[to - 1] - 1;
            int64_t blocks = filled[s];
            while (top > 0 && parent[from - 1] >= from && parent[from - 1] < to &&
                   symbolic_may_merge(first[top - 1], to, below, filled[top - 1] + blocks, block, relaxed)) {
                from = first[--top];
                blocks += filled[top];
            }
            first[top] = from;
            filled[top++] = blocks;
        }
        supernodes = top;
        first[supernodes] = n;
    }
    return supernodes;
}

/* row = the rows of L below each supernode, ascending, from begin[s] on. `above`: the supernode of its last column's
 * parent. */
OPTPY_EXPORT void optpy_supernode_rows(int32_t n, const int64_t *rows, const int32_t *columns, const int32_t *order,
                                       const int32_t *inverse_order, int32_t supernodes, const int32_t *above,
                                       const int32_t *supernode, const int64_t *begin, int32_t *row, int32_t *mark,
                                       int64_t *end) {
    for (int32_t s = 0; s < supernodes; s++) {
        mark[s] = -1;
        end[s] = begin[s];
    }
    for (int32_t i = 0; i < n; i++)
        for (int64_t k = rows[order[i]]; k < rows[order[i] + 1]; k++) {
            const int32_t j = inverse_order[columns[k]];
            if (j >= i) continue;
            for (int32_t s = supernode[j]; s != supernode[i] && mark[s] != i; s = above[s]) {
                mark[s] = i;
                row[end[s]++] = i;
            }
        }
}

/* -- panels -------------------------------------------------------------------------------------------------------- */

OPTPY_EXPORT void optpy_panel_rows(const Panels *f, const int32_t *owner, const int32_t *supernode_first,
                                   const int64_t *supernode_start, const int32_t *supernode_row) {
    for (int32_t p = 0; p < f->panels; p++) {
        const int32_t s = owner[p];
        int32_t *row = f->row + f->start[p];
        for (int32_t c = f->first[p + 1]; c < supernode_first[s + 1]; c++) *row++ = c;
        for (int64_t k = supernode_start[s]; k < supernode_start[s + 1]; k++) *row++ = supernode_row[k];
    }
}

/* update[p + 1] = how many panels update p; entry[p + 1] = how many blocks of A are in p. `panel`: of each column. */
OPTPY_EXPORT void optpy_panel_counts(const Panels *f, const int32_t *panel, const int64_t *rows,
                                     const int32_t *columns, const int32_t *inverse_order) {
    for (int32_t d = 0; d < f->panels; d++)
        for (int64_t k = f->start[d]; k < f->start[d + 1]; k++)
            if (k == f->start[d] || panel[f->row[k]] != panel[f->row[k - 1]]) f->update[panel[f->row[k]] + 1]++;
    for (int32_t i = 0; i < f->n; i++)
        for (int64_t k = rows[i]; k < rows[i + 1]; k++)
            if (inverse_order[columns[k]] <= inverse_order[i]) f->entry[panel[inverse_order[columns[k]]] + 1]++;
}

/* The updates, without `position`; returns how long that is. `next`: panels numbers. */
OPTPY_EXPORT int64_t optpy_panel_updates(const Panels *f, const int32_t *panel, int64_t *next) {
    int64_t used = f->tallest;
    memcpy(next, f->update, (size_t)f->panels * sizeof *next);
    for (int32_t d = 0; d < f->panels; d++) {
        const int64_t start = f->start[d], rows = f->start[d + 1] - start;
        for (int64_t k = 0, last; k < rows; k = last) {
            const int32_t p = panel[f->row[start + k]];
            for (last = k + 1; last < rows && panel[f->row[start + last]] == p; last++) {}
            const int64_t u = next[p]++;
            f->source[u] = d;
            f->begin[u] = (int32_t)k;
            f->end[u] = (int32_t)last;
            const int32_t column = f->row[start + k] - f->first[p];
            const int64_t height = f->first[p + 1] - f->first[p] + f->start[p + 1] - f->start[p];
            f->offset[u] = column;
            if (rows - k < height - column) { /* not all that p has from there on */
                f->offset[u] = used;
                used += rows - k;
            }
        }
    }
    return used;
}

/* position and target. `place_in_panel`: n numbers. */
OPTPY_EXPORT void optpy_panel_positions(const Panels *f, const int64_t *rows, const int32_t *columns,
                                        const int32_t *order, const int32_t *inverse_order, int32_t *place_in_panel) {
    for (int32_t k = 0; k < f->tallest; k++) f->position[k] = k;
    for (int32_t p = 0; p < f->panels; p++) {
        const int32_t first = f->first[p], width = f->first[p + 1] - first;
        const int64_t start = f->start[p], below = f->start[p + 1] - start, block = f->block;
        for (int32_t c = 0; c < width; c++) place_in_panel[first + c] = c;
        for (int64_t k = 0; k < below; k++) place_in_panel[f->row[start + k]] = width + (int32_t)k;
        for (int64_t u = f->update[p]; u < f->update[p + 1]; u++) {
            if (f->offset[u] < f->tallest) continue;
            const int32_t d = f->source[u], *row = f->row + f->start[d] + f->begin[u];
            for (int64_t k = 0, count = f->start[d + 1] - f->start[d] - f->begin[u]; k < count; k++)
                f->position[f->offset[u] + k] = place_in_panel[row[k]];
        }
        int64_t at = f->entry[p];
        for (int32_t c = 0; c < width; c++) /* A is symmetric: a row of it is this column, but for blocks' transposes */
            for (int64_t k = rows[order[first + c]]; k < rows[order[first + c] + 1]; k++) {
                const int32_t i = inverse_order[columns[k]];
                if (i < first + c) continue;
                f->block_of[at] = k;
                f->target[at++] = c * block * (width + below) * block + place_in_panel[i] * block;
            }
    }
}
