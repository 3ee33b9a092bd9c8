# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Registered memory: tokens, the regions and windows behind them, and the grants for peers.

The registry is private to an adapter. For an entry with remote rights it publishes a grant in a
table segment, which peers map read-only. tokens.h has the argument.
"""

import random
from collections import deque

from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.object cimport PyObject, PyTypeObject, inquiry, traverseproc, visitproc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.stdint cimport UINT64_MAX
from libc.string cimport memset
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from shmnd.ring cimport c
from shmnd.ring.process.counters cimport CounterTable
from shmnd.ring.shared_memory.held_buffer cimport HeldBuffer
from shmnd.ring.shared_memory.segment cimport Segment, lies_in_fragile

from shmnd.ring.shared_memory.held_buffer import is_mapped
from shmnd.status import Status, error

cdef uint32_t _MOST = 1u << c.SHMND_TOKEN_INDEX_BITS
# An index is reused only while this many others are free, so that a token value returns late.
cdef int _REST = 4096


cdef uint64_t _length(const c.shmnd_region *region) noexcept:
    """Return the length of a region, fragile or not."""
    return region.offset if region.rights & c.SHMND_MR_FRAGILE else region.length


cdef class Registry:
    """The regions and windows of one adapter. `announce(seg, segment, call)` announces a table to
    peers; the regions are counted in `counter_table`."""

    def __cinit__(self, announce, CounterTable counter_table not None):
        # Reserved as a whole, so that an entry never moves; pages are committed on use.
        cdef void *at = mmap(NULL, _MOST * sizeof(c.shmnd_region), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if at != MAP_FAILED:
            self.raw.regions = <c.shmnd_region *>at
        self._generations = <uint16_t *>calloc(_MOST, sizeof(uint16_t))
        if at == MAP_FAILED or self._generations == NULL:
            raise error(Status.INSUFFICIENT_RESOURCES, "open_adapter",
                        f"no address space for a registry of {_MOST} regions (ulimit -v)")

        self._announce = announce
        self._counter_table = counter_table
        self._held_up = {}
        self._held = {}
        self._free = deque()
        self._tables = []

    def __dealloc__(self):
        if self.raw.regions != NULL:
            self.forget_contexts()
            munmap(self.raw.regions, _MOST * sizeof(c.shmnd_region))
        free(self._generations)
        PyMem_RawFree(self._qps)

    # -- queue pairs, whose hazard words Deregister checks --

    cdef add_qp(self, c.shmnd_qp *qp):
        cdef void *grown
        if self._qp_count == self._qp_room:
            grown = PyMem_RawRealloc(self._qps, (self._qp_room * 2 + 16) * sizeof(self._qps[0]))
            if grown == NULL:
                raise MemoryError
            self._qps = <c.shmnd_qp **>grown
            self._qp_room = self._qp_room * 2 + 16
        self._qps[self._qp_count] = qp
        self._qp_count += 1

    cdef void remove_qp(self, c.shmnd_qp *qp) noexcept:
        cdef uint32_t i
        for i in range(self._qp_count):
            if self._qps[i] == qp:
                self._qp_count -= 1
                self._qps[i] = self._qps[self._qp_count]
                return

    cdef uint64_t new_serial(self):
        """Return a number for a connection, unique in this registry."""
        self._serials += 1
        return self._serials

    # -- entries --

    cdef uint32_t _new_token(self) except 0:
        cdef uint32_t index, first = 0
        if len(self._free) <= _REST and self.raw.count != _MOST:
            first = random.randrange(1 << 14)  # meanwhile another thread may take a token
        if len(self._free) > _REST or self.raw.count == _MOST:
            if not self._free:
                raise error(Status.INSUFFICIENT_RESOURCES, "register",
                            f"all {_MOST} registrations of this adapter are in use")
            index = self._free.popleft()
        else:
            index = self.raw.count
            self._generations[index] = first
            self.raw.count += 1
        cdef uint32_t generation = (self._generations[index] + 1) & 0x3FFF
        self._generations[index] = generation if generation else 1
        return <uint32_t>self._generations[index] << c.SHMND_TOKEN_INDEX_BITS | index

    cdef c.shmnd_region *_take(self, uint64_t address, uint64_t length, uint32_t rights,
                               uint32_t segment, uint64_t offset) except NULL:
        cdef uint32_t token = self._new_token()
        cdef c.shmnd_region *region = &self.raw.regions[token & c.SHMND_TOKEN_INDEX_MASK]
        region.base = address
        region.length = length
        region.offset = offset
        region.segment = segment
        region.token = token
        region.rights = rights
        region.posted = 0
        region.serial = 0
        region.context = NULL
        return region

    cdef c.shmnd_grant *_grant_of(self, uint32_t token) except NULL:
        """Return the entry of a token's grant, in a table that was announced to peers."""
        cdef uint32_t table = (token & c.SHMND_TOKEN_INDEX_MASK) // c.SHMND_TABLE_ENTRIES
        if self.raw.tables[table] == NULL:
            segment = self._table(c.SHMND_FIRST_TABLE_SEGMENT + table)
            # Threads that come here at once announce the same segment, which the broker takes once.
            self._announce(c.SHMND_FIRST_TABLE_SEGMENT + table, segment, "MemoryRegion.register")
            self.raw.tables[table] = <c.shmnd_grant *>(<Segment>segment).base
        return c.shmnd_grant_entry(&self.raw, token)

    def _table(self, number: int) -> Segment:
        """Return a table segment, made once, and kept also when its announcement fails."""
        made = None
        while True:
            for known, segment in self._tables:
                if known == number:
                    return segment
            if made is not None:
                self._tables.append((number, made))
                return made
            made = Segment.create(c.SHMND_TABLE_ENTRIES * sizeof(c.shmnd_grant), label="table",
                                  writable=False, call="MemoryRegion.register")
            # Other threads run while the kernel makes it: one of them may have been here first.

    def tables(self) -> list:
        """Return the table segments, as (number, Segment)."""
        return list(self._tables)

    def register(self, buffer: object, rights: int, place: tuple | None) -> int:
        """Register memory and publish a grant of its remote rights; return its token.

        `buffer` is a HeldBuffer, which is held until `release`, or an object with `address` and
        `nbytes` whose memory the caller keeps alive.
        """
        cdef uint64_t address = buffer.address, length = buffer.nbytes
        if isinstance(buffer, HeldBuffer):
            if not buffer.held:
                raise error(Status.ACCESS_VIOLATION, "MemoryRegion.register",
                            "the buffer was released")
        elif not is_mapped(address, length):
            raise error(Status.ACCESS_VIOLATION, "MemoryRegion.register",
                        f"{length} bytes at {address:#x} are not all memory of this process")
        cdef uint32_t segment = place[0] if place else c.SHMND_PRIVATE_MEMORY
        cdef uint64_t offset = place[1] if place else 0
        cdef c.shmnd_region *region = self._take(address, length, rights, segment, offset)
        cdef uint32_t allowed = 0
        if place and place[2]:
            region.rights |= c.SHMND_MR_SEALED
        if not place and lies_in_fragile(address, length):
            region.rights |= c.SHMND_MR_FRAGILE
            region.offset, region.length = region.length, 0
        if rights & c.SHMND_MR_REMOTE_READ:
            allowed |= c.SHMND_ALLOW_READ
        if (rights & c.SHMND_MR_REMOTE_WRITE) == c.SHMND_MR_REMOTE_WRITE:
            allowed |= c.SHMND_ALLOW_WRITE
        if allowed:
            try:
                c.shmnd_grant_publish(self._grant_of(region.token), region, allowed, 0)
            except BaseException:
                self.release(region.token)
                raise
        if isinstance(buffer, HeldBuffer):
            (<HeldBuffer>buffer).registered = True
            self._held[region.token] = buffer
        self._counter_table.count_region(1, length)
        return region.token

    def take_arrived(self) -> None:
        """Take the messages that have arrived on all connections, as far as queues have room."""
        cdef uint32_t i
        cdef dict queues = {}
        for i in range(self._qp_count):
            if self._qps[i].state == c.SHMND_QP_CONNECTED:
                queue = (<object>self._qps[i].owner)._receive_cq
                queues[id(queue)] = queue
        for queue in queues.values():
            queue._gather()

    def withdraw(self, token: int) -> None:
        """Begin Deregister: no new access begins with this token."""
        cdef c.shmnd_region *region = c.shmnd_region_lookup(&self.raw, token)
        cdef c.shmnd_grant *grant = c.shmnd_grant_entry(&self.raw, token)
        if region == NULL:
            return
        if region.base != UINT64_MAX:  # else it is a window
            self._counter_table.count_region(-1, _length(region))
        # The token still finds the entry, for accesses that have to end; it covers no SGE.
        region.base = UINT64_MAX
        region.length = 0
        if region.rights & c.SHMND_MR_FRAGILE:
            region.offset = 0
        if grant != NULL and c.shmnd_relaxed32(&grant.token) == <uint32_t>token:
            c.shmnd_grant_revoke(grant)

    def settled(self, token: int) -> bool:
        """Return whether all accesses to the memory of a withdrawn token have ended."""
        self._drive()
        cdef uint64_t now = c.shmnd_coarse_ns(), since = self._held_up.pop(token, 0)
        cdef uint32_t i
        cdef bint touched = False
        for i in range(self._qp_count):
            if not c.shmnd_qp_has_released(self._qps[i], token, &since, now):
                touched = True
        if touched:
            self._held_up[token] = since
        release_contexts(&self.raw)
        return not touched

    cdef _drive(self):
        """Run prepared jobs and continue teardowns: the caller may be waiting only for those."""
        cdef uint32_t i
        cdef list owners = []
        for i in range(self._qp_count):
            if c.shmnd_qp_needs_progress(self._qps[i]):
                owners.append(<object>self._qps[i].owner)
        for owner in owners:
            owner._progress()

    def release(self, token: int) -> None:
        """End Deregister: the entry may be used again."""
        cdef c.shmnd_region *region = c.shmnd_region_lookup(&self.raw, token)
        if region != NULL:
            region.token = 0
            region.serial = 0
            self._forget_context(region)
            self._free.append(token & c.SHMND_TOKEN_INDEX_MASK)
            held = self._held.pop(token, None)
            if held is not None:
                (<HeldBuffer>held).registered = False

    cdef void forget_contexts(self) noexcept:
        cdef uint32_t index
        for index in range(self.raw.count):
            if self.raw.window_contexts == 0:
                break
            self._forget_context(&self.raw.regions[index])

    cdef void _forget_context(self, c.shmnd_region *region) noexcept:
        cdef void *context = c.shmnd_window_take_context(&self.raw, region)
        if context != NULL:
            Py_DECREF(<object>context)

    def bind(self, region_token: int, address: int, length: int, rights: int,
             connection: int, serial: int, context: object = None) -> int:
        """Publish a window on a region for one connection; return its token.

        `serial` is the queue pair's. `context` is the context of the completion in its receive
        queue when the peer invalidates the window; with None there is no completion.
        """
        cdef c.shmnd_region *region = c.shmnd_region_lookup(&self.raw, region_token)
        if region == NULL:
            raise error(Status.INVALID_PARAMETER_2, "QueuePair.bind", "the region is gone")
        cdef uint64_t offset = region.offset + (<uint64_t>address - region.base)
        cdef c.shmnd_region *window = self._take(address, length, 0, region.segment, offset)
        cdef c.shmnd_grant *grant
        try:
            grant = self._grant_of(window.token)
            if not self.covers(region_token, address, length):
                raise error(Status.ACCESS_VIOLATION, "QueuePair.bind",
                            "the region was deregistered meanwhile")
        except BaseException:
            self.release(window.token)
            raise
        c.shmnd_grant_publish(grant, window, rights, connection)
        # A window's token is for peers; it covers no SGE.
        window.base = UINT64_MAX
        window.length = 0
        window.serial = serial
        if context is not None:
            Py_INCREF(context)
            c.shmnd_window_set_context(&self.raw, window, <void *>context)
        return window.token

    def is_bound(self, token: int) -> bool:
        """Return whether this is the token of a window that neither side has invalidated."""
        cdef c.shmnd_region *region = c.shmnd_region_lookup(&self.raw, token)
        return region != NULL and region.serial != 0

    def rights(self, token: int) -> int:
        """Return the flags with which a region was registered."""
        cdef c.shmnd_region *region = c.shmnd_region_lookup(&self.raw, token)
        if region == NULL:
            return 0
        return region.rights & ~<uint32_t>(c.SHMND_MR_SEALED | c.SHMND_MR_FRAGILE)

    def is_sealed(self, token: int) -> bool:
        """Return whether this is a region in memory that peers map read-only."""
        cdef c.shmnd_region *region = c.shmnd_region_lookup(&self.raw, token)
        return region != NULL and bool(region.rights & c.SHMND_MR_SEALED)

    def covers(self, token: int, address: int, length: int) -> bool:
        """Return whether the region of a token contains this range."""
        cdef c.shmnd_region *region = c.shmnd_region_lookup(&self.raw, token)
        return (region != NULL and region.base <= address
                and address - region.base + length <= _length(region))


# -- garbage collection --

# The rule is in contexts.h.

cdef PyTypeObject *_type = <PyTypeObject *>Registry
cdef traverseproc _visit_attributes = _type.tp_traverse
cdef inquiry _clear_attributes = _type.tp_clear


cdef int _visit(PyObject *registry, visitproc visit, void *arg) except -1:
    cdef c.shmnd_contexts_walk walk
    cdef void **place
    cdef int stop = _visit_attributes(registry, visit, arg)
    memset(&walk, 0, sizeof(walk))
    while stop == 0:
        place = c.shmnd_registry_next_context(&(<Registry>registry).raw, &walk)
        if place == NULL:
            break
        stop = visit(<PyObject *>place[0], arg)
    return stop


cdef int _clear(object registry) except -1:
    (<Registry>registry).forget_contexts()
    return _clear_attributes(registry)


_type.tp_traverse = _visit
_type.tp_clear = _clear
