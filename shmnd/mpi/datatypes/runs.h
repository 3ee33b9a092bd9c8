/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the bytes of a datatype lie, and how they are gathered and scattered.
 *
 * One item of a datatype is a list of runs, in the order in which they are packed. A run is `count`
 * blocks of `bytes` bytes, `stride` apart, the first one `off` from the item's address; a run of
 * one block has the stride 0. Items lie `extent` apart. `start` says how many packed bytes of the
 * item come before the run, so packing can begin anywhere.
 *
 * Runs are made once, when the datatype is; after that they are only read. Nothing here depends on
 * what another process writes.
 */
#ifndef SHMPI_RUNS_H
#define SHMPI_RUNS_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    ptrdiff_t off;
    size_t bytes;
    size_t count;
    ptrdiff_t stride;
    size_t start;
    int kind; /* of the basic type, in lists that keep kinds apart; else 0 */
} mpi_run;

typedef struct {
    mpi_run *run;
    size_t n;
    size_t room;
    size_t size; /* packed bytes of one item */
} mpi_runs;

static inline void mpi_runs_free(mpi_runs *runs)
{
    free(runs->run);
    memset(runs, 0, sizeof *runs);
}

static inline int mpi_runs_push(mpi_runs *runs, mpi_run run)
{
    if (runs->n == runs->room) {
        size_t room = runs->room ? 2 * runs->room : 4;
        mpi_run *more = realloc(runs->run, room * sizeof *more);
        if (!more)
            return -1;
        runs->run = more;
        runs->room = room;
    }
    run.start = runs->size;
    runs->size += run.bytes * run.count;
    runs->run[runs->n++] = run;
    return 0;
}

/* Add a run at the end, as part of the last one where that makes no difference. -1: no memory. */
static inline int mpi_runs_add(mpi_runs *runs, mpi_run run)
{
    mpi_run *last = runs->n ? &runs->run[runs->n - 1] : NULL;
    if (!run.bytes || !run.count)
        return 0;
    if (run.count > 1 && run.stride == (ptrdiff_t)run.bytes) {
        run.bytes *= run.count;
        run.count = 1;
    }
    if (run.count == 1)
        run.stride = 0;
    if (!last || last->kind != run.kind || run.count > 1)
        return mpi_runs_push(runs, run);
    if (last->count == 1 && run.off == last->off + (ptrdiff_t)last->bytes) {
        last->bytes += run.bytes;
        runs->size += run.bytes;
        return 0;
    }
    if (last->bytes != run.bytes)
        return mpi_runs_push(runs, run);
    if (last->count == 1)
        last->stride = run.off - last->off;
    else if (run.off != last->off + (ptrdiff_t)last->count * last->stride)
        return mpi_runs_push(runs, run);
    last->count++;
    runs->size += run.bytes;
    return 0;
}

/* Add all runs of an item of another datatype, placed at `off`. */
static inline int mpi_runs_add_item(mpi_runs *runs, const mpi_runs *item, ptrdiff_t off)
{
    for (size_t i = 0; i < item->n; i++) {
        mpi_run run = item->run[i];
        run.off += off;
        if (mpi_runs_add(runs, run) < 0)
            return -1;
    }
    return 0;
}

/*
 * Add `count` blocks, `stride` apart, of `length` items each, `extent` apart, the first at `off`.
 * Blocks without a gap inside become one run.
 */
static inline int mpi_runs_add_blocks(mpi_runs *runs, const mpi_runs *item, ptrdiff_t extent,
                                      ptrdiff_t off, size_t count, size_t length, ptrdiff_t stride)
{
    int whole = item->n == 1 && item->run[0].count == 1 &&
                (length == 1 || extent == (ptrdiff_t)item->run[0].bytes);
    if (!count || !length || !item->n)
        return 0;
    if (whole) {
        mpi_run run = item->run[0];
        run.off += off;
        run.bytes *= length;
        run.count = count;
        run.stride = stride;
        return mpi_runs_add(runs, run);
    }
    for (size_t block = 0; block < count; block++)
        for (size_t place = 0; place < length; place++)
            if (mpi_runs_add_item(runs, item,
                                  off + (ptrdiff_t)block * stride + (ptrdiff_t)place * extent) < 0)
                return -1;
    return 0;
}

/*
 * Copy packed bytes [from, from + bytes) of items at `items` to `packed` (or, with `scatter`, from
 * it). Returns how many bytes it copied: fewer where `count` items are shorter than that.
 */
static inline size_t mpi_types_copy(const mpi_runs *runs, ptrdiff_t extent, char *items,
                                    size_t count, char *packed, size_t from, size_t bytes,
                                    int scatter)
{
    size_t done = 0;
    if (!runs->size || from / runs->size >= count)
        return 0;
    char *item = items + (ptrdiff_t)(from / runs->size) * extent;
    size_t left = count - from / runs->size;
    size_t skip = from % runs->size;
    for (; left && done < bytes; left--, item += extent, skip = 0)
        for (size_t i = 0; i < runs->n && done < bytes; i++) {
            const mpi_run *run = &runs->run[i];
            size_t block = 0, within = 0;
            if (skip >= run->start + run->bytes * run->count)
                continue;
            if (skip > run->start) {
                block = (skip - run->start) / run->bytes;
                within = (skip - run->start) % run->bytes;
            }
            for (; block < run->count && done < bytes; block++, within = 0) {
                char *place = item + run->off + (ptrdiff_t)block * run->stride + within;
                size_t part = run->bytes - within;
                if (part > bytes - done)
                    part = bytes - done;
                if (scatter)
                    memcpy(place, packed + done, part);
                else
                    memcpy(packed + done, place, part);
                done += part;
            }
        }
    return done;
}

#endif
