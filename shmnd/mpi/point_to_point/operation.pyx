# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Operations under way: what a request refers to.

An operation begins, is ready at some time, and ends: only its end shows in the program, by the
call that waits for it, so that unpacking and unpickling happen there. A persistent one begins
again.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from shmnd.mpi.communicators.comm_state cimport empty_status, null_status, set_status
from shmnd.mpi.objects.errhandler cimport mpi_error
from shmnd.mpi.datatypes.type_state cimport TypeState
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_FAILED_PEER, SHMPI_REVOKED, SHMPI_TRUNCATED, cancel as take_back, hold, let_go, note,
    req_free, req_new, start_receive, start_send, stop_req,
)
from shmnd.mpi.buffers.pickle cimport pickle_load

from shmnd.mpi import constants

cdef int PROC_NULL = constants.PROC_NULL
cdef int ANY_SOURCE = constants.ANY_SOURCE
_CLASSES = {
    SHMPI_TRUNCATED: constants.ERR_TRUNCATE,
    SHMPI_FAILED_PEER: constants.ERR_PROC_FAILED,
    SHMPI_REVOKED: constants.ERR_REVOKED,
}


cdef int flatten(
    Spec spec, bint sends, char **address, Py_ssize_t *length, char **staged
) except -1:
    """Bytes in a row for what a specification names: its own, or packed ones in `staged`."""
    cdef TypeState type = spec.type
    cdef Py_ssize_t n = 0 if type is None else spec.count * type.size
    length[0] = n
    staged[0] = NULL
    address[0] = spec.addr
    if n == 0 or type.contig:
        return 0
    staged[0] = <char *>malloc(n)
    if staged[0] == NULL:
        raise MemoryError(f"shmnd.mpi: no memory to pack {n} bytes of a message")
    address[0] = staged[0]
    if sends:
        type.pack(spec.addr, spec.count, staged[0])
    return 0


cdef class Operation(State):
    """One operation. The methods are those of an operation that has nothing to do."""

    cdef bint ready(self) except -1:
        """Whether a wait for it is over: it can end, or it has an error to report and continues."""
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
        """The status of an operation that is ready and does not end yet."""
        empty_status(status)
        return 0

    cdef int cancel(self) except -1:
        return 0

    cdef int leave(self) except -1:
        """The program does not wait for its end."""
        return 0

    cdef int publish(self, unsigned int count) except -1:
        """Publish that the program waits for it, as one of `count` operations."""
        return note(count, -1, -1, "a request", "")


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


cdef Point point(CommBase comm, CommState c, str call, bint receives, int peer, int tag):
    cdef Point op = Point.__new__(Point)
    op.comm = comm
    op.state = c
    op.context = c.context
    op.call = call
    op.receives = receives
    op.peer = peer
    op.tag = tag
    return op


