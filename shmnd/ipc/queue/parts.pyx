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

from shmnd.common.owned import Owned
from shmnd.ipc.common.ringer import ringer
from shmnd.ipc.queue.queue_core import QueueCore
from shmnd.ipc.queue.queue_file import make_file

__all__ = ["core_here", "core_of", "new_core", "taken_over"]

cdef object _cores = weakref.WeakValueDictionary()  # by process, device and number of the file
# Two parts would have the same locks, and take each other's pages.
cdef object _lock = threading.RLock()


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # another thread may have had it


os.register_at_fork(after_in_child=_forked)


cdef object _held(tuple key):
    """Return the part in the queue of a file, or None. No handler of a signal runs in it."""
    found = _cores.data.get(key)
    return None if found is None else found()


def core_of(file):
    """Return this process's part in the queue of a descriptor, which it takes over."""
    cdef struct_stat found
    if not isinstance(file, Owned):  # the part that this process has
        return file
    cdef int fd = file.fd
    if fstat(fd, &found):
        raise OSError(errno, os.strerror(errno))
    key = (getpid(), found.st_dev, found.st_ino)
    ring = ringer().ring
    with _lock:
        core = _held(key)
        if core is None:
            core = QueueCore(file.detach(), ring)  # which closes it, also if it cannot be made
            core.announce()
            _cores[key] = core
        elif core.fd != fd:
            core.keep_open(file.detach())
    return core


def taken_over(int fd):
    """Take over another descriptor of a queue, if this process has a part in that.

    To close it would end the locks of the part.
    """
    cdef struct_stat found
    core = None if fstat(fd, &found) else _held((getpid(), found.st_dev, found.st_ino))
    if core is None:
        return False
    if core.fd != fd:
        core.keep_open(fd)
    return True


def new_core(slots, limited):
    """Return this process's part in a new queue."""
    return core_of(make_file(slots, limited))


def core_here(device, number):
    """Return this process's part in the queue of a file; None if it has none."""
    if not isinstance(device, int) or not isinstance(number, int):
        return None
    return _held((getpid(), device, number))
