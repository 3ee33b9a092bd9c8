/* SPDX-License-Identifier: Apache-2.0
 *
 * The publisher, and how it takes back the slots that no subscriber needs.
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
 * release; the publisher reads the cursor by an acquire before it reads the held slots. So a slot
 * that it no longer keeps because of a cursor counts as held.
 *
 * A subscriber that dies holds nothing once its page is let go.
 */
#ifndef SHMND_IPC_RECLAIM_H
#define SHMND_IPC_RECLAIM_H

#include "slots.h"

/* Samples that are kept while there is no subscriber, for one that is about to get its seat. */
#define SHMND_UNSEATED 8u
/* Up to so many subscribers, all their pages are read; with more, those that have a reason. */
#define SHMND_FEW_GUESTS 16u
/* How often all pages are read with more subscribers than that. */
#define SHMND_SWEEP_NS 20000000u
#define SHMND_LARGE_CLASS 40u /* of slots of 64 KiB */

/* A subscriber, as the publisher knows it. Counts of `kept` are those of DROP_NEWEST alone. */
struct shmnd_guest {
    struct shmnd_page *page;           /* NULL: a free seat */
    struct shmnd_kept *kept;           /* its queue */
    uint32_t *kept_slots;              /* the slot of each line of it, or SHMND_NO_SLOT */
    uint64_t kept_written, kept_freed; /* samples put there; of these, slots let go */
    uint64_t buffer;                   /* samples that it may fall behind */
    uint64_t joined;                   /* samples before it take no room in `buffer` */
    uint64_t start;                    /* the first position that is kept for it */
    uint64_t cursor;                   /* the last one of its page that was possible */
    uint64_t dropped;                  /* samples that found no room in its queue */
    uint64_t rung;                     /* `armed` of the last sleep that was ended */
    uint32_t kept_mask, most_held, policy;
    bool evicted;
};

struct shmnd_board {
    struct shmnd_head *head;
    struct shmnd_line *lines;
    uint32_t *line_slots;   /* the slot of each line, or SHMND_NO_SLOT */
    shmnd_word64 *sleepers; /* a bit for each seat, which subscribers set */
    struct shmnd_guest *guests;
    struct shmnd_slots slots;
    uint64_t line_mask;
    uint64_t next;        /* position of the next sample */
    uint64_t low;         /* lines before it are given up */
    uint64_t history;     /* samples that are kept for those that come late */
    uint64_t count;       /* of shmnd_board_count() */
    uint64_t may_publish; /* up to here, by the subscribers that block */
    uint64_t keep_from;   /* the first position that a subscriber or the history needs */
    uint64_t firm;        /* the same without the subscribers that drop samples */
    uint64_t admitted;    /* as in the head */
    uint64_t swept_ns;    /* when all pages were read last for sleepers */
    uint32_t guest_count; /* one more than the highest seat that was ever taken */
    uint32_t present;     /* subscribers with a seat; of these: */
    uint32_t keepers;     /* with a queue of their own (DROP_NEWEST) */
    uint32_t blockers;    /* that block the publisher (BLOCK) */
};

/* ---- taking slots back ------------------------------------------------------------------ */

/* Withdraw the lines before `to` that have slots, and make those pending. */
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

/* Return the first position kept for a subscriber; release the slots of its queue that it took. */
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

/* Read which slots subscribers hold, and how far they are. */
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

/* Free the pending slots that were not held at the last count and stand in no queue, the newest
 * last: it is taken first. */
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

/* Take back the slots that are free by now. With few subscribers their cursors are read anew
 * before. */
static inline void shmnd_board_reclaim(struct shmnd_board *b)
{
    if (b->present <= SHMND_FEW_GUESTS)
        shmnd_board_count(b);
    shmnd_board_withdraw(b, b->keep_from < b->next ? b->keep_from : b->next);
    shmnd_board_count(b);
    shmnd_board_settle(b);
}

/* Take back also the samples that are kept for a subscriber which is about to get its seat: the
 * publisher knows that there is none. */
static inline void shmnd_board_reclaim_all(struct shmnd_board *b)
{
    shmnd_board_reclaim(b);
    if (b->present)
        return;
    shmnd_board_withdraw(b, b->firm);
    shmnd_board_count(b);
    shmnd_board_settle(b);
}

/* Take a free slot of a class, after those that are free by now were taken back; return
 * SHMND_NO_SLOT without one.
 *
 * Large slots are taken back at each call: the one that was read last is still in the cache. Those
 * that wait in the free list are there because subscribers once fell behind, and to fill one of
 * them takes several times as long. Small ones are taken back when none is left, since to read what
 * the subscribers hold costs more than to fill a few lines that are not in the cache. */
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

/* Take a slot where none may be added: subscribers that drop samples lose the oldest one by one,
 * until there is a free slot. Samples that are held stay, and those that the history or a
 * subscriber that blocks needs. */
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

#endif
