/* SPDX-License-Identifier: Apache-2.0
 *
 * The publisher: puts samples on the board, and takes back the slots that no subscriber needs.
 *
 * All calls belong to one publisher, which serialises its threads. None waits, and none enters the
 * kernel. What subscribers wrote is read once and checked: a cursor only counts between its last
 * value and the last publication, a held slot only if there is such a slot.
 *
 * Argument for SYNC borrow (a slot that is held is not reused). The publisher withdraws the line,
 * fences, then reads what every page holds; a subscriber writes what it holds, fences, then reads
 * the stamp again. At least one of the two sees the other's store: either the slot counts as held,
 * or the subscriber finds the line withdrawn and lets go.
 *
 * Argument for SYNC cursor. A subscriber writes what it holds before it moves its cursor on, by a
 * release; the publisher reads the cursor by an acquire before it reads the held slots. So a slot that it
 * no longer keeps because of a cursor counts as held.
 *
 * Argument for SYNC doze. A subscriber counts its `armed` up, fences, and polls once more; the
 * publisher publishes, fences, and reads `armed`. The bitmap of sleepers says which pages to read,
 * and is a hint: each subscriber can clear it, so every page is read after SHMND_SWEEP_NS. The word
 * that counts, `armed`, is written by its subscriber alone.
 *
 * A publisher that dies leaves lines that are whole, withdrawn, or being written, never half a
 * sample under a valid stamp. A subscriber that dies holds nothing once its page is let go.
 */
#ifndef SHMND_IPC_PUBLISH_H
#define SHMND_IPC_PUBLISH_H

#include "slots.h"

#define SHMND_UNSEATED 8u
#define SHMND_FEW_GUESTS 16u
#define SHMND_SWEEP_NS 20000000u
#define SHMND_LARGE_CLASS 40u /* of slots of 64 KiB */

/* A subscriber, as the publisher knows it. */
struct shmnd_guest {
    struct shmnd_page *page; /* NULL: a free seat */
    struct shmnd_kept *kept;
    uint32_t *kept_slots;
    uint64_t kept_written, kept_freed;
    uint64_t buffer, joined, start, cursor, dropped, rung;
    uint32_t kept_mask, most_held, policy;
    bool evicted;
};

struct shmnd_board {
    struct shmnd_head *head;
    struct shmnd_line *lines;
    uint32_t *line_slots;
    shmnd_word64 *sleepers;
    struct shmnd_guest *guests;
    struct shmnd_slots slots;
    uint64_t line_mask, next, low, history, count, may_publish, keep_from, firm, admitted, swept_ns;
    uint32_t guest_count, keepers, present, blockers;
};

/* ---- taking slots back ------------------------------------------------------------------ */

/* Gives up the lines before `to`: their slots are pending. */
static inline void shmnd_board_withdraw(struct shmnd_board *b, uint64_t to)
{
    for (; b->low < to; b->low++) {
        uint64_t at = b->low & b->line_mask;
        uint32_t slot = b->line_slots[at];
        if (slot == SHMND_NO_SLOT)
            continue;
        b->line_slots[at] = SHMND_NO_SLOT;
        /* needs no order of its own, for the fence in shmnd_board_count() */
        shmnd_put64(&b->lines[at].stamp, SHMND_WITHDRAWN | (b->low + 1));
        shmnd_slots_suspend(&b->slots, slot);
    }
    SHMND_KILL_POINT("lines-withdrawn");
}

/* The first position kept for one subscriber; lets go of the slots of its queue that it took. */
static inline uint64_t shmnd_guest_cursor(struct shmnd_board *b, struct shmnd_guest *g)
{
    /* SYNC cursor: acquire, pairs with release in shmnd_reading_advance() */
    uint64_t cursor = shmnd_acquire64(&g->page->cursor);
    uint64_t most = g->policy == SHMND_DROP_NEWEST ? g->kept_written : b->next;
    if (cursor > g->cursor && cursor <= most)
        g->cursor = cursor;
    if (g->policy == SHMND_DROP_NEWEST) {
        for (; g->kept_freed < g->cursor; g->kept_freed++) {
            uint32_t slot = g->kept_slots[g->kept_freed & g->kept_mask];
            if (slot != SHMND_NO_SLOT)
                b->slots.all[slot].keeps--;
        }
        return b->next;
    }
    if (g->policy == SHMND_BLOCK)
        return g->evicted ? b->next : g->cursor;
    uint64_t oldest = b->next > g->buffer ? b->next - g->buffer : 0;
    return g->cursor > oldest ? g->cursor : oldest;
}

