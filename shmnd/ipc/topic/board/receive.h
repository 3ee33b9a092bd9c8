/* SPDX-License-Identifier: Apache-2.0
 *
 * The subscriber: reads the lines of one publisher, and holds the slots of what it received.
 *
 * All calls belong to one subscriber, which serialises its threads. None waits, and none enters the
 * kernel. Everything that the publisher wrote is read once, and bounds are checked where it is
 * used. A subscriber that dies leaves a page that says what it held, and its publisher lets go of
 * it.
 *
 * A subscriber that has no seat yet is not counted by the publisher. It holds no slot: it copies
 * the payload, and the stamp shows afterwards whether the copy is whole (SYNC line).
 */
#ifndef SHMND_IPC_RECEIVE_H
#define SHMND_IPC_RECEIVE_H

#include "reading.h"

#define SHMND_TRIES 64u /* of one call, while the publisher overtakes it */

/* ---- moving on -------------------------------------------------------------------------- */

static inline void shmnd_reading_advance(struct shmnd_reading *r, uint64_t cursor)
{
    r->cursor = cursor;
    /* SYNC cursor: release, pairs with acquire in shmnd_guest_cursor(); the held slot before it */
    shmnd_release64(&r->page->cursor, cursor);
    SHMND_KILL_POINT("cursor-moved");
    if (r->policy == SHMND_BLOCK) {
        /* SYNC blocked: fence, pairs with the fence in shmnd_board_block() */
        shmnd_store_then_load();
        r->rings = shmnd_relaxed64(&r->head->blocked) != 0;
    }
}

/* Skip the samples that the policy drops, at least one; `seen` were published. */
static inline void shmnd_reading_jump(struct shmnd_reading *r, uint64_t seen)
{
    /* SYNC written: acquire, pairs with release in shmnd_board_publish() */
    uint64_t written = shmnd_acquire64(&r->head->written);
    written = written > seen ? written : seen;
    uint64_t most = r->policy == SHMND_CONFLATE ? 1 : r->buffer;
    uint64_t to = written > most ? written - most : 0;
    if (to <= r->cursor)
        to = r->cursor + 1;
    r->lost += to - r->cursor;
    shmnd_reading_advance(r, to);
}

/* Return whether the lines are elsewhere now. */
static inline bool shmnd_reading_moved(const struct shmnd_reading *r)
{
    /* SYNC moved: acquire, pairs with release in shmnd_board_move() */
    return shmnd_acquire64(&r->head->where) != r->where;
}

static inline void shmnd_line_read(const struct shmnd_line *line, struct shmnd_found *found)
{
    found->when_ns = shmnd_relaxed64(&line->when_ns);
    found->info = shmnd_relaxed64(&line->info);
    for (uint32_t i = 0; i < SHMND_LINE_WORDS; i++)
        found->body[i] = shmnd_relaxed64(&line->body[i]);
}

/* Prefetch the payload, if its pool is near, while its sample is made. */
static inline void shmnd_reading_prefetch(const struct shmnd_reading *r,
                                          const struct shmnd_found *found)
{
    uint64_t number = found->body[0] >> 32;
    const struct shmnd_near *pool = &r->near[number % SHMND_NEAR];
    if (pool->base && pool->number == number && found->body[1] < pool->nbytes)
        shmnd_prefetch(pool->base + found->body[1]);
}

/* Take the next sample of the subscriber's own queue: its slots are kept until the cursor has
 * passed. */
static inline enum shmnd_outcome shmnd_reading_next_kept(struct shmnd_reading *r,
                                                         struct shmnd_found *found)
{
    for (;;) {
        const struct shmnd_kept *kept = &r->kept[r->cursor & r->kept_mask];
        /* SYNC line: acquire, pairs with release in shmnd_line_write() */
        if (shmnd_acquire64(&kept->line.stamp) != r->cursor + 1)
            return SHMND_OUTCOME_NOTHING;
        shmnd_line_read(&kept->line, found);
        found->position = shmnd_relaxed64(&kept->position);
        found->hold = SHMND_NO_SLOT;
        if (found->position >= r->early)
            break;
        r->skipped++;
        shmnd_reading_advance(r, r->cursor + 1); /* it was received before there was the queue */
    }
    if (!(found->info & r->uncounted)) {
        if (r->free_count == 0)
            return SHMND_OUTCOME_LIMIT;
        found->hold = shmnd_reading_hold(r, shmnd_found_slot(found));
    }
    shmnd_reading_advance(r, r->cursor + 1);
    return SHMND_OUTCOME_FOUND;
}

