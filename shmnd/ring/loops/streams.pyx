# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Loops of throughput: streams over one queue pair or several, bursts, and plain copies."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from shmnd.ring cimport c
from shmnd.ring.loops.steps cimport (
    Backoff, await_completions, back_off, check_loop, poll, post_rdma, post_send, reap, repost,
    since, source_of)
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.queue_pair cimport QueuePair
from shmnd.ring.shared_memory.sge cimport Sge


cdef struct _Lane:
    c.shmnd_qp *qp
    void *context
    c.shmnd_sge outgoing, incoming
    uint64_t address  # of the peer's memory
    uint32_t token
    uint64_t room     # requests that may be posted before one completes
    uint64_t credits  # Sends for which the receiver has posted Receives
    uint64_t sent, taken


cdef class Lanes:
    """Queue pairs that share their completion queues and have different contexts.

    Each has an element to send and one to receive, and the peer's memory: address and token.
    """

    cdef list held
    cdef list sources  # keep the memory of `outgoing` alive while a loop runs
    cdef _Lane *at
    cdef uint32_t count, last
    cdef CompletionCore receive_cq, initiator_cq

    def __cinit__(self, lanes):
        cdef QueuePair qp
        cdef Sge outgoing, incoming
        self.held = [*map(tuple, lanes)]
        self.count = <uint32_t>len(self.held)
        if self.count == 0:
            raise ValueError("lanes need at least one queue pair")
        self.at = <_Lane *>calloc(self.count, sizeof(_Lane))
        if self.at == NULL:
            raise MemoryError
        for place, (qp, outgoing, incoming, address, token) in enumerate(self.held):
            if qp is None or outgoing is None or incoming is None:
                raise TypeError("a lane has a queue pair and two Sge")
            qp.usable("Lanes")
            self.at[place] = _Lane(&qp.q, qp.q.context, outgoing.raw, incoming.raw, address, token,
                                   0, 0, 0, 0)
            self.receive_cq = <CompletionCore>qp.receive_cq
            self.initiator_cq = <CompletionCore>qp.initiator_cq
        if len({<size_t>self.at[place].context for place in range(self.count)}) < self.count:
            raise ValueError("two queue pairs have the same context")

    def __dealloc__(self):
        free(self.at)

    cdef void begin(self, uint64_t room, uint64_t credits) noexcept nogil:
        cdef uint32_t place
        for place in range(self.count):
            self.at[place].room = room
            self.at[place].credits = credits
            self.at[place].sent = self.at[place].taken = 0

    cdef inline _Lane *of(self, const c.shmnd_cqe *e) noexcept nogil:
        """Return the lane of a completion, in most cases the last one used or the next."""
        while self.at[self.last].context != e.qp_context:
            self.last = self.last + 1 if self.last + 1 < self.count else 0
        return &self.at[self.last]


cdef int _check_lanes(str call, Lanes lanes, Sge answer, uint32_t flags) except -1:
    """Check the requests of a loop over lanes; with an `answer`, it sends only that."""
    cdef Sge sge
    cdef list sources = []
    if lanes is None:
        raise TypeError(f"{call}: needs lanes")
    for qp, outgoing, incoming, _, _ in lanes.held:
        sges = (incoming,) if answer is None else (incoming, answer)
        check_loop(call, qp, lanes.receive_cq, lanes.initiator_cq, sges, flags)
        sources.append(outgoing if answer is not None else source_of(call, qp, outgoing, flags))
    lanes.sources = sources
    for place, sge in enumerate(sources):
        lanes.at[place].outgoing = sge.raw
    return 0


cdef int _reap_lanes(Lanes lanes, str call) except -1 nogil:
    """Reap completed requests; add their number to the room of their lanes and return it."""
    cdef c.shmnd_cqe out[64]
    cdef int n = poll(lanes.initiator_cq, out, 64, call), k
    for k in range(n):
        lanes.of(&out[k]).room += 1
    return n


cdef int _take_messages(Lanes lanes, uint64_t quota, str call) except -1 nogil:
    """Take the receiver's messages, each of which is credit for `quota` Sends; never waits."""
    cdef c.shmnd_cqe out[64]
    cdef int n = poll(lanes.receive_cq, out, 64, call), k
    cdef _Lane *lane
    for k in range(n):
        lane = lanes.of(&out[k])
        lane.credits += quota
        repost(lane.qp, &out[k], &lane.incoming, call)
    return n


def stream_send(Lanes lanes, uint64_t count, uint64_t window, uint64_t granted=0,
                uint64_t quota=0, uint32_t flags=0) -> float:
    """Send `count` messages, at most `window` of a lane outstanding, until the receiver has all.

    With a `quota`, the receiver grants credit for that many at a time, in addition to the initial
    `granted`; all credit that it grants in this run is taken in this run.
    """
    cdef uint64_t left = count, outstanding = 0, coming = 1, start
    cdef uint32_t place
    cdef int sent, n, taken
    cdef _Lane *lane
    cdef Backoff backoff = Backoff(0, 0)
    cdef str call = "loops.stream_send"
    _check_lanes(call, lanes, None, flags)
    lanes.begin(window, granted if quota else count)
    with nogil:
        start = c.shmnd_now_ns()
        while outstanding or left or coming:
            sent = 0
            for place in range(lanes.count):
                lane = &lanes.at[place]
                while left and lane.room and lane.credits:
                    post_send(lane.qp, &lane.outgoing, flags, call)
                    left -= 1
                    lane.room -= 1
                    lane.credits -= 1
                    lane.sent += 1
                    sent += 1
                    if quota and lane.sent % quota == 0:
                        coming += 1
            outstanding += sent
            n = _reap_lanes(lanes, call) if outstanding else 0
            outstanding -= n
            # One message more than credits: the last one says that all messages arrived.
            taken = _take_messages(lanes, quota, call) if quota or outstanding + left == 0 else 0
            coming -= taken
            if sent or n or taken:
                backoff.since = 0
            elif outstanding:
                back_off(lanes.initiator_cq, &backoff)
            else:
                back_off(lanes.receive_cq, &backoff)
    return since(start)


