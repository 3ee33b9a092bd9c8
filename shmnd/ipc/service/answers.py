# SPDX-License-Identifier: Apache-2.0
"""How a client takes the answers of its servers, and gives each to its request.

A handler of a signal may raise behind each call of a function, and an answer that was taken must
reach its request even so. So it is in `_taken` until what it changes is changed, by statements that
call nothing. A thread that was interrupted before it announced that it takes no more answers
takes the next ones.
"""

from __future__ import annotations

import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from shmnd.common.held import Condition, Held
from shmnd.common.interruption import is_interruption
from shmnd.ipc.common.processes import Process, pid_here
from shmnd.ipc.errors import PeerLost
from shmnd.ipc.queue.queueing import Queue
from shmnd.ipc.service.fields import with_fields
from shmnd.ipc.service.service_user import ServiceUser
from shmnd.ipc.service.service_values import Answer, Unreadable, in_part, raised_from
from shmnd.ipc.service.under_way import UnderWay

if TYPE_CHECKING:
    from shmnd.ipc.service.pending import Pending

__all__ = ["MARKS", "Answers"]

MARKS: Final = 2048
"""Marks of closed streams that a client's page has."""
_MOST_ENDED: Final = 1024
"""Closed streams whose servers have not confirmed their ends; the oldest one is forgotten."""
_MORE: Final = 64
"""Answers that one call takes of those that come meanwhile."""
_NUMBERS: Final = 1 << 63
"""No request has this number, or a larger one."""
_LAST: Final = ("value", "failure", "end")
"""The kinds of the last message of a server about a request."""
_KINDS: Final = ("part", "taken", *_LAST)
_WORD: Final = 1 << 64
"""No number in the claim of a server is as large."""


def _server_of(sent: Any) -> tuple[int, int] | None:
    """Return the member number and the process of a server that took a request."""
    if type(sent) is not tuple or len(sent) != 4:
        return None  # not of a server of this library
    member, space, number, likely = sent
    if any(type(each) is not int or not 0 <= each < _WORD for each in sent):
        return None
    return member, pid_here(Process(space, number), likely)


