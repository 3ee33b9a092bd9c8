# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The interface for other compiled modules: requests and completions as C structs.

It adds nothing to what the methods of queue pairs and completion queues do; it leaves out their
objects. A caller holds the interpreter's lock.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.queue_pair cimport QueuePair
from shmnd.ring.shared_memory.segment cimport Segment

from shmnd.status import Status

cdef uint32_t _NO_POSTING_HERE = Status.INVALID_DEVICE_REQUEST

cdef extern from *:
    """
    #include <stddef.h>
    #include "wire/tokens.h"
    #include "engine/objects.h"
    #define SAME(theirs, a, ours, b)                                        \
        _Static_assert(offsetof(struct theirs, a) == offsetof(struct ours, b), \
                       #theirs " and " #ours " have one layout")
    SAME(shmnd_native_sge, address, shmnd_sge, address);
    SAME(shmnd_native_sge, length, shmnd_sge, length);
    SAME(shmnd_native_sge, token, shmnd_sge, token);
    SAME(shmnd_native_result, request_context, shmnd_cqe, context);
    SAME(shmnd_native_result, queue_pair_context, shmnd_cqe, qp_context);
    SAME(shmnd_native_result, status, shmnd_cqe, status);
    SAME(shmnd_native_result, bytes_transferred, shmnd_cqe, bytes);
    SAME(shmnd_native_result, request_type, shmnd_cqe, type);
    _Static_assert(sizeof(struct shmnd_native_sge) == sizeof(struct shmnd_sge), "one size");
    _Static_assert(sizeof(struct shmnd_native_result) == sizeof(struct shmnd_cqe), "one size");
    """


cdef QueuePair _pair(object given, str call):
    if not isinstance(given, QueuePair):
        raise TypeError(f"shmnd.native.{call}: {type(given).__name__} is not a shmnd.QueuePair")
    return <QueuePair>given


cdef CompletionCore _queue(object given, str call):
    if not isinstance(given, CompletionCore):
        raise TypeError(
            f"shmnd.native.{call}: {type(given).__name__} is not a shmnd.CompletionQueue")
    return <CompletionCore>given


cdef inline QueuePair _posting(object given, str call):
    """Return a queue pair that can post, after the work that not every post does."""
    cdef QueuePair pair = _pair(given, call)
    if pair.born != forks or c.shmnd_pace_due(&pair.pace):
        pair.do_periodic_work(call)
    return pair


cdef uint32_t send(object queue_pair, const shmnd_native_sge *sges, uint32_t count, object context,
                   uint32_t flags) except? 0xffffffff:
    """Post a Send and return the status of the call."""
    return _posting(queue_pair, "send").post_send(
        context, <const c.shmnd_sge *>sges, count, flags)


cdef uint32_t receive(object queue_pair, const shmnd_native_sge *sges, uint32_t count,
                      object context) except? 0xffffffff:
    """Post a Receive and return the status of the call."""
    cdef QueuePair pair = _pair(queue_pair, "receive")
    pair.usable("receive")
    if pair.q.shared:
        return _NO_POSTING_HERE
    return pair.post_receive(context, <const c.shmnd_sge *>sges, count)


cdef uint32_t read(object queue_pair, const shmnd_native_sge *sges, uint32_t count,
                   uint64_t remote_address, uint32_t remote_token, object context,
                   uint32_t flags) except? 0xffffffff:
    """Post a Read and return the status of the call."""
    return _posting(queue_pair, "read").post_rdma(
        c.SHMND_READ, context, <const c.shmnd_sge *>sges, count, remote_address, remote_token,
        flags)


cdef uint32_t write(object queue_pair, const shmnd_native_sge *sges, uint32_t count,
                    uint64_t remote_address, uint32_t remote_token, object context,
                    uint32_t flags) except? 0xffffffff:
    """Post a Write and return the status of the call."""
    return _posting(queue_pair, "write").post_rdma(
        c.SHMND_WRITE, context, <const c.shmnd_sge *>sges, count, remote_address, remote_token,
        flags)


cdef int take(object completion_queue, shmnd_native_result *out, uint32_t most) except -1:
    """Take up to `most` completions, oldest first, and return how many. Never waits."""
    return _queue(completion_queue, "take").take_completions(<c.shmnd_cqe *>out, most)


cdef void release(shmnd_native_result *results, uint32_t count) noexcept:
    """Release the references of completions that were taken."""
    cdef uint32_t i
    for i in range(count):
        Py_XDECREF(results[i].request_context)
        Py_XDECREF(results[i].queue_pair_context)
        results[i].request_context = results[i].queue_pair_context = NULL


cdef int drain(object completion_queue) except -1:
    """Make progress on all requests; return how many completions can be taken."""
    cdef CompletionCore queue = _queue(completion_queue, "drain")
    if queue.taking != forks:
        queue._refuse_taking("drain")
    return queue._gather()


cdef const void *view(object queue_pair, uint64_t remote_address, uint32_t remote_token,
                      uint64_t nbytes, PyObject **holder) except NULL:
    """Map a peer's memory for reading, after the checks of `QueuePair.view`."""
    cdef QueuePair pair = _pair(queue_pair, "view")
    cdef uint64_t offset
    cdef Segment segment
    if holder == NULL or nbytes == 0:
        raise ValueError("shmnd.native.view: needs a place for the holder, and at least one byte")
    pair.usable("view")
    segment = pair.mapped(remote_address, remote_token, nbytes, &offset)
    Py_INCREF(segment)
    holder[0] = <PyObject *>segment
    return <const char *>segment.base + offset
