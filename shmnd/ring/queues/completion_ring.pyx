# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: the ring of completions, the bell, and their places for queue pairs.

`polling` fills the ring and takes from it, `completion_queue` waits.
"""

import weakref

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.object cimport PyObject, PyTypeObject, inquiry, traverseproc, visitproc
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport NOT_MADE, forks, unusable

from shmnd.common.shortages import LIMITS_OF_MEMORY as _LIMITS
from shmnd.status import Status, error

# More entries than were asked for: programs outrun an exact depth by a few.
cdef uint64_t _SLACK = 16
# The largest depth of a queue.
cdef int _MOST_DEPTH = 1 << 24


cdef class RingCore:
    """A completion queue's memory and bell."""

    def __cinit__(self, *args, **kwargs):
        self.born = self.taking = NOT_MADE
        self._free_bits = []
        self.feeders = []

    def __init__(self, adapter, int depth, bell):
        cdef Segment bells = bell.bells, marks = bell.marks
        cdef size_t index = bell.index
        if self.born != NOT_MADE:
            raise TypeError("a completion queue is made once")
        if (bells is None or marks is None or depth < 0
                or (index + 1) * sizeof(c.shmnd_bell) > bells.size
                or (index + 1) * sizeof(c.shmnd_marks) > marks.size):
            raise TypeError("a completion queue is made by its adapter")
        self.adapter, self.engine = adapter, adapter._engine
        self._registry = adapter._registry
        self._counter_table = adapter._counter_table
        self._wait_set_core = self.engine.wait_set
        self.depth = depth
        self.bell_place = bell.where
        self._bells, self._marks = bells, marks
        self.spin_seconds = 50e-6
        self.raw.arming.bell = <c.shmnd_bell *>bells.base + index
        self.raw.arming.marks = <c.shmnd_marks *>marks.base + index
        memset(self.raw.arming.bell, 0, sizeof(c.shmnd_bell))
        memset(self.raw.arming.marks, 0, sizeof(c.shmnd_marks))
        self.raw.limit = depth + _SLACK
        # Not 0: completions can be put back in front.
        self.raw.read_pos = self.raw.write_pos = <uint64_t>1 << 32
        if self.raw.by_bit == NULL:
            self.raw.by_bit = <c.shmnd_qp **>calloc(c.SHMND_READY_BITS, sizeof(void *))
        if self.raw.by_bit == NULL:
            raise error(Status.NO_MEMORY, "Adapter.create_completion_queue", "out of memory")
        self.reserve(0)
        self.born = self.taking = forks

    cdef int usable(self, str call) except -1:
        """Raise unless it was made, and in this process."""
        if self.born != forks:
            raise unusable(self.born, f"CompletionQueue.{call}")
        return 0

    # -- state for the Python half --

    @property
    def _adapter(self) -> object:
        """The adapter that made it."""
        return self.adapter

    @property
    def _closed(self) -> bool:
        """Whether it was closed."""
        return self.closed

    @property
    def _depth(self) -> int:
        """The number of results that it can hold."""
        return self.depth

    @property
    def _queued(self) -> int:
        """The number of results in its ring, without messages that no poll has taken yet."""
        return self.count()

    @property
    def _connected(self) -> int:
        """The number of its queue pairs whose connection has not begun to end."""
        cdef uint32_t i, n = 0
        for i in range(self.raw.link_count):
            n += self.raw.links[i].state == c.SHMND_QP_CONNECTED
        return n

    @property
    def _notify_mode(self) -> int:
        """The mode that `_arm_for` has set."""
        return self.notify_mode

    @property
    def _announcing(self) -> bool:
        """Whether the next pending request wakes a thread that sleeps elsewhere."""
        return self.announcing

    @_announcing.setter
    def _announcing(self, bint value) -> None:
        self.announce(value)

    @property
    def _readiness(self) -> object:
        """The descriptor of `fileno`, cleared when results are taken."""
        return self.readiness

    @_readiness.setter
    def _readiness(self, value) -> None:
        self.readiness = value

    @property
    def _armed(self) -> bool:
        """Whether peers ring when something arrives."""
        return self.raw.arming.mode != c.SHMND_ARMED_NOT

    @property
    def _at_word(self) -> bool:
        """Whether a thread sleeps at the word of its bell, or is about to."""
        return (self._wait_set_core is not None and self._wait_set_core.word != NULL
                and self._wait_set_core.word == self.raw.arming.marks)

    @property
    def _attended(self) -> bool:
        """Whether a thread sleeps for it, or a Notify is pending."""
        return self.sleepers != 0 or self.notify_mode != 0

    cdef uint64_t count(self) noexcept:
        """Return the number of results that can be taken without a poll."""
        return c.shmnd_cq_count(&self.raw) + (0 if self.given_back is None
                                              else <uint64_t>len(self.given_back))

    # -- results that are given back --

    # An exception may end a call that has taken results already: the handler of a signal raised.
    # They are there for the next call, and count as results in every way meanwhile.

    cdef give_back(self, list results):
        """Keep results for the next call, before all others; wake the threads that wait for one."""
        if not results or self.taking != forks:
            return
        self.given_back = results if self.given_back is None else results + self.given_back
        self.given_any = True
        for each in results:
            self.given_solicited = self.given_solicited or self.is_solicited(each)
        self.tell_kept()

    cdef rescue(self, list results, const c.shmnd_cqe *rest, uint32_t n):
        """Keep what a call has taken for the next one: results, and completions without, which need
        no memory in the ring."""
        cdef uint32_t i
        if n and c.shmnd_cq_put_back(&self.raw, rest, n):
            n = 0
            self.tell_kept()
        if n and results is None:
            results = []
        for i in range(n):
            results.append(self.result(&rest[i]))
            Py_DECREF(<object>rest[i].context)
        self.give_back(results)

    cdef tell_kept(self):
        """Wake the threads that wait for results."""
        self.wake_sleepers()  # the next poll completes a Notify
        if self.readiness is not None:
            self.readiness.set()

    cdef object result(self, const c.shmnd_cqe *e):
        """Return the result of a completion."""
        raise AssertionError("the polling side overrides this")

    cdef list take_back(self, Py_ssize_t max):
        """Take up to `max` results that were given back, and return them."""
        cdef list results = self.given_back
        if self.notify_mode and self.given_satisfies(self.notify_mode):
            self.fired = True
        taken, rest = results[:max], results[max:]
        self.given_back = rest or None  # last: until here an exception loses none of them
        return taken

    cdef bint given_satisfies(self, uint32_t mode) noexcept:
        """Return whether results that were given back satisfy a Notify, and clear that."""
        cdef bint satisfied = self.given_any if mode == c.SHMND_ARMED_ANY else self.given_solicited
        if self.given_back is None or not satisfied:
            return False
        self.given_any = self.given_solicited = False
        return True

    cdef bint is_solicited(self, object result) noexcept:
        """Return whether a result satisfies a Notify for solicited ones."""
        return True

    # -- room --

    cdef reserve(self, uint64_t entries):
        """Make room for all requests and receives that a new queue pair can have outstanding."""
        cdef uint64_t count = c.shmnd_cq_count(&self.raw)
        cdef uint64_t reserved = self.reserved + entries
        cdef uint64_t need = max(count, self.raw.limit + reserved) + reserved
        cdef uint64_t size = 64
        cdef uint64_t pos
        cdef c.shmnd_cqe *ring
        while size < need:
            size *= 2
        if self.raw.ring == NULL or size > self.raw.mask + 1:
            ring = <c.shmnd_cqe *>PyMem_RawMalloc(size * sizeof(c.shmnd_cqe))
            if ring == NULL:
                call = "create_queue_pair" if entries else "create_completion_queue"
                raise error(Status.INSUFFICIENT_RESOURCES, f"Adapter.{call}",
                            f"no memory for {need} completions; {_LIMITS}")
            pos = self.raw.read_pos
            while pos != self.raw.write_pos:
                ring[pos & (size - 1)] = self.raw.ring[pos & self.raw.mask]
                pos += 1
            PyMem_RawFree(self.raw.ring)
            self.raw.ring = ring
            self.raw.mask = size - 1
        self.reserved = reserved
        self.raw.bound = self.raw.mask + 1 - reserved

    cdef unreserve(self, uint64_t entries):
        self.reserved -= entries
        self.raw.bound += entries

    def _hold_place(self) -> None:
        """Make room for the completion of an invalidated window, which no depth includes."""
        self.usable("_hold_place")
        self.reserve(1)
        self.places += 1

    def _free_place(self) -> None:
        """Undo `_hold_place`."""
        if self.places:
            self.places -= 1
            self.unreserve(1)

    def _set_depth(self, depth: int) -> None:
        """Set the number of results that it can hold."""
        self.usable("_set_depth")
        if not 0 < depth <= _MOST_DEPTH:
            raise ValueError(f"a completion queue of depth {depth}")
        old = self.raw.limit
        self.raw.limit = depth + _SLACK
        try:
            self.reserve(0)
        except BaseException:
            self.raw.limit = old
            raise
        self.depth = depth

    cdef uint32_t take_bit(self) except? 0xffffffff:
        """Return a bit number for a link of this queue, and make room for it in the lists."""
        cdef void *grown
        cdef uint32_t rooms
        if not self._free_bits and self._next_bit == c.SHMND_READY_BITS:
            raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_queue_pair",
                        f"a completion queue serves {c.SHMND_READY_BITS} queue pairs at most")
        if self.rooms == self._next_bit:
            rooms = self.rooms * 2 + 8
            grown = PyMem_RawRealloc(self.raw.links, rooms * sizeof(void *))
            if grown == NULL:
                raise MemoryError
            self.raw.links = <c.shmnd_qp **>grown
            grown = PyMem_RawRealloc(self.raw.active, rooms * sizeof(void *))
            if grown == NULL:
                raise MemoryError
            self.raw.active = <c.shmnd_qp **>grown
            self.rooms = rooms  # last: both lists have it
        if self._free_bits:
            return self._free_bits.pop()
        self._next_bit += 1
        return self._next_bit - 1

    cdef give_bit(self, uint32_t bit):
        self._free_bits.append(bit)

    cdef keep(self, object context):
        """Keep the context of a queue pair that is released: completions may still refer to it."""
        if c.shmnd_cq_count(&self.raw) or self.takers:
            if self._keep is None:
                self._keep = []
            self._keep.append(context)

    # -- shared receive queues --

    cdef feed_from(self, object receives):
        """Add a shared receive queue of queue pairs here, to notify when receives are consumed."""
        reference = weakref.ref(receives, self.feeders.remove)
        if reference not in self.feeders:
            self.feeders.append(reference)

    cdef _tell_feeders(self):
        """Notify the shared receive queues that messages may have consumed receives."""
        for reference in list(self.feeders):
            receives = reference()
            if receives is not None:
                receives._used_up()

    # -- waking --

    cdef announce(self, bint value):
        """Set whether messages and requests that need a poll here wake a sleeping thread."""
        if value or self.announcing:
            self.announcing = value
            self._rearm()

    cdef _rearm(self):
        """Arm the bell in the strongest mode that a sleeping thread or a Notify needs."""
        cdef uint32_t mode = self.notify_mode
        if self.born != forks:
            return
        if self._wait_set_core is not None and self._wait_set_core.word == self.raw.arming.marks:
            self._wait_set_core.wake_from_word()  # others need rings, too
        if self.sleepers:
            mode = c.SHMND_ARMED_ANY
        elif self.announcing and not mode:
            mode = c.SHMND_ARMED_ASKED
        if mode:
            c.shmnd_bell_arm(&self.raw.arming, mode)
        elif self.raw.arming.mode:
            c.shmnd_bell_disarm(&self.raw.arming)

    cdef void pushed(self) noexcept:
        """Wake sleeping threads of this process after a completion, or a request that is pending.

        A sleeping thread makes progress on pending requests of the others.
        """
        if self.raw.arming.mode in (c.SHMND_ARMED_NOT, c.SHMND_ARMED_ASKED):
            if not self.announcing or not self.raw.unsettled:
                return
            self.announcing = False
        if self.born == forks:
            self.wake_sleepers()

    cdef void wake_sleepers(self) noexcept:
        """Wake the sleeping threads of this process to poll."""
        if self._wait_set_core is not None:
            self._wait_set_core.ring_own()

    cpdef _arm_for(self, uint32_t mode):
        """Arm for Notify requests: 1 any completion, 2 solicited ones and errors, 0 none."""
        if self.born == forks:
            self._counter_table.count_notify((mode != 0) - (self.notify_mode != 0))
        self.notify_mode = mode
        self._rearm()

    cdef bint asked(self) noexcept:
        """Return whether a sender has requested a poll for its message."""
        return self.raw.arming.marks != NULL and c.shmnd_marks_poll_requested(self.raw.arming.marks)

    def _watch(self, on: bool) -> None:
        """Treat the queue as if a thread slept for it, so that arrivals ring, or no longer."""
        self.sleepers = max(0, self.sleepers + (1 if on else -1))
        self._rearm()

    def _shut(self) -> None:
        """Close it: waits end, and no further results can be taken."""
        self.closed = True
        self.taking = NOT_MADE
        self.given_back = None

    def __dealloc__(self):
        cdef uint64_t pos
        for pos in range(self.raw.read_pos, self.raw.write_pos):
            Py_DECREF(<object>self.raw.ring[pos & self.raw.mask].context)
        PyMem_RawFree(self.raw.ring)
        PyMem_RawFree(self.raw.links)
        PyMem_RawFree(self.raw.active)
        free(self.raw.by_bit)


