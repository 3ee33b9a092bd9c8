/* SPDX-License-Identifier: Apache-2.0
 *
 * A cell: one value that one process writes and any number of processes read. A reader
 * gets a whole value or tries again; it never waits for the writer.
 *
 * The cell has SHMND_CELL_COPIES copies of the value; version v lies in copy v modulo
 * their number. `published` is the newest whole version, `begun` the newest that the
 * writer has begun. Only the writer writes; readers map the memory read-only.
 *
 * Argument. SYNC published: the writer stores the version with release after its bytes,
 * the reader loads it with acquire before it copies, so it copies no bytes older than
 * the version. SYNC begun: the writer stores `begun`, then (release fence) the bytes; the
 * reader copies, then (acquire fence) loads `begun`. If it copied a byte of version w, it
 * sees begun >= w; and w goes to the copy of v only if w >= v + COPIES. So begun below
 * v + COPIES proves that the copy is version v, whole. The bytes are words that both
 * sides access as atomics, so a torn copy is a wrong number and no undefined behaviour.
 *
 * A writer that dies within a write has begun a version that is never published: the one
 * before stays. Serves 'always the newest whole value'.
 */
#ifndef SHMND_IPC_CELL_H
#define SHMND_IPC_CELL_H

#include "wire/kill_point.h"
#include "wire/atomics.h"

#define SHMND_CELL_COPIES 4u

struct shmnd_cell {
    shmnd_word64 published; /* writer */
    shmnd_word64 begun;     /* writer */
    char pad[112];
};

_Static_assert(sizeof(struct shmnd_cell) == 128, "two lines; the copies follow");

/* Return how many words one copy of `bytes` bytes takes: whole cache lines. */
static inline uint64_t shmnd_cell_words(uint64_t bytes)
{
    return (bytes + 63) / 64 * 8;
}

static inline uint64_t shmnd_cell_bytes(uint64_t bytes)
{
    return sizeof(struct shmnd_cell) + SHMND_CELL_COPIES * shmnd_cell_words(bytes) * 8;
}

static inline shmnd_word64 *shmnd_cell_copy(const struct shmnd_cell *cell, uint64_t words,
                                            uint64_t version)
{
    return (shmnd_word64 *)(cell + 1) + version % SHMND_CELL_COPIES * words;
}

/* Write `words` words into the next copy, and return their version. For the writer alone. */
static inline uint64_t shmnd_cell_write(struct shmnd_cell *cell, const uint64_t *value,
                                        uint64_t words, uint64_t stride)
{
    uint64_t version = shmnd_relaxed64(&cell->published) + 1;
    shmnd_word64 *copy = shmnd_cell_copy(cell, stride, version);
    shmnd_put64(&cell->begun, version);
    /* SYNC begun: release fence, pairs with the acquire fence in shmnd_cell_read() */
    shmnd_stores_before();
    SHMND_KILL_POINT("cell-begun");
    for (uint64_t i = 0; i < words; i++)
        shmnd_put64(&copy[i], value[i]);
    SHMND_KILL_POINT("cell-written");
    /* SYNC published: release, pairs with acquire in shmnd_cell_read() */
    shmnd_release64(&cell->published, version);
    SHMND_KILL_POINT("cell-published");
    return version;
}

/* Copy the newest value once, and return its version; 0 if none was written yet, ~0 if the writer
 * has begun to replace it meanwhile. */
static inline uint64_t shmnd_cell_read(const struct shmnd_cell *cell, uint64_t *value,
                                       uint64_t words, uint64_t stride)
{
    /* SYNC published: acquire, pairs with release in shmnd_cell_write() */
    uint64_t version = shmnd_acquire64(&cell->published);
    if (version == 0)
        return 0;
    const shmnd_word64 *copy = shmnd_cell_copy(cell, stride, version);
    for (uint64_t i = 0; i < words; i++)
        value[i] = shmnd_relaxed64(&copy[i]);
    /* SYNC begun: acquire fence, pairs with the release fence in shmnd_cell_write() */
    shmnd_loads_before();
    if (shmnd_relaxed64(&cell->begun) - version >= SHMND_CELL_COPIES)
        return ~0ull;
    return version;
}

static inline uint64_t shmnd_cell_version(const struct shmnd_cell *cell)
{
    /* SYNC published: acquire, pairs with release in shmnd_cell_write() */
    return shmnd_acquire64(&cell->published);
}

#endif
