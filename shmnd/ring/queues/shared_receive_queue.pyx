# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""Shared receive queues: the compiled part, which posts receives.

Notify and its thresholds are in `shmnd.shared_receive_queue`.
"""

from cpython.object cimport PyObject, PyTypeObject, inquiry, traverseproc, visitproc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from shmnd.ring cimport c
from shmnd.ring.process.forks cimport NOT_MADE, forks, unusable
from shmnd.ring.shared_memory.registry cimport Registry
from shmnd.ring.shared_memory.sge cimport Sge, gather_sges
from shmnd.ring.queues.polling cimport PairCore

from shmnd.common.closing import why_closed
from shmnd.common.shortages import LIMITS_OF_MEMORY as _LIMITS
from shmnd.status import Status, error

cdef int _MOST_DEPTH = 1 << 24
cdef uint32_t _FULL = Status.NO_MORE_ENTRIES  # a member of an enumeration takes long to look up
cdef str _ASK = "ask create_shared_receive_queue for more with"


cdef class ReceiveCore:
    """A shared receive queue's posting side."""

    def __cinit__(self, *args, **kwargs):
        self.born = NOT_MADE
        self.members = []

    def __init__(self, adapter, Registry registry not None, int depth, int max_sge):
        if self.born != NOT_MADE:
            raise TypeError("a shared receive queue is made once")
        if not (0 < depth <= _MOST_DEPTH and 0 < max_sge <= <int>c.SHMND_MAX_SGE):
            raise TypeError("a shared receive queue is made by its adapter")
        self.adapter = adapter
        self.registry = registry
        self.limits.max_transfer = adapter._limits.max_transfer_length
        self.raw.stride = max_sge
        self._room(depth)
        self.born = forks

    cdef int usable(self, str call) except -1:
        """Raise unless it was made, and in this process."""
        if self.born != forks:
            raise unusable(self.born, f"SharedReceiveQueue.{call}")
        return 0

    @property
    def _adapter(self) -> object:
        """The adapter that made it."""
        return self.adapter

    @property
    def _closed(self) -> bool:
        """After `close`."""
        return self.closed

    @property
    def _awaited(self) -> bool:
        """Whether a Notify waits until receives are consumed."""
        return self.awaited

    @_awaited.setter
    def _awaited(self, bint value) -> None:
        self.awaited = value

    cdef _room(self, uint32_t depth):
        cdef uint32_t size = c.shmnd_pow2_at_least(depth if depth else 1)
        cdef c.shmnd_rqe *entries = <c.shmnd_rqe *>calloc(size, sizeof(c.shmnd_rqe))
        cdef c.shmnd_sge *sges = <c.shmnd_sge *>calloc(size * self.raw.stride, sizeof(c.shmnd_sge))
        cdef uint64_t pos
        cdef uint32_t i
        if entries == NULL or sges == NULL:
            free(entries)
            free(sges)
            call = ("Adapter.create_shared_receive_queue" if self.raw.entries == NULL
                    else "SharedReceiveQueue.modify")
            raise error(Status.INSUFFICIENT_RESOURCES, call,
                        f"no memory for {depth} receives; {_LIMITS}")
        for pos in range(self.raw.matched, self.raw.posted):
            entries[pos & (size - 1)] = self.raw.entries[pos & self.raw.mask]
            for i in range(self.raw.stride):
                sges[(pos & (size - 1)) * self.raw.stride + i] = \
                    self.raw.sges[(pos & self.raw.mask) * self.raw.stride + i]
        free(self.raw.entries)
        free(self.raw.sges)
        self.raw.entries = entries
        self.raw.sges = sges
        self.raw.mask = size - 1
        self.raw.depth = depth

    @property
    def _outstanding(self) -> int:
        """Receives that are posted and not yet matched to a message."""
        return c.shmnd_receives_outstanding(&self.raw)

    @property
    def _depth(self) -> int:
        """How many receives may be outstanding."""
        return self.raw.depth

    @property
    def _pairs(self) -> int:
        """How many queue pairs take receives from it."""
        return len(self.members)

    def _set_depth(self, depth: int) -> None:
        """Allow `depth` outstanding receives, which must not be fewer than there are."""
        self.usable("_set_depth")
        if not self._outstanding <= depth <= _MOST_DEPTH:
            raise ValueError(f"a shared receive queue of depth {depth}")
        if depth > <int>self.raw.mask + 1:
            self._room(depth)
        self.raw.depth = depth

    def receive(self, sge, context=None) -> None:
        """Post a receive for the first member that gets a message."""
        cdef c.shmnd_sge list_[16]
        cdef uint32_t n
        cdef uint32_t status
        if self.born != forks:
            raise unusable(self.born, "SharedReceiveQueue.receive")
        if self.closed:
            raise _closed(self)
        if type(sge) is Sge:
            list_[0] = (<Sge>sge).raw
            n = 1
        else:
            n = gather_sges(sge, list_, "SharedReceiveQueue.receive", self.raw.stride)
        status = c.shmnd_check_receive(&self.limits, &self.raw, list_, n)
        if self.awaited or status == _FULL:
            status = _check_later(self, list_, n, status)
        if status:
            raise error(status, "SharedReceiveQueue.receive",
                        receive_reason(status, sge, &self.raw, self.limits.max_transfer,
                                       f"{_ASK} max_request_sge", f"{_ASK} depth"))
        Py_INCREF(context)
        c.shmnd_receives_add(&self.raw, <void *>context, list_, n)
        if self.raw.starved:
            self._arrived()

    def _queues(self) -> list:
        """Return the completion queues of its receives, each once."""
        members = [reference() for reference in self.members]
        return [*{(<PairCore>member).receive_cq for member in members if member is not None}]

    def _used_up(self) -> None:
        """Complete the Notify if enough receives were consumed. The Python half overrides it."""

    cdef _arrived(self):
        """Activate members whose messages were waiting for a receive."""
        cdef PairCore member
        self.raw.starved = False
        for reference in self.members:
            member = reference()
            if member is not None and member.q.rx.stalled:
                c.shmnd_qp_activate(&member.q)
                member.receive_cq.pushed()

    def _shut(self) -> None:
        """Discard the posted receives, without completions."""
        self.closed = True
        self.drop()

    cdef drop(self):
        cdef void *context
        while self.raw.matched != self.raw.posted:
            context = self.raw.entries[self.raw.matched & self.raw.mask].context
            self.raw.matched += 1  # first: a finaliser may poll, and a message match the next one
            Py_DECREF(<object>context)

    def __dealloc__(self):
        self.drop()
        free(self.raw.entries)
        free(self.raw.sges)


