# SPDX-License-Identifier: Apache-2.0
# The steps of a measuring loop. Those of every message are inline, so that each module of loops
# compiles them into its loops; the others are in steps.pyx.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.queue_pair cimport QueuePair
from shmnd.ring.shared_memory.sge cimport Sge

cdef enum:
    SIGNALS = 0x7FFF  # signals are checked once in so many polls in vain, plus one
    CLOCK = 0x3F  # and so is the clock

cdef int check_signals() except -1 with gil
cdef int check_peer(QueuePair qp, str call) except -1 with gil
cdef int serve(c.shmnd_todo *todo) except -1 with gil
cdef int refused(str call, uint32_t status) except -1 with gil
cdef int failed(str call, c.shmnd_cqe *e) except -1 with gil
cdef int sleep(CompletionCore cq) except -1 with gil
cdef int check_loop(str call, QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq,
                    tuple sges, uint32_t flags) except -1
cdef Sge source_of(str call, QueuePair qp, Sge sge, uint32_t flags)


cdef struct Backoff:
    uint64_t polls  # in vain
    uint64_t since  # the time of the first of them; 0: the clock was not read yet


cdef inline double since(uint64_t start) noexcept:
    """Return the seconds since `start`."""
    return <double>(c.shmnd_now_ns() - start) * 1e-9


cdef inline int poll(CompletionCore cq, c.shmnd_cqe *out, uint32_t most, str call) except -1 nogil:
    """Poll once; run jobs; raise if a completion is not a success."""
    cdef c.shmnd_todo todo
    cdef uint32_t n = c.shmnd_cq_poll(&cq.raw, out, most, &todo)
    cdef uint32_t i
    if todo.what != c.SHMND_IDLE:
        serve(&todo)
    for i in range(n):
        if out[i].status:
            failed(call, &out[i])
    return <int>n


cdef inline int back_off(CompletionCore cq, Backoff *backoff) except -1 nogil:
    """Return to poll again, or sleep if the spin window is over. For a poll in vain."""
    cdef uint64_t now
    backoff.polls += 1
    if cq.spin_seconds > 0 and backoff.polls & CLOCK:
        return 0
    if backoff.polls & SIGNALS == 0:
        check_signals()
    now = c.shmnd_now_ns()
    if backoff.since == 0:
        backoff.since = now
    if <double>(now - backoff.since) >= cq.spin_seconds * 1e9:
        sleep(cq)
        backoff.since = 0
    return 0


cdef inline int await_completions(CompletionCore cq, c.shmnd_cqe *out, uint32_t most,
                                  str call) except -1 nogil:
    """Wait for completions."""
    cdef Backoff backoff = Backoff(0, 0)
    cdef int n
    while True:
        n = poll(cq, out, most, call)
        if n:
            return n
        back_off(cq, &backoff)


cdef inline int reap(CompletionCore cq, str call) except -1 nogil:
    """Wait for one completion."""
    cdef c.shmnd_cqe out
    return await_completions(cq, &out, 1, call)


cdef inline int advance(c.shmnd_qp *qp) except -1 nogil:
    cdef c.shmnd_todo todo
    todo.qp = qp
    todo.receiving = False
    while qp.wq.oldest != qp.wq.end:
        todo.what = c.shmnd_tx_advance(qp)
        if todo.what == c.SHMND_IDLE:
            break
        serve(&todo)
    return 0


cdef inline int post_send(c.shmnd_qp *qp, c.shmnd_sge *s, uint32_t flags,
                          str call) except -1 nogil:
    cdef c.cbool kept
    cdef uint32_t status = c.shmnd_post_send(qp, <void *>None, s, 1, flags, &kept)
    if status:
        refused(call, status)
    return 0 if qp.batch and qp.wq.next == qp.wq.end else advance(qp)


cdef inline int repost(c.shmnd_qp *qp, c.shmnd_cqe *e, c.shmnd_sge *s,
                       str call) except -1 nogil:
    cdef uint32_t status = c.shmnd_post_receive(qp, e.context, s, 1)
    if status:
        refused(call, status)
    return 0


cdef inline int post_rdma(c.shmnd_qp *qp, uint8_t type, c.shmnd_sge *s, uint64_t address,
                          uint32_t token, uint32_t flags, str call) except -1 nogil:
    cdef c.cbool kept
    cdef uint32_t status = c.shmnd_post_rdma(qp, <void *>None, type, s, 1, address, token, flags,
                                             &kept)
    if status:
        refused(call, status)
    return advance(qp)
