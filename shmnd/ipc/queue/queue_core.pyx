# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The compiled part of `ipc.Queue`: items go into shared memory and come out of it."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from shmnd.ipc.common.gate_c cimport *
from shmnd.ipc.queue.queue_c cimport *
from shmnd.ipc.queue.queue_items cimport QueueItems
from shmnd.ring.c_waiting cimport (
    shmnd_on_one_cpu,
    shmnd_window_count,
    shmnd_window_next,
    shmnd_yield,
)
from shmnd.ring.process.forks cimport forks

from shmnd.common.interruption import is_interruption
from shmnd.common.steps import step
from shmnd.ipc.common.ringing import PAUSE
from shmnd.ipc.errors import parents_call

__all__ = ["QueueCore"]

NOTHING = object()
cdef uint64_t SPIN_NS = 50000  # so long a wait polls at least, while waits are short
cdef uint64_t FOREVER = 0xFFFFFFFFFFFFFFFF
cdef int MOST_TRIES = 4096
FIRST_NS = int(PAUSE * 1e9)
cdef uint64_t YIELD_NS = 4000  # so long a wait polls before it lets others run on its only CPU


cdef int require_born(uint32_t born, str call) except -1:
    """Raise in a child that a handler of a signal forked within the call of its parent."""
    if born != forks:
        raise parents_call(call)
    return 0