cdef uint32_t _check_later(ReceiveCore queue, const c.shmnd_sge *sges, uint32_t n,
                           uint32_t status) except? 0xffffffff:
    """Return the status of a Receive, checked again after code of Python, in which others may post:
    messages that arrived consume Receives, and a Notify must find that there were few."""
    if status == _FULL:
        for each in queue._queues():
            each._poll()
    elif status:
        return status
    if queue.awaited:
        queue._used_up()
    if queue.closed:
        raise _closed(queue)
    return c.shmnd_check_receive(&queue.limits, &queue.raw, sges, n)


cdef object _closed(ReceiveCore queue):
    return error(Status.INVALID_HANDLE, "SharedReceiveQueue.receive",
                 why_closed(queue.adapter, "shared receive queue"))


cdef str receive_reason(uint32_t status, object sge, const c.shmnd_receives *queue, uint64_t most,
                        str ask_sge, str ask_depth):
    """Return why a Receive was refused, with the limit that it exceeds and how to raise that."""
    if status == Status.DATA_OVERRUN:
        return (f"{len(sge)} scatter/gather elements, at most {queue.stride} are "
                f"granted; {ask_sge}, up to {c.SHMND_MAX_SGE}")
    if status == Status.BUFFER_OVERFLOW:
        total = sum(s.length for s in (sge if isinstance(sge, (list, tuple)) else [sge]))
        return f"{total} bytes of buffers, at most {most} a request"
    if status == Status.NO_MORE_ENTRIES:
        return (f"{queue.depth} receives are outstanding, as many as the queue holds; take results "
                f"before posting again, or {ask_depth}")
    return "the queue pair was disconnected"


# -- garbage collection --

# The rule is in contexts.h.

cdef PyTypeObject *_type = <PyTypeObject *>ReceiveCore
cdef traverseproc _visit_attributes = _type.tp_traverse
cdef inquiry _clear_attributes = _type.tp_clear


cdef int _visit(PyObject *queue, visitproc visit, void *arg) except -1:
    cdef c.shmnd_contexts_walk walk
    cdef void **place
    cdef int stop = _visit_attributes(queue, visit, arg)
    memset(&walk, 0, sizeof(walk))
    while stop == 0:
        place = c.shmnd_receives_next_context(&(<ReceiveCore>queue).raw, &walk)
        if place == NULL:
            break
        stop = visit(<PyObject *>place[0], arg)
    return stop


cdef int _clear(object queue) except -1:
    (<ReceiveCore>queue).drop()
    return _clear_attributes(queue)


_type.tp_traverse = _visit
_type.tp_clear = _clear
