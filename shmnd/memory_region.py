# SPDX-License-Identifier: Apache-2.0
"""Memory regions and windows: what of a process's memory is registered, and what of it is shared.

The rules of access are the data plane's (`shmnd.ring`); here is the life of the two objects: what
may be registered, what keeps a registration busy, and when a deregistration is over.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from shmnd.common.arguments import flags_given, integer, shown, within
from shmnd.common.closing import made_by, why_closed
from shmnd.common.held import Held
from shmnd.common.interruption import pass_on
from shmnd.common.objects import REMEDY
from shmnd.common.weak import Living
from shmnd.overlapped import Overlapped, OverlappedFile, OverlappedObject
from shmnd.ring import Sge
from shmnd.ring.process.peer import private_memory_is_reachable
from shmnd.ring.shared_memory.held_buffer import HeldBuffer, is_mapped
from shmnd.status import MrFlag, Status, error

if TYPE_CHECKING:
    from shmnd.handshake.interfaces import MemoryAdapter
    from shmnd.ring.interfaces import AnyBuffer, PlainInt

__all__ = ["MemoryRegion", "Sge"]

_KNOWN: Final = int(
    MrFlag.ALLOW_LOCAL_WRITE
    | MrFlag.ALLOW_REMOTE_READ
    | MrFlag.ALLOW_REMOTE_WRITE
    | MrFlag.RDMA_READ_SINK
    | MrFlag.DO_NOT_SECURE_VM
)
_NAMES: Final = ", ".join(MrFlag.__members__)
_WRITES: Final = int(MrFlag.ALLOW_LOCAL_WRITE | MrFlag.RDMA_READ_SINK)
_REMOTE: Final = int(MrFlag.ALLOW_REMOTE_READ) | (int(MrFlag.ALLOW_REMOTE_WRITE) & ~1)
_REMOTE_WRITE: Final = int(MrFlag.ALLOW_REMOTE_WRITE) & ~1
_PAUSE: Final = 0.001
"""Seconds between two checks whether a copy under way has ended."""


class _Bare:
    """Memory given as (address, length): the caller keeps it alive."""

    readonly = False

    def __init__(self, address: int, nbytes: int) -> None:
        self.address = address
        self.nbytes = nbytes

    def release(self) -> None:
        """Do nothing: no buffer is held."""


class _Window(Protocol):
    """A memory window, as its region sees it."""

    def _is_bound(self) -> bool: ...
    def _keeps_bound(self) -> bool: ...
    def _drop(self) -> int: ...


@made_by("Adapter.create_memory_region")
class MemoryRegion(OverlappedObject):
    """One registered buffer at a time. Any buffer, of any alignment, 1 byte to many GiB."""

    def __init__(self, adapter: MemoryAdapter, file: OverlappedFile | None) -> None:
        super().__init__(adapter._engine, file)
        self._adapter: Final = adapter
        self._token = 0
        self._flags = 0
        self._closed = False
        self._change = threading.RLock()
        """Held for the few assignments that register a buffer, or release it."""
        self._held: HeldBuffer | _Bare | None = None
        self._leaving = False
        self._left: dict[int, HeldBuffer | _Bare | None] = {}
        """The buffers that `_let_go` has yet to release, by token."""
        self._windows: Living[_Window] = Living()
        self._revoked: list[int] = []  # window tokens that a peer may still be copying by

    # -- registering --

    def register(
        self, buffer: AnyBuffer | tuple[int, int] | None, flags: MrFlag | PlainInt = 0
    ) -> Overlapped:
        """Register a buffer, or the memory at (address, length), which the caller keeps alive.

        A buffer is held until it is deregistered. Without ALLOW_LOCAL_WRITE or RDMA_READ_SINK it
        may be read-only and serves as a source.
        """
        call = "MemoryRegion.register"
        self._adapter._check_open(call)
        flags = _checked_flags(flags, call)
        self._require_free(call)
        held = _hold(buffer, call)
        try:
            self._check_size(held, flags, call)
            place = self._adapter._arena.locate(held.address, held.nbytes)
            if place is None and flags & _REMOTE and not private_memory_is_reachable():
                raise error(
                    Status.ACCESS_VIOLATION,
                    call,
                    f"{held.nbytes} bytes of private memory for remote access, but the kernel "
                    "does not let processes copy each other's memory (process_vm_readv); use "
                    "memory from Adapter.allocate",
                )
            if place is not None and place[2] and flags & _REMOTE_WRITE:
                raise error(
                    Status.ACCESS_VIOLATION,
                    call,
                    "ALLOW_REMOTE_WRITE on memory of allocate(peers='read'), which only this "
                    "process can write; use memory of allocate(peers='write')",
                )
            self._register_now(held, flags, place, call)
        except BaseException:
            held.release()
            raise
        overlapped = self._start(call)
        overlapped._complete(Status.SUCCESS)
        return overlapped

    def _require_free(self, call: str) -> None:
        if self._closed:
            raise error(Status.INVALID_DEVICE_STATE, call, why_closed(self._adapter, "region"))
        if self._token:
            raise error(
                Status.INVALID_DEVICE_STATE,
                call,
                "a buffer is registered here already; deregister it first",
            )

    def _register_now(
        self, held: HeldBuffer | _Bare, flags: int, place: tuple[int, int, bool] | None, call: str
    ) -> None:
        """Register it, unless the region was used or closed meanwhile.

        That can be done by another thread, or by the buffer, whose class may be in Python.
        """
        registry = self._adapter._registry
        token = registry.register(held, flags, place)
        with Held(self._change):
            free = not (self._token or self._closed)
            if free:
                self._token, self._held, self._flags = token, held, flags
                self._leaving = False
        if not free:
            registry.withdraw(token)
            registry.release(token)
            self._require_free(call)
            # It is free again by now: another thread has deregistered meanwhile.
            self._register_now(held, flags, place, call)

    def _check_size(self, held: HeldBuffer | _Bare, flags: int, call: str) -> None:
        most = self._adapter._limits.max_registration_size
        if held.nbytes == 0:
            raise error(Status.INVALID_BUFFER_SIZE, call, "a buffer of 0 bytes, at least 1 needed")
        if held.nbytes > most:
            raise error(
                Status.INVALID_PARAMETER, call, f"{shown(held.nbytes)} bytes, at most {most}"
            )
        if not (held.address and is_mapped(held.address, held.nbytes)):
            raise error(
                Status.ACCESS_VIOLATION,
                call,
                f"{held.nbytes} bytes at {held.address:#x} are not all memory of this process",
            )
        if held.readonly and flags & _WRITES:
            raise error(
                Status.ACCESS_VIOLATION,
                call,
                f"flags {flags:#x} ask for writing, the buffer of {held.nbytes} bytes is "
                "read-only; pass a bytearray or an array, or no such flags to send only",
            )

    # -- deregistering --

    def deregister(self) -> Overlapped:
        """Release the registration. Completes when no request accesses the memory any more."""
        call = "MemoryRegion.deregister"
        self._adapter._check_open(call)
        self._registered(call)
        bound = [window for window in self._windows.snapshot() if window._keeps_bound()]
        if bound:
            raise error(
                Status.DEVICE_BUSY, call, f"{len(bound)} windows are bound to it; invalidate them"
            )
        # The Sends of messages that have arrived may be complete: their Receives complete, too.
        self._adapter._registry.take_arrived()
        self._withdraw()
        overlapped = self._start(call, self._settled, self._too_late, "a copy under way to end")
        return overlapped._keeping(self)

    def _withdraw(self) -> None:
        self._leaving = True  # before: a Bind of another thread sees it, or its window is seen here
        self._adapter._registry.withdraw(self._token)
        for window in self._windows.snapshot():
            window._drop()

    def _settled(self) -> Status | None:
        if not self._let_go():
            self._engine.wake_at(time.monotonic() + _PAUSE)
            return None
        return Status.SUCCESS

    def _too_late(self, overlapped: Overlapped) -> bool:
        return False

    def _let_go(self) -> bool:
        """Release the buffer, if nothing uses it any more; return whether it is released."""
        if not self._leaving:
            self._release_left()  # by an interrupted call
            return True
        registry, leaving = self._adapter._registry, self._token
        if self._is_touched() or not registry.settled(leaving):
            return False
        with Held(self._change):
            if self._token != leaving:
                return True  # another thread has released it
            self._left[leaving] = self._held
            self._held, self._token, self._leaving = None, 0, False
        self._release_left()
        return True

    def _release_left(self) -> None:
        """Release what no request uses any more. An interrupted call is continued by the next."""
        for token, held in [*self._left.items()]:
            self._adapter._registry.release(token)
            if held is not None:
                held.release()
            self._left.pop(token, None)

    def _is_touched(self) -> bool:
        """Return whether a peer may still be copying by the token of a window."""
        for token in list(self._revoked):
            # Each by itself: a thread may unbind another window meanwhile, or be here as well.
            if self._adapter._registry.settled(token) and token in self._revoked:
                self._revoked.remove(token)
        return bool(self._revoked)

    # -- registered memory --

    @property
    def local_token(self) -> int:
        """The token for scatter/gather elements."""
        return self._registered("MemoryRegion.local_token")

    @property
    def remote_token(self) -> int:
        """The token for any connected peer's Read and Write, as the flags allow."""
        return self._registered("MemoryRegion.remote_token")

    @property
    def address(self) -> int:
        """The address of the buffer in this process."""
        self._registered("MemoryRegion.address")
        assert self._held is not None
        return self._held.address

    @property
    def length(self) -> int:
        """The length of the registered buffer in bytes."""
        self._registered("MemoryRegion.length")
        assert self._held is not None
        return self._held.nbytes

    def sge(self, offset: int = 0, length: int | None = None) -> Sge:
        """Return a scatter/gather element of this region; to its end when no length is given.

        INVALID_PARAMETER_1 or _2 for a range outside the region.
        """
        call = "MemoryRegion.sge"
        self._registered(call)
        offset = within(call, 1, "offset", offset, 0)
        room = self.length - offset
        if room < 0:
            raise error(
                Status.INVALID_PARAMETER_1,
                call,
                f"nothing is left from offset {shown(offset)} on, the region has {self.length} "
                "bytes",
            )
        if length is None:
            length = room
        elif within(call, 2, "length", length, 0) > room:
            raise error(
                Status.INVALID_PARAMETER_2,
                call,
                f"{shown(length)} bytes from offset {offset} on end outside the region of "
                f"{self.length} bytes; a Sge made by hand may, and fails when a request uses it",
            )
        return Sge(self.address + offset, length, self._token)

    def _registered(self, call: str) -> int:
        if not self._token or self._leaving:
            why = "no buffer is registered here; call register first"
            if self._closed:
                why = why_closed(self._adapter, "region")
            raise error(Status.INVALID_DEVICE_STATE, call, why)
        return self._token

    # -- the end --

    def close(self) -> None:
        """Release the region; registered memory is deregistered, now or as soon as possible."""
        super().close()
        with Held(self._change):
            self._closed = True
        if not self._engine.alive:
            return  # it is the parent's
        if self._token:
            self._withdraw()  # also where an interrupted call has begun to
        if not self._let_go() and self._engine.alive:
            self._engine.pending_operations.poll_until_done(self._let_go)

    def __repr__(self) -> str:
        held = self._held
        if held is None:
            return f"<MemoryRegion {'closed' if self._closed else 'without a buffer'}>"
        state = "being deregistered" if self._leaving else "registered"
        bound = sum(window._is_bound() for window in self._windows.snapshot())
        windows = f", {bound} windows bound" if bound else ""
        return (
            f"<MemoryRegion {state}: {held.nbytes} bytes at {held.address:#x}, "
            f"token {self._token:#x}, {_rights(self._flags)}{windows}>"
        )