cdef class QueueCore(QueueItems):
    """A queue as this process uses it."""

    def __init__(self, fd, ring_descriptors=None):
        self.ring_descriptors = ring_descriptors

    def announce(self) -> None:
        """Ring those that sleep: they watch this process from now on."""
        shmnd_gate_joined()
        if self.ring_descriptors is not None:
            self.ring_descriptors(self.addresses())

    @property
    def slots(self) -> int:
        """How many items the line holds."""
        return self.shape.slots

    @property
    def limited(self) -> bool:
        """Whether the program limits how many there are."""
        return self.shape.limited

    @property
    def process(self) -> int:
        """The number of this process, for `born`: a child that is forked off has another one."""
        return forks

    # -- putting --

    def push(self, list box, bint wake=True, tuple noted=None, uint32_t born=0) -> bool:
        """Append the packed item of a box, and empty it; return False without room."""
        # A caller that is interrupted in it, or behind it, sees by the box whether the item is put.
        if born:
            require_born(born, "Queue.put")
        return self.pushed(box[0], wake, box, noted)

    def put_or_drop(self, obj, bint wake) -> bool:
        """Put an object without waiting, or drop it and return False without room."""
        cdef uint64_t packed = self.packed(obj)
        if self.pushed(packed, wake, None, None):
            return True
        self.unsent(packed)
        return False

    cdef bint pushed(self, uint64_t packed, bint wake, list box, tuple noted) except -1:
        cdef uint64_t pos
        cdef uint32_t ref = <uint32_t>packed, held = 0
        self.check()
        self.prepare_slots()
        cdef int rc = shmnd_mpmc_push(&self.line, ref, &pos, &held)
        if rc == SHMND_MPMC_HELD and self.reap_one(held):
            rc = shmnd_mpmc_push(&self.line, ref, &pos, &held)
        if rc != SHMND_MPMC_OK:
            return False
        self.sent(packed)
        if box is not None:
            box.clear()
        try:
            if noted is not None:  # here, where no other thread has put one meanwhile
                noted[0][noted[1]] = pos
        finally:
            if wake:
                self._open(&self.head.items, 1)
        return True

    def passed(self, uint64_t pos) -> bool:
        """Return whether the item at a position was taken."""
        return shmnd_relaxed64(&self.head.read_pos) > pos

    def taken(self) -> int:
        """Return how many items were taken so far."""
        return shmnd_relaxed64(&self.head.read_pos)

    def full(self) -> bool:
        """Return whether the queue has no room for an item now."""
        return not self._has_room()

    cdef bint _has_room(self) noexcept:
        cdef uint64_t pos, word
        if shmnd_mpmc_size_guess(&self.line) < self.shape.slots:
            return True
        # An item that a consumer took before it was killed is counted until a process passes it.
        shmnd_mpmc_peek(&self.line, &pos, &word)
        return shmnd_mpmc_size_guess(&self.line) < self.shape.slots

    def qsize(self) -> int:
        """Return how many items there are; a guess while others put and get."""
        return shmnd_mpmc_size_guess(&self.line) + self.has_kept()

    def empty(self) -> bool:
        """Return whether no item can be taken now."""
        return not self._ready(0)

    # -- getting --

    # Handlers of signals run in Python code alone, and what they raise leaves it. So from the take
    # on there is none, up to the program's own; where there is (an object that unpickles itself, a
    # ring of descriptors), the item is kept for the next get of this process.

    def keep(self, found, uint32_t born=0) -> None:
        """Keep an item that was taken for an interrupted caller: the next get returns it."""
        if born and born != forks:
            return  # the parent keeps it
        self.keep_again((found,))
        self._open(&self.head.items, 1 << 30)  # also for those that sleep in this process

    cdef object take(self):
        """Return the next item; NOTHING when there is none."""
        cdef uint64_t pos, word
        cdef uint32_t ref
        cdef int rc
        self.check()
        if self.kept is not None and self.has_kept():
            return self._read(0, True)
        for _ in range(MOST_TRIES):
            rc = shmnd_mpmc_peek(&self.line, &pos, &word)
            if rc != SHMND_MPMC_OK:
                return NOTHING
            ref = shmnd_mpmc_value(word)
            shmnd_block_want(self.page, ref)
            if shmnd_mpmc_take(&self.line, pos, word, self.me):
                break
        else:
            shmnd_block_pass(self.page)
            return NOTHING  # others were faster each time, or the memory is damaged
        shmnd_member_count(self.page, pos)
        shmnd_mpmc_settle(&self.line, pos, self.me)
        try:
            found = self._read(ref, False)
        finally:
            if self.page.taking and self.born == forks:  # else it is the page of the parent
                shmnd_block_pass(self.page)
            # Also without a limit: a producer may keep more items than the line has room for.
            self._open(&self.head.room, 1)
        return found

    cdef object _read(self, uint32_t ref, bint again):
        """Return the object of a block, or the first one that is kept."""
        try:
            return self.unkept() if again else self.unpacked(ref)
        except Exception as exc:
            if self.unreadable is None or is_interruption(exc):
                raise
            raise self.unreadable(exc) from exc

    # -- waiting --

    cdef object get(self, int64_t timeout_ns, const bint *closed):
        """Return the next item; NOTHING when none came in time, or another thread has closed the
        object of the caller. -1 waits without an end."""
        cdef uint64_t deadline, start
        cdef uint32_t born = forks
        found = self.take()
        if found is not NOTHING or timeout_ns == 0:
            return found
        start = shmnd_now_ns()
        deadline = FOREVER if timeout_ns < 0 else start + <uint64_t>timeout_ns
        if self._spin(start, deadline):
            found = self.take()
        while found is NOTHING and not closed[0]:  # see `wake`
            late = self._sleep(&self.head.items, deadline, 0)
            require_born(born, "Queue.get")
            found = self.take()
            if late:
                break
        shmnd_window_count(
            &self.poll_window, SPIN_NS, shmnd_now_ns() - start, found is not NOTHING
        )
        return found

    cdef bint _spin(self, uint64_t now, uint64_t deadline) noexcept:
        """Poll for twice as long as waits last, unless sleeping is cheaper."""
        # On a single CPU the other side may have the same one: it runs when this one yields.
        cdef uint64_t pos, word, end, soon = now + YIELD_NS
        cdef bint found = False
        end = min(now + shmnd_window_next(&self.poll_window, SPIN_NS, 2), deadline)
        with nogil:
            while now < end:
                for _ in range(16):
                    if shmnd_mpmc_peek(&self.line, &pos, &word) == SHMND_MPMC_OK:
                        found = True
                        break
                    shmnd_pause()
                if found:
                    break
                now = shmnd_now_ns()
                if now > soon and shmnd_on_one_cpu():
                    shmnd_yield()
        return found

    cdef bint _ready(self, int what):
        cdef uint64_t pos, word
        if what == 0:
            return self.has_kept() or shmnd_mpmc_peek(&self.line, &pos, &word) == SHMND_MPMC_OK
        if what == 1:
            return self._has_room()
        return self.unfinished() == 0

    cdef bint _sleep(self, word32 *gate, uint64_t deadline, int what) except -1:
        """Sleep until a change, a tenth of a second, or the deadline: True then."""
        cdef uint64_t now
        cdef uint64_t pause = SHMND_GATE_NS
        cdef uint32_t word = shmnd_gate_arm(gate, SHMND_GATE_SLEEPER)
        there = self._ready(what)
        now = shmnd_now_ns()
        if now >= deadline:
            return True
        if there:
            return False
        if deadline - now < pause:
            pause = deadline - now
        with nogil:
            shmnd_futex_sleep(gate, word, pause)
        PyErr_CheckSignals()
        return False

    def wait_for_room(self, int64_t timeout_ns) -> bool:
        """Wait until an item may have room; False when none came in time."""
        cdef uint64_t deadline
        deadline = FOREVER if timeout_ns < 0 else shmnd_now_ns() + <uint64_t>timeout_ns
        return not self._sleep(&self.head.room, deadline, 1)

    def wake(self) -> None:
        """Have the threads that sleep here for items and for room check again: one of their objects
        was closed before."""
        # A thread holds the interpreter's lock from its check up to the arming of the gate.
        if self.born == forks:
            if shmnd_gate_open(&self.head.items) & SHMND_GATE_SLEEPER:
                shmnd_futex_wake(&self.head.items, 1 << 30)
            if shmnd_gate_open(&self.head.room) & SHMND_GATE_SLEEPER:
                shmnd_futex_wake(&self.head.room, 1 << 30)

    cdef int _open(self, word32 *gate, int most) except -1:
        """Open a gate after a change: wake up to `most` sleepers, and ring the descriptors."""
        cdef uint32_t word = shmnd_gate_open(gate)
        if not word:
            return 0
        if word & SHMND_GATE_SLEEPER and shmnd_futex_wake(gate, most) == 0:
            shmnd_gate_clear(gate, word, SHMND_GATE_SLEEPER)
            word &= ~SHMND_GATE_SLEEPER
        if word & SHMND_GATE_DESCRIPTOR:
            if self.ring_descriptors is not None:
                self._ring()
            shmnd_gate_clear(gate, word, SHMND_GATE_DESCRIPTOR)
        return 0

    cdef int _ring(self) except -1:
        """Ring the descriptors of others, also where a handler of a signal ends the first try."""
        addresses = self.addresses()
        try:
            self.ring_descriptors(addresses)
        except BaseException:
            self.ring_descriptors(addresses)
            raise

    # -- streams of answers, in the queue of a client --

    def end_stream(self, uint64_t number) -> None:
        """Note that this process reads no more answers to a request, and wake their server."""
        if self.born == forks:
            shmnd_stream_mark(self.page, number, True)
            step("stream-ended")
            self._open(&self.head.room, 1 << 30)

    def end_streams(self) -> None:
        """Note that this process reads no more answers at all, and wake the servers."""
        cdef uint64_t number
        if self.born == forks:
            for number in range(SHMND_QUEUE_ENDED):
                shmnd_stream_mark(self.page, number, True)
            step("stream-ended")
            self._open(&self.head.room, 1 << 30)

    # -- descriptors --

    def arm_descriptor(self, bytes address, int what=0) -> bool:
        """Be rung at an address for an item (0), room (1) or the last item done (2); return whether
        that is there now."""
        cdef uint32_t size = len(address)
        self.check()
        if size > 31:
            raise ValueError(f"an address of {size} bytes; at most 31")
        self.page.address[0] = size
        memcpy(&self.page.address[1], PyBytes_AS_STRING(address), size)
        shmnd_put64(&self.page.armed, 1)
        shmnd_gate_arm(&self.head.items if what == 0 else &self.head.room if what == 1
                       else &self.head.done, SHMND_GATE_DESCRIPTOR)
        return self._ready(what)

    def disarm_descriptor(self) -> None:
        """Have the descriptor rung no more."""
        if self.born == forks:
            shmnd_put64(&self.page.armed, 0)

    def addresses(self) -> list:
        """Return the addresses at which members are to be rung."""
        cdef uint64_t members = min(shmnd_relaxed64(&self.head.members), SHMND_QUEUE_MEMBERS)
        cdef uint32_t number, size
        found = []
        for number in range(members):
            if shmnd_relaxed64(&self.member(number).armed):
                size = <unsigned char>self.member(number).address[0]
                if size < 32:
                    found.append((<char *>&self.member(number).address[1])[:size])
        return found

    # -- items that are still worked on --

    def unfinished(self) -> int:
        """Return how many items were neither reported as done nor lost with a process that died."""
        cdef uint64_t lost = 0
        cdef int64_t left = self._unreported(&lost)
        return max(0, left - max(0, <int64_t>lost))

    def task_done(self) -> bool:
        """Report an item as done; False when there is none to report."""
        cdef uint64_t lost = 0
        self.check()
        if self._unreported(&lost) <= 0:  # one that died may be reported by another process
            return False
        shmnd_member_done(self.page)
        if self.unfinished() == 0:
            self._open(&self.head.done, 1 << 30)
        return True

    def reaped(self) -> None:
        """Wake the waiters for what a dead member had: they may have polled before."""
        self._open(&self.head.done, 1 << 30)
        self._open(&self.head.room, 1 << 30)

    def join(self, int64_t timeout_ns) -> bool:
        """Wait until no item is unfinished; False when the time ends first."""
        cdef uint64_t deadline
        self.check()
        deadline = FOREVER if timeout_ns < 0 else shmnd_now_ns() + <uint64_t>timeout_ns
        while self.unfinished():
            if self._sleep(&self.head.done, deadline, 2):
                return False
            if self.unfinished():
                self.reap()
        return True

    def set_behind(self, uint64_t items) -> None:
        """Publish how many items this process keeps until there is room."""
        if self.born == forks:
            shmnd_member_report(&self.page.behind, items)
            if self.unfinished() == 0:  # one counted twice for a moment: task_done missed it
                self._open(&self.head.done, 1 << 30)
