# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Counters: the statistics that an adapter publishes, and their reader.

An adapter has a set of counters for each of its queue pairs, in segments that only it can write.
The data plane updates them (counters.h). A reader only maps the memory, so it works also while the
process hangs or is stopped.
"""

import functools
import socket
import time

cimport cython
from libc.stdint cimport uint32_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.shared_memory.segment cimport Segment

from shmnd.status import Status, error

# Sets in an adapter's first segment, after its head; each further segment has twice as many.
cdef uint64_t _FIRST_ENTRIES = 63
cdef uint64_t _MOST_ENTRIES = 4095

FIELDS = (
    "sent", "sent_bytes", "taken", "received_bytes", "posted", "unfilled", "outstanding",
    "waiting_ns", "reads", "read_bytes", "writes", "written_bytes", "recalled", "skipped",
    "failures", "status", "name", "state", "role", "connection", "since_ns", "receive_depth",
    "initiator_depth", "peer_pid", "local", "remote",
)
"""The words of a set of counters, in their order; the last two are addresses."""
SHARED = c.SHMND_COUNTERS_SHARED
"""`receive_depth` with a shared receive queue."""
HEAD_FIELDS = ("regions", "region_bytes", "sleepers", "sleeping_ns", "notifies")


cdef put_address(c.word64 *words, tuple address):
    """Store (host, port), or the lack of one."""
    cdef uint64_t high = 0, low = 0, family = 0, port = 0
    if address is not None:
        high, low, family = _host_words(address[0])
        port = address[1]
    c.shmnd_put64(&words[0], high)
    c.shmnd_put64(&words[1], low)
    c.shmnd_put64(&words[2], family << 16 | port)


@functools.lru_cache(maxsize=64)
def _host_words(host: str) -> tuple[int, int, int]:
    """Return a host as `put_address` stores it; connections mostly have few."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host).ljust(16, b"\0")
    return int.from_bytes(packed[:8], "big"), int.from_bytes(packed[8:], "big"), int(family)


def _address(high: int, low: int, last: int) -> tuple[str, int] | None:
    """Return the address that `put_address` stored; None for anything else."""
    packed = high.to_bytes(8, "big") + low.to_bytes(8, "big")
    family, port = last >> 16, last & 0xFFFF
    if family == socket.AF_INET:
        return socket.inet_ntop(family, packed[:4]), port
    return (socket.inet_ntop(family, packed), port) if family == socket.AF_INET6 else None


@cython.no_gc_clear  # queue pairs that end later in the same garbage return their counters
cdef class CounterTable:
    """The counters of one adapter. `announce(seg, segment, call)` publishes each segment but the
    first, which goes with the adapter."""

    def __init__(self, announce, uid: str) -> None:
        if self._pages is not None:
            raise TypeError("counters are made once")
        self._announce = announce
        self._uid = uid
        self._pages = {}
        self._free = []
        self._owner = <c.pid_t>forks

    def open(self, place: int) -> None:
        """Create the first segment. `place` identifies where processes of the namespace meet."""
        if self._pages is None or self._head != NULL:
            raise TypeError("counters are opened once")
        self._place = place
        cdef Segment first = self._grow("open_adapter")  # kept in _pages, announced by the adapter
        self._offer(first)
        self._head = <c.shmnd_counters_head *>first.base

    cdef Segment _grow(self, str call):
        """Add a segment, which is not announced yet; its counters are not free before it is."""
        cdef uint64_t number = self._numbers
        cdef uint64_t least = (_FIRST_ENTRIES + 1) << min(len(self._pages), 6)
        cdef uint64_t entries = min(least, _MOST_ENTRIES + 1) - 1
        self._numbers += 1  # before other threads run, while the kernel makes the segment
        cdef Segment page = Segment.create((entries + 1) * sizeof(c.shmnd_counters), label="tally",
                                           writable=False, call=call)
        cdef c.shmnd_counters_head *head = <c.shmnd_counters_head *>page.base
        head.magic = c.SHMND_COUNTERS_MAGIC
        head.uid[0], head.uid[1] = int(self._uid[:16], 16), int(self._uid[16:], 16)
        head.pid = c.getpid()
        head.since_ns = time.time_ns()
        head.entries = entries
        head.number = number
        head.place = self._place
        # SYNC counters: release, pairs with acquire in CountersView.__cinit__()
        c.shmnd_release32(&head.version, c.SHMND_LAYOUT_VERSION)
        self._pages[number] = page  # first: a broker that starts meanwhile gets it, too
        return page

    cdef _offer(self, Segment page):
        """Add the counters of a segment to the free ones."""
        cdef c.shmnd_counters_head *head = <c.shmnd_counters_head *>page.base
        cdef uint64_t i
        for i in range(head.entries, 0, -1):
            self._free.append((page, i * sizeof(c.shmnd_counters)))

    cdef tuple take(self):
        """Return a free set of counters: its segment, which the caller must keep, and offset."""
        call = "Adapter.create_queue_pair"
        while not self._free:
            page = self._grow(call)
            number = (<c.shmnd_counters_head *>(<Segment>page).base).number
            try:
                self._announce(c.SHMND_FIRST_COUNTER_SEGMENT + number, page, call)
            except BaseException:
                self._pages.pop(number, None)  # this one alone: other threads may have added theirs
                raise
            if self._head == NULL:
                raise error(Status.DEVICE_REMOVED, call, "the adapter was closed meanwhile")
            self._offer(page)
        return self._free.pop()

    cdef name(self, c.shmnd_counters *counters):
        """Publish a set of counters that was cleared, under a new name."""
        self._names += 1
        c.shmnd_put64(&counters.since_ns, time.time_ns())
        c.shmnd_counters_open(counters, self._names)

    cdef void give_back(self, tuple place, c.shmnd_counters *counters) noexcept:
        """Free the set of a queue pair that was released. A forked child frees nothing."""
        if <c.pid_t>forks == self._owner:
            c.shmnd_counters_close(counters)
            if self._head != NULL:
                self._free.append(place)

    # -- counters of the adapter --

    cdef bint _counts(self) noexcept:
        return self._head != NULL and <c.pid_t>forks == self._owner

    cdef void count_region(self, int n, uint64_t nbytes) noexcept:
        if self._counts():
            c.shmnd_counters_add(&self._head.regions, <uint64_t>n)
            c.shmnd_counters_add(&self._head.region_bytes, <uint64_t>n * nbytes)

    cdef void count_sleeper(self, int n) noexcept:
        if self._counts():
            c.shmnd_put64(&self._head.sleeping_ns, c.shmnd_now_ns())
            c.shmnd_counters_add(&self._head.sleepers, <uint64_t>n)

    cdef void count_notify(self, int n) noexcept:
        if self._counts():
            c.shmnd_counters_add(&self._head.notifies, <uint64_t>n)

    def segments(self) -> list:
        """Return all segments, as (number, Segment)."""
        # items() of a typed dictionary would not check it for None: the table may be half made.
        cdef object pages = self._pages
        return [(c.SHMND_FIRST_COUNTER_SEGMENT + number, page)
                for number, page in list(pages.items())]

    def close(self) -> None:
        """Free the segments; one that is in use stays mapped until its queue pair is released."""
        self._head = NULL
        cdef object pages = self._pages
        for page in list(pages.values()):
            (<Segment>page).close_fd()
        self._pages.clear()
        self._free.clear()


