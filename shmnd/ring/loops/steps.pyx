# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The steps of measuring loops that are not inline: checks before a loop, and rare events in it."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from shmnd.ring cimport c
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.polling cimport PairCore
from shmnd.ring.queues.queue_pair cimport QueuePair
from shmnd.ring.shared_memory.sge cimport Sge, require_held
from shmnd.ring.shared_memory.segment cimport lies_in_fragile

from shmnd.ring.shared_memory.sge import inline_bytes
from shmnd.status import Status, error


cdef int check_signals() except -1 with gil:
    PyErr_CheckSignals()
    return 0


cdef int check_peer(QueuePair qp, str call) except -1 with gil:
    """Raise if the connection has ended. A target that polls its memory makes no other call."""
    PyErr_CheckSignals()
    qp._progress()
    if qp.q.state != c.SHMND_QP_CONNECTED:
        raise error(Status.CONNECTION_ABORTED, call, "the other side is gone")
    return 0


cdef int serve(c.shmnd_todo *todo) except -1 with gil:
    (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
    return 0


cdef int check_loop(str call, QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq,
                    tuple sges, uint32_t flags) except -1:
    """Check all that a loop posts, before it begins: the loop itself does not."""
    cdef c.shmnd_contexts_walk walk
    cdef void **place
    if qp is None or receive_cq is None or initiator_cq is None:
        raise TypeError(f"{call}: needs a queue pair and its completion queues")
    qp.usable(call)
    receive_cq.usable(call)
    initiator_cq.usable(call)
    if flags & ~<uint32_t>c.SHMND_OP_INLINE:
        raise ValueError(f"{call}: flags {flags:#x} are not INLINE or none")
    for sge in sges:
        check_registered(call, qp, sge)
    # The collector may run in another thread meanwhile, and must find no object half-way.
    memset(&walk, 0, sizeof(walk))
    while True:
        place = c.shmnd_qp_next_context(&qp.q, &walk)
        if place == NULL:
            return 0
        if place[0] != <void *>None:
            raise ValueError(f"{call}: its requests have the context None")


cdef int check_registered(str call, QueuePair qp, sge) except -1:
    if not isinstance(sge, Sge):
        raise TypeError(f"{call}: {type(sge).__name__} is not an Sge")
    if c.shmnd_sge_region(&qp.registry.raw, &(<Sge>sge).raw, 0) == NULL:
        raise error(Status.ACCESS_VIOLATION, call, f"{sge!r} is not registered here")
    return 0


cdef Sge source_of(str call, QueuePair qp, Sge sge, uint32_t flags):
    """Return the source of a loop's Sends or Writes: registered memory, or an INLINE copy."""
    cdef bytearray data  # allocated before the checks: no code runs between those and the copy
    if sge is None or not flags & c.SHMND_OP_INLINE:
        check_registered(call, qp, sge)
        return sge
    if sge.raw.length > qp.q.inline_size:
        raise error(Status.BUFFER_OVERFLOW, call,
                    f"{sge.raw.length} bytes are INLINE, the queue pair takes {qp.q.inline_size}")
    data = bytearray(sge.raw.length)
    if c.shmnd_sge_region(&qp.registry.raw, &sge.raw, 0) == NULL:
        require_held(sge, call)
        if sge.owner is None or lies_in_fragile(sge.raw.address, sge.raw.length):
            data = inline_bytes((sge,), call)
            return Sge(data, len(data), 0)
    memcpy(<char *>data, <const void *><size_t>sge.raw.address, sge.raw.length)
    return Sge(data, len(data), 0)


cdef int refused(str call, uint32_t status) except -1 with gil:
    raise error(status, call, "a request of the loop was refused")


cdef int failed(str call, c.shmnd_cqe *e) except -1 with gil:
    raise error(e.status, call, f"request type {e.type} completed with {Status(e.status).name}")


cdef int sleep(CompletionCore cq) except -1 with gil:
    cq.doze()
    return 0
