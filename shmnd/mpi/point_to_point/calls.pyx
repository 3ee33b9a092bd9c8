# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, embedsignature.format=python
# cython: annotation_typing=False
"""Point-to-point calls of communicators, with buffers and with objects."""

import warnings
from typing import Any, Literal

from shmnd.mpi.communicators.comm_state cimport CommBase, CommState, null_status
from shmnd.mpi.buffers.pickle cimport pickle_message
from shmnd.mpi.buffers.plain cimport Plain, plain, release
from shmnd.mpi.point_to_point.arguments cimport rank_from, rank_to, tag_of, usable_state
from shmnd.mpi.point_to_point.direct cimport (
    receive_direct, receive_object, receive_plain, send_direct,
)
from shmnd.mpi.point_to_point.operation cimport Operation, Point, SENT, point
from shmnd.mpi.point_to_point.persistent cimport Prequest, prequest_of
from shmnd.mpi.point_to_point.request cimport Request, request_of
from shmnd.mpi.point_to_point.waiting cimport wait_op
from shmnd.mpi.buffers.spec cimport spec_simple
from shmnd.mpi.point_to_point.status cimport Status
from shmnd.mpi.transport.engine cimport send_now

from shmnd.mpi import constants
from shmnd.mpi.point_to_point import message
from shmnd.mpi.datatypes.datatype import BYTE

cdef int PROC_NULL = constants.PROC_NULL
cdef int STANDARD = 0, SYNC = 1, BUFFERED = 2


