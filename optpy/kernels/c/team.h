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
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEAM_MAX_THREADS 1024
#define TEAM_LINE 128 /* bytes: two cache lines, since processors fetch them in pairs */
#define TEAM_FN static inline __attribute__((unused))

/* A thread that waits spins, and then sleeps, so that it leaves its core to the thread it is waiting for. How long it
 * pays to spin is learned: twice as long after it was enough, half as long after it was not. (No sched_yield: beside
 * a busy process it gives that process its whole time slice, 0.7 ms measured, where a sleeper is woken in 10 us.) */
#define TEAM_SPINS_MIN 50
#define TEAM_SPINS_MAX 6000 /* about 150 us: longer than what one thread does alone between two barriers */

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
    const int threads = team->threads; /* read before arriving: after the last barrier the next run may set it */
    if (threads == 1) return;
    unsigned generation = atomic_load_explicit(&team->generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == threads) {
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

/* -- the threads --------------------------------------------------------------------------------------------------- */

/* Workers live on between runs, asleep: starting one takes 50 us, waking one 10, and nothing while it still spins. A
 * crew serves one run at a time; runs at the same time, from several threads of the caller, have crews of their own. */
#define TEAM_CREWS 16

typedef struct TeamWorker {
    struct TeamCrew *crew;
    int thread;
    _Alignas(TEAM_LINE) atomic_uint calls; /* to work */
    atomic_int asleep;
    pthread_mutex_t mutex;
    pthread_cond_t called;
} TeamWorker;

typedef struct TeamCrew {
    atomic_int busy;
    Team team;
    TeamBody body;
    void *arg;
    int size; /* workers, and the caller */
    TeamWorker *worker[TEAM_MAX_THREADS];
} TeamCrew;

static TeamCrew team_crews[TEAM_CREWS];
static atomic_int team_process; /* whose threads the workers are; minus that while the crews are made ready */

/* After a fork the child has none of its parent's threads. */
TEAM_FN void team_know_process(void) {
    const int process = (int)getpid();
    int known = atomic_load(&team_process);
    while (known != process) {
        if (known != -process && atomic_compare_exchange_strong(&team_process, &known, -process)) {
            for (int i = 0; i < TEAM_CREWS; i++) {
                TeamCrew *crew = &team_crews[i];
                atomic_store(&crew->busy, 0);
                crew->size = 1;
                memset(&crew->team, 0, sizeof crew->team);
                atomic_store(&crew->team.spins, TEAM_SPINS_MAX);
                pthread_mutex_init(&crew->team.mutex, NULL);
                pthread_cond_init(&crew->team.moved, NULL);
            }
            atomic_store(&team_process, process);
        }
        known = atomic_load(&team_process);
    }
}

/* Waits for the next call after `seen` of them. */
TEAM_FN void team_await_call(TeamWorker *w, unsigned seen) {
    for (int spin = 0; spin < TEAM_SPINS_MAX; spin++) {
        if (atomic_load_explicit(&w->calls, memory_order_acquire) != seen) return;
        team_pause();
    }
    pthread_mutex_lock(&w->mutex);
    atomic_store(&w->asleep, 1); /* sequentially consistent with team_call, as in team_wait */
    while (atomic_load(&w->calls) == seen) pthread_cond_wait(&w->called, &w->mutex);
    atomic_store(&w->asleep, 0);
    pthread_mutex_unlock(&w->mutex);
}

TEAM_FN void team_call(TeamWorker *w) {
    atomic_fetch_add(&w->calls, 1u);
    if (atomic_load(&w->asleep)) {
        pthread_mutex_lock(&w->mutex);
        pthread_cond_signal(&w->called);
        pthread_mutex_unlock(&w->mutex);
    }
}

TEAM_FN void *team_work(void *argument) {
    TeamWorker *w = (TeamWorker *)argument;
    for (unsigned seen = 0;; seen++) {
        team_await_call(w, seen);
        w->crew->body(w->crew->arg, &w->crew->team, w->thread);
        team_barrier(&w->crew->team);
    }
    return NULL;
}

/* Adds workers up to a number of threads, as far as the system allows. They block all signals that have no culprit:
 * Ctrl-C belongs to the thread that called. */
TEAM_FN void team_hire(TeamCrew *crew, int threads) {
    const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    while (crew->size < threads) {
        TeamWorker *w = (TeamWorker *)aligned_alloc(TEAM_LINE, sizeof *w);
        pthread_t id;
        if (!w) break;
        memset(w, 0, sizeof *w);
        w->crew = crew;
        w->thread = crew->size;
        pthread_mutex_init(&w->mutex, NULL);
        pthread_cond_init(&w->called, NULL);
        if (pthread_create(&id, NULL, team_work, w) != 0) {
            free(w);
            break;
        }
        pthread_detach(id);
        crew->worker[crew->size++] = w;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Runs body(arg, team, 0 .. threads-1), the caller as thread 0; returns, when all have, how many threads ran. */
TEAM_FN int team_run(int threads, TeamBody body, void *arg) {
    if (threads > TEAM_MAX_THREADS) threads = TEAM_MAX_THREADS;
    TeamCrew *crew = NULL;
    if (threads > 1) {
        team_know_process();
        for (int i = 0, idle = 0; i < TEAM_CREWS && !crew; i++, idle = 0)
            if (atomic_compare_exchange_strong(&team_crews[i].busy, &idle, 1)) crew = &team_crews[i];
    }
    if (!crew) {
        Team alone = {.threads = 1};
        body(arg, &alone, 0);
        return 1;
    }
    team_hire(crew, threads);
    const int ran = crew->size < threads ? crew->size : threads;
    crew->team.threads = ran;
    atomic_store(&crew->team.spins, TEAM_SPINS_MAX); /* what one run has learned may be wrong for the next */
    crew->body = body;
    crew->arg = arg;
    for (int i = 1; i < ran; i++) team_call(crew->worker[i]);
    body(arg, &crew->team, 0);
    team_barrier(&crew->team);
    atomic_store(&crew->busy, 0);
    return ran;
}
