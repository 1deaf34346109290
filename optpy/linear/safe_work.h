/* Where long work may be cut short: between two iterations, two panels, two levels. Thread 0, which is the caller's, asks
 * the clock and the host; the others learn of it from the structure. */

#define SAFE_FN static inline __attribute__((unused))

SAFE_FN double safe_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* When the work begins; null: nothing cuts it short. */
SAFE_FN void safe_begin(SafePoint *s) {
    if (!s) return;
    const double now = safe_now();
    s->next = now + s->period;
    s->deadline = now + s->time_left;
    atomic_store(&s->stopped, SAFE_NOT_STOPPED);
}

/* Whether work is to stop, and why: for all threads but the first. */
SAFE_FN int safe_stopped(const SafePoint *s) { return s ? atomic_load_explicit(&s->stopped, memory_order_relaxed) : 0; }

/* The same for thread 0, which finds it out. */
SAFE_FN int safe_point(SafePoint *s) {
    if (!s || safe_stopped(s)) return safe_stopped(s);
    const double now = safe_now();
    if (now >= s->deadline) {
        atomic_store(&s->stopped, SAFE_LATE);
    } else if (now >= s->next) {
        s->next = now + s->period;
        if (s->poll && s->poll()) atomic_store(&s->stopped, SAFE_INTERRUPTED);
    }
    return safe_stopped(s);
}

#ifdef TEAM_LINE
/* The same for a team, all of whose threads get the same answer. */
SAFE_FN int safe_point_of_team(SafePoint *s, Team *team, int thread) {
    if (!s) return 0;
    if (thread == 0) safe_point(s);
    team_barrier(team);
    const int stopped = safe_stopped(s);
    team_barrier(team); /* everyone has read it */
    return stopped;
}
#endif
