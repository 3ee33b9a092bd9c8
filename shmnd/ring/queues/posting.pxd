# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport int64_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.shared_memory.registry cimport Registry
from shmnd.ring.process.peer cimport PeerAdapter
from shmnd.ring.queues.completion_queue cimport PairCore
from shmnd.ring.queues.shared_receive_queue cimport ReceiveCore


cdef uint32_t flags_of(object flags, str call) except? 0xffffffff


cdef class PostingCore(PairCore):
    cdef object adapter
    cdef readonly object context
    cdef ReceiveCore srq
    cdef Registry registry
    cdef PeerAdapter peer
    cdef tuple map_place
    cdef uint32_t born  # NOT_MADE until it can be used
    cdef c.shmnd_pace pace
    cdef str title  # its name in messages

    cdef uint32_t post_send(self, object context, const c.shmnd_sge *sges, uint32_t n,
                            uint32_t flags) except? 0xffffffff
    cdef uint32_t post_receive(self, object context, const c.shmnd_sge *sges,
                               uint32_t n) except? 0xffffffff
    cdef uint32_t post_rdma(self, uint32_t type_, object context, const c.shmnd_sge *sges,
                            uint32_t n, uint64_t address, uint32_t token,
                            uint32_t flags) except? 0xffffffff
    cdef _rdma(self, uint32_t type_, str method, object sge, object remote_address,
               object remote_token, object context, object flags)
    cdef _window(self, uint32_t type_, uint32_t token, uint32_t outcome, object context,
                 object window, uint32_t flags)
    cdef advance(self)
    cdef int64_t run_tx(self) except -1
    cdef int64_t run_rx(self) except -1
    cdef settle(self)
    cdef uint32_t check_connected(self) except? 0xffffffff
    cdef bint made_room(self, uint32_t status) except -1
    cdef _refuse_in_child(self, str method)
    cdef int usable(self, str method) except -1
    cdef int pause(self, str method) except -1
    cdef _map(self, bint receiving)
    cdef _inline(self, object sge, str call)
    cdef _checked_connected(self, str method)
    cdef str _ask(self, str limit)
    cdef refuse_receive(self, uint32_t status, object sge)
    cdef refuse(self, str method, uint32_t status, object sge, object flags)
