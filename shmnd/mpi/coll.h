/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes of collectives, as schedules. Data lies packed; peers are positions in the group.
 *
 * Reductions keep the order of ranks and the same brackets on every rank, whatever the root: the
 * results are the same bits everywhere and in every run.
 */
#ifndef SHMPI_COLL_H
#define SHMPI_COLL_H

#include "p2p.h"
#include "slices.h"

static inline void shmpi_build_barrier(struct shmpi_sched *s, const struct shmpi_group *g)
{
    for (int step = 1; step < g->size; step *= 2) {
        shmpi_sched_send(s, g->ranks[(g->rank + step) % g->size], NULL, 0);
        shmpi_sched_receive(s, g->ranks[(g->rank - step + g->size) % g->size], NULL, 0);
        shmpi_sched_round(s);
    }
}

static inline void shmpi_build_bcast(struct shmpi_sched *s, const struct shmpi_group *g, int root,
                                     char *data, uint64_t bytes)
{
    if (g->size > 2 && shmpi_is_sliced(g, bytes, bytes)) {
        shmpi_build_bcast_sliced(s, g, root, data, bytes);
        return;
    }
    int place = (g->rank - root + g->size) % g->size, step = 1;
    while (step < g->size && !(place & step))
        step *= 2;
    if (place) {
        shmpi_sched_receive(s, g->ranks[(place - step + root) % g->size], data, bytes);
        shmpi_sched_round(s);
    }
    for (step /= 2; step; step /= 2)
        if (place + step < g->size)
            shmpi_sched_send(s, g->ranks[(place + step + root) % g->size], data, bytes);
    shmpi_sched_round(s);
}

/* Reduces to position 0 along a tree of neighbours. Returns where the result lies there. `data`
 * holds the rank's part and is written to. */
static inline char *shmpi_build_tree(struct shmpi_sched *s, const struct shmpi_group *g, char *data,
                                     char *spare, uint64_t items, uint64_t bytes)
{
    for (int step = 1; step < g->size; step *= 2) {
        if (g->rank & step) {
            shmpi_sched_send(s, g->ranks[g->rank - step], data, bytes);
            shmpi_sched_round(s);
            break;
        }
        if (g->rank + step < g->size) {
            shmpi_sched_receive(s, g->ranks[g->rank + step], spare, bytes);
            shmpi_sched_round(s);
            shmpi_sched_reduce(s, data, spare, items);
            char *swap = data;
            data = spare;
            spare = swap;
        }
    }
    return data;
}

/* `from` may be `to`. `to` is written on the root alone. */
static inline void shmpi_build_reduce(struct shmpi_sched *s, const struct shmpi_group *g, int root,
                                      const char *from, char *to, uint64_t items, uint64_t bytes)
{
    if (shmpi_is_sliced(g, items, bytes)) {
        shmpi_build_reduce_sliced(s, g, root, from, to, items, bytes);
        return;
    }
    char *mine = shmpi_sched_block(s, bytes), *spare = shmpi_sched_block(s, bytes);
    if (!mine || !spare)
        return;
    shmpi_sched_copy(s, from, mine, bytes);
    char *result = shmpi_build_tree(s, g, mine, spare, items, bytes);
    if (g->rank == 0 && root == 0)
        shmpi_sched_copy(s, result, to, bytes);
    else if (g->rank == 0)
        shmpi_sched_send(s, g->ranks[root], result, bytes);
    else if (g->rank == root)
        shmpi_sched_receive(s, g->ranks[0], to, bytes);
    shmpi_sched_round(s);
}

/* Of two ranks with separate buffers: nothing is copied that need not be. */
static inline void shmpi_build_allreduce_pair(struct shmpi_sched *s, const struct shmpi_group *g,
                                              const char *from, char *to, uint64_t items,
                                              uint64_t bytes)
{
    int other = g->ranks[!g->rank];
    char *theirs = g->rank ? shmpi_sched_block(s, bytes) : to;
    if (!theirs)
        return;
    shmpi_sched_receive(s, other, theirs, bytes);
    shmpi_sched_send(s, other, from, bytes);
    if (g->rank)
        shmpi_sched_copy(s, from, to, bytes);
    shmpi_sched_round(s);
    shmpi_sched_reduce(s, g->rank ? theirs : from, to, items);
}

static inline void shmpi_build_allreduce(struct shmpi_sched *s, const struct shmpi_group *g,
                                         const char *from, char *to, uint64_t items, uint64_t bytes)
{
    if (shmpi_is_sliced(g, items, bytes)) {
        shmpi_build_allreduce_sliced(s, g, from, to, items, bytes);
        return;
    }
    if (g->size == 2 && from != to) {
        shmpi_build_allreduce_pair(s, g, from, to, items, bytes);
        return;
    }
    char *mine = shmpi_sched_block(s, bytes), *spare = shmpi_sched_block(s, bytes);
    if (!mine || !spare)
        return;
    shmpi_sched_copy(s, from, mine, bytes);
    if (g->size & (g->size - 1)) {
        char *result = shmpi_build_tree(s, g, mine, spare, items, bytes);
        if (g->rank == 0)
            shmpi_sched_copy(s, result, to, bytes);
        shmpi_build_bcast(s, g, 0, to, bytes);
        return;
    }
    for (int step = 1; step < g->size; step *= 2) {
        int other = g->ranks[g->rank ^ step];
        shmpi_sched_send(s, other, mine, bytes);
        shmpi_sched_receive(s, other, spare, bytes);
        shmpi_sched_round(s);
        if (g->rank & step) {
            shmpi_sched_reduce(s, spare, mine, items);
        } else {
            shmpi_sched_reduce(s, mine, spare, items);
            char *swap = mine;
            mine = spare;
            spare = swap;
        }
    }
    shmpi_sched_copy(s, mine, to, bytes);
}

/* Inclusive, or exclusive, where position 0 gets nothing. */
static inline void shmpi_build_scan(struct shmpi_sched *s, const struct shmpi_group *g,
                                    const char *from, char *to, uint64_t items, uint64_t bytes,
                                    bool exclusive)
{
    char *before = shmpi_sched_block(s, bytes), *sum = shmpi_sched_block(s, bytes);
    if (!before || !sum)
        return;
    shmpi_sched_copy(s, from, sum, bytes);
    if (g->rank) {
        shmpi_sched_receive(s, g->ranks[g->rank - 1], before, bytes);
        shmpi_sched_round(s);
        shmpi_sched_reduce(s, before, sum, items);
    }
    if (g->rank + 1 < g->size)
        shmpi_sched_send(s, g->ranks[g->rank + 1], sum, bytes);
    if (!exclusive)
        shmpi_sched_copy(s, sum, to, bytes);
    else if (g->rank)
        shmpi_sched_copy(s, before, to, bytes);
    shmpi_sched_round(s);
}

#endif