/* Reads what subscribers hold, and how far they are. */
static inline void shmnd_board_count(struct shmnd_board *b)
{
    /* While there is no subscriber, one that has come and is not known yet finds some, too. */
    uint64_t most = b->present || b->history > SHMND_UNSEATED ? b->history : SHMND_UNSEATED;
    uint64_t keep = b->next > most ? b->next - most : 0, may = UINT64_MAX;
    uint64_t firm = b->next > b->history ? b->next - b->history : 0;
    /* SYNC borrow: fence, pairs with the fence in shmnd_reading_hold() */
    shmnd_store_then_load();
    b->count++;
    for (uint32_t i = 0; i < b->guest_count; i++) {
        struct shmnd_guest *g = &b->guests[i];
        if (!g->page)
            continue;
        uint64_t from = shmnd_guest_cursor(b, g);
        keep = from < keep ? from : keep;
        if (g->policy == SHMND_BLOCK && !g->evicted) {
            uint64_t base = g->cursor > g->joined ? g->cursor : g->joined;
            may = base + g->buffer < may ? base + g->buffer : may;
            firm = from < firm ? from : firm;
        }
        /* SYNC give-back: acquire, pairs with release in shmnd_reading_let_go() */
        uint64_t mask = shmnd_acquire64(&g->page->mask);
        for (; mask; mask &= mask - 1) {
            for (uint32_t h = (uint32_t)__builtin_ctzll(mask); h < g->most_held; h += 64) {
                /* SYNC give-back: acquire, pairs with release in shmnd_reading_let_go() */
                uint32_t held = shmnd_acquire32(&shmnd_page_held(g->page)[h]);
                if (held - 1 < b->slots.count)
                    b->slots.all[held - 1].seen = b->count;
            }
        }
    }
    b->keep_from = keep;
    b->firm = firm;
    b->may_publish = may;
}

/* Frees the pending slots that were not held at the last count, the newest last: it is taken first. */
static inline void shmnd_board_settle(struct shmnd_board *b)
{
    uint32_t slot = b->slots.pending, turned = SHMND_NO_SLOT, next;
    for (; slot != SHMND_NO_SLOT; slot = next) {
        next = b->slots.all[slot].next;
        b->slots.all[slot].next = turned;
        turned = slot;
    }
    b->slots.pending = SHMND_NO_SLOT;
    for (slot = turned; slot != SHMND_NO_SLOT; slot = next) {
        struct shmnd_store *s = &b->slots.all[slot];
        next = s->next;
        if (s->seen == b->count || s->keeps)
            shmnd_slots_suspend(&b->slots, slot);
        else
            shmnd_slots_free(&b->slots, slot);
    }
}

/* Takes back the slots that are free by now. With few subscribers their cursors are read anew before. */
static inline void shmnd_board_reclaim(struct shmnd_board *b)
{
    if (b->present <= SHMND_FEW_GUESTS)
        shmnd_board_count(b);
    shmnd_board_withdraw(b, b->keep_from < b->next ? b->keep_from : b->next);
    shmnd_board_count(b);
    shmnd_board_settle(b);
}

/* A free slot of a class, after those that are free by now were taken back.
 *
 * Large slots are taken back at each call: the one that was read last is still in the cache. Those
 * that wait in the free list are there because subscribers once fell behind, and to fill one of
 * them takes several times as long. Small ones are taken back when none is left, since to read
 * what the subscribers hold costs more than to fill a few lines that are not in the cache. */
static inline uint32_t shmnd_board_take(struct shmnd_board *b, uint32_t class)
{
    uint32_t slot;
    if (class >= SHMND_LARGE_CLASS && b->present <= SHMND_FEW_GUESTS && b->low < b->next)
        shmnd_board_reclaim(b);
    slot = shmnd_slots_take(&b->slots, class);
    if (__builtin_expect(slot != SHMND_NO_SLOT, 1))
        return slot;
    shmnd_board_reclaim(b);
    return shmnd_slots_take(&b->slots, class);
}

/* Where no slot may be added: those that drop samples lose the oldest one by one, until there is a
 * free slot. Samples that are held stay, and those that the history or a subscriber that blocks
 * needs. */
