# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The board of a publisher: its lines, its slots by size classes, and its subscribers' seats."""

cimport cython
cimport numpy as cnp
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from shmnd.ipc.common.gate_c cimport shmnd_futex_wake
from shmnd.ipc.topic.topic_c cimport *
from shmnd.ring.process.forks cimport forks

cnp.import_array()

# Bounds of board.h, for the checks in Python.
MOST_SEATS = SHMND_MOST_SEATS
MOST_HELD = SHMND_MOST_HELD
LEAST_LINES_LOG = SHMND_LEAST_LINES_LOG


def class_bytes(number: int) -> int:
    """Return the bytes of a slot of a class."""
    return shmnd_class_bytes(number)


@cython.no_gc_clear  # loans that end later in the same garbage use its memory
cdef class WriterBoard:
    """The memory of a publisher, and the subscribers that it counts."""

    def __cinit__(self):
        cdef uint32_t i
        self.born = forks
        self.closed = True  # until it is opened
        self.b.slots.pending = SHMND_NO_SLOT
        self.memories = []
        self.pools = {}
        self.neighbours = {}
        for i in range(<uint32_t>SHMND_SLOT_CLASSES):
            self.b.slots.free[i] = SHMND_NO_SLOT

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.b.guest_count):
            PyMem_RawFree(self.b.guests[i].kept_slots)
        PyMem_RawFree(self.b.line_slots)
        PyMem_RawFree(self.b.slots.all)
        PyMem_RawFree(self.b.guests)

    cdef int require_board(self) except -1:
        """Raise TypeError before anything that needs shared memory, if there is none yet."""
        if self.b.head == NULL or self.b.guests == NULL or self.b.line_slots == NULL:
            raise TypeError("a board is opened by Publisher")
        return 0

    cdef shmnd_guest *guest_at(self, uint64_t seat) except NULL:
        """Return the subscriber of a seat."""
        self.require_board()
        if seat >= self.seats:
            raise IndexError(f"seat {seat} of {self.seats}")
        return &self.b.guests[seat]

    # -- memory --

    def _open(self, cnp.ndarray head not None, cnp.ndarray lines not None,
              cnp.ndarray sleepers not None, uint32_t seats, where, history):
        """Take the shared memory of a new board."""
        cdef cnp.ndarray[cnp.uint8_t] head_ = head
        cdef cnp.ndarray[cnp.uint8_t] lines_ = lines
        cdef cnp.ndarray[cnp.uint8_t] sleepers_ = sleepers
        cdef uint64_t count = lines_.shape[0] // 64
        if (self.b.head != NULL or count < 1 or count & (count - 1)
                or <uint64_t>head_.shape[0] < shmnd_head_bytes(seats)
                or <uint64_t>sleepers_.shape[0] < (<uint64_t>seats + 63) // 64 * 8):
            raise ValueError("a board is opened once, with memory for its seats")
        self.head_memory, self.lines_memory, self.sleepers_memory = head, lines, sleepers
        self.b.head = <shmnd_head *>head_.data
        self.b.lines = <shmnd_line *>lines_.data
        self.b.sleepers = <word64 *>sleepers_.data
        self.b.line_mask = count - 1
        self.b.line_slots = <uint32_t *>PyMem_RawRealloc(NULL, count * sizeof(uint32_t))
        self.b.guests = <shmnd_guest *>PyMem_RawRealloc(NULL, seats * sizeof(shmnd_guest))
        if self.b.line_slots == NULL or self.b.guests == NULL:
            raise MemoryError
        memset(self.b.line_slots, 0xFF, count * sizeof(uint32_t))
        memset(self.b.guests, 0, seats * sizeof(shmnd_guest))
        self.seats = seats
        self.b.history = history
        self.b.head.seats = seats
        self.b.head.history = history
        self.b.head.version = SHMND_BOARD_VERSION
        self.b.head.magic = SHMND_BOARD_MAGIC
        shmnd_put64(&self.b.head.where, where)
        # Before it is announced, so no subscriber reads yet.
        shmnd_put64(&self.b.head.state, SHMND_BOARD_OPEN)
        self.closed = False

    def _move(self, cnp.ndarray lines not None, where):
        """Move to a longer board."""
        cdef cnp.ndarray[cnp.uint8_t] lines_ = lines
        cdef uint64_t count = lines_.shape[0] // 64
        cdef uint32_t *old = self.b.line_slots
        self.require_board()
        if count <= self.b.line_mask or count & (count - 1):
            raise ValueError(f"{count} lines after {self.b.line_mask + 1}")
        cdef uint32_t *grown = <uint32_t *>PyMem_RawRealloc(NULL, count * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        shmnd_board_move(&self.b, <shmnd_line *>lines_.data, grown, count - 1, where)
        PyMem_RawFree(old)
        # The old lines stay as they are: readers that are still there find them withdrawn.
        self.memories.append(self.lines_memory)
        self.lines_memory = lines

    def _add_slots(self, cnp.ndarray memory not None, pool, number, uint64_t nbytes, group):
        """Enter the slots of a new pool segment, all of one class."""
        cdef cnp.ndarray[cnp.uint8_t] memory_ = memory
        cdef uint32_t i, first, each
        cdef shmnd_store *s
        self.require_board()
        if not 0 <= number < SHMND_SLOT_CLASSES or nbytes < shmnd_class_bytes(number):
            raise ValueError(f"slots of {nbytes} bytes of class {number}")
        each = <uint32_t>(<uint64_t>memory_.shape[0] // nbytes)
        first = self.room_for(each)
        for i in range(each):
            s = &self.b.slots.all[first + i]
            memset(s, 0, sizeof(shmnd_store))
            s.base = <unsigned char *>memory_.data + i * <uint64_t>nbytes
            s.offset = i * <uint64_t>nbytes
            s.pool = pool
            s.class_ = number
            s.group = group
            s.used = self.b.slots.period
        for i in range(each):
            shmnd_slots_free(&self.b.slots, first + each - 1 - i)
        self.live_slots += each
        self.pools[group] = memory

    cdef uint32_t room_for(self, uint32_t each) except? 0xFFFFFFFE:
        """Return the first of `each` numbers of slots in a row: of retired groups, or new ones."""
        cdef uint32_t i, run = 0, have = self.b.slots.count
        cdef void *grown
        for i in range(have):
            run = run + 1 if self.b.slots.all[i].state == SHMND_STORE_RETIRED else 0
            if run == each:
                return i + 1 - each
        grown = PyMem_RawRealloc(self.b.slots.all, (have + each) * sizeof(shmnd_store))
        if grown == NULL:
            raise MemoryError
        self.b.slots.all = <shmnd_store *>grown
        self.b.slots.count = have + each
        return have

    def _shrink(self, periods, passed=1):
        """Return to the system the groups of slots that were not used for so many periods.

        So many have `passed` since the last call.
        """
        cdef shmnd_slots *slots = &self.b.slots
        cdef uint32_t i = 0, group, since
        if self.closed:
            return
        slots.period += passed
        since = slots.period - min(<uint32_t>periods, slots.period)
        shmnd_board_reclaim(&self.b)
        while i < slots.count:
            group = slots.all[i].group
            if slots.all[i].state != SHMND_STORE_RETIRED:
                if shmnd_slots_idle(slots, i, since):
                    self.live_slots -= shmnd_slots_retire(slots, i)
                    # With the memory goes its segment, once no loan of this process refers to it.
                    self.pools.pop(group, None)
                    if group == self.near_group:
                        self.near_pool, self.near_group = None, 0
            i += 1
            while i < slots.count and slots.all[i].group == group:
                i += 1

    def _shrink_all(self):
        """Return to the system all memory that no sample needs; all subscribers are known."""
        if not self.closed:
            shmnd_board_reclaim_all(&self.b)
            self._shrink(0)

    @property
    def _slot_count(self):
        return self.live_slots

    @property
    def _pool_bytes(self):
        """The bytes of all slots."""
        return sum(memory.nbytes for memory in self.pools.values())

    # -- subscribers --

    def _seat(self, seat, page, most_held, policy, buffer, first, kept, neighbour):
        """Count a subscriber from now on; its `page` is memory of its own."""
        cdef shmnd_guest *here = self.guest_at(seat)
        cdef shmnd_guest guest
        cdef const unsigned char[::1] page_ = page
        cdef cnp.ndarray[cnp.uint8_t] kept_
        cdef uint64_t count
        if page is None or <uint64_t>page_.shape[0] < shmnd_page_bytes(most_held):
            raise ValueError(f"a page that is too small for {most_held} samples")
        if (policy == SHMND_DROP_NEWEST) != (kept is not None):
            raise ValueError("the first samples are kept for one that asks for them")
        memset(&guest, 0, sizeof(guest))
        guest.page = <shmnd_page *>&page_[0]
        guest.most_held = most_held
        guest.policy = policy
        guest.buffer = buffer
        if kept is not None:
            kept_ = kept
            count = kept_.shape[0] // 128
            if count < 1 or count & (count - 1):
                raise ValueError(f"{count} lines for samples that are kept")
            guest.kept = <shmnd_kept *>kept_.data
            guest.kept_mask = <uint32_t>(count - 1)
            guest.kept_slots = <uint32_t *>PyMem_RawRealloc(NULL, count * sizeof(uint32_t))
            if guest.kept_slots == NULL:
                raise MemoryError
        PyMem_RawFree(here.kept_slots)
        shmnd_board_seat(&self.b, seat, &guest, first)
        self.neighbours[seat] = (neighbour, page, kept)

    def _admit(self, seat, ident, kept_segment):
        self.guest_at(seat)
        shmnd_board_admit(&self.b, seat, ident, kept_segment)

    def _refuse(self):
        """Note that a subscriber has come while all seats are taken."""
        self.require_board()
        shmnd_board_refuse(&self.b)

    def _leave(self, seat):
        """Forget a subscriber: what it held may be used again."""
        if self.neighbours.pop(seat, None) is not None:
            shmnd_board_leave(&self.b, seat)

    def _evict(self, seat):
        if seat in self.neighbours:
            shmnd_board_evict(&self.b, seat)

    def _page_closed(self, seat):
        """Return whether the subscriber is closed; it may still hold samples."""
        return (seat in self.neighbours and self.b.guests[<uint32_t>seat].page != NULL and
                shmnd_relaxed64(&self.b.guests[<uint32_t>seat].page.state) == SHMND_PAGE_CLOSED)

    def _page_over(self, seat):
        """Return whether the subscriber is closed, and holds nothing any more."""
        cdef shmnd_page *page
        if seat not in self.neighbours:
            return True
        page = self.b.guests[<uint32_t>seat].page
        # An acquire: what it held before it closed is read behind it (the fence of SYNC borrow lies
        # between the two stores).
        return (page == NULL or shmnd_acquire64(&page.state) == SHMND_PAGE_CLOSED
                and shmnd_acquire64(&page.mask) == 0)

    def _behind(self, seat):
        """Return how many samples a subscriber has not received."""
        cdef shmnd_guest *g = self.guest_at(seat)
        shmnd_board_count(&self.b)
        if g.page == NULL:
            return 0
        if g.policy == SHMND_DROP_NEWEST:
            return g.kept_written - g.cursor + (1 if g.dropped else 0)
        return self.b.next - g.cursor

    def _slow(self):
        """Return the seats of subscribers that lost samples since, or are waited for."""
        cdef uint32_t i
        cdef shmnd_guest *g
        found = []
        shmnd_board_count(&self.b)
        for i in range(self.b.guest_count):
            g = &self.b.guests[i]
            if g.page == NULL or g.evicted:
                continue
            if g.policy == SHMND_DROP_NEWEST:
                if g.kept_written - g.cursor >= g.buffer:
                    found.append(i)
            elif g.policy == SHMND_BLOCK:
                if self.b.next >= max(g.cursor, g.joined) + g.buffer:
                    found.append(i)
            elif g.policy == SHMND_DROP_OLDEST:
                if self.b.next > max(g.cursor, g.joined) + g.buffer:
                    found.append(i)
        return found

    def _has_room(self):
        return self.closed or shmnd_board_has_room(&self.b)

    def _block(self, on):
        self.require_board()
        shmnd_board_block(&self.b, on)

    @property
    def _present(self):
        return self.b.present

    @property
    def _next(self):
        return self.b.next

    cdef int wake(self, uint32_t first, uint64_t bits) except -1:
        """Wake the subscribers that sleep, of 64 seats those whose bits are set."""
        cdef uint32_t i
        cdef bint at_counter = False
        for i in range(64):
            if bits >> i & 1:
                at_counter |= self.wake_one(first + i)
        if at_counter:
            self.wake_at_counter()
        return 0

    cdef int wake_each(self) except -1:
        """Wake all subscribers that sleep. Each page is read."""
        cdef uint32_t seat
        cdef bint at_counter = False
        for seat in range(self.b.guest_count):
            at_counter |= self.wake_one(seat)
        if at_counter:
            self.wake_at_counter()
        return 0

    cdef bint wake_one(self, uint32_t seat) except -1:
        """Ring the subscriber of a seat if it sleeps; return whether it sleeps at the counter."""
        cdef shmnd_sleep sleep = shmnd_board_sleep(&self.b, seat)
        if sleep == SHMND_ASLEEP_AT_BELL:
            self.ring(seat)
        return sleep == SHMND_ASLEEP_AT_COUNTER

    cdef void wake_at_counter(self) noexcept:
        """Wake all subscribers that sleep at the counter."""
        shmnd_futex_wake(shmnd_head_counter(self.b.head), 0x7FFFFFFF)

    cdef int ring(self, uint32_t seat) except -1:
        known = self.neighbours.get(seat)
        if known is not None:
            known[0].ring()
        return 0

    def _ring_all(self):
        if self.b.head != NULL:
            self.wake_at_counter()
        for known in list(self.neighbours.values()):
            known[0].ring()
