# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The allocator of shared memory behind `Adapter.allocate`.

Small blocks are allocated from common segments and reused by size class; a large block has a
segment of its own, which is released together with it. A `Block` is the base object of the numpy
array that the user holds: it is freed when the last view of it is gone and never before, and its
segment stays mapped as long as any block in it exists.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdlib cimport free, realloc
from libc.string cimport memset

import sys
from bisect import bisect_right

from shmnd.ring.shared_memory.segment cimport Segment

from shmnd.ring.shared_memory.bounds import Bound, no_room
from shmnd.status import Status, error

_LINE = 64
_OWN_SEGMENT = 1 << 20
_FIRST_SEGMENT = 1 << 20
_MOST_SEGMENT = 16 << 20
_MOST_SEGMENTS = 1 << 29  # the numbers of data segments (layout.h)

# Kept by this module: its own globals may be gone when the last blocks end.
cdef object _is_finalizing = sys.is_finalizing


def _class_bytes(nbytes: int) -> int:
    """Return the size to which a small block is rounded up: four classes to each power of two."""
    if nbytes <= _LINE:
        return _LINE
    step = max(_LINE, 1 << (nbytes - 1).bit_length() - 3)
    return (nbytes + step - 1) // step * step


cdef struct Place:
    int seg
    size_t offset


@cython.internal
cdef class FreePlaces:
    """The places of one size and kind that wait for use. A place returns without an allocation:
    each has its room here from when it was first taken.
    """

    cdef Place *places
    cdef Py_ssize_t waiting
    cdef Py_ssize_t made
    cdef Py_ssize_t room

    cdef int add(self) except -1:
        """Make room for one more place."""
        cdef Place *longer
        if self.made == self.room:
            longer = <Place *>realloc(self.places, (self.room * 2 + 8) * sizeof(Place))
            if longer == NULL:
                raise MemoryError
            self.places = longer
            self.room = self.room * 2 + 8
        self.made += 1
        return 0

    cdef void put(self, int seg, size_t offset) noexcept:
        self.places[self.waiting].seg = seg
        self.places[self.waiting].offset = offset
        self.waiting += 1

    cdef Place take(self) noexcept:
        self.waiting -= 1
        return self.places[self.waiting]

    def __dealloc__(self):
        free(self.places)


@cython.no_gc_clear  # its end needs the arena
cdef class Block:
    """A block of an arena. Exports its bytes; its end frees them."""

    cdef readonly Arena arena
    cdef readonly int seg
    cdef readonly size_t offset
    cdef readonly size_t nbytes
    cdef readonly size_t capacity
    cdef readonly bint alone
    cdef Segment _segment
    cdef object _number  # of its segment, made before: its end allocates nothing
    cdef FreePlaces _free

    @property
    def address(self) -> int:
        """Its address in this process."""
        return 0 if self._segment is None else <size_t>self._segment.base + self.offset

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self._segment is None:
            raise BufferError("a block is made by its arena")
        PyBuffer_FillInfo(view, self, self._segment.base + self.offset, self.nbytes,
                          not self._segment.writable, flags)

    def __dealloc__(self):
        if self.arena is not None:
            self.arena._returned(self)


def _closed_meanwhile(call):
    return error(Status.DEVICE_REMOVED, call, "the adapter was closed meanwhile")


