# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Measuring loops that stay in the compiled part: what the data plane costs without Python.

The interpreter's lock is released for a whole loop but for a look at signals now and then. Every
loop gives the seconds it took, and raises NdError for a completion that is no success. Contexts
move along with what is reposted, so references are as they were when a loop ends well.

`flags` are those of each Send or Write: INLINE or none.

Loops of latency take `stamps`, a buffer of `count` + 1 signed 64-bit numbers, or None: the time of
each posting and, last, that of the last arrival. A stamp is taken while the message travels.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from shmnd.ring cimport c
from shmnd.ring.memory cimport Sge
from shmnd.ring.qp cimport QueuePair
from shmnd.ring.queue cimport CompletionCore, PairCore

from shmnd.status import Status, error

cdef uint64_t SIGNALS = 0x7FFF
cdef void *_NONE = <void *>None


cdef int _look() except -1 with gil:
    PyErr_CheckSignals()
    return 0


cdef int _look_at(QueuePair qp, str call) except -1 with gil:
    """A target that spins calls nothing; now and then, see whether its peer is still there."""
    PyErr_CheckSignals()
    qp.progress()
    if qp.q.state != c.SHMND_QP_CONNECTED:
        raise error(Status.CONNECTION_ABORTED, call, "the other side is gone")
    return 0


cdef int _serve(c.shmnd_todo *todo) except -1 with gil:
    return (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)


cdef int _refused(str call, uint32_t status) except -1 with gil:
    raise error(status, call, "a request of the loop was refused")


cdef int _failed(str call, c.shmnd_cqe *e) except -1 with gil:
    raise error(e.status, call, f"request type {e.type} completed with {Status(e.status).name}")


cdef int _poll(CompletionCore cq, c.shmnd_cqe *out, uint32_t most, str call) except -1 nogil:
    """One poll; jobs are run; the completions are successes."""
    cdef c.shmnd_todo todo
    cdef uint32_t n = c.shmnd_cq_poll(&cq.raw, out, most, &todo)
    cdef uint32_t i
    if todo.what != c.SHMND_IDLE:
        _serve(&todo)
    for i in range(n):
        if out[i].status:
            _failed(call, &out[i])
    return <int>n


cdef int _reap(CompletionCore cq, str call) except -1 nogil:
    """Wait for one completion."""
    cdef c.shmnd_cqe out
    cdef uint64_t spins = 0
    while _poll(cq, &out, 1, call) == 0:
        spins += 1
        if spins & SIGNALS == 0:
            _look()
    return 0


cdef int _post_send(QueuePair qp, c.shmnd_sge *s, uint32_t flags, str call) except -1 nogil:
    cdef c.cbool kept
    cdef uint32_t status = c.shmnd_post_send(&qp.q, _NONE, s, 1, flags, &kept)
    cdef c.shmnd_todo todo
    if status:
        _refused(call, status)
    if qp.q.batch and qp.q.wq_next == qp.q.wq_tail:
        return 0
    todo.qp = &qp.q
    while qp.q.wq_head != qp.q.wq_tail:
        todo.what = c.shmnd_tx_advance(&qp.q)
        if todo.what == c.SHMND_IDLE:
            break
        todo.receiving = False
        _serve(&todo)
    return 0


cdef int _repost(QueuePair qp, c.shmnd_cqe *e, c.shmnd_sge *s, str call) except -1 nogil:
    cdef uint32_t status = c.shmnd_post_receive(&qp.q, e.context, s, 1)
    if status:
        _refused(call, status)
    return 0


cdef int _post_rdma(QueuePair qp, uint8_t type, c.shmnd_sge *s, uint64_t address, uint32_t token,
                    uint32_t flags, str call) except -1 nogil:
    cdef c.cbool kept
    cdef c.shmnd_todo todo
    cdef uint32_t status = c.shmnd_post_rdma(&qp.q, _NONE, type, s, 1, address, token, flags, &kept)
    if status:
        _refused(call, status)
    todo.qp = &qp.q
    while qp.q.wq_head != qp.q.wq_tail:
        todo.what = c.shmnd_tx_advance(&qp.q)
        if todo.what == c.SHMND_IDLE:
            break
        todo.receiving = False
        _serve(&todo)
    return 0


cdef class _Stamps:
    """Where a loop writes times: the caller's buffer, or nowhere."""

    cdef Py_buffer view
    cdef int64_t *at

    def __cinit__(self, stamps, uint64_t count):
        self.at = NULL
        if stamps is None:
            return
        PyObject_GetBuffer(stamps, &self.view, PyBUF_WRITABLE)
        self.at = <int64_t *>self.view.buf
        if self.view.len < <Py_ssize_t>((count + 1) * sizeof(int64_t)):
            raise ValueError(f"{self.view.len} bytes do not hold {count} + 1 times")

    def __dealloc__(self):
        if self.at != NULL:
            PyBuffer_Release(&self.view)

    cdef inline void mark(self, uint64_t place) noexcept nogil:
        if self.at != NULL:
            self.at[place] = <int64_t>c.shmnd_now_ns()


