/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of numpy's arrays in a rank: those of a middle size lie in its arena
 * (transport/copying/arena.h), all others where numpy puts them anyway.
 *
 * numpy asks a handler for the memory of each array, and keeps the handler with the array (NEP 49).
 * So a handler may come and go while arrays live; the handler that took memory gives it back.
 * The declarations are those of numpy's version 1 of handlers; `shared_arrays.pyx` checks that.
 */
#ifndef SHMPI_ARRAY_MEMORY_H
#define SHMPI_ARRAY_MEMORY_H

#include <stdint.h>
#include <string.h>

#include "transport/copying/arena.h"

typedef struct {
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t items, size_t item_size);
    void *(*realloc)(void *ctx, void *p, size_t size);
    void (*free)(void *ctx, void *p, size_t size);
} nd_allocator;

typedef struct {
    char name[127];
    uint8_t version;
    nd_allocator allocator;
} nd_handler;

/* What the functions below work with; one of each for a process. */
static struct shmpi_arena *nd_arena;
static nd_allocator nd_usual;

static void *nd_malloc(void *ctx, size_t size)
{
    bool zero;
    void *p = shmpi_arena_take(nd_arena, size, &zero);
    (void)ctx;
    return p ? p : nd_usual.malloc(nd_usual.ctx, size);
}

static void *nd_calloc(void *ctx, size_t items, size_t item_size)
{
    bool zero = false;
    size_t size = 0;
    (void)ctx;
    if (__builtin_mul_overflow(items, item_size, &size))
        return NULL;
    void *p = shmpi_arena_take(nd_arena, size, &zero);
    if (!p)
        return nd_usual.calloc(nd_usual.ctx, items, item_size);
    return zero ? p : memset(p, 0, size);
}

static void nd_free(void *ctx, void *p, size_t size)
{
    (void)ctx;
    if (p && shmpi_arena_has(nd_arena, p))
        shmpi_arena_return(nd_arena, p);
    else
        nd_usual.free(nd_usual.ctx, p, size);
}

static void *nd_realloc(void *ctx, void *p, size_t size)
{
    if (!p || !shmpi_arena_has(nd_arena, p))
        return nd_usual.realloc(nd_usual.ctx, p, size);
    uint64_t held = shmpi_arena_held(nd_arena, p);
    if (size <= held && size > held / 2)
        return p;
    void *other = nd_malloc(ctx, size);
    if (!other)
        return NULL;
    memcpy(other, p, size < held ? size : held);
    nd_free(ctx, p, held);
    return other;
}

static nd_handler nd_in_arena = {
    "shmnd_mpi",
    1,
    {NULL, nd_malloc, nd_calloc, nd_realloc, nd_free},
};

#endif
