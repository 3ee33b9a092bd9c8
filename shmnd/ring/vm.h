/* SPDX-License-Identifier: Apache-2.0
 *
 * The only file of the data plane with system calls: another process's private
 * memory, and what wakes a process.
 */
#ifndef SHMND_VM_H
#define SHMND_VM_H

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "clock.h"
#include "spans.h"

/* One call moves at most this much, so that a signal is not held up for long. */
#define SHMND_VM_PIECE (64ull << 20)

/* Another process. The kernel copies by its number, and the number of one that is dead is given
 * to a stranger, though not before all others were given away since: that takes far longer than a
 * tick of the coarse clock. So whoever was alive in this tick is still who we mean, unless we
 * are stopped between the look and the copy: the kernel has no copy by pidfd. */
struct shmnd_process {
    pid_t pid;
    int pidfd;             /* readable once it is dead; -1: it cannot die before we do */
    shmnd_word64 alive_ns; /* the last tick in which it was seen alive */
};

/* This one; for a fork of it, the parent that waits for it. */
static inline struct shmnd_process shmnd_this_process(void)
{
    return (struct shmnd_process){.pid = getpid(), .pidfd = -1};
}

static inline bool shmnd_process_lives(struct shmnd_process *process)
{
    uint64_t tick = shmnd_coarse_ns();
    /* relaxed: several threads may look, and each may believe what another saw */
    if (shmnd_relaxed64(&process->alive_ns) == tick)
        return true;
    struct pollfd end = {.fd = process->pidfd, .events = POLLIN};
    int ends;
    while ((ends = poll(&end, 1, 0)) < 0 && errno == EINTR)
        ;
    if (ends != 0)
        return false;
    shmnd_put64(&process->alive_ns, tick);
    return true;
}

/* Copies between our memory and the other process's, one of the two remote.
 * 0, or an errno value: ESRCH, EFAULT, EPERM. */
static inline int shmnd_vm_copy(struct shmnd_process *process, const struct shmnd_spans *to,
                                const struct shmnd_spans *from)
{
    uint64_t done = 0, total = to->total < from->total ? to->total : from->total;
    while (done < total) {
        if (!shmnd_process_lives(process))
            return ESRCH;
        struct shmnd_spans a, b;
        uint64_t n = total - done < SHMND_VM_PIECE ? total - done : SHMND_VM_PIECE;
        struct iovec here[SHMND_MAX_SGE], there[SHMND_MAX_SGE];
        const struct shmnd_spans *mine = to->remote ? &b : &a, *theirs = to->remote ? &a : &b;
        shmnd_spans_cut(to, done, n, &a);
        shmnd_spans_cut(from, done, n, &b);
        for (uint32_t i = 0; i < mine->count; i++)
            here[i] = (struct iovec){(void *)(uintptr_t)mine->v[i].at, mine->v[i].length};
        for (uint32_t i = 0; i < theirs->count; i++)
            there[i] = (struct iovec){(void *)(uintptr_t)theirs->v[i].at, theirs->v[i].length};
        ssize_t got =
            to->remote ? process_vm_writev(process->pid, here, mine->count, there, theirs->count, 0)
                       : process_vm_readv(process->pid, here, mine->count, there, theirs->count, 0);
        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            return got < 0 ? errno : EFAULT;
        }
        done += (uint64_t)got;
    }
    return 0;
}

/* Rings another process, by the end of a channel that only this one holds. One that is
 * full leads to a consumer that was rung already; one whose other end is closed, to
 * nobody who listens. Never waits, whatever is done at the other end. */
static inline void shmnd_ring_doorbell(int fd)
{
    const char ring = 0;
    if (fd >= 0)
        (void)send(fd, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Wakes another thread of this process, by a counter that does not block and that no
 * other process holds. */
static inline void shmnd_ring_self(int fd)
{
    const uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one); /* full: it was rung already */
    (void)ignored;
}

#endif
