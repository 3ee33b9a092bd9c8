# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""A message that is copied to memory of the program, as it is taken.

Compiled, so that no handler of a signal runs between the copy and the taking.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from shmnd.messaging.messages cimport Messages
from shmnd.ring cimport c

from shmnd.common.objects import holds_objects


@cython.final
cdef class Copied:
    """An iterator over one length: that of the next message, which it copies to a buffer.

    It waits as the iterator of `Messages` does, with a time-out of its own: what receives within
    its making has another one. It has no item when the time ends first (`late`), when that iterator
    has none, and when the message is too long for the buffer, or the buffer is none that can be
    written: the caller finds the reason. It is taken by a step of a loop, as those of `Messages`.
    """

    cdef Messages messages
    cdef Py_buffer view
    cdef bint viewed
    cdef object timeout
    cdef readonly bint late

    def __cinit__(self, Messages messages not None, buffer, timeout):
        self.messages, self.timeout = messages, timeout
        try:
            PyObject_GetBuffer(buffer, &self.view,
                               PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
        except (TypeError, BufferError, ValueError):
            return
        self.viewed = True
        if type(buffer) is not bytearray and (
                self.view.format != NULL and holds_objects(self.view.format.decode(), buffer)):
            self.viewed = False
            PyBuffer_Release(&self.view)

    def __dealloc__(self):
        if self.viewed:
            PyBuffer_Release(&self.view)

    def __iter__(self):
        return self

    def __next__(self) -> int:
        cdef bytes message
        cdef Py_ssize_t nbytes
        if not self.viewed:
            raise StopIteration
        self.messages.patience = self.timeout
        if not self.messages.next_is_there("Connection.recv_into"):
            self.late = self.messages.late
            raise StopIteration
        message = self.messages.inbox[0]
        nbytes = PyBytes_GET_SIZE(message)
        if nbytes > self.view.len:
            raise StopIteration
        c.shmnd_copy_bytes(self.view.buf, PyBytes_AS_STRING(message), nbytes)
        self.messages.inbox.popleft()
        return nbytes
