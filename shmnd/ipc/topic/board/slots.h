/* SPDX-License-Identifier: Apache-2.0
 *
 * The slots of a publisher: free lists by size class, and groups that are given back.
 *
 * All of it is private memory of the publisher. A slot is free, on loan, shown by a line, pending
 * (its line is withdrawn, and a subscriber may hold it), or retired: its memory was given back to
 * the system, and its number waits for other memory.
 */
#ifndef SHMND_IPC_SLOTS_H
#define SHMND_IPC_SLOTS_H

#include "board.h"

#define SHMND_SLOT_CLASSES 128u
#define SHMND_MOST_SAMPLE (7ull << 35) /* the bytes of the last class */

enum shmnd_slot_state {
    SHMND_STORE_FREE,
    SHMND_STORE_LOANED,
    SHMND_STORE_SHOWN,
    SHMND_STORE_PENDING, /* its line is withdrawn; a subscriber may hold it */
    SHMND_STORE_RETIRED,
};

/* A slot, as its publisher knows it. */
struct shmnd_store {
    unsigned char *base;
    uint64_t offset;
    uint64_t seen; /* the last count at which a subscriber held it */
    uint32_t pool;
    uint32_t class;
    uint32_t next;
    uint32_t keeps; /* queues of subscribers that it stands in */
    uint32_t state;
    uint32_t group; /* of slots that were made, and are given back, together */
    uint32_t used;  /* the last period in which it was taken */
};

struct shmnd_slots {
    struct shmnd_store *all;
    uint32_t count, period, pending;
    uint32_t free[SHMND_SLOT_CLASSES];
};

/* Return the bytes of a slot of a class: four steps to each doubling, from 64 bytes on. */
static inline uint64_t shmnd_class_bytes(uint32_t class)
{
    return (64ull << class / 4) + (uint64_t)(class % 4) * (16ull << class / 4);
}

/* Return the smallest class whose slots have `nbytes` bytes. */
static inline uint32_t shmnd_class_of(uint64_t nbytes)
{
    if (nbytes <= 64)
        return 0;
    uint32_t log = 63 - (uint32_t)__builtin_clzll(nbytes - 1); /* 2^log < nbytes <= 2^(log+1) */
    uint64_t quarters = (nbytes - (1ull << log) + (1ull << (log - 2)) - 1) >> (log - 2);
    return (log - 6) * 4 + (uint32_t)quarters;
}

static inline void shmnd_slots_free(struct shmnd_slots *slots, uint32_t slot)
{
    struct shmnd_store *s = &slots->all[slot];
    s->state = SHMND_STORE_FREE;
    s->next = slots->free[s->class];
    slots->free[s->class] = slot;
}

static inline void shmnd_slots_suspend(struct shmnd_slots *slots, uint32_t slot)
{
    struct shmnd_store *s = &slots->all[slot];
    s->state = SHMND_STORE_PENDING;
    s->next = slots->pending;
    slots->pending = slot;
}

/* Take a free slot of a class, or of one that is not twice as large; return SHMND_NO_SLOT without
 * one. The one that was freed last comes first: its memory is in the cache. */
static inline uint32_t shmnd_slots_take(struct shmnd_slots *slots, uint32_t class)
{
    for (uint32_t c = class; c < class + 4 && c < SHMND_SLOT_CLASSES; c++) {
        uint32_t slot = slots->free[c];
        if (slot != SHMND_NO_SLOT) {
            slots->free[c] = slots->all[slot].next;
            slots->all[slot].state = SHMND_STORE_LOANED;
            slots->all[slot].used = slots->period;
            return slot;
        }
    }
    return SHMND_NO_SLOT;
}

/* Return whether the slots of a group, from its `first` on, are all free, none taken since period
 * `since`. */
static inline bool shmnd_slots_idle(const struct shmnd_slots *slots, uint32_t first, uint32_t since)
{
    uint32_t group = slots->all[first].group;
    for (uint32_t i = first; i < slots->count && slots->all[i].group == group; i++) {
        const struct shmnd_store *s = &slots->all[i];
        if (s->state != SHMND_STORE_FREE || s->used >= since)
            return false;
    }
    return true;
}

/* Retire the free slots of a group: take them out of their list, and return how many they are. */
static inline uint32_t shmnd_slots_retire(struct shmnd_slots *slots, uint32_t first)
{
    uint32_t group = slots->all[first].group, retired = 0;
    uint32_t *at = &slots->free[slots->all[first].class];
    while (*at != SHMND_NO_SLOT) {
        struct shmnd_store *s = &slots->all[*at];
        if (s->group != group) {
            at = &s->next;
            continue;
        }
        s->state = SHMND_STORE_RETIRED;
        *at = s->next;
        retired++;
    }
    return retired;
}

#endif
