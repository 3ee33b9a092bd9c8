/* SPDX-License-Identifier: Apache-2.0
 *
 * The shapes of collectives, as schedules. Data lies packed; peers are positions in the group.
 *
 * Reductions keep the order of ranks and the same brackets on every rank, whatever the root: the
 * results are the same bits everywhere and in every run.
 */
#ifndef SHMPI_SHAPES_H
#define SHMPI_SHAPES_H

#include "transport/leaving.h"

/* The ranks that take part, as ranks of the job. */
struct shmpi_group {
    int size, rank;
    const int *ranks;
};

/* ---- by slices ------------------------------------------------------------------------------- */

/* Collectives of much data: each rank has the work of one slice, and all work at a time. A
 * reduction sends slice i of every rank to rank i, which reduces it; a tree of all data would leave
 * one rank with most of the copies and all of the last reduction. The brackets are those of the
 * tree below, so that a result has the same bits whatever way and size it took. */
enum {
    SHMPI_SLICED = 64 << 10,     /* bytes from which on slices are worth a second round */
    SHMPI_PAIR_MOST = 256 << 10, /* and beyond this if two ranks reduce what they receive at once */
};

static inline bool shmpi_is_sliced(const struct shmpi_group *g, uint64_t items, uint64_t bytes)
{
    return g->size > 1 && bytes >= SHMPI_SLICED && items >= (uint64_t)g->size;
}

/* Return the first item of a slice; for slice `size` the end of the last one. */
static inline uint64_t shmpi_slice(const struct shmpi_group *g, uint64_t items, int slice)
{
    uint64_t each = items / (uint64_t)g->size, more = items % (uint64_t)g->size;
    return each * (uint64_t)slice + ((uint64_t)slice < more ? (uint64_t)slice : more);
}

/* Where the reduction of one slice lies: a row for each rank. The own row is the program's, and is
 * written to only where the result belongs there; the row of one other rank is received into the
 * place of the result, if that is apart from what the round sends. So two ranks copy nothing. An
 * operation without a kernel, as those of the program, writes into its right operand alone: the own
 * row is a copy then, and the result is copied. */
struct shmpi_rows {
    char **row;
    char *own, *to; /* rows that are special; NULL: none is */
    int pair;       /* whose row is reduced with the own one while it is received; -1: none is */
};

/* Reduce two rows, and return the one that has the result. */
static inline char *shmpi_build_pair(struct shmpi_sched *s, const struct shmpi_rows *r, char *left,
                                     char *right, uint64_t items)
{
    bool into_left = left == r->to || (right == r->own && right != r->to);
    shmpi_sched_reduce_to(s, left, right, items, into_left);
    return into_left ? left : right;
}

/* Reduce n rows with the brackets of a tree of neighbours, and return the one with the result. */
static inline char *shmpi_build_rows(struct shmpi_sched *s, const struct shmpi_rows *r, int n,
                                     uint64_t items)
{
    for (int step = 1; step < n; step *= 2)
        for (int i = 0; i + step < n; i += 2 * step)
            if (step > 1 || i != (r->pair & ~1)) /* else row i has the result */
                r->row[i] = shmpi_build_pair(s, r, r->row[i], r->row[i + step], items);
    return r->row[0];
}

