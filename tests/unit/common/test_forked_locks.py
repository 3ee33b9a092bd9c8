# SPDX-License-Identifier: Apache-2.0
"""Locks in a child that is forked off while its parent holds them."""

import fcntl
import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shmnd.common.held import Condition, Held
from shmnd.ipc.common import closed
from shmnd.ipc.common.ringing import Bell
from shmnd.ipc.queue import waits
from shmnd.ipc.queue.queueing import Queue

PATIENCE = 30.0


def in_child(act: Callable[[], bool]) -> None:
    """Have a child that is forked off here do something, within a bounded time."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends it
            os._exit(0 if act() else 3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def held_elsewhere(lock: threading.Lock, act: Callable[[], None]) -> None:
    """Do something while another thread holds a lock."""
    taken, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            over.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert taken.wait(PATIENCE)
        act()
    finally:
        over.set()
        thread.join(PATIENCE)


class Observer:
    """Learns that an object was closed."""

    def object_closed(self) -> None:
        pass


def test_an_object_is_closed_in_a_child_while_another_thread_observed_one() -> None:
    observed, observer = Bell(), Observer()
    closed.observe(observed, observer)

    def closes() -> bool:
        closed.announce_closed(observed)
        return True

    held_elsewhere(closed._lock, lambda: in_child(closes))
    observed.close()


def test_a_queue_waits_in_a_child_while_another_thread_made_a_bell() -> None:
    with Queue() as queue:

        def waits_here() -> bool:
            return queue.fileno() >= 0

        held_elsewhere(waits._bells_lock, lambda: in_child(waits_here))


@pytest.mark.parametrize("call", ["pids", "lives", "lives_as", "reap", "reap_one"])
def test_a_child_asks_for_members_while_another_thread_did(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """As where a handler forks within a call that has joined the queue for its parent."""
    asking, over = threading.Event(), threading.Event()
    main, ask = threading.get_ident(), fcntl.lockf

    def ask_late(*arguments: Any) -> Any:
        if threading.get_ident() != main:
            asking.set()
            over.wait(PATIENCE)
        return ask(*arguments)

    with Queue() as queue:
        core = queue._core
        thread = threading.Thread(target=lambda: core.lives(core.me + 1))
        monkeypatch.setattr(fcntl, "lockf", ask_late)
        arguments = {"pids": (), "reap": (), "lives_as": (core.me + 1, 1)}
        thread.start()
        try:
            assert asking.wait(PATIENCE)
            in_child(lambda: getattr(core, call)(*arguments.get(call, (core.me + 1,))) != 5)
        finally:
            over.set()
            thread.join(PATIENCE)


def test_a_guard_releases_no_lock_that_a_thread_of_the_child_has() -> None:
    """A handler forks in the block; the child continues it, while its lock is another thread's."""

    def forks_in_block() -> None:
        with Held(waits._bells_lock):
            pid = os.fork()
            if pid:
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
                return
            taken, over = threading.Event(), threading.Event()

            def hold() -> None:
                with Held(waits._bells_lock):
                    taken.set()
                    over.wait(PATIENCE)

            threading.Thread(target=hold, daemon=True).start()
            if not taken.wait(PATIENCE):
                os._exit(3)
        os._exit(5 if waits._bells_lock.acquire(blocking=False) else 0)  # the thread has not left

    parent = os.getpid()
    try:
        forks_in_block()
    finally:
        if os.getpid() != parent:
            os._exit(4)
    with pytest.raises(RuntimeError):  # it has it no more
        waits._bells_lock.release()


def test_a_wait_in_which_a_handler_forks_ends_in_the_child() -> None:
    """Though another thread of the parent has the lock at the fork."""
    lock = threading.RLock()
    condition = Condition(lock)
    children: list[int] = []
    over = threading.Event()
    main, parent = threading.get_ident(), os.getpid()

    def hold() -> None:
        with lock:  # the wait has released it, and cannot take it again meanwhile
            signal.pthread_kill(main, signal.SIGUSR1)
            while not over.wait(0.1):  # it may have come just before the wait slept
                signal.pthread_kill(main, signal.SIGUSR1)
            condition.notify_all()

    def forks(*_: object) -> None:
        if children:
            return
        children.append(os.fork())
        if children[0] == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
            condition.notify_all()
        else:
            over.set()

    thread = threading.Thread(target=hold)
    before = signal.signal(signal.SIGUSR1, forks)
    try:
        with Held(lock):
            thread.start()
            woken = condition.wait(PATIENCE)
            if os.getpid() != parent:
                os._exit(0 if woken else 3)
        assert woken
        assert len(children) == 1
        assert lock.acquire(timeout=PATIENCE)
        lock.release()
    finally:
        if os.getpid() != parent:
            os._exit(4)
        signal.signal(signal.SIGUSR1, before)
    thread.join(PATIENCE)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


def test_a_wait_without_the_lock_leaves_no_waiter() -> None:
    """As the second wait of such a child."""
    condition = Condition(threading.RLock())
    with pytest.raises(RuntimeError):
        condition.wait(0)
    assert [] in gc.get_referents(condition)
