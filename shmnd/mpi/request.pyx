# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature=True, embedsignature.format=python
# cython: annotation_typing=False
"""Requests: handles to operations, and the calls that wait for one, any, some or all of them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

from shmnd.mpi.comm_state cimport empty_status
from shmnd.mpi.engine cimport E, note, note_end, poll, turn
from shmnd.mpi.handle cimport State
from shmnd.mpi.handle import constant

from shmnd.mpi import attributes, constants
from shmnd.mpi.errors import Exception as MPIException

cdef int UNDEFINED = constants.UNDEFINED


cdef int wait_op(Operation op) except -1:
    cdef unsigned int idle = 0
    cdef bint noted = False
    try:
        while not op.ready():
            turn(&idle)
            if idle > E.looks and not noted:
                noted = True
                op.publish(1)
    finally:
        if noted:
            note_end()
    return 0


cdef int _note(list ops) except -1:
    """Publish for which operations the program waits: the first of those not ready."""
    waiting = [op for op in ops if op is not None and not (<Operation>op).ready()]
    if waiting:
        (<Operation>waiting[0]).publish(len(waiting))
    return 0


cdef list _operations(object requests):
    """Operations of requests that wait for something, None for the others."""
    return [None if each is None else (<Request?>each).operation() for each in requests]


cdef object _fit(object statuses, Py_ssize_t count):
    """The statuses to fill: a list grows as far as needed."""
    if statuses is None:
        return ()
    if isinstance(statuses, list):
        while len(statuses) < count:
            statuses.append(Status())
    return statuses


cdef Status _at(object statuses, Py_ssize_t i):
    return statuses[i] if i < len(statuses) else None


cdef int _first(list ops) except -2:
    """The first that is ready; -1 if none is, -3 if none is under way."""
    cdef Py_ssize_t i
    cdef bint some = False
    for i in range(len(ops)):
        if ops[i] is not None:
            some = True
            if (<Operation>ops[i]).ready():
                return i
    return -1 if some else -3


cdef bint _all(list ops) except -1:
    cdef object op
    for op in ops:
        if op is not None and not (<Operation>op).ready():
            return False
    return True


cdef int _wait_first(list ops) except -2:
    cdef unsigned int idle = 0
    cdef int i = _first(ops)
    cdef bint noted = False
    try:
        while i == -1:
            turn(&idle)
            i = _first(ops)
            if idle > E.looks and not noted:
                noted = True
                _note(ops)
    finally:
        if noted:
            note_end()
    return i


cdef int _wait_all(list ops) except -1:
    cdef unsigned int idle = 0
    cdef bint noted = False
    try:
        while not _all(ops):
            turn(&idle)
            if idle > E.looks and not noted:
                noted = True
                _note(ops)
    finally:
        if noted:
            note_end()
    return 0


cdef list _ready_ones(list ops):
    cdef Py_ssize_t i
    return [i for i in range(len(ops)) if ops[i] is not None and (<Operation>ops[i]).ready()]


cdef list _end(object requests, object indices, object statuses):
    """End the operations of these requests; their results. The first error is raised last."""
    cdef list results = []
    failure = None
    for at, i in enumerate(indices):
        request = requests[i]
        try:
            if request is None:
                results.append(None)
                empty_status(_at(statuses, at))
            else:
                results.append((<Request>request).finish(_at(statuses, at)))
        except BaseException as error:
            failure = failure or error
            results.append(None)
    if failure is not None:
        raise failure
    return results


cdef class Request(Handle):
    """Request handler."""

    _family = "Request"

    cdef Operation operation(self):
        """The operation, if it is under way."""
        if self.ob is None or not (<Operation>self.ob).active:
            return None
        return <Operation>self.ob

    cdef object finish(self, Status status):
        """End the operation, which is ready."""
        cdef Operation op = self.operation()
        if op is None:
            empty_status(status)
            return None
        op.check_pending(status)
        if not op.persistent:
            self._release()
        return op.end(status)

    @property
    def handle(self) -> int:
        """The number of the handle."""
        if self.ob is not None and not self.ob.handle:
            State.__init__(self.ob)
        return Handle.handle.__get__(self)

    # -- one --

    def Wait(self, status: Status | None = None) -> Literal[True]:
        """Wait for a non-blocking operation to complete."""
        self._wait(status)
        return True

    def _wait(self, Status status):
        cdef Operation op = self.operation()
        if op is not None:
            wait_op(op)
        return self.finish(status)

    def Test(self, status: Status | None = None) -> bool:
        """Test for the completion of a non-blocking operation."""
        return self._test(status)[0]

    def _test(self, Status status):
        cdef Operation op = self.operation()
        if op is not None and not op.ready():
            poll()
            if not op.ready():
                return (False, None)
        return (True, self.finish(status))

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
        return self._wait(status)

    def test(self, status: Status | None = None) -> tuple[bool, Any | None]:
        """Test for the completion of a non-blocking operation."""
        return self._test(status)

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
        cdef int i = _first(ops)
        if i == -1:
            poll()
            i = _first(ops)
        if i == -1:
            return (UNDEFINED, False)
        if i < 0:
            empty_status(status)
            return (UNDEFINED, True)
        (<Operation>ops[i]).peek(status)
        return (i, True)

    @classmethod
    def waitany(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, Any]:
        """Wait for any previously initiated request to complete."""
        cdef int i = _wait_first(_operations(requests))
        if i < 0:
            empty_status(status)
            return (UNDEFINED, None)
        return (i, (<Request>requests[i]).finish(status))

    @classmethod
    def testany(
        cls, requests: Sequence[Request], status: Status | None = None
    ) -> tuple[int, bool, Any | None]:
        """Test for completion of any previously initiated request."""
        cdef list ops = _operations(requests)
        cdef int i = _first(ops)
        if i == -1:
            poll()
            i = _first(ops)
        if i == -1:
            return (UNDEFINED, False, None)
        if i < 0:
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
        cls.waitall(requests, statuses)
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
        if not _all(ops):
            poll()
        if not _all(ops):
            return False
        statuses = _fit(statuses, len(ops))
        for i, op in enumerate(ops):
            if op is None:
                empty_status(_at(statuses, i))
            else:
                (<Operation>op).peek(_at(statuses, i))
        return True

    @classmethod
    def waitall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[Any]:
        """Wait for all previously initiated requests to complete."""
        _wait_all(_operations(requests))
        return _end(requests, range(len(requests)), _fit(statuses, len(requests)))

    @classmethod
    def testall(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[bool, list[Any] | None]:
        """Test for completion of all previously initiated requests."""
        cdef list ops = _operations(requests)
        if not _all(ops):
            poll()
        if not _all(ops):
            return (False, None)
        return (True, _end(requests, range(len(requests)), _fit(statuses, len(requests))))

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
        if _first(ops) == -3:
            return None
        poll()
        found = _ready_ones(ops)
        statuses = _fit(statuses, len(found))
        for at, i in enumerate(found):
            (<Operation>ops[i]).peek(_at(statuses, at))
        return found

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Wait for some previously initiated requests to complete."""
        cdef list ops = _operations(requests)
        if _wait_first(ops) < 0:
            return (None, None)
        found = _ready_ones(ops)
        return (found, _end(requests, found, _fit(statuses, len(found))))

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Test for completion of some previously initiated requests."""
        cdef list ops = _operations(requests)
        if _first(ops) == -3:
            return (None, None)
        if _first(ops) == -1:
            poll()
        found = _ready_ones(ops)
        return (found, _end(requests, found, _fit(statuses, len(found))))

    @classmethod
    def get_status_some(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> list[int] | None:
        """Test for the completion of some requests without freeing one."""
        return cls.Get_status_some(requests, statuses)


cdef Request request_of(Operation op):
    cdef Request request = Request.__new__(Request)
    op.requested = True
    request.ob = op
    return request


cdef Prequest prequest_of(Operation op):
    cdef Prequest request = Prequest.__new__(Prequest)
    op.persistent = op.requested = True
    request.ob = op
    return request


cdef class Prequest(Request):
    """Persistent request handler."""

    def __cinit__(self, *args, **kwargs):
        if self.ob is not None and not (<Operation>self.ob).persistent:
            raise TypeError("Prequest: the request is not a persistent one")

    def Start(self) -> None:
        """Initiate a communication with a persistent request."""
        self._require(constants.ERR_REQUEST, "Start")
        cdef Operation op = <Operation>self.ob
        if op.active:
            raise MPIException(
                constants.ERR_REQUEST, "Prequest.Start: it is under way; wait for it first"
            )
        op.begin()

    @classmethod
    def Startall(cls, requests: list[Prequest]) -> None:
        """Start a collection of persistent requests."""
        for request in requests:
            request.Start()

    def Pready(self, partition: int) -> None:
        """Mark a given partition as ready."""
        self._require(constants.ERR_REQUEST, "Pready")
        self.ob.pready(partition, partition)

    def Pready_range(self, partition_low: int, partition_high: int) -> None:
        """Mark a range of partitions as ready."""
        self._require(constants.ERR_REQUEST, "Pready_range")
        self.ob.pready(partition_low, partition_high)

    def Pready_list(self, partitions: Sequence[int]) -> None:
        """Mark a sequence of partitions as ready."""
        self._require(constants.ERR_REQUEST, "Pready_list")
        for partition in partitions:
            self.ob.pready(partition, partition)

    def Parrived(self, partition: int) -> bool:
        """Test partial completion of a partitioned receive operation."""
        self._require(constants.ERR_REQUEST, "Parrived")
        return self.ob.parrived(partition)


cdef class _General(Operation):
    """What a program completes by itself."""

    cdef object query, free, cancel_function, args, kwargs, value
    cdef bint completed

    cdef bint ready(self) except -1:
        return self.completed

    cdef object end(self, Status status):
        self.active = False
        self.peek(status)
        if self.free is not None:
            free, self.free = self.free, None
            attributes.run(functools.partial(free, **self.kwargs), *self.args)
        return self.value

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

    def __cinit__(self, *args, **kwargs):
        if self.ob is not None and not isinstance(self.ob, _General):
            raise TypeError("Grequest: the request is not one that the program completes")

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

    def Complete(self) -> None:
        """Notify that a user-defined request is complete."""
        self._require(constants.ERR_REQUEST, "Complete")
        (<_General?>self.ob).completed = True

    def complete(self, obj: Any = None) -> None:
        """Notify that a user-defined request is complete."""
        self._require(constants.ERR_REQUEST, "complete")
        (<_General?>self.ob).value = obj
        (<_General>self.ob).completed = True


cdef class _Watched(Operation):
    """What something outside the engine completes."""

    cdef object test, then
    cdef str call

    cdef bint ready(self) except -1:
        return self.test()

    cdef object end(self, Status status):
        self.active = False
        empty_status(status)
        return self.then()

    cdef int publish(self, unsigned int count) except -1:
        return note(count, -1, -1, self.call, "")


def watched(test: Callable[[], bool], then: Callable[[], Any], call: str) -> Request:
    """Return the request of an operation that ends when `test` is true; `then` is its end."""
    cdef _Watched op = _Watched.__new__(_Watched)
    op.test, op.then, op.call = test, then, call
    op.active = True
    return request_of(op)


REQUEST_NULL = constant(Request(), "REQUEST_NULL", predefined=False)


def ended() -> Request:
    """Return a request of an operation that has ended."""
    cdef Operation op = Operation.__new__(Operation)
    op.active = True
    return request_of(op)
