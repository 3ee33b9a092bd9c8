/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying between scattered ranges of memory, whole or in chunks that two processes claim.
 *
 * A `shmnd_spans` is a list of ranges whose bounds were checked when the list was made. Single
 * ranges of one of the two lists may be in another process's private memory, which
 * process_memory.h copies.
 *
 * Chunks: the sender of a large message publishes a claim word, tagged with the message's number.
 * Each side claims chunks by compare-and-swap and counts each chunk that it has copied. The sender
 * claims from the front and the reader from the back, until they meet: so each copies one
 * contiguous half.
 *
 * Argument. The counts of both ends are in one word, and a claim swaps the word in which it found
 * chunks left: no chunk is claimed twice, also when the two ends meet. A claim succeeds only while
 * the word has the message's tag, so a side that is late for one message cannot claim a chunk of
 * the next. A message is finished when all its chunks are counted. No side reads its source or
 * writes its target after that, since each claimed chunk is counted when it was copied (SYNC
 * chunk-done). The counts form one chain of read-modify-writes, so the side that loads the last
 * count sees the bytes copied before each count. A claimed chunk is copied within the same call, so
 * neither side ever waits for a chunk that the other holds between two of its calls.
 * The two words of a message are reused only when its receiver has taken it: a sender that finishes
 * first must not overwrite the count by which the receiver finds that the message is finished.
 * If a process dies while it holds a claimed chunk, the message stays unfinished and the connection
 * ends. Serves invariants 2 and 3.
 */
#ifndef SHMND_WIRE_SCATTERED_COPY_H
#define SHMND_WIRE_SCATTERED_COPY_H

#include <string.h>

#include "wire/clock.h"
#include "wire/copy_bytes.h"
#include "wire/layout.h"

#define SHMND_MAX_SGE 16u
/* A call that never waits copies at most about this much, which takes well under a millisecond,
 * and leaves the rest to the next call. */
#define SHMND_PIECE (2ull << 20)
/* Below this length a message has one chunk, from here to SHMND_PIECE two, of which each side
 * copies one, and above many. */
#define SHMND_SHARE_MIN (32u << 10)
#define SHMND_CHUNK_MIN (64u << 10)
#define SHMND_CHUNKS_MAX 64u
/* The limit of a chunk, however many chunks result: a call copies a few of them at most. */
#define SHMND_CHUNK_MAX (1u << 20)

struct shmnd_span {
    uint64_t at; /* a pointer here, or an address in the peer's process */
    uint64_t length;
};

struct shmnd_spans {
    struct shmnd_span v[SHMND_MAX_SGE];
    uint32_t count;
    /* Ranges that only process_memory.h accesses. Bit i: v[i] is an address in the peer's process.
     * Bit i + SHMND_MAX_SGE: v[i] is in this process, in fragile memory (tokens.h). */
    uint32_t remote;
    uint64_t total;
};

#define SHMND_REMOTE_BITS ((1u << SHMND_MAX_SGE) - 1)

_Static_assert(SHMND_MAX_SGE <= 16, "two bits for each range");

