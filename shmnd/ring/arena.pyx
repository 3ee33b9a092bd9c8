# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Shared memory by the piece: what `Adapter.allocate` gives out.

Small pieces are cut from common segments and reused by size class; a large piece has a segment of
its own, which is given back to the system when the piece is. A piece is a `Block`, the base object
of the numpy array that the user holds: it is returned when the last view of it is gone and never
before, and its segment stays mapped as long as any piece of it lives.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.string cimport memset

from bisect import bisect_right

from shmnd.ring.segment cimport Segment

_LINE = 64
_OWN_SEGMENT = 1 << 20
_FIRST_SEGMENT = 1 << 20
_MOST_SEGMENT = 16 << 20


def _class_bytes(nbytes: int) -> int:
    """The size that a small piece is rounded up to: four steps to each doubling."""
    if nbytes <= _LINE:
        return _LINE
    step = max(_LINE, 1 << (nbytes - 1).bit_length() - 3)
    return (nbytes + step - 1) // step * step


cdef class Block:
    """A piece of an arena. Exports its bytes; returns them when it dies."""

    cdef readonly Arena arena
    cdef readonly int seg
    cdef readonly size_t offset
    cdef readonly size_t nbytes
    cdef readonly size_t capacity
    cdef readonly bint alone
    cdef Segment _segment

    @property
    def address(self) -> int:
        """Where it lies in this process."""
        return <size_t>self._segment.base + self.offset

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self._segment.base + self.offset, self.nbytes, 0, flags)

    def __dealloc__(self):
        if self.arena is not None:
            self.arena._returned(self)


cdef class Arena:
    """The shared data memory of one adapter.

    `announce(seg, segment, call)` is called with each new segment before a piece of it is given
    out, and `withdraw(seg)` when one was given back to the system; that may come from any
    finaliser, so it must not wait.
    """

    cdef object _announce, _withdraw
    cdef dict _segments          # number -> Segment
    cdef dict _free              # size class -> [(seg, offset)]
    cdef list _starts            # address -> segment, for `locate`: sorted
    cdef list _numbers
    cdef int _next_seg
    cdef int _seg
    cdef size_t _used
    cdef size_t _grow
    cdef bint _closed

    def __init__(self, announce, withdraw):
        self._announce = announce
        self._withdraw = withdraw
        self._segments = {}
        self._free = {}
        self._starts = []
        self._numbers = []
        self._next_seg = 0
        self._seg = -1
        self._grow = _FIRST_SEGMENT

    def allocate(self, nbytes: int) -> Block:
        """Give out `nbytes` zeros in shared memory."""
        if nbytes >= _OWN_SEGMENT:
            capacity = (nbytes + 4095) & ~4095
            return self._block(self._new_segment(capacity), 0, nbytes, capacity, True)
        capacity = _class_bytes(nbytes)
        waiting = self._free.get(capacity)
        if waiting:
            seg, offset = waiting.pop()
            block = self._block(seg, offset, nbytes, capacity, False)
            memset((<Block>block)._segment.base + <size_t>offset, 0, capacity)
            return block
        if self._seg < 0 or self._used + <size_t>capacity > self.segment(self._seg).size:
            self._seg = self._new_segment(self._grow)
            self._used = 0
            self._grow = min(self._grow * 2, _MOST_SEGMENT)
        block = self._block(self._seg, self._used, nbytes, capacity, False)
        self._used += capacity
        return block

    cdef Segment segment(self, int seg):
        return <Segment>self._segments[seg]

    cdef object _block(self, int seg, size_t offset, size_t nbytes, size_t capacity, bint alone):
        cdef Block block = Block.__new__(Block)
        block._segment = self.segment(seg)
        block.seg = seg
        block.offset = offset
        block.nbytes = nbytes
        block.capacity = capacity
        block.alone = alone
        block.arena = self
        return block

    cdef int _new_segment(self, size_t nbytes) except -1:
        segment = Segment.create(nbytes, label="data", call="Adapter.allocate")
        seg = self._next_seg
        self._announce(seg, segment, "Adapter.allocate")
        self._next_seg += 1
        self._segments[seg] = segment
        at = bisect_right(self._starts, segment.address)
        self._starts.insert(at, segment.address)
        self._numbers.insert(at, seg)
        return seg

    cdef _returned(self, Block block):
        """A block died. Called from its end of life: never raises."""
        if self._closed:
            return  # the block held the last reference to the segment
        seg = block.seg
        if not block.alone:  # not told by its capacity: rounding may reach a segment's own size
            self._free.setdefault(block.capacity, []).append((seg, block.offset))
            return
        at = self._numbers.index(seg)
        del self._numbers[at], self._starts[at]
        (<Segment>self._segments.pop(seg)).close()
        self._withdraw(seg)

    def locate(self, address: int, nbytes: int) -> tuple | None:
        """Give (segment, offset) of memory that lies wholly in one segment, else None."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        seg = self._numbers[at]
        offset = address - self._starts[at]
        if offset + nbytes > (<Segment>self._segments[seg]).size:
            return None
        return seg, offset

    def segments(self) -> list:
        """All segments, as (number, Segment)."""
        return sorted(self._segments.items())

    def close(self) -> None:
        """No more allocations; what lives stays mapped until its last view is gone."""
        self._closed = True
        self._announce = self._withdraw = None
        for segment in self._segments.values():
            (<Segment>segment).close_fd()
        self._segments.clear()
