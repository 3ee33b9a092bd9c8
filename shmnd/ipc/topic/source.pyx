# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The board of one publisher, as a subscriber reads it: lines, slots that are held, and pools."""

cimport cython
cimport numpy as cnp
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from shmnd.ipc.topic.sample cimport Origin, Sample
from shmnd.ipc.topic.topic_c cimport *
from shmnd.ring.process.forks cimport forks

from shmnd.common.interruption import is_interruption
from shmnd.ipc.topic import refusals
from shmnd.ipc.topic.away import missing
from shmnd.status import NdError, Status

cnp.import_array()

cdef uint64_t _MOST_BYTES = <uint64_t>1 << 46
cdef object _SHORT = Status.INSUFFICIENT_RESOURCES
cdef object _AWAY = Status.DEVICE_NOT_READY


@cython.no_gc_clear  # holds that end later in the same garbage write to the page
cdef class Source(Origin):
    """The board of one publisher, as one subscriber reads it."""

    def __cinit__(self):
        self.born = forks
        self.closed = True  # until it is opened
        self.pools = {}
        self.old_memories = []

    def __init__(self, publisher, ident, neighbour, owner, form):
        self.publisher = publisher
        self.ident = ident
        self.neighbour = neighbour
        self.owner = owner
        self.form = form
        if form is not None and form.kind == 1 and form.shape is None and form.dtype.itemsize:
            self.items = form.dtype
            self.item_bytes = form.dtype.itemsize
        self.as_bytes = form is not None and form.kind in (2, 4)

    def __dealloc__(self):
        # One that is dropped, as by an exception while it is opened, ends as by close(): the
        # publisher takes a seat back only when its page says so.
        self.end()
        PyMem_RawFree(self.r.free_holds)

    @staticmethod
    def page_bytes(most_held):
        """Return the bytes of the page of a subscriber that may hold so many samples."""
        return shmnd_page_bytes(most_held)

    def open(self, head, neighbour, sleepers, page, *, most_held, counts_all, policy, buffer,
             history, early):
        """Read from here on; `page` is the subscriber's own memory.

        A subscriber that was there `early`, before the publisher, wants all that it sent.
        """
        cdef const unsigned char[::1] head_ = head
        cdef unsigned char[::1] sleepers_ = sleepers
        cdef cnp.ndarray[cnp.uint8_t] page_ = page
        cdef uint64_t written, i, kept
        if self.r.page != NULL or head is None or sleepers is None or page is None:
            raise ValueError("a source is opened once, with memory")
        if (<uint64_t>page_.shape[0] < shmnd_page_bytes(most_held)
                or <uint64_t>head_.shape[0] < shmnd_head_bytes(0)):
            raise ValueError("the page or the publisher's head is too small")
        self.r.head = <shmnd_head *>&head_[0]
        self.seats = self.r.head.seats
        if (self.r.head.magic != SHMND_BOARD_MAGIC
                or self.r.head.version != SHMND_BOARD_VERSION
                or self.seats > SHMND_MOST_SEATS
                or <uint64_t>head_.shape[0] < shmnd_head_bytes(self.seats)
                or <uint64_t>sleepers_.shape[0] * 8 < self.seats):
            raise ValueError("the publisher's board is of another kind: run the same shmnd in both")
        self.r.page = <shmnd_page *>page_.data
        self.r.sleepers = <word64 *>&sleepers_[0]
        self.head_memory, self.sleepers_memory, self.page_memory = head, sleepers, page
        self.r.most_held = self.r.free_count = most_held
        self.r.uncounted = 0 if counts_all else SHMND_INFO_INLINE
        self.r.policy, self.r.buffer = policy, buffer
        self.r.free_holds = <uint32_t *>PyMem_RawRealloc(NULL, most_held * sizeof(uint32_t))
        if self.r.free_holds == NULL:
            raise MemoryError
        for i in range(<uint64_t>most_held):
            self.r.free_holds[i] = <uint32_t>(<uint64_t>most_held - 1 - i)
        where = self.where
        self.enter_lines((where, neighbour.view(where >> 8, 0)))
        written = shmnd_acquire64(&self.r.head.written)  # needs no order: a first guess
        kept = min(self.r.head.history, written)
        if history is not None:
            kept = min(kept, <uint64_t>history)
        if policy == SHMND_CONFLATE:
            kept = min(kept, <uint64_t>1)
        if early:
            kept = written
        self.r.joined = written - kept if early or policy == SHMND_CONFLATE else written
        self.first = written - kept
        self.r.refused = shmnd_relaxed64(&self.r.head.refused)
        if policy == SHMND_DROP_NEWEST:
            self.r.early = self.r.start = written - kept
            shmnd_put64(&self.r.page.early, self.r.early)
        else:
            shmnd_reading_advance(&self.r, written - kept)
        shmnd_put64(&self.r.page.state, SHMND_PAGE_OPEN)
        self.closed = False

    cdef int require_lines(self) except -1:
        """Raise TypeError unless Subscriber has opened the source."""
        if self.r.head == NULL or self.r.lines == NULL or self.r.page == NULL:
            raise TypeError("a source is opened by Subscriber")
        return 0

    def enter_lines(self, lines):
        """Read these lines from now on; (where, memory) of the present ones of the publisher."""
        cdef const unsigned char[::1] lines_
        where, memory = lines
        if memory is None or self.r.head == NULL:
            raise ValueError("lines are of a board")
        lines_ = memory
        if self.lines_memory is not None:
            if refusals.are_not_next(where, self.r.where, self.where):
                return
            self.old_memories.append(self.lines_memory)  # another thread may be reading them
        if (not 0 < (where & 0xFF) <= SHMND_MOST_LINES_LOG
                or <uint64_t>lines_.shape[0] < <uint64_t>64 << <uint32_t>(where & 0xFF)):
            raise ValueError("the publisher's board is too small")
        self.r.lines = <const shmnd_line *>&lines_[0]
        self.r.line_mask = (<uint64_t>1 << <uint32_t>(where & 0xFF)) - 1
        self.r.where = where
        self.lines_memory = memory

    @property
    def where(self):
        """Where the publisher says that its lines are."""
        if self.r.head == NULL:
            self.require_lines()
        return shmnd_acquire64(&self.r.head.where)  # SYNC moved: as in shmnd_reading_moved()

    @property
    def wanted(self):
        """The first position that it wants."""
        return self.first

    @property
    def evicted(self):
        """Whether the publisher has dropped this subscriber."""
        return (self.r.seated and shmnd_relaxed32(&shmnd_head_seats(self.r.head)[self.r.seat].state)
                == SHMND_SEAT_EVICTED)

    def find_seat(self):
        """Find the seat and take it; return whether it is settled now."""
        cdef const unsigned char[::1] kept_
        if self.settled or self.closed or self.rests():
            return False
        if not self.r.seated:
            if not shmnd_reading_find_seat(&self.r, self.ident, self.seats):
                return False
            shmnd_reading_begin(&self.r)
        if self.r.policy != SHMND_DROP_NEWEST:
            self.settled = True
            return True
        segment = shmnd_relaxed32(&shmnd_head_seats(self.r.head)[self.r.seat].kept) - 1
        try:
            memory = self.neighbour.view(segment, 0)
        except NdError as exc:
            if exc.status == _SHORT:
                self.shortage = exc  # for the next receive; a later one tries again
            elif not self.is_away(exc, segment):
                self.give_up()  # it has ended, or is hostile
            return False
        kept_ = memory
        # As many lines as its publisher makes for such a buffer; a mapping is a page at least.
        count = 1 << max(0, <object>self.r.buffer - 1).bit_length()
        if kept_.shape[0] < count * 128:
            self.give_up()
            return False
        self.r.kept = <const shmnd_kept *>&kept_[0]
        self.r.kept_mask = count - 1
        self.kept_memory = memory
        self.settled = True
        return True

    @property
    def refused(self):
        """All seats of the publisher are taken by others."""
        self.require_lines()
        return shmnd_reading_is_refused(&self.r, self.ident, self.seats)

    def _require_seat(self):
        if self.refused:
            raise refusals.no_seat(self.publisher, self.seats)

    @property
    def ended(self):
        """The publisher has closed: the samples on the board are the last ones."""
        self.require_lines()
        # SYNC shut: acquire, pairs with release in WriterCore._shut
        return shmnd_acquire64(&self.r.head.state) == SHMND_BOARD_CLOSED

    @property
    def written(self):
        """How many samples the publisher has sent."""
        self.require_lines()
        # SYNC written: acquire, pairs with release in shmnd_board_publish()
        return shmnd_acquire64(&self.r.head.written)

    @property
    def lost(self):
        """How many samples the policy has dropped."""
        self.require_lines()
        return shmnd_reading_lost(&self.r)

    @property
    def held(self):
        """How many samples are held."""
        return self.r.most_held - self.r.free_count

    @property
    def ready(self):
        """A poll may find something."""
        if self.rests():
            return False
        if self.has_left:
            return True
        if self.closed:
            return False
        return shmnd_reading_ready(&self.r) or (self.r.seated and not self.settled)

    def doze(self):
        """Have the publisher ring for the next sample."""
        if not self.closed:
            shmnd_reading_doze(&self.r)

    cdef shmnd_near *pool(self, uint64_t number) except NULL:
        cdef shmnd_near *recent = &self.r.near[number % SHMND_NEAR]
        cdef const unsigned char[::1] view
        if recent.base != NULL and recent.number == number:
            return recent
        found = self.pools.get(number)
        if found is None:
            found = self.neighbour.view(number, 0)
            self.pools[number] = found
        view = found
        recent.number = number
        recent.base = &view[0]
        recent.nbytes = view.shape[0]
        self.near_memory[number % SHMND_NEAR] = <PyObject *>found
        return recent

    def _drop_pools(self):
        """Keep no pool mapped that the publisher has given back; held samples keep their own."""
        for number in list(self.pools):
            if not self.neighbour.has(number):
                del self.pools[number]
                if self.r.near[<uint64_t>number % SHMND_NEAR].number == number:
                    self.r.near[<uint64_t>number % SHMND_NEAR].base = NULL

    cdef shmnd_outcome find(self, shmnd_found *found) except *:
        """Find the next sample, where it has no seat yet, or is closed."""
        if self.closed:
            return SHMND_OUTCOME_NOTHING
        if not self.settled and not self.find_seat():
            self._require_seat()
            if self.away is not None:
                return SHMND_OUTCOME_NOTHING
            if self.r.seated and not self.closed:
                raise self.shortage
        return self.finish(shmnd_reading_next(&self.r, found), found)

    cdef shmnd_outcome finish(self, shmnd_outcome outcome, shmnd_found *found) except *:
        """End a poll: poll the new lines after a move, and ring a publisher that sleeps."""
        if outcome == SHMND_OUTCOME_MOVED:
            where = self.where
            try:
                self.enter_lines((where, self.neighbour.view(where >> 8, 0)))
            except (NdError, ValueError) as exc:
                if isinstance(exc, NdError) and exc.status == _SHORT:
                    raise  # a later receive tries again
                if self.is_away(exc, where >> 8):
                    return SHMND_OUTCOME_NOTHING
                self.give_up()
                raise refusals.no_lines(self.publisher, exc) from None
            outcome = shmnd_reading_next(&self.r, found)
            if outcome == SHMND_OUTCOME_MOVED:
                outcome = SHMND_OUTCOME_NOTHING
        if self.r.rings:
            self.r.rings = False
            try:
                self.neighbour.ring()
            except BaseException:  # of a handler of a signal: the publisher is rung all the same
                if outcome == SHMND_OUTCOME_FOUND or outcome == SHMND_OUTCOME_COPY:
                    self.leave(found, outcome == SHMND_OUTCOME_COPY)
                self.neighbour.ring()
                raise
        return outcome

    cdef void leave(self, const shmnd_found *found, bint copied) noexcept:
        """Leave a sample to the next poll."""
        self.left, self.has_left, self.left_copied = found[0], True, copied

    cdef bint rests(self) except -1:
        """Return whether to poll it later: the broker does not know its memory yet."""
        if self.away is None:
            return False
        if not self.away.lasts(self):
            self.away = None
        return self.away is not None

    cdef bint is_away(self, exc, number) except -1:
        self.away = missing(self, exc, number)
        return self.away is not None

    cdef object next(self):
        """Return the next sample, or None."""
        cdef shmnd_found found
        cdef shmnd_outcome outcome
        if self.away is not None and self.rests():
            return None
        if self.has_left:
            self.has_left = False
            return self.sample(&self.left, self.left_copied)
        if self.settled and not self.closed:  # most calls
            outcome = shmnd_reading_next(&self.r, &found)
            if outcome == SHMND_OUTCOME_MOVED or self.r.rings:
                outcome = self.finish(outcome, &found)
        else:
            outcome = self.find(&found)
        if outcome == SHMND_OUTCOME_NOTHING:
            return None
        if outcome == SHMND_OUTCOME_FOUND or outcome == SHMND_OUTCOME_COPY:
            return self.sample(&found, outcome == SHMND_OUTCOME_COPY)
        raise refusals.no_more_held(self.publisher, self.r.most_held)

    cdef object sample(self, shmnd_found *found, bint copied):
        cdef Sample sample = Sample.__new__(Sample)
        cdef shmnd_near *pool
        cdef uint64_t total, header
        sample.origin = self
        sample.hold = found.hold  # an error from here on gives the slot back
        sample.is_open = True
        sample.position = found.position
        sample.when_ns = found.when_ns
        sample.info = found.info
        header = found.info >> 32
        memcpy(sample.body, found.body, sizeof(found.body))
        if found.info & SHMND_INFO_INLINE:
            sample.payload = found.info >> 16 & 0xFFFF
            if sample.payload + header > SHMND_LINE_INLINE:
                sample.payload = header = 0
                sample.info = 1 | SHMND_INFO_INLINE
            return sample
        sample.payload = found.body[2]
        total = sample.payload + header + (found.info >> 16 & 0xFFFF)
        try:
            pool = self.pool(found.body[0] >> 32)
        except NdError as exc:
            away = self.is_away(exc, found.body[0] >> 32)
            if away or exc.status == _SHORT:  # nothing is lost: a later receive takes it
                if not copied:
                    self.leave(found, False)
                    sample.hold = SHMND_NO_SLOT
                if away:
                    return None
                raise
            if copied and not shmnd_reading_copied(&self.r):
                return None  # it was given up meanwhile, and its memory given back
            if exc.status == _AWAY:  # it has ended, and the broker that knew the memory, too
                self.r.lost += 1
            raise refusals.no_memory(self.publisher, exc) from None
        except BaseException as exc:
            if is_interruption(exc) or isinstance(exc, (OSError, MemoryError)):
                self.leave(found, copied)
                sample.hold = SHMND_NO_SLOT
            raise
        if sample.payload > _MOST_BYTES or found.body[1] > pool.nbytes \
                or total > pool.nbytes - found.body[1]:
            if copied and not shmnd_reading_copied(&self.r):
                return None
            raise refusals.no_room(self.publisher, total, found.body[1], pool.nbytes)
        sample.base = pool.base + found.body[1]
        if copied:
            memory = PyBytes_FromStringAndSize(<const char *>sample.base, total)
            if not shmnd_reading_copied(&self.r):
                return None
            sample.base = <const unsigned char *>PyBytes_AS_STRING(memory)
            sample.owner = memory
            if not self.r.uncounted and self.r.free_count:
                sample.hold = shmnd_reading_hold(&self.r, SHMND_NO_SLOT)
        else:
            sample.owner = <object>self.near_memory[(found.body[0] >> 32) % SHMND_NEAR]
        return sample

    cdef void give_up(self):
        """Read no more from a publisher that has ended, or that writes what makes no sense."""
        self.end()
        self.gone = True

    def close(self):
        """Read no more. Held samples stay held."""
        self.end()

    cdef void end(self) noexcept:
        cdef bint mine = self.born == forks and self.r.page != NULL
        if self.closed:
            return
        self.closed = True
        if self.has_left:
            self.has_left = False
            if mine and self.left.hold != SHMND_NO_SLOT:
                shmnd_reading_let_go(&self.r, self.left.hold)
        if mine:
            shmnd_put64(&self.r.page.state, SHMND_PAGE_CLOSED)
