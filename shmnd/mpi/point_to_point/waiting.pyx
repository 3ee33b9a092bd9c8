# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=True, embedsignature.format=python
# cython: annotation_typing=False
"""Waiting for operations: for one, for the first of several, for all of them.

A waiter polls. Once its polls have been in vain for a while, it publishes what it waits for, and
the transport lets it sleep between polls.
"""

from shmnd.mpi.transport.engine cimport Wait, wait_end, wait_turn


cdef int wait_op(Operation op) except -1:
    cdef Wait wait = Wait(0, False)
    try:
        while not op.ready():
            if wait_turn(&wait):
                op.publish(1)
    finally:
        wait_end(&wait)
    return 0


cdef int publish_wait(list ops) except -1:
    """Publish for which operations the program waits: the first of those not ready."""
    waiting = [op for op in ops if op is not None and not (<Operation>op).ready()]
    if waiting:
        (<Operation>waiting[0]).publish(len(waiting))
    return 0


cdef int first_ready(list ops) except -2:
    """The first that is ready; -1 if none is, -3 if none is under way."""
    cdef Py_ssize_t i
    cdef bint some = False
    for i in range(len(ops)):
        if ops[i] is not None:
            some = True
            if (<Operation>ops[i]).ready():
                return i
    return -1 if some else -3


cdef bint all_ready(list ops) except -1:
    cdef object op
    for op in ops:
        if op is not None and not (<Operation>op).ready():
            return False
    return True


cdef int wait_first(list ops) except -2:
    cdef Wait wait = Wait(0, False)
    cdef int i = first_ready(ops)
    try:
        while i == -1:
            if wait_turn(&wait):
                publish_wait(ops)
            i = first_ready(ops)
    finally:
        wait_end(&wait)
    return i


cdef list ready_ones(list ops):
    cdef Py_ssize_t i
    return [i for i in range(len(ops)) if ops[i] is not None and (<Operation>ops[i]).ready()]