static inline void shmnd_spans_clear(struct shmnd_spans *s)
{
    s->count = 0;
    s->remote = 0;
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

/* Add a range of the peer's process. */
static inline void shmnd_spans_add_remote(struct shmnd_spans *s, uint64_t at, uint64_t length)
{
    if (length)
        s->remote |= 1u << s->count;
    shmnd_spans_add(s, at, length);
}

/* Add a range of fragile memory of this process. */
static inline void shmnd_spans_add_fragile(struct shmnd_spans *s, uint64_t at, uint64_t length)
{
    if (length)
        s->remote |= 1u << (s->count + SHMND_MAX_SGE);
    shmnd_spans_add(s, at, length);
}

/* Store the `length` bytes of `s` from `off` on, which must be within it, in `part`. */
static inline void shmnd_spans_slice(const struct shmnd_spans *s, uint64_t off, uint64_t length,
                                     struct shmnd_spans *part)
{
    shmnd_spans_clear(part);
    for (uint32_t i = 0; i < s->count && length; i++) {
        if (off >= s->v[i].length) {
            off -= s->v[i].length;
            continue;
        }
        uint64_t take = s->v[i].length - off < length ? s->v[i].length - off : length;
        part->remote |= (s->remote >> i & (1u | 1u << SHMND_MAX_SGE)) << part->count;
        shmnd_spans_add(part, s->v[i].at + off, take);
        length -= take;
        off = 0;
    }
}

/* An iteration over two lists, by ranges that are contiguous in both. */
struct shmnd_walk {
    const struct shmnd_spans *to, *from;
    uint32_t i, j;
    uint64_t done_i, done_j;
};

struct shmnd_stretch {
    void *to;
    const void *from;
    uint64_t length;
    bool remote;  /* one of the two is an address in the peer's process */
    bool fragile; /* one of the two is fragile memory of this process */
};

static inline struct shmnd_walk shmnd_walk_of(const struct shmnd_spans *to,
                                              const struct shmnd_spans *from)
{
    return (struct shmnd_walk){.to = to, .from = from};
}

/* Store the next stretch of both lists in `s`. Return false if one of them has ended. */
static inline bool shmnd_walk_next(struct shmnd_walk *w, struct shmnd_stretch *s)
{
    if (w->i >= w->to->count || w->j >= w->from->count)
        return false;
    const struct shmnd_span *to = &w->to->v[w->i], *from = &w->from->v[w->j];
    uint64_t left_i = to->length - w->done_i, left_j = from->length - w->done_j;
    s->to = (void *)(uintptr_t)(to->at + w->done_i);
    s->from = (const void *)(uintptr_t)(from->at + w->done_j);
    s->length = left_i < left_j ? left_i : left_j;
    uint32_t bits = w->to->remote >> w->i | w->from->remote >> w->j;
    s->remote = bits & 1;
    s->fragile = bits >> SHMND_MAX_SGE & 1;
    w->done_i += s->length;
    w->done_j += s->length;
    if (w->done_i == to->length) {
        w->i++;
        w->done_i = 0;
    }
    if (w->done_j == from->length) {
        w->j++;
        w->done_j = 0;
    }
    return true;
}

static inline void shmnd_spans_copy_mapped(const struct shmnd_spans *to,
                                           const struct shmnd_spans *from)
{
    struct shmnd_walk w = shmnd_walk_of(to, from);
    struct shmnd_stretch s;
    while (shmnd_walk_next(&w, &s)) {
        shmnd_copy_bytes(s.to, s.from, s.length);
        SHMND_KILL_POINT("copy-midway");
    }
}

/* ---- chunks ------------------------------------------------------------------ */

struct shmnd_chunks {
    uint64_t length;
    uint64_t size;
    uint32_t count;
    uint32_t tag;
};

/* Return whether the message has a half for each side. A side copies the other half only if the
 * other side stays away. So in a buffer that is used again it finds the data that it copied the
 * time before in its own cache, and takes no lines from the cache of the other core. */
static inline bool shmnd_chunks_are_halves(const struct shmnd_chunks *c)
{
    return c->length <= SHMND_PIECE;
}

static inline struct shmnd_chunks shmnd_chunks_of(uint64_t length, uint64_t message)
{
    bool halves = length <= SHMND_PIECE;
    uint64_t some = length < SHMND_SHARE_MIN ? 1 : halves ? 2 : SHMND_CHUNKS_MAX;
    uint64_t unit = halves ? 64 : 4096;
    uint64_t least = halves ? unit : SHMND_CHUNK_MIN;
    uint64_t size = ((length + some - 1) / some + unit - 1) & ~(unit - 1);
    size = size < least ? least : size > SHMND_CHUNK_MAX ? SHMND_CHUNK_MAX : size;
    uint32_t count = (uint32_t)((length + size - 1) / size);
    return (struct shmnd_chunks){length, size, count, (uint32_t)message};
}

static inline void shmnd_chunks_advertise(struct shmnd_share *share, const struct shmnd_chunks *c)
{
    /* relaxed: ordered by the release that publishes the message's slot */
    shmnd_put64(&share->done, 0);
    shmnd_put64(&share->claim, (uint64_t)c->tag << 32);
    SHMND_KILL_POINT("chunks-advertised");
}

/* Return the chunks claimed from the front, a field of the claim word. */
static inline uint32_t shmnd_claimed_front(uint64_t word)
{
    return (uint16_t)word;
}

static inline uint32_t shmnd_claimed_back(uint64_t word)
{
    return (uint16_t)(word >> 16);
}

/* Return whether there is an unclaimed chunk of this message. */
static inline bool shmnd_chunks_unclaimed(uint64_t word, const struct shmnd_chunks *c)
{
    return (uint32_t)(word >> 32) == c->tag &&
           shmnd_claimed_front(word) + shmnd_claimed_back(word) < c->count;
}

/* Return the number of chunks of one side's half. */
static inline uint32_t shmnd_chunks_half(const struct shmnd_chunks *c, bool reading)
{
    return reading ? c->count / 2 : c->count - c->count / 2;
}

/* Return whether there is a chunk that this side claims without waiting for the other one: of its
 * own half, or any of a message of many chunks. */
static inline bool shmnd_chunks_due(uint64_t word, const struct shmnd_chunks *c, bool reading)
{
    uint32_t mine = reading ? shmnd_claimed_back(word) : shmnd_claimed_front(word);
    return shmnd_chunks_unclaimed(word, c) &&
           (!shmnd_chunks_are_halves(c) || mine < shmnd_chunks_half(c, reading));
}

/* How long a side waits for the other one: longer than a program takes from one message to the
 * next. */
#define SHMND_PATIENCE_NS 4000u

/* Wait for the other side to claim the other chunks. Return false if it has not. */
static inline bool shmnd_chunks_await_claim(const struct shmnd_share *share,
                                            const struct shmnd_chunks *c, uint64_t patience_ns)
{
    uint64_t end_ns = patience_ns ? shmnd_now_ns() + patience_ns : 0;
    while (shmnd_chunks_unclaimed(shmnd_relaxed64(&share->claim), c)) {
        if (patience_ns == 0 || shmnd_now_ns() > end_ns)
            return false;
        shmnd_pause();
    }
    return true;
}

/* Consecutive chunks that were claimed together. */
struct shmnd_claim {
    uint32_t first, count; /* count 0: no chunk was left */
};

/* Return the number of chunks of a claim by a side that has claimed `mine` of `count`, while `left`
 * are unclaimed: see shmnd_chunks_claim_up_to(). */
static inline uint32_t shmnd_chunks_in_claim(uint32_t count, uint32_t mine, uint32_t left,
                                             uint32_t most)
{
    uint32_t least = most / 4 < count / 8 ? most / 4 : count / 8;
    uint32_t some = mine < count / 2 ? count / 2 - mine : left / 2;
    some = some > least ? some : least;
    some = some > most ? most : some;
    some = some > left ? left : some;
    return some ? some : 1;
}

/* Claim unclaimed chunks, at most `most`: the last ones for the reader, the first ones for the
 * sender. A side claims its own half of the message first, which takes the fewest claims if both
 * begin together. Then it helps the other one, by half of those left, so that both finish at about
 * the same time; but by a quarter of `most`, or an eighth of the message, since the last claims
 * would be many short ones otherwise. */
static inline struct shmnd_claim shmnd_chunks_claim_up_to(struct shmnd_share *share,
                                                          const struct shmnd_chunks *c,
                                                          bool reading, uint32_t most)
{
    uint64_t word = shmnd_relaxed64(&share->claim);
    /* Two correct sides collide at most once a chunk; a hostile peer that keeps changing the word
     * must not keep this loop running. */
    for (uint32_t tries = 0; tries < 2 * SHMND_CHUNKS_MAX; tries++) {
        if (!shmnd_chunks_unclaimed(word, c))
            break;
        uint32_t front = shmnd_claimed_front(word), back = shmnd_claimed_back(word);
        uint32_t left = c->count - front - back;
        uint32_t some = shmnd_chunks_in_claim(c->count, reading ? back : front, left, most);
        /* needs no order: it only divides the work, and SYNC slot-ready showed the source */
        if (shmnd_swap64(&share->claim, &word, word + (reading ? (uint64_t)some << 16 : some)))
            return (struct shmnd_claim){reading ? c->count - back - some : front, some};
    }
    return (struct shmnd_claim){0, 0};
}

/* Claim one chunk and return its number; -1: none is left. */
static inline int shmnd_chunks_claim_one(struct shmnd_share *share, const struct shmnd_chunks *c,
                                         bool reading)
{
    struct shmnd_claim claim = shmnd_chunks_claim_up_to(share, c, reading, 1);
    return claim.count ? (int)claim.first : -1;
}

/* Count chunks that were copied. */
static inline void shmnd_chunks_complete(struct shmnd_share *share, uint32_t count)
{
    /* SYNC chunk-done: release, pairs with acquire in shmnd_chunks_finished() */
    shmnd_add64(&share->done, count);
}

static inline bool shmnd_chunks_finished(const struct shmnd_share *share,
                                         const struct shmnd_chunks *c)
{
    /* SYNC chunk-done: acquire, pairs with release in shmnd_chunks_complete() */
    return shmnd_acquire64(&share->done) >= c->count;
}

/* Return the bytes of chunks that were claimed together. */
static inline uint64_t shmnd_claim_bytes(const struct shmnd_chunks *c, struct shmnd_claim claim)
{
    uint64_t off = claim.first * c->size, all = claim.count * c->size;
    return c->length - off < all ? c->length - off : all;
}

#endif
