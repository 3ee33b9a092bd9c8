# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Requests: handles to operations, and the calls that wait for one, any, some or all of them."""

cimport cython

from collections.abc import Sequence
from typing import Any, Literal

from shmnd.mpi.communicators.comm_state cimport empty_status
from shmnd.mpi.objects.handle cimport BareHandle, State, make_null, referred
from shmnd.mpi.objects.handle import constant
from shmnd.mpi.point_to_point.arguments cimport fitting, status_at
from shmnd.mpi.point_to_point.direct cimport end_plain, is_over
from shmnd.mpi.point_to_point.operation cimport Point, SENT
from shmnd.mpi.point_to_point.waiting cimport (
    NONE_ACTIVE, NONE_READY, all_ready, first_ready, publish_wait, ready_ones, wait_first, wait_op,
)
from shmnd.mpi.transport.engine cimport Wait, poll, wait_end, wait_turn

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException

cdef extern from "point_to_point/spare_requests.h":
    void shmpi_requests_keep(object type)
    object shmpi_request_make(object type, object ob, bint lone)

cdef int UNDEFINED = constants.UNDEFINED
cdef object _NONE_GIVEN = object()


cdef Request _request(object given):
    if not isinstance(given, Request):
        raise TypeError(f"expected requests, not {given!r}")
    return <Request>given


cdef list _operations(object requests):
    """Return the operations of requests; None for each that waits for nothing."""
    return [_request(each).operation() for each in requests]


cdef list _wait_all(object given):
    """Wait for requests, and return them: no list of operations, which they recycle."""
    cdef list requests = list(given)
    cdef Wait wait = Wait(0, False)
    cdef Operation op
    cdef tuple published = None
    try:
        for each in requests:  # one that is ready stays so
            if type(each) is Request and is_over((<Request>each).ob):
                continue
            while (op := _request(each).operation()) is not None and not op.ready():
                if wait_turn(&wait) or (wait.noted and (op, op.awaited()) != published):
                    published = op, op.awaited()
                    publish_wait(_operations(requests), True)
    finally:
        wait_end(&wait)
    return requests


@cython.boundscheck(False)
@cython.wraparound(False)
cdef list _end(list requests, object statuses, bint results=True):
    """End these requests, which a wait has seen and this call alone has in a list.

    Return their results. Where some have failed, raise ERR_IN_STATUS behind the last one, in the
    words of one error.
    """
    cdef list found = [None] * len(requests) if results else None
    cdef bint reports = len(statuses) > 0
    cdef Py_ssize_t i = 0, n = len(requests)
    cdef object failure = None
    cdef Request each
    while i < n:
        try:
            while i < n:
                each = <Request>requests[i]
                if each.ob is SENT and not reports:  # one of a window of short messages
                    each.ob = None
                elif results:
                    found[i] = each.finish(status_at(statuses, i) if reports else None)
                else:
                    each.finish(status_at(statuses, i) if reports else None)
                i += 1
        except BaseException as error:
            failure, i = failure or error, i + 1
    if isinstance(failure, MPIException):
        raise MPIException(constants.ERR_IN_STATUS, str(failure)) from failure
    if failure is not None:
        raise failure
    return found


