# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Loops of latency: ping-pongs by messages, by Writes and by bare memory, and Reads one by one."""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.loops.steps cimport (
    SIGNALS, await_completions, check_loop, check_peer, check_signals, post_rdma, post_send, reap,
    repost, since, source_of)
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.queue_pair cimport QueuePair
from shmnd.ring.shared_memory.sge cimport Sge

from shmnd.status import Status, error


cdef class _Stamps:
    """The caller's buffer for the times of a loop, if there is one, and the times of its turns."""

    cdef Py_buffer view
    cdef int64_t *at
    cdef double rate
    cdef uint64_t start, due

    def __cinit__(self, stamps, uint64_t count, double rate=0.0):
        self.at = NULL
        self.rate = rate
        if stamps is None:
            return
        if count >= 1 << 56:
            raise ValueError(f"{count} times are too many")
        PyObject_GetBuffer(stamps, &self.view, PyBUF_WRITABLE)
        self.at = <int64_t *>self.view.buf
        if self.view.len < <Py_ssize_t>((count + 1) * sizeof(int64_t)):
            raise ValueError(f"{self.view.len} bytes do not hold {count} + 1 times")

    def __dealloc__(self):
        if self.at != NULL:
            PyBuffer_Release(&self.view)

    cdef inline void mark(self, uint64_t place) noexcept nogil:
        """Store the time, if the turns are not paced."""
        if self.at != NULL and self.rate == 0:
            self.at[place] = <int64_t>c.shmnd_now_ns()

    cdef int begin(self, uint64_t place) except -1 nogil:
        """Wait until a paced turn is due."""
        cdef uint64_t polls = 0
        if self.rate == 0:
            return 0
        if place == 0:
            self.start = c.shmnd_now_ns()
        self.due = self.start + <uint64_t>(<double>place * 1e9 / self.rate)
        while c.shmnd_now_ns() < self.due:
            polls += 1
            if polls & SIGNALS == 0:
                check_signals()
        return 0

    cdef inline void end(self, uint64_t place) noexcept nogil:
        """Store the time that a paced turn took since it was due."""
        if self.at != NULL and self.rate != 0:
            self.at[place] = <int64_t>(c.shmnd_now_ns() - self.due)


cdef class Ticks:
    """An iterator of `count` rounds that stores the time at which each begins, and the end.

    As the subject of a `for` statement it costs less than any call, and the loop stays unchanged.
    """

    cdef _Stamps times
    cdef uint64_t place, count

    def __cinit__(self, stamps, uint64_t count):
        self.times = _Stamps(stamps, count)
        self.place = 0
        self.count = count

    def __iter__(self):
        return self

    def __next__(self):
        if self.place > self.count:
            raise StopIteration
        self.times.mark(self.place)
        self.place += 1
        if self.place > self.count:
            raise StopIteration


def pingpong(QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq, Sge send,
             Sge receive, uint64_t count, bint first, uint32_t flags=0, stamps=None,
             double rate=0.0) -> float:
    """Send and receive `count` times each; reap both completions and repost the Receive.

    As in the loop in Python, work that the answer does not need is done after it was sent.
    """
    cdef c.shmnd_cqe out
    cdef uint64_t i, start
    cdef bint paced = first and rate > 0, answer
    cdef str call = "loops.pingpong"
    check_loop(call, qp, receive_cq, initiator_cq, (receive,), flags)
    send = source_of(call, qp, send, flags)
    cdef _Stamps times = _Stamps(stamps, count, rate)
    with nogil:
        start = c.shmnd_now_ns()
        if first and not paced:
            post_send(&qp.q, &send.raw, flags, call)
            times.mark(0)
            reap(initiator_cq, call)
        for i in range(1, count + 1):
            if paced:
                times.begin(i - 1)
                post_send(&qp.q, &send.raw, flags, call)
            await_completions(receive_cq, &out, 1, call)
            answer = not paced and not (first and i == count)
            if answer:
                post_send(&qp.q, &send.raw, flags, call)
            if first:
                times.mark(i)
                times.end(i - 1)
            repost(&qp.q, &out, &receive.raw, call)
            if answer or paced:
                reap(initiator_cq, call)
    return since(start)


