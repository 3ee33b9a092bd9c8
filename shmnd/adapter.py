# SPDX-License-Identifier: Apache-2.0
"""The adapter: makes everything else, and owns the memory that its peers share."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from shmnd.address import (
    address_list_into,
    host_addresses,
    into,
    parse_host,
    require_local,
    writable_bytes,
)
from shmnd.broker.place import place_of
from shmnd.broker.protocol import name_of
from shmnd.common.arguments import all_within, parameter_status, seconds, shown, within, wrong_kind
from shmnd.common.closing import Closing, made_by
from shmnd.common.weak import Living, without_owner
from shmnd.completion_queue import CompletionQueue, check_affinity
from shmnd.connector import Connector
from shmnd.handshake.queue_pair_link import QpState
from shmnd.info import INFO_VERSIONS, LIMITS, AdapterInfo, requested_version
from shmnd.listener import Listener
from shmnd.memory_region import MemoryRegion
from shmnd.memory_window import MemoryWindow
from shmnd.overlapped import OverlappedFile, OverlappedObject, require_file
from shmnd.queue_pair import QueuePair
from shmnd.ring import Arena, Registry, Segment
from shmnd.ring.process.counters import CounterTable
from shmnd.ring.process.peer import Probe
from shmnd.ring.shared_memory.array import SharedArray
from shmnd.runtime.adapter_memory import AdapterMemory
from shmnd.runtime.bells import Bells
from shmnd.runtime.lent_segments import lent_segments
from shmnd.runtime.progress import ProgressEngine
from shmnd.shared_receive_queue import SharedReceiveQueue
from shmnd.status import Status, error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

__all__ = ["Adapter"]

_Made = TypeVar("_Made", bound=OverlappedObject)

_FIRST_READ_ONLY: Final = 1 << 30
"""Segments with these numbers (tables, bells, counters) are written by their owner alone."""
_DEPTH: Final = 64
"""Default depth of a queue pair's queues."""


