/* SPDX-License-Identifier: Apache-2.0
 *
 * The publisher: puts samples on the board, and wakes subscribers that sleep.
 *
 * Argument for SYNC doze. A subscriber counts its `armed` up, fences, and polls once more; the
 * publisher publishes, fences, and reads `armed`. The bitmap of sleepers says which pages to read,
 * and is a hint: each subscriber can clear it, so every page is read after SHMND_SWEEP_NS. The word
 * that counts, `armed`, is written by its subscriber alone.
 *
 * A subscriber may sleep at the counter of the publisher instead, for a short time (SYNC counter):
 * the kernel compares the counter as it puts the thread to sleep, under the lock that a wake-up
 * takes. The subscriber reads the counter before it polls. So a sample that its poll has missed
 * changes the counter afterwards: before the comparison, which fails then, or behind it, and behind
 * that the publisher reads an `armed` that was stored before. That holds for samples on the board,
 * whose stamp is written before the counter; a subscriber that has a queue of its own does not
 * sleep there.
 *
 * A publisher that dies leaves lines that are whole, withdrawn, or being written, never half a
 * sample under a valid stamp.
 */
#ifndef SHMND_IPC_PUBLISH_H
#define SHMND_IPC_PUBLISH_H

#include "reclaim.h"

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
    /* SYNC line: release, pairs with acquire in shmnd_reading_next(); the slot was written
     * before */
    shmnd_release64(&line->stamp, stamp);
}

static inline void shmnd_line_copy(const struct shmnd_line *line, struct shmnd_sample *sample)
{
    sample->when_ns = shmnd_relaxed64(&line->when_ns);
    sample->info = shmnd_relaxed64(&line->info);
    for (uint32_t i = 0; i < SHMND_LINE_WORDS; i++)
        sample->body[i] = shmnd_relaxed64(&line->body[i]);
}

/* Copy a sample into the queue of a subscriber that keeps the first ones, or count it as dropped if
 * the queue is full. */
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

/* Publish a sample, whose slot was taken before (or SHMND_NO_SLOT), and return its position. */
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
    /* SYNC counter: release, pairs with acquire in shmnd_reading_arm_counter() */
    shmnd_release64(&b->head->written, position + 1);
    SHMND_KILL_POINT("sample-published");
    if (b->keepers)
        shmnd_board_keep(b, sample, position, slot);
    return position;
}

/* Return whether the next sample may be published: each subscriber that blocks has room. */
static inline bool shmnd_board_has_room(struct shmnd_board *b)
{
    if (__builtin_expect(b->next < b->may_publish, 1))
        return true;
    shmnd_board_count(b);
    return b->next < b->may_publish;
}

/* Note whether the publisher is about to sleep for room; it checks again afterwards. */
static inline void shmnd_board_block(struct shmnd_board *b, bool blocked)
{
    shmnd_put64(&b->head->blocked, blocked);
    SHMND_KILL_POINT("publisher-blocked");
    /* SYNC blocked: fence, pairs with the fence in shmnd_reading_advance() */
    shmnd_store_then_load();
}

/* ---- waking subscribers --------------------------------------------------------------- */

/* How a subscriber sleeps, and is to be woken. */
enum shmnd_sleep { SHMND_AWAKE, SHMND_ASLEEP_AT_BELL, SHMND_ASLEEP_AT_COUNTER };

/* Return how the subscriber of a seat sleeps, if that sleep was not ended yet, and note its end. */
static inline enum shmnd_sleep shmnd_board_sleep(struct shmnd_board *b, uint32_t seat)
{
    struct shmnd_guest *g = &b->guests[seat];
    if (seat >= b->guest_count || !g->page)
        return SHMND_AWAKE;
    /* relaxed: behind the fence in shmnd_board_published() */
    uint64_t armed = shmnd_relaxed64(&g->page->armed);
    if (armed == g->rung)
        return SHMND_AWAKE;
    g->rung = armed;
    return armed & 1 ? SHMND_ASLEEP_AT_COUNTER : SHMND_ASLEEP_AT_BELL;
}

/* Order a publication before a check for sleepers. Return whether each page is to be read: with few
 * subscribers always, with many now and then, since any of them may clear the others' bits. */
static inline bool shmnd_board_published(struct shmnd_board *b, uint64_t now_ns)
{
    /* SYNC doze, SYNC counter: fence, pairs with the fence in shmnd_reading_arm() */
    shmnd_store_then_load();
    if (b->guest_count <= SHMND_FEW_GUESTS)
        return true;
    if (now_ns - b->swept_ns < SHMND_SWEEP_NS)
        return false;
    b->swept_ns = now_ns;
    return true;
}

/* Take the sleepers of the first word of the bitmap, from `from` on, that has any into `*bits`.
 * Return its number, or one behind the last word if there are none. */
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

#endif
