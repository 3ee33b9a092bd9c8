# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: what is done at the speed of a message.

Arming, resizing and the overlapped operations around them are in `shmnd.queues`.
"""

import weakref

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsLongAndOverflow
from cpython.object cimport PyObject, PyTypeObject, inquiry, traverseproc, visitproc
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.ref cimport Py_DECREF
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.forks cimport forks

from shmnd.status import IN_CHILD, RequestType, Status, error
from shmnd.within import seconds, within

cdef object _SUCCESS = Status.SUCCESS
cdef object _RECEIVE = RequestType.RECEIVE
cdef tuple _TYPES = tuple(RequestType)
# More entries than were asked for: programs outrun an exact depth by a few.
cdef uint64_t _SLACK = 16
# A first look with the interpreter's lock held, before other threads are let in.
cdef uint64_t _KEEP_LOCK_NS = 3000
# How often a queue that is polled in vain looks for dead peers.
cdef uint64_t _LOOK_NS = 10000000
# How often a queue looks at what ends without ringing anybody.
cdef uint64_t _SOON_NS = 2000000
# Steps of one poll at most: peers that change their minds all the time must not keep us in it.
cdef int _STEPS = 4096
# After so many waits in vain the spin window shrinks to an eighth.
cdef uint32_t _MISSES = 8


@cython.freelist(256)
@cython.final
cdef class Result:
    """How a request ended."""

    @property
    def bytes_transferred(self) -> int:
        """Bytes received, for a successful Receive; otherwise 0."""
        return self.bytes

    def __repr__(self) -> str:
        return (f"<Result {self.request_type.name} {self.status.name} "
                f"{self.bytes} bytes context={self.request_context!r}>")


cdef class PairCore:
    """What a completion queue asks of a queue pair: to run what a poll could not."""

    cdef int serve(self, uint32_t what, bint receiving) except -1:
        raise AssertionError("a queue pair serves itself")


cdef inline Py_ssize_t _most(str call, object value) except -1:
    """How many results are wanted."""
    cdef int beyond = 0
    cdef long most
    if type(value) is int:
        most = PyLong_AsLongAndOverflow(value, &beyond)
        if beyond == 0 and 0 <= most <= 0xFFFFFFFF:
            return most
    return min(within(call, 1, "max", value, 0), 0xFFFFFFFF)


cdef inline object _patience(object timeout):
    """A time-out as given; no number of seconds is an error."""
    if timeout is None or (type(timeout) is float and timeout == timeout):
        return timeout
    if type(timeout) is int and 0 <= timeout <= 0xFFFFFFFF:
        return timeout
    return seconds("CompletionQueue.wait", 2, "timeout", timeout)


cdef class CompletionCore:
    """A completion queue's polling side."""

    def __cinit__(self, *args, **kwargs):
        self.born = forks
        self._free_bits = []
        self._keep = []
        self.feeders = []
        self.doorbell = -1

    def __init__(self, adapter, int depth, bell, int doorbell):
        self.adapter = adapter
        self._tallies = adapter.tallies
        self.depth = depth
        self.doorbell = doorbell
        self.bell_place = bell.where
        self._bells, self._marks = bell.bells, bell.marks
        self.spin = 50e-6
        self.raw.arming.bell = <c.shmnd_bell *>self._bells.base + <size_t>bell.index
        self.raw.arming.marks = <c.shmnd_marks *>self._marks.base + <size_t>bell.index
        memset(self.raw.arming.bell, 0, sizeof(c.shmnd_bell))
        memset(self.raw.arming.marks, 0, sizeof(c.shmnd_marks))
        self.raw.limit = depth + _SLACK
        self.raw.by_bit = <c.shmnd_qp **>calloc(c.SHMND_READY_BITS, sizeof(void *))
        if self.raw.by_bit == NULL:
            raise error(Status.NO_MEMORY, "Adapter.create_completion_queue", "out of memory")
        self.reserve(0)

    # -- room --

    cdef reserve(self, uint64_t entries):
        """Make room for all that a new queue pair can have outstanding."""
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
                raise error(Status.INSUFFICIENT_RESOURCES, "CompletionQueue",
                            f"no memory for {need} completions")
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

    def hold_place(self) -> None:
        """Make room for one completion that counts for nobody's depth: of a window."""
        self.reserve(1)

    def free_place(self) -> None:
        """Undo `hold_place`."""
        self.unreserve(1)

    cdef uint32_t take_bit(self) except? 0xffffffff:
        """A number for a link of this queue, and room for it in the lists."""
        cdef void *grown
        if not self._free_bits and self._next_bit == c.SHMND_READY_BITS:
            raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_queue_pair",
                        f"a completion queue serves {c.SHMND_READY_BITS} queue pairs at most")
        if self.rooms == self._next_bit:
            self.rooms = self.rooms * 2 + 8
            grown = PyMem_RawRealloc(self.raw.links, self.rooms * sizeof(void *))
            if grown == NULL:
                raise MemoryError
            self.raw.links = <c.shmnd_qp **>grown
            grown = PyMem_RawRealloc(self.raw.active, self.rooms * sizeof(void *))
            if grown == NULL:
                raise MemoryError
            self.raw.active = <c.shmnd_qp **>grown
        if self._free_bits:
            return self._free_bits.pop()
        self._next_bit += 1
        return self._next_bit - 1

    cdef give_bit(self, uint32_t bit):
        self._free_bits.append(bit)

    cdef keep(self, object context):
        """The queue pair goes; completions with its context may still be here."""
        if c.shmnd_cq_count(&self.raw):
            self._keep.append(context)

    # -- polling --

    cdef int poll(self, c.shmnd_cqe *out, uint32_t most) except -1:
        """Poll until there is a completion or nothing left to do; jobs are run here."""
        cdef c.shmnd_todo todo
        cdef uint32_t n
        cdef int _
        if self.notify_mode:
            # Nobody takes a completion that those who wait for one have not seen.
            self.collect()
            if c.shmnd_cq_trigger(&self.raw, self.notify_mode):
                self.fired = True
            return <int>c.shmnd_cq_pop(&self.raw, out, most)
        for _ in range(_STEPS):
            n = c.shmnd_cq_poll(&self.raw, out, most, &todo)
            if todo.what == c.SHMND_IDLE:
                return <int>n
            (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
            if n:
                return <int>n
        return 0

    cdef object result(self, const c.shmnd_cqe *e):
        """Hand a completion over: the reference to its context moves along."""
        cdef Result r = Result.__new__(Result)
        r.status = _SUCCESS if e.status == 0 else Status(e.status)
        if e.type == c.SHMND_RECEIVE:
            r.bytes = e.bytes
            r.request_type = _RECEIVE
        else:
            r.request_type = _TYPES[e.type]
        r.queue_pair_context = <object>e.qp_context
        r.request_context = <object>e.context
        Py_DECREF(<object>e.context)
        return r

    def get_results(self, max=64) -> list:
        """Take up to `max` completions, oldest first. Never waits."""
        return self._taken_now(_most("CompletionQueue.get_results", max))

    cdef list _taken_now(self, Py_ssize_t max):
        cdef list results
        if self.born != forks:
            raise error(Status.DEVICE_REMOVED, "CompletionQueue.get_results", IN_CHILD)
        if self.notify_mode:
            self.adapter.hub.progress()  # a Notify sees every completion before it is taken
        if self.readiness is not None:
            self.readiness.clear()
        self.looks += 1
        results = self.take(max)
        if not results:
            self._look_around()
        return results

    cdef list take(self, Py_ssize_t max):
        """Make results of the completions that a poll finds."""
        cdef c.shmnd_cqe out[64]
        cdef list results = None
        cdef int n, i
        cdef uint32_t most
        while max > 0:
            most = <uint32_t>(max if max < 64 else 64)
            n = self.poll(out, most)
            for i in range(n):
                if out[i].flags & c.SHMND_CQE_SILENT:
                    Py_DECREF(<object>out[i].context)
                    continue
                max -= 1
                if results is None:
                    results = [self.result(&out[i])]  # most often the only one
                else:
                    results.append(self.result(&out[i]))
            if n < <int>most and (n == 0 or c.shmnd_cq_count(&self.raw) == 0):
                break
        if self._keep and c.shmnd_cq_count(&self.raw) == 0:
            self._keep.clear()
        if self.fired:
            self.tick()
        if self.sleepers:
            self._tell_feeders()
        return [] if results is None else results

    cdef _look_around(self):
        """Who only polls still learns, soon enough, that a peer has died.

        The other queues of this process have their requests carried on, too.
        """
        cdef uint64_t now = c.shmnd_coarse_ns()
        if now - self._looked_ns > _LOOK_NS:
            self._looked_ns = now
            if self.adapter.hub.alive:
                self.adapter.hub.progress()
                self.adapter.hub.carriers.look()

    def wait(self, max=64, timeout=None) -> list:
        """Take completions; when there is none, wait for one.

        Looks for `spin` seconds, then sleeps in the kernel. Returns [] when `timeout` seconds end
        first. Ctrl-C interrupts it.
        """
        cdef Py_ssize_t most = _most("CompletionQueue.wait", max)
        cdef list results
        cdef uint64_t began
        timeout = _patience(timeout)
        results = self._taken_now(most)
        if results or most == 0:
            return results
        if timeout is not None and timeout <= 0:
            return results
        began = c.shmnd_now_ns()
        results = self._spin(most, timeout)
        if results:
            self._spin_misses = 0
            return results
        self._spin_misses += 1
        if timeout is not None:
            timeout -= (c.shmnd_now_ns() - began) * 1e-9
            if timeout <= 0:
                return results
        return self._sleep(most, timeout)

    cdef list _spin(self, Py_ssize_t max, object timeout):
        """Look for the spin window, without the interpreter's lock but for the start."""
        cdef double window = self.spin if self._spin_misses < _MISSES else self.spin / 8
        cdef uint64_t start = c.shmnd_now_ns()
        cdef uint64_t end, now
        cdef int _
        cdef list results
        if timeout is not None and timeout < window:
            window = timeout
        end = start + <uint64_t>(window * 1e9)
        while True:
            for _ in range(64):
                if self._something():
                    results = self.take(max)
                    if results:
                        return results
                c.shmnd_pause()
            results = self._taken_now(max)
            now = c.shmnd_now_ns()
            if results or now >= end:
                return results
            if now - start > _KEEP_LOCK_NS:
                PyErr_CheckSignals()
                self._watch(end)

    cdef bint _something(self) noexcept:
        """A cheap look, under the lock: is it worth a poll?"""
        cdef uint32_t i
        cdef c.shmnd_qp *qp
        if self.raw.active_count or c.shmnd_cq_count(&self.raw):
            return True
        if self.raw.link_count > c.SHMND_DIRECT_LINKS:
            return True
        for i in range(self.raw.link_count):
            qp = self.raw.links[i]
            if c.shmnd_relaxed64(&c.shmnd_slot_peek_at(qp.in_.ring, qp.in_.read_pos).ready_pos) \
                    == qp.in_.read_pos + 1:
                return True
        return False

    cdef _watch(self, uint64_t end):
        """Look at the next slots of a few links with the lock released, up to 20 µs.

        Their memory is held by references meanwhile; what was seen is a hint for a real poll.
        """
        cdef const c.word64 *ready[4]
        cdef uint64_t expected[4]
        cdef uint32_t n = 0, i
        cdef uint64_t stop
        cdef list held = []
        cdef c.shmnd_qp *qp
        if self.raw.active_count or self.raw.link_count > 4:
            with nogil:
                c.shmnd_pause()
            return
        for i in range(self.raw.link_count):
            qp = self.raw.links[i]
            held.append((<PairCore>qp.owner).link)
            ready[n] = &c.shmnd_slot_peek_at(qp.in_.ring, qp.in_.read_pos).ready_pos
            expected[n] = qp.in_.read_pos + 1
            n += 1
        with nogil:
            stop = c.shmnd_now_ns() + 20000
            if stop > end:
                stop = end
            while c.shmnd_now_ns() < stop:
                for i in range(n):
                    if c.shmnd_relaxed64(ready[i]) == expected[i]:
                        stop = 0
                c.shmnd_pause()

    def _sleep(self, Py_ssize_t max, timeout):
        """Sleep in the kernel until something is there."""
        cdef list results = []

        def found():
            self._rearm()
            results.extend(self._taken_now(max))
            if not results:
                self.collect()  # marks that a peer has wiped away are no reason to sleep
                results.extend(self._taken_now(max))
            return bool(results) or self._over()

        self._asleep(found, timeout)
        return results

    cdef bint _over(self) except -1:
        """Before a sleep: there is no need of it any more, or what ends unheard is looked at."""
        due = self.due
        if due is not None and not self.closed:
            self.adapter.hub.wake_at(due)
        return self.closed

    cdef doze(self):
        """Sleep in the kernel until a completion is there, and leave it there."""

        def found():
            self._rearm()
            self.collect()
            return c.shmnd_cq_count(&self.raw) > 0 or self._over()

        self._asleep(found, None)

    def _asleep(self, found, timeout):
        self.sleepers += 1
        self._tallies.count_sleeper(1)
        try:
            self.adapter.hub.wait(found, timeout)
        finally:
            self.sleepers -= 1
            self._tallies.count_sleeper(-1)
            self._rearm()
            self.adapter.hub.carriers.left()

    # -- waking --

    cdef _rearm(self):
        """Arm for the strongest of those who sleep and those who wait for a Notify."""
        cdef uint32_t mode = self.notify_mode
        if self.born != forks:
            return
        if self.sleepers:
            mode = c.SHMND_ARMED_ANY
        if mode:
            c.shmnd_bell_arm(&self.raw.arming, mode)
        elif self.raw.arming.mode:
            c.shmnd_bell_disarm(&self.raw.arming)

    cdef void pushed(self) noexcept:
        """A thread of ours completed something: others of ours may sleep for it.

        Or it began what does not end at once, and those who sleep are to carry that on.
        """
        if not self.raw.arming.mode:
            if not self.announcing or not self.raw.active_count:
                return
            self.announcing = False
        if self.born == forks:
            c.shmnd_ring_self(self.doorbell)

    def arm_for(self, mode: int) -> None:
        """Arm for Notify requests: 1 any completion, 2 solicited ones and errors, 0 none."""
        self._tallies.count_notify((mode != 0) - (self.notify_mode != 0))
        self.notify_mode = mode
        self._rearm()

    cdef collect(self):
        """Take all that arrived into the queue's own ring, as far as it has room."""
        cdef c.shmnd_todo todo
        cdef int _
        for _ in range(1024):
            c.shmnd_cq_gather(&self.raw, &todo)
            if todo.what == c.SHMND_IDLE:
                break
            (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)

    def gather(self) -> int:
        """Take all that arrived into the queue's own ring; tell how many results it holds."""
        cdef uint64_t pos
        cdef int n = 0
        self.collect()
        if self.sleepers:
            self._tell_feeders()
        for pos in range(self.raw.read_pos, self.raw.write_pos):
            if not self.raw.ring[pos & self.raw.mask].flags & c.SHMND_CQE_SILENT:
                n += 1
        return n

    def triggered(self, mode: int) -> bool:
        """After `gather`: does a completion newer than the last trigger satisfy a Notify?"""
        cdef bint taken = self.fired
        self.fired = False
        return c.shmnd_cq_trigger(&self.raw, mode) or taken

    @property
    def busy(self) -> bool:
        """Requests are in progress that only polling finishes."""
        return self.raw.active_count != 0

    @property
    def attended(self) -> bool:
        """Somebody sleeps for it, or waits for a Notify."""
        return self.sleepers != 0 or self.notify_mode != 0

    @property
    def due(self) -> float | None:
        """When to look at requests in progress though nobody rings, as of `time.monotonic()`."""
        cdef uint64_t due = c.shmnd_cq_due_ns(&self.raw, _SOON_NS)
        return due * 1e-9 if due else None

    def set_depth(self, depth: int) -> None:
        """Hold `depth` results from now on."""
        old = self.raw.limit
        self.raw.limit = depth + _SLACK
        try:
            self.reserve(0)
        except BaseException:
            self.raw.limit = old
            raise
        self.depth = depth

    cdef feed_from(self, object receives):
        """Queue pairs here take their receives from this queue, which is told of it."""
        reference = weakref.ref(receives, self.feeders.remove)
        if reference not in self.feeders:
            self.feeders.append(reference)

    cdef _tell_feeders(self):
        """Messages may have used receives up, and somebody may wait for that."""
        for reference in list(self.feeders):
            receives = reference()
            if receives is not None:
                receives.used_up()

    def watch(self, on: bool) -> None:
        """Have arrivals ring as for one who sleeps, and tell of receives used up, or no longer."""
        self.sleepers += 1 if on else -1
        self._rearm()

    def look(self) -> None:
        """Take what arrived into the queue's own ring, armed anew for what comes."""
        self._rearm()  # first: a producer rings once an arming
        self.collect()

    def shut(self) -> None:
        """No more waiting; results that are here stay readable."""
        self.closed = True

    def __dealloc__(self):
        cdef uint64_t pos
        for pos in range(self.raw.read_pos, self.raw.write_pos):
            Py_DECREF(<object>self.raw.ring[pos & self.raw.mask].context)
        PyMem_RawFree(self.raw.ring)
        PyMem_RawFree(self.raw.links)
        PyMem_RawFree(self.raw.active)
        free(self.raw.by_bit)


# -- what the garbage collector is to see --

# The contexts of results that nobody took are held by entries in C. One that refers to its queue
# pair, as an object of a program with a connection and a request does, keeps that pair alive, and
# so this queue; what cannot be seen to be a circle is never given back.

cdef PyTypeObject *_type = <PyTypeObject *>CompletionCore
cdef traverseproc _visit_attributes = _type.tp_traverse
cdef inquiry _clear_attributes = _type.tp_clear


cdef int _visit(PyObject *queue, visitproc visit, void *arg) except -1:
    cdef c.shmnd_cq *raw = &(<CompletionCore>queue).raw
    cdef int stop = _visit_attributes(queue, visit, arg)
    cdef uint64_t pos
    for pos in range(raw.read_pos, raw.write_pos):
        if stop:
            break
        stop = visit(<PyObject *>raw.ring[pos & raw.mask].context, arg)
    return stop


cdef int _clear(object queue) except -1:
    cdef c.shmnd_cq *raw = &(<CompletionCore>queue).raw
    cdef void *context
    while raw.read_pos != raw.write_pos:
        context = raw.ring[raw.read_pos & raw.mask].context
        raw.read_pos += 1  # first: the end of a context may come back here
        Py_DECREF(<object>context)
    return _clear_attributes(queue)


_type.tp_traverse = _visit
_type.tp_clear = _clear
