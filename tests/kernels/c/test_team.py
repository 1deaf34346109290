"""The team of native threads, and how many threads it gets."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from optpy.errors import OptionError
from optpy.kernels.runtime.threads import MAX_THREADS, available_cores, thread_count
from optpy.kernels.toolchain import toolchain
from optpy.kernels.toolchain.compiler import compile_c
from optpy.kernels.toolchain.headers import native_header

pytestmark = pytest.mark.native

COMPILERS = {"clang": "clang", "zig": f"{toolchain.zig_binary()} cc", "gcc": "gcc"}

# Each round every thread writes its cell, and after the barrier reads everybody's: with no barrier, or one
# that lets a thread through early, some cell is of another round.
ROUNDS = r"""
typedef struct { long rounds; volatile long cells[64]; long wrong[64]; int seen[64]; } Rounds;

static void rounds_body(void *arg, Team *team, int thread) {
    Rounds *r = (Rounds *)arg;
    r->seen[thread]++;
    for (long round = 1; round <= r->rounds; round++) {
        r->cells[thread] = round * (thread + 1);
        team_barrier(team);
        for (int other = 0; other < team->threads; other++)
            r->wrong[thread] += r->cells[other] != round * (other + 1);
        team_barrier(team);
    }
}

int rounds(int threads, long rounds, long *wrong, int *seen) {
    Rounds r = {.rounds = rounds};
    int ran = team_run(threads, rounds_body, &r);
    for (int i = 0; i < 64; i++) { *wrong += r.wrong[i]; seen[i] = r.seen[i]; }
    return ran;
}
"""

MASKS = r"""
static void masks_body(void *arg, Team *team, int thread) {
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGSEGV, SIGFPE};
    int (*blocked)[5] = (int (*)[5])arg;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int i = 0; i < 5; i++) blocked[thread][i] = sigismember(&mask, signals[i]);
    (void)team;
}

int masks(int threads, int *blocked) { return team_run(threads, masks_body, blocked); }
"""

# The system refuses the third worker.
REFUSAL = r"""
#include <errno.h>
#include <pthread.h>
static int granted;
static int grudging_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg) {
    return granted++ < 2 ? pthread_create(t, a, f, arg) : EAGAIN;
}
#define pthread_create grudging_create
"""

SHARES = r"""
void share(ptrdiff_t count, int thread, int threads, ptrdiff_t *range) {
    team_share(count, thread, threads, &range[0], &range[1]);
}
"""

# Runs of different numbers of threads, one right after the other.
RUNS = r"""
static long entered[8];

static void runs_body(void *arg, Team *team, int thread) {
    entered[thread]++;
    team_barrier(team);
    entered[thread] += team->threads;
    (void)arg;
}

