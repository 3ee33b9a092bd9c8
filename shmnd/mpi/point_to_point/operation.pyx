# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Operations under way: what a request refers to.

An operation begins, is ready at some time, and ends: only its end shows in the program, by the
call that waits for it, so that unpacking and unpickling happen there. A persistent one begins
again.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_REFCNT
from libc.stdlib cimport free

from shmnd.mpi.communicators.comm_state cimport empty_status, null_status, set_status
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.datatypes.type_state cimport TypeState
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_FAILED_PEER, SHMPI_OTHERS_END, SHMPI_REVOKED, SHMPI_TRUNCATED, cancel as take_back,
    hold, note, req_free, req_new, return_borrowed, start_receive, start_send, stop_req,
)
from shmnd.mpi.buffers.pickle cimport (
    pickle_copy, pickle_load, pickle_load_copy, pickle_message,
)
from shmnd.mpi.buffers.plain cimport memory_of, plain, release
from shmnd.mpi.buffers.spec cimport spec_simple
from shmnd.mpi.buffers.staging cimport flatten
from shmnd.mpi.point_to_point.left_requests cimport leave_buffered, leave_request, unpack

from shmnd.mpi import constants

cdef int PROC_NULL = constants.PROC_NULL
cdef int ANY_SOURCE = constants.ANY_SOURCE
_CLASSES = {
    SHMPI_TRUNCATED: constants.ERR_TRUNCATE,
    SHMPI_FAILED_PEER: constants.ERR_PROC_FAILED,
    SHMPI_REVOKED: constants.ERR_REVOKED,
}


cdef class Operation(State):
    """One operation. The methods are those of an operation that has nothing to do."""

    cdef bint ready(self) except -1:
        """Return whether a wait for it is over: it can end, or has an error to report."""
        return True

    cdef int check_pending(self, Status status) except -1:
        """Raise the error of an operation that continues in spite of it."""
        return 0

    cdef int begin(self) except -1:
        self.active = True
        return 0

    cdef object end(self, Status status):
        self.active = False
        empty_status(status)
        return None

    cdef int peek(self, Status status) except -1:
        empty_status(status)
        return 0

    cdef int cancel(self) except -1:
        return 0

    cdef int leave(self) except -1:
        return 0

    cdef int publish(self, unsigned int count) except -1:
        return note(count | SHMPI_OTHERS_END, -1, -1, "a request", "")

    cdef unsigned int flags(self) noexcept:
        return 0

    cdef int awaited(self) except? -2:
        return -1

    cdef void recycle(self) noexcept:
        """Offer it, once ended, to another operation, if the caller alone refers to it."""


cdef class _Sent(Operation):
    """Of every send that had ended when its call returned: one operation for all of them."""

    cdef object end(self, Status status):
        empty_status(status)
        return None


SENT = _Sent.__new__(_Sent)
SENT.active = SENT.predefined = True


cdef class Ended(Operation):
    """An operation with PROC_NULL."""

    cdef object end(self, Status status):
        self.active = False
        self.peek(status)

    cdef int peek(self, Status status) except -1:
        if self.of_null:
            null_status(status)
        else:
            empty_status(status)
        return 0


cdef enum:
    _SPARE = 64  # a window of receives: these spare the allocator and the collector their work
cdef PyObject *_spare[_SPARE]
cdef int _spares = 0


cdef Point point(CommBase comm, CommState c, str call, bint receives, int peer, int tag):
    global _spares
    cdef Point op
    if _spares:
        _spares -= 1
        op = <Point>_spare[_spares]
        Py_DECREF(op)  # the reference of the spare ones
    else:
        op = Point.__new__(Point)
    op.comm = comm
    op.state = c
    op.context = c.context
    op.call = call
    op.receives = receives
    op.peer = peer
    op.tag = tag
    return op