/* Find the rows of this rank's slice. Return false without memory. */
static inline bool shmpi_lay_rows(struct shmpi_sched *s, const struct shmpi_group *g,
                                  const char *from, char *to, const uint64_t *first,
                                  uint64_t extent, struct shmpi_rows *r)
{
    uint64_t bytes = (first[g->rank + 1] - first[g->rank]) * extent;
    char *own = (char *)(uintptr_t)from + first[g->rank] * extent;
    bool apart = to + bytes <= from || to >= from + first[g->size] * extent;
    int other = (g->rank ^ 1) < g->size ? g->rank ^ 1 : 0;
    *r = (struct shmpi_rows){.pair = -1};
    if (s->to_any_place) {
        r->own = own;
        r->to = apart || to == own ? to : NULL;
        r->pair = bytes && other == (g->rank ^ 1) ? other : -1;
    }
    bool received = g->size > 1 && r->to && r->to != own; /* the row of `other` lies at `to` */
    /* One block: of several smaller ones malloc returns the last to the kernel in each call. */
    char *rows = shmpi_sched_block(s, bytes * (uint64_t)(g->size - !!r->own - received));
    r->row = (char **)shmpi_sched_block(s, (uint64_t)g->size * sizeof *r->row);
    if (!rows || !r->row)
        return false;
    char *mine = own;
    for (int i = 0; i < g->size; i++) {
        if (i == g->rank && r->own) {
            r->row[i] = own;
        } else if (i == other && received) {
            r->row[i] = to;
        } else {
            r->row[i] = rows;
            rows += bytes;
            if (i == g->rank)
                mine = r->row[i];
        }
    }
    shmpi_sched_copy(s, own, mine, bytes);
    return true;
}

/* Reduce items [first[i], first[i + 1]) to rank i. `to` may be part of `from`. */
static inline void shmpi_build_reduce_slices(struct shmpi_sched *s, const struct shmpi_group *g,
                                             const char *from, char *to, const uint64_t *first,
                                             uint64_t extent)
{
    uint64_t items = first[g->rank + 1] - first[g->rank], bytes = items * extent;
    struct shmpi_rows r;
    if (!shmpi_lay_rows(s, g, from, to, first, extent, &r))
        return;
    for (int k = 1; k < g->size; k++) {
        int i = (g->rank + g->size - k) % g->size;
        if (i == r.pair)
            shmpi_sched_merge(s, g->ranks[i], r.own, r.row[i], items, bytes, g->rank < i,
                              r.to == r.own);
        else
            shmpi_sched_receive(s, g->ranks[i], r.row[i], bytes);
    }
    for (int k = 1; k < g->size; k++) {
        int i = (g->rank + k) % g->size;
        shmpi_sched_send(s, g->ranks[i], from + first[i] * extent,
                         (first[i + 1] - first[i]) * extent);
    }
    shmpi_sched_round(s);
    if (r.pair >= 0)
        r.row[r.pair & ~1] = r.to == r.own ? r.own : r.row[r.pair];
    shmpi_sched_copy(s, shmpi_build_rows(s, &r, g->size, items), to, bytes);
    shmpi_sched_round(s);
}

/* Gather the slices of all other ranks on each rank, but for `has_all`; each has its own one. */
static inline void shmpi_build_gather_slices(struct shmpi_sched *s, const struct shmpi_group *g,
                                             char *data, const uint64_t *first, uint64_t extent,
                                             int has_all)
{
    for (int k = 1; k < g->size; k++) {
        int i = (g->rank + g->size - k) % g->size;
        if (g->rank != has_all)
            shmpi_sched_receive(s, g->ranks[i], data + first[i] * extent,
                                (first[i + 1] - first[i]) * extent);
    }
    for (int k = 1; k < g->size; k++) {
        int i = (g->rank + k) % g->size;
        if (i != has_all)
            shmpi_sched_send(s, g->ranks[i], data + first[g->rank] * extent,
                             (first[g->rank + 1] - first[g->rank]) * extent);
    }
    shmpi_sched_round(s);
}

static inline uint64_t *shmpi_even_slices(struct shmpi_sched *s, const struct shmpi_group *g,
                                          uint64_t items)
{
    uint64_t *first = (uint64_t *)shmpi_sched_block(s, ((uint64_t)g->size + 1) * sizeof *first);
    for (int i = 0; first && i <= g->size; i++)
        first[i] = shmpi_slice(g, items, i);
    return first;
}

/* Reduce to all ranks by slices. `from` may be `to`. */
static inline void shmpi_build_allreduce_sliced(struct shmpi_sched *s, const struct shmpi_group *g,
                                                const char *from, char *to, uint64_t items,
                                                uint64_t bytes)
{
    uint64_t *first = shmpi_even_slices(s, g, items), extent = bytes / items;
    if (!first)
        return;
    shmpi_build_reduce_slices(s, g, from, to + first[g->rank] * extent, first, extent);
    shmpi_build_gather_slices(s, g, to, first, extent, -1);
}

