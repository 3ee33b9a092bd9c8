# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Measuring loops that stay in the compiled part: what the data plane costs without Python.

The interpreter's lock is released for a whole loop but for a look at signals now and then. Every
loop gives the seconds it took, and raises NdError for a completion that is no success. Contexts
move along with what is reposted, so references are as they were when a loop ends well.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint32_t, uint64_t
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


cdef int _post_send(QueuePair qp, c.shmnd_sge *s, str call) except -1 nogil:
    cdef c.cbool kept
    cdef uint32_t status = c.shmnd_post_send(&qp.q, _NONE, s, 1, 0, &kept)
    cdef c.shmnd_todo todo
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


cdef int _repost(QueuePair qp, c.shmnd_cqe *e, c.shmnd_sge *s, str call) except -1 nogil:
    cdef uint32_t status = c.shmnd_post_receive(&qp.q, e.context, s, 1)
    if status:
        _refused(call, status)
    return 0


def pingpong(QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq, Sge send,
             Sge receive, uint64_t count, bint first) -> float:
    """Send and receive `count` times each; both completions reaped, the Receive reposted."""
    cdef c.shmnd_cqe out[8]
    cdef uint64_t i, start, spins = 0
    cdef int n, k, received, sent
    cdef str call = "loops.pingpong"
    with nogil:
        start = c.shmnd_now_ns()
        if first:
            _post_send(qp, &send.raw, call)
        for i in range(count):
            received = sent = 0
            if not first:
                sent = 1
            while not received or not sent:
                n = _poll(receive_cq, out, 8, call)
                for k in range(n):
                    if out[k].type == c.SHMND_RECEIVE:
                        received = 1
                        _repost(qp, &out[k], &receive.raw, call)
                    else:
                        sent = 1
                if initiator_cq is not receive_cq and not sent:
                    sent = _poll(initiator_cq, out, 8, call)
                spins += 1
                if spins & SIGNALS == 0:
                    _look()
            if first and i + 1 == count:
                break
            _post_send(qp, &send.raw, call)
            if not first:
                sent = 0
                while not sent:
                    n = _poll(initiator_cq, out, 1, call)
                    sent = n
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def stream_send(QueuePair qp, CompletionCore initiator_cq, Sge send, uint64_t count,
                uint64_t window) -> float:
    """Send `count` messages, at most `window` of them outstanding."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t posted = 0, done = 0, start, spins = 0
    cdef str call = "loops.stream_send"
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            while posted < count and posted - done < window:
                _post_send(qp, &send.raw, call)
                posted += 1
            done += _poll(initiator_cq, out, 64, call)
            spins += 1
            if spins & SIGNALS == 0:
                _look()
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def stream_receive(QueuePair qp, CompletionCore receive_cq, Sge receive, uint64_t count) -> float:
    """Take `count` messages; Receives were posted by the caller, each is reposted."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t done = 0, start, spins = 0
    cdef int n, k
    cdef str call = "loops.stream_receive"
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            n = _poll(receive_cq, out, 64, call)
            for k in range(n):
                _repost(qp, &out[k], &receive.raw, call)
            done += n
            spins += 1
            if spins & SIGNALS == 0:
                _look()
        start = c.shmnd_now_ns() - start
    return start * 1e-9


def write_pingpong(QueuePair qp, CompletionCore initiator_cq, Sge source, uint64_t remote_address,
                   uint32_t remote_token, watch, uint64_t mark, uint64_t count, bint first) -> float:
    """Write, and spin on `watch` until the other side's Write shows; `count` times.

    The last byte of `source` carries `mark`, `mark` + 1, … 255, 1, …
    """
    cdef c.shmnd_cqe out[8]
    cdef c.cbool kept
    cdef Py_buffer view
    cdef uint64_t i, start, spins
    cdef uint32_t status
    cdef c.shmnd_todo todo
    cdef uint8_t *last = <uint8_t *><size_t>(source.raw.address + source.raw.length - 1)
    cdef uint8_t expected
    cdef int turn
    cdef str call = "loops.write_pingpong"
    PyObject_GetBuffer(watch, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            start = c.shmnd_now_ns()
            todo.qp = &qp.q
            todo.receiving = False
            for i in range(count):
                expected = <uint8_t>((mark - 1 + i) % 255 + 1)
                for turn in range(2):
                    if (turn == 0) == first:
                        last[0] = expected
                        status = c.shmnd_post_rdma(&qp.q, _NONE, <uint8_t>c.SHMND_WRITE,
                                                   &source.raw, 1, remote_address, remote_token, 0,
                                                   &kept)
                        if status:
                            _refused(call, status)
                        while qp.q.wq_head != qp.q.wq_tail:
                            todo.what = c.shmnd_tx_advance(&qp.q)
                            if todo.what == c.SHMND_IDLE:
                                break
                            _serve(&todo)
                        while _poll(initiator_cq, out, 8, call) == 0:
                            pass
                    else:
                        spins = 0
                        while c.shmnd_byte_at(<uint8_t *>view.buf) != expected:
                            spins += 1
                            if spins & SIGNALS == 0:
                                _look_at(qp, call)
            start = c.shmnd_now_ns() - start
    finally:
        PyBuffer_Release(&view)
    return start * 1e-9


def copy(destination, source, uint64_t count) -> float:
    """Copy one buffer to another `count` times with one core: the floor of the streams."""
    cdef Py_buffer to, from_
    cdef uint64_t i, start
    PyObject_GetBuffer(destination, &to, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(source, &from_, PyBUF_SIMPLE)
        try:
            if to.len < from_.len:
                raise ValueError(f"{from_.len} bytes do not fit in {to.len}")
            with nogil:
                start = c.shmnd_now_ns()
                for i in range(count):
                    memcpy(to.buf, from_.buf, <size_t>from_.len)
                start = c.shmnd_now_ns() - start
        finally:
            PyBuffer_Release(&from_)
    finally:
        PyBuffer_Release(&to)
    return start * 1e-9
