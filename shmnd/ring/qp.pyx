# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Queue pairs: posting, and the life of their connection.

Everything is done under the interpreter's lock but copies that are long enough to matter; see
engine.h for what other threads may do meanwhile.
"""

import operator
import time
import weakref

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport UINT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.memory cimport Registry, Sge, gather_sges
from shmnd.ring.peer cimport Link, PeerAdapter
from shmnd.ring.queue cimport CompletionCore, PairCore, ReceiveCore, forks

from shmnd.ring.queue import IN_CHILD, _receive_reason
from shmnd.status import Status, error

# No fewer scatter/gather elements are granted: programs ask for one and use two.
cdef uint32_t _LEAST_SGE = 4
# A copy of this length holds other threads up; a shorter one takes a few microseconds.
cdef uint64_t _LONG_COPY = 128 << 10
cdef uint32_t _FLAGS_SEND = 0x27
cdef uint32_t _FLAGS_READ = 0x03
cdef uint32_t _FLAGS_WRITE = 0x23
cdef uint32_t _FLAGS_BIND = 0x1B
cdef uint32_t _FLAGS_INVALIDATE = 0x03


cdef object _NO_FLAGS = 0


cdef inline uint32_t _flags(object flags) except? 0xffffffff:
    """Flags as the engine takes them; what is no 32-bit number is no legal flag either."""
    if flags is _NO_FLAGS:
        return 0
    if type(flags) is not int and not isinstance(flags, int):
        raise TypeError(f"flags must be an int, not {type(flags).__name__}")
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


cdef _copy_of_inline(object sge, str call):
    """The bytes that an INLINE list names, as one element.

    An element may name any memory by its bare address; a bad one is an error here, not a crash.
    """
    cdef c.shmnd_spans to, from_
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
        if c.shmnd_vm_copy(c.getpid(), &to, &from_) != 0:
            raise error(Status.ACCESS_VIOLATION, call,
                        f"{item!r}: these bytes cannot be read in this process")
        done += item.length
    return Sge(data, len(data), 0)


@cython.no_gc_clear
cdef class QueuePair(PairCore):
    """A pair of queues, connected to at most one peer in its life. Made by its adapter."""

    def __cinit__(self, *args, **kwargs):
        self.q.owner = <void *>self
        self.born = forks()

    def __init__(self, adapter, Registry registry, CompletionCore receive_cq,
                 CompletionCore initiator_cq, ReceiveCore srq, context, dict depths) -> None:
        self.adapter = adapter
        self.registry = registry
        self.receive_cq = receive_cq
        self.initiator_cq = initiator_cq
        self.srq = srq
        self.context = context
        self.q.context = <void *>context
        self.q.registry = &registry.raw
        self.q.receive_cq = &receive_cq.raw
        self.q.initiator_cq = &initiator_cq.raw
        self.q.max_transfer = adapter.limits.max_transfer_length
        self.q.max_read_sge = adapter.limits.max_read_sge
        self.q.rnr_ns = <uint64_t>(adapter.rnr_timeout * 1e9)
        self.q.inline_size = depths["inline_size"]
        self._make_sending(depths["initiator_depth"], depths["max_initiator_sge"])
        self._make_receiving(depths["receive_depth"], depths["max_receive_sge"])
        receive_cq.reserve(self.reserved_receive)
        try:
            initiator_cq.reserve(self.reserved_initiator)
            try:
                self.q.receive_bit = receive_cq.take_bit()
                self.q.initiator_bit = self.q.receive_bit
                if initiator_cq is not receive_cq:
                    self.q.initiator_bit = initiator_cq.take_bit()
            except BaseException:
                initiator_cq.unreserve(self.reserved_initiator)
                raise
        except BaseException:
            receive_cq.unreserve(self.reserved_receive)
            raise
        if srq is not None:
            srq.members.append(weakref.ref(self, srq.members.remove))
        self.joined = True

    def _make_sending(self, uint32_t depth, uint32_t sge):
        cdef uint32_t size = c.shmnd_pow2_at_least(depth + 1)
        self.q.wq_depth = depth
        self.q.wq_mask = size - 1
        self.q.wq_stride = max(sge, _LEAST_SGE)
        self.q.wqes = <c.shmnd_wqe *>calloc(size, sizeof(c.shmnd_wqe))
        self.q.wqe_sges = <c.shmnd_sge *>calloc(size * self.q.wq_stride, sizeof(c.shmnd_sge))
        self.q.wqe_inline = <unsigned char *>calloc(size, max(1, self.q.inline_size))
        self.reserved_initiator = depth + 1
        if self.q.wqes == NULL or self.q.wqe_sges == NULL or self.q.wqe_inline == NULL:
            raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_queue_pair",
                        f"no memory for {depth} initiator requests")

    def _make_receiving(self, uint32_t depth, uint32_t sge):
        cdef uint32_t size = c.shmnd_pow2_at_least(depth if depth else 1)
        self.extents = sge if sge else 1
        if self.srq is not None:
            self.q.shared = True
            self.q.receives = &self.srq.raw
            # What can have arrived when the connection ends.
            self.reserved_receive = c.SHMND_RING_SLOTS + 1
            return
        self.q.receives = &self.q.own
        self.q.own.depth = depth
        self.q.own.mask = size - 1
        self.q.own.stride = max(sge, _LEAST_SGE)
        self.q.own.entries = <c.shmnd_rqe *>calloc(size, sizeof(c.shmnd_rqe))
        self.q.own.sges = <c.shmnd_sge *>calloc(size * self.q.own.stride, sizeof(c.shmnd_sge))
        self.reserved_receive = depth + 1
        if self.q.own.entries == NULL or self.q.own.sges == NULL:
            raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_queue_pair",
                        f"no memory for {depth} receives")

    # -- posting --

    def send(self, sge, context=None, flags=0) -> None:
        """Send a message to the peer, who must have a Receive posted for it."""
        cdef c.shmnd_sge list_[16]
        cdef c.cbool kept
        cdef uint32_t flag = _flags(flags)
        cdef uint32_t n, status
        if self.born != forks():
            self._refuse_in_child("send")
        if flag & ~_FLAGS_SEND:
            self.refuse("send", Status.INVALID_PARAMETER_4, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, "QueuePair.send")
        n = gather_sges(sge, list_, "QueuePair.send", self.q.wq_stride)
        status = c.shmnd_post_send(&self.q, <void *>context, list_, n, flag, &kept)
        if status:
            self.refuse("send", status, sge, flags)
        if kept:
            Py_INCREF(context)
        if self.q.wq_head != self.q.wq_tail:
            self.advance()
        self.initiator_cq.pushed()

    def receive(self, sge, context=None) -> None:
        """Post a receive: the next message without one goes into its buffers."""
        cdef c.shmnd_sge list_[16]
        cdef uint32_t n, status
        if self.born != forks():
            self._refuse_in_child("receive")
        if self.q.shared:
            raise error(Status.INVALID_DEVICE_REQUEST, "QueuePair.receive",
                        "this queue pair takes from a shared receive queue: post there")
        n = gather_sges(sge, list_, "QueuePair.receive", self.q.own.stride)
        status = c.shmnd_post_receive(&self.q, <void *>context, list_, n)
        if status:
            raise error(status, "QueuePair.receive",
                        _receive_reason(status, sge, self.q.own.stride, self.q.own.depth,
                                        self.q.max_transfer))
        Py_INCREF(context)
        if self.q.state == c.SHMND_QP_DOWN or self.q.rx_stalled:
            if self.q.rx_stalled:
                c.shmnd_qp_activate(&self.q)
            self.receive_cq.pushed()

    def read(self, sge, remote_address, remote_token, context=None, flags=0) -> None:
        """Read the peer's memory into registered memory here."""
        self._rdma(c.SHMND_READ, "read", sge, remote_address, remote_token, context, flags)

    def write(self, sge, remote_address, remote_token, context=None, flags=0) -> None:
        """Write registered memory into the peer's."""
        self._rdma(c.SHMND_WRITE, "write", sge, remote_address, remote_token, context, flags)

    cdef _rdma(self, uint32_t type_, str method, object sge, object remote_address,
               object remote_token, object context, object flags):
        cdef c.shmnd_sge list_[16]
        cdef c.cbool kept
        cdef uint32_t flag = _flags(flags)
        cdef uint32_t n, status, token
        cdef uint64_t address
        if self.born != forks():
            self._refuse_in_child(method)
        address = _number(remote_address, UINT64_MAX)
        token = <uint32_t>_number(remote_token, 0xFFFFFFFF)
        if flag & ~(_FLAGS_READ if type_ == c.SHMND_READ else _FLAGS_WRITE):
            self.refuse(method, Status.INVALID_PARAMETER_6, None, flags)
        if flag & c.SHMND_OP_INLINE:
            sge = self._inline(sge, "QueuePair.write")
        n = gather_sges(sge, list_, f"QueuePair.{method}", self.q.wq_stride)
        status = c.shmnd_post_rdma(&self.q, <void *>context, <unsigned char>type_, list_, n,
                                   address, token, flag, &kept)
        if status:
            self.refuse(method, status, sge, flags)
        if kept:
            Py_INCREF(context)
        if self.q.wq_head != self.q.wq_tail:
            self.advance()
        self.initiator_cq.pushed()

    def _inline(self, sge, call):
        """Make sure that an INLINE list can be read: registered memory, a buffer, or copied."""
        items = [sge] if isinstance(sge, Sge) else [] if sge is None else list(sge)
        if sum(item.length for item in items) > self.q.inline_size:
            return sge if len(items) <= 16 else items[:16]  # refused by its length
        for item in items:
            if len(items) > 16 or ((<Sge>item).owner is None and not self.registry.covers(
                    item.token, item.address, item.length)):
                return _copy_of_inline(items, call)
        return sge

    def bind(self, memory_region, memory_window, address, length, context=None, flags=0) -> None:
        """Make a range of a region accessible to the peer through a window.

        The window's token is valid when this returns.
        """
        cdef uint32_t flag = _flags(flags)
        if flag & ~_FLAGS_BIND:
            self.refuse("bind", Status.INVALID_PARAMETER_6, None, flags)
        memory_window._check_bind(self, memory_region, address, length, flag)
        status = self._checked_connected("bind")
        outcome, token = memory_window._bind(self, memory_region, address, length, flag)
        self._window(c.SHMND_BIND, token, outcome, context, flag)

    def invalidate(self, memory_window, context=None, flags=0) -> None:
        """End the peer's access through a window. Final when it completes."""
        cdef uint32_t flag = _flags(flags)
        if flag & ~_FLAGS_INVALIDATE:
            self.refuse("invalidate", Status.INVALID_PARAMETER_3, None, flags)
        memory_window._check_invalidate(self)
        self._checked_connected("invalidate")
        outcome, token = memory_window._invalidate(self)
        self._window(c.SHMND_INVALIDATE, token, outcome, context, flag)

    def _checked_connected(self, method):
        cdef uint32_t status
        if self.born != forks():
            self._refuse_in_child(method)
        status = c.shmnd_check_connected(&self.q)
        if status:
            self.refuse(method, status, None, 0)

    cdef _window(self, uint32_t type_, uint32_t token, uint32_t outcome, object context,
                 uint32_t flags):
        Py_INCREF(context)
        c.shmnd_post_window(&self.q, <void *>context, <unsigned char>type_, token, outcome, flags)
        self.advance()
        self.initiator_cq.pushed()

    def flush(self) -> None:
        """Cancel all outstanding requests of both queues. What has arrived is delivered first."""
        if self.born != forks():
            self._refuse_in_child("flush")
        c.shmnd_qp_flush(&self.q)
        if self.q.link.mine != NULL:
            self.settle()
        self.initiator_cq.pushed()
        self.receive_cq.pushed()

    cdef _refuse_in_child(self, str method):
        raise error(Status.DEVICE_REMOVED, f"QueuePair.{method}", IN_CHILD)

    cdef refuse(self, str method, uint32_t status, object sge, object flags):
        """Raise for a call that was refused, naming the value and the limit it broke."""
        legal = {"send": 0x27, "read": 0x03, "write": 0x23, "bind": 0x1B, "invalidate": 0x03}
        items = [sge] if isinstance(sge, Sge) else list(sge or ())
        total = sum(item.length for item in items)
        if status == Status.DATA_OVERRUN:
            detail = f"{len(items)} scatter/gather elements, at most {self.q.wq_stride} are granted"
        elif status == Status.BUFFER_OVERFLOW and int(flags) & c.SHMND_OP_INLINE:
            detail = f"{total} bytes inline, at most {self.q.inline_size} on this queue pair"
        elif status == Status.BUFFER_OVERFLOW:
            detail = f"{total} bytes, at most {self.q.max_transfer} a request"
        elif status == Status.NO_MORE_ENTRIES:
            detail = (f"{self.q.wq_tail - self.q.wq_head} requests are outstanding, the queue "
                      f"holds {self.q.wq_depth}; reap completions and post again")
        elif status == Status.CONNECTION_INVALID:
            detail = f"the queue pair is {_STATE_NAMES[self.q.state]}"
        else:
            detail = f"flags {int(flags):#x} outside {legal[method]:#x}"
        raise error(status, f"QueuePair.{method}", detail)

    # -- progress --

    cdef advance(self):
        """Carry out what can be carried out now."""
        cdef uint32_t p
        while True:
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
        self.q.tx_runs += 1
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
        self.q.rx_runs += 1
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
        while True:
            todo.what = c.SHMND_IDLE
            c.shmnd_qp_tend(&self.q, c.shmnd_now_ns(), &todo)
            if todo.what == c.SHMND_IDLE:
                return
            self.serve(todo.what, todo.receiving)

    def progress(self) -> None:
        """Look at the link once: what the other side did, and what follows from it."""
        if self.q.link.mine != NULL:
            self.settle()

    # -- connecting: called by connectors --

    @property
    def state(self) -> int:
        """One of `shmnd.tie.QpState`."""
        return self.q.state

    @property
    def peer_state(self) -> int:
        """What the other side has written into the link, or how it ended."""
        return c.shmnd_their_state(&self.q) if self.q.link.mine != NULL else 0

    def describe(self) -> dict:
        """What the other end must know."""
        return {
            "receives": 0 if self.q.shared else self.q.own.depth,
            "extents": self.extents,
            "srq": bool(self.q.shared),
            "rbell": list(self.receive_cq.bell_place),
            "rbit": self.q.receive_bit,
            "ibell": list(self.initiator_cq.bell_place),
            "ibit": self.q.initiator_bit,
        }

    @property
    def connection(self) -> int:
        """The number of its connection, in grants."""
        return self.q.link.connection

    def begin_connect(self) -> None:
        """It belongs to an attempt now."""
        if self.q.state != c.SHMND_QP_IDLE:
            raise error(Status.CONNECTION_ACTIVE, "Connector.connect",
                        f"the queue pair is {_STATE_NAMES[self.q.state]}")
        self.q.state = c.SHMND_QP_CONNECTING

    def end_connect(self) -> None:
        """The attempt failed before there was a link."""
        if self.q.state == c.SHMND_QP_CONNECTING:
            self.q.state = c.SHMND_QP_IDLE

    def set_read_limits(self, inbound: int, outbound: int) -> None:
        """Fix what was negotiated; comes before `attach`."""
        self.q.outbound_read_limit = outbound

    def attach(self, Link link, PeerAdapter peer, remote, active: bool) -> None:
        """Bind it to a link. Receives that are posted are shown to the other side."""
        cdef c.shmnd_link_end *end = &self.q.link
        cdef unsigned char *base = link.segment.base
        cdef int me = link.me, it = 1 - link.me
        cdef uint64_t pos
        for key in ("rbit", "ibit"):
            if not isinstance(remote.get(key), int) or not 0 <= remote[key] < c.SHMND_READY_BITS:
                raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                            f"the peer describes itself with {key}={remote.get(key)!r}")
        end.receive_bell = peer.bell(remote["rbell"])
        end.initiator_bell = peer.bell(remote["ibell"])
        end.receive_bit, end.initiator_bit = remote["rbit"], remote["ibit"]
        end.receive_rung = end.initiator_rung = 0
        end.their_srq = bool(remote.get("srq"))
        end.connection = link.connection
        end.mine = <c.shmnd_side *>(base + link.map.side_off[me])
        end.theirs = <c.shmnd_side *>(base + link.map.side_off[it])
        end.my_posted = base + link.map.posted_off[me]
        end.my_posted_mask, end.my_posted_stride = \
            link.map.posted_mask[me], link.map.posted_stride[me]
        end.my_extents = self.extents
        end.their_posted = base + link.map.posted_off[it]
        end.their_posted_mask, end.their_posted_stride = \
            link.map.posted_mask[it], link.map.posted_stride[it]
        end.their_extents = remote["extents"]
        self.q.out.ring = base + link.map.ring_off[me]
        self.q.out.read_pos = c.shmnd_read_pos_of(end.theirs)
        self.q.out.write_pos = 0
        self.q.out.room_pos = c.SHMND_RING_SLOTS
        self.q.in_.ring = base + link.map.ring_off[it]
        self.q.in_.read_pos_shared = c.shmnd_read_pos_of(end.mine)
        self.q.in_.read_pos = self.q.in_.returned_pos = 0
        self.q.messages = self.q.credit = self.q.viewed = self.q.taken = 0
        self.q.seen_revision = self.q.seen_cancelled = 0
        self.q.below = self.q.recalled = 0
        self.q.cancelled = self.q.revision = 0
        self.q.posted_base = self.q.own.matched
        self.q.peer = &peer.raw
        self.link = link
        self.peer = peer
        self.registry.add_qp(&self.q)
        self.q.state = c.SHMND_QP_ATTACHED
        c.shmnd_put32(&end.mine.reaches, 1 if peer.raw.vm else 2)
        for pos in range(self.q.own.matched, self.q.own.posted):
            c.shmnd_rx_publish(&self.q, pos)
        c.shmnd_cq_join(&self.receive_cq.raw, &self.q)
        c.shmnd_cq_join(&self.initiator_cq.raw, &self.q)

    def open(self) -> None:
        """The active side completes: both ends are connected from here on."""
        c.shmnd_put32(&self.q.link.mine.opened, 1)
        self.q.state = c.SHMND_QP_CONNECTED
        c.shmnd_show_state(&self.q, c.SHMND_LINK_OPEN)

    def abandon(self, rejected: bool) -> None:
        """Tell the other side through the link that nothing comes of it."""
        if self.q.link.mine != NULL and self.q.state == c.SHMND_QP_ATTACHED:
            c.shmnd_close_unopened(&self.q, c.SHMND_LINK_REJECTED if rejected
                                   else c.SHMND_LINK_CLOSED)

    def detach(self) -> None:
        """Let go of the link of a failed attempt. Posted receives stay."""
        cdef uint64_t pos
        if self.q.link.mine == NULL:
            self.end_connect()
            return
        if self.q.state != c.SHMND_QP_ATTACHED:
            return
        self.abandon(False)
        # The other side may just be placing a message that will never count.
        while not c.shmnd_quiet(&self.q):
            time.sleep(50e-6)
        c.shmnd_unpublish_all(&self.q)
        self._leave()
        self.q.state = c.SHMND_QP_IDLE

    def disconnect(self) -> bool:
        """End the connection; True when nothing of it is left to do."""
        if self.q.state == c.SHMND_QP_CONNECTED:
            c.shmnd_qp_go_down(&self.q, c.SHMND_LINK_CLOSED, Status.CANCELED)
        if self.q.state == c.SHMND_QP_DOWN:
            self.q.state = c.SHMND_QP_CLOSED
        return self.disconnect_step()

    def disconnect_step(self) -> bool:
        """Go on with `disconnect`; True when nothing is left to do."""
        if self.q.going_down:
            self.settle()
        if self.q.going_down:
            return False
        if self.q.state == c.SHMND_QP_CLOSED and self.q.link.mine != NULL:
            self._leave()
        self.initiator_cq.pushed()
        self.receive_cq.pushed()
        return True

    cdef _leave(self):
        """Give the link back: nothing refers into it any more."""
        self.registry.remove_qp(&self.q)
        c.shmnd_cq_leave(&self.receive_cq.raw, &self.q)
        c.shmnd_cq_leave(&self.initiator_cq.raw, &self.q)
        memset(&self.q.link, 0, sizeof(self.q.link))
        self.link = None

    def on_release(self, callback) -> None:
        """Have a function called once when the queue pair is closed or dies."""
        self.release_callback = callback

    # -- the end --

    def close(self) -> None:
        """Release it: a connection ends, what is outstanding is cancelled."""
        if self.released or not self.joined:
            return
        self.released = True
        if self.born != forks():
            self.release_callback = None  # the connection is the parent's
            return
        callback, self.release_callback = self.release_callback, None
        if self.q.state == c.SHMND_QP_ATTACHED:
            self.detach()
        elif self.q.state == c.SHMND_QP_CONNECTING:
            self.q.state = c.SHMND_QP_IDLE
        if self.q.state == c.SHMND_QP_IDLE:
            c.shmnd_qp_flush(&self.q)
            self.q.state = c.SHMND_QP_CLOSED
        if callback is not None:
            try:
                callback()
            except Exception:
                pass  # whoever listens must not keep a queue pair from ending
        if self.disconnect():
            self._give_back()
        else:
            self.adapter.hub.linger(self._linger)

    def _linger(self) -> bool:
        """The rest of `close`, while the other side finishes a copy."""
        if not self.disconnect_step():
            return False
        self._give_back()
        return True

    def _give_back(self):
        self.receive_cq.keep(self.context)
        self.initiator_cq.keep(self.context)
        self.receive_cq.unreserve(self.reserved_receive)
        self.initiator_cq.unreserve(self.reserved_initiator)
        self.receive_cq.give_bit(self.q.receive_bit)
        if self.initiator_cq is not self.receive_cq:
            self.initiator_cq.give_bit(self.q.initiator_bit)
        self.receive_cq.pushed()
        self.initiator_cq.pushed()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __del__(self):
        try:
            self.close()
        except Exception:
            pass  # the interpreter is ending

    def __dealloc__(self):
        free(self.q.wqes)
        free(self.q.wqe_sges)
        free(self.q.wqe_inline)
        free(self.q.own.entries)
        free(self.q.own.sges)

    def __repr__(self) -> str:
        return f"<QueuePair {_STATE_NAMES[self.q.state]} context={self.context!r}>"


_STATE_NAMES = ("not connected", "connecting", "not yet connected", "connected",
                "no longer connected", "disconnected")
