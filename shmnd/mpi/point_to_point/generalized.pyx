# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Requests of operations that something outside the transport completes: the program, or a test."""

import functools
from collections.abc import Callable
from typing import Any

from shmnd.mpi.communicators.comm_state cimport empty_status
from shmnd.mpi.objects.handle cimport State
from shmnd.mpi.point_to_point.operation cimport Operation
from shmnd.mpi.point_to_point.request cimport Request, request_of
from shmnd.mpi.point_to_point.status cimport Status
from shmnd.mpi.transport.engine cimport note

from shmnd.mpi import constants
from shmnd.mpi.objects import attributes
from shmnd.mpi.objects.errors import Exception as MPIException


cdef class _General(Operation):
    """What a program completes by itself."""

    cdef object query, free, cancel_function, args, kwargs, value
    cdef bint completed, left

    cdef bint ready(self) except -1:
        return self.completed

    cdef object end(self, Status status):
        self.active = False
        self.peek(status)
        self._free()
        return self.value

    cdef int _free(self) except -1:
        if self.free is not None:
            free, self.free = self.free, None
            attributes.run(functools.partial(free, **self.kwargs), *self.args)
        return 0

    cdef int leave(self) except -1:
        self.left = True
        return self._free() if self.completed else 0

    cdef int complete(self) except -1:
        if self.completed:
            raise MPIException(constants.ERR_REQUEST, "Grequest.Complete: it is complete")
        self.completed = True
        return self._free() if self.left else 0

    cdef int peek(self, Status status) except -1:
        if status is None:
            status = Status()
        empty_status(status)
        if self.query is not None:
            attributes.run(functools.partial(self.query, **self.kwargs), status, *self.args)
        return 0

    cdef int cancel(self) except -1:
        if self.cancel_function is not None:
            function = functools.partial(self.cancel_function, **self.kwargs)
            attributes.run(function, self.completed, *self.args)
        return 0


cdef class Grequest(Request):
    """Generalized request handler."""

    cdef _General left  # by `Free`, until it is complete: the program ends it by this handle

    def __cinit__(self, *args, **kwargs):
        if self.ob is not None:
            self._refer(self.ob)

    def _refer(self, state: State) -> None:
        if not isinstance(state, _General):
            raise TypeError("Grequest: the request is not one that the program completes")
        self.ob = state

    @classmethod
    def Start(
        cls,
        query_fn: Callable[..., None] | None = None,
        free_fn: Callable[..., None] | None = None,
        cancel_fn: Callable[..., None] | None = None,
        args: tuple[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Grequest:
        """Create and return a user-defined request."""
        cdef _General op = _General.__new__(_General)
        op.query = query_fn
        op.free = free_fn
        op.cancel_function = cancel_fn
        op.args = tuple(args) if args is not None else ()
        op.kwargs = dict(kwargs) if kwargs is not None else {}
        op.active = True
        cdef Grequest request = cls.__new__(cls)
        request.ob = op
        return request

    def Free(self) -> None:
        """Free the request; `Complete` of this handle still completes its operation."""
        cdef State op = self.ob
        Request.Free(self)
        self.left = <_General>op

    cdef _General _completing(self, str call):
        if self.ob is None and self.left is not None:
            return self.left
        self._require(constants.ERR_REQUEST, call)
        return <_General?>self.ob

    def Complete(self) -> None:
        """Notify that a user-defined request is complete."""
        self._complete(None, "Complete")

    def complete(self, obj: Any = None) -> None:
        """Notify that a user-defined request is complete."""
        self._complete(obj, "complete")

    cdef int _complete(self, object value, str call) except -1:
        cdef _General op = self._completing(call)
        if not op.completed:
            op.value = value
            self.left = None
        return op.complete()


cdef class _Watched(Operation):
    """What something outside the engine completes."""

    cdef object test, then
    cdef str call, title

    cdef bint ready(self) except -1:
        return self.test()

    cdef object end(self, Status status):
        self.active = False
        empty_status(status)
        return self.then()

    cdef int publish(self, unsigned int count) except -1:
        return note(count, -1, -1, self.call, self.title)


def watched(test: Callable[[], bool], then: Callable[[], Any], call: str, title: str) -> Request:
    """Return the request of an operation that ends when `test` is true; `then` is its end."""
    cdef _Watched op = _Watched.__new__(_Watched)
    op.test, op.then, op.call, op.title = test, then, call, title
    op.active = True
    return request_of(op)
