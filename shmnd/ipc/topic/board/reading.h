/* SPDX-License-Identifier: Apache-2.0
 *
 * One subscriber at one publisher: what it knows of it, and which of its samples it holds.
 *
 * All calls belong to one subscriber, which serialises its threads. A subscriber that dies leaves a
 * page that says what it held, and its publisher lets go of it.
 */
#ifndef SHMND_IPC_READING_H
#define SHMND_IPC_READING_H

#include "board.h"

/* A pool of the publisher that is mapped here, as long as its base is not NULL. */
struct shmnd_near {
    uint64_t number;
    const unsigned char *base;
    uint64_t nbytes;
};
#define SHMND_NEAR 8u

/* One subscriber at one publisher. Private to its process. */
struct shmnd_reading {
    /* pools that were used of late, by the low bits of their number */
    struct shmnd_near near[SHMND_NEAR];
    struct shmnd_head *head;        /* of the publisher */
    const struct shmnd_line *lines; /* of its board, as of `where` */
    const struct shmnd_kept *kept;  /* its queue of its own (DROP_NEWEST); NULL: it has none yet */
    struct shmnd_page *page;        /* written here alone */
    shmnd_word64 *sleepers;
    uint32_t *free_holds; /* numbers of holds that are free: the last one is taken next */
    uint64_t line_mask, where;
    uint64_t cursor; /* as in the page */
    uint64_t joined; /* samples before it were there when it came: they take no room in `buffer` */
    uint64_t buffer; /* samples that it may fall behind */
    uint64_t lost;   /* samples that its policy dropped, as far as it has met them */
    uint64_t armed;  /* as in the page */
    uint64_t own_mask; /* `mask` of the page */
    uint64_t admitted; /* of the head, when its seats were read last */
    uint64_t refused;  /* of the head, when it came */
    /* Samples with one of these bits in `info` take no hold: SHMND_INFO_INLINE where the holds only
     * bound what the publisher must keep, none where they bound all samples that the program has */
    uint64_t uncounted;
    /* keeps the first samples: up to where it has received without a seat, where its queue begins,
     * and how many samples of that it had already */
    uint64_t early, start, skipped;
    uint32_t free_count, most_held, kept_mask, policy, seat;
    uint32_t groups[64]; /* how many of the holds of each bit of `mask` are in use */
    bool seated;         /* `seat` is its own */
    bool rings;          /* the publisher is to be rung: it sleeps for room */
};

struct shmnd_found {
    uint64_t position, when_ns, info, body[SHMND_LINE_WORDS];
    uint32_t hold;
};

enum shmnd_outcome {
    SHMND_OUTCOME_NOTHING,
    SHMND_OUTCOME_FOUND,
    SHMND_OUTCOME_COPY,  /* found without a seat: copy, then shmnd_reading_copied() */
    SHMND_OUTCOME_LIMIT, /* it holds as many samples as it may */
    SHMND_OUTCOME_MOVED, /* the lines are elsewhere now */
};

/* ---- holding --------------------------------------------------------------------------- */

/* Release a hold, after the last read in its slot. */
static inline void shmnd_reading_let_go(struct shmnd_reading *r, uint32_t hold)
{
    /* SYNC give-back: release, pairs with acquire in shmnd_board_count() */
    shmnd_release32(&shmnd_page_held(r->page)[hold], 0);
    r->free_holds[r->free_count++] = hold;
    if (--r->groups[hold % 64] == 0) {
        r->own_mask &= ~(1ull << (hold % 64));
        /* SYNC give-back: release, pairs with acquire in shmnd_board_count() */
        shmnd_release64(&r->page->mask, r->own_mask);
    }
}

/* Return the slot of a sample; SHMND_NO_SLOT of one in the line. */
static inline uint32_t shmnd_found_slot(const struct shmnd_found *found)
{
    return found->info & SHMND_INFO_INLINE ? SHMND_NO_SLOT : (uint32_t)found->body[0];
}

/* Hold a slot, and return the number of the hold. `slot` is SHMND_NO_SLOT for a sample that was
 * copied, which the publisher need not keep. The caller checks the line once more, behind the
 * fence. */
static inline uint32_t shmnd_reading_hold(struct shmnd_reading *r, uint32_t slot)
{
    uint32_t hold = r->free_holds[--r->free_count];
    shmnd_put32(&shmnd_page_held(r->page)[hold], slot + 1);
    if (r->groups[hold % 64]++ == 0) {
        r->own_mask |= 1ull << (hold % 64);
        shmnd_put64(&r->page->mask, r->own_mask);
    }
    SHMND_KILL_POINT("slot-held");
    /* SYNC borrow: fence, pairs with the fence in shmnd_board_count() */
    shmnd_store_then_load();
    return hold;
}

#endif
