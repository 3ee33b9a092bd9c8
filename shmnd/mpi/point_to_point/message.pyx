# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Messages that a probe has matched: one receive of its own gets each."""

from typing import Any, Self

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState, empty_status, null_status
from shmnd.mpi.transport.engine cimport (
    E, SHMPI_FAILED_PEER, Wait, claim, death_of, deliver, note, poll, probe, shmpi_message,
    wait_end, wait_turn,
)
from shmnd.mpi.objects.handle cimport Handle, State
from shmnd.mpi.point_to_point.operation cimport Ended, Point, point
from shmnd.mpi.point_to_point.request cimport Request, request_of
from shmnd.mpi.buffers.spec cimport spec_simple
from shmnd.mpi.point_to_point.status cimport Status
from shmnd.mpi.objects.handle import constant

from shmnd.mpi import constants
from shmnd.mpi.objects.errors import Exception as MPIException

cdef int PROC_NULL = constants.PROC_NULL


cdef class MessageState(State):
    """A message out of its queue."""

    cdef shmpi_message *message
    cdef CommBase comm
    cdef CommState state


cdef int fill(Status status, CommState c, shmpi_message *m) except -1:
    """Write the status of a message that was probed."""
    if status is not None:
        empty_status(status)
        status.c_source = c.from_job[m.source]
        status.c_tag = m.tag
        status.c_nbytes = <long long>m.bytes
    return 0


def probed(CommBase comm not None, source, tag, Status status, bint waits, str call) -> bool:
    """Return whether a message is there; wait for one with `waits`."""
    cdef CommState c = comm.state(call)
    cdef shmpi_message *m = _probe(comm, c, source, tag, waits, call)
    if m == NULL:
        if source == PROC_NULL:
            null_status(status)
            return True
        return False
    fill(status, c, m)
    return True


cdef shmpi_message *_probe(
    CommBase comm, CommState c, source, tag, bint waits, str call
) except? NULL:
    cdef int peer = comm.source(c, source, call)
    cdef Wait wait = Wait(0, False)
    cdef int number = comm.tag(tag, True, call)
    if peer == PROC_NULL:
        return NULL
    poll()
    cdef shmpi_message *m = probe(c.context, peer, number)
    try:
        while m == NULL and waits:
            if E.failures or E.revocations:
                _check(comm, c, peer, call)
            if wait_turn(&wait):
                note(1, peer, number, call, c.title(), c.context)
            m = probe(c.context, peer, number)
    finally:
        wait_end(&wait)
    return m


cdef int _check(CommBase comm, CommState c, int peer, str call) except -1:
    """Raise an error where the message to probe for may never come."""
    comm.state(call)
    if death_of(peer) if peer >= 0 else c.dead() > c.acknowledged:
        comm.fail(SHMPI_FAILED_PEER, call, NULL, c)
    return 0


cdef class Message(Handle):
    """Matched message."""

    _family = "Message"

    @classmethod
    def Probe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self:
        """Blocking test for a matched message."""
        return _matched(cls, comm, source, tag, status, True, "Probe")

    @classmethod
    def Iprobe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self | None:
        """Nonblocking test for a matched message."""
        return _matched(cls, comm, source, tag, status, False, "Iprobe")

    @classmethod
    def probe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self:
        """Blocking test for a matched message."""
        return _matched(cls, comm, source, tag, status, True, "probe")

    @classmethod
    def iprobe(
        cls, comm: Any, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> Self | None:
        """Nonblocking test for a matched message."""
        return _matched(cls, comm, source, tag, status, False, "iprobe")

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Blocking receive of matched message."""
        self._receive(buf, "Recv", False).wait(status)

    def Irecv(self, buf: Any) -> Request:
        """Nonblocking receive of matched message."""
        return self._receive(buf, "Irecv", False)

    def recv(self, status: Status | None = None) -> Any:
        """Blocking receive of matched message."""
        return self._receive(None, "recv", True).wait(status)

    def irecv(self) -> Request:
        """Nonblocking receive of matched message."""
        return self._receive(None, "irecv", True)

    def _receive(self, buf, str call, bint is_object):
        cdef MessageState ob
        cdef Ended nothing
        cdef Point op
        if self.ob is None:
            raise _received(call)
        if self.ob is (<Handle>MESSAGE_NO_PROC).ob:
            if not is_object:
                spec_simple(buf, False, PROC_NULL, 0, f"Message.{call}")
            nothing = Ended.__new__(Ended)
            nothing.of_null = True
            nothing.active = True
            if self is not MESSAGE_NO_PROC:
                self.ob = None
            return request_of(nothing)
        ob = self.ob
        if ob.message == NULL:  # by another handle to the same message
            raise _received(call)
        op = point(ob.comm, ob.state, f"Message.{call}", True, ob.message.source, ob.message.tag)
        op.is_object = is_object
        if not is_object:
            op.spec = spec_simple(buf, False, 0, 0, op.call)
            op.stage()
        op.fill()
        if ob.message == NULL:  # meanwhile: the buffer may be an object of the program
            raise _received(call)
        op.active = True
        deliver(ob.message, op.req)
        ob.message = NULL
        self._release()
        return request_of(op)


cdef object _received(str call):
    return MPIException(
        constants.ERR_REQUEST, f"Message.{call}: the message is null or was received"
    )


def matched(CommBase comm not None, source, tag, Status status, bint waits, str call):
    """Return the message that a communicator's call finds; None where there is none."""
    return _matched(Message, comm, source, tag, status, waits, call)


cdef object _matched(cls, object given, source, tag, Status status, bint waits, str call):
    if not isinstance(given, CommBase):
        raise TypeError(f"Message.{call}: comm {given!r} is not a communicator")
    cdef CommBase comm = <CommBase>given
    cdef CommState c = comm.state(call)
    cdef shmpi_message *m = _probe(comm, c, source, tag, waits, call)
    cdef Message message
    cdef MessageState ob
    if m == NULL:
        if source != PROC_NULL:
            return None
        null_status(status)
        message = cls.__new__(cls)
        message.ob = (<Handle>MESSAGE_NO_PROC).ob
        return message
    fill(status, c, m)
    claim(m)
    ob = MessageState()
    ob.message = m
    ob.comm = comm
    ob.state = c
    message = cls.__new__(cls)
    message.ob = ob
    return message


MESSAGE_NULL = constant(Message(), "MESSAGE_NULL", predefined=False)
MESSAGE_NO_PROC = Message()
(<Handle>MESSAGE_NO_PROC).ob = State()
constant(MESSAGE_NO_PROC, "MESSAGE_NO_PROC")
