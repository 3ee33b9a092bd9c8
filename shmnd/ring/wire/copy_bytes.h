/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy within this process's address space: memmove(), except where that is slow.
 *
 * From about 2 KiB on the C library copies by one instruction for a whole string (`rep movsb`). If
 * the target lies less than 32 bytes behind its source in their pages, newer processors of AMD
 * carry that out byte by byte: 256 KiB take 75 us in place of 5. Glibc avoids it from version 2.39
 * on. A message whose header of 8 bytes precedes a buffer that begins a page meets this each time
 * that it is received at the beginning of a page. Such a copy is made here with vectors.
 *
 * The kernel copies by the same instruction, within each page. A copy between two processes is
 * therefore made by way of a stage: memory of this process that has the same place in its page as
 * the memory of the other one.
 */
#ifndef SHMND_WIRE_COPY_BYTES_H
#define SHMND_WIRE_COPY_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Shorter copies are made without the instruction. */
#define SHMND_COPY_LONG 2048u
#define SHMND_COPY_PAGE 4096u
/* A target less than so many bytes behind its source, in their pages, is copied to slowly. */
#define SHMND_COPY_CLOSE 32u

typedef uint64_t shmnd_vector __attribute__((vector_size(16), aligned(1), may_alias));
typedef uint64_t shmnd_aligned_vector __attribute__((vector_size(16), may_alias));

/* Copy two vectors or more. The ranges do not overlap, or the target is before the source. */
static __attribute__((noinline, unused)) void shmnd_copy_vectors(uint8_t *to, const uint8_t *from,
                                                                 size_t n)
{
    enum { V = sizeof(shmnd_vector) };
    shmnd_vector first = *(const shmnd_vector *)from, last = *(const shmnd_vector *)(from + n - V);
    shmnd_vector *end = (shmnd_vector *)(to + n - V);
    *(shmnd_vector *)to = first;                 /* no source of what follows lies there */
    size_t skip = V - ((uintptr_t)to & (V - 1)); /* to where the target is aligned */
    to += skip;
    from += skip;
    for (n -= skip; n >= 4 * (size_t)V; n -= 4 * (size_t)V, to += 4 * V, from += 4 * V) {
        shmnd_vector a = *(const shmnd_vector *)from, b = *(const shmnd_vector *)(from + V),
                     c = *(const shmnd_vector *)(from + 2 * V),
                     d = *(const shmnd_vector *)(from + 3 * V);
        *(shmnd_aligned_vector *)to = a;
        *(shmnd_aligned_vector *)(to + V) = b;
        *(shmnd_aligned_vector *)(to + 2 * V) = c;
        *(shmnd_aligned_vector *)(to + 3 * V) = d;
    }
    for (; n >= V; n -= V, to += V, from += V)
        *(shmnd_aligned_vector *)to = *(const shmnd_vector *)from;
    *end = last;
}

/* Return whether a copy by `rep movsb` is slow. The two may be addresses in different processes. */
static inline bool shmnd_copy_is_close(const void *to, const void *from, size_t n)
{
    uintptr_t behind = ((uintptr_t)to - (uintptr_t)from) & (SHMND_COPY_PAGE - 1);
    return n > SHMND_COPY_LONG && behind - 1 < SHMND_COPY_CLOSE - 1;
}

/* Return whether memmove() would copy so slowly. A target that begins within its source it copies
 * from the end. */
static inline bool shmnd_copy_is_slow(const void *to, const void *from, size_t n)
{
    return shmnd_copy_is_close(to, from, n) && (uintptr_t)to - (uintptr_t)from >= n;
}

/* Copy `n` bytes. The two ranges may overlap. */
static inline void shmnd_copy_bytes(void *to, const void *from, size_t n)
{
    if (shmnd_copy_is_slow(to, from, n))
        shmnd_copy_vectors((uint8_t *)to, (const uint8_t *)from, n);
    else
        memmove(to, from, n);
}

/* A thread may have a small stack. */
#define SHMND_STAGE_BYTES (32u << 10)

/* Copy between this process and another one, to that one if it `writes`. Return 0 or an errno
 * value. */
typedef int (*shmnd_copy_between)(void *processes, uint8_t *here, uint8_t *there, uint64_t n,
                                  bool writes);

/* Copy between two processes by way of a stage. Return 0 or the error of `copy`. */
static __attribute__((noinline, unused)) int shmnd_copy_by_stage(shmnd_copy_between copy,
                                                                 void *processes, uint8_t *here,
                                                                 uint8_t *there, uint64_t length,
                                                                 bool writes)
{
    _Alignas(SHMND_COPY_PAGE) uint8_t stage[SHMND_STAGE_BYTES + SHMND_COPY_PAGE];
    /* Parts are whole pages, so each lies in its pages as the first one does. */
    uint8_t *staged = stage + ((uintptr_t)there & (SHMND_COPY_PAGE - 1));
    for (uint64_t done = 0, n; done < length; done += n) {
        n = length - done < SHMND_STAGE_BYTES ? length - done : SHMND_STAGE_BYTES;
        if (writes)
            shmnd_copy_bytes(staged, here + done, n);
        int error = copy(processes, staged, there + done, n, writes);
        if (error)
            return error;
        if (!writes)
            shmnd_copy_bytes(here + done, staged, n);
    }
    return 0;
}

#endif
