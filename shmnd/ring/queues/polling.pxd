# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.queues.completion_ring cimport RingCore


# A queue pair as its completion queues use it.
cdef class PairCore:
    cdef c.shmnd_qp q
    cdef object link
    cdef PollingCore receive_cq
    cdef PollingCore initiator_cq
    cdef object __weakref__

    cdef int64_t serve(self, uint32_t what, bint receiving) except -1
    cdef str why(self, uint32_t status, uint32_t type_, uint32_t flags)
    cdef str outstanding(self, bint requests, bint receives)


cdef class PollingCore(RingCore):
    cdef unsigned int polls
    cdef dict users  # context of queue pairs -> weak references to them
    cdef uint64_t _elsewhere_ns
    cdef c.shmnd_pace pace
    cdef int64_t _copied  # bytes copied by the current call
    cdef list spare  # of one place, for a result that is given back where no memory is left

    cdef collect(self)
    cdef int poll(self, c.shmnd_cqe *out, uint32_t most, uint32_t *n) except -1
    cdef object take(self, Py_ssize_t most, bint alone)
    cdef object take_one(self)
    cdef list take_results(self, Py_ssize_t max)
    cdef int take_completions(self, c.shmnd_cqe *out, uint32_t most) except -1
    cdef list poll_results(self, Py_ssize_t max)
    cdef object poll_for(self, Py_ssize_t most, bint alone)
    cdef object result(self, const c.shmnd_cqe *e)
    cdef object failure(self, const c.shmnd_cqe *e)
    cdef explain(self, list results, const c.shmnd_cqe *last, uint32_t n)
    cdef void cqe_of(self, object result, c.shmnd_cqe *e) noexcept
    cdef add_user(self, PairCore pair)
    cdef _poll_elsewhere(self)
    cdef int _do_periodic_work(self) except -1
    cdef uint64_t gather(self) except? 0xFFFFFFFFFFFFFFFF
    cdef bint triggered(self, uint32_t mode) noexcept
