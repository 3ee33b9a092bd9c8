/* SPDX-License-Identifier: Apache-2.0
 *
 * The only file of the data plane with system calls: another process's private
 * memory, and what wakes a process.
 */
#ifndef SHMND_WIRE_PROCESS_MEMORY_H
#define SHMND_WIRE_PROCESS_MEMORY_H

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/scattered_copy.h"

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

/* Stretches of a copy whose one end lies in the other process: for one system call. */
struct shmnd_vm_list {
    struct iovec here[2 * SHMND_MAX_SGE], there[2 * SHMND_MAX_SGE];
    uint32_t count;
};

/* What is left of the list when its first `bytes` were copied; `first` is its first entry. */
static inline uint32_t shmnd_vm_advance(struct shmnd_vm_list *list, uint32_t first, uint64_t bytes)
{
    while (first < list->count && bytes >= list->here[first].iov_len)
        bytes -= list->here[first++].iov_len;
    if (first < list->count) {
        list->here[first].iov_base = (char *)list->here[first].iov_base + bytes;
        list->there[first].iov_base = (char *)list->there[first].iov_base + bytes;
        list->here[first].iov_len -= bytes;
        list->there[first].iov_len -= bytes;
    }
    return first;
}

static inline int shmnd_vm_run(struct shmnd_process *process, struct shmnd_vm_list *list,
                               bool writing)
{
    uint32_t first = 0;
    while (first < list->count) {
        if (!shmnd_process_lives(process))
            return ESRCH;
        const struct iovec *here = &list->here[first], *there = &list->there[first];
        uint32_t n = list->count - first;
        ssize_t got = writing ? process_vm_writev(process->pid, here, n, there, n, 0)
                              : process_vm_readv(process->pid, here, n, there, n, 0);
        if (got <= 0) {
            if (got < 0 && errno == EINTR)
                continue;
            return got < 0 ? errno : EFAULT;
        }
        first = shmnd_vm_advance(list, first, (uint64_t)got);
    }
    return 0;
}

/* Copies within this process by the kernel, which returns an error where a load or store would
 * be a signal: memory that its owner has cut short. 0, or an errno value. */
static inline int shmnd_vm_copy_here(void *to, const void *from, uint64_t length)
{
    for (uint64_t done = 0; done < length;) {
        struct iovec sink = {(char *)to + done, length - done};
        struct iovec source = {(char *)(uintptr_t)from + done, length - done};
        ssize_t got = process_vm_readv(getpid(), &sink, 1, &source, 1, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : EFAULT;
        done += (uint64_t)got;
    }
    return 0;
}

/* Copies between our memory and the other process's: stretches of one of the two lists are
 * remote, and what is mapped here stands between them, some of it fragile. 0, or an errno
 * value: ESRCH, EFAULT, EPERM. */
static inline int shmnd_vm_copy(struct shmnd_process *process, const struct shmnd_spans *to,
                                const struct shmnd_spans *from)
{
    bool writing = to->remote & SHMND_REMOTE_BITS;
    struct shmnd_walk w = shmnd_walk_of(to, from);
    struct shmnd_stretch s;
    /* Two lists meet in fewer stretches than they have together. */
    struct shmnd_vm_list list;
    list.count = 0;
    while (shmnd_walk_next(&w, &s)) {
        if (!s.remote && s.fragile) {
            int error = shmnd_vm_copy_here(s.to, s.from, s.length);
            if (error)
                return error;
            continue;
        }
        if (!s.remote) {
            memmove(s.to, s.from, s.length);
            continue;
        }
        void *here = writing ? (void *)(uintptr_t)s.from : s.to;
        void *there = writing ? s.to : (void *)(uintptr_t)s.from;
        list.here[list.count] = (struct iovec){here, s.length};
        list.there[list.count++] = (struct iovec){there, s.length};
    }
    return shmnd_vm_run(process, &list, writing);
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
