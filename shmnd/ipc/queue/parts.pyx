# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""One part for each queue of this process, from its descriptor on.

Compiled, for a handler of a signal that raises runs behind each step of an interpreted function:
it would leave a descriptor that nothing has, or have one closed a second time, which may be
another file's by then.
"""

import os
import threading
import weakref

from libc.errno cimport errno
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport getpid

from shmnd.ipc.common.ringer import ringer
from shmnd.ipc.queue.queue_core import QueueCore
from shmnd.ipc.queue.queue_file import make_file

cdef extern from "unistd.h" nogil:
    int _close "close" (int fd)

__all__ = ["core_here", "core_of", "new_core"]

cdef object _cores = weakref.WeakValueDictionary()  # by process, device and number of the file
# Two parts would have the same locks, and take each other's pages.
cdef object _lock = threading.RLock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)


cdef object _held(tuple key):
    """The part in the queue of a file, or None. No handler of a signal runs in it."""
    found = _cores.data.get(key)
    return None if found is None else found()


def core_of(int fd):
    """Return this process's part in the queue of a descriptor, which it takes over."""
    cdef struct_stat found
    cdef int left = fd
    if fstat(fd, &found):
        raise OSError(errno, os.strerror(errno))
    key = (getpid(), found.st_dev, found.st_ino)
    try:
        ring = ringer().ring
        with _lock:
            core = _held(key)
            left = -1
            if core is None:
                core = QueueCore(fd, ring)  # which closes it, also if it cannot be made
                core.announce()
                _cores[key] = core
            elif core.fd != fd:
                core.keep_open(fd)
        return core
    except BaseException:
        if left >= 0:
            core = _held(key)
            if core is None:
                _close(left)
            elif core.fd != left:
                core.keep_open(left)  # a close would end its locks
        raise


def new_core(slots, limited):
    """Return this process's part in a new queue."""
    return core_of(make_file(slots, limited))


def core_here(device, number):
    """Return this process's part in the queue of a file; None if it has none."""
    if not isinstance(device, int) or not isinstance(number, int):
        return None
    return _held((getpid(), device, number))
