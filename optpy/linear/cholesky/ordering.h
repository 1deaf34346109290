/* The symbolic part of a sparse Cholesky factorisation: an order of elimination with little fill, the elimination tree,
 * and the pattern of L in supernodes.
 *
 * The order is of approximate minimum degree (Amestoy, Davis and Duff, SIAM J. Matrix Anal. Appl. 17, 1996): a quotient
 * graph of variables, not yet eliminated, and elements, the cliques that elimination has left. The tree is Liu's (1990).
 *
 * Patterns are CSR over nodes: symmetric, columns ascending, the diagonal in them. */

#include <stdlib.h>

enum { ORDER_VARIABLE, ORDER_ELEMENT, ORDER_GONE };

typedef struct {
    int32_t n;
    int32_t *pool;                     /* the lists: elements, then variables; an element's: its variables */
    int64_t capacity, used;
    int64_t *start;
    int32_t *elements, *length;        /* of each list */
    int32_t *weight;                   /* nodes that a variable stands for: negative in the pivot's list, 0 if none */
    int32_t *degree, *state, *parent;  /* parent: what a variable that is gone was merged with */
    int32_t *head, *next, *previous;   /* variables by degree, linked */
    int32_t *hash_head, *hash_next, *hash;
    int64_t *mark, stamp;
    int32_t least, eliminated;
} Order;

/* -- lists by degree ----------------------------------------------------------------------------------------------- */

OPTPY_FN void order_insert(Order *o, int32_t i) {
    const int32_t d = o->degree[i], first = o->head[d];
    o->next[i] = first;
    o->previous[i] = -1;
    if (first >= 0) o->previous[first] = i;
    o->head[d] = i;
    if (d < o->least) o->least = d;
}

OPTPY_FN void order_remove(Order *o, int32_t i) {
    if (o->next[i] >= 0) o->previous[o->next[i]] = o->previous[i];
    if (o->previous[i] >= 0) o->next[o->previous[i]] = o->next[i];
    else o->head[o->degree[i]] = o->next[i];
}

OPTPY_FN void order_merge(Order *o, int32_t i, int32_t into) {
    o->weight[i] = 0;
    o->state[i] = ORDER_GONE;
    o->parent[i] = into;
}

/* -- one elimination ----------------------------------------------------------------------------------------------- */

/* Appends those of a list that the pivot's element has not yet; returns their weight. */
static int32_t order_collect(Order *o, const int32_t *list, int32_t count) {
    int32_t weight = 0;
    for (int32_t k = 0; k < count; k++) {
        const int32_t i = list[k], w = o->weight[i];
        if (w <= 0) continue;
        weight += w;
        o->weight[i] = -w;
        o->pool[o->used++] = i;
        order_remove(o, i);
    }
    return weight;
}

/* The variables next to the pivot become its element, which absorbs the elements that the pivot was in. 0 if there is
 * no memory. */
static int order_form_element(Order *o, int32_t p) {
    const int64_t needed = o->used + o->n - o->eliminated;
    if (needed > o->capacity) {
        const int64_t capacity = needed + o->capacity / 2;
        int32_t *pool = (int32_t *)realloc(o->pool, (size_t)capacity * sizeof *pool);
        if (!pool) return 0;
        o->pool = pool;
        o->capacity = capacity;
    }
    const int64_t start = o->used;
    const int32_t *list = o->pool + o->start[p];
    int32_t weight = 0;
    o->weight[p] = -o->weight[p];
    for (int32_t k = 0; k < o->elements[p]; k++) {
        const int32_t e = list[k];
        if (o->state[e] != ORDER_ELEMENT) continue;
        weight += order_collect(o, o->pool + o->start[e], o->length[e]);
        o->state[e] = ORDER_GONE;
    }
    weight += order_collect(o, list + o->elements[p], o->length[p] - o->elements[p]);
    o->start[p] = start;
    o->length[p] = (int32_t)(o->used - start);
    o->degree[p] = weight;
    o->state[p] = ORDER_ELEMENT;
    return 1;
}

