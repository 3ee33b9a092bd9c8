# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Queue pairs: progress on requests that are posted, and the end of them.

All of it runs under the interpreter's lock except long copies; objects.h says what other threads
may do meanwhile.
"""

cimport cython
from libc.stdint cimport int64_t

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport NOT_MADE, forks, unusable
from shmnd.ring.queues.polling cimport PairCore
from shmnd.ring.shared_memory.registry cimport release_contexts

# A copy of this length delays other threads noticeably; a shorter one takes a few microseconds.
cdef uint64_t _LONG_COPY = 128 << 10

cdef enum:
    # The most steps of one call; the next poll continues. A hostile peer that keeps changing its
    # state must not prolong it.
    _STEPS = 4096


@cython.no_gc_clear
cdef class ProgressCore(PairCore):
    """A queue pair as it makes progress on its requests."""

    def __cinit__(self, *args, **kwargs):
        self.q.owner = <void *>self
        self.born = NOT_MADE
        self.title = "QueuePair"

    cdef int usable(self, str method) except -1:
        if self.born != forks:
            self._refuse_in_child(method)
        return 0

    cdef _refuse_in_child(self, str method):
        raise unusable(self.born, f"{self.title}.{method}")

    cdef int do_periodic_work(self, str method) except -1:
        """Do what not every post does: refuse in a child process, check the peer, and make progress
        on other queues. A program that only posts depends on it."""
        self.usable(method)
        self.initiator_cq._poll_elsewhere()
        if self.q.link.mine != NULL:
            c.shmnd_qp_check_peer(&self.q)
            if self.q.going_down:
                self.settle()
        return 0

    # -- steps --

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
            if copied >= <int64_t>c.SHMND_PIECE:
                break
        if self.q.rx.fault or self.q.going_down:
            self.settle()
        release_contexts(self.q.registry)

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
            if copied >= <int64_t>c.SHMND_PIECE:
                break
        release_contexts(self.q.registry)

    def _progress(self) -> None:
        """Check the state of the other side once, and make progress."""
        if self.q.link.mine != NULL and self.born == forks:
            self.settle()

    cdef int64_t serve(self, uint32_t what, bint receiving) except -1:
        """Run the job, or map the segment, that a poll left. Return the number of bytes copied."""
        if what == c.SHMND_NEEDS_MAP:
            self._map(receiving)
            return 0
        return self.run_rx() if receiving else self.run_tx()

    cdef int64_t run_tx(self) except -1:
        """Run a piece of a prepared copy; a long one without the interpreter's lock."""
        cdef int64_t copied
        cdef bint long_ = (self.q.tx.job.to.total >= _LONG_COPY
                           or self.q.tx.job.to.remote != 0
                           or self.q.tx.job.from_.remote != 0)
        if not self.q.tx.busy or self.q.tx.started:
            return 0
        self.q.tx.started = True
        self.q.tx.job.piece = 0
        if long_:
            self.peer.jobs += 1
            with nogil:
                c.shmnd_tx_run(&self.q)
            self.peer.jobs -= 1
        else:
            c.shmnd_tx_run(&self.q)
        copied = self.q.tx.job.piece
        c.shmnd_tx_run_done(&self.q)
        return copied

    cdef int64_t run_rx(self) except -1:
        """Run a piece of the copy of an arriving message."""
        cdef int64_t copied
        if self.q.rx.busy or self.q.rx.job.kind == c.SHMND_JOB_NONE:
            return 0
        self.q.rx.busy = True
        self.q.rx.job.piece = 0
        c.shmnd_rx_resolve_again(&self.q)
        if self.q.rx.job.chunks.length >= _LONG_COPY or self.q.rx.job.from_.remote:
            self.peer.jobs += 1
            with nogil:
                c.shmnd_rx_run(&self.q)
            self.peer.jobs -= 1
        else:
            c.shmnd_rx_run(&self.q)
        copied = self.q.rx.job.piece
        c.shmnd_rx_run_done(&self.q)
        return copied

    cdef _map(self, bint receiving):
        """Map a segment of the peer: read the events of the broker; fail if it stays missing.

        The broker has confirmed the segment to the peer, so most often the event is here
        to be read: no message waits for a broker that is stopped meanwhile.
        """
        # A Send may need a second one if the receive was replaced while the first was mapped.
        added = len(self.peer._segments) + self.peer.raw.unmapped
        where = (receiving, self.q.wq.oldest, self.q.wq.next, self.q.in_.read_pos, self.q.taken,
                 added)
        if where != self.map_place:
            self.adapter._engine.map_announced()
            if len(self.peer._segments) + self.peer.raw.unmapped == added:
                self.adapter._engine.sync()
            self.map_place = where
            return
        self.map_place = None
        # The peer named memory that it never announced.
        c.shmnd_fail_unmapped(&self.q, receiving)

    cdef uint32_t post_receive_again(self, object context, const c.shmnd_sge *sges,
                                     uint32_t n) except? 0xffffffff:
        """Post a Receive to a full queue, after taking messages that arrived. Return the status.

        The caller then takes a reference to the context.
        """
        self.receive_cq.collect()
        return c.shmnd_post_receive(&self.q, <void *>context, sges, n)

    # -- the end of requests --

    def flush(self) -> None:
        """Cancel all outstanding requests of both queues, after delivering arrived messages."""
        if self.born != forks:
            self._refuse_in_child("flush")
        c.shmnd_qp_flush(&self.q)
        if self.q.link.mine != NULL:
            self.settle()
        wake_sleepers(self.initiator_cq)
        wake_sleepers(self.receive_cq)

    def _break_off(self) -> None:
        """Flush, and end the connection as after an error; the connector notices at once."""
        if self.born != forks:
            self._refuse_in_child("flush")
        if self.q.state == c.SHMND_QP_CONNECTED:
            c.shmnd_qp_disconnect(&self.q)
            self.settle()
            wake_sleepers(self.initiator_cq)
            wake_sleepers(self.receive_cq)
        else:
            self.flush()
