# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.queues.results cimport Bound
from shmnd.ring.queues.progress cimport ProgressCore


cdef uint32_t flags_of(object flags, str call) except? 0xffffffff


cdef class PostingCore(ProgressCore):
    cdef uint32_t post_send(self, object context, const c.shmnd_sge *sges, uint32_t n,
                            uint32_t flags) except? 0xffffffff
    cdef uint32_t post_send_invalidate(self, object context, const c.shmnd_sge *sges, uint32_t n,
                                       uint32_t token, uint32_t flags) except? 0xffffffff
    cdef uint32_t post_receive(self, object context, const c.shmnd_sge *sges,
                               uint32_t n) except? 0xffffffff
    cdef uint32_t post_rdma(self, uint32_t type_, object context, const c.shmnd_sge *sges,
                            uint32_t n, uint64_t address, uint32_t token,
                            uint32_t flags) except? 0xffffffff
    cdef _rdma(self, uint32_t type_, str method, object sge, object remote_address,
               object remote_token, object context, object flags)
    cdef bint _window(self, uint32_t type_, uint32_t token, uint32_t outcome, Bound bound,
                      uint32_t flags) except -1
    cdef uint32_t check_connected(self) except? 0xffffffff
    cdef bint made_room(self, uint32_t status) except -1
    cdef _inline(self, object sge, str method, object flags)
    cdef _hold(self, str method)