/* mark[e] - stamp = the weight of e outside the pivot's element, for every element e that meets it. */
static void order_measure_elements(Order *o, int32_t p) {
    for (int32_t k = 0; k < o->length[p]; k++) {
        const int32_t i = o->pool[o->start[p] + k];
        const int32_t *list = o->pool + o->start[i];
        for (int32_t m = 0; m < o->elements[i]; m++) {
            const int32_t e = list[m];
            if (o->state[e] != ORDER_ELEMENT) continue;
            if (o->mark[e] < o->stamp) o->mark[e] = o->stamp + o->degree[e];
            o->mark[e] += o->weight[i]; /* negative: i is in the pivot's element */
        }
    }
}

/* Drops from the list of i what the pivot's element covers, adds that element, and bounds the degree outside it. */
static void order_update_variable(Order *o, int32_t p, int32_t i) {
    int32_t *list = o->pool + o->start[i];
    int64_t degree = 0;
    int32_t kept = 0;
    uint32_t hash = 0;
    for (int32_t k = 0; k < o->elements[i]; k++) {
        const int32_t e = list[k];
        if (o->state[e] != ORDER_ELEMENT) continue;
        if (o->mark[e] == o->stamp) {
            o->state[e] = ORDER_GONE; /* within the pivot's element */
            continue;
        }
        degree += o->mark[e] - o->stamp;
        hash += (uint32_t)e;
        list[kept++] = e;
    }
    const int32_t elements = kept;
    for (int32_t k = o->elements[i]; k < o->length[i]; k++) {
        const int32_t j = list[k];
        if (o->weight[j] <= 0) continue;
        degree += o->weight[j];
        hash += (uint32_t)j;
        list[kept++] = j;
    }
    if (degree == 0) { /* its only neighbours are the pivot's: it can be eliminated at the same time */
        o->degree[p] += o->weight[i];
        o->weight[p] += o->weight[i];
        order_merge(o, i, p);
        return;
    }
    list[kept] = list[elements]; /* there is room: the pivot, or an element that it was in, has gone */
    list[elements] = p;
    o->elements[i] = elements + 1;
    o->length[i] = kept + 1;
    if (degree < o->degree[i]) o->degree[i] = (int32_t)degree;
    o->hash[i] = (int32_t)(hash % (uint32_t)o->n);
    o->hash_next[i] = o->hash_head[o->hash[i]];
    o->hash_head[o->hash[i]] = i;
}

/* Merges with i those after it in its bucket that have the same neighbours. */
static void order_merge_equals(Order *o, int32_t i) {
    const int32_t *list = o->pool + o->start[i];
    o->stamp++;
    for (int32_t k = 0; k < o->length[i]; k++) o->mark[list[k]] = o->stamp;
    for (int32_t previous = i, j = o->hash_next[i]; j >= 0; j = o->hash_next[j]) {
        const int32_t *other = o->pool + o->start[j];
        int equal = o->length[j] == o->length[i] && o->elements[j] == o->elements[i];
        for (int32_t k = 0; equal && k < o->length[j]; k++) equal = o->mark[other[k]] == o->stamp;
        if (equal) {
            o->weight[i] += o->weight[j];
            order_merge(o, j, i);
            o->hash_next[previous] = o->hash_next[j];
        } else {
            previous = j;
        }
    }
}

static int order_eliminate(Order *o, int32_t p) {
    if (!order_form_element(o, p)) return 0;
    int32_t *list = o->pool + o->start[p];
    o->stamp += o->n; /* beyond all marks of the last elimination */
    order_measure_elements(o, p);
    for (int32_t k = 0; k < o->length[p]; k++) order_update_variable(o, p, list[k]);
    o->stamp += o->n;
    for (int32_t k = 0; k < o->length[p]; k++) {
        const int32_t i = list[k], h = o->hash[i];
        if (o->weight[i] == 0 || o->hash_head[h] < 0) continue;
        for (int32_t j = o->hash_head[h]; j >= 0 && o->hash_next[j] >= 0; j = o->hash_next[j]) order_merge_equals(o, j);
        o->hash_head[h] = -1;
    }
    o->weight[p] = -o->weight[p];
    o->eliminated += o->weight[p];
    int32_t kept = 0;
    for (int32_t k = 0; k < o->length[p]; k++) {
        const int32_t i = list[k];
        if (o->weight[i] == 0) continue;
        const int32_t weight = o->weight[i] = -o->weight[i];
        const int64_t degree = (int64_t)o->degree[i] + o->degree[p] - weight, most = o->n - o->eliminated - weight;
        o->degree[i] = (int32_t)(degree < most ? degree : most);
        order_insert(o, i);
        list[kept++] = i;
    }
    o->length[p] = kept;
    o->used = o->start[p] + kept;
    if (kept == 0) o->state[p] = ORDER_GONE;
    return 1;
}

