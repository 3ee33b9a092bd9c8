/* SPDX-License-Identifier: Apache-2.0
 *
 * Unmapping a segment that its owner released, without blocking the caller.
 *
 * The last process that unmaps a segment frees its pages, which takes as long as copying
 * them. The caller is a call that never waits (a post, get_results), so a separate thread
 * unmaps a long segment. That thread only makes system calls: it takes no lock, runs no
 * Python, and handles no signal. A process that is forked meanwhile has no such thread, so
 * the child keeps the mapping until it ends.
 */
#ifndef SHMND_WIRE_UNMAP_H
#define SHMND_WIRE_UNMAP_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Freeing this much takes about a millisecond. */
#define SHMND_UNMAP_AT_ONCE (5u << 20)
/* The thread frees this much at a time: other threads that map, unmap or copy by system calls wait
 * for the lock of the address space meanwhile. A multiple of a huge page. */
#define SHMND_UNMAP_PIECE (2u << 20)

struct shmnd_unmap {
    void *base;
    size_t bytes;
};

static inline void *shmnd_unmap_thread(void *arg)
{
    struct shmnd_unmap what = *(struct shmnd_unmap *)arg;
    free(arg);
    for (size_t done = 0, n; done < what.bytes; done += n) {
        n = what.bytes - done < SHMND_UNMAP_PIECE ? what.bytes - done : SHMND_UNMAP_PIECE;
        munmap((char *)what.base + done, n);
    }
    return NULL;
}

/* Start the thread. Return false if it could not be started. */
static inline bool shmnd_unmap_start(struct shmnd_unmap *what)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attr) != 0)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0 &&
                   pthread_create(&thread, &attr, shmnd_unmap_thread, what) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return started;
}

/* Unmap a segment: a short one now, a long one in a thread, or now if no thread can be started. */
static inline void shmnd_unmap_soon(void *base, size_t bytes)
{
    struct shmnd_unmap *what = bytes > SHMND_UNMAP_AT_ONCE ? malloc(sizeof *what) : NULL;
    if (what) {
        *what = (struct shmnd_unmap){base, bytes};
        if (shmnd_unmap_start(what))
            return;
        free(what);
    }
    munmap(base, bytes);
}

#endif
