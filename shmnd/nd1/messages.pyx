# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""What of version 1 runs at the speed of a message: its results, its elements, posting, reaping.

Each call goes into the same functions of the data plane as its counterpart of version 2. What
version 1 has besides: the caller's own result object, filled and given back; inline data by the
element; windows named by a descriptor and an offset.
"""

from cpython.ref cimport Py_INCREF
from libc.stdint cimport UINT32_MAX, UINT64_MAX, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.shared_memory cimport sge as elements
from shmnd.ring.process.forks cimport forks
from shmnd.ring.queues.posting cimport PostingCore, flags_of
from shmnd.ring.queues.notifying cimport NotifyCore
from shmnd.ring.queues.results cimport Bound
from shmnd.ring.queues.reasons cimport refuse, refuse_receive

import struct

from shmnd.status import Status, error
from shmnd.common.arguments import index_given, integer, within
from shmnd.info import unpack_structure

cdef object _SUCCESS = Status.SUCCESS
cdef object _PENDING = Status.PENDING
# Statuses as version 1 names them: its only time-out is TIMEOUT.
cdef dict _STATUSES = {int(status): status for status in Status}
_STATUSES[int(Status.IO_TIMEOUT)] = Status.TIMEOUT
cdef uint32_t _SEND_FLAGS = 0x07
cdef uint32_t _RDMA_FLAGS = 0x03
cdef uint32_t _UNCONNECTED = Status.CONNECTION_INVALID
_DESCRIPTOR = struct.Struct(">QQI")


cdef class Result:
    """How a request ended: the caller's own object, given to a request and got back from a queue.

    It belongs to the provider until it comes out of `get_results`; then it may be used again.
    """

    cdef public object status, bytes_transferred

    def __cinit__(self):
        self.status = _PENDING
        self.bytes_transferred = 0

    def __repr__(self) -> str:
        return f"<Result {self.status.name} {self.bytes_transferred} bytes>"


cdef class Sge(elements.Sge):
    """Sge(buffer_or_address, length, memory_handle)\n--\n
    A stretch of memory, in the registration of its handle. Without one it is inline data, which is
    copied while the request is posted, and may be anywhere. Immutable.
    """

    cdef readonly object length

    def __init__(self, buffer_or_address, length, memory_handle) -> None:
        cdef object clipped = None
        if length is not None or integer(buffer_or_address) is not None:
            length = within("Sge", 2, "length", length, 0, UINT64_MAX)
            # More than any request may move: the posting call refuses it.
            clipped = min(length, 0xFFFFFFFF)
        if memory_handle is not None:
            memory_handle = within("Sge", 3, "memory_handle", memory_handle, 0, UINT32_MAX)
        elements.Sge.__init__(self, buffer_or_address, clipped, memory_handle or 0)
        self.length = self.raw.length if length is None else length

    @property
    def memory_handle(self) -> int | None:
        """The handle of the registration; None for inline data."""
        return self.raw.token or None

    cdef tuple values(self):
        return self.raw.address, self.length, self.raw.token or None

    def __eq__(self, other):
        if not isinstance(other, elements.Sge):
            return NotImplemented
        return isinstance(other, Sge) and self.values() == (<Sge>other).values()

    def __hash__(self):
        return hash(self.values())

    def __reduce__(self):
        return Sge, self.values()

    def __repr__(self) -> str:
        handle = f"{self.raw.token:#x}" if self.raw.token else "inline"
        return f"Sge({self.raw.address:#x}, {self.length}, {handle})"


cdef class MwDescriptor:
    """MwDescriptor(base, length, token)\n--\n
    What a peer needs of a bound window. Immutable; `pack` returns its bytes for the peer.
    """

    cdef readonly uint64_t base, length
    cdef readonly uint32_t token

    def __init__(self, base, length, token) -> None:
        self.base = within("MwDescriptor", 0, "base", base, 0, UINT64_MAX)
        self.length = within("MwDescriptor", 0, "length", length, 0, UINT64_MAX)
        self.token = within("MwDescriptor", 0, "token", token, 0, UINT32_MAX)

    def pack(self) -> bytes:
        """Return the 20 bytes of ND_MW_DESCRIPTOR, in network byte order."""
        return _DESCRIPTOR.pack(self.base, self.length, self.token)

    @staticmethod
    def unpack(data) -> MwDescriptor:
        """Return the descriptor in the 20 bytes that a peer sent."""
        return MwDescriptor(*unpack_structure("MwDescriptor.unpack", _DESCRIPTOR, data))

    def __eq__(self, other):
        if not isinstance(other, MwDescriptor):
            return NotImplemented
        return MwDescriptor.__reduce__(self) == MwDescriptor.__reduce__(other)

    def __hash__(self):
        return hash(MwDescriptor.__reduce__(self))

    def __reduce__(self):
        return MwDescriptor, (self.base, self.length, self.token)

    def __repr__(self) -> str:
        return f"MwDescriptor({self.base:#x}, {self.length}, {self.token:#x})"


cdef class ReapingCore(NotifyCore):
    """A completion queue that returns to callers their own results."""

    cdef object result(self, const c.shmnd_cqe *e):
        cdef Result r
        cdef object context = <object>e.context
        if e.type != c.SHMND_RECEIVE and type(context) is Bound:
            context = (<Bound>context).context
        if not isinstance(context, Result):
            return NotifyCore.result(self, e)
        r = <Result>context
        r.status = _SUCCESS if e.status == 0 else _STATUSES[e.status]
        r.bytes_transferred = e.bytes if e.status == 0 else 0
        return r

    cdef void cqe_of(self, object result, c.shmnd_cqe *e) noexcept:
        if not isinstance(result, Result):
            NotifyCore.cqe_of(self, result, e)
            return
        e.context, e.qp_context = <void *>result, <void *>None
        Py_INCREF(result)
        Py_INCREF(None)
        e.status, e.type = (<Result>result).status, c.SHMND_RECEIVE
        e.bytes, e.flags = (<Result>result).bytes_transferred, 0


cdef class Staging:
    """Registered memory for inline data that travels in one list with registered data.

    A piece is used again after as many others as requests can be outstanding; by then the one
    that used it is over. So a piece is taken and its request posted with no code of Python
    between: another thread would post there.
    """

    cdef object memory
    cdef object region
    cdef readonly uint64_t address
    cdef readonly uint32_t token
    cdef uint64_t pieces, size, used

    def __init__(self, bytearray memory not None, region, uint64_t pieces) -> None:
        self.memory, self.region = memory, region
        self.address, self.token = region.address, region.local_token
        self.pieces, self.size = pieces, len(memory) // pieces

    cdef void put(self, c.shmnd_sge *list_, uint32_t n, bytearray data) noexcept:
        """Copy data to the next piece, and let the elements of a list refer to it."""
        cdef uint64_t at = self.used % self.pieces * self.size
        cdef uint32_t i
        self.used += 1
        for i in range(n):
            if list_[i].token == self.token:
                list_[i].address += at
        c.shmnd_copy_bytes(<void *><size_t>(self.address + at), <char *>data, len(data))

    def close(self) -> None:
        """End the registration."""
        self.region.close()


cdef class EndpointCore:
    """Posting on an endpoint. Offsets and lists are checked as the interface orders it."""

    cdef readonly PostingCore _pair

    def __init__(self, PostingCore pair not None) -> None:
        if self._pair is not None:
            raise TypeError("an endpoint is made once")
        pair.usable("__init__")
        self._pair = pair
        pair.title = "Endpoint"
        # Version 2 says ACCESS_VIOLATION on either side.
        pair.q.target_fault = Status.REMOTE_ERROR

    cdef int usable(self, str method) except -1:
        """Raise unless it was made, and in this process."""
        if self._pair is None:
            raise TypeError("an endpoint is made by its connector")
        if self._pair.born != forks or c.shmnd_pace_due(&self._pair.pace):
            self._pair.do_periodic_work(method)
        return 0

    def _end_batch(self) -> None:
        """End an open batch, as a call that is refused does."""
        if self._pair is not None:  # else the endpoint was not made by its connector
            self._pair._end_batch()

    # -- data requests: one that is refused ends an open batch --

    def send(self, result, sges, flags=0) -> None:
        """Send a message to the peer, which must have posted a Receive for it."""
        try:
            self._send(_owned(result, "Endpoint.send"), sges, flags)
        except BaseException:
            self._end_batch()
            raise

    cdef _send(self, Result result, object sges, object flags):
        cdef c.shmnd_sge list_[16]
        cdef uint32_t flag = flags_of(flags, "Endpoint.send")
        cdef uint32_t n, status
        self.usable("send")
        n = _gather(sges, list_, "Endpoint.send", self._pair.q.wq.stride)
        if flag & ~_SEND_FLAGS:
            self._refuse_flags("send", Status.INVALID_PARAMETER_4, list_, n, sges, flags)
        result.status = _PENDING
        if _some_inline(list_, n):
            sges, flag, staging, data = self._stage("send", list_, n, sges, flag)
            n = self._restage("send", staging, data, sges, list_)
        status = self._pair.post_send(result, list_, n, flag)
        if status:
            refuse(self._pair, "send", status, sges, flag)

    def send_and_invalidate(self, result, sges, descriptor, flags=0) -> None:
        """Send a message whose arrival ends the access through a window of the peer's."""
        try:
            self._send_and_invalidate(_owned(result, "Endpoint.send_and_invalidate"), sges,
                                      _window_of(descriptor, "Endpoint.send_and_invalidate"), flags)
        except BaseException:
            self._end_batch()
            raise

    cdef _send_and_invalidate(self, Result result, object sges, MwDescriptor descriptor,
                              object flags):
        cdef c.shmnd_sge list_[16]
        cdef uint32_t flag = flags_of(flags, "Endpoint.send_and_invalidate")
        cdef uint32_t n, status
        self.usable("send_and_invalidate")
        n = _gather(sges, list_, "Endpoint.send_and_invalidate", self._pair.q.wq.stride)
        if flag & ~_SEND_FLAGS:
            self._refuse_flags("send_and_invalidate", Status.INVALID_PARAMETER_5, list_, n, sges,
                               flags)
        result.status = _PENDING
        if _some_inline(list_, n):
            sges, flag, staging, data = self._stage("send_and_invalidate", list_, n, sges, flag)
            n = self._restage("send_and_invalidate", staging, data, sges, list_)
        status = self._pair.post_send_invalidate(result, list_, n, descriptor.token, flag)
        if status:
            refuse(self._pair, "send_and_invalidate", status, sges, flag)

    def receive(self, result, sges) -> None:
        """Post a Receive: the next message without one goes into its buffers."""
        try:
            self._receive(_owned(result, "Endpoint.receive"), sges)
        except BaseException:
            self._end_batch()
            raise

    cdef _receive(self, Result result, object sges):
        cdef c.shmnd_sge list_[16]
        cdef uint32_t n, status
        self.usable("receive")
        n = _gather(sges, list_, "Endpoint.receive", self._pair.q.own.stride)
        result.status = _PENDING
        status = self._pair.post_receive(result, list_, n)
        if status:
            refuse_receive(self._pair, status, sges)

    def read(self, result, sges, descriptor, offset, flags=0) -> None:
        """Read from the peer's window, beginning at an offset, into registered memory here."""
        try:
            self._rdma(c.SHMND_READ, "read", _owned(result, "Endpoint.read"), sges,
                       _window_of(descriptor, "Endpoint.read"), offset, flags)
        except BaseException:
            self._end_batch()
            raise

    def write(self, result, sges, descriptor, offset, flags=0) -> None:
        """Write into the peer's window, beginning at an offset."""
        try:
            self._rdma(c.SHMND_WRITE, "write", _owned(result, "Endpoint.write"), sges,
                       _window_of(descriptor, "Endpoint.write"), offset, flags)
        except BaseException:
            self._end_batch()
            raise

    cdef _rdma(self, uint32_t type_, str method, Result result, object sges,
               MwDescriptor descriptor, object offset, object flags):
        cdef c.shmnd_sge list_[16]
        cdef str call = "Endpoint.read" if type_ == c.SHMND_READ else "Endpoint.write"
        cdef uint32_t flag = flags_of(flags, call)
        cdef uint32_t n, status, token = descriptor.token
        cdef uint64_t address
        self.usable(method)
        try:
            address = offset if type(offset) is int else index_given(call, "offset", offset)
        except OverflowError:
            # No offset at all: a mistake of the caller, which leaves the connection as it is.
            address = within(call, 5, "offset", offset, 0, UINT64_MAX)
        if address > UINT64_MAX - descriptor.base:
            token = 0  # it wraps: no grant has it
        address += descriptor.base
        n = _gather(sges, list_, call, self._pair.q.wq.stride)
        if flag & ~_RDMA_FLAGS:
            self._refuse_flags(method, Status.INVALID_PARAMETER_6, list_, n, sges, flags)
        result.status = _PENDING
        if type_ == c.SHMND_WRITE and _some_inline(list_, n):
            sges, flag, staging, data = self._stage(method, list_, n, sges, flag)
            n = self._restage(method, staging, data, sges, list_)
        status = self._pair.post_rdma(type_, result, list_, n, address, token, flag)
        if status:
            refuse(self._pair, method, status, sges, flag)

    # -- rare paths --

    cdef _refuse_flags(self, str method, uint32_t flag_status, const c.shmnd_sge *list_,
                       uint32_t n, object sges, object flags):
        """Raise the error of wrong flags. Wrong lengths of list and data come first."""
        cdef uint32_t status = c.shmnd_check_data(
            &self._pair.q, n, self._pair.q.wq.stride, c.shmnd_sges_length(list_, n), 0)
        if status:
            refuse(self._pair, method, status, sges, 0)
        legal = _RDMA_FLAGS if method in ("read", "write") else _SEND_FLAGS
        raise error(flag_status, f"Endpoint.{method}", f"flags {int(flags):#x} outside {legal:#x}")

    cdef tuple _stage(self, str method, const c.shmnd_sge *list_, uint32_t n, object sges,
                      uint32_t flags):
        """Return the result of `_staged` for inline data."""
        cdef uint64_t inline_total = 0
        cdef uint32_t i
        if n > self._pair.q.wq.stride:
            refuse(self._pair, method, Status.DATA_OVERRUN, sges, 0)
        for i in range(n):
            if list_[i].token == 0:
                inline_total += list_[i].length
        if inline_total > self._pair.q.inline_size:
            raise error(Status.BUFFER_OVERFLOW, f"Endpoint.{method}",
                        f"{inline_total} bytes inline, at most {self._pair.q.inline_size}")
        if c.shmnd_sges_length(list_, n) > self._pair.q.max_transfer:
            refuse(self._pair, method, Status.BUFFER_OVERFLOW, sges, 0)
        items = [sges] if isinstance(sges, elements.Sge) else list(sges)
        for item in items:
            if not item.token:
                elements.require_held(item, f"Endpoint.{method}")
        return self._staged(items, f"Endpoint.{method}", flags)

    cdef uint32_t _restage(self, str method, Staging staging, bytearray data, object sges,
                           c.shmnd_sge *list_) except? 0xffffffff:
        """Fill the list according to what `_staged` returned. The caller posts it at once."""
        cdef uint32_t status, most = self._pair.q.wq.stride
        cdef uint32_t n = elements.gather_sges(sges, list_, f"Endpoint.{method}", most)
        if staging is not None:
            # Its copy must not land where an outstanding request has its own.
            status = self._pair.check_connected()
            if status:
                refuse(self._pair, method, status, sges, 0)
            staging.put(list_, n, data)
        return n


