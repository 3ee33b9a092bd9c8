# SPDX-License-Identifier: Apache-2.0

from libc.stdint cimport uint32_t

from shmnd.ring.queues.progress cimport ProgressCore


cdef str state_of(ProgressCore pair)

cdef str why_unconnected(ProgressCore pair)

cdef refuse(ProgressCore pair, str method, uint32_t status, object sge, object flags)

cdef refuse_receive(ProgressCore pair, uint32_t status, object sge)

cdef str reason_of_failure(ProgressCore pair, uint32_t status, uint32_t type_, uint32_t flags)

cdef str outstanding_requests(ProgressCore pair, bint requests, bint receives)
