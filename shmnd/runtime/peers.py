# SPDX-License-Identifier: Apache-2.0
"""The other processes: their adapters, their segments, their doorbells, and their deaths.

A process is watched by its pidfd, which the kernel makes readable when it ends; neither the
broker nor a socket is needed for that. The record of an adapter lives as long as a queue pair
refers to it, also after the broker has reported the adapter as closed; the doorbell and the pidfd
of its process live as long.
"""

from __future__ import annotations

import os
import select
import threading
import weakref
from typing import TYPE_CHECKING

from shmnd.broker.access import process_of
from shmnd.common.closing import when_dropped
from shmnd.common.descriptors import Descriptor, ring, was_listened_at
from shmnd.common.held import Held
from shmnd.common.interruption import pass_on
from shmnd.status import NdError, Status

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import DataPlaneLike, Event, PeerLike
    from shmnd.runtime.waiting import WaitSet

__all__ = ["Peers"]


class _Process:
    """A process that has, or had, adapters that this one has met."""

    def __init__(
        self, uid: str, doorbell: Descriptor, pidfd: Descriptor, near: bool, wait_set: WaitSet
    ) -> None:
        self.uid = uid
        self.doorbell = doorbell
        self.pidfd = pidfd
        self.near = near
        """Whether its private memory may be copied by its process id: the process belongs to our
        own user, as a broker of that user or root reports, and its pidfd has that id here."""
        self.introduced: set[str] = set()
        """Its adapters that the broker reports as open."""
        self.known: weakref.WeakValueDictionary[str, PeerLike] = weakref.WeakValueDictionary()
        """The introduced adapters, and those that queue pairs still refer to."""
        self._living: set[int] = set()
        self._wait_set = wait_set
        wait_set.include(pidfd.fileno())
        self.watched = True

    def has_ended(self) -> bool:
        """Return whether the kernel reports that the process has ended."""
        return bool(_poll(self.pidfd, select.POLLIN))

    def listens_no_more(self) -> bool:
        """Return whether the other end of our doorbell is closed."""
        return bool(_poll(self.doorbell, 0) & select.POLLHUP)

    def has_hung_up(self) -> bool:
        """Return whether the process has closed the other end, which it had received."""
        return self.listens_no_more() and was_listened_at(self.doorbell)

    def ring_by(self, doorbell: Descriptor) -> None:
        """Take a new doorbell in place of the present one, if that has lost its reader."""
        if self.listens_no_more():
            # The ringing thread continues with the number that it read; its ring may be lost.
            os.dup2(doorbell.fileno(), self.doorbell.fileno(), inheritable=False)
            ring(self.doorbell)

    def hang_up(self) -> None:
        """Close the ringing ends in a forked child, which would outlive the parent."""
        for peer in self.known.values():
            peer.mute()
        self.doorbell.close()

    def adopt(self, peer: PeerLike) -> None:
        """Keep the descriptors of the process as long as the record of this adapter lives."""
        self.known[peer.uid] = peer
        # The callback refers to this object, and so keeps the descriptors open for the peer. First:
        # a peer that is counted without it, after an interruption, would count for ever.
        when_dropped(peer, self._left, id(peer))
        self._living.add(id(peer))

    def _left(self, number: int) -> None:
        self._living.discard(number)
        self.unwatch_if_unused()

    def unwatch_if_unused(self) -> None:
        if not self._living:
            self.unwatch()

    def unwatch(self) -> None:
        if self.watched:
            self._wait_set.exclude(self.pidfd.fileno())
            self.watched = False


