# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The compiled part of `put` and `get`: most calls do not wait, and end here.

A handler of a signal runs in what waits, and may fork. The child does not continue the call: it
would take an item that its parent waits for, or put one a second time, of the parent's memory.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.common.timeouts cimport is_plain_timeout
from shmnd.ipc.queue.queue_core cimport FIRST_NS, NOTHING, QueueCore, require_born
from shmnd.ring.process.forks cimport forks

from queue import Empty

from shmnd.common.interruption import is_interruption
from shmnd.ipc.errors import parents_call
from shmnd.status import NdError

__all__ = ["QueueCalls"]


cdef class QueueCalls:
    """`put` and `get` of a queue, as far as they do not wait."""

    cdef public QueueCore _core
    cdef public bint _closed
    cdef public object _bell, _behind  # packed items that found no room
    cdef public uint64_t _maxsize
    cdef uint32_t owner  # the process that alone may use it; 0 for no such one

    def _keep_from_children(self):
        """Have children refuse it: it belongs to an object of this process."""
        self.owner = forks

    cdef QueueCore open_core(self, timeout):
        if self._closed or self._core is None:
            raise ValueError(f"Queue {self!r} is closed")
        if self.owner and self.owner != forks:
            raise parents_call("Queue")
        if not is_plain_timeout(timeout):
            self._check_timeout(timeout)
        return self._core

    def put(self, obj, block=True, timeout=None):
        """Append an object; `queue.Full` without room in time, ValueError when closed."""
        self._put(obj, block, timeout, None, forks)

    def _put_noted(self, obj, block, timeout, tuple noted, uint32_t born=0):
        """Put, and enter the position of the item in a dict: (dict, key).

        `born` is of the process that has begun the call: a child of it does not put.
        """
        self._put(obj, block, timeout, noted, born or forks)

    cdef int _put(self, obj, block, timeout, tuple noted, uint32_t born) except -1:
        require_born(born, "Queue.put")
        cdef QueueCore core = self.open_core(timeout)
        cdef uint64_t packed
        end = None  # of the time that a wait for room has begun to use up
        if self._maxsize and not core._has_room():
            try:
                end = self._await_room(block, timeout)
            except (ValueError, OSError) as exc:
                if not is_interruption(exc):
                    require_born(born, "Queue.put")  # the child has no descriptor of a bell
                raise
            require_born(born, "Queue.put")
        try:
            packed = core.packed(obj)
        except NdError:  # of the queue itself, which has no memory left: the object is good
            raise
        except Exception as exc:
            if is_interruption(exc):
                raise
            # As in multiprocessing, whose feeder meets it behind the back of the caller.
            self._on_queue_feeder_error(exc, obj)
            return 0
        if born != forks:
            core.unsent(packed)  # of the child, which has packed it
            require_born(born, "Queue.put")
        if self._behind or not core.pushed(packed, True, None, noted):
            self._put_later(packed, block, timeout, end, noted, born)
        if born != forks:  # forked as the put rang: the item is that of the parent
            require_born(born, "Queue.put")
        return 0

    def get(self, block=True, timeout=None):
        """Remove and return the first item; `queue.Empty` when none comes in time."""
        cdef QueueCore core = self.open_core(timeout)
        cdef uint32_t born = forks
        found = core.take()
        if found is NOTHING:
            if block:
                try:
                    found = self._get_in_time(core, timeout, born)
                except (ValueError, OSError) as exc:
                    if not is_interruption(exc):
                        require_born(born, "Queue.get")  # the child has no descriptor of a bell
                    raise
            elif self._bell is not None:
                self._calm(self._bell)
            if found is NOTHING:
                raise Empty
        try:
            PyErr_CheckSignals()  # not behind the call, where an exception loses the item
        except BaseException:
            if born == forks:
                core.keep(found)
            raise
        require_born(born, "Queue.get")
        return found

    cdef object _get_in_time(self, QueueCore core, timeout, uint32_t born):
        """Wait for an item; NOTHING when none comes in time."""
        cdef int64_t first = self._first_wait(timeout)
        require_born(born, "Queue.get")
        found = core.get(first, &self._closed)
        if found is NOTHING and self._closed:
            self._require_open()
        if found is not NOTHING or first < FIRST_NS:
            return found
        end = self._end_of_wait(timeout)
        while found is NOTHING and self._await_item(end):
            require_born(born, "Queue.get")
            found = core.take()
        return found

    def _get_into(self, list box, block=True, timeout=None):
        """Get, and have the item in a list when this returns or raises: calls of Python end there.

        A handler of a signal may raise behind any call; its caller then keeps the item in the list.
        """
        box.append(self.get(block, timeout))
