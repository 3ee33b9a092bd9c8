/* SPDX-License-Identifier: Apache-2.0
 *
 * Which process may use a block of the queue's memory, and when the block is free again.
 *
 * Blocks lie in chunks, and each chunk belongs to one member, which alone makes blocks in
 * it. From the push on a block belongs to the line; from the take on it belongs to its
 * consumer alone, which gives it back by one store. There is no count: what a consumer has
 * is written on its own page, and ends with it.
 *
 * Argument for reuse. (1) SYNC freed: the consumer stores FREE with release, after its
 * last access; the owner loads it with acquire before it writes the block.
 * (2) A block that is LIVE and neither in the line nor on a page belongs to no process. The
 * consumer writes `taking`, then takes (SYNC held: the swap releases it), then writes
 * the hold, then clears `taking` with release. A search reads the slots first, then
 * of each page `taking` before the holds (SYNC taking, SYNC unheld), so a block that has left the
 * line is seen on the page of a consumer that lives, unless it is FREE by then. Pages of
 * the dead are cleared under their lock before a search.
 */
#ifndef SHMND_IPC_BLOCKS_H
#define SHMND_IPC_BLOCKS_H

#include "mpmc.h"

/* Word of a chunk: owner + 1 (12 bits), kind (6), chunks of its run (30). 0: free. */
#define SHMND_CHUNK_RUN 62u
#define SHMND_CHUNK_MORE 63u
#define SHMND_CLASSES 6u /* of 128 << n bytes */

static inline uint64_t shmnd_chunk_word(uint32_t owner, uint32_t kind, uint64_t run)
{
    return (uint64_t)(owner + 1) | (uint64_t)kind << 12 | run << 18;
}

static inline bool shmnd_chunk_is_of(uint64_t word, uint32_t owner)
{
    return (word & 0xfff) == owner + 1;
}

static inline uint32_t shmnd_chunk_kind(uint64_t word)
{
    return (uint32_t)(word >> 12 & 63);
}

static inline uint64_t shmnd_chunk_run(uint64_t word)
{
    return word >> 18 & 0x3fffffff;
}

/* Return the reference of a block: its chunk, and its number within that. */
static inline uint32_t shmnd_block_ref(uint64_t chunk, uint32_t index)
{
    return (uint32_t)chunk << 9 | index;
}

/* Note the block that a consumer is about to take. */
static inline void shmnd_block_want(struct shmnd_queue_member *me, uint32_t ref)
{
    shmnd_put64(&me->taking, (uint64_t)ref + 1);
}

/* Note that the block that was just taken is in hold `at` from now on. */
static inline void shmnd_block_hold(struct shmnd_queue_member *me, uint32_t at, uint32_t ref)
{
    shmnd_put32(&me->holds[at], ref + 1);
    /* SYNC taking: release, pairs with acquire in shmnd_member_holds() */
    shmnd_release64(&me->taking, 0);
}

/* Clear `taking` without a hold: the block was given back, or another consumer took it. */
static inline void shmnd_block_pass(struct shmnd_queue_member *me)
{
    /* SYNC taking: release, pairs with acquire in shmnd_member_holds() */
    shmnd_release64(&me->taking, 0);
}

static inline void shmnd_block_free(struct shmnd_block *block)
{
    /* SYNC freed: release, pairs with acquire in shmnd_block_is_free() */
    shmnd_release32(&block->state, SHMND_BLOCK_FREE);
}

/* Clear a hold whose block is free: a process that finds it cleared sees the last access. */
static inline void shmnd_block_unhold(struct shmnd_queue_member *me, uint32_t at)
{
    /* SYNC unheld: release, pairs with acquire in shmnd_member_holds() */
    shmnd_release32(&me->holds[at], 0);
}

static inline bool shmnd_block_is_free(const struct shmnd_block *block)
{
    /* SYNC freed: acquire, pairs with release in shmnd_block_free() */
    return shmnd_acquire32(&block->state) == SHMND_BLOCK_FREE;
}

/* Return the reference of a block that a page names, plus one; 0 if there is none. Call it with 0,
 * 1, ... up to SHMND_QUEUE_HOLDS for all of them, in this order, and after the slots were read. */
static inline uint64_t shmnd_member_holds(const struct shmnd_queue_member *page, uint32_t at)
{
    if (at == 0)
        /* SYNC taking: acquire, pairs with release in shmnd_block_hold() */
        return shmnd_acquire64(&page->taking);
    /* SYNC unheld: acquire, pairs with release in shmnd_block_unhold() */
    return shmnd_acquire32(&page->holds[at - 1]);
}

/* Note that a member took position `pos`, and count it. For the member itself, once. */
static inline void shmnd_member_count(struct shmnd_queue_member *me, uint64_t pos)
{
    uint64_t taken = shmnd_relaxed64(&me->taken);
    shmnd_put64(&me->taken, ((taken >> 32) + 1) << 32 | (uint32_t)(pos + 1));
}

/* Return whether a position is the last one that a member has noted. Nothing is noted on a fresh
 * page, whose word, 0, is not that of position 2^32 - 1. */
static inline bool shmnd_member_took(const struct shmnd_queue_member *page, uint64_t pos)
{
    uint64_t taken = shmnd_relaxed64(&page->taken);
    return taken && (uint32_t)taken == (uint32_t)(pos + 1);
}

/* Note `pos` for a member that has died, unless it is noted. For the holder of its lock. */
static inline void shmnd_member_count_dead(struct shmnd_queue_member *page, uint64_t pos)
{
    if (!shmnd_member_took(page, pos))
        shmnd_member_count(page, pos);
}

/* Store one of the counts from which every member computes how many items are unfinished, before
 * its writer computes it. Of two members that store theirs at once at least one finds both, and
 * wakes those in join (SYNC done: a full fence in either). */
static inline void shmnd_member_report(shmnd_word64 *count, uint64_t value)
{
    /* SYNC reported: release, pairs with acquire in shmnd_member_reported() */
    shmnd_release64(count, value);
    /* SYNC done: fence, pairs with the same fence of another member */
    shmnd_store_then_load();
}

/* Return how many items that a member took are neither reported as done nor forgiven. A report is
 * for one of these while there are any, else for an item that another member took. */
static inline int32_t shmnd_member_open(const struct shmnd_queue_member *page)
{
    uint32_t own = (uint32_t)(shmnd_relaxed64(&page->done) - shmnd_relaxed64(&page->others));
    uint32_t taken = (uint32_t)(shmnd_relaxed64(&page->taken) >> 32);
    return (int32_t)(taken - own - (uint32_t)shmnd_relaxed64(&page->forgiven));
}

/* Report an item as done, for the member itself. A death between the two stores makes no
 * difference: one more item is open then, and one more is forgiven. */
static inline void shmnd_member_done(struct shmnd_queue_member *me)
{
    if (shmnd_member_open(me) <= 0)
        shmnd_put64(&me->others, shmnd_relaxed64(&me->others) + 1);
    shmnd_member_report(&me->done, shmnd_relaxed64(&me->done) + 1);
}

/* Return how many items a member has reported. Add to `*lost_p` the items that died with it, less
 * its reports of items of others: the sum of these over all members counts, if it is above 0. */
static inline uint64_t shmnd_member_reported(const struct shmnd_queue_member *page,
                                             uint64_t *lost_p)
{
    /* SYNC reported: acquire, pairs with release in shmnd_member_report(): `others` is as new */
    uint64_t done = shmnd_acquire64(&page->done);
    *lost_p += shmnd_relaxed64(&page->forgiven) - shmnd_relaxed64(&page->others);
    return done;
}

#endif