class Peers:
    """Every remote adapter that the broker has introduced to this process."""

    def __init__(self, data_plane: DataPlaneLike, wait_set: WaitSet) -> None:
        self._data_plane = data_plane
        self._wait_set = wait_set
        self._lock = threading.RLock()
        # Those that are introduced now. Others live on as long as queue pairs refer to them.
        self._adapters: dict[str, tuple[PeerLike, _Process]] = {}
        self._processes: weakref.WeakValueDictionary[str, _Process] = weakref.WeakValueDictionary()
        self._segments: weakref.WeakKeyDictionary[PeerLike, set[int]] = weakref.WeakKeyDictionary()

    def get(self, uid: str) -> PeerLike | None:
        """Return the record of an adapter."""
        found = self._adapters.get(uid)
        return None if found is None else found[0]

    def meet(self, event: Event, fds: list[int]) -> None:
        """Note an adapter that a broker introduces, perhaps once more. Takes the descriptors."""
        with Held(self._lock):
            self._meet(event, fds)

    def _meet(self, event: Event, fds: list[int]) -> None:
        doorbell, pidfd = (Descriptor.of(fds.pop, 0) for _ in range(2))
        process = self._processes.get(event["process"])
        if process is None or not process.watched:
            # The broker reports whose pidfd it is; only this process can find its number here.
            # Without a free descriptor to find out, the introduction is repeated (OSError).
            near = event["same_user"] and process_of(pidfd.fileno()) == event["pid"]
            process = _Process(event["process"], doorbell, pidfd, near, self._wait_set)
            self._processes[process.uid] = process
        else:
            process.ring_by(doorbell)
        uid = event["adapter"]
        peer = process.known.get(uid)
        if peer is None:
            try:
                peer = self._data_plane.peer_adapter(
                    uid,
                    event["pid"],
                    process.doorbell.fileno(),
                    process.pidfd.fileno() if process.near else -1,
                    event["table"],
                    event.get("one_user", event["same_user"]),
                )
            except NdError:  # its table is malformed: a use of it will find it missing
                process.unwatch_if_unused()
                return
            process.adopt(peer)
        process.introduced.add(uid)
        self._adapters[uid] = peer, process

    def add_segment(self, event: Event, fds: list[int]) -> None:
        """Map a segment of an adapter, unless it is mapped already. Takes the fd.

        Raise MemoryError when there is no room for it in this process.
        """
        with Held(self._lock):
            self._add_segment(event, fds)

    def _add_segment(self, event: Event, fds: list[int]) -> None:
        # Its process may have been seen dead before this was read: what it announced is still used.
        peer = self.get(event["adapter"]) or self._known(event["adapter"])
        if peer is None:
            return
        numbers = self._segments.setdefault(peer, set())
        if event["seg"] in numbers:
            return
        try:
            fd = Descriptor.of(fds.pop, 0)
            segment = self._data_plane.attach_segment(fd, event["size"], event["writable"])
            peer.add_segment(event["seg"], segment)
        except NdError as err:
            pass_on(err)
            if err.status is Status.INSUFFICIENT_RESOURCES:
                raise
            # Else it is not what its owner announced: references to it will fail, that is all. Or
            # it is here, and a handler of a signal has raised before that was noted.
        numbers.add(event["seg"])

    def _known(self, uid: str) -> PeerLike | None:
        """Return the record of an adapter that is in use here, also of a process that has left."""
        found = (process.known.get(uid) for process in list(self._processes.values()))
        return next((peer for peer in found if peer is not None), None)

    def remove_segment(self, event: Event) -> None:
        """Drop a segment that its owner has withdrawn."""
        with Held(self._lock):
            peer = self.get(event["adapter"])
            if peer is not None and event["seg"] in self._segments.get(peer, ()):
                peer.remove_segment(event["seg"])
                self._segments[peer].discard(event["seg"])  # last: the event may be sorted again

    def forget(self, uid: str) -> None:
        """Drop an adapter that was closed. Queue pairs that refer to it keep its record."""
        with Held(self._lock):
            found = self._adapters.pop(uid, None)
            if found is not None:
                # Not where the handler of a signal raises before: its process may name more.
                found[1].introduced.discard(uid)

    def hung_up(self, uid: str) -> list[PeerLike]:
        """Return the adapters of a process that has become another program (exec), else none.

        Such a process has closed its end of our doorbell, and never reported its adapters closed.
        """
        with Held(self._lock):
            process = self._processes.get(uid)
            if process is None or not process.has_hung_up():
                return []
            found = [self._adapters.get(adapter) for adapter in process.introduced]
            return [each[0] for each in found if each is not None]

    def forget_process(self, uid: str) -> None:
        """Drop the adapters of a process that has left the broker: dead, closed, or to return."""
        with Held(self._lock):
            process = self._processes.get(uid)
            if process is not None:
                for adapter in list(process.introduced):
                    self.forget(adapter)

    def take_dead(self, readable: list[int]) -> None:
        """Mark as dead the adapters of processes that have ended, by their readable pidfds."""
        with Held(self._lock):
            for process in list(self._processes.values()):
                ended = process.watched and process.pidfd.fileno() in readable
                if ended and process.has_ended():
                    for peer in list(process.known.values()):
                        peer.mark_dead()
                    self.forget_process(process.uid)
                    process.unwatch()  # last: where this is interrupted, the next poll repeats it

    def close_in_child(self) -> None:
        """Forget all peers after fork: they are the parent's."""
        self._lock = threading.RLock()  # its holder is not here
        for process in list(self._processes.values()):
            process.hang_up()
        self.close()

    def close(self) -> None:
        """Forget all peers."""
        for process in list(self._processes.values()):
            process.unwatch()
        self._processes.clear()
        self._adapters.clear()


def _poll(fd: Descriptor, events: int) -> int:
    """Return the pending ones of these events at a descriptor; a closed other end is POLLHUP."""
    poll = select.poll()
    poll.register(fd, events)
    found = poll.poll(0)
    return found[0][1] if found else 0
