/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena of a rank: memory for arrays of a middle size, which all ranks of the job map.
 *
 * Each rank has a part of the job's memory, and it alone takes blocks of it and returns them.
 * What it keeps for that is in private memory, so that no peer can overwrite it. Blocks have a few
 * sizes (four for each doubling); a block that was returned waits for the next request of its
 * size. Pages of blocks that wait are returned to the kernel beyond a bound; they read as zeros
 * afterwards.
 *
 * A forked child has the arena in common with its parent. It takes no block (`closed`); its arrays
 * become its own by shmpi_arena_unshare().
 *
 * Threads may call at the same time: each call holds a lock for some instructions, or while the
 * kernel takes pages back.
 */
#ifndef SHMPI_ARENA_H
#define SHMPI_ARENA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>

enum {
    SHMPI_PAGE = 4096,
    /* Bytes of the smallest request, since shorter messages are copied anyway, and of the largest,
     * beyond which huge pages are worth more. */
    SHMPI_ARENA_LEAST = 8 << 10,
    SHMPI_ARENA_MOST = 16 << 20,
    SHMPI_ARENA_FIRST = 16 << 10,  /* bytes of the smallest block */
    SHMPI_ARENA_KINDS = 64,        /* sizes of blocks */
    SHMPI_ARENA_WAITING = 64 << 20 /* bytes of blocks that wait with their pages */
};

struct shmpi_arena {
    char *base;                        /* NULL: there is none */
    uint64_t bytes, fresh;             /* from `fresh` on nothing was ever taken */
    uint64_t waiting;                  /* bytes of blocks that wait with their pages */
    uint32_t first[SHMPI_ARENA_KINDS]; /* 1 + page of a block that waits, for each size; 0: none */
    uint32_t *next;                    /* the same for each page that begins such a block */
    uint8_t *kind; /* 1 + the size of the block that begins at a page, and the marks below */
    bool closed;
    char lock;
};

enum { SHMPI_BLOCK_ZERO = 0x80, SHMPI_BLOCK_TAKEN = 0x40, SHMPI_BLOCK_KIND = 0x3f };

static inline uint64_t shmpi_arena_size(uint32_t kind)
{
    return (uint64_t)(4 + (kind & 3)) << (12 + kind / 4);
}

/* Return the kind of the smallest block for `n` bytes. */
static inline uint32_t shmpi_arena_kind(uint64_t n)
{
    if (n <= SHMPI_ARENA_FIRST)
        return 0;
    uint32_t shift = 61 - (uint32_t)__builtin_clzll(n - 1); /* 4 << shift <= n - 1 < 8 << shift */
    uint32_t parts = (uint32_t)((n - 1) >> shift) + 1;      /* 5 to 8 */
    return 4 * (shift - 12) + parts - 4;
}

/* Open an arena. Return false without memory; then there is none. */
static inline bool shmpi_arena_open(struct shmpi_arena *a, char *base, uint64_t bytes)
{
    memset(a, 0, sizeof *a);
    a->next = calloc(bytes / SHMPI_PAGE, sizeof *a->next);
    a->kind = calloc(bytes / SHMPI_PAGE, sizeof *a->kind);
    if (!a->next || !a->kind) {
        free(a->next);
        free(a->kind);
        return false;
    }
    a->base = base;
    a->bytes = bytes;
    return true;
}

static inline void shmpi_arena_close(struct shmpi_arena *a)
{
    free(a->next);
    free(a->kind);
    memset(a, 0, sizeof *a);
}

static inline void shmpi_arena_lock(struct shmpi_arena *a)
{
    while (__atomic_test_and_set(&a->lock, __ATOMIC_ACQUIRE))
        sched_yield();
}

static inline void shmpi_arena_unlock(struct shmpi_arena *a)
{
    __atomic_clear(&a->lock, __ATOMIC_RELEASE);
}

static inline bool shmpi_arena_has(const struct shmpi_arena *a, const void *p)
{
    return (uint64_t)((uintptr_t)p - (uintptr_t)a->base) < a->bytes;
}

/* Return the bytes of the block that begins at `p`. */
static inline uint64_t shmpi_arena_held(const struct shmpi_arena *a, const void *p)
{
    uint64_t page = (uint64_t)((const char *)p - a->base) / SHMPI_PAGE;
    return shmpi_arena_size((a->kind[page] & SHMPI_BLOCK_KIND) - 1u);
}

/* Take a block for `n` bytes, or return NULL; with `*zero` all of it reads as zeros. */
static inline void *shmpi_arena_take(struct shmpi_arena *a, uint64_t n, bool *zero)
{
    *zero = false;
    if (n < SHMPI_ARENA_LEAST || n > SHMPI_ARENA_MOST || a->closed || !a->base)
        return NULL;
    uint32_t kind = shmpi_arena_kind(n);
    uint64_t size = shmpi_arena_size(kind), page;
    char *p = NULL;
    shmpi_arena_lock(a);
    if (a->first[kind]) {
        page = a->first[kind] - 1;
        a->first[kind] = a->next[page];
        *zero = a->kind[page] & SHMPI_BLOCK_ZERO;
        a->waiting -= *zero ? 0 : size;
        p = a->base + page * SHMPI_PAGE;
    } else if (size <= a->bytes - a->fresh) {
        page = a->fresh / SHMPI_PAGE;
        a->fresh += size;
        *zero = true;
        p = a->base + page * SHMPI_PAGE;
    }
    if (p)
        a->kind[page] = (uint8_t)((kind + 1) | SHMPI_BLOCK_TAKEN);
    shmpi_arena_unlock(a);
    return p;
}

static inline void shmpi_arena_return(struct shmpi_arena *a, void *p)
{
    uint64_t page = (uint64_t)((char *)p - a->base) / SHMPI_PAGE;
    if (a->closed)
        return;
    shmpi_arena_lock(a);
    if (a->kind[page] & SHMPI_BLOCK_TAKEN) {
        uint32_t kind = (a->kind[page] & SHMPI_BLOCK_KIND) - 1u;
        uint64_t size = shmpi_arena_size(kind);
        bool zero = a->waiting + size > SHMPI_ARENA_WAITING && !madvise(p, size, MADV_REMOVE);
        a->waiting += zero ? 0 : size;
        a->kind[page] = (uint8_t)((kind + 1) | (zero ? SHMPI_BLOCK_ZERO : 0));
        a->next[page] = a->first[kind];
        a->first[kind] = (uint32_t)page + 1;
    }
    shmpi_arena_unlock(a);
}

/* Make the blocks a forked child's own, at the same addresses, and close the arena. The parent must
 * not run meanwhile. Return false without memory: then a part is still in common. */
static inline bool shmpi_arena_unshare(struct shmpi_arena *a)
{
    a->closed = true;
    a->lock = 0; /* the thread that held it does not exist here */
    for (uint64_t at = 0, size; at < a->fresh; at += size) {
        uint8_t kind = a->kind[at / SHMPI_PAGE];
        size = shmpi_arena_size((kind & SHMPI_BLOCK_KIND) - 1u);
        if (!(kind & SHMPI_BLOCK_TAKEN))
            continue;
        void *own = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (own == MAP_FAILED)
            return false;
        memcpy(own, a->base + at, size);
        if (mremap(own, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, a->base + at) == MAP_FAILED)
            return false;
    }
    return true;
}

#endif