/* Take the next sample from the board before the subscriber has a queue of its own, as long as none
 * is missing there. */
static inline enum shmnd_outcome shmnd_reading_next_early(struct shmnd_reading *r,
                                                          struct shmnd_found *found)
{
    const struct shmnd_line *line = &r->lines[r->early & r->line_mask];
    /* SYNC line: acquire, pairs with release in shmnd_line_write() */
    if (shmnd_acquire64(&line->stamp) != r->early + 1)
        return shmnd_reading_moved(r) ? SHMND_OUTCOME_MOVED : SHMND_OUTCOME_NOTHING;
    shmnd_line_read(line, found);
    /* SYNC line: the reads before the stamp, pairs with stores_before in
     * shmnd_board_publish() */
    shmnd_loads_before();
    if (shmnd_relaxed64(&line->stamp) != r->early + 1)
        return SHMND_OUTCOME_NOTHING;
    found->position = r->early;
    found->hold = SHMND_NO_SLOT;
    bool counts = !(found->info & r->uncounted);
    if (counts && r->free_count == 0)
        return SHMND_OUTCOME_LIMIT;
    if (!(found->info & SHMND_INFO_INLINE))
        return SHMND_OUTCOME_COPY;
    if (counts)
        found->hold = shmnd_reading_hold(r, SHMND_NO_SLOT);
    shmnd_put64(&r->page->early, ++r->early);
    return SHMND_OUTCOME_FOUND;
}

/* Return whether a subscriber that drops has fallen so far behind that it has to skip. The line
 * that would hold the first sample beyond its buffer says so, and sets `*seen`, without a load of
 * the publisher's count. */
static inline bool shmnd_reading_overrun(struct shmnd_reading *r, uint64_t *seen)
{
    if (r->policy == SHMND_BLOCK)
        return false;
    uint64_t base = r->cursor > r->joined ? r->cursor : r->joined;
    uint64_t ahead = base + (r->policy == SHMND_CONFLATE ? 1 : r->buffer);
    /* relaxed: a hint of how many were published, and nothing is read by it */
    *seen = shmnd_relaxed64(&r->lines[ahead & r->line_mask].stamp) & ~SHMND_WITHDRAWN;
    return *seen > ahead;
}

/* Skip the lines that the publisher has withdrawn, which may be any number: the samples behind them
 * are there. Bounded by the lines, whatever the publisher writes. */
static inline void shmnd_reading_pass_withdrawn(struct shmnd_reading *r)
{
    for (uint64_t passed = 0; passed < r->line_mask; passed++) {
        /* SYNC moved: acquire, as in shmnd_reading_next(): a line that was moved is not lost */
        uint64_t stamp = shmnd_acquire64(&r->lines[r->cursor & r->line_mask].stamp);
        if (stamp != (SHMND_WITHDRAWN | (r->cursor + 1)) || shmnd_reading_moved(r))
            return;
        r->lost++;
        shmnd_reading_advance(r, r->cursor + 1);
    }
}

/* Take the sample at the cursor, whose line was whole. Return NOTHING if its line was withdrawn
 * meanwhile. */
