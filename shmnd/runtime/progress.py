# SPDX-License-Identifier: Apache-2.0
"""The progress engine: all waiting and polling of the adapters of one process and namespace.

It makes progress when a thread polls or waits. It has no thread of its own, except while it joins
a new broker, since no message may wait for a broker that is slow to start, or stopped. One poll
(`progress`) drains the doorbells, sorts the messages of the broker, detects dead processes, and
then ticks every object that has operations pending.

Locks. `rpc` is held while this process asks the broker, and while the broker's messages are sorted;
no method of an object is called under it. Events that concern objects are delivered one at a time
under `_delivering`, and objects take their own locks inside. So an object may ask the broker under
its own lock, but must not poll or wait there. A signal handler or a finaliser that polls in a
thread with such a lock finds nothing to do (`CallLock`).
"""

from __future__ import annotations

import functools
import itertools
import os
import select
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from shmnd.broker.protocol import name_of
from shmnd.common.brief_waits import brief_until, too_late
from shmnd.common.descriptors import refuse_closed, taking_from_the_system
from shmnd.common.held import Held
from shmnd.common.interruption import is_interruption
from shmnd.ring.process.waiting import LONGEST_SLEEP
from shmnd.runtime.awaiting.event_loops import EventLoops
from shmnd.runtime.broker.announcements import Names
from shmnd.runtime.broker.exchange import BrokerExchange
from shmnd.runtime.broker.meetings import Meetings
from shmnd.runtime.broker.reconnect import Reconnect
from shmnd.runtime.pending import PendingOperations
from shmnd.runtime.polling import EngineCore, poll_once, poll_woken
from shmnd.runtime.request_progress import RequestProgress
from shmnd.runtime.waiting import WaitSet
from shmnd.status import IN_CHILD, Status, error

if TYPE_CHECKING:
    from pathlib import Path

    from shmnd.runtime.interfaces import BrokerLike, DataPlaneLike, SegmentOwner

__all__ = ["ProgressEngine"]

_CLOSED: Final = "its adapter is closed; open another one"
_FAR: Final = 1e9  # seconds that the clock does not reach: infinity has no nanoseconds


