# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Connecting and disconnecting a queue pair; its methods are called by connectors."""

import time

cimport cython
from libc.stdint cimport uint64_t
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.process.counters cimport put_address
from shmnd.ring.process.peer cimport (
    INITIATOR_BELL, INITIATOR_BIT, PARTS, RECEIVE_BELL, RECEIVE_BIT, SHARED, Link, PeerAdapter,
)
from shmnd.ring.queues.posting cimport PostingCore
from shmnd.ring.queues.reasons cimport state_of

from shmnd.status import Status, error
from shmnd.common.steps import step


@cython.no_gc_clear
cdef class ConnectionCore(PostingCore):
    """A queue pair from its attempt to connect to the end of its connection.

    Python can call these methods on any queue pair in any state: each checks the state itself.
    """

    @property
    def _adapter(self) -> object:
        """The adapter that made it."""
        return self.adapter

    @property
    def _state(self) -> int:
        """One of `shmnd.handshake.queue_pair_link.QpState`."""
        return self.q.state

    @property
    def _peer_gave_up(self) -> bool:
        """The other side has ended, or died, and was never connected.

        `opened` is read after the state: a side that opened and then closed stored it before.
        """
        if self.q.link.mine == NULL or c.shmnd_peer_state(&self.q) <= c.SHMND_LINK_OPEN:
            return False
        return c.shmnd_relaxed32(&self.q.link.theirs.opened) == 0

    def _moved_from(self, int state) -> bool:
        """Return whether the state may differ from `state`, which a connector saw. Changes
        nothing.
        """
        return self.moved_from(state)

    cdef bint moved_from(self, int state) noexcept:
        if <int>self.q.state != state or self.q.link.mine == NULL:
            return True
        if c.shmnd_peer_state(&self.q) > c.SHMND_LINK_OPEN:
            return True
        return state == c.SHMND_QP_ATTACHED and c.shmnd_relaxed32(&self.q.link.theirs.opened) != 0

    def _describe(self) -> tuple:
        """Return the description that the other end needs: its numbers in the order of `Part`."""
        self.usable("_describe")
        return (
            0 if self.q.shared else self.q.own.depth,
            self.extents,
            self.q.wq.depth,
            self.q.wq.stride,
            1 if self.q.shared else 0,
            self.q.receive_bit,
            self.q.initiator_bit,
            *self.receive_cq.bell_place,
            *self.initiator_cq.bell_place,
        )

    @property
    def _connection(self) -> int:
        """The number of its connection, as in grants."""
        return self.q.link.connection

    @property
    def _serial(self) -> int:
        """The number of its connection in this process, for windows bound to it."""
        return self.q.serial

    def _begin_connect(self) -> None:
        """Begin a connection attempt."""
        self.usable("_begin_connect")
        if self.q.state != c.SHMND_QP_IDLE:
            raise error(Status.CONNECTION_ACTIVE, "Connector.connect",
                        f"the queue pair is {state_of(self)}")
        c.shmnd_qp_set_state(&self.q, c.SHMND_QP_CONNECTING)

    def _end_connect(self) -> None:
        """End an attempt that failed before there was a link."""
        if self.q.state == c.SHMND_QP_CONNECTING:
            c.shmnd_qp_set_state(&self.q, c.SHMND_QP_IDLE)

    def _set_outbound_read_limit(self, limit: int) -> None:
        """Set the negotiated limit; called before `_attach`."""
        self.q.outbound_read_limit = limit

    def _attach(self, Link link not None, PeerAdapter peer not None, tuple remote not None,
                active: bool, ends: tuple | None = None) -> None:
        """Attach it to a link, and advertise the posted receives to the other side.

        `ends` are the local and the remote address, for the counters and the representation.
        """
        cdef uint64_t pos
        self.usable("_attach")
        if self.q.state != c.SHMND_QP_CONNECTING:
            raise error(Status.CONNECTION_INVALID, "QueuePair._attach",
                        f"the queue pair is {state_of(self)}")
        if not link.fits(self._describe(), remote):
            raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                        "the link was made for another queue pair or another peer")
        self._take_description(peer, remote)
        self._locate_parts(link)
        self._reset_positions()
        self.q.serial = self.registry.new_serial()
        self.q.peer = &peer.raw
        self.link = link
        self.peer = peer
        self.ends = ends
        self.registry.add_qp(&self.q)
        self._reset_counters(c.SHMND_COUNTERS_ACTIVE if active else c.SHMND_COUNTERS_PASSIVE, ends)
        c.shmnd_qp_set_state(&self.q, c.SHMND_QP_ATTACHED)
        c.shmnd_put32(&self.q.link.mine.reaches, 1 if peer.raw.vm else 2)
        for pos in range(self.q.own.matched, self.q.own.posted):
            c.shmnd_rx_advertise(&self.q, pos)
        c.shmnd_cq_add_qp(&self.receive_cq.raw, &self.q)
        c.shmnd_cq_add_qp(&self.initiator_cq.raw, &self.q)
        step("pair-attached")

    cdef _take_description(self, PeerAdapter peer, tuple remote):
        """Store the bells and bits by which the other end is woken, after checks."""
        cdef c.shmnd_link_end *end = &self.q.link
        for part in (RECEIVE_BIT, INITIATOR_BIT):
            if not isinstance(remote[part], int) or not 0 <= remote[part] < c.SHMND_READY_BITS:
                raise error(Status.INTERNAL_ERROR, "QueuePair.attach",
                            f"the peer describes itself with bit {remote[part]!r}")
        receive_bell = remote[RECEIVE_BELL:INITIATOR_BELL]
        initiator_bell = remote[INITIATOR_BELL:PARTS]
        end.receive_bell = peer.bell(receive_bell)
        end.initiator_bell = peer.bell(initiator_bell)
        end.receive_marks = peer.marks(receive_bell)
        end.initiator_marks = peer.marks(initiator_bell)
        end.receive_bit, end.initiator_bit = remote[RECEIVE_BIT], remote[INITIATOR_BIT]
        end.receive_rung = end.initiator_rung = 0
        end.their_srq = bool(remote[SHARED])

    cdef _locate_parts(self, Link link):
        """Store the addresses and sizes of the parts of the link, as this end uses them."""
        cdef c.shmnd_link_end *end = &self.q.link
        cdef unsigned char *base = link.segment.base
        cdef int me = link.me, it = 1 - link.me
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
        end.my_bounce = base + link.map.bounce_off[me]
        end.their_bounce = base + link.map.bounce_off[it]
        self.q.out.ring = base + link.map.ring_off[me]
        self.q.out.read_pos = c.shmnd_read_pos_of(end.theirs)
        self.q.out.mask = link.map.ring_mask[me]
        self.q.in_.ring = base + link.map.ring_off[it]
        self.q.in_.read_pos_shared = c.shmnd_read_pos_of(end.mine)
        self.q.in_.mask = link.map.ring_mask[it]

    cdef _reset_positions(self):
        """Begin both directions of the link at their first message."""
        self.q.out.write_pos = 0
        self.q.out.room_pos = self.q.out.mask + 1
        self.q.in_.read_pos = self.q.in_.returned_pos = 0
        self.q.messages = self.q.seen.credit = self.q.seen.entries = self.q.taken = 0
        self.q.seen.revision = self.q.seen.cancelled = 0
        self.q.seen.below = self.q.recalled = 0
        self.q.cancelled = self.q.revision = 0
        self.q.rx.lists = False
        self.q.posted_base = self.q.own.matched

    cdef _reset_counters(self, uint64_t role, tuple ends):
        """Reset the counters: for a new connection, or for the time until there is one."""
        cdef c.shmnd_counters *counters = self.q.counters
        c.shmnd_counters_clear(counters)
        c.shmnd_put64(&counters.state, self.q.state)
        c.shmnd_put64(&counters.receive_depth,
                      c.SHMND_COUNTERS_SHARED if self.q.shared else self.q.own.depth)
        c.shmnd_put64(&counters.initiator_depth, self.q.wq.depth)
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
        """Complete the connection at the active side: both ends are connected now."""
        self.usable("_open")
        if self.q.state != c.SHMND_QP_ATTACHED:
            raise error(Status.CONNECTION_INVALID, "QueuePair._open",
                        f"the queue pair is {state_of(self)}")
        c.shmnd_put32(&self.q.link.mine.opened, 1)
        step("opened")
        c.shmnd_qp_set_state(&self.q, c.SHMND_QP_CONNECTED)
        c.shmnd_publish_state(&self.q, c.SHMND_LINK_OPEN)
        step("connected")

    def _abandon(self, rejected: bool) -> None:
        """Publish in the link that the attempt was rejected or given up."""
        self.usable("_abandon")
        if self.q.link.mine != NULL and self.q.state == c.SHMND_QP_ATTACHED:
            c.shmnd_abort_attempt(&self.q, c.SHMND_LINK_REJECTED if rejected
                                  else c.SHMND_LINK_CLOSED)

    def _detach(self) -> None:
        """Release the link of a failed attempt. Posted receives stay."""
        self.usable("_detach")
        if self.q.link.mine == NULL:
            self._end_connect()
            return
        if self.q.state != c.SHMND_QP_ATTACHED:
            return
        self._abandon(False)
        # The other side may be placing a message at this moment, which will not be received.
        deadline = c.shmnd_now_ns() + c.SHMND_STALL_TIMEOUT_NS
        while not c.shmnd_peer_is_quiescent(&self.q) and c.shmnd_now_ns() < deadline:
            time.sleep(50e-6)
        c.shmnd_rx_unpin_all(&self.q)
        self._leave()
        c.shmnd_qp_set_state(&self.q, c.SHMND_QP_IDLE)
        self._reset_counters(0, None)

    def _disconnect(self) -> bool:
        """End the connection; return True when that is complete."""
        self.usable("_disconnect")
        if self.q.state == c.SHMND_QP_CONNECTED:
            c.shmnd_qp_disconnect(&self.q)
        if self.q.state == c.SHMND_QP_DOWN:
            c.shmnd_qp_set_state(&self.q, c.SHMND_QP_CLOSED)
        return self._disconnect_step()

    def _disconnect_step(self) -> bool:
        """Continue `_disconnect`; return True when it is complete."""
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
        """Release the link, and clear all pointers into it."""
        self.registry.remove_qp(&self.q)
        c.shmnd_cq_remove_qp(&self.receive_cq.raw, &self.q)
        c.shmnd_cq_remove_qp(&self.initiator_cq.raw, &self.q)
        c.shmnd_bounce_release(&self.q)
        memset(&self.q.link, 0, sizeof(self.q.link))
        self.q.deferred = self.q.deferred_receives = False
        self.link = None

    def _on_release(self, callback) -> None:
        """Set a function that is called once when the queue pair is closed or deallocated."""
        self.release_callback = callback