# A collection of garbage would take the memory that the engine uses before the request is dropped.
@cython.no_gc_clear
cdef class Point(Operation):
    """A send or a receive, of a buffer or of an object."""

    def __dealloc__(self):
        if self.req != NULL:
            self._drop()
        self._drop_message()

    def _drop(self):
        cdef shmpi_req *r = self.req
        self.req = NULL
        if self.staged != NULL:
            r.owns_buffer = True
            self.staged = NULL
        if self.receives and not self.requested:
            take_back(r)  # no request of the program: a blocking call ended by an exception
        leave_request(r, self._memory())

    def ended(self) -> None:
        """Complete what the program left, and is done."""
        cdef shmpi_req *r = self.req
        self.req = NULL
        if self.staged != NULL:
            unpack(r, self.spec)
        req_free(r)

    cdef int take(self, object msg) except -1:
        """Take a message over, as the call names it."""
        cdef int place = PROC_NULL if self.peer == PROC_NULL else 0
        if self.peer != PROC_NULL and plain(msg, not self.receives, &self.given):
            self.is_plain = True
            self.length = self.given.nbytes
            return 0
        self.spec = spec_simple(msg, not self.receives, place, 0, self.call)
        return self.stage()

    cdef int take_object(self, object obj) except -1:
        """Take an object over as the message."""
        if self.peer != PROC_NULL:
            pickle_message(obj, &self.given)
            self.is_plain = True
            self.length = self.given.nbytes
        self.is_object = True
        return 0

    cdef int stage(self) except -1:
        """Take a buffer specification over as the message."""
        cdef char *address
        if self.staged != NULL:
            free(self.staged)
            self.staged = NULL
        if self.spec is not None:
            flatten(self.spec, not self.receives, &address, &self.length, &self.staged)
        return 0

    cdef int send_copy(self) except -1:
        """Send a copy of the message, which may change from now on."""
        if self.length and self.peer != PROC_NULL:
            copy = self._address()[: self.length]
            self._drop_message()
            self.keep = copy
        return 0

    cdef char *_address(self) noexcept:
        if self.staged != NULL:
            return self.staged
        if self.is_plain:
            return self.given.addr
        if self.spec is not None:
            return self.spec.addr
        return PyBytes_AS_STRING(self.keep) if self.length else NULL

    cdef object _memory(self):
        """Return the object that keeps the memory of the message in its place."""
        if self.is_plain:
            return memory_of(&self.given)
        return self.keep if self.spec is None else self.spec

    cdef void _end_use(self) noexcept:
        if self.used != NULL:
            Py_DECREF(<object>self.used)
            self.used = NULL

    cdef void _drop_message(self) noexcept:
        self._end_use()
        if self.is_plain:
            self.is_plain = False
            release(&self.given)
        free(self.staged)
        self.staged = NULL
        self.spec = None
        self.keep = None

    cdef int fill(self) except -1:
        cdef shmpi_req *r
        self.req = r = req_new()
        if self.spec is not None and self.used == NULL:
            Py_INCREF(self.spec)
            self.used = <PyObject *>self.spec
        r.peer = self.peer
        r.tag = self.tag
        r.context = self.context
        r.sync = self.sync
        r.receives = self.receives
        r.bytes = self.length
        r.grows = self.receives and self.is_object and self.spec is None
        r.buffer = NULL if r.grows else self._address()
        return 0

    cdef bint ready(self) except -1:
        self.doubtful = False
        if self.req == NULL or self.req.done:
            return True
        if E.failures and self.receives and self.peer == ANY_SOURCE and self.req.posted:
            # The message may have been that of a rank that died. A receive that the program has
            # a request of stays posted: after Ack_failed it may still get a message.
            if self.state.dead() > self.state.acknowledged:
                self.doubtful = self.requested
                if not self.doubtful:
                    stop_req(self.req, SHMPI_FAILED_PEER)
                return self.doubtful or self.req.done
        return False

    cdef int check_pending(self, Status status) except -1:
        if not self.doubtful or self.req == NULL or self.req.done:
            return 0
        empty_status(status)
        if status is not None:
            status.c_error = constants.ERR_PROC_FAILED_PENDING
        dead = self.state.failed()[0]
        mpi_error(
            self.comm, constants.ERR_PROC_FAILED_PENDING,
            f"Comm.{self.call} of {self.state.title()} from any rank: rank {dead} of the "
            "job, which may have been the sender, has died; the receive stays posted, and "
            "continues after Ack_failed",
        )

    cdef int publish(self, unsigned int count) except -1:
        return note(count, self.peer, self.tag, self.call, self.state.title(),
                    self.state.context)

    cdef int awaited(self) except? -2:
        return self.peer

    cdef int begin(self) except -1:
        self.active = True
        if self.peer == PROC_NULL:
            return 0
        if self.receives and self.is_plain:
            return self._post()
        if self.persistent and self.spec is not None:
            self.stage()
        if self.buffered:
            return self._buffer()
        self.fill()
        if self.receives:
            start_receive(self.req)
        else:
            start_send(self.req)
        return 0

    cdef int _post(self) except -1:
        """Start to receive a plain message."""
        cdef shmpi_req *r
        self.req = r = req_new()
        r.peer = self.peer
        r.tag = self.tag
        r.context = self.context
        r.receives = True
        r.buffer = self.given.addr
        r.bytes = self.length
        return start_receive(r)

    cdef int _buffer(self) except -1:
        """Begin a buffered send: the bytes are the engine's, and the program's send has ended."""
        cdef shmpi_req *r
        buffering = self.comm._room_to_buffer(self.state, self.length, self.call)
        self.fill()
        r = self.req
        self.req = NULL
        leave_buffered(r, buffering)
        return start_send(r)

    cdef object end(self, Status status):
        cdef shmpi_req *r = self.req
        self.active = False
        if r == NULL:
            self.peek(status)
            return None
        try:
            set_status(status, self.state, r)
            if r.fault:
                if status is not None:
                    status.c_error = fault_class(r.fault)
                self.comm.fail(r.fault, self.call, r, self.state)
            if self.receives and not r.cancelled:
                if self.staged != NULL:
                    (<TypeState>self.spec.type).unpack_bytes(self.staged, r.got, self.spec.addr)
                elif self.is_object:
                    return unpickled(self.comm, self.state, r, self.call)
            return None
        finally:
            req_free(r)
            self.req = NULL
            self._end_use()
            if not self.persistent:
                self._drop_message()

    cdef int peek(self, Status status) except -1:
        self.check_pending(status)
        if self.req != NULL:
            set_status(status, self.state, self.req)
        elif self.receives:
            null_status(status)
        else:
            empty_status(status)
        return 0

    cdef int cancel(self) except -1:
        if self.req != NULL:
            take_back(self.req)
        return 0

    cdef int leave(self) except -1:
        if self.req != NULL and not self.req.done and self.req.holder == NULL:
            hold(self.req, self)
        return 0

    cdef void recycle(self) noexcept:
        global _spares
        if type(self) is not Point or _spares == _SPARE or Py_REFCNT(self) != 1:
            return
        if self.persistent or self.handle or self.req != NULL or self.is_plain:
            return
        if self.spec is not None or self.keep is not None or self.used != NULL:
            self._drop_message()  # one to or from PROC_NULL ended without a request of the engine
        self.comm = self.state = self.call = None
        self.requested = self.sync = self.is_object = self.buffered = self.doubtful = False
        self.length = 0
        Py_INCREF(self)
        _spare[_spares] = <PyObject *>self
        _spares += 1


cdef object unpickled(CommBase comm, CommState c, shmpi_req *r, str call):
    """Return the object that a receive got; None of an empty message."""
    if r.got == 0:
        return None
    try:
        if r.borrowed:
            copy = pickle_copy(r.buffer, r.got)
            return_borrowed(r)  # before code of the program runs: the sender waits for it
            return pickle_load_copy(copy)
        return pickle_load(r.buffer, r.got)
    except Exception as error:
        error.add_note(
            f"in Comm.{call} of {c.title()}: the message of {r.got} "
            f"bytes from rank {c.from_job[r.source]}, tag {r.source_tag}, does not "
            "unpickle; what Send sends is received by Recv, what send sends by recv"
        )
        raise


cdef int fault_class(int fault) except -1:
    """Return the error class of what went wrong with a message."""
    return _CLASSES.get(fault, constants.ERR_OTHER)
