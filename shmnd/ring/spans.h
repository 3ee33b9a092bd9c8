/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying between scattered memory, whole or in chunks that two processes claim.
 *
 * A `shmnd_spans` is a list of stretches whose bounds were checked when it was
 * made; one side of a copy may lie in another process's private memory, which
 * vm.h reaches. Chunks: the sender of a large message publishes a claim word,
 * tagged with the message; each side takes chunks by compare-and-swap and sets
 * a bit when the chunk is copied. The sender takes them from the front, the reader
 * from the back: in a buffer that is used again each finds in its own cache what it
 * copied the time before. Of a message too long for that both take the next.
 *
 * Argument. A claim succeeds only while the word carries the message's tag, so
 * a helper that is late for one message can never claim in the next. A message
 * is finished when all its bits are set, and nobody reads its source or writes
 * its sink after that, for every claimed chunk has set its bit (SYNC chunk-done).
 * The words of a message are used again only when its receiver has taken it: a
 * sender that is done first must not wipe out what tells the receiver so.
 * A death with a chunk claimed leaves the message unfinished; the connection
 * is ended then. Serves invariants 2 and 3.
 */
#ifndef SHMND_SPANS_H
#define SHMND_SPANS_H

#include <string.h>

#include "layout.h"

#define SHMND_MAX_SGE 16u
/* Chunks of 64 KiB cost the least; a message of a few chunks is better halved. */
#define SHMND_CHUNK_MIN (64u << 10)
#define SHMND_CHUNK_OF_SHORT (32u << 10)
#define SHMND_SHORT_LARGE (256u << 10)
#define SHMND_CHUNKS_MAX 64u
/* Up to here a message copied again is still in the caches. */
#define SHMND_FROM_BOTH_ENDS_MAX (2u << 20)

struct shmnd_span {
    uint64_t at; /* a pointer here, or an address in the peer's process */
    uint64_t length;
};

struct shmnd_spans {
    struct shmnd_span v[SHMND_MAX_SGE];
    uint32_t count;
    bool remote; /* addresses of the peer's process: by vm.h only */
    uint64_t total;
};

static inline void shmnd_spans_clear(struct shmnd_spans *s)
{
    s->count = 0;
    s->remote = false;
    s->total = 0;
}

static inline void shmnd_spans_add(struct shmnd_spans *s, uint64_t at, uint64_t length)
{
    if (length == 0)
        return;
    s->v[s->count].at = at;
    s->v[s->count].length = length;
    s->count++;
    s->total += length;
}

/* The part of `s` from `off` on, `length` bytes, which must lie within it. */
static inline void shmnd_spans_cut(const struct shmnd_spans *s, uint64_t off, uint64_t length,
                                   struct shmnd_spans *part)
{
    shmnd_spans_clear(part);
    part->remote = s->remote;
    for (uint32_t i = 0; i < s->count && length; i++) {
        if (off >= s->v[i].length) {
            off -= s->v[i].length;
            continue;
        }
        uint64_t take = s->v[i].length - off < length ? s->v[i].length - off : length;
        shmnd_spans_add(part, s->v[i].at + off, take);
        length -= take;
        off = 0;
    }
}

static inline void shmnd_spans_copy_mapped(const struct shmnd_spans *to,
                                           const struct shmnd_spans *from)
{
    uint32_t i = 0, j = 0;
    uint64_t done_i = 0, done_j = 0;
    while (i < to->count && j < from->count) {
        uint64_t left_i = to->v[i].length - done_i, left_j = from->v[j].length - done_j;
        uint64_t n = left_i < left_j ? left_i : left_j;
        memmove((void *)(uintptr_t)(to->v[i].at + done_i),
                (const void *)(uintptr_t)(from->v[j].at + done_j), n);
        done_i += n;
        done_j += n;
        SHMND_KILL_POINT("copy-in-midst");
        if (done_i == to->v[i].length) {
            i++;
            done_i = 0;
        }
        if (done_j == from->v[j].length) {
            j++;
            done_j = 0;
        }
    }
}

/* ---- chunks ------------------------------------------------------------------ */

struct shmnd_chunks {
    uint64_t length;
    uint64_t size;
    uint64_t all; /* the bits of a finished message */
    uint32_t count;
    uint32_t tag;
};

static inline struct shmnd_chunks shmnd_chunks_of(uint64_t length, uint64_t message)
{
    uint64_t size = (length + SHMND_CHUNKS_MAX - 1) / SHMND_CHUNKS_MAX;
    uint64_t least = length < SHMND_SHORT_LARGE ? SHMND_CHUNK_OF_SHORT : SHMND_CHUNK_MIN;
    size = size < least ? least : (size + 4095) & ~4095ull;
    uint32_t count = (uint32_t)((length + size - 1) / size);
    uint64_t all = count >= 64 ? ~0ull : (1ull << count) - 1;
    return (struct shmnd_chunks){length, size, all, count, (uint32_t)message};
}

static inline void shmnd_chunks_offer(struct shmnd_share *share, const struct shmnd_chunks *c)
{
    /* relaxed: ordered by the release that publishes the message's slot */
    shmnd_put64(&share->done, 0);
    shmnd_put64(&share->claim, (uint64_t)c->tag << 32);
    SHMND_KILL_POINT("chunks-offered");
}

/* The word of claims: chunks claimed from the front, and from the back. */
static inline uint32_t shmnd_claimed_front(uint64_t word)
{
    return (uint16_t)word;
}

static inline uint32_t shmnd_claimed_back(uint64_t word)
{
    return (uint16_t)(word >> 16);
}

/* Is there a chunk of this message that nobody has claimed? */
static inline bool shmnd_chunks_left(uint64_t word, const struct shmnd_chunks *c)
{
    return (uint32_t)(word >> 32) == c->tag &&
           shmnd_claimed_front(word) + shmnd_claimed_back(word) < c->count;
}

/* A chunk that nobody has claimed, the first of them or the last; -1: none is left. */
static inline int shmnd_chunks_claim(struct shmnd_share *share, const struct shmnd_chunks *c,
                                     bool last)
{
    uint64_t word = shmnd_relaxed64(&share->claim);
    /* Two honest sides collide at most once a chunk; a peer that scribbles on
     * the word must not keep us here. */
    for (uint32_t tries = 0; tries < 2 * SHMND_CHUNKS_MAX; tries++) {
        if (!shmnd_chunks_left(word, c))
            return -1;
        uint32_t chunk = last ? c->count - 1 - shmnd_claimed_back(word) : shmnd_claimed_front(word);
        /* needs no order: it only divides the work, and SYNC slot-ready showed the source */
        if (shmnd_swap64(&share->claim, &word, word + (last ? 1u << 16 : 1u)))
            return (int)chunk;
    }
    return -1;
}

static inline void shmnd_chunks_set_done(struct shmnd_share *share, int chunk)
{
    /* SYNC chunk-done: release, pairs with acquire in shmnd_chunks_finished() */
    shmnd_set_bits(&share->done, 1ull << chunk);
}

static inline bool shmnd_chunks_finished(const struct shmnd_share *share,
                                         const struct shmnd_chunks *c)
{
    /* SYNC chunk-done: acquire, pairs with release in shmnd_chunks_set_done() */
    return (shmnd_acquire64(&share->done) & c->all) == c->all;
}

static inline uint64_t shmnd_chunk_bytes(const struct shmnd_chunks *c, int chunk)
{
    uint64_t off = (uint64_t)chunk * c->size;
    return c->length - off < c->size ? c->length - off : c->size;
}

#endif
