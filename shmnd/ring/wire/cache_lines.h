/* SPDX-License-Identifier: Apache-2.0
 *
 * Cache lines that are wanted on another core, or here, before the program comes to them.
 *
 * All of these are hints: they change no byte and order nothing, so no argument rests on them. A
 * processor that lacks an instruction ignores it.
 */
#ifndef SHMND_WIRE_CACHE_LINES_H
#define SHMND_WIRE_CACHE_LINES_H

#include <stdint.h>

#define SHMND_LINE_BYTES 64u

/* A message of up to this many bytes is moved towards its reader. The instruction takes much longer
 * than a store: a longer message would reach its reader later. */
#define SHMND_DEMOTE_MAX 1280u

/* As many bytes of the next message are fetched at most: they are to stay in the first cache. */
#define SHMND_OWN_MAX 8192u

/* Fetch a line that will be read soon. */
static inline void shmnd_prefetch(const void *at)
{
    __builtin_prefetch(at);
}

/* Fetch a line that will be written soon. */
static inline void shmnd_prefetch_to_write(const void *at)
{
    __builtin_prefetch(at, 1);
}

/* Fetch a line that no other core polls now, to write it: invalidate their copies, so that the
 * write finds the line exclusive. */
static inline void shmnd_prefetch_to_own(const void *at)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* Move a line that was written here into a cache that the cores share: a reader finds it there
 * sooner than in the cache of this core. */
static inline void shmnd_demote(const void *at)
{
#if defined(__x86_64__)
    /* cldemote (%rdi), by its bytes: they need no option of the compiler */
    __asm__ __volatile__(".byte 0x0f, 0x1c, 0x07" : : "D"(at), "m"(*(const char *)at));
#else
    (void)at;
#endif
}

/* Fetch the lines of up to `next` bytes behind `pos` of a ring of `mask` + 1 bytes, which will be
 * written and which the reader has left: an earlier lap has moved them to its core, and they come
 * back while the program does something else. Not the first line, which the reader polls. */
static __attribute__((noinline, unused)) void shmnd_lines_own(const void *ring, uint64_t mask,
                                                              uint64_t pos, uint64_t next)
{
    const char *base = ring;
    if (next > SHMND_OWN_MAX)
        next = SHMND_OWN_MAX;
    for (uint64_t i = SHMND_LINE_BYTES; i < next; i += SHMND_LINE_BYTES)
        shmnd_prefetch_to_own(base + ((pos + i) & mask));
}

/* Move the lines of the `written` bytes at `pos`, which were published, towards a reader that waits
 * for them and does something else before it comes to their end. Not the first line, which it
 * polls. */
static inline void shmnd_lines_demote(const void *ring, uint64_t mask, uint64_t pos,
                                      uint64_t written)
{
    const char *base = ring;
    if (written > SHMND_DEMOTE_MAX)
        return;
    for (uint64_t i = SHMND_LINE_BYTES; i < written; i += SHMND_LINE_BYTES)
        shmnd_demote(base + ((pos + i) & mask));
}

#endif