cdef class Request(BareHandle):
    """Request handler."""

    _family = "Request"

    def __cinit__(self, request=_NONE_GIVEN):
        if request is not _NONE_GIVEN:
            self.ob = referred(self, (request,), {})

    cdef Operation operation(self):
        """Return the operation if it is under way, else None."""
        return <Operation>self.ob if self.ob is not None and (<Operation>self.ob).active else None

    cdef object finish(self, Status status):
        """End the operation, which is ready."""
        cdef Operation op = <Operation>self.ob
        if op is SENT:
            self.ob = None
            empty_status(status)
            return None
        if type(op) is Point and end_plain(<Point>op, status):
            if op.handle:
                make_null(self)
            self.ob = None
            op.recycle()
            return None
        op = self.operation()
        if op is None:
            empty_status(status)
            return None
        op.check_pending(status)
        if not op.persistent:
            make_null(self)
        result = op.end(status)
        op.recycle()
        return result

    @property
    def handle(self) -> int:
        """The number of the handle."""
        if self.ob is not None and not self.ob.handle:
            State.__init__(self.ob)
        return BareHandle.handle.__get__(self)

    # -- one --

    def Wait(self, status: Status | None = None) -> Literal[True]:
        """Wait for a non-blocking operation to complete."""
        _wait(self, status)
        return True

    def Test(self, status: Status | None = None) -> bool:
        """Test for the completion of a non-blocking operation."""
        return _test(self, status)[0]

    def Get_status(self, status: Status | None = None) -> bool:
        """Test for the completion of an operation without freeing the request."""
        cdef Operation op = self.operation()
        if op is None:
            empty_status(status)
            return True
        if not op.ready():
            poll()
        if not op.ready():
            return False
        op.peek(status)
        return True

    def Cancel(self) -> None:
        """Cancel a request."""
        self._require(constants.ERR_REQUEST, "Cancel")
        (<Operation>self.ob).cancel()

    def Free(self) -> None:
        """Free a communication request."""
        self._require(constants.ERR_REQUEST, "Free")
        (<Operation>self.ob).leave()
        self._release()

    def wait(self, status: Status | None = None) -> Any:
        """Wait for a non-blocking operation to complete."""
        return _wait(self, status)

    def test(self, status: Status | None = None) -> tuple[bool, Any | None]:
        """Test for the completion of a non-blocking operation."""
        return _test(self, status)

    def get_status(self, status: Status | None = None) -> bool:
        """Test for the completion of an operation without freeing the request."""
        return Request.Get_status(self, status)

    def cancel(self) -> None:
        """Cancel a request."""
        Request.Cancel(self)

    # -- any --

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """Wait for any previously initiated request to complete."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def Testany(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, bool]:
        """Test for completion of any previously initiated request."""
        return cls.testany(requests, status)[:2]

    @classmethod
    def Get_status_any(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, bool]:
        """Test for the completion of any of the requests without freeing one."""
        cdef list ops = _operations(requests)
        cdef int i = first_ready(ops)
        if i == NONE_READY:
            poll()
            i = first_ready(ops)
        if i == NONE_READY:
            return (UNDEFINED, False)
        if i == NONE_ACTIVE:
            empty_status(status)
            return (UNDEFINED, True)
        (<Operation>ops[i]).peek(status)
        return (i, True)

    @classmethod
    def waitany(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, Any]:
        """Wait for any previously initiated request to complete."""
        cdef int i = wait_first(_operations(requests))
        if i == NONE_ACTIVE:
            empty_status(status)
            return (UNDEFINED, None)
        return (i, (<Request>requests[i]).finish(status))

    @classmethod
    def testany(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, bool, Any | None]:
        """Test for completion of any previously initiated request."""
        cdef list ops = _operations(requests)
        cdef int i = first_ready(ops)
        if i == NONE_READY:
            poll()
            i = first_ready(ops)
        if i == NONE_READY:
            return (UNDEFINED, False, None)
        if i == NONE_ACTIVE:
            empty_status(status)
            return (UNDEFINED, True, None)
        return (i, True, (<Request>requests[i]).finish(status))

    @classmethod
    def get_status_any(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, bool]:
        """Test for the completion of any of the requests without freeing one."""
        return cls.Get_status_any(requests, status)

    # -- all --

    @classmethod
    def Waitall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> Literal[True]:
        """Wait for all previously initiated requests to complete."""
        cdef list held = _wait_all(requests)
        _end(held, fitting(statuses, len(held)), False)
        return True

    @classmethod
    def Testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> bool:
        """Test for completion of all previously initiated requests."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def Get_status_all(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> bool:
        """Test for the completion of all requests without freeing one."""
        cdef list ops = _operations(requests)
        if not all_ready(ops):
            poll()
        if not all_ready(ops):
            return False
        statuses = fitting(statuses, len(ops))
        for i, op in enumerate(ops):
            if op is None:
                empty_status(status_at(statuses, i))
            else:
                (<Operation>op).peek(status_at(statuses, i))
        return True

    @classmethod
    def waitall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[Any]:
        """Wait for all previously initiated requests to complete."""
        cdef list held = _wait_all(requests)
        return _end(held, fitting(statuses, len(held)))

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """Test for completion of all previously initiated requests."""
        cdef list held = list(requests)
        cdef list ops = _operations(held)
        if not all_ready(ops):
            poll()
        if not all_ready(ops):
            return (False, None)
        return (True, _end(held, fitting(statuses, len(held))))

    @classmethod
    def get_status_all(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> bool:
        """Test for the completion of all requests without freeing one."""
        return cls.Get_status_all(requests, statuses)

    # -- some --

    @classmethod
    def Waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[int] | None:
        """Wait for some previously initiated requests to complete."""
        return cls.waitsome(requests, statuses)[0]

    @classmethod
    def Testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[int] | None:
        """Test for completion of some previously initiated requests."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def Get_status_some(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[int] | None:
        """Test for the completion of some requests without freeing one."""
        cdef list ops = _operations(requests)
        if first_ready(ops) == NONE_ACTIVE:
            return None
        poll()
        found = ready_ones(ops)
        statuses = fitting(statuses, len(found))
        for at, i in enumerate(found):
            (<Operation>ops[i]).peek(status_at(statuses, at))
        return found

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Wait for some previously initiated requests to complete."""
        cdef list held = list(requests)
        cdef list ops = _operations(held)
        if wait_first(ops) == NONE_ACTIVE:
            return (None, None)
        found = ready_ones(ops)
        return (found, _end([held[i] for i in found], fitting(statuses, len(found))))

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Test for completion of some previously initiated requests."""
        cdef list held = list(requests)
        cdef list ops = _operations(held)
        if first_ready(ops) == NONE_ACTIVE:
            return (None, None)
        if first_ready(ops) == NONE_READY:
            poll()
        found = ready_ones(ops)
        return (found, _end([held[i] for i in found], fitting(statuses, len(found))))

    @classmethod
    def get_status_some(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[int] | None:
        """Test for the completion of some requests without freeing one."""
        return cls.Get_status_some(requests, statuses)


cdef object _wait(Request request, Status status):
    cdef Operation op = request.operation()
    if op is not None:
        wait_op(op)
        op = None
    return request.finish(status)


cdef tuple _test(Request request, Status status):
    cdef Operation op = request.operation()
    if op is not None and not op.ready():
        poll()
        if not op.ready():
            return (False, None)
    return (True, request.finish(status))


cdef Request request_of(Operation op):
    cdef Request request = <Request>shmpi_request_make(Request, op, op is SENT)
    op.requested = True
    if request.ob is None:
        request.ob = op
    return request


shmpi_requests_keep(Request)
REQUEST_NULL = constant(Request(), "REQUEST_NULL", predefined=False)


def ended() -> Request:
    """Return a request of an operation that has ended."""
    cdef Operation op = Operation.__new__(Operation)
    op.active = True
    return request_of(op)
