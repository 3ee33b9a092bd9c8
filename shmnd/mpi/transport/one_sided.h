/* SPDX-License-Identifier: Apache-2.0
 *
 * The locks of windows, which order the one-sided calls of their ranks.
 *
 * A lock of a window is one word in memory that its ranks share: the rank that writes, or a count
 * of readers. Another word has the rank of an accumulation. So a rank that waits for a writer or an
 * accumulation knows of which rank, also where that one has died.
 *
 * A count does not name the readers. Each rank has a row of bytes for the locks that it reads:
 * SHMPI_ASKS from before it asks for a lock until it has returned it, and SHMPI_HOLDS in between,
 * where it surely has the lock. A rank that has died with SHMPI_ASKS may have died with the lock.
 * One without a mark has not. The words alone decide which rank may enter; the bytes decide which
 * death ends a wait.
 */
#ifndef SHMPI_ONE_SIDED_H
#define SHMPI_ONE_SIDED_H

#include "transport/point_to_point.h"

#define SHMPI_WRITER (1ull << 63)

enum { SHMPI_ASKS = 1, SHMPI_HOLDS = 2 }; /* marks of a reader */

/* What the ranks of a window share for each of them. */
struct shmpi_gate {
    shmnd_word64 access; /* SHMPI_WRITER with the rank that writes, or how many read */
    shmnd_word64 atomic; /* 1 + the rank whose accumulation is under way, or 0 */
    char rest[112];
};

_Static_assert(sizeof(struct shmpi_gate) == 128, "gates lie two lines apart");

/* Enter the gate as its writer or as one more reader. Return false while others keep it closed. */
static inline bool shmpi_gate_enter(struct shmpi_gate *gate, bool writes, int rank)
{
    uint64_t writer = SHMPI_WRITER | (uint32_t)rank;
    uint64_t seen = shmnd_acquire64(&gate->access);
    while (writes ? seen == 0 : !(seen & SHMPI_WRITER))
        if (shmnd_swap64(&gate->access, &seen, writes ? writer : seen + 1))
            return true;
    return false;
}

static inline void shmpi_gate_leave(struct shmpi_gate *gate, bool writes)
{
    if (writes)
        shmnd_release64(&gate->access, 0); /* no other rank changes it meanwhile */
    else
        shmnd_add64(&gate->access, UINT64_MAX);
}

static inline bool shmpi_gate_take(struct shmpi_gate *gate, int rank)
{
    uint64_t free = 0;
    return shmnd_swap64(&gate->atomic, &free, 1 + (uint64_t)(uint32_t)rank);
}

static inline void shmpi_gate_return(struct shmpi_gate *gate)
{
    shmnd_release64(&gate->atomic, 0);
}

/* The ranks of a window: as ranks of the job, their locks, and which locks each of them reads. */
struct shmpi_holders {
    int size, rank;
    const int *to_job;
    struct shmpi_gate *gates;
    char *rows; /* that of each rank, with a byte for each lock */
};

/* Mark a lock in this rank's row. */
static inline void shmpi_mark(const struct shmpi_holders *h, int lock, char mark)
{
    *(volatile char *)&h->rows[(size_t)h->rank * (size_t)h->size + (size_t)lock] = mark;
}

static inline char shmpi_marked(const struct shmpi_holders *h, int rank, int lock)
{
    return *(const volatile char *)&h->rows[(size_t)rank * (size_t)h->size + (size_t)lock];
}

/* Return whether the program of a rank of the job has ended. */
static inline bool shmpi_has_left(struct shmpi_engine *e, int rank)
{
    return shmnd_acquire32(&e->peers[rank].rank->left); /* SYNC left: acquire */
}

/* Return another rank of the window as one of the job; -1 for this one or none. */
static inline int shmpi_other(const struct shmpi_holders *h, uint64_t rank)
{
    return rank < (uint64_t)h->size && rank != (uint64_t)h->rank ? h->to_job[rank] : -1;
}

/* Return a rank that holds a lock; -1 if none is found. Of readers, one that has left is preferred,
 * because it will not return it. A lock that it held when it left is found. */
static inline int shmpi_holder(struct shmpi_engine *e, const struct shmpi_holders *h, int lock,
                               bool *has_left)
{
    uint64_t seen = shmnd_acquire64(&h->gates[lock].access);
    int found = -1;
    *has_left = false;
    if (seen & SHMPI_WRITER) {
        found = shmpi_other(h, seen ^ SHMPI_WRITER);
        *has_left = found >= 0 && shmpi_has_left(e, found);
        if (*has_left && shmnd_acquire64(&h->gates[lock].access) != seen) {
            found = -1; /* it had returned it before it left */
            *has_left = false;
        }
        return found;
    }
    for (int i = 0; i < h->size && !*has_left; i++) {
        bool left = shmpi_has_left(e, h->to_job[i]);
        if (i == h->rank || shmpi_marked(h, i, lock) != SHMPI_HOLDS)
            continue;
        found = h->to_job[i];
        *has_left = left;
    }
    return found;
}

/* Return a rank that has died while it took or returned a reader's lock, or -1: it may have it. */
static inline int shmpi_lost_reader(struct shmpi_engine *e, const struct shmpi_holders *h, int lock)
{
    for (int i = 0; i < h->size; i++)
        if (shmpi_marked(h, i, lock) == SHMPI_ASKS && shmpi_death_of(e, h->to_job[i]))
            return h->to_job[i];
    return -1;
}

/* Return the rank of an accumulation that is under way; -1 if there is none. */
static inline int shmpi_taker(const struct shmpi_holders *h, int lock)
{
    return shmpi_other(h, shmnd_acquire64(&h->gates[lock].atomic) - 1);
}

#endif
