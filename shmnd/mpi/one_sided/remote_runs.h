/* SPDX-License-Identifier: Apache-2.0
 *
 * The items of a datatype in the memory of another rank, without its gaps.
 *
 * The kernel copies a list of places in one call. Only the bytes that the datatype has are read and
 * written: the owner may change those between them at the same time.
 */
#ifndef SHMPI_REMOTE_RUNS_H
#define SHMPI_REMOTE_RUNS_H

#include "datatypes/runs.h"
#include "transport/copying/by_kernel.h"
#include "transport/one_sided.h"

#define SHMPI_PLACES 128 /* places a call of the kernel; it takes up to IOV_MAX, 1024 */

/* Places in the memory of a rank, and the row of bytes that is copied from them or to them. */
struct shmpi_places {
    pid_t pid;
    bool writes;
    char *row;
    size_t n;
    struct iovec place[SHMPI_PLACES];
};

/* Copy all places that are noted. Return 0, or an errno value. */
static inline int shmpi_places_copy(struct shmpi_places *p)
{
    size_t first = 0;
    while (first < p->n) {
        struct iovec mine = {p->row, 0};
        for (size_t i = first; i < p->n; i++)
            mine.iov_len += p->place[i].iov_len;
        ssize_t n = p->writes
                        ? process_vm_writev(p->pid, &mine, 1, p->place + first, p->n - first, 0)
                        : process_vm_readv(p->pid, &mine, 1, p->place + first, p->n - first, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EFAULT;
        p->row += n;
        /* The kernel may stop early, also within a place. */
        for (size_t left = (size_t)n; left;) {
            struct iovec *place = &p->place[first];
            size_t part = left < place->iov_len ? left : place->iov_len;
            place->iov_base = (char *)place->iov_base + part;
            place->iov_len -= part;
            left -= part;
            first += place->iov_len == 0;
        }
    }
    p->n = 0;
    return 0;
}

/* Copy the first `bytes` bytes of items at `there`, `extent` apart, between them and the packed
 * row. Return 0, or an errno value. */
static inline int shmpi_remote_runs(struct shmpi_engine *e, int rank, const mpi_runs *runs,
                                    ptrdiff_t extent, char *row, uint64_t there, uint64_t bytes,
                                    bool writes)
{
    struct shmpi_places p = {
        .pid = (pid_t)shmnd_relaxed32(&e->peers[rank].rank->pid), .writes = writes, .row = row};
    for (; bytes && runs->size; there += (uint64_t)extent)
        for (size_t i = 0; i < runs->n && bytes; i++) {
            const mpi_run *run = &runs->run[i];
            uint64_t at = there + (uint64_t)run->off;
            for (size_t block = 0; block < run->count && bytes; block++) {
                size_t part = run->bytes < bytes ? run->bytes : bytes;
                int why = p.n == SHMPI_PLACES ? shmpi_places_copy(&p) : 0;
                if (why)
                    return why;
                p.place[p.n++] = (struct iovec){(void *)(uintptr_t)at, part};
                at += (uint64_t)run->stride;
                bytes -= part;
            }
        }
    return shmpi_places_copy(&p);
}

#endif
