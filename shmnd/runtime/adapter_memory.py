# SPDX-License-Identifier: Apache-2.0
"""The shared memory of an adapter: allocated, allocated with a name, or adopted from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from shmnd.common.arguments import shown, truth_given, within
from shmnd.common.closing import when_dropped
from shmnd.common.weak import Living
from shmnd.ring import Segment, Sge
from shmnd.ring.shared_memory.array import SharedArray, shared_array
from shmnd.ring.shared_memory.held_buffer import copies_within_work
from shmnd.runtime.named_memory import NamedMemory, forget_all, open_segment
from shmnd.status import Status, error

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from shmnd.broker.place import Place
    from shmnd.ring import Arena

__all__ = ["AdapterMemory"]

_ALLOCATE: Final = "Adapter.allocate"


class AdapterMemory:
    """Carries out `allocate`, `allocate_segment`, `attach` and `locate` of an open adapter."""

    def __init__(self, arena: Arena, place: Place, most: int) -> None:
        self._arena: Final = arena
        self._place: Final = place
        self._most: Final = most
        self._names: Final[Living[NamedMemory]] = Living()

    def allocate(self, nbytes: int, peers: Literal["write", "read"]) -> SharedArray:
        """Return a piece of a segment."""
        nbytes = self._wanted(nbytes, peers, _ALLOCATE)
        return self._piece(nbytes, peers, alone=False)

    def allocate_segment(self, nbytes: int, peers: Literal["write", "read"]) -> SharedArray:
        """Return memory in a segment of its own."""
        nbytes = self._wanted(nbytes, peers, "Adapter.allocate_segment")
        return self._piece(nbytes, peers, alone=True)

    def allocate_named(
        self, name: str, nbytes: int, peers: Literal["write", "read"]
    ) -> SharedArray:
        """Return a POSIX segment, whose name lasts as long as the array or the adapter."""
        nbytes = self._wanted(nbytes, peers, _ALLOCATE)
        if peers == "read":
            raise error(
                Status.INVALID_PARAMETER_MIX,
                _ALLOCATE,
                "peers='read' with a name: the kernel seals no memory that can be opened by name",
            )
        self._place.make()  # the directory of the record
        made = NamedMemory(name, nbytes, self._place.directory, _ALLOCATE)
        try:
            mapped = Segment.adopt(made.file, writable=True, call=_ALLOCATE)
        except BaseException:
            made.forget()
            raise
        self._names.add(made)
        when_dropped(mapped, made.forget)
        return self._shown(mapped, _ALLOCATE)

    def attach(self, segment: object, *, writable: bool, trusted: bool) -> SharedArray:
        """Return an array in memory of another owner."""
        call = "Adapter.attach"
        writable = truth_given(call, 2, "writable", writable)
        trusted = truth_given(call, 3, "trusted", trusted)
        opened = open_segment(segment, writable, call)
        return self._shown(
            Segment.adopt(opened, writable=writable, trusted=trusted, call=call), call
        )

    def locate(self, buffer: Buffer | SharedArray) -> tuple[int, int]:
        """Return the segment and the offset of allocated memory."""
        sge = Sge(buffer, None, 0)
        found = self._arena.locate(sge.address, sge.length)
        if found is None:
            raise error(
                Status.INVALID_PARAMETER_1,
                "Adapter.locate",
                f"{sge.length} bytes at {sge.address:#x} are not memory of this adapter: pass what "
                "Adapter.allocate returned, or a part of it",
            )
        segment, offset, _ = found
        return segment, offset

    def remove_names(self) -> None:
        """Remove all names; the memory stays until its last mapping is gone."""
        forget_all(self._names.snapshot())

    def _wanted(self, nbytes: int, peers: str, call: str) -> int:
        nbytes = within(call, 1, "nbytes", nbytes, 1)
        if nbytes > self._most:
            raise error(
                Status.INSUFFICIENT_RESOURCES,
                call,
                f"{shown(nbytes)} bytes wanted, at most {self._most} register",
            )
        if peers not in ("write", "read"):
            raise error(
                Status.INVALID_PARAMETER_2,
                call,
                f"peers {shown(peers)} is neither 'write' nor 'read'",
            )
        return nbytes

    def _piece(self, nbytes: int, peers: str, *, alone: bool) -> SharedArray:
        return shared_array(memoryview(self._arena.allocate(nbytes, peers == "read", alone)))

    def _shown(self, mapped: Segment, call: str) -> SharedArray:
        """Return the array of an adopted segment; peers map a sealed one."""
        if mapped.fragile and not copies_within_work():
            raise error(
                Status.NOT_SUPPORTED,
                call,
                "another process can truncate this memory, and the kernel does not let this one "
                "copy safely (process_vm_readv is filtered); pass trusted=True if its owner is",
            )
        whole = self._arena.adopt(mapped) if mapped.fd >= 0 else mapped
        return shared_array(memoryview(whole))
