# SPDX-License-Identifier: Apache-2.0
"""The table of members: shared memory in which processes say that they wait, and where to be rung.

head | a page for each member

A member is an object of some process: one that waits, or one that others wait for. It holds a
lock of the kernel on its page as long as it lives (an OFD lock, of a file that it alone opened), so
a page whose lock is free belongs to no member, and the next one clears it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import weakref
from typing import TYPE_CHECKING, Final

from shmnd.common.descriptors import Descriptor
from shmnd.common.interruption import pass_on
from shmnd.common.shortages import memory_error
from shmnd.ipc.common.processes import own_process
from shmnd.ipc.common.ringer import ringer
from shmnd.ipc.common.shared_words import Words
from shmnd.ring.shared_memory.bounds import require_room
from shmnd.ring.shared_memory.segment import SparseMapping
from shmnd.status import Status, error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shmnd.common.owned import Owned

__all__ = ["GATE", "MEMBERS", "MemberTable", "holds_lock", "make_member_table", "take_lock"]

_MAGIC: Final = 0x6D6F6F72646E6873
_PAGE: Final = 4096
MEMBERS: Final = 1024
"""The most members of a table."""
_BYTES: Final = (1 + MEMBERS) * _PAGE
# Offsets in the head, and in the page of a member.
GATE: Final = 64
_JOINED: Final = 128  # a bit for each page that was ever used
_PAGE_ACTIVE, _PAGE_ARMED, _PAGE_ADDRESS, _PAGE_GATE, _PAGE_SIGNALS = 0, 8, 16, 64, 128
_PAGE_PID: Final = 1024
_WAITS, _ACTS = 1, 2  # values of _PAGE_ACTIVE; 0: the page has no member
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_LOCK: Final = "hhqqi4x"


def make_member_table(call: str) -> Descriptor:
    """Make the memory; return its descriptor."""
    try:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        made = Descriptor.of(os.memfd_create, "shmnd-room", flags)
        fd = made.fd
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, _BYTES)
        require_room(_PAGE, 0, call)
        os.posix_fallocate(fd, 0, _PAGE)
        os.pwrite(fd, struct.pack("Q", _MAGIC), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError as exc:
        pass_on(exc)
        what = f"{_PAGE} bytes of shared memory wanted"
        raise memory_error(call, what, exc, "free memory") from exc
    return made


def take_lock(fd: int, at: int) -> bool:
    """Take the lock of a byte; return False when another file has it."""
    wanted = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
    except (BlockingIOError, PermissionError):
        return False
    return True


def holds_lock(fd: int, at: int) -> bool:
    """Return whether another file has the lock of a byte: whether its owner lives."""
    if fd < 0:
        return False  # another thread has closed the table
    wanted = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
    try:
        found = struct.unpack(_LOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, wanted))
    except OSError as exc:
        if exc.errno != errno.EBADF:
            raise
        return False
    return bool(found[0] != fcntl.F_UNLCK)


class MemberTable:
    """A table as one object uses it. Takes the descriptor, which no other object may have."""

    def __init__(self, file: Owned, call: str) -> None:
        self._file = file
        self.fd = fd = file.fd
        self.number = -1
        try:
            self._ringer = ringer()
            size = os.fstat(fd).st_size
            sealed = fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            if size != _BYTES or not sealed or os.pread(fd, 8, 0) != struct.pack("Q", _MAGIC):
                raise error(
                    Status.INTERNAL_ERROR, call, "the memory was made by another release of shmnd"
                )
            # Not of the module mmap, whose mappings have descriptors of their own.
            self.words = Words(SparseMapping(fd, _BYTES, writable=True, call=call))
        except BaseException:
            self.drop()
            raise
        _all.add(self)

    def join(self, call: str, *, waits: bool = True) -> None:
        """Join as a member that waits, or as one whose death others are to detect."""
        for number in range(MEMBERS):
            if take_lock(self.fd, number):
                break
        else:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"{MEMBERS} objects are open under this name, which is the most; close some",
            )
        self.number = number
        page = self._page(number)
        require_room(_PAGE, 0, call)
        os.posix_fallocate(self.fd, page, _PAGE)
        self.words.store(page + _PAGE_ACTIVE, 0)
        self.words.clear(page + _PAGE_ARMED, _PAGE - _PAGE_ARMED)
        space, pid = own_process()
        self.words.store(page + _PAGE_PID, space << 32 | pid)
        self.words.store(page + _PAGE_ACTIVE, _WAITS if waits else _ACTS)
        self.words.set_bits(_JOINED + number // 64 * 8, 1 << number % 64)
        # Those that sleep at a bell watch this process from now on: they find the bit, or this
        # finds their addresses (SYNC join).
        self.words.joined()
        self.ring(self.members())

    def ring(self, members: Iterable[int]) -> None:
        """Ring those of the members that sleep by descriptor."""
        self._ringer.ring([address for each in members if (address := self.address_of(each))])

    def _page(self, number: int) -> int:
        return (1 + number) * _PAGE

    @property
    def gate(self) -> int:
        """Where this member's gate lies."""
        return self._page(self.number) + _PAGE_GATE

    @property
    def signals(self) -> int:
        """Where this member's signals lie."""
        return self._page(self.number) + _PAGE_SIGNALS

    def members(self) -> list[int]:
        """Return the members that wait, or that died, as numbers."""
        return [number for number in self._joined() if self._activity(number) == _WAITS]

    def pids(self) -> set[int]:
        """Return the processes of all other members; 0 for one that this process cannot name."""
        found: set[int] = set()
        if self.fd < 0:
            return found
        space = own_process().space
        for number in self._joined():
            word = self.words.load(self._page(number) + _PAGE_PID)
            if number != self.number and self._activity(number) and holds_lock(self.fd, number):
                pid = word & 0xFFFFFFFF
                # In another PID namespace it has another number here, if any.
                found.add(pid if word >> 32 == space and pid < 1 << 31 else 0)
        return found

    def _activity(self, number: int) -> int:
        return self.words.load(self._page(number) + _PAGE_ACTIVE)

    def _joined(self) -> list[int]:
        return self.words.bits(_JOINED, MEMBERS // 64)

    def lives(self, number: int) -> bool:
        """Return whether a member lives."""
        return number == self.number or holds_lock(self.fd, number)

    def gate_of(self, number: int) -> int:
        """Return where another member's gate lies."""
        return self._page(number) + _PAGE_GATE

    def signals_of(self, number: int) -> int:
        """Return where another member's signals lie."""
        return self._page(number) + _PAGE_SIGNALS

    # -- descriptors --

    def set_address(self, address: bytes) -> None:
        """Publish where this member is to be rung."""
        if len(address) > 40:
            raise ValueError(f"an address of {len(address)} bytes; at most 40")
        page = self._page(self.number)
        self.words.write(page + _PAGE_ADDRESS, bytes([len(address)]) + address.ljust(40, b"\0"))
        self.words.store(page + _PAGE_ARMED, 1)

    def address_of(self, number: int) -> bytes:
        """Return where a member is to be rung; nothing when it is not."""
        page = self._page(number)
        if not self.words.load(page + _PAGE_ARMED):
            return b""
        data = self.words.copy(page + _PAGE_ADDRESS, 41)
        return data[1 : 1 + data[0]] if data[0] <= 40 else b""

    def close(self) -> None:
        """End the membership. Harmless twice."""
        if self.fd < 0:
            return
        if self.number >= 0:
            self.words.store(self._page(self.number) + _PAGE_ACTIVE, 0)
        self.drop()

    def drop(self) -> None:
        """Close the descriptor alone, as in a child that was forked off."""
        self.fd = -1
        self._file.close()


_all: weakref.WeakSet[MemberTable] = weakref.WeakSet()


def _forked() -> None:
    """Drop the tables: a child that kept the files would keep the locks of its parent."""
    for table in list(_all):
        table.drop()


os.register_at_fork(after_in_child=_forked)
