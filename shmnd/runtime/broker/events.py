# SPDX-License-Identifier: Apache-2.0
"""The event queue: messages of the broker to connectors and listeners, delivered in order."""

from __future__ import annotations

import abc
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from shmnd.broker.untaken import close_all
from shmnd.common.held import Held
from shmnd.common.interruption import is_interruption

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import Event
    from shmnd.runtime.waiting import WaitSet

__all__ = ["ASKED", "EventDispatch", "EventTarget"]

ASKED: Final = "asked"
"""The role of an end that waits for the broker's answer; its number is that of the request."""


class EventTarget(Protocol):
    """A connector or listener that receives events of the broker."""

    def _on_event(self, event: Event, fds: list[int]) -> None:
        """Take an event. The caller owns and closes its descriptors.

        Where the handler of a signal raises in it, it is called again, until it has come to its
        end. So each of its steps must be harmless when it is repeated.
        """


class EventDispatch(abc.ABC):
    """Events that wait for their objects, and which object each is for.

    Objects are found by their ends of connections and by their numbers. They are held weakly,
    except for those that must live until the broker has answered.
    """

    def __init__(self, wait_set: WaitSet) -> None:
        self._wait_set = wait_set
        self._undelivered: deque[tuple[Event, list[int]]] = deque()
        self._delivering = threading.RLock()
        self._ends: dict[tuple[str, int], weakref.ref[EventTarget]] = {}
        self._objects: dict[int, weakref.ref[EventTarget]] = {}
        self._asking: dict[int, EventTarget | None] = {}

    @abc.abstractmethod
    def post(self, op: str, **fields: Any) -> None:
        """Send the broker a message that needs no reply."""

    def follow(self, role: str, connection: int, end: EventTarget) -> None:
        """Deliver events about one end of a connection to this object."""
        self._ends[role, connection] = weakref.ref(end)

    def unfollow(self, role: str, connection: int) -> None:
        """Deliver no more events about an end: it is over, or only its link changes now."""
        self._ends.pop((role, connection), None)

    def follow_answer(self, request: int, end: EventTarget, hold: bool) -> None:
        """Deliver the answer to a request to an object, which `hold` keeps alive until then."""
        self._asking[request] = end if hold else None
        self.follow(ASKED, request, end)

    def unfollow_answer(self, request: int) -> None:
        """Drop the answer to a request when it comes."""
        self._asking.pop(request, None)
        self.unfollow(ASKED, request)

    def follow_object(self, number: int, obj: EventTarget) -> None:
        """Deliver events about a number, of a bound or waiting object, to this object."""
        self._objects[number] = weakref.ref(obj)

    def followed_object(self, number: int) -> EventTarget | None:
        """Return the object that is followed by a number."""
        ref = self._objects.get(number)
        return None if ref is None else ref()

    def unfollow_object(self, number: int) -> None:
        """Deliver no more events about a number: its object is neither bound nor waiting now."""
        self._objects.pop(number, None)

    def _deliver(self) -> None:
        """Deliver the event queue to the objects that it is for, in order, by one thread at a time.

        What a handler of a signal raises meanwhile loses no event: it is raised after the last one.
        """
        interruption: BaseException | None = None
        try:
            with Held(self._delivering):
                while self._undelivered:
                    interruption = self._hand_over(*self._undelivered[0]) or interruption
            self._wait_set.news()
            if interruption is not None:
                raise interruption
        finally:
            interruption = None  # it refers to this frame

    def _hand_over(self, event: Event, fds: list[int]) -> BaseException | None:
        """Deliver the first event and take it out of the queue.

        Return what a signal handler raised meanwhile, or None.
        """
        targets: Iterable[EventTarget] | None = None
        interruption: BaseException | None = None
        try:
            while True:
                try:
                    if targets is None:  # found once: one that has taken the event is not followed
                        targets = self._targets(event)
                    for target in targets:
                        target._on_event(event, fds)
                    self._drop_first(event, fds)
                    return interruption
                except BaseException as exc:
                    if not is_interruption(exc):
                        self._drop_first(event, fds)
                        raise
                    interruption = exc
        finally:
            targets = interruption = None  # the exception refers to this frame, and so to them

    def _drop_first(self, event: Event, fds: list[int]) -> None:
        """Take an event out of the queue, unless a call within its delivery has done so."""
        if event["ev"] == "answer":
            self._asking.pop(event["re"], None)
        if fds:
            close_all(fds)
        if self._undelivered and self._undelivered[0][0] is event:
            del self._undelivered[0]

    def _targets(self, event: Event) -> Iterable[EventTarget]:
        name = event["ev"]
        if name == "offer":
            ref = self._objects.get(event["connector"])
        elif name == "port_lost":
            ref = self._objects.get(event["object"])
        elif name == "answer":
            ref = self._ends.get((ASKED, event["re"]))
        elif name == "broker_lost":
            found = [self._ends.get(key) for key in event["ends"]]
            return [end for each in found if each is not None and (end := each()) is not None]
        else:
            role = "passive" if name == "withdrawn" else "active"
            ref = self._ends.get((role, event["connection"]))
        target = None if ref is None else ref()
        if target is not None:
            return (target,)
        if name in self._UNTAKEN:
            self.post(self._UNTAKEN[name], connection=event["connection"])
        return ()

    _UNTAKEN: ClassVar[Mapping[str, str]] = {"offer": "reject", "accepted": "withdraw"}
    """The request that answers an event whose object is gone: the other side does not wait then."""

    def _drop_events(self) -> None:
        self._asking.clear()
        while self._undelivered:
            close_all(self._undelivered.popleft()[1])
