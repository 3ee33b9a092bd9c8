# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The open descriptors of segments, and the segment that has to close each.

A child that is forked off closes its copies at once: later it cannot decide whether a number is
still its copy's (shmnd.common.descriptors). A descriptor that is lent to a message stays open until
the message has left, also where another thread closes its segment: the number may be that of
another file at once.
"""

import os

from libc.stdlib cimport realloc
from libc.string cimport memset

cdef extern from "unistd.h" nogil:
    int _close "close" (int fd)

cdef struct Owner:
    size_t segment     # 0: none
    unsigned int lent  # to so many messages; the last one closes a descriptor that was given up

# By descriptor. An array: the end of a segment must not fail for want of memory.
cdef Owner *_owners = NULL
cdef int _room = 0
cdef size_t _LENT_ONLY = 1  # no segment is there
cdef unsigned int _forks = 0


cdef int own(int fd, size_t owner) except -1:
    """Enter the segment that has to close a descriptor, which is closed where that fails."""
    global _owners, _room
    cdef Owner *longer
    cdef int room
    if fd >= _room:
        room = 2 * fd + 64
        longer = <Owner *>realloc(_owners, room * sizeof(Owner))
        if longer == NULL:
            _close(fd)
            raise MemoryError
        memset(longer + _room, 0, (room - _room) * sizeof(Owner))
        _owners, _room = longer, room
    _owners[fd].segment = owner
    return 0


cdef int given_up(int fd, size_t owner) noexcept:
    """Return the descriptor that a segment has to close now; -1 if there is none, or it is lent."""
    if fd < 0 or fd >= _room or _owners[fd].segment != owner:
        return -1
    _owners[fd].segment = _LENT_ONLY if _owners[fd].lent else 0
    return -1 if _owners[fd].lent else fd


cdef LentDescriptor lend(int fd, size_t owner):
    """Return the descriptor of a segment for a message; None where it is closed."""
    cdef LentDescriptor lent = LentDescriptor.__new__(LentDescriptor)
    # Nothing is called from here on. To make the object may have run finalisers.
    if fd < 0 or fd >= _room or _owners[fd].segment != owner:
        return None
    lent.fd, lent._forks = fd, _forks
    _owners[fd].lent += 1
    return lent


cdef class LentDescriptor:
    """A descriptor that stays open as long as this object lives."""

    def __cinit__(self):
        self.fd = -1

    @property
    def ended(self) -> bool:
        """Whether its segment needs it no more."""
        if self.fd < 0 or self._forks != _forks:
            return True
        return _owners[self.fd].segment == _LENT_ONLY

    def __dealloc__(self):
        cdef int fd = self.fd
        if fd < 0 or self._forks != _forks:
            return
        _owners[fd].lent -= 1
        if not _owners[fd].lent and _owners[fd].segment == _LENT_ONLY:
            _owners[fd].segment = 0
            _close(fd)


def _after_fork_in_child() -> None:
    global _forks
    cdef int fd
    _forks += 1
    for fd in range(_room):
        if _owners[fd].segment:
            _close(fd)
    if _room:
        memset(_owners, 0, _room * sizeof(Owner))


os.register_at_fork(after_in_child=_after_fork_in_child)
