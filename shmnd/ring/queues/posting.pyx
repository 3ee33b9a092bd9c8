# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Posting requests to a queue pair: checks of arguments, and the calls of the interface.

`progress` executes what a call cannot finish, `reasons` has the texts of refusals.
"""

cimport cython
from cpython.long cimport PyLong_AsLongAndOverflow
from cpython.ref cimport Py_INCREF
from libc.stdint cimport UINT64_MAX

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.queues.results cimport Bound
from shmnd.ring.queues.progress cimport ProgressCore, wake_sleepers
from shmnd.ring.queues.reasons cimport (outstanding_requests, reason_of_failure, refuse,
                                        refuse_receive)
from shmnd.ring.shared_memory.registry cimport release_contexts
from shmnd.ring.shared_memory.segment cimport lies_in_fragile
from shmnd.ring.shared_memory.sge cimport Sge, gather_sges, is_in_python, require_held, require_list

from shmnd.ring.shared_memory.sge import inline_bytes
from shmnd.status import MrFlag, OpFlag, Status, error
from shmnd.common.arguments import flags_as_context, flags_given, index_given, wrong_kind

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


cdef Bound _bound_by(object context, object window):
    cdef Bound bound = Bound.__new__(Bound)
    bound.context, bound.window = context, window
    return bound


@cython.no_gc_clear
cdef class PostingCore(ProgressCore):
    """A queue pair with its requests; the base of `QueuePair`."""

    def send(self, sge, context=None, *, flags=0) -> None:
        """Send a message to the peer, which must have posted a Receive for it.

        Flags: SILENT_SUCCESS, READ_FENCE, SEND_AND_SOLICIT_EVENT, INLINE.
        """
        cdef c.shmnd_sge list_[16]
        cdef uint32_t flag = 0 if flags is _NO_FLAGS else flags_of(flags, "QueuePair.send")
        cdef uint32_t n, status
        if context is not None:
            _no_flag(context, "QueuePair.send")
        if self.born != forks or c.shmnd_pace_due(&self.pace):
            self.do_periodic_work("send")
        if flag & ~c.SHMND_SEND_FLAGS:
            refuse(self, "send", Status.INVALID_PARAMETER_4, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, "send", flags)
        if type(sge) is Sge:
            list_[0] = (<Sge>sge).raw
            n = 1
        else:
            n = gather_sges(sge, list_, "QueuePair.send", self.q.wq.stride)
        status = self.post_send(context, list_, n, flag)
        if status:
            refuse(self, "send", status, sge, flags)

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
        if self.q.wq.oldest != self.q.wq.end and not (
                self.q.batch and self.q.wq.next == self.q.wq.end):
            self.advance()
        wake_sleepers(self.initiator_cq)
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
            self.do_periodic_work("send_and_invalidate")
        named = <uint32_t>_number(token, 0xFFFFFFFF, "token", "QueuePair.send_and_invalidate")
        if flag & ~c.SHMND_SEND_FLAGS:
            refuse(self, "send_and_invalidate", Status.INVALID_PARAMETER_5, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, "send_and_invalidate", flags)
        n = gather_sges(sge, list_, "QueuePair.send_and_invalidate", self.q.wq.stride)
        status = self.post_send_invalidate(context, list_, n, named, flag)
        if status:
            refuse(self, "send_and_invalidate", status, sge, flags)

    cdef uint32_t post_send_invalidate(self, object context, const c.shmnd_sge *sges, uint32_t n,
                                       uint32_t token, uint32_t flags) except? 0xffffffff:
        """Queue a Send that invalidates. Return the status of the call."""
        cdef uint32_t status = c.shmnd_post_send_invalidate(&self.q, <void *>context, sges, n,
                                                            token, flags)
        if status and self.made_room(status):
            status = c.shmnd_post_send_invalidate(&self.q, <void *>context, sges, n, token, flags)
        if status:
            return status
        Py_INCREF(context)
        self.advance()
        wake_sleepers(self.initiator_cq)
        return 0

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
            refuse_receive(self, status, sge)

    cdef uint32_t post_receive(self, object context, const c.shmnd_sge *sges,
                               uint32_t n) except? 0xffffffff:
        """Post a Receive. Return the status of the call."""
        cdef uint32_t status = c.shmnd_post_receive(&self.q, <void *>context, sges, n)
        if status == _FULL:
            status = self.post_receive_again(context, sges, n)
        if status:
            return status
        Py_INCREF(context)
        if self.q.state == c.SHMND_QP_DOWN or self.q.rx.stalled:
            if self.q.rx.stalled:
                c.shmnd_qp_activate(&self.q)
            wake_sleepers(self.receive_cq)
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
        if self.q.wq.oldest != self.q.wq.end:
            self.advance()
        wake_sleepers(self.initiator_cq)

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
        cdef uint32_t flag = 0 if flags is _NO_FLAGS else flags_of(flags, call)
        cdef uint32_t n, status, token
        cdef uint64_t address
        if context is not None:
            _no_flag(context, call)
        if self.born != forks or c.shmnd_pace_due(&self.pace):
            self.do_periodic_work(method)
        address = _number(remote_address, UINT64_MAX, "remote_address", call)
        token = <uint32_t>_number(remote_token, 0xFFFFFFFF, "remote_token", call)
        if flag & ~(c.SHMND_READ_FLAGS if type_ == c.SHMND_READ else c.SHMND_WRITE_FLAGS):
            refuse(self, method, Status.INVALID_PARAMETER_6, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, method, flags)
        if type(sge) is Sge:
            list_[0] = (<Sge>sge).raw
            n = 1
        else:
            n = gather_sges(sge, list_, call, self.q.wq.stride)
        status = self.post_rdma(type_, context, list_, n, address, token, flag)
        if status:
            refuse(self, method, status, sge, flags)

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
        if self.q.wq.oldest != self.q.wq.end:
            self.advance()
        wake_sleepers(self.initiator_cq)
        return 0

    cdef _inline(self, object sge, str method, object flags):
        """Return an INLINE list that can be read: registered memory, a buffer, or a copy.

        A list that is too long is refused here, before its elements are examined.
        """
        cdef bint bare = False
        cdef str call = "QueuePair." + method
        if type(sge) is Sge and c.shmnd_sge_region(&self.registry.raw, &(<Sge>sge).raw, 0) != NULL:
            return sge
        cdef c.shmnd_sge *raw
        cdef uint64_t total = 0
        cdef list items = []
        if isinstance(sge, Sge):
            items.append(sge)
        elif sge is not None:
            require_list(sge, call)
            items.extend(sge)
        for item in items:
            if not isinstance(item, Sge):
                raise TypeError(f"{call}: a scatter/gather list holds Sge, "
                                f"not {type(item).__name__}")
            total += (<Sge>item).raw.length
        if total > self.q.inline_size:
            refuse(self, method, Status.BUFFER_OVERFLOW, items, flags)
        for item in items:
            raw = &(<Sge>item).raw
            if not self.registry.covers(raw.token, raw.address, raw.length):
                require_held(item, call)
                # A buffer in Python may release the memory of the elements before it.
                bare = bare or (<Sge>item).owner is None or is_in_python((<Sge>item).owner)
            bare = bare or lies_in_fragile(raw.address, raw.length)
        if not bare and len(items) <= 16:
            return items
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
            refuse(self, "bind", Status.INVALID_PARAMETER_6, None, flags)
        if not hasattr(memory_window, "_check_bind"):
            raise error(Status.INVALID_PARAMETER_3, "QueuePair.bind",
                        wrong_kind(memory_window, "MemoryWindow"))
        address = index_given("QueuePair.bind", "address", address)
        length = index_given("QueuePair.bind", "length", length)
        memory_window._check_bind(self, memory_region, address, length, flag)
        bound = _bound_by(context, memory_window)
        self._hold("bind")
        try:
            outcome, token = memory_window._bind(self, memory_region, address, length, flag)
        except BaseException:
            c.shmnd_release_entry(&self.q)
            raise
        if not self._window(c.SHMND_BIND, token, outcome, bound, flag):
            if outcome == Status.SUCCESS:
                memory_window._drop()
            refuse(self, "bind", Status.CONNECTION_INVALID, None, 0)

    def invalidate(self, memory_window, context=None, *, flags=0) -> None:
        """End the peer's access through a window. Final when it completes.

        Flags: SILENT_SUCCESS, READ_FENCE.
        """
        cdef uint32_t flag = flags_of(flags, "QueuePair.invalidate")
        self.usable("invalidate")
        _no_flag(context, "QueuePair.invalidate")
        if flag & ~c.SHMND_INVALIDATE_FLAGS:
            refuse(self, "invalidate", Status.INVALID_PARAMETER_3, None, flags)
        if not hasattr(memory_window, "_check_bind"):
            raise error(Status.INVALID_PARAMETER_2, "QueuePair.invalidate",
                        wrong_kind(memory_window, "MemoryWindow"))
        memory_window._check_invalidate(self)
        bound = _bound_by(context, memory_window)
        self._hold("invalidate")
        try:
            outcome, token = memory_window._invalidate(self)
        except BaseException:
            c.shmnd_release_entry(&self.q)
            raise
        if not self._window(c.SHMND_INVALIDATE, token, outcome, bound, flag):
            refuse(self, "invalidate", Status.CONNECTION_INVALID, None, 0)

    cdef bint _window(self, uint32_t type_, uint32_t token, uint32_t outcome, Bound bound,
                      uint32_t flags) except -1:
        """Post what the window has done. Return False if the queue pair was closed meanwhile."""
        if c.shmnd_post_window(&self.q, <void *>bound, <unsigned char>type_, token, outcome, flags):
            return False
        Py_INCREF(bound)
        self.advance()
        wake_sleepers(self.initiator_cq)
        return True

    cdef _hold(self, str method):
        """Hold an entry for a request whose call runs code of Python before it posts."""
        cdef uint32_t status
        if self.born != forks:
            self._refuse_in_child(method)
        status = c.shmnd_hold_entry(&self.q)
        if status and self.made_room(status):
            status = c.shmnd_hold_entry(&self.q)
        if status:
            refuse(self, method, status, None, 0)

    cdef uint32_t check_connected(self) except? 0xffffffff:
        """Check for a connection and room for a request. Return the status of the call."""
        cdef uint32_t status = c.shmnd_check_connected(&self.q)
        if status and self.made_room(status):
            status = c.shmnd_check_connected(&self.q)
        return status

    cdef bint made_room(self, uint32_t status) except -1:
        """Complete finished requests after NO_MORE_ENTRIES, which frees their entries although
        their results are not taken yet. Return whether an entry is free."""
        if status != _FULL or self.q.link.mine == NULL:
            return False
        self.settle()
        return c.shmnd_requests_taken(&self.q) < self.q.wq.depth

    # -- texts --

    cdef str why(self, uint32_t status, uint32_t type_, uint32_t flags):
        """Return why a request ended with this status, and which process was involved."""
        return reason_of_failure(self, status, type_, flags)

    cdef str outstanding(self, bint requests, bint receives):
        """Return which requests are outstanding, and with which process."""
        return outstanding_requests(self, requests, receives)