@made_by("shmnd.open_adapter")
class Adapter(Closing):
    """An open adapter. Two adapters are independent, even for one address in one process.

    Closing it ends all objects created from it; arrays of `allocate` stay valid.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        *,
        namespace: str | None = None,
        rnr_timeout: float = 2.0,
        group: int | str | None = None,
        memory_limit: int | None = None,
    ) -> None:
        call = "open_adapter"
        self._host: Final = parse_host(host, call, 1)
        require_local(self._host, call)
        self._rnr_timeout: Final = seconds(call, 3, "rnr_timeout", rnr_timeout)
        if not 0 < self._rnr_timeout < 1e6:
            outside = f"rnr_timeout {shown(rnr_timeout)} is not above 0 and below 1e6 s"
            raise error(Status.INVALID_PARAMETER_3, call, outside)
        if memory_limit is not None:
            memory_limit = within(call, 5, "memory_limit", memory_limit, 1)
        self._key: Final = os.urandom(16).hex()
        self.uid: Final = name_of(self._key)
        self._limits: Final[AdapterInfo] = replace(LIMITS, adapter_id=uuid.getnode())
        self._closed = self._half_closed = False
        self._pairs: Living[QueuePair] = Living()
        self._objects: Living[Any] = Living()
        announce, withdraw = without_owner(self._announce), without_owner(self._withdraw)
        self._counter_table: Final = CounterTable(announce, self.uid)
        self._registry: Final = Registry(announce, self._counter_table)
        self._bells: Final = Bells(announce, withdraw)
        self._arena: Final = Arena(announce, withdraw, memory_limit)
        self._probe: Final = Probe()
        try:
            self._engine: Final = ProgressEngine.of(self.uid, namespace, group)
            self._place = place_of(namespace, group=group)
            self._memory = AdapterMemory(self._arena, self._place, LIMITS.max_registration_size)
            self._counter_table.open(self._place.mark)
            self._engine.register_adapter(self, {"probe": [self._probe.address, self._probe.nonce]})
        except BaseException:
            self._closed = True
            ProgressEngine.give_back(self)
            self._counter_table.close()
            raise

    # -- for the progress engine and the objects --

    def _check_open(self, call: str) -> None:
        """Raise DEVICE_REMOVED when the adapter is closed, or was opened before fork()."""
        if self._closed:
            raise error(Status.DEVICE_REMOVED, call, "the adapter is closed; open another one")
        if not self._engine.alive:
            self._engine.check(call)

    def _segments(self) -> Iterator[tuple[int, int, int, bool]]:
        """Yield all shared segments: number, bytes, descriptor, whether peers may write."""
        tables, counters = self._registry.tables(), self._counter_table.segments()
        read_only = [*tables, *self._bells.read_only_segments(), *counters]
        written = [*self._bells.segments(), *self._arena.segments()]
        return lent_segments(written, read_only, self._withdraw)

    def _announce(self, seg: int, segment: Segment, call: str) -> None:
        """Share a new segment with the peers, before any token of it can reach them."""
        writable = seg < _FIRST_READ_ONLY and not segment.sealed
        # A table is announced again by its next use, or is in use by another thread already.
        kept = any(number == seg for number, _ in self._registry.tables())
        lent = segment.lend()
        if lent is None:
            raise error(Status.DEVICE_REMOVED, call, "the adapter was closed meanwhile")
        self._engine.announce_segment(self, seg, segment.size, lent.fd, writable, call, kept)

    def _withdraw(self, seg: int) -> None:
        """Withdraw a segment that is gone. Finalisers call this, so it only posts."""
        if not self._closed:
            self._engine.withdraw_segment(self, seg)

    # -- queries --

    def query(self) -> AdapterInfo:
        """Return the limits and abilities of this adapter."""
        self._check_open("Adapter.query")
        return replace(self._limits, info_version=INFO_VERSIONS[-1])

    def query_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with ND2_ADAPTER_INFO of the InfoVersion set in it; return the size."""
        call = "Adapter.query_into"
        self._check_open(call)
        with writable_bytes(call, buffer) as octets:
            version = requested_version(call, octets)
        return into(call, buffer, replace(self._limits, info_version=version).pack())

    def query_address_list(self) -> list[tuple[str, int]]:
        """Return the addresses of this adapter, with port 0."""
        self._check_open("Adapter.query_address_list")
        return [(host, 0) for host in host_addresses()]

    def query_address_list_into(self, buffer: Buffer | None) -> int:
        """Fill a buffer with a SOCKET_ADDRESS_LIST; return its size, or raise BUFFER_OVERFLOW."""
        call = "Adapter.query_address_list_into"
        self._check_open(call)
        return address_list_into(call, buffer, self.query_address_list())

    # -- memory --

    def allocate(
        self,
        nbytes: int,
        *,
        peers: Literal["write", "read"] = "write",
        name: str | None = None,
    ) -> SharedArray:
        """Return zeroed shared memory; data registered in it moves without an intermediate copy.

        It is freed when the last view of it is gone, also after the adapter is closed. With
        `peers="read"` no other process can write it: peers may Read it and map it
        (`QueuePair.view`), and it takes no grant to Write. With a `name` ("/results") it is a POSIX
        segment that other processes of this user can open, and to peers as memory of `attach`; the
        name is removed when the array is gone or the adapter closes.
        """
        self._check_open("Adapter.allocate")
        if name is None:
            return self._memory.allocate(nbytes, peers)
        return self._memory.allocate_named(name, nbytes, peers)

    def allocate_segment(
        self, nbytes: int, *, peers: Literal["write", "read"] = "write"
    ) -> SharedArray:
        """Return zeroed shared memory as `allocate` does, in a segment of its own.

        It is given back to the system as soon as its array is gone, however small it is.
        """
        self._check_open("Adapter.allocate_segment")
        return self._memory.allocate_segment(nbytes, peers)

    def locate(self, buffer: Buffer | SharedArray) -> tuple[int, int]:
        """Return the segment and the offset of memory of `allocate`, which name it to neighbours.

        A process that has met this adapter maps it by them (`Neighbour.view`).
        """
        self._check_open("Adapter.locate")
        return self._memory.locate(buffer)

    def attach(
        self, segment: object, *, writable: bool = True, trusted: bool = False
    ) -> SharedArray:
        """Return an array in shared memory that has a name or a descriptor already.

        `segment` is a posix_ipc.SharedMemory, a multiprocessing.shared_memory.SharedMemory, a name,
        a path in /dev/shm or a descriptor; it may be closed afterwards. The array keeps the memory
        mapped. Another process can truncate it, unless its size is sealed: requests that use it
        then fail, and no access by this library is a signal. With `trusted` this process copies to
        and from it directly, which is faster and ends in SIGBUS when its owner truncates it; peers
        map it only if its size is sealed.
        """
        self._check_open("Adapter.attach")
        return self._memory.attach(segment, writable=writable, trusted=trusted)

    def create_memory_region(
        self, *, overlapped_file: OverlappedFile | None = None
    ) -> MemoryRegion:
        """Create a region, which registers a buffer."""
        call = "Adapter.create_memory_region"
        self._check_open(call)
        return self._keep(MemoryRegion(self, require_file(overlapped_file, self, call)))

    def create_memory_window(self) -> MemoryWindow:
        """Create a window, which grants one peer access to a part of a region."""
        self._check_open("Adapter.create_memory_window")
        return MemoryWindow(self)

    # -- queues --

    def create_overlapped_file(self) -> OverlappedFile:
        """Create a file that delivers operations when they complete."""
        self._check_open("Adapter.create_overlapped_file")
        return OverlappedFile(self)

    def create_completion_queue(
        self,
        depth: int,
        *,
        overlapped_file: OverlappedFile | None = None,
        group: int = 0,
        affinity: int = 0,
    ) -> CompletionQueue:
        """Create a completion queue for `depth` results. An affinity has no effect."""
        call = "Adapter.create_completion_queue"
        self._check_open(call)
        file = require_file(overlapped_file, self, call)
        depth = within(call, 3, "depth", depth, 1, self._limits.max_completion_queue_depth)
        check_affinity(call, 4, group, affinity)
        return self._keep(CompletionQueue(self, depth, file))

    def create_shared_receive_queue(
        self,
        depth: int,
        max_request_sge: int = 1,
        notify_threshold: int = 0,
        *,
        overlapped_file: OverlappedFile | None = None,
        group: int = 0,
        affinity: int = 0,
    ) -> SharedReceiveQueue:
        """Create a queue of Receives that several queue pairs share.

        Its Notify completes when fewer than `notify_threshold` are outstanding; with 0, never.
        """
        call = "Adapter.create_shared_receive_queue"
        self._check_open(call)
        file = require_file(overlapped_file, self, call)
        most = self._limits.max_shared_receive_queue_depth
        depth = within(call, 3, "depth", depth, 0, most)
        sge = within(call, 4, "max_request_sge", max_request_sge, 0, self._limits.max_receive_sge)
        threshold = within(call, 5, "notify_threshold", notify_threshold, 0, most)
        check_affinity(call, 6, group, affinity)
        return self._keep(SharedReceiveQueue(self, depth, max(4, sge), threshold, file))

    def create_queue_pair(
        self,
        receive_cq: CompletionQueue,
        initiator_cq: CompletionQueue,
        *,
        context: object = None,
        receive_depth: int = _DEPTH,
        initiator_depth: int = _DEPTH,
        max_receive_sge: int = 1,
        max_initiator_sge: int = 1,
        inline_size: int = 0,
    ) -> QueuePair:
        """Create a queue pair. Receives complete on `receive_cq`, all else on `initiator_cq`.

        Both may be one queue. `context` comes back in each result. A depth is how many requests may
        be outstanding, `inline_size` how many bytes one may pass inline. The granted number of
        scatter/gather elements may be larger than the requested one.
        """
        call = "Adapter.create_queue_pair"
        self._check_open(call)
        self._own_queue(call, 2, "receive_cq", receive_cq, CompletionQueue)
        self._own_queue(call, 3, "initiator_cq", initiator_cq, CompletionQueue)
        limits = self._limits
        depths = all_within(
            call,
            (5, "receive_depth", receive_depth, limits.max_receive_queue_depth),
            (6, "initiator_depth", initiator_depth, limits.max_initiator_queue_depth),
            (7, "max_receive_sge", max_receive_sge, limits.max_receive_sge),
            (8, "max_initiator_sge", max_initiator_sge, limits.max_initiator_sge),
            (9, "inline_size", inline_size, limits.max_inline_data_size),
        )
        return self._pair(receive_cq, initiator_cq, None, context, depths)

    def create_queue_pair_with_srq(
        self,
        receive_cq: CompletionQueue,
        initiator_cq: CompletionQueue,
        srq: SharedReceiveQueue,
        *,
        context: object = None,
        initiator_depth: int = _DEPTH,
        max_initiator_sge: int = 1,
        inline_size: int = 0,
    ) -> QueuePair:
        """Create a queue pair that takes its Receives from a shared receive queue."""
        call = "Adapter.create_queue_pair_with_srq"
        self._check_open(call)
        self._own_queue(call, 2, "receive_cq", receive_cq, CompletionQueue)
        self._own_queue(call, 3, "initiator_cq", initiator_cq, CompletionQueue)
        self._own_queue(call, 4, "srq", srq, SharedReceiveQueue)
        limits = self._limits
        depths = all_within(
            call,
            (6, "initiator_depth", initiator_depth, limits.max_initiator_queue_depth),
            (7, "max_initiator_sge", max_initiator_sge, limits.max_initiator_sge),
            (8, "inline_size", inline_size, limits.max_inline_data_size),
        )
        depths |= {"receive_depth": 0, "max_receive_sge": 0}
        return self._pair(receive_cq, initiator_cq, srq, context, depths)

    def _pair(
        self,
        receive_cq: CompletionQueue,
        initiator_cq: CompletionQueue,
        srq: SharedReceiveQueue | None,
        context: object,
        depths: dict[str, int],
    ) -> QueuePair:
        pair = QueuePair(self, self._registry, receive_cq, initiator_cq, srq, context, depths)
        self._pairs.add(pair)
        if srq is not None:
            srq._tick()  # its waiter polls one more queue now
        return pair

    def _own_queue(self, call: str, number: int, name: str, queue: object, kind: type[Any]) -> None:
        why = f"the {kind.__name__} is closed; make a new one"
        if not isinstance(queue, kind):
            why = wrong_kind(queue, kind.__name__)
        elif queue._adapter is not self:
            why = f"the {kind.__name__} is of another adapter"
        elif not queue._closed:
            return
        raise error(parameter_status(number), call, f"{name}: {why}")

    # -- connections --

    def create_connector(self, *, overlapped_file: OverlappedFile | None = None) -> Connector:
        """Create a connector, for one connection of one queue pair."""
        call = "Adapter.create_connector"
        self._check_open(call)
        return self._keep(Connector(self, require_file(overlapped_file, self, call)))

    def create_listener(self, *, overlapped_file: OverlappedFile | None = None) -> Listener:
        """Create a listener, which receives connection requests."""
        call = "Adapter.create_listener"
        self._check_open(call)
        return self._keep(Listener(self, require_file(overlapped_file, self, call)))

    # -- the end --

    def _keep(self, made: _Made) -> _Made:
        """Note an object, to close it with the adapter at the latest, and return it."""
        self._objects.add(made)
        return made

    def close(self) -> None:
        """Close the adapter: connections end, pending operations are cancelled."""
        if self._closed and not self._half_closed:
            return
        self._closed, self._half_closed = True, False
        try:
            self._close()
        except BaseException:
            self._half_closed = True  # of a signal handler: the next call, or the end, continues
            raise

    def _close(self) -> None:
        if self._engine.alive:
            for pair in self._pairs.snapshot():
                pair.close()
            objects = self._objects.snapshot()
            for made in sorted(objects, key=lambda made: isinstance(made, CompletionQueue)):
                made.close()
        self._memory.remove_names()
        self._arena.close()
        self._bells.close()
        for _, segment in self._registry.tables():
            segment.close_fd()  # mapped as long as something refers to it
        self._counter_table.close()
        self._engine.unregister_adapter(self)

    def __repr__(self) -> str:
        if self._closed:
            return f"<Adapter {self._host} closed>"
        if not self._engine.alive:
            return f"<Adapter {self._host} of the parent process>"
        connected = sum(pair._state == QpState.CONNECTED for pair in self._pairs.snapshot())
        return (
            f"<Adapter {self._host} open in process {os.getpid()}, namespace "
            f"{self._place.directory.name!r}, {connected} queue pairs connected>"
        )
