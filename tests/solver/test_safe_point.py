"""Ctrl-C is held back between safe points, and heard at them."""

from __future__ import annotations

import math
import signal
import threading
import time

import pytest

from optpy.solver.safe_point import UNDISTURBED, HeldBack, SafePoint


def control_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_control_c_comes_out_of_poll_and_once() -> None:
    interrupts, done = HeldBack(), []
    with interrupts.held():
        control_c()
        control_c()
        done.append("whole")
        with pytest.raises(KeyboardInterrupt):
            interrupts.poll()
        interrupts.poll()
    assert done == ["whole"]
    with pytest.raises(KeyboardInterrupt):
        control_c()


def test_what_is_forgotten_is_not_heard_later() -> None:
    interrupts = HeldBack()
    with interrupts.held():
        control_c()
        interrupts.forget()
        interrupts.poll()
    interrupts.poll()


def test_the_users_own_code_hears_it_at_once() -> None:
    interrupts = HeldBack()
    with interrupts.held():
        with pytest.raises(KeyboardInterrupt), interrupts.heard():
            control_c()
        control_c()
        with pytest.raises(KeyboardInterrupt), interrupts.heard():  # what came before it, too
            raise AssertionError("the block is not entered")
        control_c()
        with pytest.raises(KeyboardInterrupt):
            interrupts.poll()


def test_a_handler_of_the_user_is_asked_and_stands_again_in_the_end() -> None:
    heard: list[int] = []

    def mine(number: int, _frame: object) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, mine)
    try:
        interrupts = HeldBack()
        with interrupts.held(), interrupts.held():
            control_c()
            assert heard == []
            interrupts.poll()
            assert heard == [signal.SIGINT]
        assert signal.getsignal(signal.SIGINT) is mine
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # which is no function of Python's
        with interrupts.held():
            control_c()
            interrupts.poll()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_other_threads_leave_the_signal_to_the_main_thread() -> None:
    handlers = []

    def solve() -> None:
        with HeldBack().held():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=solve)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


def test_the_deadline() -> None:
    late, early = SafePoint(time.perf_counter() - 1), SafePoint(time.perf_counter() + 1000)
    assert late.is_late
    assert late.seconds_left == 0
    assert not early.is_late
    assert 900 < early.seconds_left <= 1000
    assert not UNDISTURBED.is_late
    assert math.isinf(UNDISTURBED.seconds_left)
