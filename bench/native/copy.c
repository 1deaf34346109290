/* Copy bandwidth of the machine: so many threads each copy their share of a buffer again and again. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct {
    const char *restrict source;
    char *restrict target;
    int64_t bytes, repeat;
    int plain;
    pthread_barrier_t *barrier;
    double seconds;
} Share;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ordinary loads and stores, as a kernel does them. gcc would make a call of memmove of it, which stores past
 * the cache. */
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((optimize("no-tree-loop-distribute-patterns")))
#endif
static void copy_plainly(const float *restrict source, float *restrict target, int64_t count) {
    for (int64_t i = 0; i < count; i++) target[i] = source[i];
}

static void *run(void *argument) {
    Share *share = argument;
    pthread_barrier_wait(share->barrier);
    const double begin = now();
    for (int64_t k = 0; k < share->repeat; k++) {
        if (share->plain) {
            copy_plainly((const float *)share->source, (float *)share->target, share->bytes / 4);
        } else {
            memcpy(share->target, share->source, (size_t)share->bytes);
        }
        pthread_barrier_wait(share->barrier); /* as between the routines of a solver */
    }
    share->seconds = (now() - begin) / (double)share->repeat;
    return NULL;
}

/* Seconds for one copy of `bytes` (a multiple of 4) by 1 to 64 threads; negative where threads cannot be had. */
double copy_seconds(const char *source, char *target, int64_t bytes, int threads, int64_t repeat, int plain) {
    Share share[64];
    pthread_t thread[64];
    pthread_barrier_t barrier;
    if (threads < 1 || threads > 64 || pthread_barrier_init(&barrier, NULL, (unsigned)threads)) return -1;
    const int64_t floats = bytes / 4;
    for (int t = 0; t < threads; t++) {
        const int64_t begin = 4 * (floats * t / threads), end = 4 * (floats * (t + 1) / threads);
        share[t] = (Share){source + begin, target + begin, end - begin, repeat, plain, &barrier, 0};
    }
    int started = 1;
    while (started < threads && !pthread_create(&thread[started], NULL, run, &share[started])) started++;
    if (started < threads) return -1; /* those that wait at the barrier are lost: the caller gives up */
    run(&share[0]);
    double slowest = share[0].seconds;
    for (int t = 1; t < threads; t++) {
        pthread_join(thread[t], NULL);
        if (share[t].seconds > slowest) slowest = share[t].seconds;
    }
    pthread_barrier_destroy(&barrier);
    return slowest;
}