class Answers(ServiceUser):
    """The part of a `Client` that takes answers, by one thread for all, and detects lost ones."""

    def _begin_without_answers(self) -> None:
        requests = self._requests._core
        self._answers = Queue()
        self._answers._keep_from_children()
        self._answers._core.partly = in_part
        # A server that took a request and has not announced it yet is a member of this one alone.
        self._answers._also = requests
        self._pending: weakref.WeakValueDictionary[int, Pending] = weakref.WeakValueDictionary()
        # Closed streams whose servers have not confirmed their ends: their numbers, by their marks.
        self._ended: dict[int, int] = {}
        self._under_way = UnderWay(requests, self._answers._core, self._pending)
        self._lock = threading.RLock()
        self._turn = Condition(self._lock)
        self._busy = 0  # the thread that takes the answers of all
        self._taken: list[Any] = []  # the one that it has taken and not sorted yet
        self._sorted = False  # it took one
        self._news: list[Pending] = []  # the requests of which it took something

    def _mark(self, number: int) -> None:
        """Show the server of a stream that no more of it is read."""
        if len(self._ended) >= _MOST_ENDED:
            # A server that died says nothing. One that still computes continues; no client waits.
            self._unmark(next(iter(self._ended.values()), 0))
        self._ended[number % MARKS] = number
        self._answers._core.end_stream(number)

    def _unmark(self, number: int) -> None:
        if self._ended.pop(number % MARKS, None) is not None:
            self._answers._core.forget_stream(number)

    def _begin(self) -> bool:
        """Begin to take the answers in this thread; return False where another one does."""
        me = threading.get_ident()
        try:
            with Held(self._lock):
                if self._busy not in (0, me):
                    return False
                self._busy = me
            return True
        except BaseException:
            if self._busy == me:
                self._busy = 0
            raise

    def _end(self) -> None:
        """Notify the others, after `_busy` was set to 0: one of them takes the next answers."""
        try:
            self._notify_waiters()
        except BaseException:
            self._notify_waiters()  # once more: they would sleep on
            raise

    def _notify_waiters(self) -> None:
        """Wake the threads and tasks for which answers came, or of which one takes the next."""
        sorted_, news = False, []
        try:
            with Held(self._lock):
                sorted_, self._sorted = self._sorted, False
                news, self._news = self._news, []
                self._turn.notify_all()
            for pending in news:
                for waiter in tuple(pending._waiters):
                    waiter.wake()
            bell = self._answers._bell
            if sorted_ and bell is not None:
                bell.wake_all()  # the tasks that take: it may be theirs; and wait sets
                if self._under_way.has_unseen():  # of this time, or the ring before was taken
                    bell.ring()  # a program that has the descriptor: it may be what that waits for
        except BaseException:
            self._sorted = self._sorted or sorted_
            self._news = news + self._news
            raise

    def _take_answers(self, *, lost: bool = True) -> None:
        """Take the answers that are there, unless another thread does; find those that are lost."""
        if self._begin():
            try:
                self._take_all()
                if lost:
                    self._find_lost()
            finally:
                self._busy = 0
                self._end()

    def _take_all(self) -> None:
        """Take the answers that are there, and few of those that come meanwhile.

        A server of a stream may compute values as fast as this takes them. They are not to fill the
        memory of the client, nor to outlast the time-out of the call, which looks for its own here.
        """
        try:
            for _ in range(self._answers._core.qsize() + _MORE):
                self._take_one(False)
        except queue.Empty:
            return  # the next answer rings
        bell = self._answers._bell
        if bell is not None:
            bell.ring()  # there may be more, and their ring may have been taken with these

    def _take_one(self, block: bool, timeout: float | None = None) -> None:
        if not self._taken:
            self._answers._get_into(self._taken, block, timeout)
        item = self._taken[0]
        try:
            self._sort(item)
        except Exception as exc:
            if not is_interruption(exc):  # not of a server of this library
                self._drop(item)
            raise

    def _drop(self, item: Any) -> None:
        """Forget an answer that was taken."""
        if self._taken and self._taken[0] is item:
            del self._taken[0]

    def _sort(self, item: Any) -> None:
        if type(item) is not tuple or len(item) != 5:
            self._drop(item)  # not of a server of this library
            return
        number, kind, sequence, server, value = item
        if not type(number) is type(sequence) is type(server) is int or type(kind) is not str:
            self._drop(item)  # a comparison below might call methods of its own
            return
        if not 0 < number < _NUMBERS or kind not in _KINDS:
            self._drop(item)
            return
        pending = self._pending.get(number)
        marked = self._ended.get(number % MARKS) == number
        self._sorted = True
        if marked and kind in _LAST:
            self._unmark(number)
        if (pending is None or pending._over) and kind == "part" and not marked:
            self._mark(number)  # also where it ended without a mark, as one that counts as lost
        if pending is None or pending._over:
            self._drop(item)  # the program waits for it no more
            self._under_way.unsaid.pop(number, None)
            return
        if isinstance(value, Unreadable) and kind == "part":
            self._mark(number)  # the server need not continue
        self._give(pending, kind, item)

    def _claim_of(self, sent: Any) -> tuple[int, int] | None:
        claim = _server_of(sent)
        if claim is not None:
            self._under_way.servers.add(claim)  # before the request has it: it is checked from now
        return claim

    def _give(self, pending: Pending, kind: str, item: Any) -> None:
        """Change a request by what its server sent."""
        number, _, sequence, server, value = item
        taken, unseen = self._taken, self._under_way.unseen
        failure: BaseException | None = None
        answer = claim = None
        full = kind == "part" and len(pending._answers) >= pending._most
        if full and pending._most > 1:
            failure = RuntimeError(
                f"Client.stream: {pending._most} values of the stream wait to be read, which is the"
                " most that a client keeps; read them sooner, or close the stream"
            )
            self._mark(number)  # the server need not continue
        elif isinstance(value, Unreadable):
            failure = value.error
        elif kind == "taken":
            claim = self._claim_of(value)
        elif kind == "failure":
            failure = raised_from(value, self.name)
        elif kind != "end" and not full:
            answer = Answer(with_fields(value, self.response), sequence, server)
        over = kind in _LAST or failure is not None
        # No calls from here on. A handler may have taken it, by a call of this client.
        if not taken or taken[0] is not item:
            return
        if claim is not None:
            pending._server = claim
        if pending._over:  # closed meanwhile: the value is dropped
            answer = None
        else:
            pending._failure = failure
        if answer is not None:
            pending._answers += (answer,)
            pending._streamed = not over
        pending._over = pending._over or over
        if over or answer is not None:
            unseen[pending._number] = None
            self._news += (pending,)
        del taken[0]
        if over or claim is not None:
            self._under_way.unsaid.pop(number, None)

    # -- requests whose servers died --

    def _known(self) -> list[Pending]:
        """Return the requests that the program waits for; other threads may send some meanwhile."""
        # A list of `values()` fails then: its loop is Python code, and other threads run within it.
        return [each for ref in self._pending.valuerefs() if (each := ref()) is not None]

    def _find_lost(self) -> bool:
        """End the requests whose servers died; return whether there was one."""
        dead, unclaimed = self._under_way.lost()
        if not dead and not unclaimed:
            return False
        self._take_all()  # what they sent before they died
        found = False
        for pending in self._known():
            lost = pending._server in dead if pending._server else pending in unclaimed
            if lost and not pending._over:
                self._end_lost(pending)
                found = True
        self._under_way.servers.difference_update(dead)
        return found

    def _end_lost(self, pending: Pending) -> None:
        pending._failure = self._lost(pending)
        unseen = self._under_way.unseen
        unseen[pending._number] = None
        self._news += (pending,)
        pending._over = self._sorted = True

    def _lost(self, pending: Pending) -> PeerLost:
        """Return the error of a request that has no answer. Ask no broker, which may be late."""
        why = f"Client: the server of {self.name!r} that took the request has died"
        if pending._server is None:
            why += (
                f"; or it is in another PID namespace, and does not see process {self._pid} in "
                "/proc, which it would answer: run containers with the PID namespace of the host "
                "(--pid=host), or with a common one"
            )
        return PeerLost(why)
