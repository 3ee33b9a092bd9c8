/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bytes of a file a view shows, and how they are read and written.
 *
 * A view tiles the file from `start` on with items of a datatype, `extent` apart. Its data are the
 * bytes of the items' runs, in their order: data byte 0 is the first byte of the first run. The
 * caller has checked that the extent is positive, that the runs of an item lie in ascending order
 * and that all places fit in 63 bits.
 */
#ifndef SHMPI_VIEW_H
#define SHMPI_VIEW_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "datatypes/runs.h"

#define MPI_VIEW_CALLS 256 /* of the kernel, until the caller looks for signals */
#define MPI_VIEW_BYTES ((size_t)64 << 20)

enum { MPI_VIEW_DONE = 0, MPI_VIEW_MORE = -1, MPI_VIEW_END = -2 };

typedef struct {
    const mpi_runs *runs;
    ptrdiff_t extent;
    int64_t start;
} mpi_view;

/* Return the run of an item that holds its data byte `at`: the last one that starts at or before
 * it. */
static inline const mpi_run *mpi_view_run(const mpi_runs *runs, size_t at)
{
    size_t low = 0, high = runs->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (runs->run[middle].start <= at)
            low = middle;
        else
            high = middle;
    }
    return &runs->run[low];
}

/* Return the place in the file of data byte `at`, and in `*row` the bytes in a row from it on. */
static inline int64_t mpi_view_place(const mpi_view *view, size_t at, size_t *row)
{
    size_t item = at / view->runs->size, within = at % view->runs->size;
    const mpi_run *run = mpi_view_run(view->runs, within);
    int64_t base = view->start + (int64_t)item * view->extent + run->off;
    if (view->runs->n == 1 && run->count == 1 && (ptrdiff_t)run->bytes == view->extent) {
        *row = SIZE_MAX - at; /* items without a gap */
        return base + (int64_t)within;
    }
    within -= run->start;
    *row = run->bytes - within % run->bytes;
    return base + (int64_t)(within / run->bytes) * run->stride + (int64_t)(within % run->bytes);
}

/* Return how many data bytes of one item, which begins at `base`, lie before the place `end`. */
static inline size_t mpi_view_item_before(const mpi_view *view, int64_t base, int64_t end)
{
    size_t found = 0;
    for (size_t i = 0; i < view->runs->n; i++) {
        const mpi_run *run = &view->runs->run[i];
        int64_t first = base + run->off, left = end - first;
        if (left <= 0)
            continue;
        size_t block = run->count > 1 ? (size_t)((left - 1) / run->stride) : 0;
        if (block >= run->count) {
            found += run->bytes * run->count;
            continue;
        }
        size_t part = (size_t)(left - (int64_t)block * run->stride);
        found += block * run->bytes + (part < run->bytes ? part : run->bytes);
    }
    return found;
}

/* Return how many data bytes of the view lie before the place `end`. */
static inline size_t mpi_view_before(const mpi_view *view, ptrdiff_t true_lb, ptrdiff_t true_extent,
                                     int64_t end)
{
    int64_t first = view->start + true_lb; /* where the first item's data begin, and end */
    int64_t last = first + true_extent;
    int64_t item = end >= last ? (end - last) / view->extent + 1 : 0;
    size_t found = (size_t)item * view->runs->size; /* of whole items before it */
    for (; first + item * view->extent < end; item++)
        found += mpi_view_item_before(view, view->start + item * view->extent, end);
    return found;
}

/*
 * Read the data bytes [at, at + bytes) of the view into `memory`, or write them. Adds to `*moved`
 * how many it moved. Returns MPI_VIEW_DONE, MPI_VIEW_MORE after as much as one turn may take,
 * MPI_VIEW_END where the file ends first, or the kernel's error.
 */
static inline int mpi_view_move(const mpi_view *view, int fd, char *memory, size_t at, size_t bytes,
                                int writes, size_t *moved)
{
    size_t done = 0;
    int why = MPI_VIEW_DONE;
    for (int calls = 0; done < bytes && why == MPI_VIEW_DONE; calls++) {
        size_t row;
        int64_t place = mpi_view_place(view, at + done, &row);
        size_t part = row < bytes - done ? row : bytes - done;
        ssize_t n;
        if (calls == MPI_VIEW_CALLS || done >= MPI_VIEW_BYTES) {
            why = MPI_VIEW_MORE;
            break;
        }
        if (part > MPI_VIEW_BYTES)
            part = MPI_VIEW_BYTES;
        n = writes ? pwrite(fd, memory + done, part, place) : pread(fd, memory + done, part, place);
        if (n < 0)
            why = errno == EINTR ? MPI_VIEW_MORE : errno;
        else if (n == 0)
            why = MPI_VIEW_END;
        else
            done += (size_t)n;
    }
    *moved += done;
    return why;
}

/*
 * Lock a part of the file against the other ranks, whose descriptors are their own, or unlock it.
 * The kernel unlocks what a dead rank has locked. Returns 0 or the kernel's error.
 */
static inline int mpi_view_lock(int fd, int64_t first, int64_t bytes, short kind)
{
    struct flock lock;
    memset(&lock, 0, sizeof lock);
    lock.l_type = kind;
    lock.l_whence = SEEK_SET;
    lock.l_start = first;
    lock.l_len = bytes;
    return fcntl(fd, F_OFD_SETLKW, &lock) < 0 ? errno : 0;
}

#endif
