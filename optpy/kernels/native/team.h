/* A team of native threads that runs one body together, with barriers in it.
 *
 *     static void body(void *arg, Team *team, int thread) {
 *         ... the share `thread` of `team->threads` of the work ...
 *         team_barrier(team);
 *         ...
 *     }
 *     int ran_with = team_run(threads, body, arg);
 *
 * The body learns the number of threads from the team: it is smaller than what was asked for where the system
 * refuses a thread. C11 and POSIX threads; compile with _GNU_SOURCE defined. */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#define TEAM_MAX_THREADS 1024
#define TEAM_LINE 128 /* bytes: two cache lines, since processors fetch them in pairs */
#define TEAM_FN static inline __attribute__((unused))

/* A thread that waits spins, and then sleeps, so that it leaves its core to the thread it is waiting for. How long it
 * pays to spin is learned: twice as long after it was enough, half as long after it was not. (No sched_yield: beside
 * a busy process it gives that process its whole time slice, 0.7 ms measured, where a sleeper is woken in 10 us.) */
#define TEAM_SPINS_MIN 50
#define TEAM_SPINS_MAX 2000 /* about 50 us, more than it takes to sleep and be woken */

typedef struct Team {
    int threads; /* constant while the body runs */
    atomic_int spins;
    _Alignas(TEAM_LINE) atomic_int arrived;      /* at the present barrier */
    _Alignas(TEAM_LINE) atomic_uint generation;  /* of the barrier; moves when all have arrived */
    _Alignas(TEAM_LINE) atomic_int sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t moved;
} Team;

typedef void (*TeamBody)(void *arg, Team *team, int thread);

typedef struct TeamMember {
    Team *team;
    TeamBody body;
    void *arg;
    int thread;
} TeamMember;

TEAM_FN void team_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb"); /* `yield` does nothing on most Arm cores */
#endif
}

TEAM_FN void team_learn(Team *team, int spins) {
    if (spins < TEAM_SPINS_MIN) spins = TEAM_SPINS_MIN;
    if (spins > TEAM_SPINS_MAX) spins = TEAM_SPINS_MAX;
    atomic_store_explicit(&team->spins, spins, memory_order_relaxed);
}

/* Waits until the generation is no longer `old`. */
TEAM_FN void team_wait(Team *team, unsigned old) {
    int spins = atomic_load_explicit(&team->spins, memory_order_relaxed);
    for (int spin = 0; spin < spins; spin++) {
        if (atomic_load_explicit(&team->generation, memory_order_acquire) != old) {
            if (spins < TEAM_SPINS_MAX) team_learn(team, 2 * spins);
            return;
        }
        team_pause();
    }
    if (spins > TEAM_SPINS_MIN) team_learn(team, spins / 2);
    pthread_mutex_lock(&team->mutex);
    /* Sequentially consistent, as the pair in team_release: either we see the new generation, or it sees us. */
    atomic_fetch_add(&team->sleepers, 1);
    while (atomic_load(&team->generation) == old) pthread_cond_wait(&team->moved, &team->mutex);
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->mutex);
}

/* Moves the generation on and wakes those that sleep. */
TEAM_FN void team_release(Team *team) {
    atomic_fetch_add(&team->generation, 1u);
    if (atomic_load(&team->sleepers) > 0) {
        pthread_mutex_lock(&team->mutex);
        pthread_cond_broadcast(&team->moved);
        pthread_mutex_unlock(&team->mutex);
    }
}

/* Returns when every thread of the team has called it; what each wrote before is then seen by all. */
TEAM_FN void team_barrier(Team *team) {
    if (team->threads == 1) return;
    unsigned generation = atomic_load_explicit(&team->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->threads) {
        /* Before the release: nobody else touches it until the generation moves. */
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        team_release(team);
    } else {
        team_wait(team, generation);
    }
}

/* The share [*begin, *end) of `thread` in `count` items: contiguous, sizes differ by one at most. */
TEAM_FN void team_share(ptrdiff_t count, int thread, int threads, ptrdiff_t *begin, ptrdiff_t *end) {
    ptrdiff_t each = count / threads, more = count % threads;
    *begin = each * thread + (thread < more ? thread : more);
    *end = *begin + each + (thread < more ? 1 : 0);
}

TEAM_FN void *team_member(void *argument) {
    TeamMember *member = (TeamMember *)argument;
    team_wait(member->team, 0u); /* the number of threads is known from here on */
    member->body(member->arg, member->team, member->thread);
    return NULL;
}

/* Starts workers with all signals blocked that have no culprit: Ctrl-C belongs to the thread that called. */
TEAM_FN int team_start(TeamMember *members, pthread_t *workers, int threads) {
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    int started = 1; /* the caller is thread 0 */
    while (started < threads && pthread_create(&workers[started], NULL, team_member, &members[started]) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Runs body(arg, team, 0 .. threads-1), the caller as thread 0; returns, when all have, how many threads ran. */
TEAM_FN int team_run(int threads, TeamBody body, void *arg) {
    if (threads < 1) threads = 1;
    if (threads > TEAM_MAX_THREADS) threads = TEAM_MAX_THREADS;
    Team team = {.threads = 1, .spins = TEAM_SPINS_MAX};
    if (threads == 1) {
        body(arg, &team, 0);
        return 1;
    }
    TeamMember members[TEAM_MAX_THREADS];
    pthread_t workers[TEAM_MAX_THREADS];
    pthread_mutex_init(&team.mutex, NULL);
    pthread_cond_init(&team.moved, NULL);
    for (int i = 0; i < threads; i++) members[i] = (TeamMember){&team, body, arg, i};
    team.threads = team_start(members, workers, threads);
    team_release(&team); /* publishes team.threads */
    body(arg, &team, 0);
    for (int i = 1; i < team.threads; i++) pthread_join(workers[i], NULL);
    pthread_cond_destroy(&team.moved);
    pthread_mutex_destroy(&team.mutex);
    return team.threads;
}
