# SPDX-License-Identifier: Apache-2.0
"""Descriptors that other processes ring: for long waits, `select`, asyncio and `WaitSet`.

A bell is a socket at an address that the kernel chose; the address stands in shared memory, where
those that are to ring find it. No descriptor passes between processes, and both end with theirs.
The bell watches processes, too (pidfd): one that died as it was to ring is seen at once.

Argument for "a long sleep ends" (model: tests/ipc/test_sleep_model.py). A sleeper, in this order:
(1) registers at the bell, (2) takes its rings, (3) publishes its address and arms the gate (fence),
(4) reads the members and opens a pidfd of each, (5) checks once more, (6) sleeps at the bell.

- A change by a member that lives: the fences of the gate (SYNC gate) make (5) find it or the
  changer find the gate armed, and ring.
- A change by a member that dies before it rings: it dies after (4), which the pidfd shows, or
  before, and then (5) finds the change, for the kernel orders all that a process has stored before
  its end.
- A member that joins (SYNC join): it publishes that it is there, fence, and reads the addresses; so
  (4) finds it, or it finds the address of (3), and rings.
- A ring that another thread or task of this process takes: the one that takes rings wakes all that
  are registered, and (1) comes before (5).
- A child that is forked off: it has no bell of its parent, whose rings it would take.

Tasks of one event loop that wait for the same items, each of which is for one task, stand in a
line: an item wakes the first of them alone. It calls `wake_next` when it has taken the item, or
ends in another way: where there is another one, the next task wakes. Until then it stays the first,
or the bell stays readable, so that the loop wakes the next one.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.closing import surely
from shmnd.common.descriptors import Descriptor, taking_from_the_system
from shmnd.common.held import Held
from shmnd.common.interruption import Ignoring, pass_on
from shmnd.common.late import asyncio, running_loop
from shmnd.common.owned import Owned
from shmnd.common.streams import close_epoll, new_epoll
from shmnd.ipc.common.ringer import DATAGRAMS, ringer
from shmnd.ipc.common.sleeping_tasks import POLL, TaskSleeper
from shmnd.runtime.awaiting.awaited import resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

__all__ = ["PAUSE", "POLL", "Bell", "Sleeper", "sleeper_at"]

PAUSE: Final = 0.1
"""Seconds after which a short sleep becomes a long one: at a bell, which also watches processes."""
_MOST_MS: Final = 1 << 30


class Bell:
    """A bell of this process. `fd` is readable when it was rung, or a watched process has died.

    A child that is forked off has it no more, and makes one of its own.
    """

    def __init__(self) -> None:
        self._ringer = ringer()
        with taking_from_the_system("fileno"):
            with socket.socket(socket.AF_UNIX, DATAGRAMS) as made:
                made.bind("")  # the kernel gives an address that no other socket has
                self.address: Final[bytes] = made.getsockname()
                self._socket = Descriptor.of(made.detach)
            self._epoll = new_epoll()
        self.fd = self._epoll.fileno()
        self._epoll.register(self._socket, select.EPOLLIN)
        self._pid = os.getpid()
        self._watched: dict[int, Descriptor] = {}
        self._dead: set[int] = set()
        self._lock = threading.RLock()  # a destructor may run inside
        self._sleepers: set[Sleeper | TaskSleeper] = set()
        self._lines: dict[tuple[Any, Hashable], OrderedDict[TaskSleeper, None]] = {}
        """By event loop, and by what they wait for: the tasks of which one wakes at a time."""
        self._loops: dict[asyncio.AbstractEventLoop, _Polled] = {}
        self.blind = False
        """True where a process cannot be watched: a sleeper polls every `PAUSE` then."""
        _all.add(self)

    def ring(self) -> None:
        """Ring it from here."""
        self._ringer.ring([self.address])

    def drain(self, armed: Hashable = None) -> None:
        """Take all rings, and have the threads and tasks that sleep at the bell check again.

        Except for the lines of tasks that wait for `armed`: the caller arms and checks that next,
        and rings the bell again where it is there.
        """
        with Held(self._lock):
            try:
                came = self._take_rings()
                if self._forget_dead() or came:
                    self._wake_first(armed)
            except BaseException:
                self._wake_all()  # a ring that was taken does not come again
                raise

    def _take_rings(self) -> bool:
        came = False
        try:
            while self._socket.fd >= 0:
                os.read(self._socket.fd, 16)
                came = True
        except BlockingIOError:
            pass  # these were all
        return came

    # -- processes --

    def watch(self, pids: Iterable[int]) -> None:
        """Watch exactly these processes; 0 is one that this process cannot name."""
        wanted = set(pids)
        wanted.discard(self._pid)
        with Held(self._lock):
            if self.fd < 0:
                return
            self.blind = 0 in wanted
            wanted.discard(0)
            self._dead &= wanted
            for pid in [pid for pid in self._watched if pid not in wanted]:
                self._forget(pid)
            for pid in wanted - self._watched.keys():
                self._begin(pid)

    def _begin(self, pid: int) -> None:
        try:
            descriptor = Descriptor.of(os.pidfd_open, pid)
        except ProcessLookupError:
            self._dead.add(pid)
            return
        except (OSError, OverflowError) as exc:
            pass_on(exc)
            self.blind = True  # no descriptor is free
            return
        if pid in self._dead:  # it still holds its mark of life, or the number is another's
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if poll.poll(0):
                return
            self._dead.discard(pid)
        # In this order: a handler of a signal that raises in between leaves none that is not seen.
        self._epoll.register(descriptor, select.EPOLLIN)
        self._watched[pid] = descriptor

    def _forget(self, pid: int) -> None:
        descriptor = self._watched.pop(pid)
        self._epoll.unregister(descriptor)
        descriptor.close()

    def _forget_dead(self) -> bool:
        """Watch processes that have died no more; return whether there was one."""
        if not self._watched or self.fd < 0:
            return False
        by_descriptor = {descriptor.fd: pid for pid, descriptor in self._watched.items()}
        dead = [by_descriptor[fd] for fd, _ in self._epoll.poll(0) if fd in by_descriptor]
        for pid in dead:
            self._forget(pid)
            self._dead.add(pid)
        return bool(dead)

    # -- sleeping --

    def sleeper(self) -> contextlib.AbstractContextManager[Sleeper]:
        """Return a context in which a ring wakes this thread: drain, arm and poll, then sleep."""
        return sleeper_at(self)

    def enter(self, sleeper: Sleeper) -> None:
        """Have rings of this bell, also those that another thread takes, wake a thread."""
        with Held(self._lock):
            self._sleepers.add(sleeper)

    def leave(self, sleeper: Sleeper) -> None:
        """Wake it no more."""
        with Held(self._lock):
            self._sleepers.discard(sleeper)

    @contextlib.contextmanager
    def task(self, kind: Hashable = None) -> Iterator[TaskSleeper]:
        """Register a task that a ring wakes, as `sleeper` for threads.

        Tasks that wait for the same `kind` stand in a line; those of none wake all.
        """
        loop = asyncio.get_running_loop()
        made = TaskSleeper(self, loop, kind)
        try:
            with Held(self._lock):
                if kind is None:
                    self._sleepers.add(made)
                else:
                    self._lines.setdefault((loop, kind), OrderedDict())[made] = None
                made.polls = not self._add_task(loop, made)
            yield made
        finally:
            surely(self._remove_task, loop, made)

    def _add_task(self, loop: asyncio.AbstractEventLoop, task: TaskSleeper) -> bool:
        """Have a loop poll the bell for a task; return False where no descriptor is free.

        The loop polls a descriptor of its own, since the program may poll `fd`.
        """
        found = self._loops.get(loop)
        if found is None:
            found = self._loops[loop] = _Polled(self.fd)
            if found.copy.fd >= 0 and self.fd >= 0:  # not in a child: the epoll is its parent's
                loop.add_reader(found.copy.fd, self._rung, loop)
        found.tasks.add(task)
        return found.copy.fd >= 0

    def _remove_task(self, loop: asyncio.AbstractEventLoop, task: TaskSleeper) -> None:
        with Held(self._lock):
            self._sleepers.discard(task)
            line = self._lines.get((loop, task.kind))
            if line is not None:
                line.pop(task, None)
                if not line:
                    del self._lines[loop, task.kind]
            found = self._loops.get(loop)
            if found is None:
                return
            found.tasks.discard(task)
            if not found.tasks:
                if found.copy.fd >= 0:
                    with Ignoring(RuntimeError):  # the loop is closed
                        loop.remove_reader(found.copy.fd)
                    found.copy.close()
                self._loops.pop(loop, None)

    def _rung(self, loop: asyncio.AbstractEventLoop) -> None:
        with Held(self._lock):
            if self.fd >= 0 and not self._epoll.poll(0, 1):
                return  # the rings were taken meanwhile, by one that woke or rang for these
            # Copies: a task that the collector ends meanwhile leaves.
            for each in list(self._sleepers):
                if isinstance(each, TaskSleeper) and each.loop is loop:
                    resolve(each.came)
            for (line_loop, _), line in list(self._lines.items()):
                if line_loop is loop and (first := next(iter(line), None)):
                    resolve(first.came)

    def wake_next(
        self, loop: asyncio.AbstractEventLoop, kind: Hashable, ready: Callable[[], bool]
    ) -> None:
        """Wake the next task of a line, which one has left, if `ready` returns true.

        The collector may end a task while its loop does not run.
        """
        line = self._lines.get((loop, kind))
        if not line or loop.is_closed():
            return
        there = True  # also where `ready` raises
        try:
            there = ready()
        finally:
            if there:
                with Held(self._lock):
                    first = next(iter(line), None)
                    if first is not None and running_loop() is loop:
                        resolve(first.came)
                    elif first is not None:
                        first.wake()

    def longest(self, seconds: float) -> float:
        """Return how long one may sleep at it."""
        return min(seconds, PAUSE if self.blind else _MOST_MS / 1000)

    def wake_all(self) -> None:
        """Have the threads and tasks that sleep at it check again."""
        with Held(self._lock):
            self._wake_all()

    def _wake_all(self) -> None:
        # Copies: a task that the collector ends meanwhile leaves.
        for each in list(self._sleepers):
            each.wake()
        for line in list(self._lines.values()):
            for task in list(line):
                task.wake()

    def _wake_first(self, armed: Hashable) -> None:
        for each in list(self._sleepers):
            each.wake()
        for (_, kind), line in list(self._lines.items()):
            if kind != armed and (first := next(iter(line), None)):
                first.wake()

    def close(self) -> None:
        """Close the descriptors; those that sleep at it check again. Harmless twice."""
        with Held(self._lock):
            self.fd = -1
            self._wake_all()
            close_epoll(self._epoll)
            self._socket.close()
            for descriptor in self._watched.values():
                descriptor.close()
            self._watched.clear()

    def drop(self) -> None:
        """Close the descriptors alone, as in a child that was forked off.

        The epoll is the parent's, too: a descriptor that left it here would leave it there.
        """
        self.fd = -1
        self._lock = threading.RLock()  # another thread may have had it
        for sleeper in self._sleepers:
            sleeper.close()
        self._sleepers.clear()
        self._lines.clear()
        close_epoll(self._epoll)
        copies = [found.copy for found in self._loops.values()]
        for each in (self._socket, *self._watched.values(), *copies):
            each.close()
        self._watched.clear()


class _Polled:
    """The descriptor by which an event loop polls a bell, and the tasks that sleep there."""

    def __init__(self, fd: int) -> None:
        self.tasks: Final[set[TaskSleeper]] = set()
        try:
            self.copy = Owned.of(os.dup, fd) if fd >= 0 else Owned()
        except OSError as exc:
            pass_on(exc)
            self.copy = Owned()  # none is free


_all: weakref.WeakSet[Bell] = weakref.WeakSet()


def _forked() -> None:
    """Drop the bells: a child that took a ring of one would take it from its parent."""
    for bell in list(_all):
        bell.drop()


os.register_at_fork(after_in_child=_forked)


@contextlib.contextmanager
def sleeper_at(*bells: Bell) -> Iterator[Sleeper]:
    """Register a thread that a ring of any of these bells wakes, as `Bell.sleeper` for one."""
    made = Sleeper(*bells)
    try:
        for bell in bells:
            bell.enter(made)
        yield made
    finally:
        for bell in bells:
            surely(bell.leave, made)
        made.close()


class Sleeper:
    """One thread that sleeps at bells."""

    def __init__(self, *bells: Bell) -> None:
        self._bells = bells
        self._event: Owned | None = None
        try:
            self._event = Owned.of(os.eventfd, 0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as exc:
            pass_on(exc)  # no descriptor is free: it polls

    def sleep(self, seconds: float, *also: int) -> None:
        """Sleep until a bell rings, a watched process dies, or so many seconds are over.

        A descriptor of this process that becomes readable ends it `also`.
        """
        rung = [bell.fd for bell in self._bells]
        if min(rung) < 0:
            return
        poll = select.poll()
        for descriptor in (*rung, *also):
            poll.register(descriptor, select.POLLIN)
        longest = min(bell.longest(seconds) for bell in self._bells)
        if self._event is not None:
            poll.register(self._event, select.POLLIN)
        else:
            longest = min(longest, POLL)
        poll.poll(min(_MOST_MS, max(0, int(longest * 1000) + 1)))

    def wake(self) -> None:
        """Have it check again."""
        if self._event is not None:
            try:
                os.eventfd_write(self._event.fd, 1)
            except OSError as exc:
                pass_on(exc)  # it was woken already, or sleeps no more

    def close(self) -> None:
        """Close its descriptor."""
        if self._event is not None:
            self._event.close()
