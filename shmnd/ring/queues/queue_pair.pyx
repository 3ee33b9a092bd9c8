# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Queue pairs: creation, views of a peer's memory, and release.

Posting is in `posting`, connecting in `connection`.
"""

import weakref

cimport cython
from cpython.object cimport PyObject, PyTypeObject, traverseproc, visitproc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport forks
from shmnd.ring.shared_memory.registry cimport Registry, release_contexts
from shmnd.ring.queues.connection cimport ConnectionCore
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.reasons cimport state_of, why_unconnected
from shmnd.ring.queues.shared_receive_queue cimport ReceiveCore
from shmnd.ring.shared_memory.segment cimport Segment
from shmnd.common.closing cimport end_of_life

from shmnd.common.closing import refuse_copy
from shmnd.common.interruption import is_interruption
from shmnd.common.native import direct_calls
from shmnd.common.shortages import LIMITS_OF_MEMORY as _LIMITS
from shmnd.status import Status, error
from shmnd.common.arguments import shown, within

# At least this many scatter/gather elements are granted: programs ask for one and use two.
cdef uint32_t _LEAST_SGE = 4
# The largest depths and sizes that a queue pair accepts.
cdef dict _MOST = {
    "initiator_depth": 1 << 16, "max_initiator_sge": c.SHMND_MAX_SGE, "inline_size": 1 << 16,
    "receive_depth": 1 << 16, "max_receive_sge": c.SHMND_MAX_SGE,
}


@cython.no_gc_clear
cdef class QueuePair(ConnectionCore):
    """A queue pair, which connects to at most one peer in its life. Made by its adapter."""

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
        # The coarse clock may be a step ahead; with a step more, no Send fails too early.
        self.q.rnr_ns = <uint64_t>(adapter._rnr_timeout * 1e9) + c.SHMND_COARSE_STEP_NS
        self.q.target_fault = Status.ACCESS_VIOLATION
        self.q.inline_size = depths["inline_size"]
        self.counter_table = adapter._counter_table
        self.place = self.counter_table.take()
        cdef Segment page = self.place[0]
        self.q.counters = <c.shmnd_counters *>(page.base + <size_t>self.place[1])
        self._make_sending(depths["initiator_depth"], depths["max_initiator_sge"])
        self._make_receiving(depths["receive_depth"], depths["max_receive_sge"])
        self._reset_counters(0, None)
        _join_queues(self)
        # From here on `close` releases the room, also if something below raises.
        self.joined = True
        self.born = forks
        receive_cq.add_user(self)
        initiator_cq.add_user(self)
        if srq is not None:
            srq.members.append(weakref.ref(self, srq.members.remove))
            # Either queue takes messages when it is polled.
            receive_cq.feed_from(srq)
            initiator_cq.feed_from(srq)

    cdef _make_sending(self, uint32_t depth, uint32_t sge):
        cdef uint32_t size = c.shmnd_pow2_at_least(depth + 1)
        self.q.wq.depth = depth
        self.q.wq.mask = size - 1
        self.q.wq.stride = max(sge, _LEAST_SGE)
        self.q.wq.entries = <c.shmnd_wqe *>calloc(size, sizeof(c.shmnd_wqe))
        self.q.wq.sges = <c.shmnd_sge *>calloc(size * self.q.wq.stride, sizeof(c.shmnd_sge))
        self.q.wq.inlined = <unsigned char *>calloc(size, max(1, self.q.inline_size))
        self.reserved_initiator = depth + 1
        if self.q.wq.entries == NULL or self.q.wq.sges == NULL or self.q.wq.inlined == NULL:
            raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_queue_pair",
                        f"no memory for {depth} initiator requests; {_LIMITS}")

    cdef _make_receiving(self, uint32_t depth, uint32_t sge):
        cdef uint32_t size = c.shmnd_pow2_at_least(depth if depth else 1)
        self.extents = sge if sge else 1
        if self.srq is not None:
            self.q.shared = True
            self.q.receives = &self.srq.raw
            # As many messages can have arrived when the connection ends.
            self.reserved_receive = c.SHMND_RING_USUAL + 2
            return
        self.q.receives = &self.q.own
        self.q.own.depth = depth
        self.q.own.mask = size - 1
        self.q.own.stride = max(sge, _LEAST_SGE)
        self.q.own.entries = <c.shmnd_rqe *>calloc(size, sizeof(c.shmnd_rqe))
        self.q.own.sges = <c.shmnd_sge *>calloc(size * self.q.own.stride, sizeof(c.shmnd_sge))
        # In addition, one for a message that is open, and one for a window that it invalidated.
        self.reserved_receive = depth + 2
        if self.q.own.entries == NULL or self.q.own.sges == NULL:
            raise error(Status.INSUFFICIENT_RESOURCES, "Adapter.create_queue_pair",
                        f"no memory for {depth} receives; {_LIMITS}")

    # -- views of a peer's memory --

    def view(self, remote_address, remote_token, nbytes):
        """Return a read-only memoryview of a peer's memory of `allocate(peers="read")`.

        It is checked like a Read, and nothing is copied. Its owner may change the contents at any
        time; the mapping stays until the last view of it is gone, also after Deregister, the end
        of the connection or the death of the owner.
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

        The memory is `nbytes` bytes from `base + offset` on, valid while the segment is referenced.
        """
        cdef c.shmnd_target target
        cdef const c.shmnd_grant *grant
        cdef Segment segment
        cdef int attempt
        call = "QueuePair.view"
        if self.q.state == c.SHMND_QP_ATTACHED:
            c.shmnd_qp_check_peer(&self.q)
        if self.q.state != c.SHMND_QP_CONNECTED:
            raise error(Status.CONNECTION_INVALID, call, why_unconnected(self))
        if self.q.outbound_read_limit == 0:
            raise error(Status.INVALID_DEVICE_REQUEST, call,
                        "the connection has an outbound read limit of 0; connect with one")
        for attempt in range(3):
            grant = c.shmnd_peer_grant(&self.q, token)
            if grant != NULL:
                if not c.shmnd_grant_check(grant, token, c.SHMND_ALLOW_READ, address, nbytes,
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
                    if not c.shmnd_range_within(target.offset, nbytes, 0, segment.size):
                        break
                    offset[0] = target.offset
                    return segment
            if attempt == 0:
                self.adapter._engine.map_announced()  # its announcement may not have been read yet
            elif attempt == 1:
                self.adapter._engine.sync()
        raise error(Status.ACCESS_VIOLATION, call,
                    f"the peer announced no memory of {nbytes} bytes at {address:#x}")

    def close(self) -> None:
        """Release it: the connection ends, and outstanding requests are cancelled."""
        if not self.joined or (self.given_back and self.release_callback is None):
            return  # else a close that was interrupted is continued
        self.released = True
        if self.born != forks:
            self.release_callback = None  # the connection is the parent's
            return
        if self.q.state == c.SHMND_QP_ATTACHED:
            self._detach()
        elif self.q.state == c.SHMND_QP_CONNECTING:
            c.shmnd_qp_set_state(&self.q, c.SHMND_QP_IDLE)
        if self.q.state == c.SHMND_QP_IDLE:
            c.shmnd_qp_flush(&self.q)
            c.shmnd_qp_set_state(&self.q, c.SHMND_QP_CLOSED)
        callback, self.release_callback = self.release_callback, None
        try:
            if callback is not None:
                callback()
        except BaseException as exc:
            if is_interruption(exc):
                self.release_callback = callback  # the next close calls it
                raise
            # Else an error in the callback, which must not keep the queue pair from ending.
        finally:
            if self.given_back:
                pass
            elif self._disconnect():
                self._give_back()
            else:
                self.adapter._engine.pending_operations.poll_until_done(self._continue_release)

    def _continue_release(self) -> bool:
        """Continue `close` while the other side finishes a copy; return whether it is done."""
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
        _leave_queues(self)
        self.receive_cq.pushed()
        self.initiator_cq.pushed()

    def __reduce_ex__(self, protocol):
        refuse_copy(self)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def __del__(self):
        end_of_life(self.close)

    def __dealloc__(self):
        if self.q.registry != NULL:
            release_contexts(self.q.registry)  # its own contexts may be among them
        if self.born == forks and self.q.link.mine != NULL:
            # An error has ended `close` early: nothing may find it from now on.
            self.receive_cq.keep(self.context)
            self.initiator_cq.keep(self.context)
            self.registry.remove_qp(&self.q)
            c.shmnd_cq_remove_qp(self.q.receive_cq, &self.q)
            c.shmnd_cq_remove_qp(self.q.initiator_cq, &self.q)
        _take_contexts(self)  # of requests that `close` did not complete, as in a child process
        free(self.q.wq.entries)
        free(self.q.wq.sges)
        free(self.q.wq.inlined)
        free(self.q.own.entries)
        free(self.q.own.sges)
        if self.q.counters != NULL:
            self.counter_table.give_back(self.place, self.q.counters)

    def __repr__(self) -> str:
        cdef list parts = [state_of(self)]
        if self.peer is not None:
            parts[0] += " to" if self.q.state == c.SHMND_QP_CONNECTED else ","
            if self.ends is not None:
                parts[0] += f" {_written(self.ends[1])} in"
            parts[0] += f" process {self.peer.pid}"
        parts.append(f"{c.shmnd_receives_outstanding(&self.q.own)} of {self.q.own.depth} receives"
                     if self.srq is None else f"receives of {self.srq!r}")
        requests = self.q.wq.end - self.q.wq.oldest
        parts.append(f"{requests} of {self.q.wq.depth} requests outstanding")
        if self.context is not None:
            parts.append(f"context={shown(self.context)}")
        return f"<{self.title} {', '.join(parts)}>"


# -- its places in completion queues --

cdef _join_queues(QueuePair pair):
    """Take a place in both queues, or in neither."""
    if pair.initiator_cq is pair.receive_cq:
        pair.q.receive_bit = _admit(pair.receive_cq,
                                    pair.reserved_receive + pair.reserved_initiator)
        pair.q.initiator_bit = pair.q.receive_bit
        return
    pair.q.receive_bit = _admit(pair.receive_cq, pair.reserved_receive)
    try:
        pair.q.initiator_bit = _admit(pair.initiator_cq, pair.reserved_initiator)
    except BaseException:
        _dismiss(pair.receive_cq, pair.q.receive_bit, pair.reserved_receive)
        raise


cdef _leave_queues(QueuePair pair):
    """Release the places."""
    if pair.initiator_cq is pair.receive_cq:
        _dismiss(pair.receive_cq, pair.q.receive_bit,
                 pair.reserved_receive + pair.reserved_initiator)
        return
    _dismiss(pair.receive_cq, pair.q.receive_bit, pair.reserved_receive)
    _dismiss(pair.initiator_cq, pair.q.initiator_bit, pair.reserved_initiator)


cdef uint32_t _admit(CompletionCore queue, uint64_t entries) except? 0xffffffff:
    """Make room in a queue for so many completions, and return a bit of it for the link."""
    queue.reserve(entries)
    try:
        return queue.take_bit()
    except BaseException:
        queue.unreserve(entries)
        raise


cdef _dismiss(CompletionCore queue, uint32_t bit, uint64_t entries):
    queue.unreserve(entries)
    queue.give_bit(bit)


cdef str _written(tuple address):
    """Return an address in the usual notation."""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _no_view(nbytes, address, why):
    """Return the error of memory that can be read and not viewed."""
    return error(Status.NOT_SUPPORTED, "QueuePair.view",
                 f"{nbytes} bytes at {address:#x} are {why}; its owner makes memory for views by "
                 'Adapter.allocate(nbytes, peers="read")')


# -- garbage collection --

# The rule is in contexts.h. The attributes of a queue pair are not cleared: its end needs them.

cdef PyTypeObject *_type = <PyTypeObject *>QueuePair
cdef traverseproc _visit_attributes = _type.tp_traverse


cdef int _visit(PyObject *pair, visitproc visit, void *arg) except -1:
    cdef c.shmnd_contexts_walk walk
    cdef void **place
    cdef int stop = _visit_attributes(pair, visit, arg)
    memset(&walk, 0, sizeof(walk))
    while stop == 0:
        place = c.shmnd_qp_next_context(&(<QueuePair>pair).q, &walk)
        if place == NULL:
            break
        stop = visit(<PyObject *>place[0], arg)
    return stop


cdef list _take_contexts(QueuePair pair):
    """Replace all contexts by None, and return them: their finalisers may run any code."""
    cdef c.shmnd_contexts_walk walk
    cdef void **place
    cdef list taken = []
    memset(&walk, 0, sizeof(walk))
    while True:
        place = c.shmnd_qp_next_context(&pair.q, &walk)
        if place == NULL:
            return taken
        taken.append(<object>place[0])
        Py_DECREF(<object>place[0])
        Py_INCREF(None)
        place[0] = <void *>None


cdef int _clear(object pair) except -1:
    _take_contexts(pair)
    return 0


_type.tp_traverse = _visit
_type.tp_clear = _clear
direct_calls(QueuePair)