class ProgressEngine(BrokerExchange, EngineCore):
    """One per process and namespace; lives from the first adapter to the last."""

    _engines: ClassVar[dict[Path, ProgressEngine]] = {}
    _registry: ClassVar[threading.RLock] = threading.RLock()
    _joining: ClassVar[defaultdict[Path, threading.RLock]] = defaultdict(threading.RLock)
    """Of a namespace, held while a broker is joined."""

    @classmethod
    def of(
        cls, user: str, namespace: str | None = None, group: int | str | None = None
    ) -> ProgressEngine:
        """Return the progress engine of a namespace, connected to its broker.

        It lives until each `user`, the name of an adapter, has given it back (`give_back`,
        `unregister_adapter`), also one whose call of this was interrupted.
        """
        with taking_from_the_system("open_adapter"):
            from shmnd.broker.client import BrokerClient
            from shmnd.broker.place import place_of
            from shmnd.runtime.data_plane import DataPlane

        _require_epoll()
        key = place_of(namespace, group=group).directory
        if brief_until() is not None:
            engine = cls._taken(key, user)
            if engine is None:
                raise too_late("open_adapter")
            return engine
        # A lock for each namespace: a call that releases the engine of another one, maybe in an
        # event loop, does not wait for this broker.
        with taking_from_the_system("open_adapter"), Held(cls._joining[key]):
            engine = cls._taken(key, user)
            if engine is None:
                made = cls(
                    lambda new: BrokerClient(
                        namespace,
                        group=group,
                        key=new.key,
                        on_reconnect=new.on_reconnect,
                    ),
                    DataPlane(),
                )
                try:
                    engine = cls._taken(key, user, made)
                    assert engine is not None
                finally:
                    if cls._engines.get(key) is not made:
                        made.close()  # a signal handler has opened an adapter meanwhile, or raised
            return engine

    @classmethod
    def _taken(
        cls, key: Path, user: str, made: ProgressEngine | None = None
    ) -> ProgressEngine | None:
        """Return the progress engine of a namespace, with one more user.

        If there is none, `made` becomes it.
        """
        with Held(cls._registry):
            while True:
                engine = cls._engines.get(key, made)
                if engine is None:
                    return None
                # Before it can be found: an interruption leaves none without a user.
                engine._users.add(user)
                if engine is made:
                    engine._key = key
                    cls._engines.setdefault(key, engine)
                if cls._engines.get(key) is engine:
                    return engine
                # A handler of a signal, or a finaliser, has closed it here, or made another.
                engine._users.discard(user)

    @classmethod
    def give_back(cls, adapter: SegmentOwner) -> None:
        """Release the progress engine of an adapter that could not be opened, if it took one."""
        for engine in list(cls._engines.values()):
            engine.unregister_adapter(adapter)

    def __init__(
        self, join: Callable[[ProgressEngine], BrokerLike], data_plane: DataPlaneLike
    ) -> None:
        self.key: Final = os.urandom(16).hex()
        """A secret of this process and the broker; peers receive the name that is made of it."""
        self.process: Final = name_of(self.key)
        self.data_plane: Final = data_plane
        self.attempts = threading.RLock()
        """Held while a connector checks that a queue pair is free, and takes it."""
        self._key: Path | None = None
        self._users: set[str] = set()  # changed in place: a finaliser may change it meanwhile
        self._has_left = False
        self.alive = True
        """Whether it can be used: not after its end, and not in a forked child."""
        self._ended = ""
        wait_set = WaitSet()
        self.news: Final = wait_set.news
        """Wakes sleeping threads: an operation has ended, and one of them may wait for it."""
        self.pending_operations = PendingOperations(wait_set)
        super().__init__(wait_set, data_plane, self.pending_operations)
        self._numbers = itertools.count(1)
        self._polling = set()
        self.request_progress = RequestProgress(self._wait_set)
        self.names = Names(self)
        self.meetings = Meetings(self)
        self.loops: Final = EventLoops(
            self.epoll_fd, functools.partial(poll_woken, self), self.request_progress
        )
        self._reconnection = Reconnect(
            self._reconnect, lambda: self.client.broker_runs(), self._wait_set
        )
        self._begin(join)

    def _begin(self, join: Callable[[ProgressEngine], BrokerLike]) -> None:
        """Join the broker, and wait for its messages too."""
        client = None
        try:
            self.client = client = join(self)
            self._unsorted = [self._inbox, *client.unsorted]
            pending = self.pending_operations
            visited = [*pending.contents, self._undelivered, *self._unsorted]
            self._wait_set._visit(visited, pending.links)
            self._wait_set.include(self.client.fileno())
            _all_engines.add(self)
        except BaseException:
            if client is not None:
                client.close()
            self._wait_set.close()
            raise

    # -- state and descriptors --

    @property
    def closed(self) -> bool:
        """Whether its last adapter was closed; never in a forked child of its process."""
        return self._ended == _CLOSED

    @property
    def place(self) -> str:
        """The directory of its namespace, by which its processes find each other."""
        return str(self._key)

    @property
    def doorbell_fd(self) -> int:
        """The descriptor by which this process rings itself."""
        return self._wait_set.doorbell_fd

    @property
    def epoll_fd(self) -> int:
        """Readable when a poll would find something."""
        return self._wait_set.epoll_fd

    def check(self, call: str) -> None:
        """Raise DEVICE_REMOVED after the end, and in a process that was forked off."""
        if self._ended:
            raise error(Status.DEVICE_REMOVED, call, self._ended)

    def new_number(self) -> int:
        """Return a number that no other object of this process has had."""
        return next(self._numbers)

    # -- polling and waiting --

    def progress(self) -> None:
        """Poll everything once; never wait."""
        poll_once(self)

    def progress_by_calls(self) -> None:
        """Poll as `progress` does, in a call that a program may make for hundreds of connections.

        The broker answers each call; many answers in a row are taken together.
        """
        poll_once(self, one_of_many=True)

    @property
    def wait_set(self) -> WaitSet:
        """The wait set on which its threads sleep."""
        return self._wait_set

    def attend(self, found: list[tuple[int, int]] | None, rung: bool) -> None:
        """Poll after a sleep in compiled code, which has taken the rings.

        `found` are the other descriptors that it found readable; None before the sleep.
        """
        poll_once(self, others=False, found=found, rung=rung)

    def wait(self, predicate: Callable[[], object], timeout: float | None = None) -> Any:
        """Poll, and sleep between polls, until the predicate returns a true value; return that.

        Return False when `timeout` seconds end first. Ctrl-C ends the wait, as does any other
        signal handler that raises.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        until = 0 if deadline is None else max(1, int(min(deadline, _FAR) * 1e9))
        try:
            found = self._wait_set._wait_alone(self, predicate, until)
        except BaseException as exc:
            self._hand_over_rings()
            if self.alive or not isinstance(exc, (ValueError, OSError)) or is_interruption(exc):
                raise
            found = None  # another thread has just closed the progress engine
        return self._wait_among_others(predicate, deadline) if found is None else found

    def _wait_among_others(self, predicate: Callable[[], object], deadline: float | None) -> Any:
        sleeper: Final = object()
        asleep = False
        try:
            poll_once(self, others=False)
            while True:
                # First: what ends the progress engine after it is news.
                seen = self._wait_set.generation
                self.check("wait")
                found = predicate()
                if found:
                    return found
                pause = LONGEST_SLEEP
                if deadline is not None:
                    pause = min(pause, deadline - time.monotonic())
                    if pause <= 0:
                        return False
                if not asleep:
                    asleep = True
                    self.request_progress.begin(sleeper)
                else:
                    self.request_progress.poll_unattended()
                readable = self._sleep(seen, pause)
                if readable is not None:
                    poll_once(self, others=False, found=readable)
        except BaseException:
            self._hand_over_rings()
            raise
        finally:
            self._wait_set.leave()
            if asleep:
                self.request_progress.end(sleeper)
            else:
                self.request_progress.poller_left()  # it may have taken the rings meant for others

    def _sleep(self, seen: int, pause: float) -> list[tuple[int, int]] | None:
        try:
            return self._wait_set.sleep(seen, pause)
        except (ValueError, OSError) as exc:
            if is_interruption(exc):
                raise
            if self.alive:
                refuse_closed("wait", exc)
                raise
            return None  # another thread has just closed the progress engine

    def ring(self) -> None:
        """Let a thread that sleeps or selects by now poll: something changed."""
        self._wait_set.ring()

    def wake_at(self, when: float) -> None:
        """Let every waiter poll again at a moment of `time.monotonic()`.

        Only the earliest moment is kept: a poll before its own moment calls this again.
        """
        self._wait_set.wake_at(when)

    def _handle(self, readable: list[int]) -> None:
        broker = self.client.fileno()
        if readable != [broker]:
            self._peers.take_dead(readable)
        # While another thread exchanges messages with the broker, the events stay readable.
        if broker in readable:
            self.map_announced()

    def _reconnect(self) -> None:
        with Held(self.rpc):
            self.client.reconnect()

    def settle(self) -> None:
        """Ask and wait, so that the answers to earlier requests are delivered."""
        self.call("sync")
        self.progress()

    # -- adapters --

    def unregister_adapter(self, adapter: SegmentOwner) -> None:
        """Forget an adapter that is closed, or could not be opened; the last one closes this."""
        if adapter.uid not in self._users:
            return
        self.broker_state.adapters.pop(adapter.uid, None)
        # Also where it is in no record here: an interruption came before that, or ended this.
        self.post("adapter_close", adapter=adapter.uid)
        with Held(self._registry):
            if adapter.uid not in self._users:
                return
            if self._ended == IN_CHILD or len(self._users) > 1:
                self._users.discard(adapter.uid)
                return
            if self._key is not None and self._engines.get(self._key) is self:
                self._engines.pop(self._key)
            self.close()
            self._users.discard(adapter.uid)  # last: an interrupted end is continued

    # -- the end --

    def close(self) -> None:
        """Leave the broker and release everything. One that was interrupted continues."""
        if self._ended == IN_CHILD or self._has_left:
            return
        self.pending_operations.close()
        self._ended, self.alive = _CLOSED, False
        self._wait_set.news()
        self.loops.leave()
        self.client.close()
        self._peers.close()
        self._wait_set.close()
        self._drop_events()
        self._has_left = True

    def end_in_child(self) -> None:
        """End in a forked child: touch nothing that is the parent's, and refuse all calls."""
        self._ended, self.alive = IN_CHILD, False
        self.rpc = threading.RLock()
        self._delivering = threading.RLock()
        self.attempts = threading.RLock()
        self.pending_operations.close_in_child()
        self.request_progress.clear()
        self.names.close_in_child()
        self.meetings.close_in_child()
        self.loops.close_in_child()
        self._reconnection.close_in_child()
        # The epoll first: it is the parent's too, and must not be changed through this copy.
        self._wait_set.close_in_child()
        self.client.close()
        self._peers.close_in_child()
        self._drop_events()


def _require_epoll() -> None:
    if not hasattr(select, "epoll"):
        raise error(
            Status.NOT_SUPPORTED,
            "open_adapter",
            "select.epoll is missing: gevent or eventlet has patched the standard library"
            " (patch_all), and shmnd cannot wait then; open adapters in a process that is not"
            " patched",
        )


_all_engines: weakref.WeakSet[ProgressEngine] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    ProgressEngine._registry = threading.RLock()
    ProgressEngine._engines.clear()
    ProgressEngine._joining.clear()
    for engine in list(_all_engines):
        engine.end_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
