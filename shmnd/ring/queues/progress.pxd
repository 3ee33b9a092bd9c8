# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.peer cimport PeerAdapter
from shmnd.ring.queues.polling cimport PairCore, PollingCore
from shmnd.ring.queues.shared_receive_queue cimport ReceiveCore
from shmnd.ring.shared_memory.registry cimport Registry


# Wake sleeping threads of this process, if any, after a completion or a pending request.
cdef inline void wake_sleepers(PollingCore queue) noexcept:
    if queue.raw.arming.mode or queue.announcing:
        queue.pushed()


cdef class ProgressCore(PairCore):
    cdef object adapter
    cdef readonly object context
    cdef ReceiveCore srq
    cdef Registry registry
    cdef PeerAdapter peer
    cdef tuple map_place
    cdef uint32_t born  # NOT_MADE until it can be used
    cdef c.shmnd_pace pace
    cdef str title  # its name in messages
    cdef bint released  # its program has closed it

    cdef advance(self)
    cdef int64_t run_tx(self) except -1
    cdef int64_t run_rx(self) except -1
    cdef settle(self)
    cdef _refuse_in_child(self, str method)
    cdef int usable(self, str method) except -1
    cdef int do_periodic_work(self, str method) except -1
    cdef _map(self, bint receiving)
    cdef uint32_t post_receive_again(self, object context, const c.shmnd_sge *sges,
                                     uint32_t n) except? 0xffffffff