def _rights(flags: int) -> str:
    """Return the names of the flags of a registration, without those that others contain."""
    named = [flag for flag in MrFlag.__members__.values() if flags & flag == flag]
    if MrFlag.ALLOW_REMOTE_WRITE in named:
        named.remove(MrFlag.ALLOW_LOCAL_WRITE)
    return "|".join(flag.name or "" for flag in named) or "a source only"


def _checked_flags(flags: object, call: str) -> int:
    number = flags_given(call, flags, MrFlag)
    if number & ~_KNOWN:
        raise error(
            Status.INVALID_PARAMETER_3,
            call,
            f"flags {number:#x} outside {_KNOWN:#x}; it takes {_NAMES}",
        )
    return number


def _hold(buffer: AnyBuffer | tuple[int, int] | None, call: str) -> HeldBuffer | _Bare:
    if buffer is None:
        raise error(
            Status.INVALID_PARAMETER, call, "no buffer (None); pass what Adapter.allocate returns"
        )
    if isinstance(buffer, tuple):
        return _bare(buffer, call)
    try:
        held = HeldBuffer(buffer)
    except TypeError:
        raise error(
            Status.ACCESS_VIOLATION,
            call,
            f"{type(buffer).__name__} object is not memory; pass a bytearray, a numpy array, or "
            "what Adapter.allocate returns",
        ) from None
    except (BufferError, ValueError) as exc:  # numpy raises the one, others the other
        pass_on(exc)
        raise error(
            Status.ACCESS_VIOLATION, call, f"the buffer is not contiguous ({exc}); copy it first"
        ) from exc
    if held.holds_objects():
        held.release()
        raise error(
            Status.ACCESS_VIOLATION,
            call,
            f"{type(buffer).__name__} of {REMEDY}",
        )
    return held


def _bare(buffer: tuple[int, ...], call: str) -> _Bare:
    numbers = [integer(value) for value in buffer]
    if numbers == [0, 0]:
        raise error(Status.INVALID_PARAMETER, call, "no buffer (address 0, 0 bytes)")
    match numbers:
        case [int(address), int(nbytes)] if 0 <= address < 1 << 64 and nbytes >= 0:
            return _Bare(address, nbytes)
    text = f"{shown(buffer)} names no memory by address and length"
    raise error(Status.ACCESS_VIOLATION, call, text)
