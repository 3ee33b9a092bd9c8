# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Waiting for operations: for one, for the first of several, for all of them.

A waiter polls. Once its polls have been in vain for a while, it publishes what it waits for, and
the transport lets it sleep between polls. It publishes again when that changes: the launcher ends a
job whose rank waits for one that has ended.
"""

from shmnd.mpi.transport.engine cimport SHMPI_OTHERS_END, Wait, wait_end, wait_turn


cdef int wait_op(Operation op) except -1:
    """Wait until an operation is ready."""
    cdef Wait wait = Wait(0, False)
    cdef int peer = -1
    try:
        while not op.ready():
            if wait_turn(&wait) or (wait.noted and op.awaited() != peer):
                peer = op.awaited()
                op.publish(1)
    finally:
        wait_end(&wait)
    return 0


cdef set awaited_ranks(list ops):
    """Return the ranks of the job that operations which are not ready wait for; -1 for any."""
    return {
        (<Operation>op).awaited() for op in ops if op is not None and not (<Operation>op).ready()
    }


cdef int publish_wait(list ops, bint for_all) except -1:
    """Publish for which operations the program waits: the first of those not ready.

    One of them that cannot end is enough where the wait is for all.
    """
    cdef unsigned int others = 0
    waiting = [op for op in ops if op is not None and not (<Operation>op).ready()]
    if waiting:
        ranks = awaited_ranks(waiting)
        if not for_all and len(waiting) > 1:
            others = SHMPI_OTHERS_END if len(ranks) > 1 or -1 in ranks else 0
            for op in waiting:
                others |= (<Operation>op).flags()
        (<Operation>waiting[0]).publish(len(waiting) | others)
    return 0


cdef int first_ready(list ops) except -2:
    """Return the index of the first that is ready; NONE_READY or NONE_ACTIVE if there is none."""
    cdef Py_ssize_t i
    cdef bint some = False
    for i in range(len(ops)):
        if ops[i] is not None:
            some = True
            if (<Operation>ops[i]).ready():
                return i
    return NONE_READY if some else NONE_ACTIVE


cdef bint all_ready(list ops) except -1:
    """Return whether all that are under way are ready."""
    cdef object op
    for op in ops:
        if op is not None and not (<Operation>op).ready():
            return False
    return True


cdef int wait_first(list ops) except -2:
    """Wait until one is ready, and return its index; NONE_ACTIVE if none is under way."""
    cdef Wait wait = Wait(0, False)
    cdef int i = first_ready(ops)
    cdef set ranks = None
    try:
        while i == NONE_READY:
            if wait_turn(&wait) or (wait.noted and awaited_ranks(ops) != ranks):
                ranks = awaited_ranks(ops)
                publish_wait(ops, False)
            i = first_ready(ops)
    finally:
        wait_end(&wait)
    return i


cdef list ready_ones(list ops):
    """Return the indices of those that are ready."""
    cdef Py_ssize_t i
    return [i for i in range(len(ops)) if ops[i] is not None and (<Operation>ops[i]).ready()]