@cython.no_gc_clear  # blocks that end later in the same garbage return to it
cdef class Arena:
    """The shared data memory of one adapter.

    `announce(seg, segment, call)` is called with each new segment before a block of it is
    returned, and `withdraw(seg)` when a segment was released; a finaliser may call that, so it
    must not wait. With a `limit`, the segments have at most that many bytes in total. Their
    numbers, of which none is used twice, begin at `first`.
    """

    cdef object _announce, _withdraw
    cdef dict _segments          # number -> Segment
    cdef dict _free              # (size class, sealed) -> FreePlaces
    cdef list _starts            # address -> segment, for `locate`: sorted
    cdef list _numbers
    cdef int _next_seg
    cdef int _seg[2]             # current segment of each kind: writable for peers, and sealed
    cdef size_t _used[2]
    cdef size_t _grow[2]
    cdef bint _closed
    cdef object _limit
    cdef long long _bytes

    def __init__(self, announce, withdraw, limit=None, first=0):
        if self._segments is not None:
            raise TypeError("an arena is made once")
        self._announce = announce
        self._withdraw = withdraw
        self._segments = {}
        self._free = {}
        self._starts = []
        self._numbers = []
        self._next_seg = first
        self._seg[0] = self._seg[1] = -1
        self._grow[0] = self._grow[1] = _FIRST_SEGMENT
        self._limit = limit
        self._bytes = 0

    def allocate(self, nbytes: int, sealed: bool = False, alone: bool = False) -> Block:
        """Return a block of `nbytes` zeros; peers may only read a `sealed` one.

        A block that is `alone` has a segment of its own, however small it is.
        """
        # First: from where a place is taken on, nothing may fail. A new object can also start a
        # collection, whose finalisers let other threads in.
        cdef Block block = Block.__new__(Block)
        cdef FreePlaces places
        cdef int kind = sealed
        if alone or nbytes >= _OWN_SEGMENT:
            capacity = (nbytes + 4095) & ~4095
            return self._block_alone(block, self._new_segment(capacity, sealed), nbytes, capacity)
        capacity = _class_bytes(nbytes)
        block.nbytes, block.capacity = nbytes, capacity
        key = capacity, kind
        places = self._free.get(key)
        if places is None:
            places = self._free[key] = FreePlaces()
        block._free = places
        if places.waiting:
            return self._block_again(block, places)
        return self._new_block(block, places, kind)

    cdef Block _block_again(self, Block block, FreePlaces places):
        """Make a block at a place that was in use before."""
        cdef Place place = places.take()
        try:
            block._segment = self.segment(place.seg)
        except BaseException:
            places.put(place.seg, place.offset)
            raise
        block.seg, block.offset, block.arena = place.seg, place.offset, self
        memset(block._segment.base + block.offset, 0, block.capacity)
        return block

    cdef Block _new_block(self, Block block, FreePlaces places, int kind):
        """Make a block behind the last one of the current segment, or in a new segment."""
        cdef int seg
        cdef size_t taken
        if (self._seg[kind] < 0
                or self._used[kind] + block.capacity > self.segment(self._seg[kind]).size):
            self._seg[kind] = self._new_segment(self._room_for(block.capacity, kind), kind)
            self._used[kind] = 0
            self._grow[kind] = min(self._grow[kind] * 2, _MOST_SEGMENT)
        places.add()
        seg, taken = self._seg[kind], self._used[kind]
        try:
            block._segment = self.segment(seg)
        except BaseException:
            places.made -= 1
            raise
        self._used[kind] += block.capacity
        block.seg, block.offset, block.arena = seg, taken, self
        return block

    def _room_for(self, capacity: int, kind: int) -> int:
        """Return the size of the next common segment: smaller near a limit."""
        grow = self._grow[<int>kind]
        if self._limit is None:
            return grow
        return min(grow, max(capacity, (self._limit - self._bytes) & ~4095))

    cdef Segment segment(self, object seg):
        segment = self._segments.get(seg)
        if segment is None:
            raise _closed_meanwhile("Adapter.allocate")
        return <Segment>segment

    cdef Block _block_alone(self, Block block, object number, size_t nbytes, size_t capacity):
        """Make a block all of a segment, which ends with it."""
        block._segment = self.segment(number)
        block._number = number
        block.seg = number
        block.nbytes, block.capacity = nbytes, capacity
        block.alone = True
        block.arena = self
        return block

    cdef object _new_segment(self, size_t nbytes, bint sealed):
        call = "Adapter.allocate"
        if self._limit is not None and self._bytes + nbytes > self._limit:
            left = max(0, self._limit - self._bytes)
            name = f"memory_limit of its adapter ({self._limit})"
            raise no_room(nbytes, Bound(left, name, "open the adapter with a larger one"), call)
        self._bytes += nbytes  # other threads run while the kernel makes it
        try:
            segment = Segment.create(nbytes, label="data", writable=not sealed, call=call)
        finally:
            self._bytes -= nbytes
        return self._enter(segment, call)

    def adopt(self, segment: Segment) -> Block:
        """Announce a segment that was made elsewhere to peers; return all of it as one block."""
        cdef Block block = Block.__new__(Block)
        number = self._enter(segment, "Adapter.attach")
        return self._block_alone(block, number, segment.size, segment.size)

    cdef object _enter(self, Segment segment, str call):
        # Other threads enter segments while this one is announced: its number is taken before.
        announce = self._announce
        if announce is None:
            raise _closed_meanwhile(call)
        if self._next_seg == _MOST_SEGMENTS:
            raise error(Status.INSUFFICIENT_RESOURCES, call,
                        f"this adapter has made {_MOST_SEGMENTS} segments in its life, which are "
                        "all that it can make; close it and open a new one")
        cdef object seg = self._next_seg  # an object from the start: to make one may fail
        self._next_seg += 1
        # Before it is announced: a broker that starts in between gets it, too. And before it is
        # counted: this may find no memory.
        self._segments[seg] = segment
        self._bytes += segment.counted
        try:
            announce(seg, segment, call)
            if self._closed:
                raise _closed_meanwhile(call)
            if len(self._numbers) >= len(self._segments):
                self._forget_ended()
            at = bisect_right(self._starts, segment.address)
            self._starts.insert(at, segment.address)
            try:
                self._numbers.insert(at, seg)
            except BaseException:
                del self._starts[at]
                raise
        except BaseException:
            self._segments.pop(seg, None)
            self._bytes -= segment.counted
            withdraw = self._withdraw
            if withdraw is not None:  # a handler of a signal may have raised after it was announced
                withdraw(seg)
            raise
        return seg

    cdef _forget_ended(self):
        """Leave out the addresses of segments that have ended."""
        cdef list starts, numbers, found
        cdef Py_ssize_t at, count
        while True:
            found, count = self._numbers, len(self._numbers)
            kept = [at for at in range(count) if found[at] in self._segments]
            starts, numbers = [self._starts[at] for at in kept], [found[at] for at in kept]
            # A finaliser that ran within may have entered another segment.
            if self._numbers is found and len(found) == count:
                self._starts, self._numbers = starts, numbers
                return

    cdef _returned(self, Block block):
        """Free the memory of a block. Called by its deallocation: never raises."""
        if self._closed:
            return  # the block held the last reference to the segment
        if not block.alone:
            block._free.put(block.seg, block.offset)
            return
        # Without an allocation, which may fail, as far as this process is concerned. So its address
        # stays until the next segment comes: a list that becomes shorter allocates.
        seg = block._number
        self._segments.pop(seg, None)
        self._bytes -= block._segment.counted
        block._segment.close_fd()
        # The end of an interpreter clears the modules that withdraw it; it ends the process anyway.
        if not _is_finalizing():
            withdraw = self._withdraw
            if withdraw is not None:  # else another thread has closed the arena meanwhile
                withdraw(seg)

    def locate(self, address: int, nbytes: int) -> tuple | None:
        """Return (segment, offset, sealed) of a range within one segment; otherwise None."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        seg = self._numbers[at]
        offset = address - self._starts[at]
        segment = self._segments.get(seg)
        if segment is None or offset + nbytes > (<Segment>segment).size:
            return None
        return seg, offset, (<Segment>segment).sealed

    def segments(self) -> list:
        """Return all segments, as (number, Segment)."""
        return sorted(self._segments.items())

    def close(self) -> None:
        """End allocation; a block stays mapped until its last view is gone."""
        self._closed = True
        self._announce = self._withdraw = None
        # A copy: the lock of the interpreter is released within, and another thread that enters a
        # segment takes it out again.
        for segment in list(self._segments.values()):
            (<Segment>segment).close_fd()
        self._segments.clear()
        self._starts.clear()
        self._numbers.clear()
