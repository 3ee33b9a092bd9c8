# SPDX-License-Identifier: Apache-2.0
"""The memory window: a part of a region that one connected peer may read or write."""

from __future__ import annotations

import operator
import threading
import weakref
from typing import TYPE_CHECKING, Final

from shmnd.common.arguments import shown, wrong_kind
from shmnd.common.closing import Closing, made_by, why_closed
from shmnd.common.held import Attempted
from shmnd.handshake.queue_pair_link import QpState
from shmnd.memory_region import MemoryRegion
from shmnd.status import MrFlag, OpFlag, Status, error

if TYPE_CHECKING:
    from shmnd.handshake.interfaces import MemoryAdapter
    from shmnd.ring import QueuePair
    from shmnd.ring.queues.polling import PollingCore

__all__ = ["MemoryWindow"]

_HOLD_PLACE: Final = operator.methodcaller("_hold_place")


@made_by("Adapter.create_memory_window")
class MemoryWindow(Closing):
    """A part of a region that one connected peer may read or write, until it is invalidated."""

    def __init__(self, adapter: MemoryAdapter) -> None:
        self._adapter: Final = adapter
        self._closed = False
        self._token = 0
        self._given = 0  # the last token there was: what `remote_token` shows
        self._address = 0
        self._length = 0
        self._rights = ""
        self._region: MemoryRegion | None = None
        self._qp: weakref.ref[QueuePair] | None = None
        self._context: object = None
        self._place: PollingCore | None = None  # where a place is held for its result
        # What `_unbind` leaves to `_give_back`, by token: the region, and where the place is.
        self._unbound: dict[int, tuple[MemoryRegion, PollingCore | None]] = {}
        # What a Bind was granted, by token, until the window has noted it as its own.
        self._unfinished: dict[int, tuple[MemoryRegion, PollingCore | None]] = {}
        self._binding: Final = threading.Lock()  # held by the thread that binds it
        # An Invalidate that has begun and is not posted: the queue pair, and the token.
        self._ending: tuple[weakref.ref[QueuePair], int] | None = None

    @property
    def remote_token(self) -> int:
        """The token for the peer, valid when Bind has returned; 0 before the first Bind."""
        return self._given

    @property
    def address(self) -> int:
        """The address of the bound range in this process."""
        return self._address

    @property
    def length(self) -> int:
        """The length of the bound range in bytes."""
        return self._length

    def _set_invalidate_context(self, context: object) -> None:
        """Notify the owner when the peer invalidates the window, from the next Bind on.

        The receive queue that the window's queue pair completes to then gives, right after the
        Receive of the message that did it, a result of type INVALIDATE with this context. It
        takes no place of the queue's depth. With None nothing is reported.
        """
        self._context = context

    # -- called by QueuePair.bind and .invalidate --

    def _check_bind(
        self, qp: QueuePair, region: object, address: int, length: int, flags: int
    ) -> None:
        call = "QueuePair.bind"
        if not isinstance(region, MemoryRegion):
            raise error(Status.INVALID_PARAMETER_2, call, wrong_kind(region, "MemoryRegion"))
        if region._adapter is not qp._adapter:
            raise error(Status.INVALID_PARAMETER_2, call, "the region is of another adapter")
        self._check_usable(qp, call, Status.INVALID_PARAMETER_3)
        if not region._token or region._leaving:
            why = "the region has no registered buffer; call its register first"
            if region._closed:
                why = why_closed(self._adapter, "region")
            raise error(Status.ACCESS_VIOLATION, call, why)
        if length < 0 or not qp._adapter._registry.covers(region._token, address, length):
            raise error(
                Status.ACCESS_VIOLATION,
                call,
                f"{shown(length)} bytes at {address:#x} are not all within the region of "
                f"{region.length} bytes at {region.address:#x}",
            )
        rights = qp._adapter._registry.rights(region._token)
        if flags & OpFlag.ALLOW_WRITE and qp._adapter._registry.is_sealed(region._token):
            raise error(
                Status.ACCESS_VIOLATION,
                call,
                "ALLOW_WRITE on memory of allocate(peers='read'), which only its process can write",
            )
        if flags & OpFlag.ALLOW_WRITE and not rights & MrFlag.ALLOW_LOCAL_WRITE:
            raise error(
                Status.ACCESS_VIOLATION,
                call,
                "ALLOW_WRITE on a region without ALLOW_LOCAL_WRITE, as of a read-only buffer;"
                " register a buffer that can be written (version 2: with that flag)",
            )

    def _check_invalidate(self, qp: QueuePair) -> None:
        self._check_usable(qp, "QueuePair.invalidate", Status.INVALID_PARAMETER_2)

    def _check_usable(self, qp: QueuePair, call: str, status: Status) -> None:
        if self._closed:
            raise error(status, call, why_closed(self._adapter, "window"))
        if self._adapter is not qp._adapter:
            raise error(status, call, "the window is of another adapter")

    def _bind(
        self, qp: QueuePair, region: MemoryRegion, address: int, length: int, flags: int
    ) -> tuple[int, int]:
        """Bind it now; return what the request completes with, and the token.

        Of two threads that bind it at once, the second finds it bound. A call that raises, as where
        the handler of a signal does, posts no request and leaves the window as it was, or unbound.
        """
        bound, token = weakref.ref(qp), 0
        try:
            with Attempted(self._binding) as alone:
                if not alone or self._keeps_bound():
                    return Status.INVALID_DEVICE_REQUEST, self._token
                outcome, token = self._bind_now(qp, region, address, length, flags)
                if token:
                    self._qp = bound  # last: until then it is not bound
                return outcome, token
        except BaseException:
            if self._token == token:
                self._qp = None  # no call before it: it is unbound, whatever handlers raise now
            self._drop_unfinished()
            raise

    def _bind_now(
        self, qp: QueuePair, region: MemoryRegion, address: int, length: int, flags: int
    ) -> tuple[int, int]:
        self._give_up_bind()
        self._drop()
        self._qp = None  # of a Bind whose grant is gone
        registered = region._token
        if qp._state != QpState.CONNECTED:
            return Status.SUCCESS, 0  # the request ends with CANCELED, nothing is bound
        rights = flags & int(OpFlag.ALLOW_READ | OpFlag.ALLOW_WRITE)
        granted = (flag for flag in (OpFlag.ALLOW_READ, OpFlag.ALLOW_WRITE) if flags & flag)
        self._rights = "|".join(flag.name or "" for flag in granted) or "no rights"
        self._address, self._length = address, length
        token = self._publish(qp, region, (registered, address, length, rights))
        # Another thread has closed it meanwhile, or deregisters the memory, or has done so.
        if self._closed or region._leaving or region._token != registered:
            self._drop()
        return Status.SUCCESS, token

    def _publish(self, qp: QueuePair, region: MemoryRegion, what: tuple[int, int, int, int]) -> int:
        """Let the registry grant the access, and return the token."""
        place = None if self._context is None else qp._receive_cq
        who = qp._connection, qp._serial, self._context
        held: list[None] = []
        try:
            if place is not None:
                # In one step with the note of it: no handler of a signal comes in between.
                held.extend(map(_HOLD_PLACE, (place,)))
            # No Python from the grant to the note of it: no handler of a signal comes in between.
            grants = map(self._adapter._registry.bind, *((each,) for each in (*what, *who)))
            self._unfinished.update(zip(grants, ((region, place),), strict=True))
        except BaseException:
            if place is not None and held and not self._unfinished:
                place._free_place()
            raise
        token = next(iter(self._unfinished))
        del self._unfinished[token]  # from here on no call, as after an interruption of `_unbind`
        self._region, self._token, self._place, self._given = region, token, place, token
        region._windows.add(self)
        return token

    def _drop_unfinished(self) -> None:
        """Withdraw what a Bind that raises has granted; where that raises, the next one does it."""
        with Attempted(self._binding) as alone:
            if alone and self._qp is None:
                self._give_up_bind()
                self._drop()

    def _give_up_bind(self) -> None:
        """Leave to `_give_back` a grant that an interrupted Bind has not noted as its own."""
        for token, (region, place) in [*self._unfinished.items()]:
            self._adapter._registry.withdraw(token)
            region._revoked.append(token)
            self._unbound[token] = region, place
            del self._unfinished[token]

    def _invalidate(self, qp: QueuePair) -> tuple[int, int]:
        """Revoke the peer's access; return what the request completes with, and the token.

        A call that raises, as where the handler of a signal does, posts no request: the next one
        on this queue pair completes it, also where the access is revoked already. Of two threads
        that invalidate it at once, one succeeds.
        """
        ending, bound, token = self._ending, self._qp, self._token
        if ending is None or ending[1] != self._given:  # else one that was begun is completed
            if bound is None or bound() is not qp or not self._is_bound() or self._token != token:
                return Status.INVALID_DEVICE_REQUEST, 0
            self._ending = ending = bound, token  # no call since the comparison
        done, refused = (Status.SUCCESS, ending[1]), (Status.INVALID_DEVICE_REQUEST, 0)
        if ending[0]() is not qp:
            return refused
        self._drop()
        if self._ending is ending:  # no call from here on: no handler and no thread comes between
            self._ending = None
            return done
        return refused

    def _is_bound(self) -> bool:
        """Return whether it is bound, to a connection that has not ended."""
        qp = self._qp() if self._qp is not None else None
        return (
            qp is not None
            and qp._state == QpState.CONNECTED
            and self._adapter._registry.is_bound(self._token)  # the peer may have invalidated it
        )

    def _keeps_bound(self) -> bool:
        """Return whether it is bound when news of the peer was taken: its connection may be over.

        A program that deregisters memory, or binds the window to another queue pair, may not have
        polled since the peer disconnected.
        """
        if not self._is_bound():
            return False
        self._adapter._engine.progress()
        qp = self._qp() if self._qp is not None else None
        if qp is not None:
            qp._progress()
        return self._is_bound()

    def _drop(self) -> int:
        """Withdraw the token, and return it; 0 if there is none, or another thread withdraws it.

        The region waits for a copy that may be under way by it.
        """
        region, token = self._region, self._token
        if region is None:
            self._give_back()  # what an interrupted call has left
            return 0
        # First: a thread that deregisters the memory meanwhile has to find the window, or a token
        # by which no copy begins any more.
        registry = self._adapter._registry
        registry.withdraw(token)
        region._revoked.append(token)
        mine = self._unbind(token)
        self._give_back()
        return token if mine else 0

    def _unbind(self, token: int) -> bool:
        """Return whether this thread has unbound it. It calls nothing, so no other thread runs."""
        if self._region is None or self._token != token:
            return False
        self._unbound[token] = self._region, self._place
        self._region, self._token, self._qp, self._place = None, 0, None, None
        return True

    def _give_back(self) -> None:
        """Release the tokens that are unbound. All but the last step is harmless when repeated."""
        for token, (region, place) in [*self._unbound.items()]:
            self._adapter._registry.release(token)  # first: a close of the region can continue it
            region._windows.discard(self)
            if self._keeps(region):  # another thread has bound it again meanwhile
                region._windows.add(self)
            if len(region._revoked) > 64:
                region._is_touched()
            if token in self._unbound:
                # Once: no handler of a signal, and no other thread, runs between the two.
                del self._unbound[token]
                if place is not None:
                    place._free_place()

    def _keeps(self, region: MemoryRegion) -> bool:
        return self._region is region

    def close(self) -> None:
        """Release the window: no access of the peer begins from now on.

        One that is under way may end later: an Invalidate, or the deregistration of the memory,
        completes when it has ended.
        """
        self._closed = True
        if self._adapter._engine.alive:  # else it is the parent's
            with Attempted(self._binding) as alone:
                if alone:  # else the thread that binds it finds it closed
                    self._give_up_bind()
            self._drop()

    def __repr__(self) -> str:
        if self._closed or not self._is_bound():
            return f"<MemoryWindow {'closed' if self._closed else 'not bound'}>"
        return (
            f"<MemoryWindow bound: {self._length} bytes at {self._address:#x}, token "
            f"{self._token:#x}, {self._rights}, to {self._qp and self._qp()!r}>"
        )