def write_pingpong(QueuePair qp, CompletionCore initiator_cq, Sge source, uint64_t remote_address,
                   uint32_t remote_token, const uint8_t[::1] watch, uint64_t mark, uint64_t count,
                   bint first, uint32_t flags=0, stamps=None, double rate=0.0) -> float:
    """Write, and poll `watch` until the other side's Write arrives; `count` times.

    The last byte of `source`, or of its copy if INLINE, carries `mark`, `mark` + 1, … 255, 1, …
    """
    cdef uint64_t i, start, spins
    cdef uint8_t *last
    cdef const uint8_t *watched = &watch[0]
    cdef uint8_t expected
    cdef int turn
    cdef str call = "loops.write_pingpong"
    check_loop(call, qp, initiator_cq, initiator_cq, (), flags)
    source = source_of(call, qp, source, flags)
    if source.raw.length == 0 or not flags & c.SHMND_OP_INLINE and c.shmnd_sge_region(
            &qp.registry.raw, &source.raw, c.SHMND_MR_LOCAL_WRITE) == NULL:
        raise error(Status.ACCESS_VIOLATION, call, f"{source!r} cannot be written to")
    last = <uint8_t *><size_t>(source.raw.address + source.raw.length - 1)
    cdef _Stamps times = _Stamps(stamps, count, rate if first else 0.0)
    with nogil:
        start = c.shmnd_now_ns()
        for i in range(count):
            expected = <uint8_t>((mark - 1 + i) % 255 + 1)
            times.begin(i)
            for turn in range(2):
                if (turn == 0) == first:
                    last[0] = expected
                    post_rdma(&qp.q, <uint8_t>c.SHMND_WRITE, &source.raw, remote_address,
                              remote_token, flags, call)
                    times.mark(i)
                    reap(initiator_cq, call)
                else:
                    spins = 0
                    while c.shmnd_byte_at(watched) != expected:
                        spins += 1
                        if spins & SIGNALS == 0:
                            check_peer(qp, call)
            times.end(i)
        times.mark(count)
    return since(start)


def read(QueuePair qp, CompletionCore initiator_cq, Sge local, uint64_t remote_address,
         uint32_t remote_token, uint64_t count, stamps=None, double rate=0.0) -> float:
    """Read `count` times, one after another; return the seconds."""
    cdef uint64_t i, start
    cdef str call = "loops.read"
    check_loop(call, qp, initiator_cq, initiator_cq, (local,), 0)
    cdef _Stamps times = _Stamps(stamps, count, rate)
    with nogil:
        start = c.shmnd_now_ns()
        for i in range(count):
            times.begin(i)
            times.mark(i)
            post_rdma(&qp.q, <uint8_t>c.SHMND_READ, &local.raw, remote_address, remote_token, 0,
                      call)
            reap(initiator_cq, call)
            times.end(i)
        times.mark(count)
    return since(start)


@cython.final
cdef class LineEnd:
    """One end of two cache lines that two processes exchange, by a call of Python for each half.

    `shared` is the same page in both processes.
    """

    cdef Py_buffer view
    cdef c.word64 *mine
    cdef c.word64 *theirs
    cdef uint64_t given, taken

    def __cinit__(self, shared not None, bint first):
        cdef char *at
        PyObject_GetBuffer(shared, &self.view, PyBUF_WRITABLE)
        if self.view.len < 1024 or <size_t>self.view.buf % 64:
            raise ValueError(f"{self.view.len} bytes; at least 1,024 that begin at a cache line")
        at = <char *>self.view.buf
        self.mine = <c.word64 *>&at[0 if first else 512]
        self.theirs = <c.word64 *>&at[512 if first else 0]

    def __dealloc__(self):
        PyBuffer_Release(&self.view)  # does nothing if no buffer was taken

    def give(self):
        """Store the next number for the other end."""
        self.given += 1
        # SYNC bare-line: release, pairs with the acquire below in the other process
        c.shmnd_release64(self.mine, self.given)

    def take(self):
        """Poll until the other end has stored its next number."""
        cdef uint64_t spins = 0
        # SYNC bare-line: acquire, pairs with the release of the other process
        while c.shmnd_acquire64(self.theirs) <= self.taken:
            spins += 1
            if spins & SIGNALS == 0:
                with nogil:  # other threads run, too, from time to time
                    check_signals()
        self.taken += 1


def exchange_lines(uint8_t[::1] shared, uint64_t base, uint64_t count, bint first,
                   stamps=None) -> float:
    """Exchange a number through two cache lines, `count` times: the floor of a ping-pong.

    `shared` is the same page in both processes. The numbers continue from `base`, which both pass.
    """
    cdef uint64_t i, start, spins = 0
    cdef c.word64 *mine
    cdef c.word64 *theirs
    cdef _Stamps times = _Stamps(stamps, count)
    if len(shared) < 1024:
        raise ValueError(f"{len(shared)} bytes are less than the 1,024 that keep the lines apart")
    mine = <c.word64 *>&shared[0 if first else 512]
    theirs = <c.word64 *>&shared[512 if first else 0]
    with nogil:
        start = c.shmnd_now_ns()
        for i in range(1, count + 1):
            if first:
                # SYNC bare-line: release, pairs with the acquire below in the other process
                c.shmnd_release64(mine, base + i)
                times.mark(i - 1)
            # SYNC bare-line: acquire, pairs with the releases of the other process
            while c.shmnd_acquire64(theirs) != base + i:
                spins += 1
                if spins & SIGNALS == 0:
                    check_signals()
            if not first:
                c.shmnd_release64(mine, base + i)
        times.mark(count)
    return since(start)