def stream_receive(Lanes lanes, Sge empty, uint64_t count, uint64_t quota=0) -> float:
    """Take `count` messages, then report that by sending `empty`.

    The caller has posted Receives, and each is reposted. With a `quota`, `empty` is also sent each
    time a lane has reposted that many.
    """
    cdef c.shmnd_cqe out[64]
    cdef uint64_t left = count, start
    cdef int n, k
    cdef _Lane *lane
    cdef str call = "loops.stream_receive"
    if empty is None:
        raise TypeError(f"{call}: needs an Sge for its answers")
    _check_lanes(call, lanes, empty, 0)
    lanes.begin(0, 0)
    with nogil:
        start = c.shmnd_now_ns()
        while left:
            n = await_completions(lanes.receive_cq, out, 64, call)
            left -= n
            for k in range(n):
                lane = lanes.of(&out[k])
                repost(lane.qp, &out[k], &lane.incoming, call)
                lane.taken += 1
                if lane.taken == quota:
                    lane.taken = 0
                    post_send(lane.qp, &empty.raw, 0, call)
                    reap(lanes.initiator_cq, call)
        post_send(lanes.at[0].qp, &empty.raw, 0, call)
        reap(lanes.initiator_cq, call)
    return since(start)


def rdma_stream(Lanes lanes, bint reading, uint64_t count, uint64_t window,
                uint32_t flags=0) -> float:
    """Read or Write `count` times, at most `window` of a lane outstanding; return the seconds."""
    cdef uint64_t left = count, outstanding = 0, start
    cdef uint8_t type = <uint8_t>(c.SHMND_READ if reading else c.SHMND_WRITE)
    cdef uint32_t place
    cdef int sent, n
    cdef _Lane *lane
    cdef Backoff backoff = Backoff(0, 0)
    cdef str call = "loops.rdma_stream"
    _check_lanes(call, lanes, None, flags)
    lanes.begin(window, 0)
    with nogil:
        start = c.shmnd_now_ns()
        while left or outstanding:
            sent = 0
            for place in range(lanes.count):
                lane = &lanes.at[place]
                while left and lane.room:
                    post_rdma(lane.qp, type, &lane.outgoing, lane.address, lane.token, flags, call)
                    left -= 1
                    lane.room -= 1
                    sent += 1
            outstanding += sent
            n = _reap_lanes(lanes, call)
            outstanding -= n
            if sent or n:
                backoff.since = 0
            else:
                back_off(lanes.initiator_cq, &backoff)
    return since(start)


def burst_send(QueuePair qp, CompletionCore initiator_cq, Sge send, uint64_t count, uint64_t burst,
               bint batch, uint32_t flags=0) -> float:
    """Send `count` messages in bursts, each as one batch if `batch`, and wait for each burst."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t posted = 0, done = 0, end, start
    cdef str call = "loops.burst_send"
    check_loop(call, qp, initiator_cq, initiator_cq, (), flags)
    send = source_of(call, qp, send, flags)
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            end = posted + burst if posted + burst < count else count
            qp.q.batch = batch
            while posted < end:
                post_send(&qp.q, &send.raw, flags, call)
                posted += 1
            if batch:
                c.shmnd_batch_submit(&qp.q)
            while done < end:
                done += await_completions(initiator_cq, out, 64, call)
    return since(start)


def burst_receive(QueuePair qp, CompletionCore receive_cq, Sge receive, uint64_t count,
                  bint batch) -> float:
    """Take `count` messages; repost the Receives of each poll as one batch if `batch`."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t done = 0, start
    cdef int n, k
    cdef str call = "loops.burst_receive"
    check_loop(call, qp, receive_cq, receive_cq, (receive,), 0)
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            n = await_completions(receive_cq, out, 64, call)
            qp.q.batch = batch
            for k in range(n):
                repost(&qp.q, &out[k], &receive.raw, call)
            if batch:
                c.shmnd_batch_submit(&qp.q)
            done += n
    return since(start)


def copy(uint8_t[::1] destination, const uint8_t[::1] source, uint64_t count) -> float:
    """Copy one buffer to another `count` times with one core: the floor of the streams."""
    cdef uint64_t _, start
    cdef size_t length = <size_t>len(source)
    if len(destination) < len(source):
        raise ValueError(f"{len(source)} bytes do not fit in {len(destination)}")
    with nogil:
        start = c.shmnd_now_ns()
        for _ in range(count):
            memcpy(&destination[0], &source[0], length)
    return since(start)