static inline uint32_t shmnd_board_squeeze(struct shmnd_board *b, uint32_t class)
{
    uint32_t slot = shmnd_board_take(b, class);
    while (slot == SHMND_NO_SLOT && b->low < b->firm) {
        shmnd_board_withdraw(b, b->low + 1);
        shmnd_board_count(b);
        shmnd_board_settle(b);
        slot = shmnd_slots_take(&b->slots, class);
    }
    return slot;
}

/* ---- publishing ----------------------------------------------------------------------- */

struct shmnd_sample {
    uint64_t when_ns, info, body[SHMND_LINE_WORDS];
};

static inline void shmnd_line_write(struct shmnd_line *line, uint64_t stamp,
                                    const struct shmnd_sample *sample)
{
    shmnd_put64(&line->when_ns, sample->when_ns);
    shmnd_put64(&line->info, sample->info);
    for (uint32_t i = 0; i < SHMND_LINE_WORDS; i++)
        shmnd_put64(&line->body[i], sample->body[i]);
    SHMND_KILL_POINT("line-written");
    /* SYNC line: release, pairs with acquire in shmnd_reading_next(); the slot was written before */
    shmnd_release64(&line->stamp, stamp);
}

static inline void shmnd_line_copy(const struct shmnd_line *line, struct shmnd_sample *sample)
{
    sample->when_ns = shmnd_relaxed64(&line->when_ns);
    sample->info = shmnd_relaxed64(&line->info);
    for (uint32_t i = 0; i < SHMND_LINE_WORDS; i++)
        sample->body[i] = shmnd_relaxed64(&line->body[i]);
}

/* For one that keeps the first samples: a copy, while its queue has room. */
static inline void shmnd_guest_keep(struct shmnd_board *b, uint32_t seat,
                                    const struct shmnd_sample *sample, uint64_t position,
                                    uint32_t slot)
{
    struct shmnd_guest *g = &b->guests[seat];
    if (g->kept_written - g->cursor >= g->buffer)
        (void)shmnd_guest_cursor(b, g);
    if (g->kept_written - g->cursor >= g->buffer) {
        shmnd_put64(&shmnd_head_seats(b->head)[seat].dropped, ++g->dropped);
        return;
    }
    struct shmnd_kept *kept = &g->kept[g->kept_written & g->kept_mask];
    g->kept_slots[g->kept_written & g->kept_mask] = slot;
    if (slot != SHMND_NO_SLOT)
        b->slots.all[slot].keeps++;
    shmnd_put64(&kept->position, position);
    shmnd_line_write(&kept->line, ++g->kept_written, sample);
}

static inline void shmnd_board_keep(struct shmnd_board *b, const struct shmnd_sample *sample,
                                    uint64_t position, uint32_t slot)
{
    for (uint32_t i = 0; i < b->guest_count; i++) {
        struct shmnd_guest *g = &b->guests[i];
        if (g->page && g->policy == SHMND_DROP_NEWEST && !g->evicted)
            shmnd_guest_keep(b, i, sample, position, slot);
    }
}

/* The next sample, whose slot was taken before (or SHMND_NO_SLOT). Its position. */
static inline uint64_t shmnd_board_publish(struct shmnd_board *b, const struct shmnd_sample *sample,
                                           uint32_t slot)
{
    uint64_t position = b->next, lines = b->line_mask + 1;
    struct shmnd_line *line = &b->lines[position & b->line_mask];
    if (b->low + lines <= position)
        shmnd_board_withdraw(b, position - lines + 1);
    shmnd_put64(&line->stamp, SHMND_WITHDRAWN | (position >= lines ? position - lines + 1 : 0));
    /* SYNC line: the stamp before what follows, pairs with loads_before in shmnd_reading_next() */
    shmnd_stores_before();
    b->line_slots[position & b->line_mask] = slot;
    if (slot != SHMND_NO_SLOT)
        b->slots.all[slot].state = SHMND_STORE_SHOWN;
    shmnd_line_write(line, position + 1, sample);
    b->next = position + 1;
    /* SYNC written: release, pairs with acquire in shmnd_reading_jump() */
    shmnd_release64(&b->head->written, position + 1);
    SHMND_KILL_POINT("sample-published");
    if (b->keepers)
        shmnd_board_keep(b, sample, position, slot);
    return position;
}

