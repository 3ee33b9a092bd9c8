# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Measuring loops that stay in the compiled part: what the data plane costs without Python.

The interpreter's lock is released for a whole loop but for a look at signals now and then, and to
sleep: as `CompletionQueue.wait` does, a loop looks for the `spin` of a queue before. Every loop
gives the seconds it took, and raises NdError for a completion that is not a success. Contexts move
along with what is reposted, so references are as they were when a loop ends well.

`flags` are those of each Send or Write: INLINE or none. As in `QueuePair.send`, an INLINE message
may lie in memory that is not registered. A loop copies it once, before it begins, and posts the
copy: memory that another thread frees meanwhile is not read.

Loops of latency take `stamps`, a buffer of `count` + 1 signed 64-bit numbers, or None: the time of
each posting and, last, that of the last arrival. A stamp is taken while the message travels. With
a `rate` of turns per second, each turn begins when it is due or as soon after as the last one
lets, and the first `count` stamps are the times from when it was due until its end.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from shmnd.ring cimport c
from shmnd.ring.shared_memory.registry cimport Sge, require_held
from shmnd.ring.queues.queue_pair cimport QueuePair
from shmnd.ring.queues.completion_queue cimport CompletionCore, PairCore
from shmnd.ring.shared_memory.segment cimport lies_in_fragile

from shmnd.ring.queues.posting import inline_bytes
from shmnd.status import Status, error

# How many looks in vain lie between two at the signals, and between two at the clock; less one.
cdef uint64_t SIGNALS = 0x7FFF
cdef uint64_t CLOCK = 0x3F
cdef void *_NONE = <void *>None


cdef double _since(uint64_t start) noexcept:
    """Seconds from then on."""
    return <double>(c.shmnd_now_ns() - start) * 1e-9


cdef int _look() except -1 with gil:
    PyErr_CheckSignals()
    return 0


cdef int _look_at(QueuePair qp, str call) except -1 with gil:
    """A target that spins calls nothing; now and then, see whether its peer is still there."""
    PyErr_CheckSignals()
    qp._progress()
    if qp.q.state != c.SHMND_QP_CONNECTED:
        raise error(Status.CONNECTION_ABORTED, call, "the other side is gone")
    return 0


