# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Open descriptors that belong to an object from the call on that opens them.

A handler of a signal runs behind each call of an interpreted function, and may raise there. A
number that such a call has returned is lost then, and its file stays open. So compiled code makes
the call and keeps the number, and no handler runs between the two.
"""

cimport cython
from libc.errno cimport errno
from posix.fcntl cimport F_DUPFD_CLOEXEC, fcntl
from posix.unistd cimport close

import os


@cython.no_gc
cdef class Owned:
    """An open file, which is closed with this object. Its number is above the standard streams'.

    Closing twice is harmless. `heir` is for a file whose close would end locks of another owner: it
    returns whether it has taken the descriptor over.
    """

    cdef public int _fd
    cdef object _heir
    cdef object __weakref__

    def __cinit__(self, *args, **kwargs):
        self._fd = -1

    @classmethod
    def of(cls, make, *args, heir=None):
        """Return the owner of the descriptor that `make` returns."""
        cdef Owned made = cls.__new__(cls)
        made._heir = heir
        made._take(make, *args)
        return made

    def _take(self, make, *args) -> None:
        """Own the descriptor that `make` returns."""
        cdef int fd = make(*args)
        self._fd = fd
        if 0 <= fd <= 2:  # the program has closed the stream, and something may still write to it
            self._fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)
            failure = errno
            close(fd)
            if self._fd < 0:
                raise OSError(failure, os.strerror(failure))
        self._opened()

    def _opened(self) -> None:
        """Do nothing. Subclasses override it; it is called once the object has a file."""

    @property
    def fd(self) -> int:
        """The number; -1 after the end."""
        return self._fd

    def fileno(self) -> int:
        """Return the number; -1 after the end."""
        return self._fd

    def detach(self) -> int:
        """Return the number, and own it no more: of compiled callers, as above."""
        cdef int fd = self._fd
        self._fd = -1
        return fd

    def close(self) -> None:
        """Release it to the kernel, or to the heir."""
        self._release()

    def __dealloc__(self):
        self._release()

    cdef int _release(self) except -1:
        cdef int fd = self._fd
        self._fd = -1
        if fd >= 0 and (self._heir is None or not self._heir(fd)):
            close(fd)  # the number is gone in any case, and nothing was buffered
        return 0