cdef class CountersView:
    """A counter segment of any process, mapped here to be read. Its contents are not trusted: they
    are reported as numbers and used for nothing else."""

    def __cinit__(self, Segment segment not None) -> None:
        cdef c.shmnd_counters_head *head = <c.shmnd_counters_head *>segment.base
        cdef uint64_t room = segment.size // sizeof(c.shmnd_counters)
        cdef uint32_t version
        if room == 0:
            raise error(Status.INTERNAL_ERROR, "CountersView",
                        f"{segment.size} bytes hold no counters")
        # SYNC counters: acquire, pairs with release in CounterTable._grow()
        version = c.shmnd_acquire32(&head.version)
        if head.magic != c.SHMND_COUNTERS_MAGIC or version != c.SHMND_LAYOUT_VERSION:
            raise error(Status.INTERNAL_ERROR, "CountersView",
                        f"the counters have version {version}, "
                        f"this process reads version {c.SHMND_LAYOUT_VERSION}")
        self.segment = segment
        self._head = head
        # The segment's size is sealed; the number in the head is not and could be anything.
        self.entries = <Py_ssize_t>min(room - 1, _MOST_ENTRIES)

    @property
    def adapter(self) -> str:
        """The public name of the adapter."""
        return f"{self._head.uid[0]:016x}{self._head.uid[1]:016x}"

    @property
    def pid(self) -> int:
        """The PID of its process, in that process's own PID namespace."""
        return self._head.pid

    @property
    def place(self) -> int:
        """The number for the place where processes of its namespace meet."""
        return self._head.place

    @property
    def number(self) -> int:
        """The index of this segment among the adapter's counter segments."""
        return self._head.number

    @property
    def since_ns(self) -> int:
        """The wall-clock time of its creation."""
        return self._head.since_ns

    def head(self) -> dict:
        """Return the counters of the whole adapter, which are in its first segment."""
        cdef c.shmnd_counters_head *h = self._head
        return dict(zip(HEAD_FIELDS, (
            c.shmnd_relaxed64(&h.regions), c.shmnd_relaxed64(&h.region_bytes),
            c.shmnd_relaxed64(&h.sleepers), c.shmnd_relaxed64(&h.sleeping_ns),
            c.shmnd_relaxed64(&h.notifies))))

    def read(self, Py_ssize_t index) -> dict | None:
        """Return one set of counters; None if it is free, or its use changed while it was read."""
        cdef uint64_t words[32]
        cdef c.shmnd_counters *counters
        if not 0 <= index < self.entries:
            raise IndexError(f"counters {index} of {self.entries}")
        counters = <c.shmnd_counters *>(self.segment.base + (index + 1) * sizeof(c.shmnd_counters))
        if not c.shmnd_counters_read(counters, words):
            return None
        found = {FIELDS[i]: words[i] for i in range(24)}
        found["local"] = _address(words[24], words[25], words[26])
        found["remote"] = _address(words[27], words[28], words[29])
        return found

    def pairs(self) -> dict:
        """Return all sets of counters that are in use, by index."""
        found = ((i, self.read(i)) for i in range(self.entries))
        return {i: counters for i, counters in found if counters is not None}
