# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Posting requests to a queue pair, and making progress on them.

All of it runs under the interpreter's lock except long copies; objects.h says what other threads
may do meanwhile.
"""

cimport cython
from cpython.long cimport PyLong_AsLongAndOverflow
from cpython.ref cimport Py_INCREF
from libc.stdint cimport UINT64_MAX, int64_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport NOT_MADE, forks, whose
from shmnd.ring.shared_memory.registry cimport Sge, gather_sges, release_contexts, require_held
from shmnd.ring.queues.completion_queue cimport Bound, CompletionCore, PairCore
from shmnd.ring.shared_memory.segment cimport lies_in_fragile
from shmnd.ring.queues.shared_receive_queue cimport receive_reason

from shmnd.status import MrFlag, OpFlag, Status, error
from shmnd.common.arguments import flags_as_context, flags_given, index_given

STATE_NAMES = ("not connected", "connecting", "not yet connected", "connected",
               "no longer connected", "disconnected")

# A copy of this length delays other threads noticeably; a shorter one takes a few microseconds.
cdef uint64_t _LONG_COPY = 128 << 10
# The most steps of one call; the next poll continues. A hostile peer that keeps changing its state
# must not prolong it.
cdef int _STEPS = 4096
# The bytes that one call copies before it leaves the rest to the next.
cdef int64_t _PIECE = c.SHMND_PIECE
cdef dict _LEGAL = {
    "send": c.SHMND_SEND_FLAGS, "send_and_invalidate": c.SHMND_SEND_FLAGS,
    "read": c.SHMND_READ_FLAGS, "write": c.SHMND_WRITE_FLAGS,
    "bind": c.SHMND_BIND_FLAGS, "invalidate": c.SHMND_INVALIDATE_FLAGS,
}
cdef dict _IN_VERSION_1 = {
    "max_initiator_sge": "outbound_sge", "max_receive_sge": "inbound_sge",
    "receive_depth": "inbound_entries", "inline_size": "",
}
cdef tuple _ENDED = (int(Status.IO_TIMEOUT), int(Status.CANCELED))
cdef object _NO_FLAGS = 0
cdef object _OP_FLAG = OpFlag
cdef object _MR_FLAG = MrFlag
cdef uint32_t _FULL = Status.NO_MORE_ENTRIES


cdef uint32_t flags_of(object flags, str call) except? 0xffffffff:
    """Return flags as the engine takes them; for an invalid number, a flag that it refuses."""
    cdef int beyond = 0
    cdef long number
    if flags is _NO_FLAGS:
        return 0
    if type(flags) is not _OP_FLAG and type(flags) is not int:
        flags = flags_given(call, flags, OpFlag)
    number = PyLong_AsLongAndOverflow(flags, &beyond)
    return <uint32_t>number if beyond == 0 and 0 <= number <= 0xFFFFFFFF else 0x80000000


cdef inline int _no_flag(object context, str call) except -1:
    """Raise if the context is a flag: a program that passes one here means `flags=`."""
    if type(context) is _OP_FLAG or type(context) is _MR_FLAG:
        raise flags_as_context(call, context)
    return 0


cdef inline uint64_t _number(object value, uint64_t most, str name, str call) except? 0:
    """Return a remote address or token. An impossible value becomes 0, which no memory has, so the
    request fails like any other with a remote fault."""
    cdef unsigned long long number
    if type(value) is not int:
        value = index_given(call, name, value)
    try:
        number = value
    except OverflowError:
        return 0
    return number if number <= most else 0


def inline_bytes(sge, call) -> bytearray:
    """Return the bytes of a list of inline data.

    An element may have the bare address of any memory; an invalid one raises, and does not crash.
    """
    cdef c.shmnd_spans to, from_
    cdef c.shmnd_process me = c.shmnd_this_process()
    cdef Sge item
    cdef uint64_t done = 0, total = 0
    items = list(sge)
    for item in items:
        if item is None:
            raise TypeError(f"{call}: a scatter/gather list holds Sge, not None")
        total += item.raw.length
    data = bytearray(total)
    cdef unsigned char *begin = data
    for item in items:
        if item.raw.length == 0:
            continue
        c.shmnd_spans_clear(&to)
        c.shmnd_spans_clear(&from_)
        c.shmnd_spans_add(&to, <size_t>(begin + done), item.raw.length)
        c.shmnd_spans_add_remote(&from_, item.raw.address, item.raw.length)
        if c.shmnd_vm_copy(&me, &to, &from_) != 0:
            raise error(Status.ACCESS_VIOLATION, call,
                        f"{item!r}: these bytes cannot be read in this process")
        done += item.raw.length
    return data


cdef inline void _tell(CompletionCore queue) noexcept:
    """Wake sleeping threads of this process, if any, after a completion or a pending request."""
    if queue.raw.arming.mode or queue.announcing:
        queue.pushed()


cdef str _untaken(CompletionCore queue):
    """Return the reason for refusing a request that its own queue has room for."""
    return (f"its completion queue of depth {queue.depth} is full: "
            f"{c.shmnd_cq_count(&queue.raw)} results were not taken; take them and post again")


@cython.no_gc_clear
cdef class PostingCore(PairCore):
    """A queue pair with its requests and their progress; the base of `QueuePair`."""

    def __cinit__(self, *args, **kwargs):
        self.q.owner = <void *>self
        self.born = NOT_MADE
        self.title = "QueuePair"

    # -- posting --

    def send(self, sge, context=None, *, flags=0) -> None:
        """Send a message to the peer, which must have posted a Receive for it.

        Flags: SILENT_SUCCESS, READ_FENCE, SEND_AND_SOLICIT_EVENT, INLINE.
        """
        cdef c.shmnd_sge list_[16]
        cdef uint32_t flag = flags_of(flags, "QueuePair.send")
        cdef uint32_t n, status
        _no_flag(context, "QueuePair.send")
        if self.born != forks or c.shmnd_pace_due(&self.pace):
            self.pause("send")
        if flag & ~c.SHMND_SEND_FLAGS:
            self.refuse("send", Status.INVALID_PARAMETER_4, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, "QueuePair.send")
        if type(sge) is Sge:
            list_[0] = (<Sge>sge).raw
            n = 1
        else:
            n = gather_sges(sge, list_, "QueuePair.send", self.q.wq_stride)
        status = self.post_send(context, list_, n, flag)
        if status:
            self.refuse("send", status, sge, flags)

    cdef uint32_t post_send(self, object context, const c.shmnd_sge *sges, uint32_t n,
                            uint32_t flags) except? 0xffffffff:
        """Queue a Send, or execute it. Return the status of the call."""
        cdef c.cbool kept
        cdef uint32_t status = c.shmnd_post_send(&self.q, <void *>context, sges, n, flags, &kept)
        if status and self.made_room(status):
            status = c.shmnd_post_send(&self.q, <void *>context, sges, n, flags, &kept)
        if status:
            return status
        if kept:
            Py_INCREF(context)
        if self.q.wq_head != self.q.wq_tail and not (
                self.q.batch and self.q.wq_next == self.q.wq_tail):
            self.advance()
        _tell(self.initiator_cq)
        return 0

    def _send_and_invalidate(self, sge, token, context=None, *, flags=0) -> None:
        """Send a message that ends this side's access through a window of the peer's.

        `token` is the window's remote token. When the peer sees the message the window is dead;
        the Send completes then. A token that names no window bound to this connection ends the
        connection.
        """
        cdef c.shmnd_sge list_[16]
        cdef uint32_t flag = flags_of(flags, "QueuePair.send_and_invalidate")
        cdef uint32_t n, status, named
        _no_flag(context, "QueuePair.send_and_invalidate")
        if self.born != forks or c.shmnd_pace_due(&self.pace):
            self.pause("send_and_invalidate")
        named = <uint32_t>_number(token, 0xFFFFFFFF, "token", "QueuePair.send_and_invalidate")
        if flag & ~c.SHMND_SEND_FLAGS:
            self.refuse("send_and_invalidate", Status.INVALID_PARAMETER_5, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, "QueuePair.send_and_invalidate")
        n = gather_sges(sge, list_, "QueuePair.send_and_invalidate", self.q.wq_stride)
        status = c.shmnd_post_send_invalidate(&self.q, <void *>context, list_, n, named, flag)
        if status and self.made_room(status):
            status = c.shmnd_post_send_invalidate(&self.q, <void *>context, list_, n, named, flag)
        if status:
            self.refuse("send_and_invalidate", status, sge, flags)
        Py_INCREF(context)
        self.advance()
        _tell(self.initiator_cq)

    def receive(self, sge, context=None) -> None:
        """Post a receive: the next unmatched message goes into its buffers."""
        cdef c.shmnd_sge list_[16]
        cdef uint32_t n, status
        if self.born != forks:
            self._refuse_in_child("receive")
        if self.q.shared:
            raise error(Status.INVALID_DEVICE_REQUEST, "QueuePair.receive",
                        "this queue pair takes from a shared receive queue: post there")
        if type(sge) is Sge:
            list_[0] = (<Sge>sge).raw
            n = 1
        else:
            n = gather_sges(sge, list_, "QueuePair.receive", self.q.own.stride)
        status = self.post_receive(context, list_, n)
        if status:
            self.refuse_receive(status, sge)

    cdef uint32_t post_receive(self, object context, const c.shmnd_sge *sges,
                               uint32_t n) except? 0xffffffff:
        """Post a Receive. Return the status of the call."""
        cdef uint32_t status = c.shmnd_post_receive(&self.q, <void *>context, sges, n)
        if status == _FULL:
            self.receive_cq.collect()  # messages that arrived consume receives
            status = c.shmnd_post_receive(&self.q, <void *>context, sges, n)
        if status:
            return status
        Py_INCREF(context)
        if self.q.state == c.SHMND_QP_DOWN or self.q.rx_stalled:
            if self.q.rx_stalled:
                c.shmnd_qp_activate(&self.q)
            _tell(self.receive_cq)
        return 0

    def _begin_batch(self) -> None:
        """Defer small Sends and Receives, to be published to the peer together.

        A hint: they are published by `_submit_batch` at the latest, and before by a poll of a
        completion queue of this queue pair, a flush, a disconnect, a full ring, or a message that
        needs more than the ring. Sends complete when they are published.
        """
        if self.born != forks:
            self._refuse_in_child("start_request_batch")
        self.q.batch = True

    def _submit_batch(self) -> None:
        """Publish a batch. Without one it has no effect."""
        if self.born != forks:
            self._refuse_in_child("submit_request_batch")
        c.shmnd_batch_submit(&self.q)
        release_contexts(self.q.registry)
        if self.q.wq_head != self.q.wq_tail:
            self.advance()
        _tell(self.initiator_cq)

    def _end_batch(self) -> None:
        """Submit the batch if one is open; never raises."""
        if self.q.batch and self.born == forks:
            self._submit_batch()

    def read(self, sge, remote_address, remote_token, context=None, *, flags=0) -> None:
        """Read the peer's memory, at an address of its process, into registered memory here.

        Flags: SILENT_SUCCESS, READ_FENCE.
        """
        self._rdma(c.SHMND_READ, "read", sge, remote_address, remote_token, context, flags)

    def write(self, sge, remote_address, remote_token, context=None, *, flags=0) -> None:
        """Write registered memory into the peer's, at an address of its process.

        Flags: SILENT_SUCCESS, READ_FENCE, INLINE.
        """
        self._rdma(c.SHMND_WRITE, "write", sge, remote_address, remote_token, context, flags)

    cdef _rdma(self, uint32_t type_, str method, object sge, object remote_address,
               object remote_token, object context, object flags):
        cdef c.shmnd_sge list_[16]
        cdef str call = "QueuePair.read" if type_ == c.SHMND_READ else "QueuePair.write"
        cdef uint32_t flag = flags_of(flags, call)
        cdef uint32_t n, status, token
        cdef uint64_t address
        _no_flag(context, call)
        if self.born != forks or c.shmnd_pace_due(&self.pace):
            self.pause(method)
        address = _number(remote_address, UINT64_MAX, "remote_address", call)
        token = <uint32_t>_number(remote_token, 0xFFFFFFFF, "remote_token", call)
        if flag & ~(c.SHMND_READ_FLAGS if type_ == c.SHMND_READ else c.SHMND_WRITE_FLAGS):
            self.refuse(method, Status.INVALID_PARAMETER_6, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, call)
        if type(sge) is Sge:
            list_[0] = (<Sge>sge).raw
            n = 1
        else:
            n = gather_sges(sge, list_, call, self.q.wq_stride)
        status = self.post_rdma(type_, context, list_, n, address, token, flag)
        if status:
            self.refuse(method, status, sge, flags)

    cdef uint32_t post_rdma(self, uint32_t type_, object context, const c.shmnd_sge *sges,
                            uint32_t n, uint64_t address, uint32_t token,
                            uint32_t flags) except? 0xffffffff:
        """Queue a Read or Write, or execute it. Return the status of the call."""
        cdef c.cbool kept
        cdef uint32_t status = c.shmnd_post_rdma(&self.q, <void *>context, <unsigned char>type_,
                                                 sges, n, address, token, flags, &kept)
        if status and self.made_room(status):
            status = c.shmnd_post_rdma(&self.q, <void *>context, <unsigned char>type_,
                                       sges, n, address, token, flags, &kept)
        if status:
            return status
        if kept:
            Py_INCREF(context)
        if self.q.wq_head != self.q.wq_tail:
            self.advance()
        _tell(self.initiator_cq)
        return 0

    cdef _inline(self, object sge, str call):
        """Return an INLINE list that can be read: registered memory, a buffer, or a copy."""
        cdef bint bare = False
        if type(sge) is Sge and c.shmnd_sge_region(&self.registry.raw, &(<Sge>sge).raw, 0) != NULL:
            return sge
        cdef c.shmnd_sge *raw
        cdef uint64_t total = 0
        items = [sge] if isinstance(sge, Sge) else [] if sge is None else list(sge)
        for item in items:
            if not isinstance(item, Sge):
                raise TypeError(f"{call}: a scatter/gather list holds Sge, "
                                f"not {type(item).__name__}")
            total += (<Sge>item).raw.length
        if total > self.q.inline_size:
            return sge if len(items) <= 16 else items[:16]  # refused by its length
        for item in items:
            raw = &(<Sge>item).raw
            if not self.registry.covers(raw.token, raw.address, raw.length):
                require_held(item, call)
                bare = bare or (<Sge>item).owner is None
            bare = bare or lies_in_fragile(item.address, item.length)
        if not bare and len(items) <= 16:
            return sge
        data = inline_bytes(items, call)
        return Sge(data, len(data), 0)

    def bind(self, memory_region, memory_window, address, length, context=None, *, flags=0) -> None:
        """Make a range of a region accessible to the peer through a window.

        The window's token is valid when this returns. Flags: ALLOW_READ, ALLOW_WRITE,
        SILENT_SUCCESS, READ_FENCE.
        """
        cdef uint32_t flag = flags_of(flags, "QueuePair.bind")
        self.usable("bind")
        _no_flag(context, "QueuePair.bind")
        if flag & ~c.SHMND_BIND_FLAGS:
            self.refuse("bind", Status.INVALID_PARAMETER_6, None, flags)
        if not hasattr(memory_window, "_check_bind"):
            raise error(Status.INVALID_PARAMETER_3, "QueuePair.bind",
                        f"{type(memory_window).__name__} is not a MemoryWindow")
        address = index_given("QueuePair.bind", "address", address)
        length = index_given("QueuePair.bind", "length", length)
        memory_window._check_bind(self, memory_region, address, length, flag)
        self._checked_connected("bind")
        outcome, token = memory_window._bind(self, memory_region, address, length, flag)
        self._window(c.SHMND_BIND, token, outcome, context, memory_window, flag)

    def invalidate(self, memory_window, context=None, *, flags=0) -> None:
        """End the peer's access through a window. Final when it completes.

        Flags: SILENT_SUCCESS, READ_FENCE.
        """
        cdef uint32_t flag = flags_of(flags, "QueuePair.invalidate")
        self.usable("invalidate")
        _no_flag(context, "QueuePair.invalidate")
        if flag & ~c.SHMND_INVALIDATE_FLAGS:
            self.refuse("invalidate", Status.INVALID_PARAMETER_3, None, flags)
        if not hasattr(memory_window, "_check_bind"):
            raise error(Status.INVALID_PARAMETER_2, "QueuePair.invalidate",
                        f"{type(memory_window).__name__} is not a MemoryWindow")
        memory_window._check_invalidate(self)
        self._checked_connected("invalidate")
        outcome, token = memory_window._invalidate(self)
        self._window(c.SHMND_INVALIDATE, token, outcome, context, memory_window, flag)

    cdef _checked_connected(self, str method):
        cdef uint32_t status
        if self.born != forks:
            self._refuse_in_child(method)
        status = self.check_connected()
        if status:
            self.refuse(method, status, None, 0)

    cdef uint32_t check_connected(self) except? 0xffffffff:
        """Check for a connection and room for a request. Return the status of the call."""
        cdef uint32_t status = c.shmnd_check_connected(&self.q)
        if status and self.made_room(status):
            status = c.shmnd_check_connected(&self.q)
        return status

    cdef bint made_room(self, uint32_t status) except -1:
        """After NO_MORE_ENTRIES: complete finished requests, which frees their entries although
        their results are not taken yet. Return whether an entry is free."""
        if status != _FULL or self.q.link.mine == NULL:
            return False
        self.settle()
        return self.q.wq_tail - self.q.wq_released < self.q.wq_depth

    cdef _window(self, uint32_t type_, uint32_t token, uint32_t outcome, object context,
                 object window, uint32_t flags):
        cdef Bound bound = Bound.__new__(Bound)
        bound.context, bound.window = context, window
        Py_INCREF(bound)
        c.shmnd_post_window(&self.q, <void *>bound, <unsigned char>type_, token, outcome, flags)
        self.advance()
        _tell(self.initiator_cq)

    def flush(self) -> None:
        """Cancel all outstanding requests of both queues, after delivering arrived messages."""
        if self.born != forks:
            self._refuse_in_child("flush")
        c.shmnd_qp_flush(&self.q)
        if self.q.link.mine != NULL:
            self.settle()
        _tell(self.initiator_cq)
        _tell(self.receive_cq)

    cdef _refuse_in_child(self, str method):
        raise whose(self.born, f"{self.title}.{method}")

    cdef int pause(self, str method) except -1:
        """The work that not every post does: refuse in a child process, check the peer, and make
        progress on other queues. A program that only posts depends on it."""
        self.usable(method)
        self.initiator_cq._look_around()
        if self.q.link.mine != NULL:
            c.shmnd_qp_check_peer(&self.q)
            if self.q.going_down:
                self.settle()
        return 0

    cdef int usable(self, str method) except -1:
        if self.born != forks:
            self._refuse_in_child(method)
        return 0

    cdef refuse_receive(self, uint32_t status, object sge):
        """Raise for a Receive that was refused."""
        if (status == Status.NO_MORE_ENTRIES
                and c.shmnd_receives_outstanding(&self.q.own) < self.q.own.depth):
            raise error(status, f"{self.title}.receive", _untaken(self.receive_cq))
        raise error(status, f"{self.title}.receive",
                    receive_reason(status, sge, &self.q.own, self.q.max_transfer,
                                   self._ask("max_receive_sge"), self._ask("receive_depth")))

    cdef str _ask(self, str limit):
        """Say how to request a larger limit."""
        if self.title == "QueuePair":
            return f"ask create_queue_pair for more with {limit}"
        limit = _IN_VERSION_1[limit]
        return f"ask create_endpoint for more with {limit}" if limit else "send it from a region"

    cdef refuse(self, str method, uint32_t status, object sge, object flags):
        """Raise for a call that was refused, naming the value and the limit that it exceeds."""
        items = [sge] if isinstance(sge, Sge) else list(sge or ())
        total = sum(item.length for item in items)
        if status == Status.DATA_OVERRUN:
            detail = (f"{len(items)} scatter/gather elements, at most {self.q.wq_stride} are "
                      f"granted; {self._ask('max_initiator_sge')}, up to {c.SHMND_MAX_SGE}")
        elif status == Status.BUFFER_OVERFLOW and int(flags) & c.SHMND_OP_INLINE:
            detail = (f"{total} bytes inline, at most {self.q.inline_size} on this queue pair; "
                      f"{self._ask('inline_size')}")
        elif status == Status.BUFFER_OVERFLOW:
            detail = f"{total} bytes, at most {self.q.max_transfer} a request"
        elif (status == Status.NO_MORE_ENTRIES
                and self.q.wq_tail - self.q.wq_released < self.q.wq_depth):
            detail = _untaken(self.initiator_cq)
        elif status == Status.NO_MORE_ENTRIES:
            detail = (f"{self.q.wq_tail - self.q.wq_released} requests are outstanding, the queue "
                      f"holds {self.q.wq_depth}; reap completions and post again")
        elif status == Status.CONNECTION_INVALID:
            detail = f"the queue pair is {STATE_NAMES[self.q.state]}; " + (
                "make a new one" if self.q.state >= c.SHMND_QP_DOWN
                else "connect and complete_connect, or accept, come first")
        else:
            names = ", ".join(flag.name for flag in OpFlag if flag & _LEGAL[method])
            detail = f"flags {int(flags):#x} outside {_LEGAL[method]:#x}; it takes {names}"
        raise error(status, f"{self.title}.{method}", detail)

    def _break_off(self) -> None:
        """Flush, and end the connection as after an error; the connector notices at once."""
        if self.born != forks:
            self._refuse_in_child("flush")
        if self.q.state == c.SHMND_QP_CONNECTED:
            c.shmnd_qp_disconnect(&self.q)
            self.settle()
            _tell(self.initiator_cq)
            _tell(self.receive_cq)
        else:
            self.flush()

    # -- the reasons of failed requests --

    cdef str why(self, uint32_t status, uint32_t type_):
        """Say why a request ended with this status, and which process was involved."""
        cdef uint32_t theirs
        cdef object peer
        if self.q.link.mine == NULL or self.peer is None:
            return ""
        theirs = c.shmnd_peer_state(&self.q)
        peer = f"the peer, process {self.peer.pid},"
        if theirs == c.SHMND_LINK_DEAD and status in _ENDED:
            return f"{peer} died"
        if status == Status.IO_TIMEOUT:
            within = (self.q.rnr_ns - c.SHMND_COARSE_STEP_NS) * 1e-9
            return (f"{peer} posted no Receive for it within {within:g} s; "
                    "post Receives there before the Send, or open the adapter here with a larger "
                    "rnr_timeout")
        if status == Status.CANCELED and theirs == c.SHMND_LINK_CLOSED:
            return f"{peer} disconnected"
        if status == Status.CANCELED and theirs == c.SHMND_LINK_FAULT:
            return f"{peer} ended the connection by an error of its own"
        if status == Status.CANCELED:
            return "the queue pair was flushed, or an earlier request on it failed"
        if (status == Status.INVALID_DEVICE_REQUEST and type_ == c.SHMND_READ
                and self.q.outbound_read_limit == 0):
            return ("the connection allows no Reads from here: outbound_read_limit of connect or "
                    "accept here, or inbound_read_limit of the peer, is 0")
        if status == Status.ACCESS_VIOLATION and type_ in (c.SHMND_READ, c.SHMND_WRITE):
            return ("the local memory is not registered for this, or the remote address and token "
                    f"name no memory of {peer[:-1]} with the right that it takes")
        if status == Status.ACCESS_VIOLATION:
            return ("an element is not within registered memory with the right that it takes; a "
                    "Receive and a Read need ALLOW_LOCAL_WRITE")
        if status == Status.REMOTE_ERROR:
            return f"{peer} has a Receive that is too short for it, or not in writable memory"
        if status == Status.BUFFER_OVERFLOW:
            return f"the message of {peer[:-1]} is longer than the buffers of the Receive"
        return ""

    cdef str outstanding(self, bint requests, bint receives):
        """Say which requests are outstanding, and with which process."""
        cdef list said = []
        if requests:
            said.append(f"{self.q.wq_tail - self.q.wq_head} requests")
        if receives and not self.q.shared:
            said.append(f"{c.shmnd_receives_outstanding(&self.q.own)} Receives")
        name = "" if self.context is None else f" {self.context!r}"
        return (f"{' and '.join(said) or 'nothing'} of the {self.title}{name} outstanding "
                f"with process {self.peer.pid}")

    # -- progress --

    cdef advance(self):
        """Execute all requests that can be executed now; of a long copy, one piece."""
        cdef uint32_t p
        cdef int64_t copied = 0
        cdef int _
        for _ in range(_STEPS):
            p = c.shmnd_tx_advance(&self.q)
            if p == c.SHMND_IDLE:
                break
            copied += self.serve(p, False)
            if copied >= _PIECE:
                break
        if self.q.rx_fault or self.q.going_down:
            self.settle()
        release_contexts(self.q.registry)

    cdef int64_t serve(self, uint32_t what, bint receiving) except -1:
        """Run the job, or map the segment, that a poll left. Return the number of bytes copied."""
        if what == c.SHMND_NEEDS_MAP:
            self._map(receiving)
            return 0
        return self.run_rx() if receiving else self.run_tx()

    cdef int64_t run_tx(self) except -1:
        """Run a piece of a prepared copy; a long one without the interpreter's lock."""
        cdef int64_t copied
        cdef bint long_ = (self.q.tx_job.to.total >= _LONG_COPY
                           or self.q.tx_job.to.remote != 0
                           or self.q.tx_job.from_.remote != 0)
        if not self.q.tx_busy or self.q.tx_started:
            return 0
        self.q.tx_started = True
        self.q.tx_job.piece = 0
        if long_:
            self.peer.jobs += 1
            with nogil:
                c.shmnd_tx_run(&self.q)
            self.peer.jobs -= 1
        else:
            c.shmnd_tx_run(&self.q)
        copied = self.q.tx_job.piece
        c.shmnd_tx_run_done(&self.q)
        return copied

    cdef int64_t run_rx(self) except -1:
        """Run a piece of the copy of an arriving message."""
        cdef int64_t copied
        if self.q.rx_busy or self.q.rx_job.kind == c.SHMND_JOB_NONE:
            return 0
        self.q.rx_busy = True
        self.q.rx_job.piece = 0
        c.shmnd_rx_resolve_again(&self.q)
        if self.q.rx_job.chunks.length >= _LONG_COPY or self.q.rx_job.from_.remote:
            self.peer.jobs += 1
            with nogil:
                c.shmnd_rx_run(&self.q)
            self.peer.jobs -= 1
        else:
            c.shmnd_rx_run(&self.q)
        copied = self.q.rx_job.piece
        c.shmnd_rx_run_done(&self.q)
        return copied

    cdef _map(self, bint receiving):
        """Map a segment of the peer: read the events of the broker; give up if it stays missing."""
        # A Send may need a second one if the receive was replaced while the first was mapped.
        added = len(self.peer._segments) + self.peer.raw.unmapped
        where = (receiving, self.q.wq_head, self.q.wq_next, self.q.in_.read_pos, self.q.taken,
                 added)
        if where != self.map_place:
            self.adapter._engine.sync()
            self.map_place = where
            return
        self.map_place = None
        # The peer named memory that it never announced.
        c.shmnd_fail_unmapped(&self.q, receiving)

    cdef settle(self):
        """Make all progress that this side can make now; of a long copy, one piece."""
        cdef c.shmnd_todo todo
        cdef int64_t copied = 0
        cdef int _
        for _ in range(_STEPS):
            todo.what = c.SHMND_IDLE
            c.shmnd_qp_progress_todo(&self.q, c.shmnd_coarse_ns(), &todo)
            if todo.what == c.SHMND_IDLE:
                break
            copied += self.serve(todo.what, todo.receiving)
            if copied >= _PIECE:
                break
        release_contexts(self.q.registry)

    def _progress(self) -> None:
        """Check the state of the other side once, and make progress."""
        if self.q.link.mine != NULL and self.born == forks:
            self.settle()
