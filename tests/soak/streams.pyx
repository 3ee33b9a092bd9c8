# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The compiled loop of the soak: streams over the queue pairs of one completion queue."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.shared_memory.sge cimport Sge
from shmnd.ring.queues.queue_pair cimport QueuePair
from shmnd.ring.queues.completion_queue cimport CompletionCore
from shmnd.ring.queues.polling cimport PairCore


cdef extern from "streams.h" nogil:
    struct soak_stream:
        c.shmnd_qp *qp
        void *context
        uint64_t out_key, in_key
        uint64_t out_target, in_target
        uint64_t posted, sent, received, bytes
        uint8_t *out
        uint8_t *in_ "in"
        uint32_t out_token, in_token
        uint8_t *heads
        uint32_t heads_token, rate
        uint32_t largest, depth
        uint64_t stride

    struct soak_side:
        c.shmnd_cq *cq
        soak_stream *streams
        uint32_t count
        uint32_t *by_context
        uint32_t mask
        void *none
        int (*serve)(c.shmnd_todo *)
        const char *wrong
        uint64_t at
        uint64_t number

    void soak_enter(soak_side *side, uint32_t number)
    bint soak_receive(soak_side *side, soak_stream *s, uint64_t slot)
    bint soak_done(const soak_side *side)
    bint soak_run(soak_side *side, uint64_t until_ns)


cdef int _serve(c.shmnd_todo *todo) noexcept with gil:
    try:
        return (<PairCore>todo.qp.owner).serve(todo.what, todo.receiving)
    except Exception:
        return -1


cdef class Side:
    """One process's end of all streams."""

    cdef soak_side raw
    cdef list _kept

    def __init__(self, CompletionCore cq, uint32_t most):
        cdef uint32_t room = 4
        while room < most * 4:
            room *= 2
        self._kept = [cq]
        self.raw.cq = &cq.raw
        self.raw.none = <void *>None
        self.raw.serve = _serve
        self.raw.mask = room - 1
        self.raw.streams = <soak_stream *>PyMem_RawCalloc(most, sizeof(soak_stream))
        self.raw.by_context = <uint32_t *>PyMem_RawCalloc(room, sizeof(uint32_t))
        if self.raw.streams == NULL or self.raw.by_context == NULL:
            raise MemoryError

    def add(self, QueuePair qp, object context, Sge out, Sge in_, Sge heads, uint32_t largest,
            uint32_t depth, uint32_t rate, uint64_t out_key, uint64_t in_key):
        """Take a queue pair, with the memory of `depth` messages for each direction.

        `heads` is private memory for their first pieces; it sends in one turn of `rate`.
        """
        cdef soak_stream *s = &self.raw.streams[self.raw.count]
        s.qp = &qp.q
        s.context = <void *>context
        s.out_key, s.in_key = out_key, in_key
        s.out, s.in_ = <uint8_t *><size_t>out.raw.address, <uint8_t *><size_t>in_.raw.address
        s.out_token, s.in_token = out.raw.token, in_.raw.token
        s.largest, s.depth = largest, depth
        s.heads, s.heads_token = <uint8_t *><size_t>heads.raw.address, heads.raw.token
        s.rate = rate
        s.stride = out.raw.length // depth
        self._kept.append((qp, context, out, in_, heads))
        soak_enter(&self.raw, self.raw.count)
        self.raw.count += 1
        for slot in range(depth):
            Py_INCREF(None)  # what a posted Receive holds; it moves along when that is posted anew
            if not soak_receive(&self.raw, s, slot):
                raise RuntimeError(self._wrong())

    def expect(self, sends, receives):
        """Set up to which number each stream sends and receives."""
        for i in range(self.raw.count):
            self.raw.streams[i].out_target = sends[i]
            self.raw.streams[i].in_target = receives[i]

    def run(self, double seconds) -> bool:
        """Run for so long at most; True when all has come as expected."""
        cdef uint64_t until = c.shmnd_now_ns() + <uint64_t>(seconds * 1e9)
        cdef bint fine
        with nogil:
            fine = soak_run(&self.raw, until)
        PyErr_CheckSignals()
        if not fine:
            raise AssertionError(self._wrong())
        return soak_done(&self.raw)

    def counts(self) -> tuple:
        """Messages posted and received of each stream, and all bytes posted."""
        streams = range(self.raw.count)
        return (
            [self.raw.streams[i].posted for i in streams],
            [self.raw.streams[i].received for i in streams],
            sum(self.raw.streams[i].bytes for i in streams),
        )

    def _wrong(self) -> str:
        return f"{self.raw.wrong.decode()} (stream {self.raw.at}, number {self.raw.number})"

    def __dealloc__(self):
        PyMem_RawFree(self.raw.streams)
        PyMem_RawFree(self.raw.by_context)
