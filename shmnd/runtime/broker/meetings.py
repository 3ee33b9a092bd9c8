# SPDX-License-Identifier: Apache-2.0
"""The meetings of this process: introductions to adapters that no connection needs.

They are replayed to a new broker.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from shmnd.common.held import Held
from shmnd.runtime.broker.state import report
from shmnd.status import Status

if TYPE_CHECKING:
    from shmnd.runtime.interfaces import BrokerLike, EngineOfMeetings, PeerLike, SegmentOwner

__all__ = ["Meetings"]

_SETTLING: Final = 5.0
"""Seconds within which a process that joins a broker has reported all its segments."""


class Meetings:
    """The meetings of one progress engine. Several neighbours may share one.

    Each neighbour has a token of its own, so that an end that comes twice, or after an interrupted
    beginning, does not end the meeting for the others.
    """

    def __init__(self, engine: EngineOfMeetings) -> None:
        self._engine = engine
        self._lock = threading.RLock()  # taken again by a finaliser that interrupts its holder
        self._tokens: dict[tuple[str, str], set[int]] = {}
        self._own: dict[str, weakref.ref[SegmentOwner]] = {}
        # When the adapters that were met have come to the present broker; None: not yet.
        self._came: dict[str, float | None] = {}

    def meet(self, adapter: SegmentOwner, peer: str, token: int, call: str) -> PeerLike:
        """Introduce an adapter to another one, and return the record of the other one.

        `part` with the same token ends the meeting, also where this raises.
        """
        key = adapter.uid, peer
        try:
            with Held(self._engine.rpc):
                # First: another thread that ends the last meeting of the two notifies the broker.
                with Held(self._lock):
                    self._own[adapter.uid] = weakref.ref(adapter)
                    self._tokens[key] = self._tokens.get(key, set()) | {token}
                self._engine.call("meet", caller=call, adapter=adapter.uid, peer=peer)
            self._engine.sync()  # the introduction follows the answer
            return self._engine.require_peer(peer, call, Status.CONNECTION_INVALID, "its adapter")
        except BaseException:
            self.part(adapter, peer, token)
            raise

    def part(self, adapter: SegmentOwner, peer: str, token: int) -> None:
        """End a meeting. Harmless twice, and for one that `meet` did not begin.

        Finalisers call it, so it only posts.
        """
        key = adapter.uid, peer
        with Held(self._lock):
            tokens = self._tokens.get(key, set())
            if token not in tokens:
                return
            if len(tokens) > 1:
                self._tokens[key] = tokens - {token}
                return
            left = [each for each in list(self._tokens) if each != key]
            if not any(met == peer for _, met in left):
                self._came.pop(peer, None)
            if not any(own == adapter.uid for own, _ in left):
                self._own.pop(adapter.uid, None)
            self._engine.post("part", adapter=adapter.uid, peer=peer)
            # Last: an interrupted end is continued. A handler may have met it again meanwhile.
            tokens = self._tokens.get(key, set()) - {token}
            if tokens:
                self._tokens[key] = tokens
                self._own[adapter.uid] = weakref.ref(adapter)
                self._engine.post("meet", adapter=adapter.uid, peer=peer)
            else:
                self._tokens.pop(key, None)

    def replay(self, client: BrokerLike) -> None:
        """Replay the meetings to a new broker, in whatever order its clients come back."""
        for own, peer in list(self._tokens):
            ref = self._own.get(own)  # another thread may part at any time
            owner = None if ref is None else ref()
            if owner is None or not self._engine.has(owner):
                with Held(self._lock):
                    self._tokens.pop((own, peer), None)
            else:
                self._came[peer] = None
                held = functools.partial(self._meets, owner, peer)
                report(client, held, "meet", adapter=own, peer=peer)
                if not held():
                    client.post("part", adapter=own, peer=peer)

    def _meets(self, owner: SegmentOwner, peer: str) -> bool:
        return (owner.uid, peer) in self._tokens and self._engine.has(owner)

    def came(self, peer: str) -> None:
        """Note that the present broker has an adapter, whose process reports its segments next."""
        if peer in self._came:
            self._came[peer] = time.monotonic()

    def awaits(self, peer: str) -> bool:
        """Return whether the present broker may not have all segments of an adapter yet."""
        came = self._came.get(peer, -_SETTLING)  # another thread may part at any time
        return came is None or time.monotonic() < came + _SETTLING

    def close_in_child(self) -> None:
        """Forget all meetings after fork: they are the parent's."""
        self._lock = threading.RLock()
        self._tokens.clear()
        self._own.clear()
        self._came.clear()