# -- garbage collection --

# Entries in C hold the contexts of results that were not taken. A context that refers to its queue
# pair keeps that pair alive, and so this queue. The garbage collector frees such a cycle only if
# these functions show it the contexts.

cdef PyTypeObject *_type = <PyTypeObject *>RingCore
cdef traverseproc _visit_attributes = _type.tp_traverse
cdef inquiry _clear_attributes = _type.tp_clear


cdef int _visit(PyObject *queue, visitproc visit, void *arg) except -1:
    cdef c.shmnd_cq *raw = &(<RingCore>queue).raw
    cdef int stop = _visit_attributes(queue, visit, arg)
    cdef uint64_t pos
    for pos in range(raw.read_pos, raw.write_pos):
        if stop:
            break
        stop = visit(<PyObject *>raw.ring[pos & raw.mask].context, arg)
    return stop


cdef int _clear(object queue) except -1:
    cdef c.shmnd_cq *raw = &(<RingCore>queue).raw
    cdef void *context
    while raw.read_pos != raw.write_pos:
        context = raw.ring[raw.read_pos & raw.mask].context
        raw.read_pos += 1  # first: the finaliser of a context may call this again
        Py_DECREF(<object>context)
    return _clear_attributes(queue)


_type.tp_traverse = _visit
_type.tp_clear = _clear