cdef int _serve(c.shmnd_todo *todo) except -1 with gil:
    (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
    return 0


cdef int _check(str call, QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq,
                tuple sges, uint32_t flags) except -1:
    """A loop does not check what it posts each time: all of it is checked before."""
    if qp is None or receive_cq is None or initiator_cq is None:
        raise TypeError(f"{call}: needs a queue pair and its completion queues")
    qp.usable(call)
    receive_cq.usable(call)
    initiator_cq.usable(call)
    if flags & ~<uint32_t>c.SHMND_OP_INLINE:
        raise ValueError(f"{call}: flags {flags:#x} are not INLINE or none")
    for sge in sges:
        _check_registered(call, qp, sge)
    return 0


cdef int _check_registered(str call, QueuePair qp, sge) except -1:
    if not isinstance(sge, Sge):
        raise TypeError(f"{call}: {type(sge).__name__} is not an Sge")
    if c.shmnd_sge_region(&qp.registry.raw, &(<Sge>sge).raw, 0) == NULL:
        raise error(Status.ACCESS_VIOLATION, call, f"{sge!r} is not registered here")
    return 0


cdef Sge _source(str call, QueuePair qp, Sge sge, uint32_t flags):
    """Return what the Sends or Writes of a loop read: registered memory, or an INLINE copy."""
    cdef bytearray data  # made before the checks: nothing runs between those and the copy
    if sge is None or not flags & c.SHMND_OP_INLINE:
        _check_registered(call, qp, sge)
        return sge
    if sge.raw.length > qp.q.inline_size:
        raise error(Status.BUFFER_OVERFLOW, call,
                    f"{sge.raw.length} bytes are INLINE, the queue pair takes {qp.q.inline_size}")
    data = bytearray(sge.raw.length)
    if c.shmnd_sge_region(&qp.registry.raw, &sge.raw, 0) == NULL:
        require_held(sge, call)
        if sge.owner is None or lies_in_fragile(sge.raw.address, sge.raw.length):
            data = inline_bytes((sge,), call)
            return Sge(data, len(data), 0)
    memcpy(<char *>data, <const void *><size_t>sge.raw.address, sge.raw.length)
    return Sge(data, len(data), 0)


cdef int _check_lanes(str call, Lanes lanes, Sge answer, uint32_t flags) except -1:
    """Check what a loop over lanes posts; with an `answer`, it sends that and nothing else."""
    cdef Sge sge
    cdef list sources = []
    if lanes is None:
        raise TypeError(f"{call}: needs lanes")
    for qp, outgoing, incoming, _, _ in lanes.held:
        sges = (incoming,) if answer is None else (incoming, answer)
        _check(call, qp, lanes.receive_cq, lanes.initiator_cq, sges, flags)
        sources.append(outgoing if answer is not None else _source(call, qp, outgoing, flags))
    lanes.sources = sources
    for place, sge in enumerate(sources):
        lanes.at[place].outgoing = sge.raw
    return 0


cdef int _refused(str call, uint32_t status) except -1 with gil:
    raise error(status, call, "a request of the loop was refused")


cdef int _failed(str call, c.shmnd_cqe *e) except -1 with gil:
    raise error(e.status, call, f"request type {e.type} completed with {Status(e.status).name}")


cdef int _poll(CompletionCore cq, c.shmnd_cqe *out, uint32_t most, str call) except -1 nogil:
    """One poll; jobs are run; the completions are successes."""
    cdef c.shmnd_todo todo
    cdef uint32_t n = c.shmnd_cq_poll(&cq.raw, out, most, &todo)
    cdef uint32_t i
    if todo.what != c.SHMND_IDLE:
        _serve(&todo)
    for i in range(n):
        if out[i].status:
            _failed(call, &out[i])
    return <int>n


cdef struct _Patience:
    uint64_t looks  # in vain
    uint64_t since  # the clock's first of them; 0: not looked at yet


cdef int _doze(CompletionCore cq) except -1 with gil:
    cq.doze()
    return 0


cdef int _rest(CompletionCore cq, _Patience *so_far) except -1 nogil:
    """A look found nothing: look on, or sleep if that was long enough."""
    cdef uint64_t now
    so_far.looks += 1
    if cq.spin > 0 and so_far.looks & CLOCK:
        return 0
    if so_far.looks & SIGNALS == 0:
        _look()
    now = c.shmnd_now_ns()
    if so_far.since == 0:
        so_far.since = now
    if <double>(now - so_far.since) >= cq.spin * 1e9:
        _doze(cq)
        so_far.since = 0
    return 0


cdef int _await(CompletionCore cq, c.shmnd_cqe *out, uint32_t most, str call) except -1 nogil:
    """Wait for completions."""
    cdef _Patience patience = _Patience(0, 0)
    cdef int n
    while True:
        n = _poll(cq, out, most, call)
        if n:
            return n
        _rest(cq, &patience)


cdef int _reap(CompletionCore cq, str call) except -1 nogil:
    """Wait for one completion."""
    cdef c.shmnd_cqe out
    return _await(cq, &out, 1, call)


cdef int _advance(c.shmnd_qp *qp) except -1 nogil:
    cdef c.shmnd_todo todo
    todo.qp = qp
    todo.receiving = False
    while qp.wq_head != qp.wq_tail:
        todo.what = c.shmnd_tx_advance(qp)
        if todo.what == c.SHMND_IDLE:
            break
        _serve(&todo)
    return 0


cdef int _post_send(c.shmnd_qp *qp, c.shmnd_sge *s, uint32_t flags, str call) except -1 nogil:
    cdef c.cbool kept
    cdef uint32_t status = c.shmnd_post_send(qp, _NONE, s, 1, flags, &kept)
    if status:
        _refused(call, status)
    return 0 if qp.batch and qp.wq_next == qp.wq_tail else _advance(qp)


cdef int _repost(c.shmnd_qp *qp, c.shmnd_cqe *e, c.shmnd_sge *s, str call) except -1 nogil:
    cdef uint32_t status = c.shmnd_post_receive(qp, e.context, s, 1)
    if status:
        _refused(call, status)
    return 0


cdef int _post_rdma(c.shmnd_qp *qp, uint8_t type, c.shmnd_sge *s, uint64_t address, uint32_t token,
                    uint32_t flags, str call) except -1 nogil:
    cdef c.cbool kept
    cdef uint32_t status = c.shmnd_post_rdma(qp, _NONE, type, s, 1, address, token, flags, &kept)
    if status:
        _refused(call, status)
    return _advance(qp)


cdef class _Stamps:
    """Where a loop writes times: the caller's buffer, or nowhere; and when its turns are due."""

    cdef Py_buffer view
    cdef int64_t *at
    cdef double rate
    cdef uint64_t start, due

    def __cinit__(self, stamps, uint64_t count, double rate=0.0):
        self.at = NULL
        self.rate = rate
        if stamps is None:
            return
        if count >= 1 << 56:
            raise ValueError(f"{count} times are too many")
        PyObject_GetBuffer(stamps, &self.view, PyBUF_WRITABLE)
        self.at = <int64_t *>self.view.buf
        if self.view.len < <Py_ssize_t>((count + 1) * sizeof(int64_t)):
            raise ValueError(f"{self.view.len} bytes do not hold {count} + 1 times")

    def __dealloc__(self):
        if self.at != NULL:
            PyBuffer_Release(&self.view)

    cdef inline void mark(self, uint64_t place) noexcept nogil:
        """Write down that it is now, where turns are not paced."""
        if self.at != NULL and self.rate == 0:
            self.at[place] = <int64_t>c.shmnd_now_ns()

    cdef int begin(self, uint64_t place) except -1 nogil:
        """Wait until a paced turn is due."""
        cdef uint64_t looks = 0
        if self.rate == 0:
            return 0
        if place == 0:
            self.start = c.shmnd_now_ns()
        self.due = self.start + <uint64_t>(<double>place * 1e9 / self.rate)
        while c.shmnd_now_ns() < self.due:
            looks += 1
            if looks & SIGNALS == 0:
                _look()
        return 0

    cdef inline void end(self, uint64_t place) noexcept nogil:
        """Write down what a paced turn took since it was due."""
        if self.at != NULL and self.rate != 0:
            self.at[place] = <int64_t>(c.shmnd_now_ns() - self.due)


cdef class Ticks:
    """An iterator of `count` rounds that writes down the time at which each begins, and the end.

    Driven by a `for` statement it costs less than any call: a loop need not know of it.
    """

    cdef _Stamps times
    cdef uint64_t place, count

    def __cinit__(self, stamps, uint64_t count):
        self.times = _Stamps(stamps, count)
        self.place = 0
        self.count = count

    def __iter__(self):
        return self

    def __next__(self):
        if self.place > self.count:
            raise StopIteration
        self.times.mark(self.place)
        self.place += 1
        if self.place > self.count:
            raise StopIteration


def pingpong(QueuePair qp, CompletionCore receive_cq, CompletionCore initiator_cq, Sge send,
             Sge receive, uint64_t count, bint first, uint32_t flags=0, stamps=None,
             double rate=0.0) -> float:
    """Send and receive `count` times each; both completions reaped, the Receive reposted.

    As in the loop in Python, what the answer does not need is done once it is on its way.
    """
    cdef c.shmnd_cqe out
    cdef uint64_t i, start
    cdef bint paced = first and rate > 0, answer
    cdef str call = "loops.pingpong"
    _check(call, qp, receive_cq, initiator_cq, (receive,), flags)
    send = _source(call, qp, send, flags)
    cdef _Stamps times = _Stamps(stamps, count, rate)
    with nogil:
        start = c.shmnd_now_ns()
        if first and not paced:
            _post_send(&qp.q, &send.raw, flags, call)
            times.mark(0)
            _reap(initiator_cq, call)
        for i in range(1, count + 1):
            if paced:
                times.begin(i - 1)
                _post_send(&qp.q, &send.raw, flags, call)
            _await(receive_cq, &out, 1, call)
            answer = not paced and not (first and i == count)
            if answer:
                _post_send(&qp.q, &send.raw, flags, call)
            if first:
                times.mark(i)
                times.end(i - 1)
            _repost(&qp.q, &out, &receive.raw, call)
            if answer or paced:
                _reap(initiator_cq, call)
    return _since(start)


# -- streams, over one queue pair or several --


cdef struct _Lane:
    c.shmnd_qp *qp
    void *context
    c.shmnd_sge outgoing, incoming
    uint64_t address  # of the peer's memory
    uint32_t token
    uint64_t room     # how many requests may be posted before one completes
    uint64_t credits  # how many Sends the receiver has Receives for
    uint64_t sent, taken


cdef class Lanes:
    """Queue pairs with completion queues in common, told apart by their contexts.

    Each with what it sends from and receives to, and the peer's memory: address and token.
    """

    cdef list held
    cdef list sources  # what the lanes' `outgoing` lies in: it lives as long as a loop
    cdef _Lane *at
    cdef uint32_t count, last
    cdef CompletionCore receive_cq, initiator_cq

    def __cinit__(self, lanes):
        cdef QueuePair qp
        cdef Sge outgoing, incoming
        self.held = [*map(tuple, lanes)]
        self.count = <uint32_t>len(self.held)
        if self.count == 0:
            raise ValueError("lanes are made of one queue pair at least")
        self.at = <_Lane *>calloc(self.count, sizeof(_Lane))
        if self.at == NULL:
            raise MemoryError
        for place, (qp, outgoing, incoming, address, token) in enumerate(self.held):
            if qp is None or outgoing is None or incoming is None:
                raise TypeError("a lane has a queue pair and two Sge")
            qp.usable("Lanes")
            self.at[place] = _Lane(&qp.q, qp.q.context, outgoing.raw, incoming.raw, address, token,
                                   0, 0, 0, 0)
            self.receive_cq, self.initiator_cq = qp.receive_cq, qp.initiator_cq
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
        """Whose completion it is, most often that of the last one or of the next in turn."""
        while self.at[self.last].context != e.qp_context:
            self.last = self.last + 1 if self.last + 1 < self.count else 0
        return &self.at[self.last]


cdef int _reap_lanes(Lanes lanes, str call) except -1 nogil:
    """See what has completed, and make room for as many; never waits."""
    cdef c.shmnd_cqe out[64]
    cdef int n = _poll(lanes.initiator_cq, out, 64, call), k
    for k in range(n):
        lanes.of(&out[k]).room += 1
    return n


cdef int _take_messages(Lanes lanes, uint64_t quota, str call) except -1 nogil:
    """Take what the receiver has sent: credit for so many Sends each; never waits."""
    cdef c.shmnd_cqe out[64]
    cdef int n = _poll(lanes.receive_cq, out, 64, call), k
    cdef _Lane *lane
    for k in range(n):
        lane = lanes.of(&out[k])
        lane.credits += quota
        _repost(lane.qp, &out[k], &lane.incoming, call)
    return n


def stream_send(Lanes lanes, uint64_t count, uint64_t window, uint64_t granted=0,
                uint64_t quota=0, uint32_t flags=0) -> float:
    """Send `count` messages, at most `window` of a lane outstanding, until the receiver has all.

    With a `quota`, the receiver grants credit for so many at a time, beside the `granted` that it
    begins with; all that it grants in this run is taken in this run.
    """
    cdef uint64_t left = count, outstanding = 0, coming = 1, start
    cdef uint32_t place
    cdef int sent, n, told
    cdef _Lane *lane
    cdef _Patience patience = _Patience(0, 0)
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
                    _post_send(lane.qp, &lane.outgoing, flags, call)
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
            # One message more than credits: the last says that all is there.
            told = _take_messages(lanes, quota, call) if quota or outstanding + left == 0 else 0
            coming -= told
            if sent or n or told:
                patience.since = 0
            elif outstanding:
                _rest(lanes.initiator_cq, &patience)
            else:
                _rest(lanes.receive_cq, &patience)
    return _since(start)


def stream_receive(Lanes lanes, Sge empty, uint64_t count, uint64_t quota=0) -> float:
    """Take `count` messages, and say so at the end by sending `empty`.

    Receives were posted by the caller, each is reposted. With a `quota`, `empty` is also sent
    each time that a lane has posted that many again.
    """
    cdef c.shmnd_cqe out[64]
    cdef uint64_t left = count, start
    cdef int n, k
    cdef _Lane *lane
    cdef str call = "loops.stream_receive"
    if empty is None:
        raise TypeError(f"{call}: needs what to answer with")
    _check_lanes(call, lanes, empty, 0)
    lanes.begin(0, 0)
    with nogil:
        start = c.shmnd_now_ns()
        while left:
            n = _await(lanes.receive_cq, out, 64, call)
            left -= n
            for k in range(n):
                lane = lanes.of(&out[k])
                _repost(lane.qp, &out[k], &lane.incoming, call)
                lane.taken += 1
                if lane.taken == quota:
                    lane.taken = 0
                    _post_send(lane.qp, &empty.raw, 0, call)
                    _reap(lanes.initiator_cq, call)
        _post_send(lanes.at[0].qp, &empty.raw, 0, call)
        _reap(lanes.initiator_cq, call)
    return _since(start)


def burst_send(QueuePair qp, CompletionCore initiator_cq, Sge send, uint64_t count, uint64_t burst,
               bint batch, uint32_t flags=0) -> float:
    """Send `count` messages, `burst` at a time and as one batch if so wanted; each burst ends."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t posted = 0, done = 0, end, start
    cdef str call = "loops.burst_send"
    _check(call, qp, initiator_cq, initiator_cq, (), flags)
    send = _source(call, qp, send, flags)
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            end = posted + burst if posted + burst < count else count
            qp.q.batch = batch
            while posted < end:
                _post_send(&qp.q, &send.raw, flags, call)
                posted += 1
            if batch:
                c.shmnd_batch_submit(&qp.q)
            while done < end:
                done += _await(initiator_cq, out, 64, call)
    return _since(start)


def burst_receive(QueuePair qp, CompletionCore receive_cq, Sge receive, uint64_t count,
                  bint batch) -> float:
    """Take `count` messages; the Receives after each look are posted as one batch if so wanted."""
    cdef c.shmnd_cqe out[64]
    cdef uint64_t done = 0, start
    cdef int n, k
    cdef str call = "loops.burst_receive"
    _check(call, qp, receive_cq, receive_cq, (receive,), 0)
    with nogil:
        start = c.shmnd_now_ns()
        while done < count:
            n = _await(receive_cq, out, 64, call)
            qp.q.batch = batch
            for k in range(n):
                _repost(&qp.q, &out[k], &receive.raw, call)
            if batch:
                c.shmnd_batch_submit(&qp.q)
            done += n
    return _since(start)


def write_pingpong(QueuePair qp, CompletionCore initiator_cq, Sge source, uint64_t remote_address,
                   uint32_t remote_token, const uint8_t[::1] watch, uint64_t mark, uint64_t count,
                   bint first, uint32_t flags=0, stamps=None, double rate=0.0) -> float:
    """Write, and spin on `watch` until the other side's Write shows; `count` times.

    The last byte of `source`, or of its copy if INLINE, carries `mark`, `mark` + 1, … 255, 1, …
    """
    cdef uint64_t i, start, spins
    cdef uint8_t *last
    cdef const uint8_t *watched = &watch[0]
    cdef uint8_t expected
    cdef int turn
    cdef str call = "loops.write_pingpong"
    _check(call, qp, initiator_cq, initiator_cq, (), flags)
    source = _source(call, qp, source, flags)
    if source.raw.length == 0 or not flags & c.SHMND_OP_INLINE and c.shmnd_sge_region(
            &qp.registry.raw, &source.raw, c.SHMND_MR_LOCAL_WRITE) == NULL:
        raise error(Status.ACCESS_VIOLATION, call, f"{source!r} cannot be written to")
    last = <uint8_t *><size_t>(source.raw.address + source.raw.length - 1)
    cdef _Stamps times = _Stamps(stamps, count, rate if first else 0.0)
    with nogil:
        start = c.shmnd_now_ns()
        for i in range(count):
            expected = <uint8_t>((mark - 1 + i) % 255 + 1)
            times.begin(i)
            for turn in range(2):
                if (turn == 0) == first:
                    last[0] = expected
                    _post_rdma(&qp.q, <uint8_t>c.SHMND_WRITE, &source.raw, remote_address,
                               remote_token, flags, call)
                    times.mark(i)
                    _reap(initiator_cq, call)
                else:
                    spins = 0
                    while c.shmnd_byte_at(watched) != expected:
                        spins += 1
                        if spins & SIGNALS == 0:
                            _look_at(qp, call)
            times.end(i)
        times.mark(count)
    return _since(start)


def read(QueuePair qp, CompletionCore initiator_cq, Sge local, uint64_t remote_address,
         uint32_t remote_token, uint64_t count, stamps=None, double rate=0.0) -> float:
    """Read `count` times, one after another."""
    cdef uint64_t i, start
    cdef str call = "loops.read"
    _check(call, qp, initiator_cq, initiator_cq, (local,), 0)
    cdef _Stamps times = _Stamps(stamps, count, rate)
    with nogil:
        start = c.shmnd_now_ns()
        for i in range(count):
            times.begin(i)
            times.mark(i)
            _post_rdma(&qp.q, <uint8_t>c.SHMND_READ, &local.raw, remote_address, remote_token, 0,
                       call)
            _reap(initiator_cq, call)
            times.end(i)
        times.mark(count)
    return _since(start)


def rdma_stream(Lanes lanes, bint reading, uint64_t count, uint64_t window,
                uint32_t flags=0) -> float:
    """Read or Write `count` times, at most `window` requests of a lane outstanding."""
    cdef uint64_t left = count, outstanding = 0, start
    cdef uint8_t type = <uint8_t>(c.SHMND_READ if reading else c.SHMND_WRITE)
    cdef uint32_t place
    cdef int sent, n
    cdef _Lane *lane
    cdef _Patience patience = _Patience(0, 0)
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
                    _post_rdma(lane.qp, type, &lane.outgoing, lane.address, lane.token, flags, call)
                    left -= 1
                    lane.room -= 1
                    sent += 1
            outstanding += sent
            n = _reap_lanes(lanes, call)
            outstanding -= n
            if sent or n:
                patience.since = 0
            else:
                _rest(lanes.initiator_cq, &patience)
    return _since(start)


# -- floors --


def bounce(uint8_t[::1] shared, uint64_t base, uint64_t count, bint first, stamps=None) -> float:
    """Hand a number to and fro in two lines of memory, `count` times: the floor of a ping-pong.

    `shared` is the same page in both processes. The numbers go on from `base`, which both give.
    """
    cdef uint64_t i, start, spins = 0
    cdef c.word64 *mine
    cdef c.word64 *theirs
    cdef _Stamps times = _Stamps(stamps, count)
    if len(shared) < 1024:
        raise ValueError(f"{len(shared)} bytes are less than the 1,024 that keep the lines apart")
    mine = <c.word64 *>&shared[0 if first else 512]
    theirs = <c.word64 *>&shared[512 if first else 0]
    with nogil:
        start = c.shmnd_now_ns()
        for i in range(1, count + 1):
            if first:
                # SYNC bare-line: release, pairs with the acquire below in the other process
                c.shmnd_release64(mine, base + i)
                times.mark(i - 1)
            # SYNC bare-line: acquire, pairs with the releases of the other process
            while c.shmnd_acquire64(theirs) != base + i:
                spins += 1
                if spins & SIGNALS == 0:
                    _look()
            if not first:
                c.shmnd_release64(mine, base + i)
        times.mark(count)
    return _since(start)


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
    return _since(start)
