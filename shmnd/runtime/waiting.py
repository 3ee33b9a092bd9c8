# SPDX-License-Identifier: Apache-2.0
"""The sleep of a process: its doorbells, one epoll, and the leader among its sleeping threads.

Several threads may wait at once, but only one of them, the leader, sleeps in the kernel; the
others sleep on a condition. An epoll that several threads sleep on wakes just one of them, and
that may be one whose work is not there. Here the thread that finds something notifies all others,
by a new `generation`; a thread that read the generation before it polled its own work cannot miss
it.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Protocol

from shmnd.common.descriptors import (
    Doorbell,
    EventCount,
    Timer,
    refuse_closed,
    taking_from_the_system,
)
from shmnd.common.held import Condition, Held
from shmnd.common.interruption import Ignoring, pass_on
from shmnd.common.streams import close_epoll, new_epoll
from shmnd.ring.process.waiting import WaitSetCore

__all__ = ["Readiness", "WaitSet"]

_MOST = 64
"""Descriptors handled in one go; the remaining ones are still readable at the next poll."""
_DOORBELLS_OF_ONE = 8
"""Doorbells of one process. It needs one, and closes any further one."""
_PATIENCE = 5.0
"""Seconds that an end waits for a thread which was woken; longer only on a stopped machine."""


class WaitSet(WaitSetCore):
    """The descriptors of one process, and its sleeping threads.

    A thread that waits at a completion queue, while no other one sleeps, does so in compiled code
    (`shmnd.ring.process.waiting`); `_followers` are the threads that it has to wake when it ends.
    """

    def __init__(self) -> None:
        self._epoll = new_epoll()
        self._own = EventCount()  # rung by this process alone
        # Closed by the thread that drops the last reference: another may be about to drain it.
        self._doorbells = {}
        self._timer = Timer()
        self._nudge = EventCount()  # wakes the leader; unlike a ring it brings no news
        self._make_lock()
        self._sleep_on(self._epoll.fileno(), self._own.fileno(), self._nudge.fileno())
        self._epoll.register(self._own.fileno(), select.EPOLLIN)
        self._epoll.register(self._timer.fileno(), select.EPOLLIN)
        self._epoll.register(self._nudge.fileno(), select.EPOLLIN)

    @property
    def doorbell_fd(self) -> int:
        """The counter by which this process rings itself; no other process holds it."""
        return self._own.fileno()

    @property
    def epoll_fd(self) -> int:
        """Readable when anything below is."""
        return self._epoll.fileno()

    @property
    def generation(self) -> int:
        """Changes whenever a thread found or finished something."""
        return self._generation

    def include(self, fd: int) -> None:
        """Wake for this descriptor too. Harmless twice."""
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except FileExistsError as exc:
            # The same file had this number before, in an object that the handler of a signal ended
            # in the making, and lives on in a process that has it too: its entry serves again.
            pass_on(exc)

    def exclude(self, fd: int) -> None:
        """Wake for it no longer; must come before it is closed."""
        try:
            self._epoll.unregister(fd)
        except (OSError, ValueError) as exc:
            pass_on(exc)  # it was closed before, or the epoll was

    def listen(self, doorbell: Doorbell, process: str) -> bool:
        """Let another process ring here, until it closes its end.

        Return False, without listening, for a process that keeps too many doorbells open: it could
        use up the descriptors of this one.
        """
        doorbell.begin(process)
        known = [each for each in list(self._doorbells.values()) if each.process == process]
        if len(known) >= _DOORBELLS_OF_ONE:
            self.ring()  # for the rings taken here
            if all(self._hear(each) for each in known):
                return False
        self._epoll.register(doorbell.fileno(), select.EPOLLIN)
        self._doorbells[doorbell.fileno()] = doorbell
        doorbell.answer()
        return True

    def _hear(self, doorbell: Doorbell) -> bool:
        """Take the rings of a doorbell; return False, and drop it, when no more will come."""
        if doorbell.drain():
            return True
        if self._doorbells.pop(doorbell.fileno(), None) is not None:
            self.exclude(doorbell.fileno())
        return False

    def _read_doorbells(self, found: list[tuple[int, int]], others: list[int]) -> bool:
        """Drain the doorbells and the timer among the descriptors that a sleep found.

        Return whether there were any; append the rest to `others`.
        """
        rung = False
        for fd, _ in found:
            doorbell = self._doorbells.get(fd)
            if doorbell is not None:
                self._hear(doorbell)
                rung = True
            elif fd == self._own.fileno():
                self._own.drain()
                rung = True
            elif fd == self._timer.fileno():
                self._timer.drain()
                rung = True
            elif fd != self._nudge.fileno():  # that is the leader's, who may be about to see it
                others.append(fd)
        return rung

    def ring(self) -> None:
        """Make the epoll readable, as a peer would."""
        self.ring_own()

    def _make_lock(self) -> None:
        self._lock = threading.RLock()  # a finaliser may take it again
        self._cond = Condition(self._lock)

    def _notify_all(self) -> None:
        with Held(self._lock):
            self._cond.notify_all()
            if self._polling:
                self._nudge_leader()

    def _nudge_leader(self) -> None:
        self._nudged = True
        self._nudge.add()
        self.wake_from_word()

    def _take_nudge(self) -> None:
        with Held(self._lock):
            self._nudged = False
            self._nudge.drain()

    def _notify_followers(self) -> None:
        with Held(self._lock):
            self._cond.notify_all()

    def sleep(self, seen: int, timeout: float) -> list[tuple[int, int]] | None:
        """Block until there is news after generation `seen`, at most `timeout` seconds.

        Return the readable descriptors to the leader, which slept in the kernel and has to handle
        them; it leads until it calls `leave`. Return None to the others.
        """
        if not self._lead(seen, timeout):
            return None
        try:
            return self._epoll.poll(timeout, _MOST)
        finally:
            with Held(self._lock):
                self._polling = False
                if self._nudged:
                    self._nudged = False
                    self._nudge.drain()
                self._cond.notify_all()

    def _lead(self, seen: int, timeout: float) -> bool:
        """Become or stay the leader; return False when there was news, or when the time ended."""
        deadline = 0.0
        with self._following():
            while self._generation == seen:
                if self._become_leader(polling=True):
                    return True
                deadline = deadline or time.monotonic() + timeout
                if not self._cond.wait(deadline - time.monotonic()):
                    break
        return False

    @contextlib.contextmanager
    def _following(self) -> Iterator[None]:
        """Hold the condition, and count as a follower before the state of the leader is read."""
        with Held(self._lock):
            self._followers += 1
            try:
                yield
            finally:
                self._followers -= 1

    def leave(self) -> None:
        """Stop being the leader, if this thread is; a thread that sleeps becomes the next one."""
        if self._leader != threading.get_ident():
            return
        with Held(self._lock):
            self._leader = 0
            self._cond.notify_all()

    def close(self) -> None:
        """Release the descriptors, once no thread sleeps on them.

        A leader that was woken and does not run yet would otherwise find its descriptors gone, and
        continue to sleep.
        """
        with self._following():
            deadline = time.monotonic() + _PATIENCE
            while self._polling and self._leader != threading.get_ident():
                if sys.is_finalizing():
                    break  # threads do not run any more
                self._nudge_leader()
                if not self._cond.wait(deadline - time.monotonic()):
                    break
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        self._sleep_on(-1, -1, -1)
        close_epoll(self._epoll)
        self._own.close()
        self._doorbells.clear()
        self._timer.close()
        self._nudge.close()

    def close_in_child(self) -> None:
        """Release the copies that fork() made; what the parent sleeps on stays as it is."""
        self._make_lock()  # a thread that is not here may have held the old one
        self._leader = self._followers = 0
        self._polling = False
        self._close_descriptors()


class _RequestProgress(Protocol):
    def begin(self, sleeper: object) -> None: ...
    def end(self, sleeper: object) -> None: ...


class _Watched(Protocol):
    @property
    def epoll_fd(self) -> int: ...
    @property
    def request_progress(self) -> _RequestProgress: ...


_readable: weakref.WeakSet[Readiness] = weakref.WeakSet()
"""Objects whose descriptors are open: a forked child closes its copies."""


class Readiness:
    """A descriptor for `select`, `selectors` and asyncio: readable when its owner has something.

    It is readable too when the process has to poll (it contains the descriptor of the progress
    engine), since only a poll finds for which object that is. The descriptors are made at the first
    `fileno()`; from then on a thread may sleep on it at any time.
    """

    def __init__(self, engine: _Watched, call: str) -> None:
        self._engine = engine
        self._call = call  # of the program, for errors
        self._making = threading.Lock()
        self._ready = False
        self._closed = False
        self._event: EventCount | None = None
        self._epoll: select.epoll | None = None

    def fileno(self) -> int:
        """Return the descriptor. ValueError after `close()`."""
        with Held(self._making):
            self._require_open()
            epoll = self._epoll
            if epoll is None:
                with taking_from_the_system(self._call):
                    epoll = self._epoll = self._make()
                if self._closed:  # meanwhile: that close may have found none of it
                    self._engine.request_progress.end(self)
                    self.close()
                self._require_open()
            return epoll.fileno()  # ValueError where a handler of a signal has closed it meanwhile

    def _require_open(self) -> None:
        if self._closed:
            raise ValueError("fileno() of something closed")

    def _make(self) -> select.epoll:
        event = EventCount()
        epoll = new_epoll()
        try:
            epoll.register(event.fileno(), select.EPOLLIN)
            try:
                epoll.register(self._engine.epoll_fd, select.EPOLLIN)
            except OSError as exc:
                refuse_closed(self._call, exc)
                raise
        except BaseException:
            close_epoll(epoll)
            raise
        # First the store, then the check: set() has the other order, so one of the two adds.
        self._event = event
        if self._ready:
            event.add()
        _readable.add(self)
        self._engine.request_progress.begin(self)
        return epoll

    def close_in_child(self) -> None:
        """Release the copy that fork() made, while its number still refers to it."""
        if self._epoll is not None:
            close_epoll(self._epoll)

    def include(self, fd: int) -> None:
        """Include another descriptor: be readable while it is. It leaves when it is closed."""
        if self._epoll is not None:
            with Ignoring(FileExistsError):
                self._epoll.register(fd, select.EPOLLIN)

    def set(self) -> None:
        """Make the descriptor readable."""
        self._ready = True
        event = self._event
        if event is not None:
            event.add()

    def clear(self) -> None:
        """Make the descriptor unreadable. Call it before the last poll, never after."""
        self._ready = False
        event = self._event
        if event is not None:
            event.drain()

    def close(self) -> None:
        """Release the descriptors."""
        self._closed = True
        event, epoll = self._event, self._epoll  # a handler of a signal may close it, too
        if event is not None:  # also when Ctrl-C came before there was a descriptor
            self._engine.request_progress.end(self)
            event.close()
        if epoll is not None:
            close_epoll(epoll)
        self._event = self._epoll = None  # last: an interrupted close is called again


def _after_fork_in_child() -> None:
    for made in list(_readable):
        made.close_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
