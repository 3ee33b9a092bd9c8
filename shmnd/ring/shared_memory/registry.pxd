# SPDX-License-Identifier: Apache-2.0

from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from shmnd.ring cimport c
from shmnd.ring.process.counters cimport CounterTable


# Release the contexts of silent successes. Finalisers may run arbitrary code here.
cdef inline void release_contexts(c.shmnd_registry *registry) noexcept:
    cdef void *context
    while registry != NULL and registry.unreleased != NULL:
        context = c.shmnd_pop_unreleased_context(registry)
        if context != NULL:
            Py_DECREF(<object>context)


cdef class Registry:
    cdef c.shmnd_registry raw
    cdef uint16_t *_generations
    cdef object _free
    cdef list _tables
    cdef dict _held  # registered buffers that are held, by token
    cdef dict _held_up  # withdrawn tokens that a peer still uses, and since when it is waited for
    cdef object _announce
    cdef CounterTable _counter_table
    cdef c.shmnd_qp **_qps
    cdef uint32_t _qp_count, _qp_room
    cdef uint64_t _serials

    cdef _drive(self)
    cdef add_qp(self, c.shmnd_qp *qp)
    cdef uint64_t new_serial(self)
    cdef void remove_qp(self, c.shmnd_qp *qp) noexcept
    cdef uint32_t _new_token(self) except 0
    cdef void forget_contexts(self) noexcept
    cdef void _forget_context(self, c.shmnd_region *region) noexcept
    cdef c.shmnd_region *_take(self, uint64_t address, uint64_t length, uint32_t rights,
                               uint32_t segment, uint64_t offset) except NULL
    cdef c.shmnd_grant *_grant_of(self, uint32_t token) except NULL
