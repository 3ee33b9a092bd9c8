/* SPDX-License-Identifier: Apache-2.0
 *
 * The locks of windows, which order the one-sided calls of their ranks.
 *
 * A lock of a window is one word in memory that its ranks share: a writer, or a count of readers.
 * When a rank dies, its job ends. So that a waiting rank can name the rank that it waits for, each
 * rank writes which locks it holds into a row of bytes of its own, after it has got a lock and
 * until it returns it. Nothing is decided by these bytes.
 */
#ifndef SHMPI_ONE_SIDED_H
#define SHMPI_ONE_SIDED_H

#include "transport/engine.h"

#define SHMPI_WRITER (1ull << 63)

/* What the ranks of a window share for each of them. */
struct shmpi_gate {
    shmnd_word64 access; /* SHMPI_WRITER, or how many read */
    shmnd_word64 atomic; /* 1 while an accumulation is under way */
    char rest[112];
};

_Static_assert(sizeof(struct shmpi_gate) == 128, "gates lie two lines apart");

/* Takes it for one writer or one more reader. False: others have it. */
static inline bool shmpi_gate_enter(struct shmpi_gate *gate, bool writes)
{
    uint64_t seen = shmnd_acquire64(&gate->access);
    while (writes ? seen == 0 : !(seen & SHMPI_WRITER))
        if (shmnd_swap64(&gate->access, &seen, writes ? SHMPI_WRITER : seen + 1))
            return true;
    return false;
}

static inline void shmpi_gate_leave(struct shmpi_gate *gate, bool writes)
{
    shmnd_add64(&gate->access, writes ? SHMPI_WRITER : UINT64_MAX); /* the writer's bit falls out */
}

static inline bool shmpi_gate_take(struct shmpi_gate *gate)
{
    uint64_t free = 0;
    return shmnd_swap64(&gate->atomic, &free, 1);
}

static inline void shmpi_gate_return(struct shmpi_gate *gate)
{
    shmnd_release64(&gate->atomic, 0);
}

/* The ranks of a window: as ranks of the job, and which locks each of them holds. */
struct shmpi_holders {
    int size, rank;
    const int *to_job;
    const char *rows; /* that of each rank, with a byte for each lock */
};

/* Whether the program of a rank of the job has ended. */
static inline bool shmpi_has_left(struct shmpi_engine *e, int rank)
{
    return shmnd_acquire32(&e->peers[rank].rank->left); /* SYNC left: acquire */
}

/* A rank that holds a lock, -1 if none is seen: one that has left is preferred, because it will not
 * return it. What it held when it left is seen. */
static inline int shmpi_holder(struct shmpi_engine *e, const struct shmpi_holders *h, int lock,
                               bool *has_left)
{
    int found = -1;
    *has_left = false;
    for (int i = 0; i < h->size && !*has_left; i++) {
        bool left = shmpi_has_left(e, h->to_job[i]);
        const volatile char *held = &h->rows[(size_t)i * (size_t)h->size + (size_t)lock];
        if (i == h->rank || !*held)
            continue;
        found = h->to_job[i];
        *has_left = left;
    }
    return found;
}

#endif