cdef class PointCalls(CommBase):
    """The calls that send, receive and probe."""

    cdef Point _sending(self, buf, dest, tag, int mode, str call):
        cdef CommState c = self.state(call)
        cdef int peer = self.to(c, dest, call, "dest")
        cdef Point op = point(self, c, call, False, peer, self.tag(tag, False, call))
        op.take(buf)
        op.sync = mode == SYNC
        op.buffered = mode == BUFFERED
        return op

    cdef Point _receiving(self, buf, source, tag, str call):
        cdef CommState c = usable_state(self, call)
        cdef int peer = rank_from(self, c, source, call)
        cdef Point op = point(self, c, call, True, peer, tag_of(self, tag, True, call))
        op.take(buf)
        return op

    cdef Point _sending_object(self, obj, dest, tag, int mode, str call):
        cdef CommState c = self.state(call)
        cdef int peer = self.to(c, dest, call, "dest")
        cdef Point op = point(self, c, call, False, peer, self.tag(tag, False, call))
        op.take_object(obj)
        op.sync = mode == SYNC
        op.buffered = mode == BUFFERED
        return op

    cdef Point _receiving_object(self, buf, source, tag, str call):
        cdef CommState c = self.state(call)
        cdef int peer = self.source(c, source, call)
        cdef Point op = point(self, c, call, True, peer, self.tag(tag, True, call))
        op.is_object = True
        if buf is not None and not isinstance(buf, int) and peer != PROC_NULL:
            op.spec = spec_simple([buf, BYTE], False, 0, 0, call)
            op.stage()
        return op

    cdef bint _send_plain(self, buf, dest, tag, bint waits, str call) except -1:
        """Send a plain message, or one to no rank. Return False if it has yet to be sent."""
        cdef CommState c = usable_state(self, call)
        cdef int peer = rank_to(self, c, dest, call)
        cdef int number = tag_of(self, tag, False, call)
        cdef Plain given
        if peer == PROC_NULL or not plain(buf, True, &given):
            return peer == PROC_NULL
        cdef bint sent = send_now(peer, c.context, number, given.addr, given.nbytes)
        try:
            if waits and not sent:
                send_direct(self, c, &given, peer, number, call)
                sent = True
        finally:
            release(&given)
        return sent

    cdef object _send(self, buf, dest, tag, int mode, str call):
        """Send a buffer that is not plain, or in another mode than standard; wait for its end."""
        return _run(self._sending(buf, dest, tag, mode, call), None)

    cdef Request _isend(self, buf, dest, tag, str call):
        """Begin a send; return its request, also of one that has ended at once."""
        if self._send_plain(buf, dest, tag, False, call):
            return request_of(SENT)
        return _started(self._sending(buf, dest, tag, STANDARD, call))

    cdef object _send_object(self, obj, dest, tag, str call):
        """Send an object in standard mode, and wait until that has ended."""
        cdef CommState c = self.state(call)
        cdef int peer = self.to(c, dest, call, "dest")
        cdef int number = self.tag(tag, False, call)
        cdef Plain given
        if peer == PROC_NULL:
            return None
        pickle_message(obj, &given)
        try:
            if not send_now(peer, c.context, number, given.addr, given.nbytes):
                send_direct(self, c, &given, peer, number, call)
        finally:
            release(&given)
        return None

    # -- sends --

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Blocking send."""
        if not self._send_plain(buf, dest, tag, True, "Send"):
            self._send(buf, dest, tag, STANDARD, "Send")

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Blocking send in buffered mode."""
        self._send(buf, dest, tag, BUFFERED, "Bsend")

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Blocking send in synchronous mode."""
        self._send(buf, dest, tag, SYNC, "Ssend")

    def Rsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Blocking send in ready mode."""
        if not self._send_plain(buf, dest, tag, True, "Rsend"):
            self._send(buf, dest, tag, STANDARD, "Rsend")

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Nonblocking send."""
        return self._isend(buf, dest, tag, "Isend")

    def Ibsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Nonblocking send in buffered mode."""
        return _started(self._sending(buf, dest, tag, BUFFERED, "Ibsend"))

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Nonblocking send in synchronous mode."""
        return _started(self._sending(buf, dest, tag, SYNC, "Issend"))

    def Irsend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Nonblocking send in ready mode."""
        return self._isend(buf, dest, tag, "Irsend")

    def Send_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Create a persistent request for a standard send."""
        return prequest_of(self._sending(buf, dest, tag, STANDARD, "Send_init"))

    def Bsend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Persistent request for a send in buffered mode."""
        return prequest_of(self._sending(buf, dest, tag, BUFFERED, "Bsend_init"))

    def Ssend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Persistent request for a send in synchronous mode."""
        return prequest_of(self._sending(buf, dest, tag, SYNC, "Ssend_init"))

    def Rsend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """Persistent request for a send in ready mode."""
        return prequest_of(self._sending(buf, dest, tag, STANDARD, "Rsend_init"))

    # -- receives --

    def Recv(self, buf: Any, source: int = -1, tag: int = -1, status: Status | None = None) -> None:
        """Blocking receive."""
        cdef Plain given
        cdef CommState c = usable_state(self, "Recv")
        cdef int peer = rank_from(self, c, source, "Recv")
        cdef int number = tag_of(self, tag, True, "Recv")
        if peer == PROC_NULL:
            null_status(status)
            return
        if plain(buf, False, &given):
            try:
                receive_direct(self, c, &given, peer, number, status, "Recv")
            finally:
                release(&given)
            return
        _run(self._receiving(buf, source, tag, "Recv"), status)

    def Irecv(self, buf: Any, source: int = -1, tag: int = -1) -> Request:
        """Nonblocking receive."""
        return post_receive_as(self, buf, source, tag, "Irecv")

    def Recv_init(self, buf: Any, source: int = -1, tag: int = -1) -> Prequest:
        """Create a persistent request for a receive."""
        return prequest_of(self._receiving(buf, source, tag, "Recv_init"))

    # -- both --

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = -1,
        recvtag: int = -1,
        status: Status | None = None,
    ) -> None:
        """Send and receive a message."""
        _run(self._both(sendbuf, dest, sendtag, recvbuf, source, recvtag, "Sendrecv"), status)

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = -1,
        recvtag: int = -1,
    ) -> Request:
        """Nonblocking send and receive."""
        return _started(
            self._both(sendbuf, dest, sendtag, recvbuf, source, recvtag, "Isendrecv")
        )

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = -1,
        recvtag: int = -1,
        status: Status | None = None,
    ) -> None:
        """Send and receive a message."""
        _run(self._replace(buf, dest, sendtag, source, recvtag, "Sendrecv_replace"), status)

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = -1, recvtag: int = -1
    ) -> Request:
        """Send and receive a message."""
        return _started(self._replace(buf, dest, sendtag, source, recvtag, "Isendrecv_replace"))

    cdef Pair _both(self, sendbuf, dest, sendtag, recvbuf, source, recvtag, str call):
        cdef Pair pair = Pair.__new__(Pair)
        pair.sending = self._sending(sendbuf, dest, sendtag, STANDARD, call)
        pair.receiving = self._receiving(recvbuf, source, recvtag, call)
        return pair

    cdef Operation _replace(self, buf, dest, sendtag, source, recvtag, str call):
        cdef Pair pair = self._both(buf, dest, sendtag, buf, source, recvtag, call)
        pair.sending.send_copy()  # so that the receive may write
        return pair

    # -- probes --

    def Probe(self, source: int = -1, tag: int = -1, status: Status | None = None) -> Literal[True]:
        """Blocking test for a message."""
        return message.probed(self, source, tag, status, True, "Probe")

    def Iprobe(self, source: int = -1, tag: int = -1, status: Status | None = None) -> bool:
        """Nonblocking test for a message."""
        return message.probed(self, source, tag, status, False, "Iprobe")

    def Mprobe(
        self, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> message.Message:
        """Blocking test for a matched message."""
        return message.matched(self, source, tag, status, True, "Mprobe")

    def Improbe(
        self, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> message.Message | None:
        """Nonblocking test for a matched message."""
        return message.matched(self, source, tag, status, False, "Improbe")

    def probe(self, source: int = -1, tag: int = -1, status: Status | None = None) -> Literal[True]:
        """Blocking test for a message."""
        return message.probed(self, source, tag, status, True, "probe")

    def iprobe(self, source: int = -1, tag: int = -1, status: Status | None = None) -> bool:
        """Nonblocking test for a message."""
        return message.probed(self, source, tag, status, False, "iprobe")

    def mprobe(
        self, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> message.Message:
        """Blocking test for a matched message."""
        return message.matched(self, source, tag, status, True, "mprobe")

    def improbe(
        self, source: int = -1, tag: int = -1, status: Status | None = None
    ) -> message.Message | None:
        """Nonblocking test for a matched message."""
        return message.matched(self, source, tag, status, False, "improbe")

    # -- objects --

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send in standard mode."""
        self._send_object(obj, dest, tag, "send")

    def bsend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send in buffered mode."""
        _run(self._sending_object(obj, dest, tag, BUFFERED, "bsend"), None)

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Send in synchronous mode."""
        _run(self._sending_object(obj, dest, tag, SYNC, "ssend"), None)

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Nonblocking send."""
        return _started(self._sending_object(obj, dest, tag, STANDARD, "isend"))

    def ibsend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Nonblocking send in buffered mode."""
        return _started(self._sending_object(obj, dest, tag, BUFFERED, "ibsend"))

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Nonblocking send in synchronous mode."""
        return _started(self._sending_object(obj, dest, tag, SYNC, "issend"))

    def recv(
        self,
        buf: Any = None,
        source: int = -1,
        tag: int = -1,
        status: Status | None = None,
    ) -> Any:
        """Receive a message."""
        if buf is not None:
            warnings.warn("the 'buf' argument is deprecated", UserWarning, stacklevel=1)
            return _run(self._receiving_object(buf, source, tag, "recv"), status)
        cdef CommState c = self.state("recv")
        cdef int peer = self.source(c, source, "recv")
        cdef int number = self.tag(tag, True, "recv")
        if peer == PROC_NULL:
            null_status(status)
            return None
        return receive_object(self, c, peer, number, status, "recv")

    def irecv(self, buf: Any = None, source: int = -1, tag: int = -1) -> Request:
        """Nonblocking receive."""
        return _started(self._receiving_object(buf, source, tag, "irecv"))

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = -1,
        recvtag: int = -1,
        status: Status | None = None,
    ) -> Any:
        """Send and receive a message."""
        cdef Pair pair = Pair.__new__(Pair)
        pair.sending = self._sending_object(sendobj, dest, sendtag, STANDARD, "sendrecv")
        pair.receiving = self._receiving_object(recvbuf, source, recvtag, "sendrecv")
        return _run(pair, status)


cdef class Pair(Operation):
    """A send and a receive as one operation."""

    cdef bint ready(self) except -1:
        return self.sending.ready() and self.receiving.ready()

    cdef int begin(self) except -1:
        self.active = True
        self.receiving.begin()
        self.sending.begin()
        return 0

    cdef object end(self, Status status):
        self.active = False
        self.sending.end(None)
        return self.receiving.end(status)

    cdef int peek(self, Status status) except -1:
        return self.receiving.peek(status)

    cdef int cancel(self) except -1:
        self.receiving.cancel()
        return 0

    cdef int publish(self, unsigned int count) except -1:
        return (self.sending if self.receiving.ready() else self.receiving).publish(count)

    cdef int awaited(self) except? -2:
        return (self.sending if self.receiving.ready() else self.receiving).awaited()

    cdef int leave(self) except -1:
        self.sending.leave()
        self.receiving.leave()
        return 0


cdef object _run(Operation op, Status status):
    op.begin()
    wait_op(op)
    return op.end(status)


cdef Request _started(Operation op):
    op.begin()
    return request_of(op)


cdef int receive_as(PointCalls comm, buf, source, tag, str call) except -1:
    """Receive, under the name of a call."""
    _run(comm._receiving(buf, source, tag, call), None)


cdef Request post_receive_as(PointCalls comm, buf, source, tag, str call):
    """Start to receive, under the name of a call."""
    cdef CommState c = usable_state(comm, call)
    cdef int peer = rank_from(comm, c, source, call)
    cdef Point op = point(comm, c, call, True, peer, tag_of(comm, tag, True, call))
    if peer == PROC_NULL or not receive_plain(op, buf):
        op.take(buf)
        op.begin()
    return request_of(op)
