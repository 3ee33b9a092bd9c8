/* SPDX-License-Identifier: Apache-2.0
 *
 * The only file that names a memory order.
 *
 * All state that two processes share is of one of the word types below and is
 * accessed only through these functions, so that the name of each access states
 * its order. A shared word is loaded once into a local variable; the value that
 * a peer wrote is checked and used from that variable and never loaded again.
 *
 * Serves invariants 1 (read once) and 8 (C11 atomics, no x86 habits).
 */
#ifndef SHMND_WIRE_ATOMICS_H
#define SHMND_WIRE_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef _Atomic uint32_t shmnd_word32;
typedef _Atomic uint64_t shmnd_word64;

_Static_assert(sizeof(shmnd_word32) == 4, "32-bit atomics must be plain words");
_Static_assert(sizeof(shmnd_word64) == 8, "64-bit atomics must be plain words");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2,
               "a lock inside an atomic would be private to a process");

static inline uint32_t shmnd_relaxed32(const shmnd_word32 *w)
{
    return atomic_load_explicit(w, memory_order_relaxed);
}

static inline uint64_t shmnd_relaxed64(const shmnd_word64 *w)
{
    return atomic_load_explicit(w, memory_order_relaxed);
}

static inline uint32_t shmnd_acquire32(const shmnd_word32 *w)
{
    return atomic_load_explicit(w, memory_order_acquire);
}

static inline uint64_t shmnd_acquire64(const shmnd_word64 *w)
{
    return atomic_load_explicit(w, memory_order_acquire);
}

static inline void shmnd_put32(shmnd_word32 *w, uint32_t v)
{
    atomic_store_explicit(w, v, memory_order_relaxed);
}

static inline void shmnd_put64(shmnd_word64 *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_relaxed);
}

static inline void shmnd_release32(shmnd_word32 *w, uint32_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

static inline void shmnd_release64(shmnd_word64 *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

static inline uint64_t shmnd_set_bits(shmnd_word64 *w, uint64_t bits)
{
    return atomic_fetch_or_explicit(w, bits, memory_order_acq_rel);
}

static inline uint64_t shmnd_clear_bits(shmnd_word64 *w, uint64_t bits)
{
    return atomic_fetch_and_explicit(w, ~bits, memory_order_acq_rel);
}

static inline uint64_t shmnd_add64(shmnd_word64 *w, uint64_t more)
{
    return atomic_fetch_add_explicit(w, more, memory_order_acq_rel);
}

static inline uint32_t shmnd_add32(shmnd_word32 *w, uint32_t more)
{
    return atomic_fetch_add_explicit(w, more, memory_order_acq_rel);
}

static inline bool shmnd_swap32(shmnd_word32 *w, uint32_t *expected, uint32_t v)
{
    return atomic_compare_exchange_strong_explicit(w, expected, v, memory_order_acq_rel,
                                                   memory_order_acquire);
}

static inline bool shmnd_swap64(shmnd_word64 *w, uint64_t *expected, uint64_t v)
{
    return atomic_compare_exchange_strong_explicit(w, expected, v, memory_order_acq_rel,
                                                   memory_order_acquire);
}

/* Store a byte that another process may be polling. */
static inline void shmnd_release_byte(void *at, uint8_t v)
{
    atomic_store_explicit((_Atomic uint8_t *)at, v, memory_order_release);
}

/* Load a byte that another process may be writing. SYNC watched: acquire, pairs with release
 * in shmnd_copy_write() */
static inline uint8_t shmnd_byte_at(const void *at)
{
    return atomic_load_explicit((const _Atomic uint8_t *)at, memory_order_acquire);
}

/* Order an earlier store before a later load, which no weaker order of C11 does. It serves pairs of
 * sides of which each stores a word of its own and then loads the other's: at least one of the two
 * loads sees the other side's store. Both sides call it, under one label. */
static inline void shmnd_store_then_load(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* Order all earlier relaxed loads before a later one. */
static inline void shmnd_loads_before(void)
{
    atomic_thread_fence(memory_order_acquire);
}

/* Order all earlier plain stores before a later relaxed one. */
static inline void shmnd_stores_before(void)
{
    atomic_thread_fence(memory_order_release);
}

/* Fix the values that were copied from shared memory to `copy`: the compiler may not load them from
 * shared memory a second time. */
static inline void shmnd_read_once(void *copy)
{
    __asm__ __volatile__("" : : "r"(copy) : "memory");
}

static inline void shmnd_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