int main(void) {
    for (int run = 0; run < 3000; run++) team_run(2 + run % 3, runs_body, NULL);
    return 0;
}
"""


@pytest.fixture(scope="module", params=COMPILERS)
def team(request: pytest.FixtureRequest) -> ctypes.CDLL:
    """The header and the bodies above, from each compiler of this machine."""
    return load(request, native_header("kernels/c/team.h") + ROUNDS + MASKS + SHARES)


@pytest.fixture(scope="module", params=COMPILERS)
def refused_team(request: pytest.FixtureRequest) -> ctypes.CDLL:
    """The same on a system that grants two workers and no more."""
    return load(request, REFUSAL + native_header("kernels/c/team.h") + ROUNDS)


def load(request: pytest.FixtureRequest, source: str) -> ctypes.CDLL:
    command = COMPILERS[request.param]
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"no {request.param} on this machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPTPY_CC", command)
        return compile_c(source, name="team", werror=True).library


def run_rounds(library: ctypes.CDLL, threads: int, rounds: int) -> tuple[int, int, list[int]]:
    wrong, seen = ctypes.c_long(0), (ctypes.c_int * 64)()
    ran = library.rounds(threads, ctypes.c_long(rounds), ctypes.byref(wrong), seen)
    return ran, wrong.value, list(seen)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])  # more than the cores of most test machines, too
def test_barrier_holds_everybody(team: ctypes.CDLL, threads: int) -> None:
    ran, wrong, seen = run_rounds(team, threads, 1000)
    assert ran == threads
    assert wrong == 0
    assert seen == [1] * threads + [0] * (64 - threads)


@pytest.mark.parametrize("asked", [-3, 0])
def test_there_is_always_one_thread(team: ctypes.CDLL, asked: int) -> None:
    assert run_rounds(team, asked, 5) == (1, 0, [1] + [0] * 63)


def test_many_short_runs(team: ctypes.CDLL) -> None:
    assert {run_rounds(team, 2, 1)[:2] for _ in range(300)} == {(2, 0)}


@pytest.mark.parametrize(("asked", "granted"), [(2, 2), (3, 3), (4, 3), (50, 3)])
def test_runs_with_fewer_threads_where_the_system_refuses(refused_team: ctypes.CDLL, asked: int, granted: int) -> None:
    ran, wrong, seen = run_rounds(refused_team, asked, 200)
    assert (ran, wrong) == (granted, 0)
    assert seen == [1] * granted + [0] * (64 - granted)


def test_runs_at_the_same_time_have_threads_of_their_own(team: ctypes.CDLL) -> None:
    with ThreadPoolExecutor(24) as callers:  # more than there are crews
        results = list(callers.map(lambda _: run_rounds(team, 2, 50)[:2], range(200)))
    assert {wrong for _, wrong in results} == {0}
    assert {ran for ran, _ in results} <= {1, 2}
    assert (2, 0) in results


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(team: ctypes.CDLL) -> None:
    assert run_rounds(team, 2, 5)[:2] == (2, 0)
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for its parent's threads would wait for ever
        os._exit(0 if run_rounds(team, 2, 5)[:2] == (2, 0) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert run_rounds(team, 2, 5)[:2] == (2, 0)


def test_signals_go_to_the_thread_that_called(team: ctypes.CDLL) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    blocked = np.full((3, 5), -1, np.int32)
    assert team.masks(3, blocked.ctypes.data_as(ctypes.c_void_p)) == 3
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGSEGV, signal.SIGFPE)
    assert blocked[0].tolist() == [int(s in before) for s in asked]
    assert blocked[1:].tolist() == [[1, 1, 1, 0, 0]] * 2  # faults are still theirs
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


@pytest.mark.parametrize("threads", [1, 2, 3, 64])
def test_shares_cover_everything_once(team: ctypes.CDLL, threads: int) -> None:
    for count in (0, 1, 2, 7, 1000, 2**40 + 3):
        check_shares(team, count, threads)


def check_shares(team: ctypes.CDLL, count: int, threads: int) -> None:
    shares = []
    for thread in range(threads):
        bounds = (ctypes.c_ssize_t * 2)()
        team.share(ctypes.c_ssize_t(count), thread, threads, bounds)
        shares.append((bounds[0], bounds[1]))
    assert shares[0][0] == 0
    assert shares[-1][1] == count
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(shares))
    sizes = [end - begin for begin, end in shares]
    assert max(sizes) - min(sizes) <= 1


def test_number_of_threads_option_before_variable_before_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_NUM_THREADS", " 5 ")
    assert thread_count(3) == 3
    assert thread_count(None) == 5
    for unset in ("", " "):
        monkeypatch.setenv("OPTPY_NUM_THREADS", unset)
        assert thread_count(None) == available_cores()
    monkeypatch.delenv("OPTPY_NUM_THREADS")
    assert thread_count() == available_cores() >= 1


@pytest.mark.parametrize("count", [0, -1, MAX_THREADS + 1, True, 2.0, "2"])
def test_bad_option_is_refused(count: int) -> None:
    with pytest.raises(OptionError, match="number of threads must be a whole number from 1 to 1024"):
        thread_count(count)


@pytest.mark.parametrize("text", ["0", "-2", "two", "1.5", "9999", "²"])
def test_bad_variable_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_NUM_THREADS", text)
    with pytest.raises(OptionError, match="OPTPY_NUM_THREADS must be a whole number"):
        thread_count()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity masks here")
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 8),
        ({"": "max 100000"}, 8),
        ({"": "350000 100000"}, 4),  # three and a half processors: four threads
        ({"a/b": "50000 100000"}, 1),
        ({"a/b": "600000 100000", "a": "200000 100000"}, 2),  # the parent is tighter
        ({"other": "100000 100000"}, 8),
        ({"a": "no numbers"}, 8),
    ],
)
def test_container_quota_limits_cores(
    limits: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    process, root = tmp_path / "process", tmp_path / "root"
    process.mkdir()
    (process / "cgroup").write_text("4:memory:/x\n0::/a/b\n")
    for group, limit in limits.items():
        (root / group).mkdir(parents=True, exist_ok=True)
        (root / group / "cpu.max").write_text(limit + "\n")
    assert available_cores(root, process) == expected
    assert available_cores(root, tmp_path / "absent") == 8


def test_thread_sanitizer_finds_no_race(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc on this machine")
    source, program = tmp_path / "runs.c", tmp_path / "runs"
    source.write_text(native_header("kernels/c/team.h") + RUNS)
    flags = ["-D_GNU_SOURCE", "-O2", "-g", "-fsanitize=thread", "-pthread"]
    built = subprocess.run(["gcc", *flags, source, "-o", program], capture_output=True, text=True)
    if built.returncode:
        assert "tsan" in built.stderr, built.stderr
        pytest.skip("gcc has no ThreadSanitizer here")
    ran = subprocess.run([program], capture_output=True, text=True)
    if "unexpected memory mapping" in ran.stderr:  # it does not know the memory layout of some kernels
        pytest.skip("ThreadSanitizer cannot run here")
    assert ran.returncode == 0, ran.stderr