/* -- the order ----------------------------------------------------------------------------------------------------- */

/* Variables, each with its neighbours. Those with very many are left for the end: they would slow down all others. */
static int32_t order_start(Order *o, const int64_t *rows, const int32_t *columns) {
    const double dense = 16 + 10 * sqrt((double)o->n);
    int32_t left = o->n;
    o->least = o->n;
    for (int32_t i = 0; i < o->n; i++) o->head[i] = o->hash_head[i] = -1;
    for (int32_t i = 0; i < o->n; i++) {
        o->start[i] = o->used;
        for (int64_t k = rows[i]; k < rows[i + 1]; k++)
            if (columns[k] != i) o->pool[o->used++] = columns[k];
        o->length[i] = o->degree[i] = (int32_t)(o->used - o->start[i]);
        o->weight[i] = 1;
        o->parent[i] = -1;
        if (o->degree[i] > dense) {
            order_merge(o, i, -1);
            left--;
        } else {
            order_insert(o, i);
        }
    }
    return left;
}

/* order[k] = the node that is eliminated as k-th; from the pivots, and what was merged with them. */
static void order_write(Order *o, const int32_t *rank, int32_t pivots, int32_t *order) {
    int32_t *count = o->head, *pivot = o->next;
    for (int32_t k = 0; k <= pivots; k++) count[k] = 0;
    for (int32_t i = 0; i < o->n; i++) {
        int32_t j = i;
        while (o->parent[j] >= 0) j = o->parent[j];
        for (int32_t k = i, up; (up = o->parent[k]) >= 0; k = up) o->parent[k] = j;
        pivot[i] = rank[j];
        count[pivot[i]]++;
    }
    for (int32_t k = 0, before = 0; k <= pivots; k++) {
        const int32_t here = count[k];
        count[k] = before;
        before += here;
    }
    for (int32_t i = 0; i < o->n; i++) order[count[pivot[i]]++] = i;
}

/* Returns 0 if there is no memory for it; where a safe point stops it, the order is none. */
OPTPY_EXPORT int optpy_order(int32_t n, const int64_t *rows, const int32_t *columns, int32_t *order,
                             SafePoint *safe) {
    safe_begin(safe);
    const size_t size = (size_t)n + 1;
    Order o = {.n = n, .capacity = rows[n] + n};
    o.pool = (int32_t *)malloc((size_t)(o.capacity + 1) * sizeof *o.pool);
    int32_t *numbers = (int32_t *)calloc(size, 13 * sizeof *numbers);
    int64_t *offsets = (int64_t *)calloc(size, 2 * sizeof *offsets);
    int done = o.pool && numbers && offsets;
    if (done) {
        int32_t **arrays[] = {&o.elements, &o.length, &o.weight, &o.degree, &o.state, &o.parent, &o.head,
                              &o.next, &o.previous, &o.hash_head, &o.hash_next, &o.hash};
        int32_t *rank = numbers + 12 * size, pivots = 0;
        for (size_t k = 0; k < sizeof arrays / sizeof *arrays; k++) *arrays[k] = numbers + k * size;
        o.start = offsets;
        o.mark = offsets + size;
        const int32_t left = order_start(&o, rows, columns);
        for (int32_t i = 0; i < n; i++) rank[i] = -1;
        while (done && o.eliminated < left) {
            if (pivots % 64 == 0 && safe_point(safe)) break;
            while (o.head[o.least] < 0) o.least++;
            const int32_t p = o.head[o.least];
            order_remove(&o, p);
            rank[p] = pivots++;
            done = order_eliminate(&o, p);
        }
        for (int32_t i = 0; i < n; i++)
            if (rank[i] < 0 && o.parent[i] < 0) rank[i] = pivots;
        if (done && !safe_stopped(safe)) order_write(&o, rank, pivots, order);
    }
    free(o.pool);
    free(numbers);
    free(offsets);
    return done;
}
