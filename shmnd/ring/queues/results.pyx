# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The result of a request: an object that a program reads, made from a completion."""

cimport cython

from shmnd.ring.queues.slots cimport PyMemberDef, read_as_slots

from shmnd.common.arguments import shown
from shmnd.status import Status, error

cdef extern from *:
    """
    #define SHMND_OFFSET(field) \
        offsetof(struct __pyx_obj_5shmnd_4ring_6queues_7results_Result, field)
    """
    const Py_ssize_t _STATUS "SHMND_OFFSET(status)"
    const Py_ssize_t _QUEUE_PAIR_CONTEXT "SHMND_OFFSET(queue_pair_context)"
    const Py_ssize_t _REQUEST_CONTEXT "SHMND_OFFSET(request_context)"
    const Py_ssize_t _REQUEST_TYPE "SHMND_OFFSET(request_type)"

cdef object _SUCCESS = Status.SUCCESS


@cython.freelist(256)
cdef class Result:
    """The result of a request."""

    @property
    def bytes_transferred(self) -> int:
        """Bytes received, for a successful Receive; otherwise 0."""
        return self.bytes

    @property
    def detail(self) -> str:
        """Why the request failed, with the peer; empty after a success."""
        return ""

    def raise_if_failed(self) -> Result:
        """Return the result itself after a success; otherwise raise the `NdError` of its status."""
        if self.status is _SUCCESS:
            return self
        if self.status is None:
            raise error(Status.INVALID_HANDLE, "Result.raise_if_failed", "no request ended with it")
        raise error(self.status, f"QueuePair.{self.request_type.name.lower()}",
                    f"{self.detail or 'the request failed'}; "
                    f"its context is {shown(self.request_context)}")

    def __repr__(self) -> str:
        if self.status is None:
            return "<Result of no request>"
        about = f" {self.bytes} bytes" if self.bytes else ""
        if self.queue_pair_context is not None:
            about += f" queue pair {shown(self.queue_pair_context)}"
        why = f": {self.detail}" if self.detail else ""
        return (f"<Result {self.request_type.name} {self.status.name}{about} "
                f"context={shown(self.request_context)}{why}>")


cdef class FailedResult(Result):
    """A result that is not a success, with the reason."""

    @property
    def detail(self) -> str:
        """Why the request failed, with the peer."""
        return self.why


@cython.final
cdef class Bound:
    """The context of a Bind or Invalidate, with the window, which it keeps alive until then."""


cdef PyMemberDef[4] _SLOTS = [
    PyMemberDef("status", 0, _STATUS, 0, "The status of the request."),
    PyMemberDef("queue_pair_context", 0, _QUEUE_PAIR_CONTEXT, 0, "The context of its queue pair."),
    PyMemberDef("request_context", 0, _REQUEST_CONTEXT, 0, "The context given to the request."),
    PyMemberDef("request_type", 0, _REQUEST_TYPE, 0, "Which request it was."),
]
read_as_slots(Result, _SLOTS, 4)