/* May the next sample be published? Not while a subscriber that blocks has no room. */
static inline bool shmnd_board_has_room(struct shmnd_board *b)
{
    if (__builtin_expect(b->next < b->may_publish, 1))
        return true;
    shmnd_board_count(b);
    return b->next < b->may_publish;
}

/* The publisher is about to sleep for room, or does so no more; it checks again afterwards. */
static inline void shmnd_board_block(struct shmnd_board *b, bool blocked)
{
    shmnd_put64(&b->head->blocked, blocked);
    SHMND_KILL_POINT("publisher-blocked");
    /* SYNC blocked: fence, pairs with the fence in shmnd_reading_advance() */
    shmnd_store_then_load();
}

/* ---- subscribers come and go ---------------------------------------------------------- */

/* Has the subscriber of a seat a sleep that was not ended yet? Notes that it is ended. */
static inline bool shmnd_board_rings(struct shmnd_board *b, uint32_t seat)
{
    struct shmnd_guest *g = &b->guests[seat];
    if (seat >= b->guest_count || !g->page)
        return false;
    /* relaxed: behind the fence in shmnd_board_published() */
    uint64_t armed = shmnd_relaxed64(&g->page->armed);
    if (armed == g->rung)
        return false;
    g->rung = armed;
    return true;
}

/* After a publication, before a check for sleepers. Returns whether each page is to be read: with
 * few subscribers always, with many now and then, since any of them may clear the others' bits. */
static inline bool shmnd_board_published(struct shmnd_board *b, uint64_t now_ns)
{
    /* SYNC doze: fence, pairs with the fence in shmnd_reading_doze() */
    shmnd_store_then_load();
    if (b->guest_count <= SHMND_FEW_GUESTS)
        return true;
    if (now_ns - b->swept_ns < SHMND_SWEEP_NS)
        return false;
    b->swept_ns = now_ns;
    return true;
}

/* The first word of the bitmap from `from` on with sleepers, which are taken out of it into
 * `*bits`; a number behind the last word when there is none. */
static inline uint32_t shmnd_board_sleepers(struct shmnd_board *b, uint32_t from, uint64_t *bits)
{
    uint32_t words = (b->guest_count + 63) / 64;
    for (uint32_t i = from; i < words; i++) {
        if (shmnd_relaxed64(&b->sleepers[i])) {
            /* needs no order: whose bit it is, its page says */
            *bits = shmnd_clear_bits(&b->sleepers[i], UINT64_MAX);
            return i;
        }
    }
    return words;
}

/* A subscriber sits down: what it has not received is kept from now on. `from` is the first
 * position that it wants of those that were published before. */
static inline void shmnd_board_seat(struct shmnd_board *b, uint32_t seat,
                                    const struct shmnd_guest *guest, uint64_t from)
{
    uint64_t oldest = b->next > b->line_mask ? b->next - b->line_mask : 0;
    struct shmnd_guest *g = &b->guests[seat];
    *g = *guest;
    g->joined = b->next;
    if (g->policy == SHMND_BLOCK) {
        /* SYNC cursor: acquire, as in shmnd_guest_cursor() */
        from = shmnd_acquire64(&g->page->cursor);
    }
    if (g->policy == SHMND_DROP_NEWEST) {
        /* relaxed: it skips by the positions what it received meanwhile */
        uint64_t early = shmnd_relaxed64(&g->page->early);
        from = early > from ? early : from;
    }
    from = from < b->next ? from : b->next;
    g->start = from > oldest ? from : oldest;
    g->cursor = g->policy == SHMND_BLOCK ? g->start : 0;
    if (seat >= b->guest_count)
        b->guest_count = seat + 1;
    b->present++;
    b->keepers += g->policy == SHMND_DROP_NEWEST;
    b->blockers += g->policy == SHMND_BLOCK;
    b->keep_from = 0; /* as long as its cursor was not read */
    b->may_publish = 0;
    for (uint64_t p = g->start; p < b->next && g->policy == SHMND_DROP_NEWEST; p++) {
        struct shmnd_sample sample;
        shmnd_line_copy(&b->lines[p & b->line_mask], &sample);
        if (shmnd_relaxed64(&b->lines[p & b->line_mask].stamp) == p + 1)
            shmnd_guest_keep(b, seat, &sample, p, b->line_slots[p & b->line_mask]);
        else
            g->dropped++; /* given up before it came; shmnd_board_admit() writes the count */
    }
}