static inline enum shmnd_outcome shmnd_reading_take(struct shmnd_reading *r,
                                                    struct shmnd_found *found,
                                                    const struct shmnd_line *line)
{
    uint64_t at = r->cursor;
    shmnd_line_read(line, found);
    /* SYNC line: the reads before the stamp, pairs with stores_before in
     * shmnd_board_publish() */
    shmnd_loads_before();
    if (shmnd_relaxed64(&line->stamp) != at + 1)
        return SHMND_OUTCOME_NOTHING;
    found->position = at;
    found->hold = SHMND_NO_SLOT;
    if (!(found->info & r->uncounted)) {
        if (r->free_count == 0)
            return SHMND_OUTCOME_LIMIT;
        uint32_t slot = shmnd_found_slot(found);
        if (!r->seated && slot != SHMND_NO_SLOT)
            return SHMND_OUTCOME_COPY;
        shmnd_reading_prefetch(r, found);
        found->hold = shmnd_reading_hold(r, slot);
        if (shmnd_relaxed64(&line->stamp) != at + 1) {
            shmnd_reading_let_go(r, found->hold);
            return SHMND_OUTCOME_NOTHING;
        }
    }
    shmnd_reading_advance(r, at + 1);
    return SHMND_OUTCOME_FOUND;
}

/* Take the next sample, whatever the policy. */
static inline enum shmnd_outcome shmnd_reading_next(struct shmnd_reading *r,
                                                    struct shmnd_found *found)
{
    uint64_t seen = 0;
    if (r->policy == SHMND_DROP_NEWEST)
        return r->kept ? shmnd_reading_next_kept(r, found) : shmnd_reading_next_early(r, found);
    for (uint32_t tried = 0; tried < SHMND_TRIES; tried++) {
        const struct shmnd_line *line = &r->lines[r->cursor & r->line_mask];
        /* SYNC line, SYNC moved: acquire, pairs with release in shmnd_line_write() and
         * shmnd_board_move() */
        uint64_t stamp = shmnd_acquire64(&line->stamp);
        if (stamp == r->cursor + 1 && !shmnd_reading_overrun(r, &seen)) {
            enum shmnd_outcome took = shmnd_reading_take(r, found, line);
            if (took != SHMND_OUTCOME_NOTHING)
                return took;
            continue;
        }
        if (shmnd_reading_moved(r))
            return SHMND_OUTCOME_MOVED;
        if (stamp != r->cursor + 1) {
            seen = stamp & ~SHMND_WITHDRAWN;
            if (seen <= r->cursor)
                return SHMND_OUTCOME_NOTHING;
        }
        shmnd_reading_jump(r, seen);
        shmnd_reading_pass_withdrawn(r);
    }
    return SHMND_OUTCOME_NOTHING; /* the publisher is faster: at the next call */
}

/* Return whether a copy that was made without a seat is whole; if it is, pass its sample. */
static inline bool shmnd_reading_copied(struct shmnd_reading *r)
{
    uint64_t at = r->policy == SHMND_DROP_NEWEST ? r->early : r->cursor;
    const struct shmnd_line *line = &r->lines[at & r->line_mask];
    /* SYNC line: the copy before the stamp, pairs with the withdrawal before the slot is reused */
    shmnd_loads_before();
    if (shmnd_relaxed64(&line->stamp) != at + 1)
        return false;
    if (r->policy == SHMND_DROP_NEWEST)
        shmnd_put64(&r->page->early, ++r->early);
    else
        shmnd_reading_advance(r, at + 1);
    return true;
}

/* Begin at the position of the seat, if the subscriber blocks or keeps the first samples, and count
 * the samples that it misses before as lost. */
static inline void shmnd_reading_begin(struct shmnd_reading *r)
{
    uint64_t start = shmnd_relaxed64(&shmnd_head_seats(r->head)[r->seat].start);
    if (r->policy == SHMND_BLOCK && start > r->cursor) {
        r->lost += start - r->cursor;
        shmnd_reading_advance(r, start);
    }
    if (r->policy == SHMND_DROP_NEWEST) {
        r->lost += start > r->early ? start - r->early : 0;
        r->early = start > r->early ? start : r->early;
        r->start = start;
    }
}

/* Return whether there is reason to call shmnd_reading_next(): a cheap poll. */
static inline bool shmnd_reading_ready(const struct shmnd_reading *r)
{
    /* relaxed: a hint, and the call checks again */
    if (shmnd_relaxed64(&r->head->where) != r->where && !r->kept)
        return true;
    if (r->policy != SHMND_DROP_NEWEST)
        return (shmnd_relaxed64(&r->lines[r->cursor & r->line_mask].stamp) & ~SHMND_WITHDRAWN) >
               r->cursor;
    if (r->kept)
        return shmnd_relaxed64(&r->kept[r->cursor & r->kept_mask].line.stamp) == r->cursor + 1;
    return shmnd_relaxed64(&r->lines[r->early & r->line_mask].stamp) == r->early + 1;
}

