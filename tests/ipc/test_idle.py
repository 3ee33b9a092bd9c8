# SPDX-License-Identifier: Apache-2.0
"""Long waits: an idle waiter does not run."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ipc.sleeping import rest
from shmnd import ipc


def _queue() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    queue = ipc.Queue()
    return queue.get, lambda: queue.put(1), [queue]


def _full_queue() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    queue = ipc.Queue(1)
    queue.put(1)
    return lambda: queue.put(2), queue.get, [queue]


def _join() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    queue = ipc.JoinableQueue()
    queue.put(1)
    queue.get()
    return queue.join, queue.task_done, [queue]


def _event() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    listener, notifier = ipc.Listener("e"), ipc.Notifier("e")
    return listener.wait, notifier.notify, [listener, notifier]


def _blackboard() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    board = ipc.Blackboard("b", {"x": "f8"})
    reader = ipc.BlackboardReader("b")
    return lambda: reader.wait("x"), lambda: board.__setitem__("x", 1.0), [reader, board]


def _server() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    server, client = ipc.Server("s"), ipc.Client("s")
    return server.receive, lambda: client.send(1), [server, client]


def _client() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    server, client = ipc.Server("a"), ipc.Client("a")
    pending = client.send(1)
    request = server.receive(30)
    return pending.result, lambda: request.respond(2), [server, client]


def _wait_set() -> tuple[Callable[[], Any], Callable[[], Any], list[Any]]:
    listener, notifier, queue = ipc.Listener("w"), ipc.Notifier("w"), ipc.Queue()
    waiting = ipc.WaitSet(listener, queue)
    return waiting.wait, notifier.notify, [waiting, listener, notifier, queue]


MADE = [_queue, _full_queue, _join, _event, _blackboard, _server, _client, _wait_set]


class Idle:
    """A thread that waits for something that does not come before `end`."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.name = make.__name__[1:]
        self._wait, self._end, self._objects = make()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._begun.wait(30)

    def _run(self) -> None:
        self.number = threading.get_native_id()
        self._begun.set()
        self._wait()

    def end(self) -> None:
        """End the wait, which must still be under way."""
        assert self._thread.is_alive(), self.name
        self._end()
        self._thread.join(30)
        assert not self._thread.is_alive(), self.name
        for each in self._objects:
            each.close()


def test_idle_waiters_do_not_run() -> None:
    idle = [Idle(make) for make in MADE]
    # The threads of one process wake each other now and then.
    rested = rest([each.number for each in idle], 3, 60.0)
    for each in idle:
        each.end()
    assert rested


PINNED = """
import os, resource, sys, time
mine, other = map(int, sys.argv[1:])
os.sched_setaffinity(0, {mine})  # before the import, as programs under taskset are
from shmnd import ipc

there, back = ipc.Queue(), ipc.Queue()
if not os.fork():
    os.sched_setaffinity(0, {other})
    while (item := there.get(timeout=60)) is not None:
        back.put(item)
    os._exit(0)
least, until = 50, time.monotonic() + 60
while least >= 25 and time.monotonic() < until:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    for item in range(50):
        there.put(item)
        assert back.get(timeout=60) == item
    least = min(least, resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)
there.put(None)
os.wait()
print(least)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_pinned_process_polls_before_it_sleeps() -> None:
    mine, other, *_ = sorted(os.sched_getaffinity(0))
    command = [sys.executable, "-c", PINNED, str(mine), str(other)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stderr
    # Sleeps in the 50 gets of a burst, which are answered at once. On a busy machine a burst may
    # sleep, but one of them runs while nothing else does.
    assert int(ran.stdout) < 25
