/* A kernel of an energy's library on a team of threads. Sums are added up segment by segment in a fixed order, so that they do
 * not depend on the number of threads. */

/* The segments [*first, *last) of a thread: shares of about as much work each. */
OPTPY_FN void kernel_share(const Context *c, int list, int thread, int threads, int64_t *first, int64_t *last) {
    const Segment *s = c->segments[list];
    const int64_t n = c->count[list];
    const int64_t work = n ? s[n - 1].before + s[n - 1].work : 0;
    int64_t bound[2];
    for (int side = 0; side < 2; side++) {
        const int64_t t = thread + side;
        const int64_t target = work / threads * t + work % threads * t / threads;
        int64_t low = 0, high = n;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (s[middle].before < target) low = middle + 1; else high = middle;
        }
        bound[side] = t == threads ? n : low;
    }
    *first = bound[0];
    *last = bound[1];
}

OPTPY_FN void kernel_run(const Kernel *k, const Context *c, const double *scalar, int thread, int threads) {
    int64_t first, last;
    kernel_share(c, k->list, thread, threads, &first, &last);
    if (first < last) k->range(c, scalar, first, last);
}

/* The total of a kernel's n-th reduction, after a barrier. */
OPTPY_FN double kernel_total(const Kernel *k, const Context *c, int n) {
    const double *part = c->partial[k->reduction + n];
    const int64_t count = c->count[k->list];
    double total = 0;
    if (k->maximum) {
        for (int64_t i = 0; i < count; i++) total = optpy_max(total, part[i]);
    } else {
        for (int64_t i = 0; i < count; i++) total += part[i];
    }
    return total;
}
