# SPDX-License-Identifier: Apache-2.0
"""Which adapters of this process have met which others, and how a new broker learns of it."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from shmnd.status import Status

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import BrokerLike, EngineOfMeetings, PeerLike, SegmentOwner

__all__ = ["Meetings"]


class Meetings:
    """The meetings of one progress engine. Several neighbours may share one."""

    def __init__(self, engine: EngineOfMeetings) -> None:
        self._engine = engine
        self._lock = threading.RLock()  # taken again by a finaliser that interrupts its holder
        self._count: dict[tuple[str, str], int] = {}
        self._own: dict[str, weakref.ref[SegmentOwner]] = {}

    def meet(self, adapter: SegmentOwner, peer: str, call: str) -> PeerLike:
        """Introduce an adapter to another one; return the record of that."""
        key = adapter.uid, peer
        with self._engine.rpc:
            try:
                self._engine.call("meet", caller=call, adapter=adapter.uid, peer=peer)
                with self._lock:
                    self._count[key] = self._count.get(key, 0) + 1
                    self._own[adapter.uid] = weakref.ref(adapter)
            except BaseException:
                # The broker may have heard of it. With the lock: another thread may meet it too.
                if key not in self._count:
                    self._engine.post("part", adapter=adapter.uid, peer=peer)
                raise
        try:
            self._engine.sync()  # the introduction follows the answer
            return self._engine.require_peer(peer, call, Status.CONNECTION_INVALID, "its adapter")
        except BaseException:
            self.part(adapter, peer)
            raise

    def part(self, adapter: SegmentOwner, peer: str) -> None:
        """One that has met it needs it no more. Comes from finalisers, so it only posts."""
        key = adapter.uid, peer
        with self._lock:
            left = self._count.get(key, 0) - 1
            if left > 0:
                self._count[key] = left
                return
            if self._count.pop(key, None) is None:
                return
        self._engine.post("part", adapter=adapter.uid, peer=peer)

    def replay(self, client: BrokerLike) -> None:
        """Replay to a new broker, in whatever order the processes come back."""
        for own, peer in list(self._count):
            owner = self._own[own]()
            if owner is None or not self._engine.has(owner):
                with self._lock:
                    self._count.pop((own, peer), None)
            else:
                client.call("meet", adapter=own, peer=peer)

    def close_in_child(self) -> None:
        """After fork: all of it is the parent's."""
        self._lock = threading.RLock()
        self._count.clear()
        self._own.clear()
