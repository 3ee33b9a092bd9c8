# SPDX-License-Identifier: Apache-2.0
"""Names of the C headers that a wait uses which polls: here, and in `shmnd.ipc`."""

from libc.stdint cimport uint32_t, uint64_t

cdef extern from "wire/atomics.h" nogil:
    ctypedef bint cbool "bool"

cdef extern from "wire/futex.h" nogil:
    cbool shmnd_futex_sleep(const void *word, uint32_t seen, uint64_t ns)

cdef extern from "engine/cpus.h" nogil:
    cbool shmnd_on_one_cpu()
    void shmnd_yield()

cdef extern from "wire/poll_window.h" nogil:
    ctypedef struct shmnd_poll_window:
        pass
    uint64_t shmnd_window_next(shmnd_poll_window *w, uint64_t spin_ns, uint32_t growth)
    void shmnd_window_hit(shmnd_poll_window *w)
    void shmnd_window_count(shmnd_poll_window *w, uint64_t spin_ns, uint64_t ns, cbool found)
