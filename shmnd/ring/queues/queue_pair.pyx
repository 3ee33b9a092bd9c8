# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Queue pairs: making them, connecting them, letting them go. Posting is in `posting`."""

import time
import weakref

cimport cython
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.shared_memory.registry cimport Registry, give_back_spent
from shmnd.ring.process.peer cimport Link, PeerAdapter
from shmnd.ring.queues.posting cimport PostingCore
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.shared_receive_queue cimport ReceiveCore
from shmnd.ring.shared_memory.segment cimport Segment
from shmnd.ring.process.counters cimport put_address

from shmnd.common.closing import refuse_copy
from shmnd.ring.queues.posting import STATE_NAMES
from shmnd.status import Status, error
from shmnd.common.steps import step
from shmnd.common.arguments import within

# No fewer scatter/gather elements are granted: programs ask for one and use two.
cdef uint32_t _LEAST_SGE = 4
# What one may be asked to hold, whoever asks.
cdef dict _MOST = {
    "initiator_depth": 1 << 16, "max_initiator_sge": c.SHMND_MAX_SGE, "inline_size": 1 << 16,
    "receive_depth": 1 << 16, "max_receive_sge": c.SHMND_MAX_SGE,
}


@cython.no_gc_clear
cdef class QueuePair(PostingCore):
    """A pair of queues, connected to at most one peer in its life. Made by its adapter."""

    def __init__(self, adapter, Registry registry not None, CompletionCore receive_cq not None,
                 CompletionCore initiator_cq not None, ReceiveCore srq, context,
                 dict depths not None) -> None:
        if self.registry is not None:
            raise TypeError("a queue pair is made once")
        receive_cq.usable("__init__")
        initiator_cq.usable("__init__")
        if srq is not None:
            srq.usable("__init__")
        if not all(0 <= depths[what] <= most for what, most in _MOST.items()):
            raise TypeError("a queue pair is made by its adapter")
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
        self.q.max_transfer = adapter._limits.max_transfer_length
        self.q.max_read_sge = adapter._limits.max_read_sge
        # A coarse clock measures it, and may be a step ahead: no Send fails too early.
        self.q.rnr_ns = <uint64_t>(adapter._rnr_timeout * 1e9) + c.SHMND_COARSE_STEP_NS
        self.q.target_fault = Status.ACCESS_VIOLATION
        self.q.inline_size = depths["inline_size"]
        self.counter_table = adapter._counter_table
        self.place = self.counter_table.take()
        cdef Segment page = self.place[0]
        self.q.counters = <c.shmnd_counters *>(page.base + <size_t>self.place[1])
        self._make_sending(depths["initiator_depth"], depths["max_initiator_sge"])
        self._make_receiving(depths["receive_depth"], depths["max_receive_sge"])
        self._counters(0, None)
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
        receive_cq.know(self)
        initiator_cq.know(self)
        if srq is not None:
            srq.members.append(weakref.ref(self, srq.members.remove))
            # Either queue takes messages when it is polled.
            receive_cq.feed_from(srq)
            initiator_cq.feed_from(srq)
        self.joined = True
        self.born = forks

    cdef _make_sending(self, uint32_t depth, uint32_t sge):
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

    cdef _make_receiving(self, uint32_t depth, uint32_t sge):
        cdef uint32_t size = c.shmnd_pow2_at_least(depth if depth else 1)
        self.extents = sge if sge else 1
        if self.srq is not None:
            self.q.shared = True
            self.q.receives = &self.srq.raw
            # What can have arrived when the connection ends.
            self.reserved_receive = c.SHMND_RING_USUAL + 2
            return
        self.q.receives = &self.q.own
        self.q.own.depth = depth
        self.q.own.mask = size - 1
        self.q.own.stride = max(sge, _LEAST_SGE)
        self.q.own.entries = <c.shmnd_rqe *>calloc(size, sizeof(c.shmnd_rqe))
        self.q.own.sges = <c.shmnd_sge *>calloc(size * self.q.own.stride, sizeof(c.shmnd_sge))
        # One that is under way besides, and what is told of a window it invalidated.
        self.reserved_receive = depth + 2
        if self.q.own.entries == NULL or self.q.own.sges == NULL:
            raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_queue_pair",
                        f"no memory for {depth} receives")

    # -- connecting: called by connectors. Safe in any state, as whatever Python can call --

    @property
    def _adapter(self) -> object:
        """The adapter that made it."""
        return self.adapter

    @property
    def _state(self) -> int:
        """One of `shmnd.handshake.queue_pair_link.QpState`."""
        return self.q.state

    @property
    def _peer_state(self) -> int:
        """What the other side has written into the link, or how it ended."""
        return c.shmnd_peer_state(&self.q) if self.q.link.mine != NULL else 0

    def _moved_from(self, int state) -> bool:
        """Whether a connector that saw this state may see something else; changes nothing."""
        if self.q.state != state or self.q.link.mine == NULL:
            return True
        if c.shmnd_peer_state(&self.q) > c.SHMND_LINK_OPEN:
            return True
        return state == c.SHMND_QP_ATTACHED and c.shmnd_relaxed32(&self.q.link.theirs.opened) != 0

    def _describe(self) -> dict:
        """What the other end must know."""
        self.usable("_describe")
        return {
            "receives": 0 if self.q.shared else self.q.own.depth,
            "extents": self.extents,
            "requests": self.q.wq_depth,
            "elements": self.q.wq_stride,
            "srq": bool(self.q.shared),
            "rbell": list(self.receive_cq.bell_place),
            "rbit": self.q.receive_bit,
            "ibell": list(self.initiator_cq.bell_place),
            "ibit": self.q.initiator_bit,
        }

    @property
    def _connection(self) -> int:
        """The number of its connection, in grants."""
        return self.q.link.connection

    @property
    def _serial(self) -> int:
        """The number of its connection in this process, for windows bound to it."""
        return self.q.serial

    def _begin_connect(self) -> None:
        """It belongs to an attempt now."""
        self.usable("_begin_connect")
        if self.q.state != c.SHMND_QP_IDLE:
            raise error(Status.CONNECTION_ACTIVE, "Connector.connect",
                        f"the queue pair is {STATE_NAMES[self.q.state]}")
        c.shmnd_qp_enter(&self.q, c.SHMND_QP_CONNECTING)

    def _end_connect(self) -> None:
        """The attempt failed before there was a link."""
        if self.q.state == c.SHMND_QP_CONNECTING:
            c.shmnd_qp_enter(&self.q, c.SHMND_QP_IDLE)

    def _set_read_limits(self, inbound: int, outbound: int) -> None:
        """Fix what was negotiated; comes before `_attach`."""
        self.q.outbound_read_limit = outbound

    def _attach(self, Link link not None, PeerAdapter peer not None, remote, active: bool,
                ends: tuple | None = None) -> None:
        """Bind it to a link. Receives that are posted are shown to the other side.

        `ends` are the addresses here and there, for those who look on.
        """
        cdef c.shmnd_link_end *end = &self.q.link
        cdef unsigned char *base
        cdef int me = link.me, it = 1 - link.me
        cdef uint64_t pos
        self.usable("_attach")
        if self.q.state != c.SHMND_QP_CONNECTING:
            raise error(Status.CONNECTION_INVALID, "QueuePair._attach",
                        f"the queue pair is {STATE_NAMES[self.q.state]}")
        if not link.fits(self._describe(), remote):
            raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                        "the link was made for another queue pair or another peer")
        base = link.segment.base
        for key in ("rbit", "ibit"):
            if not isinstance(remote.get(key), int) or not 0 <= remote[key] < c.SHMND_READY_BITS:
                raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                            f"the peer describes itself with {key}={remote.get(key)!r}")
        end.receive_bell = peer.bell(remote.get("rbell"))
        end.initiator_bell = peer.bell(remote.get("ibell"))
        end.receive_marks = peer.marks(remote.get("rbell"))
        end.initiator_marks = peer.marks(remote.get("ibell"))
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
        end.their_extents = link.shape.extents[it]
        end.my_listed = base + link.map.listed_off[me]
        end.my_listed_mask, end.my_listed_stride = \
            link.map.listed_mask[me], link.map.listed_stride[me]
        end.their_listed = base + link.map.listed_off[it]
        end.their_listed_mask, end.their_listed_stride = \
            link.map.listed_mask[it], link.map.listed_stride[it]
        end.their_elements = link.shape.elements[it]
        self.q.out.ring = base + link.map.ring_off[me]
        self.q.out.read_pos = c.shmnd_read_pos_of(end.theirs)
        self.q.out.write_pos = 0
        self.q.out.mask = link.map.ring_mask[me]
        self.q.out.room_pos = self.q.out.mask + 1
        self.q.in_.ring = base + link.map.ring_off[it]
        self.q.in_.read_pos_shared = c.shmnd_read_pos_of(end.mine)
        self.q.in_.mask = link.map.ring_mask[it]
        self.q.in_.read_pos = self.q.in_.returned_pos = 0
        self.q.messages = self.q.credit = self.q.viewed = self.q.taken = 0
        self.q.seen_revision = self.q.seen_cancelled = 0
        self.q.below = self.q.recalled = 0
        self.q.cancelled = self.q.revision = 0
        self.q.rx_lists = False
        self.q.posted_base = self.q.own.matched
        self.q.serial = self.registry.new_serial()
        self.q.peer = &peer.raw
        self.link = link
        self.peer = peer
        self.ends = ends
        self.registry.add_qp(&self.q)
        self._counters(c.SHMND_COUNTERS_ACTIVE if active else c.SHMND_COUNTERS_PASSIVE, ends)
        c.shmnd_qp_enter(&self.q, c.SHMND_QP_ATTACHED)
        c.shmnd_put32(&end.mine.reaches, 1 if peer.raw.vm else 2)
        for pos in range(self.q.own.matched, self.q.own.posted):
            c.shmnd_rx_publish(&self.q, pos)
        c.shmnd_cq_join(&self.receive_cq.raw, &self.q)
        c.shmnd_cq_join(&self.initiator_cq.raw, &self.q)
        step("pair-attached")

    cdef _counters(self, uint64_t role, tuple ends):
        """Begin to count anew: for this connection, or until there is one."""
        cdef c.shmnd_counters *counters = self.q.counters
        c.shmnd_counters_clear(counters)
        c.shmnd_put64(&counters.state, self.q.state)
        c.shmnd_put64(&counters.receive_depth,
                      c.SHMND_COUNTERS_SHARED if self.q.shared else self.q.own.depth)
        c.shmnd_put64(&counters.initiator_depth, self.q.wq_depth)
        c.shmnd_put64(&counters.role, role)
        if role:
            c.shmnd_put64(&counters.connection, self.q.link.connection)
            c.shmnd_put64(&counters.peer_pid, self.peer.pid)
        if ends is not None:
            put_address(counters.local, ends[0])
            put_address(counters.remote, ends[1])
        c.shmnd_count_posted(&self.q)
        self.counter_table.name(counters)

    def _open(self) -> None:
        """The active side completes: both ends are connected from here on."""
        self.usable("_open")
        if self.q.state != c.SHMND_QP_ATTACHED:
            raise error(Status.CONNECTION_INVALID, "QueuePair._open",
                        f"the queue pair is {STATE_NAMES[self.q.state]}")
        c.shmnd_put32(&self.q.link.mine.opened, 1)
        step("opened")
        c.shmnd_qp_enter(&self.q, c.SHMND_QP_CONNECTED)
        c.shmnd_show_state(&self.q, c.SHMND_LINK_OPEN)
        step("connected")

    def _abandon(self, rejected: bool) -> None:
        """Tell the other side through the link that nothing comes of it."""
        self.usable("_abandon")
        if self.q.link.mine != NULL and self.q.state == c.SHMND_QP_ATTACHED:
            c.shmnd_close_unopened(&self.q, c.SHMND_LINK_REJECTED if rejected
                                   else c.SHMND_LINK_CLOSED)

    def _detach(self) -> None:
        """Let go of the link of a failed attempt. Posted receives stay."""
        self.usable("_detach")
        if self.q.link.mine == NULL:
            self._end_connect()
            return
        if self.q.state != c.SHMND_QP_ATTACHED:
            return
        self._abandon(False)
        # The other side may just be placing a message that will never count.
        deadline = c.shmnd_now_ns() + c.SHMND_PATIENCE_NS
        while not c.shmnd_quiet(&self.q) and c.shmnd_now_ns() < deadline:
            time.sleep(50e-6)
        c.shmnd_unpublish_all(&self.q)
        self._leave()
        c.shmnd_qp_enter(&self.q, c.SHMND_QP_IDLE)
        self._counters(0, None)

    def _disconnect(self) -> bool:
        """End the connection; True when nothing of it is left to do."""
        self.usable("_disconnect")
        if self.q.state == c.SHMND_QP_CONNECTED:
            c.shmnd_qp_disconnect(&self.q)
        if self.q.state == c.SHMND_QP_DOWN:
            c.shmnd_qp_enter(&self.q, c.SHMND_QP_CLOSED)
        return self._disconnect_step()

    def _disconnect_step(self) -> bool:
        """Go on with `_disconnect`; True when nothing is left to do."""
        self.usable("_disconnect_step")
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
        """Release the link: nothing refers into it any more."""
        self.registry.remove_qp(&self.q)
        c.shmnd_cq_leave(&self.receive_cq.raw, &self.q)
        c.shmnd_cq_leave(&self.initiator_cq.raw, &self.q)
        memset(&self.q.link, 0, sizeof(self.q.link))
        self.q.held = self.q.held_receives = False
        self.link = None

    def _on_release(self, callback) -> None:
        """Have a function called once when the queue pair is closed or dies."""
        self.release_callback = callback

    # -- the end --

    # -- a peer's memory, mapped --

    def view(self, remote_address, remote_token, nbytes):
        """Return a read-only memoryview of a peer's memory of `allocate(peers="read")`.

        It is checked as a Read is, and copies nothing. What it shows later is its owner's
        business; the mapping stays until the last view of it is gone, also after Deregister,
        the end of the connection or the death of the owner.
        """
        cdef uint64_t offset
        call = "QueuePair.view"
        if self.born != forks:
            self._refuse_in_child("view")
        address = within(call, 1, "remote_address", remote_address, 0, (1 << 64) - 1)
        token = within(call, 2, "remote_token", remote_token, 0, (1 << 32) - 1)
        nbytes = within(call, 3, "nbytes", nbytes, 1, self.adapter._limits.max_registration_size)
        segment = self.mapped(address, <uint32_t>token, nbytes, &offset)
        return memoryview(segment)[offset:offset + nbytes]

    cdef Segment mapped(self, uint64_t address, uint32_t token, uint64_t nbytes, uint64_t *offset):
        """Return the segment that holds a peer's memory, for views of it by compiled code.

        Valid from `base + offset` on for `nbytes`, for as long as the segment is referred to.
        """
        cdef c.shmnd_target target
        cdef const c.shmnd_grant *grant
        cdef Segment segment
        cdef int attempt
        call = "QueuePair.view"
        if self.q.state == c.SHMND_QP_ATTACHED:
            c.shmnd_qp_look(&self.q)
        if self.q.state != c.SHMND_QP_CONNECTED:
            raise error(Status.CONNECTION_INVALID, call,
                        f"the queue pair is {STATE_NAMES[self.q.state]}")
        if self.q.outbound_read_limit == 0:
            raise error(Status.INVALID_DEVICE_REQUEST, call,
                        "the connection has an outbound read limit of 0; connect with one")
        for attempt in range(2):
            grant = c.shmnd_peer_grant(&self.q, token)
            if grant != NULL:
                if not c.shmnd_grant_read(grant, token, c.SHMND_ALLOW_READ, address, nbytes,
                                          self.q.link.connection, &target):
                    raise error(Status.ACCESS_VIOLATION, call,
                                f"token {token:#x} grants no Read of {nbytes} bytes at "
                                f"{address:#x}")
                if target.segment == c.SHMND_PRIVATE_MEMORY:
                    raise _no_view(nbytes, address, "private memory of the peer")
                segment = self.peer.data_segment(target.segment)
                if segment is not None:
                    if segment.writable:
                        raise _no_view(nbytes, address, "in memory that peers can write")
                    if not c.shmnd_within(target.offset, nbytes, 0, segment.size):
                        break
                    offset[0] = target.offset
                    return segment
            if attempt == 0:
                self.adapter._engine.sync()  # it may be announced and not yet mapped here
        raise error(Status.ACCESS_VIOLATION, call,
                    f"the peer announced no memory of {nbytes} bytes at {address:#x}")

    def close(self) -> None:
        """Release it: a connection ends, what is outstanding is cancelled."""
        if self.released or not self.joined:
            return
        self.released = True
        if self.born != forks:
            self.release_callback = None  # the connection is the parent's
            return
        callback, self.release_callback = self.release_callback, None
        if self.q.state == c.SHMND_QP_ATTACHED:
            self._detach()
        elif self.q.state == c.SHMND_QP_CONNECTING:
            c.shmnd_qp_enter(&self.q, c.SHMND_QP_IDLE)
        if self.q.state == c.SHMND_QP_IDLE:
            c.shmnd_qp_flush(&self.q)
            c.shmnd_qp_enter(&self.q, c.SHMND_QP_CLOSED)
        if callback is not None:
            try:
                callback()
            except Exception:
                pass  # whoever listens must not keep a queue pair from ending
        if self._disconnect():
            self._give_back()
        else:
            self.adapter._engine.pending_operations.linger(self._linger)

    def _linger(self) -> bool:
        """The rest of `close`, while the other side finishes a copy."""
        if not self.released or not self._disconnect_step():
            return False
        self._give_back()
        return True

    cdef _give_back(self):
        if self.given_back:
            return
        self.given_back = True
        self.receive_cq.keep(self.context)
        self.initiator_cq.keep(self.context)
        self.receive_cq.unreserve(self.reserved_receive)
        self.initiator_cq.unreserve(self.reserved_initiator)
        self.receive_cq.give_bit(self.q.receive_bit)
        if self.initiator_cq is not self.receive_cq:
            self.initiator_cq.give_bit(self.q.initiator_bit)
        self.receive_cq.pushed()
        self.initiator_cq.pushed()

    def __reduce_ex__(self, protocol):
        refuse_copy(self)

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
        if self.q.registry != NULL:
            give_back_spent(self.q.registry)  # some may be its own
        free(self.q.wqes)
        free(self.q.wqe_sges)
        free(self.q.wqe_inline)
        free(self.q.own.entries)
        free(self.q.own.sges)
        if self.q.counters != NULL:
            self.counter_table.give_back(self.place, self.q.counters)

    def __repr__(self) -> str:
        cdef list said = [STATE_NAMES[self.q.state]]
        if self.peer is not None:
            said[0] += " to" if self.q.state == c.SHMND_QP_CONNECTED else ","
            if self.ends is not None:
                said[0] += f" {_written(self.ends[1])} in"
            said[0] += f" process {self.peer.pid}"
        said.append(f"{c.shmnd_receives_outstanding(&self.q.own)} of {self.q.own.depth} receives"
                    if self.srq is None else f"receives of {self.srq!r}")
        said.append(f"{self.q.wq_tail - self.q.wq_head} of {self.q.wq_depth} requests outstanding")
        if self.context is not None:
            said.append(f"context={self.context!r}")
        return f"<{self.title} {', '.join(said)}>"


cdef str _written(tuple address):
    """Write an address as people do."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _no_view(nbytes, address, why):
    """Make the error of memory that can be read and not mapped."""
    return error(Status.NOT_SUPPORTED, "QueuePair.view",
                 f"{nbytes} bytes at {address:#x} are {why}; its owner makes memory for views by "
                 'Adapter.allocate(nbytes, peers="read")')
