# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Completion queues: the compiled part, which polls, waits and makes results.

Notify, Resize and their overlapped operations are in `shmnd.completion_queue`.
"""

import weakref

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsLongAndOverflow
from cpython.object cimport PyObject, PyTypeObject, inquiry, traverseproc, visitproc
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.ref cimport Py_DECREF
from libc.stdint cimport UINT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport NOT_MADE, forks, whose
from shmnd.ring.shared_memory.registry cimport release_contexts
from shmnd.ring.process.waiting cimport WaitSetCore

from shmnd.status import RequestType, Status, error
from shmnd.common.arguments import seconds, within

cdef object _SUCCESS = Status.SUCCESS
cdef object _USUAL = 64  # the default of `max`
cdef object _RECEIVE = RequestType.RECEIVE
cdef tuple _TYPES = tuple(RequestType)
cdef dict _REASONS = {
    int(Status.CANCELED): "the queue pair was flushed, disconnected or closed here",
    int(Status.IO_TIMEOUT): "the peer died, or posted no Receive in time",
    int(Status.ACCESS_VIOLATION): "memory is not registered for this use, here or at the peer",
    int(Status.BUFFER_OVERFLOW): "the message is longer than the buffers of the Receive",
    int(Status.REMOTE_ERROR): "the peer's Receive was too short, or its memory not registered",
}
cdef int _KNOWN_OF_ONE_CONTEXT = 8
# More entries than were asked for: programs outrun an exact depth by a few.
cdef uint64_t _SLACK = 16
# The first polls of a wait keep the interpreter's lock for this long.
cdef uint64_t _KEEP_LOCK_NS = 3000
# How often a queue in use checks for dead peers.
cdef uint64_t _LOOK_NS = 10000000
# How often a queue is polled for operations that end without a wake-up.
cdef uint64_t _SOON_NS = 2000000
# The most steps of one poll: a hostile peer that keeps changing its state must not prolong it.
cdef int _STEPS = 4096
# The largest depth of a queue.
cdef int _MOST_DEPTH = 1 << 24
# The bytes that one call copies before it leaves the rest to the next.
cdef int64_t _PIECE = c.SHMND_PIECE
# The number of pieces that a sleeper copies before it polls all else.
cdef int _PIECES = 16
# After this many waits in vain the spin window shrinks to an eighth.
cdef uint32_t _MISSES = 8
# Seconds that count as unlimited.
cdef double _LONG = 1e9


@cython.freelist(256)
cdef class Result:
    """The result of a request."""

    @property
    def bytes_transferred(self) -> int:
        """Bytes received, for a successful Receive; otherwise 0."""
        return self.bytes

    @property
    def detail(self) -> str:
        """Why the request failed, with the peer; empty after a success."""
        return ""

    def raise_if_failed(self) -> Result:
        """Return the result itself after a success; otherwise raise the `NdError` of its status."""
        if self.status is _SUCCESS:
            return self
        raise error(self.status, f"QueuePair.{self.request_type.name.lower()}",
                    f"{self.detail or 'the request failed'}; "
                    f"its context is {self.request_context!r}")

    def __repr__(self) -> str:
        about = f" {self.bytes} bytes" if self.bytes else ""
        if self.queue_pair_context is not None:
            about += f" queue pair {self.queue_pair_context!r}"
        why = f": {self.detail}" if self.detail else ""
        return (f"<Result {self.request_type.name} {self.status.name}{about} "
                f"context={self.request_context!r}{why}>")


cdef class FailedResult(Result):
    """A result that is not a success, with the reason."""

    @property
    def detail(self) -> str:
        """Why the request failed, with the peer."""
        return self.why


@cython.final
cdef class Bound:
    """The context of a Bind or Invalidate, with the window, which it keeps alive until then."""


cdef inline object _context_of(const c.shmnd_cqe *e):
    if e.type == c.SHMND_BIND or e.type == c.SHMND_INVALIDATE:
        if type(<object>e.context) is Bound:
            return (<Bound>e.context).context
    return <object>e.context


cdef class PairCore:
    """A queue pair as its completion queues use it: it runs the jobs that a poll leaves."""

    cdef int64_t serve(self, uint32_t what, bint receiving) except -1:
        """Run a job or map a segment; return the number of bytes copied."""
        raise AssertionError("a queue pair overrides this")

    cdef str why(self, uint32_t status, uint32_t type_):
        """Say why a request ended with this status."""
        raise AssertionError("a queue pair overrides this")

    cdef str outstanding(self, bint requests, bint receives):
        """Say which requests are outstanding, and with which process."""
        raise AssertionError("a queue pair overrides this")

    @property
    def _receive_cq(self) -> CompletionCore:
        """The queue of its Receives."""
        return self.receive_cq


cdef inline Py_ssize_t _most(str call, object value) except -1:
    """Return the number of results that the caller wants."""
    cdef int beyond = 0
    cdef long most
    if type(value) is int:
        most = PyLong_AsLongAndOverflow(value, &beyond)
        if beyond == 0 and 0 <= most <= 0xFFFFFFFF:
            return most
    return min(within(call, 1, "max", value, 0), 0xFFFFFFFF)


cdef inline object _patience(object timeout):
    """Return a time-out; raise if it is not a number of seconds or None."""
    if timeout is None or (type(timeout) is float and timeout >= 0):
        return timeout
    if type(timeout) is int and 0 <= timeout <= 0xFFFFFFFF:
        return timeout
    return seconds("CompletionQueue.wait", 2, "timeout", timeout)


cdef int _milliseconds(uint64_t until, double longest) except -1:
    """Return the milliseconds to sleep, rounded up, at most `longest`; 0 when the time is over."""
    cdef uint64_t now
    if until:
        now = c.shmnd_now_ns()
        if now >= until:
            return 0
        longest = min(longest, <double>(until - now) * 1e-9)
    return <int>min(longest * 1e3 + 1, 1e9)


def idle_beside(references, alone, bint announcing) -> bool:
    """Return whether no queue except `alone` has pending requests; have the others announce one.

    `RequestProgress` calls it before a thread sleeps alone: `references` are all queues of its
    progress engine.
    """
    cdef CompletionCore queue
    for reference in references:
        found = reference()
        if found is None or found is alone:
            continue
        queue = found
        if queue.raw.unsettled and announcing:
            return False
        queue.announce(announcing and queue.sleepers == 0 and queue.notify_mode == 0)
        if announcing and queue.asked():
            return False
    return True


cdef class CompletionCore:
    """A completion queue's polling side."""

    def __cinit__(self, *args, **kwargs):
        self.born = self.taking = NOT_MADE
        self._free_bits = []
        self._keep = []
        self.feeders = []
        self.users = {}
        self.doorbell = -1

    def __init__(self, adapter, int depth, bell, int doorbell):
        cdef Segment bells = bell.bells, marks = bell.marks
        cdef size_t index = bell.index
        if self.born != NOT_MADE:
            raise TypeError("a completion queue is made once")
        if (bells is None or marks is None or depth < 0
                or (index + 1) * sizeof(c.shmnd_bell) > bells.size
                or (index + 1) * sizeof(c.shmnd_marks) > marks.size):
            raise TypeError("a completion queue is made by its adapter")
        self.adapter = adapter
        self._registry = adapter._registry
        self._counter_table = adapter._counter_table
        self._wait_set_core = adapter._engine.wait_set
        self.depth = depth
        self.doorbell = doorbell
        self.bell_place = bell.where
        self._bells, self._marks = bells, marks
        self.spin = 50e-6
        self.raw.arming.bell = <c.shmnd_bell *>bells.base + index
        self.raw.arming.marks = <c.shmnd_marks *>marks.base + index
        memset(self.raw.arming.bell, 0, sizeof(c.shmnd_bell))
        memset(self.raw.arming.marks, 0, sizeof(c.shmnd_marks))
        self.raw.limit = depth + _SLACK
        if self.raw.by_bit == NULL:
            self.raw.by_bit = <c.shmnd_qp **>calloc(c.SHMND_READY_BITS, sizeof(void *))
        if self.raw.by_bit == NULL:
            raise error(Status.NO_MEMORY, "Adapter.create_completion_queue", "out of memory")
        self.reserve(0)
        self.born = self.taking = forks

    cdef int usable(self, str call) except -1:
        """Raise unless it was made, and in this process."""
        if self.born != forks:
            raise whose(self.born, f"CompletionQueue.{call}")
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
        return c.shmnd_cq_count(&self.raw)

    @property
    def _connected(self) -> int:
        """The number of queue pairs that complete here and have, or just had, a peer."""
        return self.raw.link_count

    @property
    def _looks(self) -> int:
        """The number of polls by the program; it wraps."""
        return self.looks

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

    cdef announce(self, bint value):
        """Set whether messages and requests that need a poll here wake a sleeping thread."""
        if value or self.announcing:
            self.announcing = value
            self._rearm()

    @property
    def _readiness(self) -> object:
        """The descriptor of `fileno`, cleared when results are taken."""
        return self.readiness

    @_readiness.setter
    def _readiness(self, value) -> None:
        self.readiness = value

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

    cdef uint32_t take_bit(self) except? 0xffffffff:
        """Return a bit number for a link of this queue, and make room for it in the lists."""
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
        """Keep the context of a queue pair that is released: completions may still refer to it."""
        if c.shmnd_cq_count(&self.raw):
            self._keep.append(context)

    # -- polling --

    cdef int poll(self, c.shmnd_cqe *out, uint32_t most) except -1:
        """Poll until there is a completion or no work is left; run the jobs of the poll."""
        cdef c.shmnd_todo todo
        cdef uint32_t n = 0
        cdef int _
        if self.notify_mode:
            # A completion must satisfy a waiting Notify before it is taken.
            self.collect()
            if c.shmnd_cq_trigger(&self.raw, self.notify_mode):
                self.fired = True
            return <int>c.shmnd_cq_pop(&self.raw, out, most)
        for _ in range(_STEPS):
            n = c.shmnd_cq_poll(&self.raw, out, most, &todo)
            if todo.what == c.SHMND_IDLE:
                break
            self._copied += (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
            if n or self._copied >= _PIECE:
                break
        if self._registry is not None and self._registry.raw.unreleased != NULL:
            release_contexts(&self._registry.raw)
        return <int>n

    cdef object result(self, const c.shmnd_cqe *e):
        """Make the result of a completion, which passes on the reference to its context."""
        cdef Result r
        if e.status:
            return self.failure(e)
        r = Result.__new__(Result)
        r.status = _SUCCESS
        if e.type == c.SHMND_RECEIVE:
            r.bytes = e.bytes
            r.request_type = _RECEIVE
        else:
            r.request_type = _TYPES[e.type]
        r.queue_pair_context = <object>e.qp_context
        r.request_context = _context_of(e)
        Py_DECREF(<object>e.context)
        return r

    cdef object failure(self, const c.shmnd_cqe *e):
        """Make the result of a completion that is not a success, with the reason."""
        cdef FailedResult r = FailedResult.__new__(FailedResult)
        r.status = Status(e.status)
        r.request_type = _TYPES[e.type]
        r.queue_pair_context = <object>e.qp_context
        r.request_context = _context_of(e)
        Py_DECREF(<object>e.context)
        r.why = _REASONS.get(e.status, "")
        # With several queue pairs of one context, a reason counts only if all of them give it.
        reasons = set()
        for reference in self.users.get(<size_t>e.qp_context, ()):
            pair = reference()
            if pair is not None:
                reasons.add((<PairCore>pair).why(e.status, e.type))
        if len(reasons) == 1:
            r.why = reasons.pop() or r.why
        return r

    cdef know(self, PairCore pair):
        """Add a queue pair that completes here, for the reasons of failed results."""
        cdef size_t key = <size_t>pair.q.context
        living = [reference for reference in self.users.get(key, ()) if reference() is not None]
        if len(living) < _KNOWN_OF_ONE_CONTEXT:
            self.users[key] = [*living, weakref.ref(pair)]
        if len(self.users) > 2 * self.raw.link_count + 64:
            self.users = {key: references for key, references in self.users.items()
                          if any(reference() is not None for reference in references)}

    def get_results(self, max=64) -> list:
        """Take up to `max` completions, oldest first. Never waits."""
        return self._taken_now(
            64 if max is _USUAL else _most("CompletionQueue.get_results", max))

    cdef list _taken_now(self, Py_ssize_t max):
        if self.taking != forks or c.shmnd_pace_due(&self.pace):
            self._pause()
        if self.notify_mode:
            # A Notify checks every completion before it is taken, and its descriptor too.
            if self.readiness is None:
                self._tick()
            else:
                self.adapter._engine.progress()
        if self.readiness is not None:
            self.readiness.clear()
        self.looks += 1
        return self.take(max)

    cdef int _pause(self) except -1:
        """The work that not every call does: refuse in a child process, and periodic progress."""
        if self.taking != forks:
            self._refuse_taking("get_results")
        self._look_around()
        return 0

    def _refuse_taking(self, call):
        """Raise the reason why no results can be taken: closed, of another process, or not made."""
        self.usable(call)
        self.adapter._check_open(f"CompletionQueue.{call}")
        raise error(Status.INVALID_HANDLE, f"CompletionQueue.{call}",
                    "the completion queue is closed; take results before close()")

    cdef list take(self, Py_ssize_t max):
        """Make results of the completions that a poll finds."""
        cdef c.shmnd_cqe out[64]
        cdef list results = None
        cdef int n, i
        cdef uint32_t most
        self._copied = 0
        while max > 0:
            most = <uint32_t>(max if max < 64 else 64)
            n = self.poll(out, most)
            for i in range(n):
                max -= 1
                if results is None:
                    results = [self.result(&out[i])]  # most often the only one
                else:
                    results.append(self.result(&out[i]))
            if n < <int>most and (n == 0 or c.shmnd_cq_count(&self.raw) == 0):
                break
            if self._copied >= _PIECE:
                break
        if self._keep and c.shmnd_cq_count(&self.raw) == 0:
            self._keep.clear()
        if self.fired:
            self._tick()
        if self.sleepers:
            self._tell_feeders()
        return [] if results is None else results

    cdef _look_around(self):
        """Check periodically for dead peers, and make progress on the other queues of the process.

        A program that only polls or posts depends on it. It runs before a poll or a post, so an
        exception from it loses no result.
        """
        cdef uint64_t now = c.shmnd_coarse_ns()
        if now - self._looked_ns > _LOOK_NS:
            self._looked_ns = now
            if self.asked():
                c.shmnd_marks_accept_request(self.raw.arming.marks)
                self.collect()
            if self.adapter._engine.alive:
                self.adapter._engine.progress()
                self.adapter._engine.request_progress.look(self)

    def wait(self, max=64, timeout=None) -> list:
        """Take completions; when there is none, wait for one.

        Polls for `spin` seconds, then sleeps in the kernel. Returns [] when `timeout` seconds end
        first. Ctrl-C interrupts it.
        """
        cdef Py_ssize_t most = _most("CompletionQueue.wait", max)
        cdef list results
        cdef uint64_t began
        timeout = _patience(timeout)
        if self.taking != forks:
            self._refuse_taking("wait")
        results = self._taken_now(most)
        if results or most == 0:
            return results
        if timeout is not None and timeout <= 0:
            return results
        began = c.shmnd_now_ns()
        if self.spin > 0:
            results = self._spin(most, timeout)
            if results:
                self._spin_misses = 0
                return results
            self._spin_misses += 1
        if timeout is not None:
            timeout -= (c.shmnd_now_ns() - began) * 1e-9
            if timeout <= 0:
                return results
        results = self._sleep(most, timeout)
        if not results and self.taking != forks:
            self._refuse_taking("wait")
        return results

    cdef list _spin(self, Py_ssize_t max, object timeout):
        """Poll for the spin window, without the interpreter's lock except at its beginning.

        Pieces of long copies are run meanwhile; the window begins again after each.
        """
        cdef double window = self.spin if self._spin_misses < _MISSES else self.spin / 8
        cdef uint64_t start = c.shmnd_now_ns()
        cdef uint64_t end, now, last = UINT64_MAX
        cdef int _
        cdef list results
        if timeout is not None and timeout < 1e9:
            last = start + <uint64_t>(<double>timeout * 1e9)
        end = min(start + <uint64_t>(window * 1e9), last)
        while True:
            for _ in range(64):
                if self._something():
                    results = self.take(max)
                    if results:
                        return results
                    if self._copied:
                        end = min(c.shmnd_now_ns() + <uint64_t>(window * 1e9), last)
                        break
                c.shmnd_pause()
            results = self._taken_now(max)
            now = c.shmnd_now_ns()
            if results or now >= end:
                return results
            if now - start > _KEEP_LOCK_NS:
                PyErr_CheckSignals()
                self._spin_unlocked(end)

    cdef bint _something(self) noexcept:
        """Return whether a poll may find something; a cheap check, under the lock."""
        cdef uint32_t i
        cdef c.shmnd_qp *qp
        if self.raw.unsettled or c.shmnd_cq_count(&self.raw):
            return True
        if self.raw.link_count > c.SHMND_DIRECT_LINKS:
            return True
        for i in range(self.raw.link_count):
            qp = self.raw.links[i]
            if c.shmnd_relaxed64(&c.shmnd_reader_slot(&qp.in_, qp.in_.read_pos).ready_pos) \
                    == qp.in_.read_pos + 1:
                return True
        return False

    cdef _spin_unlocked(self, uint64_t end):
        """Poll the next slots of a few links with the lock released, for up to 20 µs.

        References keep their memory mapped meanwhile. The outcome is only a hint for a full poll.
        """
        cdef const c.word64 *ready[4]
        cdef uint64_t expected[4]
        cdef uint32_t n = 0, i
        cdef uint64_t stop
        cdef list held = []
        cdef c.shmnd_qp *qp
        if self.raw.unsettled or self.raw.link_count > 4:
            with nogil:
                c.shmnd_pause()
            return
        for i in range(self.raw.link_count):
            qp = self.raw.links[i]
            held.append((<PairCore>qp.owner).link)
            ready[n] = &c.shmnd_reader_slot(&qp.in_, qp.in_.read_pos).ready_pos
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
        """Sleep in the kernel until there is a completion."""
        cdef list results = []
        cdef uint64_t until = 0
        if timeout is not None:
            until = c.shmnd_now_ns() + <uint64_t>(min(<double>timeout, _LONG) * 1e9)
        if self._sleep_alone(max, until, results):
            return results
        if until:
            timeout = (<double>until - <double>c.shmnd_now_ns()) * 1e-9

        def found():
            self._rearm()
            for _ in range(_PIECES):
                results.extend(self._taken_now(max))
                if results or not c.shmnd_cq_has_unfinished_copy(&self.raw):
                    break
            if not results:
                self.collect()  # a hostile peer may have cleared marks
                results.extend(self._taken_now(max))
            return bool(results) or self._over()

        self._asleep(found, timeout)
        return results

    cdef bint _sleep_alone(self, Py_ssize_t max, uint64_t until, list results) except -1:
        """Sleep as `_asleep` does, without its Python calls: the common case of a waiter.

        False if that is not possible: another thread sleeps too, or requests of other queues are
        pending.
        """
        cdef WaitSetCore wait_set = self._wait_set_core
        cdef object engine = self.adapter._engine
        if wait_set is None or not engine.request_progress.begin_alone(self):
            return False
        if not wait_set._become_leader():
            engine.request_progress.end(self)
            return False
        self.sleepers += 1
        self._counter_table.count_sleeper(1)
        try:
            return self._nap_until(max, until, results)
        finally:
            self.sleepers -= 1
            self._counter_table.count_sleeper(-1)
            self._rearm()
            wait_set.leave_alone()
            engine.request_progress.end(self)

    cdef bint _nap_until(self, Py_ssize_t max, uint64_t until, list results) except -1:
        """Sleep and poll in turn; False when this thread cannot continue to do so alone."""
        cdef WaitSetCore wait_set = self._wait_set_core
        cdef object engine = self.adapter._engine
        cdef uint64_t seen
        cdef int milliseconds
        cdef list others
        while True:
            seen = wait_set._generation  # first: later changes of the engine must be noticed
            engine.check("wait")
            self._rearm()
            self.collect()  # a hostile peer may have cleared marks
            if c.shmnd_cq_count(&self.raw):
                results.extend(self._taken_now(max))
            if results or self._over():
                return True
            milliseconds = _milliseconds(until, engine.longest_sleep)
            if milliseconds == 0:
                return True
            if (wait_set.is_led_elsewhere() or c.shmnd_cq_has_unfinished_copy(&self.raw)
                    or not engine.request_progress.alone(self)):
                return False
            others = []
            if not wait_set.nap(seen, milliseconds, others):
                continue
            wait_set.tell()
            if self.notify_mode or self.readiness is not None:
                results.extend(self._taken_now(max))
            else:
                self.looks += 1
                results.extend(self.take(max))
            if others or engine.has_pending:
                engine.attend(others)
            if results:
                return True

    cdef bint _over(self) except -1:
        """Before a sleep: return whether it must not begin, and set the time of the next poll."""
        due = self._due
        if due is not None and not self.closed:
            self.adapter._engine.wake_at(due)
        return self.closed

    cdef doze(self):
        """Sleep in the kernel until there is a completion, without taking it."""

        def found():
            self._rearm()
            self.collect()
            return c.shmnd_cq_count(&self.raw) > 0 or self._over()

        self._asleep(found, None)

    def _asleep(self, found, timeout):
        self.usable("wait")
        self.sleepers += 1
        self._counter_table.count_sleeper(1)
        try:
            self.adapter._engine.wait(found, timeout)
        finally:
            self.sleepers -= 1
            self._counter_table.count_sleeper(-1)
            self._rearm()
            self.adapter._engine.request_progress.left(self)

    def _outstanding(self) -> list:
        """Return a text for each connected queue pair: its outstanding requests and its peer."""
        cdef c.shmnd_qp *qp
        cdef uint32_t i
        said = []
        for i in range(self.raw.link_count):
            qp = self.raw.links[i]
            said.append((<PairCore>qp.owner).outstanding(
                qp.initiator_cq == &self.raw, qp.receive_cq == &self.raw))
        return said

    # -- waking --

    cdef _rearm(self):
        """Arm the bell in the strongest mode that a sleeping thread or a Notify needs."""
        cdef uint32_t mode = self.notify_mode
        if self.born != forks:
            return
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
            c.shmnd_ring_eventfd(self.doorbell)

    def _arm_for(self, mode: int) -> None:
        """Arm for Notify requests: 1 any completion, 2 solicited ones and errors, 0 none."""
        if self.born == forks:
            self._counter_table.count_notify((mode != 0) - (self.notify_mode != 0))
        self.notify_mode = mode
        self._rearm()

    cdef collect(self):
        """Take all messages that arrived into the queue's own ring, as far as it has room.

        One piece of a long copy is run; `_due` returns when to continue.
        """
        cdef c.shmnd_todo todo
        cdef int64_t copied = 0
        cdef int _
        for _ in range(1024):
            c.shmnd_cq_drain_links(&self.raw, &todo)
            if todo.what == c.SHMND_IDLE:
                break
            copied += (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
            if copied >= _PIECE:
                break
        if self._registry is not None:
            release_contexts(&self._registry.raw)

    def _gather(self) -> int:
        """Take all messages that arrived into the queue's own ring; return its length."""
        self.usable("_gather")
        self.collect()
        if self.sleepers:
            self._tell_feeders()
        return c.shmnd_cq_count(&self.raw)

    def _triggered(self, mode: int) -> bool:
        """After `_gather`: whether a completion since the last trigger satisfies a Notify."""
        cdef bint taken = self.fired
        self.fired = False
        return c.shmnd_cq_trigger(&self.raw, mode) or taken

    @property
    def _busy(self) -> bool:
        """Whether requests are pending that only polling finishes, here or at a peer."""
        return self.raw.unsettled != 0 or self.asked()

    cdef bint asked(self) noexcept:
        """Return whether a sender has requested a poll for its message."""
        return self.raw.arming.marks != NULL and c.shmnd_marks_poll_requested(self.raw.arming.marks)

    @property
    def _attended(self) -> bool:
        """Whether a thread sleeps for it, or a Notify is pending."""
        return self.sleepers != 0 or self.notify_mode != 0

    @property
    def _due(self) -> float | None:
        """The `time.monotonic()` at which pending requests need a poll without a wake-up."""
        cdef uint64_t due = c.shmnd_cq_next_poll_ns(&self.raw, _SOON_NS)
        return due * 1e-9 if due else None

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

    def _watch(self, on: bool) -> None:
        """Treat the queue as if a thread slept for it, so that arrivals ring, or no longer."""
        self.sleepers = max(0, self.sleepers + (1 if on else -1))
        self._rearm()

    def _look(self) -> None:
        """Arm the bell again, and take all messages that arrived into the queue's own ring."""
        self.usable("_look")
        self._rearm()  # first: a producer rings once an arming
        c.shmnd_marks_accept_request(self.raw.arming.marks)
        self.collect()

    def _shut(self) -> None:
        """Close it: waits end, and no further results can be taken."""
        self.closed = True
        self.taking = NOT_MADE

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
        raw.read_pos += 1  # first: the finaliser of a context may call this again
        Py_DECREF(<object>context)
    return _clear_attributes(queue)


_type.tp_traverse = _visit
_type.tp_clear = _clear
