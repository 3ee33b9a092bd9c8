# SPDX-License-Identifier: Apache-2.0
"""Words of shared memory, gates and the time, for the compiled modules."""

from libc.stdint cimport uint32_t, uint64_t

cdef extern from "wire/atomics.h" nogil:
    ctypedef uint32_t word32 "shmnd_word32"
    ctypedef uint64_t word64 "shmnd_word64"
    ctypedef bint cbool "bool"
    uint32_t shmnd_relaxed32(const word32 *w)
    uint64_t shmnd_relaxed64(const word64 *w)
    uint64_t shmnd_acquire64(const word64 *w)
    void shmnd_release64(word64 *w, uint64_t v)
    void shmnd_put32(word32 *w, uint32_t v)
    void shmnd_put64(word64 *w, uint64_t v)
    cbool shmnd_swap64(word64 *w, uint64_t *expected, uint64_t v)
    uint64_t shmnd_set_bits(word64 *w, uint64_t bits)
    void shmnd_read_once(void *copy)
    void shmnd_pause()

cdef extern from "common/gate.h" nogil:
    uint32_t SHMND_GATE_SLEEPER, SHMND_GATE_DESCRIPTOR
    uint64_t SHMND_GATE_NS
    uint32_t shmnd_gate_arm(word32 *gate, uint32_t bit)
    uint32_t shmnd_gate_open(word32 *gate)
    void shmnd_gate_joined()
    void shmnd_gate_clear(word32 *gate, uint32_t word, uint32_t bit)

cdef extern from "wire/futex.h" nogil:
    bint shmnd_futex_sleep(const void *word, uint32_t seen, uint64_t ns)
    long shmnd_futex_wake(const void *word, int most)

cdef extern from "wire/clock.h" nogil:
    uint64_t shmnd_now_ns()