/* Reduce to the root by slices. `to` is written on the root alone; `from` may be `to`. */
static inline void shmpi_build_reduce_sliced(struct shmpi_sched *s, const struct shmpi_group *g,
                                             int root, const char *from, char *to, uint64_t items,
                                             uint64_t bytes)
{
    uint64_t *first = shmpi_even_slices(s, g, items), extent = bytes / items;
    if (!first)
        return;
    uint64_t own = (first[g->rank + 1] - first[g->rank]) * extent;
    char *mine = g->rank == root ? to + first[root] * extent : shmpi_sched_block(s, own);
    if (!mine)
        return;
    shmpi_build_reduce_slices(s, g, from, mine, first, extent);
    for (int i = 0; g->rank == root && i < g->size; i++)
        if (i != root)
            shmpi_sched_receive(s, g->ranks[i], to + first[i] * extent,
                                (first[i + 1] - first[i]) * extent);
    if (g->rank != root)
        shmpi_sched_send(s, g->ranks[root], mine, own);
    shmpi_sched_round(s);
}

/* Broadcast by slices: the root sends one to each rank, and all send theirs to all others. */
static inline void shmpi_build_bcast_sliced(struct shmpi_sched *s, const struct shmpi_group *g,
                                            int root, char *data, uint64_t bytes)
{
    uint64_t *first = shmpi_even_slices(s, g, bytes);
    if (!first)
        return;
    for (int k = 1; g->rank == root && k < g->size; k++) {
        int i = (root + k) % g->size;
        shmpi_sched_send(s, g->ranks[i], data + first[i], first[i + 1] - first[i]);
    }
    if (g->rank != root) {
        shmpi_sched_receive(s, g->ranks[root], data + first[g->rank],
                            first[g->rank + 1] - first[g->rank]);
        shmpi_sched_round(s);
    }
    shmpi_build_gather_slices(s, g, data, first, 1, root);
}

/* ---- whole ----------------------------------------------------------------------------------- */

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

/* Reduce to position 0 along a tree of neighbours, and return where the result lies there. `data`
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

/* Reduce to the root. `from` may be `to`, which is written on the root alone. */
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

/* Reduce to both of two ranks with separate buffers, with no copy that is not needed. */
static inline void shmpi_build_allreduce_pair(struct shmpi_sched *s, const struct shmpi_group *g,
                                              const char *from, char *to, uint64_t items,
                                              uint64_t bytes)
{
    int other = g->ranks[!g->rank];
    if (s->to_any_place && items) {
        shmpi_sched_merge(s, other, from, to, items, bytes, g->rank == 0, false);
        shmpi_sched_send(s, other, from, bytes);
        shmpi_sched_round(s);
        return;
    }
    bool copies = g->rank;
    char *theirs = copies ? shmpi_sched_block(s, bytes) : to;
    if (!theirs)
        return;
    shmpi_sched_receive(s, other, theirs, bytes);
    shmpi_sched_send(s, other, from, bytes);
    if (copies)
        shmpi_sched_copy(s, from, to, bytes);
    shmpi_sched_round(s);
    shmpi_sched_reduce(s, copies ? theirs : from, to, items);
}

static inline void shmpi_build_allreduce(struct shmpi_sched *s, const struct shmpi_group *g,
                                         const char *from, char *to, uint64_t items, uint64_t bytes)
{
    bool pair = g->size == 2 && from != to;
    if (!(pair && s->to_any_place && bytes <= SHMPI_PAIR_MOST) &&
        shmpi_is_sliced(g, items, bytes)) {
        shmpi_build_allreduce_sliced(s, g, from, to, items, bytes);
        return;
    }
    if (pair) {
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

/* Scan, inclusively or exclusively; then position 0 gets nothing. */
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