cdef class Point(Operation):
    """A send or a receive, of a buffer or of an object."""

    def __dealloc__(self):
        if self.req != NULL:
            self._drop()
        free(self.staged)

    def _drop(self):
        cdef shmpi_req *r = self.req
        self.req = NULL
        if self.staged != NULL:
            r.owns_buffer = True
            self.staged = NULL
        if self.receives and not self.requested:
            take_back(r)  # no request of the program: a blocking call ended by an exception
        leave_request(r, self.keep if self.spec is None else self.spec)

    def ended(self) -> None:
        """Complete what the program left, and is done."""
        cdef shmpi_req *r = self.req
        self.req = NULL
        if self.staged != NULL:
            _unpack(r, self.spec)
        req_free(r)

    cdef int stage(self) except -1:
        """Take a buffer specification over as the message."""
        cdef char *address
        if self.staged != NULL:
            free(self.staged)
            self.staged = NULL
        if self.spec is not None:
            flatten(self.spec, not self.receives, &address, &self.length, &self.staged)
        return 0

    cdef int fill(self) except -1:
        cdef shmpi_req *r
        self.req = r = req_new()
        r.peer = self.peer
        r.tag = self.tag
        r.context = self.context
        r.sync = self.sync
        r.receives = self.receives
        r.bytes = self.length
        if self.staged != NULL:
            r.buffer = self.staged
        elif self.spec is not None:
            r.buffer = self.spec.addr
        elif self.is_object and self.receives:
            r.grows = True
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
            f"Comm.{self.call} of {self.comm.title(self.state)} from any rank: rank {dead} of the "
            "job, which may have been the sender, has died; the receive stays posted, and "
            "continues after Ack_failed",
        )

    cdef int publish(self, unsigned int count) except -1:
        return note(count, self.peer, self.tag, self.call, self.comm.title(self.state))

    cdef int begin(self) except -1:
        self.active = True
        if self.peer == PROC_NULL:
            return 0
        if self.persistent and self.spec is not None:
            self.stage()
        self.fill()
        if self.is_object and not self.receives:
            self.req.buffer = PyBytes_AS_STRING(self.keep) if self.length else NULL
        if self.buffered:
            self._buffer()
        elif self.receives:
            start_receive(self.req)
        else:
            start_send(self.req)
        return 0

    cdef int _buffer(self) except -1:
        """A buffered send: the bytes are the engine's, and the program's send has ended."""
        cdef shmpi_req *r = self.req
        cdef char *copy = <char *>malloc(self.length if self.length else 1)
        if copy == NULL:
            raise MemoryError(f"shmnd.mpi: no memory to buffer {self.length} bytes")
        memcpy(copy, r.buffer, self.length)
        r.buffer = copy
        r.owns_buffer = True
        self.req = NULL
        let_go(r)
        start_send(r)
        return 0

    cdef object end(self, Status status):
        cdef shmpi_req *r = self.req
        self.active = False
        if r == NULL:
            if self.receives:
                null_status(status)
            else:
                empty_status(status)
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
                    return self._load(r)
            return None
        finally:
            req_free(r)
            self.req = NULL
            if not self.persistent:
                self.spec = None
                self.keep = None

    cdef object _load(self, shmpi_req *r):
        if r.got == 0:
            return None
        try:
            return pickle_load(PyMemoryView_FromMemory(r.buffer, r.got, PyBUF_READ))
        except Exception as error:
            error.add_note(
                f"in Comm.{self.call} of {self.comm.title(self.state)}: the message of {r.got} "
                f"bytes from rank {self.state.from_job[r.source]}, tag {r.source_tag}, does not "
                "unpickle; what Send sends is received by Recv, what send sends by recv"
            )
            raise

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


cdef int fault_class(int fault) except -1:
    """The error class of what went wrong with a message."""
    return _CLASSES.get(fault, constants.ERR_OTHER)


@cython.final
cdef class _Left:
    """A request that continues, and that nothing in the program refers to, with its memory."""

    cdef shmpi_req *req
    cdef object memory

    def ended(self) -> None:
        """Free the request, which is done."""
        if self.req.owns_buffer and isinstance(self.memory, Spec):
            _unpack(self.req, self.memory)
        req_free(self.req)


cdef int _unpack(shmpi_req *r, Spec spec) except -1:
    """Unpack a message that was received for a type with gaps."""
    if r.receives and not (r.fault or r.cancelled):
        (<TypeState>spec.type).unpack_bytes(r.buffer, r.got, spec.addr)
    return 0


cdef int leave_request(shmpi_req *r, object memory) except -1:
    """Leave a request to the engine, and keep the memory that it uses until it is done.

    The end of the program waits for it, unless it is a receive that no message has met.
    """
    cdef _Left left = _Left.__new__(_Left)
    left.req = r
    left.memory = memory
    if r.done:
        left.ended()
        return 0
    hold(r, left)
    if not (r.receives and r.posted):
        let_go(r)
    return 0