cdef inline Result _owned(object result, str call):
    if not isinstance(result, Result):
        raise TypeError(f"{call}: result must be a Result, not {type(result).__name__}")
    return <Result>result


cdef inline MwDescriptor _window_of(object given, str call):
    if not isinstance(given, MwDescriptor):
        raise TypeError(f"{call}: descriptor must be an MwDescriptor, not {type(given).__name__}")
    return <MwDescriptor>given


cdef int _gather(object sges, c.shmnd_sge *out, str call, uint32_t most) except -1:
    """Write the caller's list to `out`. An element of version 2 knows no memory handle."""
    cdef uint32_t n = 0
    if isinstance(sges, Sge):
        out[0] = (<Sge>sges).raw
        return 1
    if sges is None:
        return 0
    for item in sges if isinstance(sges, (list, tuple)) else (sges,):
        if not isinstance(item, Sge):
            kind = "one of version 2" if isinstance(item, elements.Sge) else type(item).__name__
            raise TypeError(f"{call}: sges must be Sge of shmnd.nd1 or a list of them, not {kind}")
        if n == 16:
            return elements.gather_sges(sges, out, call, most)  # it refuses the list
        out[n] = (<Sge>item).raw
        n += 1
    return n


cdef inline bint _some_inline(const c.shmnd_sge *list_, uint32_t n) noexcept:
    cdef uint32_t i
    for i in range(n):
        if list_[i].token == 0:
            return True
    return False
