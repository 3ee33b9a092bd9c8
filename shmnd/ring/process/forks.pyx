# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The process that an object belongs to: an object stores `forks` when it is made, and refuses to
work where the number has grown since."""

import os

from libc.stdint cimport uint32_t

from shmnd.status import IN_CHILD, Status, error

cdef uint32_t forks = 1
cdef uint32_t NOT_MADE = 0  # what a new object has, also if its `__cinit__` never ran


cdef object unusable(uint32_t born, str call):
    """Return the error of an object that this process cannot use: the parent's, or half-made."""
    if born == NOT_MADE:
        return error(Status.INVALID_HANDLE, call, "the object was not made by its adapter")
    return error(Status.DEVICE_REMOVED, call, IN_CHILD)


def _forked() -> None:
    global forks
    forks += 1


os.register_at_fork(after_in_child=_forked)
