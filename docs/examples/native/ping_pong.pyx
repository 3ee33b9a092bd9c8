# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""A ping-pong whose loop is compiled, over queue pairs that Python connected."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t

from shmnd cimport native

cdef extern from "sched.h" nogil:
    int sched_yield()


def ping_pong(queue_pair, queue, outgoing, incoming, int rounds, bint first):
    """Send and receive in turn; return how many bytes came. `outgoing`, `incoming` are `Sge`."""
    cdef native.shmnd_native_sge source = extent(outgoing), target = extent(incoming)
    cdef native.shmnd_native_result done[4]
    cdef int received = 0, sent = 0, i, n
    cdef unsigned long long total = 0
    require(native.receive(queue_pair, &target, 1, None))
    if first:
        require(native.send(queue_pair, &source, 1, None, 0))
    while received < rounds or sent < rounds:
        n = native.take(queue, done, 4)
        if n == 0:
            pause()
        for i in range(n):
            require(done[i].status)
            if done[i].request_type != 0:  # RequestType.RECEIVE
                sent += 1
                continue
            received += 1
            total += done[i].bytes_transferred
            if received < rounds:
                require(native.receive(queue_pair, &target, 1, None))
            if not first or received < rounds:
                require(native.send(queue_pair, &source, 1, None, 0))
        native.release(done, n)
    return total


cdef native.shmnd_native_sge extent(sge):
    return native.shmnd_native_sge(sge.address, sge.length, sge.token)


cdef int pause() except -1:
    """Let Ctrl-C work, and other threads run."""
    PyErr_CheckSignals()
    with nogil:
        sched_yield()
    return 0


cdef int require(uint32_t status) except -1:
    if status:
        raise OSError(f"the request ended with status {status:#x}")
    return 0
