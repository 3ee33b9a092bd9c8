/* SPDX-License-Identifier: Apache-2.0
 *
 * The publisher's subscribers come and go, and its board moves to a larger one.
 *
 * Argument for SYNC seat and SYNC admitted. A seat is written before its `ident`, and `admitted`
 * counts it after that. A subscriber that finds another count reads the seats, and one that finds
 * its own `ident` there reads a seat that is whole.
 *
 * Argument for SYNC moved. The lines of the larger board are whole before `where` names them, and
 * the old ones are withdrawn after that. So a subscriber that finds a line withdrawn finds where
 * the lines are now. A publisher that dies in between leaves one board that is whole.
 */
#ifndef SHMND_IPC_GUESTS_H
#define SHMND_IPC_GUESTS_H

#include "publish.h"

/* Seat a subscriber: samples that it has not received are kept from now on. `from` is the first
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

/* Write the seat that the subscriber finds by `ident`. */
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

/* Note that another subscriber has come while all seats are taken. */
static inline void shmnd_board_refuse(struct shmnd_board *b)
{
    /* relaxed: a hint to read the seats */
    shmnd_put64(&b->head->refused, shmnd_relaxed64(&b->head->refused) + 1);
}

/* Free the seat of a subscriber that is gone: its slots are free at the next count. */
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

/* Move the board to more lines. Those are whole before a reader can find them, and only then the
 * old ones are withdrawn: no sample is missing in between, whenever the publisher dies. */
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
