# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The posting half of a queue pair, and what carries its requests out.

Everything is done under the interpreter's lock but copies that are long enough to matter; see
engine.h for what other threads may do meanwhile.
"""

import operator

cimport cython
from cpython.ref cimport Py_INCREF
from libc.stdint cimport UINT64_MAX

from shmnd.ring cimport c
from shmnd.ring.forks cimport forks
from shmnd.ring.memory cimport Sge, gather_sges, require_held
from shmnd.ring.queue cimport CompletionCore, PairCore
from shmnd.ring.receives cimport receive_reason

from shmnd.status import IN_CHILD, Status, error
from shmnd.within import flags_given

STATE_NAMES = ("not connected", "connecting", "not yet connected", "connected",
               "no longer connected", "disconnected")

# A copy of this length holds other threads up; a shorter one takes a few microseconds.
cdef uint64_t _LONG_COPY = 128 << 10
# Steps that one call takes at most; what is left is for the next poll. A peer that changes its
# mind all the time must not keep us here.
cdef int _STEPS = 4096
cdef dict _LEGAL = {
    "send": c.SHMND_SEND_FLAGS, "send_and_invalidate": c.SHMND_SEND_FLAGS,
    "read": c.SHMND_READ_FLAGS, "write": c.SHMND_WRITE_FLAGS,
    "bind": c.SHMND_BIND_FLAGS, "invalidate": c.SHMND_INVALIDATE_FLAGS,
}
cdef object _NO_FLAGS = 0
cdef uint32_t _FULL = Status.NO_MORE_ENTRIES


cdef uint32_t flags_of(object flags, str call) except? 0xffffffff:
    """Flags as the engine takes them; what is no 32-bit number is no legal flag either."""
    if flags is _NO_FLAGS:
        return 0
    if not isinstance(flags, int):
        flags = flags_given(call, flags)
    if flags < 0 or flags > 0xFFFFFFFF:
        return 0x80000000
    return flags


cdef inline uint64_t _number(object value, uint64_t most) except? 0:
    """A remote address or token. What cannot be one is 0, which no memory has: the request fails
    as it does for any remote fault."""
    cdef unsigned long long number
    if type(value) is not int:
        value = operator.index(value)
    try:
        number = value
    except OverflowError:
        return 0
    return number if number <= most else 0


def inline_bytes(sge, call) -> bytearray:
    """The bytes that a list of inline data names.

    An element may name any memory by its bare address; a bad one is an error here, not a crash.
    """
    cdef c.shmnd_spans to, from_
    cdef c.shmnd_process me = c.shmnd_this_process()
    cdef unsigned char[::1] view
    data = bytearray(sum(item.length for item in sge))
    done = 0
    for item in sge:
        if item.length == 0:
            continue
        view = data
        c.shmnd_spans_clear(&to)
        c.shmnd_spans_clear(&from_)
        c.shmnd_spans_add(&to, <size_t>&view[done], item.length)
        c.shmnd_spans_add(&from_, item.address, item.length)
        from_.remote = True
        if c.shmnd_vm_copy(&me, &to, &from_) != 0:
            raise error(Status.ACCESS_VIOLATION, call,
                        f"{item!r}: these bytes cannot be read in this process")
        done += item.length
    return data


cdef str _untaken(CompletionCore queue):
    """Why a request is refused that its own queue would hold."""
    return (f"its completion queue of depth {queue.depth} is full: "
            f"{c.shmnd_cq_count(&queue.raw)} results were not taken; take them and post again")


@cython.no_gc_clear
cdef class PostingCore(PairCore):
    """What a queue pair does between its making and its end; `QueuePair` is the whole of it."""

    def __cinit__(self, *args, **kwargs):
        self.q.owner = <void *>self
        self.born = forks
        self.title = "QueuePair"

    # -- posting --

    def send(self, sge, context=None, flags=0) -> None:
        """Send a message to the peer, who must have a Receive posted for it.

        Flags: SILENT_SUCCESS, READ_FENCE, SEND_AND_SOLICIT_EVENT, INLINE.
        """
        cdef c.shmnd_sge list_[16]
        cdef uint32_t flag = flags_of(flags, "QueuePair.send")
        cdef uint32_t n, status
        if self.born != forks:
            self._refuse_in_child("send")
        if flag & ~c.SHMND_SEND_FLAGS:
            self.refuse("send", Status.INVALID_PARAMETER_4, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, "QueuePair.send")
        n = gather_sges(sge, list_, "QueuePair.send", self.q.wq_stride)
        status = self.post_send(context, list_, n, flag)
        if status:
            self.refuse("send", status, sge, flags)

    cdef uint32_t post_send(self, object context, const c.shmnd_sge *sges, uint32_t n,
                            uint32_t flags) except? 0xffffffff:
        """Queue a Send, or carry it out. Gives the status of the call."""
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
        self.initiator_cq.pushed()
        return 0

    def _send_and_invalidate(self, sge, token, context=None, flags=0) -> None:
        """Send a message that ends this side's access through a window of the peer's.

        `token` is the window's remote token. When the peer sees the message the window is dead;
        the Send completes then. A token that names no window bound to this connection ends the
        connection.
        """
        cdef c.shmnd_sge list_[16]
        cdef uint32_t flag = flags_of(flags, "QueuePair.send_and_invalidate")
        cdef uint32_t n, status, named
        if self.born != forks:
            self._refuse_in_child("send_and_invalidate")
        named = <uint32_t>_number(token, 0xFFFFFFFF)
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
        self.initiator_cq.pushed()

    def receive(self, sge, context=None) -> None:
        """Post a receive: the next message without one goes into its buffers."""
        cdef c.shmnd_sge list_[16]
        cdef uint32_t n, status
        if self.born != forks:
            self._refuse_in_child("receive")
        if self.q.shared:
            raise error(Status.INVALID_DEVICE_REQUEST, "QueuePair.receive",
                        "this queue pair takes from a shared receive queue: post there")
        n = gather_sges(sge, list_, "QueuePair.receive", self.q.own.stride)
        status = self.post_receive(context, list_, n)
        if status:
            self.refuse_receive(status, sge)

    cdef uint32_t post_receive(self, object context, const c.shmnd_sge *sges,
                               uint32_t n) except? 0xffffffff:
        """Post a Receive. Gives the status of the call."""
        cdef uint32_t status = c.shmnd_post_receive(&self.q, <void *>context, sges, n)
        if status == _FULL:
            self.receive_cq.collect()  # messages that arrived have used receives up
            status = c.shmnd_post_receive(&self.q, <void *>context, sges, n)
        if status:
            return status
        Py_INCREF(context)
        if self.q.state == c.SHMND_QP_DOWN or self.q.rx_stalled:
            if self.q.rx_stalled:
                c.shmnd_qp_activate(&self.q)
            self.receive_cq.pushed()
        return 0

    def _begin_batch(self) -> None:
        """Hold small Sends and Receives back, to be shown to the peer together.

        A hint: what is held is shown by `_submit_batch` at the latest, and before by whatever
        must not wait: a poll of a completion queue of this queue pair, a flush, a disconnect, a
        full ring, a message that takes more than the ring. Sends complete when they are shown.
        """
        if self.born != forks:
            self._refuse_in_child("start_request_batch")
        self.q.batch = True

    def _submit_batch(self) -> None:
        """Show what a batch held back. Harmless without one."""
        if self.born != forks:
            self._refuse_in_child("submit_request_batch")
        c.shmnd_batch_submit(&self.q)
        if self.q.wq_head != self.q.wq_tail:
            self.advance()
        self.initiator_cq.pushed()

    def _end_batch(self) -> None:
        """Submit if a batch is open; never raises."""
        if self.q.batch and self.born == forks:
            self._submit_batch()

    def read(self, sge, remote_address, remote_token, context=None, flags=0) -> None:
        """Read the peer's memory, at an address of its process, into registered memory here.

        Flags: SILENT_SUCCESS, READ_FENCE.
        """
        self._rdma(c.SHMND_READ, "read", sge, remote_address, remote_token, context, flags)

    def write(self, sge, remote_address, remote_token, context=None, flags=0) -> None:
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
        if self.born != forks:
            self._refuse_in_child(method)
        address = _number(remote_address, UINT64_MAX)
        token = <uint32_t>_number(remote_token, 0xFFFFFFFF)
        if flag & ~(c.SHMND_READ_FLAGS if type_ == c.SHMND_READ else c.SHMND_WRITE_FLAGS):
            self.refuse(method, Status.INVALID_PARAMETER_6, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, call)
        n = gather_sges(sge, list_, call, self.q.wq_stride)
        status = self.post_rdma(type_, context, list_, n, address, token, flag)
        if status:
            self.refuse(method, status, sge, flags)

    cdef uint32_t post_rdma(self, uint32_t type_, object context, const c.shmnd_sge *sges,
                            uint32_t n, uint64_t address, uint32_t token,
                            uint32_t flags) except? 0xffffffff:
        """Queue a Read or Write, or carry it out. Gives the status of the call."""
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
        self.initiator_cq.pushed()
        return 0

    def _inline(self, sge, call):
        """Make sure that an INLINE list can be read: registered memory, a buffer, or copied."""
        cdef bint bare = False
        if type(sge) is Sge and c.shmnd_sge_region(&self.registry.raw, &(<Sge>sge).raw, 0) != NULL:
            return sge
        items = [sge] if isinstance(sge, Sge) else [] if sge is None else list(sge)
        if sum(item.length for item in items) > self.q.inline_size:
            return sge if len(items) <= 16 else items[:16]  # refused by its length
        for item in items:
            if not self.registry.covers(item.token, item.address, item.length):
                require_held(item, call)
                bare = bare or (<Sge>item).owner is None
        if not bare and len(items) <= 16:
            return sge
        data = inline_bytes(items, call)
        return Sge(data, len(data), 0)

    def bind(self, memory_region, memory_window, address, length, context=None, flags=0) -> None:
        """Make a range of a region accessible to the peer through a window.

        The window's token is valid when this returns. Flags: ALLOW_READ, ALLOW_WRITE,
        SILENT_SUCCESS, READ_FENCE.
        """
        cdef uint32_t flag = flags_of(flags, "QueuePair.bind")
        if flag & ~c.SHMND_BIND_FLAGS:
            self.refuse("bind", Status.INVALID_PARAMETER_6, None, flags)
        if not hasattr(memory_window, "_check_bind"):
            raise error(Status.INVALID_PARAMETER_3, "QueuePair.bind",
                        f"{type(memory_window).__name__} is no MemoryWindow")
        address, length = operator.index(address), operator.index(length)
        memory_window._check_bind(self, memory_region, address, length, flag)
        self._checked_connected("bind")
        outcome, token = memory_window._bind(self, memory_region, address, length, flag)
        self._window(c.SHMND_BIND, token, outcome, context, flag)

    def invalidate(self, memory_window, context=None, flags=0) -> None:
        """End the peer's access through a window. Final when it completes.

        Flags: SILENT_SUCCESS, READ_FENCE.
        """
        cdef uint32_t flag = flags_of(flags, "QueuePair.invalidate")
        if flag & ~c.SHMND_INVALIDATE_FLAGS:
            self.refuse("invalidate", Status.INVALID_PARAMETER_3, None, flags)
        if not hasattr(memory_window, "_check_invalidate"):
            raise error(Status.INVALID_PARAMETER_2, "QueuePair.invalidate",
                        f"{type(memory_window).__name__} is no MemoryWindow")
        memory_window._check_invalidate(self)
        self._checked_connected("invalidate")
        outcome, token = memory_window._invalidate(self)
        self._window(c.SHMND_INVALIDATE, token, outcome, context, flag)

    def _checked_connected(self, method):
        cdef uint32_t status
        if self.born != forks:
            self._refuse_in_child(method)
        status = self.check_connected()
        if status:
            self.refuse(method, status, None, 0)

    cdef uint32_t check_connected(self) except? 0xffffffff:
        """Is there a connection, and room for one more request? Gives the status of the call."""
        cdef uint32_t status = c.shmnd_check_connected(&self.q)
        if status and self.made_room(status):
            status = c.shmnd_check_connected(&self.q)
        return status

    cdef bint made_room(self, uint32_t status) except -1:
        """After NO_MORE_ENTRIES: see what has completed by now. An entry is free then, although
        its result was not taken yet; tells whether one is."""
        if status != _FULL or self.q.link.mine == NULL:
            return False
        self.settle()
        return self.q.wq_tail - self.q.wq_head < self.q.wq_depth

    cdef _window(self, uint32_t type_, uint32_t token, uint32_t outcome, object context,
                 uint32_t flags):
        Py_INCREF(context)
        c.shmnd_post_window(&self.q, <void *>context, <unsigned char>type_, token, outcome, flags)
        self.advance()
        self.initiator_cq.pushed()

    def flush(self) -> None:
        """Cancel all outstanding requests of both queues. What has arrived is delivered first."""
        if self.born != forks:
            self._refuse_in_child("flush")
        c.shmnd_qp_flush(&self.q)
        if self.q.link.mine != NULL:
            self.settle()
        self.initiator_cq.pushed()
        self.receive_cq.pushed()

    cdef _refuse_in_child(self, str method):
        raise error(Status.DEVICE_REMOVED, f"{self.title}.{method}", IN_CHILD)

    cdef refuse_receive(self, uint32_t status, object sge):
        """Raise for a Receive that was refused."""
        if (status == Status.NO_MORE_ENTRIES
                and c.shmnd_receives_outstanding(&self.q.own) < self.q.own.depth):
            raise error(status, f"{self.title}.receive", _untaken(self.receive_cq))
        raise error(status, f"{self.title}.receive",
                    receive_reason(status, sge, self.q.own.stride, self.q.own.depth,
                                   self.q.max_transfer))

    cdef refuse(self, str method, uint32_t status, object sge, object flags):
        """Raise for a call that was refused, naming the value and the limit it broke."""
        items = [sge] if isinstance(sge, Sge) else list(sge or ())
        total = sum(item.length for item in items)
        if status == Status.DATA_OVERRUN:
            detail = f"{len(items)} scatter/gather elements, at most {self.q.wq_stride} are granted"
        elif status == Status.BUFFER_OVERFLOW and int(flags) & c.SHMND_OP_INLINE:
            detail = f"{total} bytes inline, at most {self.q.inline_size} on this queue pair"
        elif status == Status.BUFFER_OVERFLOW:
            detail = f"{total} bytes, at most {self.q.max_transfer} a request"
        elif (status == Status.NO_MORE_ENTRIES
                and self.q.wq_tail - self.q.wq_head < self.q.wq_depth):
            detail = _untaken(self.initiator_cq)
        elif status == Status.NO_MORE_ENTRIES:
            detail = (f"{self.q.wq_tail - self.q.wq_head} requests are outstanding, the queue "
                      f"holds {self.q.wq_depth}; reap completions and post again")
        elif status == Status.CONNECTION_INVALID:
            detail = f"the queue pair is {STATE_NAMES[self.q.state]}"
        else:
            detail = f"flags {int(flags):#x} outside {_LEGAL[method]:#x}"
        raise error(status, f"{self.title}.{method}", detail)

    def break_off(self) -> None:
        """Flush, and end the connection as an error would; the connector sees it at once."""
        if self.born != forks:
            self._refuse_in_child("flush")
        if self.q.state == c.SHMND_QP_CONNECTED:
            c.shmnd_qp_disconnect(&self.q)
            self.settle()
            self.initiator_cq.pushed()
            self.receive_cq.pushed()
        else:
            self.flush()

    # -- progress --

    cdef advance(self):
        """Carry out what can be carried out now."""
        cdef uint32_t p
        cdef int _
        for _ in range(_STEPS):
            p = c.shmnd_tx_advance(&self.q)
            if p == c.SHMND_IDLE:
                break
            self.serve(p, False)
        if self.q.rx_fault or self.q.going_down:
            self.settle()

    cdef int serve(self, uint32_t what, bint receiving) except -1:
        """Run or map what a poll could not."""
        if what == c.SHMND_NEEDS_MAP:
            self._map(receiving)
        elif receiving:
            self.run_rx()
        else:
            self.run_tx()
        return 0

    cdef run_tx(self):
        """Run a prepared copy; a long one without the interpreter's lock."""
        cdef bint long_ = (self.q.tx_job.to.total >= _LONG_COPY
                           or self.q.tx_job.to.remote or self.q.tx_job.from_.remote)
        if not self.q.tx_busy or self.q.tx_started:
            return
        self.q.tx_started = True
        if long_:
            self.peer.jobs += 1
            with nogil:
                c.shmnd_tx_run(&self.q)
            self.peer.jobs -= 1
        else:
            c.shmnd_tx_run(&self.q)
        c.shmnd_tx_ran(&self.q)

    cdef run_rx(self):
        """Copy chunks of a large message that arrives."""
        if self.q.rx_busy or self.q.rx_job.kind == c.SHMND_JOB_NONE:
            return
        self.q.rx_busy = True
        c.shmnd_rx_aim_anew(&self.q)
        if self.q.rx_job.chunks.length >= _LONG_COPY or self.q.rx_job.from_.remote:
            self.peer.jobs += 1
            with nogil:
                c.shmnd_rx_run(&self.q)
            self.peer.jobs -= 1
        else:
            c.shmnd_rx_run(&self.q)
        c.shmnd_rx_ran(&self.q)

    def _map(self, receiving):
        """A segment of the peer is not mapped here: take what the broker sent, once."""
        where = (receiving, self.q.wq_head, self.q.wq_next, self.q.in_.read_pos)
        if where != self.map_place:
            self.adapter.hub.sync()
            self.map_place = where
            return
        self.map_place = None
        # The peer names memory that it never announced.
        c.shmnd_fail_unmapped(&self.q, receiving)

    cdef settle(self):
        """Do all that can be done now, running jobs, until only others can go on."""
        cdef c.shmnd_todo todo
        cdef int _
        for _ in range(_STEPS):
            todo.what = c.SHMND_IDLE
            c.shmnd_qp_tend(&self.q, c.shmnd_coarse_ns(), &todo)
            if todo.what == c.SHMND_IDLE:
                return
            self.serve(todo.what, todo.receiving)

    def progress(self) -> None:
        """Look at the link once: what the other side did, and what follows from it."""
        if self.q.link.mine != NULL:
            self.settle()