cdef class Ticks:
    """An iterator of `count` rounds that writes down the time at which each begins, and the end.

    Driven by a `for` statement it costs less than any call: a loop need not know of it.
    """

    cdef _Stamps times
    cdef uint64_t place, count

    def __init__(self, stamps, uint64_t count):
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
             Sge receive, uint64_t count, bint first, uint32_t flags=0, stamps=None) -> float:
    """Send and receive `count` times each; both completions reaped, the Receive reposted.

    As in the loop in Python, what the answer does not need is done once it is on its way.
    """
    cdef c.shmnd_cqe out
    cdef uint64_t i, start, spins = 0
    cdef str call = "loops.pingpong"
    cdef _Stamps times = _Stamps(stamps, count)
    with nogil:
        start = c.shmnd_now_ns()
        if first:
            _post_send(qp, &send.raw, flags, call)
            times.mark(0)
            _reap(initiator_cq, call)
        for i in range(1, count + 1):
            while _poll(receive_cq, &out, 1, call) == 0:
                spins += 1
                if spins & SIGNALS == 0:
                    _look()
            if first and i == count:
                times.mark(count)
                _repost(qp, &out, &receive.raw, call)
                break
            _post_send(qp, &send.raw, flags, call)
            if first:
                times.mark(i)
            _repost(qp, &out, &receive.raw, call)
            _reap(initiator_cq, call)
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def stream_send(QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq, Sge send,
                Sge receive, uint64_t count, uint64_t window, uint64_t granted=0,
                uint64_t quota=0, uint32_t flags=0) -> float:
    """Send `count` messages, at most `window` of them outstanding.

    With a `quota`, the receiver grants credit for so many at a time, beside the `granted` that it
    begins with; all that it grants in this run is taken in this run.
    """
    cdef c.shmnd_cqe out[64]
    cdef uint64_t posted = 0, done = 0, start, spins = 0, credits = granted
    cdef uint64_t due = granted + (count // quota) * quota if quota else 0
    cdef int n, k
    cdef str call = "loops.stream_send"
    with nogil:
        start = c.shmnd_now_ns()
        while done < count or credits < due:
            while posted < count and posted - done < window and (not quota or posted < credits):
                _post_send(qp, &send.raw, flags, call)
                posted += 1
            done += _poll(initiator_cq, out, 64, call)
            if quota and (posted < count or credits < due):
                # Behind the last credit comes the caller's own message: it is not taken here.
                n = _poll(receive_cq, out, 64 if posted < count else 1, call)
                for k in range(n):
                    _repost(qp, &out[k], &receive.raw, call)
                credits += n * quota
            spins += 1
            if spins & SIGNALS == 0:
                _look()
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def stream_receive(QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq,
                   Sge receive, Sge empty, uint64_t count, uint64_t quota=0) -> float:
    """Take `count` messages; Receives were posted by the caller, each is reposted.

    With a `quota`, `empty` is sent each time that many have been posted again.
    """
    cdef c.shmnd_cqe out[64]
    cdef uint64_t done = 0, start, spins = 0, told = 0
    cdef int n, k
    cdef str call = "loops.stream_receive"
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            n = _poll(receive_cq, out, 64, call)
            for k in range(n):
                _repost(qp, &out[k], &receive.raw, call)
            done += n
            while quota and done - told >= quota:
                told += quota
                _post_send(qp, &empty.raw, 0, call)
                _reap(initiator_cq, call)
            spins += 1
            if spins & SIGNALS == 0:
                _look()
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def burst_send(QueuePair qp, CompletionCore initiator_cq, Sge send, uint64_t count, uint64_t burst,
               bint batch, uint32_t flags=0) -> float:
    """Send `count` messages, `burst` at a time and as one batch if so wanted; each burst ends."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t posted = 0, done = 0, end, start, spins = 0
    cdef str call = "loops.burst_send"
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            end = posted + burst if posted + burst < count else count
            qp.q.batch = batch
            while posted < end:
                _post_send(qp, &send.raw, flags, call)
                posted += 1
            if batch:
                c.shmnd_batch_submit(&qp.q)
            while done < end:
                done += _poll(initiator_cq, out, 64, call)
                spins += 1
                if spins & SIGNALS == 0:
                    _look()
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def burst_receive(QueuePair qp, CompletionCore receive_cq, Sge receive, uint64_t count,
                  bint batch) -> float:
    """Take `count` messages; the Receives after each look are posted as one batch if so wanted."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t done = 0, start, spins = 0
    cdef int n, k
    cdef str call = "loops.burst_receive"
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            n = _poll(receive_cq, out, 64, call)
            qp.q.batch = batch
            for k in range(n):
                _repost(qp, &out[k], &receive.raw, call)
            if batch:
                c.shmnd_batch_submit(&qp.q)
            done += n
            spins += 1
            if spins & SIGNALS == 0:
                _look()
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def write_pingpong(QueuePair qp, CompletionCore initiator_cq, Sge source, uint64_t remote_address,
                   uint32_t remote_token, watch, uint64_t mark, uint64_t count, bint first,
                   uint32_t flags=0, stamps=None) -> float:
    """Write, and spin on `watch` until the other side's Write shows; `count` times.

    The last byte of `source` carries `mark`, `mark` + 1, … 255, 1, …
    """
    cdef Py_buffer view
    cdef uint64_t i, start, spins
    cdef uint8_t *last = <uint8_t *><size_t>(source.raw.address + source.raw.length - 1)
    cdef uint8_t expected
    cdef int turn
    cdef str call = "loops.write_pingpong"
    cdef _Stamps times = _Stamps(stamps, count)
    PyObject_GetBuffer(watch, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            start = c.shmnd_now_ns()
            for i in range(count):
                expected = <uint8_t>((mark - 1 + i) % 255 + 1)
                for turn in range(2):
                    if (turn == 0) == first:
                        last[0] = expected
                        _post_rdma(qp, <uint8_t>c.SHMND_WRITE, &source.raw, remote_address,
                                   remote_token, flags, call)
                        times.mark(i)
                        _reap(initiator_cq, call)
                    else:
                        spins = 0
                        while c.shmnd_byte_at(<uint8_t *>view.buf) != expected:
                            spins += 1
                            if spins & SIGNALS == 0:
                                _look_at(qp, call)
            times.mark(count)
            start = c.shmnd_now_ns() - start
    finally:
        PyBuffer_Release(&view)
    return start * 1e-9


def rdma(QueuePair qp, CompletionCore initiator_cq, Sge local, uint64_t remote_address,
         uint32_t remote_token, bint reading, uint64_t count, uint64_t window,
         uint32_t flags=0, stamps=None) -> float:
    """Read or Write `count` times, at most `window` of them outstanding.

    With a window of one, `stamps` hold when each was posted: one after another.
    """
    cdef c.shmnd_cqe out[64]
    cdef uint64_t posted = 0, done = 0, start, spins = 0
    cdef uint8_t type = <uint8_t>(c.SHMND_READ if reading else c.SHMND_WRITE)
    cdef str call = "loops.rdma"
    cdef _Stamps times = _Stamps(stamps, count)
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            while posted < count and posted - done < window:
                times.mark(posted)
                _post_rdma(qp, type, &local.raw, remote_address, remote_token, flags, call)
                posted += 1
            done += _poll(initiator_cq, out, 64, call)
            spins += 1
            if spins & SIGNALS == 0:
                _look()
        times.mark(count)
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def bounce(shared, uint64_t base, uint64_t count, bint first, stamps=None) -> float:
    """Hand a number to and fro in two lines of memory, `count` times: the floor of a ping-pong.

    `shared` is the same page in both processes. The numbers go on from `base`, which both give.
    """
    cdef Py_buffer view
    cdef uint64_t i, start, spins = 0
    cdef c.word64 *mine
    cdef c.word64 *theirs
    cdef _Stamps times = _Stamps(stamps, count)
    PyObject_GetBuffer(shared, &view, PyBUF_WRITABLE)
    try:
        if view.len < 1024:
            raise ValueError(f"{view.len} bytes are less than the 1,024 that keep the lines apart")
        mine = <c.word64 *>(<char *>view.buf + (0 if first else 512))
        theirs = <c.word64 *>(<char *>view.buf + (512 if first else 0))
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
                        _look()
                if not first:
                    c.shmnd_release64(mine, base + i)
            times.mark(count)
            start = c.shmnd_now_ns() - start
    finally:
        PyBuffer_Release(&view)
    return start * 1e-9


def copy(destination, source, uint64_t count) -> float:
    """Copy one buffer to another `count` times with one core: the floor of the streams."""
    cdef Py_buffer to, from_
    cdef uint64_t _, start
    PyObject_GetBuffer(destination, &to, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(source, &from_, PyBUF_SIMPLE)
        try:
            if to.len < from_.len:
                raise ValueError(f"{from_.len} bytes do not fit in {to.len}")
            with nogil:
                start = c.shmnd_now_ns()
                for _ in range(count):
                    memcpy(to.buf, from_.buf, <size_t>from_.len)
                start = c.shmnd_now_ns() - start
        finally:
            PyBuffer_Release(&from_)
    finally:
        PyBuffer_Release(&to)
    return start * 1e-9