/* Return how many samples the policy has dropped by now. */
static inline uint64_t shmnd_reading_lost(const struct shmnd_reading *r)
{
    if (r->policy == SHMND_DROP_NEWEST) {
        if (!r->kept)
            return r->lost;
        /* A sample that was received early and found no room in the queue later is not lost. */
        uint64_t dropped = shmnd_relaxed64(&shmnd_head_seats(r->head)[r->seat].dropped);
        uint64_t known = r->early - r->start - r->skipped;
        return r->lost + (dropped > known ? dropped - known : 0);
    }
    if (r->policy == SHMND_BLOCK)
        return r->lost;
    /* relaxed: a count for people */
    uint64_t written = shmnd_relaxed64(&r->head->written);
    uint64_t base = r->cursor > r->joined ? r->cursor : r->joined;
    uint64_t most = r->policy == SHMND_CONFLATE ? 1 : r->buffer;
    return r->lost + (written > base + most ? written - most - r->cursor : 0);
}

/* ---- seat and sleep --------------------------------------------------------------------- */

/* Find the seat by the number that the subscriber announced, if more were admitted since. */
static inline bool shmnd_reading_find_seat(struct shmnd_reading *r, uint64_t ident, uint32_t seats)
{
    /* SYNC admitted: acquire, pairs with release in shmnd_board_admit() */
    uint64_t admitted = shmnd_acquire64(&r->head->admitted);
    if (admitted == r->admitted)
        return false;
    r->admitted = admitted;
    for (uint32_t i = 0; i < seats; i++) {
        /* SYNC seat: acquire, pairs with release in shmnd_board_admit() */
        if (shmnd_acquire64(&shmnd_head_seats(r->head)[i].ident) == ident) {
            r->seat = i;
            r->seated = true;
            return true;
        }
    }
    return false;
}

/* Return whether the publisher had no seat for a subscriber since this one came, and all seats are
 * others' now: it has none until one of them leaves. */
static inline bool shmnd_reading_is_refused(const struct shmnd_reading *r, uint64_t ident,
                                            uint32_t seats)
{
    if (r->seated || shmnd_relaxed64(&r->head->refused) == r->refused)
        return false;
    for (uint32_t i = 0; i < seats; i++) {
        /* relaxed: a seat that is given or left meanwhile is found at the next call */
        uint64_t other = shmnd_relaxed64(&shmnd_head_seats(r->head)[i].ident);
        if (other == 0 || other == ident)
            return false;
    }
    return true;
}

/* Publish `armed`, which the caller has counted up: how the subscriber is about to sleep. */
static inline void shmnd_reading_arm(struct shmnd_reading *r)
{
    shmnd_put64(&r->page->armed, r->armed);
    if (r->seated)
        /* needs no order of its own, for the fence behind it */
        shmnd_set_bits(&r->sleepers[r->seat / 64], 1ull << (r->seat % 64));
    SHMND_KILL_POINT("subscriber-armed");
    /* SYNC doze, SYNC counter: fence, pairs with the fence in shmnd_board_published() */
    shmnd_store_then_load();
}

/* Arm for a sleep until a ring; the caller checks again afterwards. */
static inline void shmnd_reading_doze(struct shmnd_reading *r)
{
    r->armed = (r->armed | 1) + 1;
    shmnd_reading_arm(r);
}

/* Arm for a sleep at the counter, and return its value. The caller checks again before. */
static inline uint32_t shmnd_reading_arm_counter(struct shmnd_reading *r)
{
    /* SYNC counter: acquire, pairs with the release in shmnd_board_publish() */
    uint32_t written = (uint32_t)shmnd_acquire64(&r->head->written);
    r->armed = (r->armed + 1) | 1;
    shmnd_reading_arm(r);
    return written;
}

#endif
