/* SPDX-License-Identifier: Apache-2.0
 *
 * The only file of the data plane with system calls: another process's private
 * memory, and the eventfd that wakes it.
 */
#ifndef SHMND_VM_H
#define SHMND_VM_H

#include <errno.h>
#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "spans.h"

/* One call moves at most this much, so that a signal is not held up for long. */
#define SHMND_VM_PIECE (64ull << 20)

/* Copies between our memory and the process `pid`, one of the two remote.
 * 0, or an errno value: ESRCH, EFAULT, EPERM. */
static inline int shmnd_vm_copy(pid_t pid, const struct shmnd_spans *to,
                                const struct shmnd_spans *from)
{
    uint64_t done = 0, total = to->total < from->total ? to->total : from->total;
    while (done < total) {
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
        ssize_t got = to->remote
                          ? process_vm_writev(pid, here, mine->count, there, theirs->count, 0)
                          : process_vm_readv(pid, here, mine->count, there, theirs->count, 0);
        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            return got < 0 ? errno : EFAULT;
        }
        done += (uint64_t)got;
    }
    return 0;
}

/* A counter that is full is a consumer that was rung already; its owner may have
 * made it one that blocks its writers, so look first. */
static inline void shmnd_ring_doorbell(int fd)
{
    uint64_t one = 1;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (fd < 0 || poll(&room, 1, 0) != 1 || !(room.revents & POLLOUT))
        return;
    while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

#endif
