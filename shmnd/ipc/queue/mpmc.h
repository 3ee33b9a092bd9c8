/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of slots: any number of producers append, any number of consumers take, in
 * order. Every step is one compare-and-swap, so a process that dies has either done it
 * or not, and leaves nothing that another one has to wait for.
 *
 * A slot is one word: what it holds, its state, and the lap it belongs to. At lap n it
 * goes EMPTY(n), ITEM(n), TAKEN(n), EMPTY(n + 1). Position p lies in slot p % count at
 * lap p / count. The positions in the head only say where a search begins; the slots
 * decide.
 *
 * Argument for order. A producer fills position p only when write_pos came to p, and
 * that is moved past p - 1 only by a process that saw p - 1 filled. So positions are filled
 * one after the other; consumers likewise. The lap in the word makes a swap fail whose
 * slot was used meanwhile. It has 30 bits: a process would have to stop within a push
 * for exactly 2^30 laps.
 *
 * TAKEN names its taker. Consumers pass such a slot; a producer needs it EMPTY, which
 * the taker makes it in its next step. If the taker died in between, a process that has found
 * this out (by the taker's lock) settles the slot in its place.
 *
 * No call loops without an end, whatever stands in the memory: after some tries it
 * says BUSY, and the caller lets time pass.
 */
#ifndef SHMND_IPC_MPMC_H
#define SHMND_IPC_MPMC_H

#include "wire/kill_point.h"
#include "queue_layout.h"

#define SHMND_MPMC_TRIES 4096u
#define SHMND_LAP_MASK ((1u << 30) - 1)

enum { SHMND_SLOT_EMPTY, SHMND_SLOT_ITEM, SHMND_SLOT_TAKEN };
enum { SHMND_MPMC_OK, SHMND_MPMC_FULL, SHMND_MPMC_NOTHING, SHMND_MPMC_BUSY, SHMND_MPMC_HELD };

/* One process's view of the line. `count` is its own copy. */
struct shmnd_mpmc {
    shmnd_word64 *write_pos, *read_pos, *slots;
    uint64_t count;
};

static inline uint64_t shmnd_mpmc_word(uint32_t state, uint32_t value, uint64_t lap)
{
    return (uint64_t)state | (uint64_t)value << 2 | (lap & SHMND_LAP_MASK) << 34;
}

static inline uint32_t shmnd_mpmc_state(uint64_t word)
{
    return (uint32_t)(word & 3);
}

static inline uint32_t shmnd_mpmc_value(uint64_t word)
{
    return (uint32_t)(word >> 2);
}

/* Return how many laps the word is ahead of `pos`: 0 in the same one, -1 in the one before. */
static inline int32_t shmnd_mpmc_ahead(const struct shmnd_mpmc *q, uint64_t word, uint64_t pos)
{
    uint32_t laps = ((uint32_t)(word >> 34) - (uint32_t)(pos / q->count)) & SHMND_LAP_MASK;
    return laps > SHMND_LAP_MASK / 2 ? (int32_t)laps - (int32_t)SHMND_LAP_MASK - 1 : (int32_t)laps;
}

static inline shmnd_word64 *shmnd_mpmc_slot(const struct shmnd_mpmc *q, uint64_t pos)
{
    return &q->slots[pos % q->count];
}

/* Move a hint past `pos`, unless another process has moved it. */
static inline void shmnd_mpmc_pass(shmnd_word64 *hint, uint64_t pos)
{
    uint64_t seen = pos;
    /* needs no order: the slots decide, this only gives the place to begin */
    (void)shmnd_swap64(hint, &seen, pos + 1);
}

/* Append a value, at `*pos_p`. Return HELD if the slot waits for its taker, in `*held_p`. */
static inline int shmnd_mpmc_push(struct shmnd_mpmc *q, uint32_t value, uint64_t *pos_p,
                                  uint32_t *held_p)
{
    for (uint32_t tries = 0; tries < SHMND_MPMC_TRIES; tries++) {
        uint64_t pos = shmnd_relaxed64(q->write_pos);
        shmnd_word64 *slot = shmnd_mpmc_slot(q, pos);
        /* SYNC settled: acquire, pairs with the swap in shmnd_mpmc_settle() */
        uint64_t word = shmnd_acquire64(slot);
        int32_t ahead = shmnd_mpmc_ahead(q, word, pos);
        uint32_t state = shmnd_mpmc_state(word);
        if (ahead == 0 && state == SHMND_SLOT_EMPTY) {
            uint64_t item = shmnd_mpmc_word(SHMND_SLOT_ITEM, value, pos / q->count);
            /* SYNC item: the swap releases the block, pairs with acquire in shmnd_mpmc_peek() */
            if (!shmnd_swap64(slot, &word, item))
                continue;
            SHMND_KILL_POINT("item-pushed");
            shmnd_mpmc_pass(q->write_pos, pos);
            *pos_p = pos;
            return SHMND_MPMC_OK;
        }
        if (ahead >= 0) {
            shmnd_mpmc_pass(q->write_pos, pos);
            continue;
        }
        if (ahead == -1 && state == SHMND_SLOT_TAKEN) {
            *held_p = shmnd_mpmc_value(word);
            return SHMND_MPMC_HELD;
        }
        if (shmnd_relaxed64(q->write_pos) == pos)
            return ahead == -1 && state == SHMND_SLOT_ITEM ? SHMND_MPMC_FULL : SHMND_MPMC_BUSY;
    }
    return SHMND_MPMC_BUSY;
}

/* Find the first item: its position and its word. */
static inline int shmnd_mpmc_peek(struct shmnd_mpmc *q, uint64_t *pos_p, uint64_t *word_p)
{
    for (uint32_t tries = 0; tries < SHMND_MPMC_TRIES; tries++) {
        uint64_t pos = shmnd_relaxed64(q->read_pos);
        /* SYNC item: acquire, pairs with the swap in shmnd_mpmc_push() */
        uint64_t word = shmnd_acquire64(shmnd_mpmc_slot(q, pos));
        int32_t ahead = shmnd_mpmc_ahead(q, word, pos);
        uint32_t state = shmnd_mpmc_state(word);
        if (ahead == 0 && state == SHMND_SLOT_ITEM) {
            *pos_p = pos;
            *word_p = word;
            return SHMND_MPMC_OK;
        }
        if (ahead > 0 || (ahead == 0 && state == SHMND_SLOT_TAKEN)) {
            shmnd_mpmc_pass(q->read_pos, pos);
            continue;
        }
        if (shmnd_relaxed64(q->read_pos) == pos)
            return SHMND_MPMC_NOTHING;
    }
    return SHMND_MPMC_BUSY;
}

/* Take the item that peek found. Return false if another consumer was first. */
static inline bool shmnd_mpmc_take(struct shmnd_mpmc *q, uint64_t pos, uint64_t word,
                                   uint32_t member)
{
    uint64_t taken = shmnd_mpmc_word(SHMND_SLOT_TAKEN, member, pos / q->count);
    /* SYNC held: the swap releases `taking`, pairs with acquire in shmnd_mpmc_waiting_at() */
    if (!shmnd_swap64(shmnd_mpmc_slot(q, pos), &word, taken))
        return false;
    SHMND_KILL_POINT("item-taken");
    return true;
}

/* Free the slot of a taken item for the next lap. Return false if that was done before. */
static inline bool shmnd_mpmc_settle(struct shmnd_mpmc *q, uint64_t pos, uint32_t member)
{
    uint64_t taken = shmnd_mpmc_word(SHMND_SLOT_TAKEN, member, pos / q->count);
    uint64_t empty = shmnd_mpmc_word(SHMND_SLOT_EMPTY, 0, pos / q->count + 1);
    /* SYNC settled: the swap releases the taker's count, pairs with acquire in
     * shmnd_mpmc_push() */
    bool settled = shmnd_swap64(shmnd_mpmc_slot(q, pos), &taken, empty);
    shmnd_mpmc_pass(q->read_pos, pos);
    return settled;
}

/* Return the value that waits in a slot, plus one; 0 if none does. */
static inline uint64_t shmnd_mpmc_waiting_at(const struct shmnd_mpmc *q, uint64_t index)
{
    /* SYNC held: acquire, pairs with the swap in shmnd_mpmc_take() */
    uint64_t word = shmnd_acquire64(&q->slots[index]);
    return shmnd_mpmc_state(word) == SHMND_SLOT_ITEM ? (uint64_t)shmnd_mpmc_value(word) + 1 : 0;
}

/* Return how many items were ever appended. */
static inline uint64_t shmnd_mpmc_written(struct shmnd_mpmc *q)
{
    uint64_t pos = shmnd_relaxed64(q->write_pos);
    for (uint32_t tries = 0; tries < SHMND_MPMC_TRIES; tries++, pos++) {
        /* SYNC item: acquire, pairs with the swap in shmnd_mpmc_push() */
        uint64_t word = shmnd_acquire64(shmnd_mpmc_slot(q, pos));
        int32_t ahead = shmnd_mpmc_ahead(q, word, pos);
        if (ahead < 0 || (ahead == 0 && shmnd_mpmc_state(word) == SHMND_SLOT_EMPTY))
            break;
    }
    return pos;
}

/* Return a guess of how many items wait: either side may have moved since. */
static inline uint64_t shmnd_mpmc_size_guess(struct shmnd_mpmc *q)
{
    uint64_t read = shmnd_relaxed64(q->read_pos);
    uint64_t write = shmnd_mpmc_written(q);
    return write - read > q->count ? (write > read ? q->count : 0) : write - read;
}

#endif