/* Writes the seat that the subscriber looks for. */
static inline void shmnd_board_admit(struct shmnd_board *b, uint32_t seat, uint64_t ident,
                                     uint32_t kept)
{
    struct shmnd_seat *s = &shmnd_head_seats(b->head)[seat];
    shmnd_put64(&s->dropped, b->guests[seat].dropped);
    shmnd_put64(&s->start, b->guests[seat].start);
    shmnd_put32(&s->kept, kept);
    shmnd_put32(&s->state, SHMND_SEAT_TAKEN);
    SHMND_KILL_POINT("seat-written");
    /* SYNC seat: release, pairs with acquire in shmnd_reading_find_seat() */
    shmnd_release64(&s->ident, ident);
    /* SYNC admitted: release, pairs with acquire in shmnd_reading_find_seat() */
    shmnd_release64(&b->head->admitted, ++b->admitted);
}

/* All seats are taken, and another subscriber has come. */
static inline void shmnd_board_refuse(struct shmnd_board *b)
{
    /* relaxed: a hint to read the seats */
    shmnd_put64(&b->head->refused, shmnd_relaxed64(&b->head->refused) + 1);
}

/* It is gone: what it held is free at the next count. */
static inline void shmnd_board_leave(struct shmnd_board *b, uint32_t seat)
{
    struct shmnd_guest *g = &b->guests[seat];
    struct shmnd_seat *s = &shmnd_head_seats(b->head)[seat];
    if (g->policy == SHMND_DROP_NEWEST) {
        for (; g->kept_freed < g->kept_written; g->kept_freed++) {
            uint32_t slot = g->kept_slots[g->kept_freed & g->kept_mask];
            if (slot != SHMND_NO_SLOT)
                b->slots.all[slot].keeps--;
        }
        b->keepers--;
    }
    b->blockers -= g->policy == SHMND_BLOCK;
    b->present--;
    g->page = NULL;
    b->may_publish = 0;
    shmnd_put64(&s->ident, 0);
    shmnd_put32(&s->state, SHMND_SEAT_FREE);
}

static inline void shmnd_board_evict(struct shmnd_board *b, uint32_t seat)
{
    b->guests[seat].evicted = true;
    b->may_publish = 0;
    shmnd_put32(&shmnd_head_seats(b->head)[seat].state, SHMND_SEAT_EVICTED);
}

/* The board gets more lines. Those are whole before a reader can find them, and only then the old
 * ones are withdrawn: no sample is missing in between, whenever the publisher dies. */
static inline void shmnd_board_move(struct shmnd_board *b, struct shmnd_line *lines,
                                    uint32_t *line_slots, uint64_t line_mask, uint64_t where)
{
    uint64_t oldest = b->next > b->line_mask ? b->next - b->line_mask - 1 : 0;
    for (uint64_t at = 0; at <= line_mask; at++)
        line_slots[at] = SHMND_NO_SLOT;
    for (uint64_t p = oldest; p < b->next; p++) {
        struct shmnd_line *old = &b->lines[p & b->line_mask], *line = &lines[p & line_mask];
        struct shmnd_sample sample;
        shmnd_line_copy(old, &sample);
        if (shmnd_relaxed64(&old->stamp) == p + 1) {
            shmnd_line_write(line, p + 1, &sample);
            line_slots[p & line_mask] = b->line_slots[p & b->line_mask];
        } else {
            shmnd_put64(&line->stamp, SHMND_WITHDRAWN | (p + 1));
        }
    }
    SHMND_KILL_POINT("board-copied");
    /* SYNC moved: release, pairs with acquire in shmnd_reading_moved() */
    shmnd_release64(&b->head->where, where);
    for (uint64_t p = oldest; p < b->next; p++) {
        /* SYNC moved: release, pairs with acquire in shmnd_reading_next(): one that finds a line
         * withdrawn finds where the lines are */
        shmnd_release64(&b->lines[p & b->line_mask].stamp, SHMND_WITHDRAWN | (p + 1));
    }
    b->low = b->low > oldest ? b->low : oldest;
    b->lines = lines;
    b->line_slots = line_slots;
    b->line_mask = line_mask;
}

#endif
