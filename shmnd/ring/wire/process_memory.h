/* SPDX-License-Identifier: Apache-2.0
 *
 * System calls on behalf of a message: copies of another process's private memory, committing
 * pages, and waking a process or a thread.
 */
#ifndef SHMND_WIRE_PROCESS_MEMORY_H
#define SHMND_WIRE_PROCESS_MEMORY_H

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "wire/clock.h"
#include "wire/scattered_copy.h"

/* Another process. The kernel copies by PID, since it has no copy by pidfd, and the PID of a dead
 * process can be reused. Reuse needs all other PIDs to be assigned first, which takes far longer
 * than a tick of the coarse clock. So a process that was alive in this tick still has its PID,
 * unless this thread is stopped between the check and the copy. */
struct shmnd_process {
    pid_t pid;
    int pidfd;             /* readable once the process is dead; -1: it cannot die before we do */
    shmnd_word64 alive_ns; /* the last tick in which it was alive */
};

/* Return this process; in a forked child, the parent that waits for it. */
static inline struct shmnd_process shmnd_this_process(void)
{
    return (struct shmnd_process){.pid = getpid(), .pidfd = -1};
}

static inline bool shmnd_process_is_alive(struct shmnd_process *process)
{
    uint64_t tick = shmnd_coarse_ns();
    /* relaxed: several threads may check, and each may use the result of another */
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

/* The ranges of a copy between this process and another one, for one system call. */
struct shmnd_vm_list {
    struct iovec here[2 * SHMND_MAX_SGE], there[2 * SHMND_MAX_SGE];
    uint32_t count;
};

/* Remove the first `bytes`, which were copied, from the list that begins at entry `first`, and
 * return the new first entry. */
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
        if (!shmnd_process_is_alive(process))
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

/* Copy one range. Return 0 or an errno value. */
static inline int shmnd_vm_copy_range(void *process, uint8_t *here, uint8_t *there, uint64_t length,
                                      bool writing)
{
    struct shmnd_vm_list list;
    list.count = 1;
    list.here[0] = (struct iovec){here, length};
    list.there[0] = (struct iovec){there, length};
    return shmnd_vm_run(process, &list, writing);
}

/* Copy within this process by a system call, which returns an error where a load or store would
 * raise SIGBUS because the memory was truncated. Return 0 or an errno value. */
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

/* Commit the pages of shared memory that may be sparse: a shortage is an error here instead of a
 * signal later. Return false if there is no memory. */
static inline bool shmnd_commit_pages(uint8_t *at, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
#endif
    /* The kernel is older than 5.14, or has no memory: a copy by it returns the error. */
    const uint8_t zero = 0;
    for (uint64_t page = 0; page < bytes; page += 4096)
        if (shmnd_vm_copy_here(at + page, &zero, 1) != 0)
            return false;
    return true;
}

/* Copy between this process and the other one. One of the two lists has remote ranges, possibly
 * mixed with ranges that are mapped here, some of which may be fragile. Return 0 or an errno value:
 * ESRCH, EFAULT, EPERM. Not inlined: the compiler would inline less of the path of a message for
 * it. */
static __attribute__((noinline, unused)) int shmnd_vm_copy(struct shmnd_process *process,
                                                           const struct shmnd_spans *to,
                                                           const struct shmnd_spans *from)
{
    bool writing = to->remote & SHMND_REMOTE_BITS;
    struct shmnd_walk w = shmnd_walk_of(to, from);
    struct shmnd_stretch s;
    /* Two lists of n and m ranges overlap in fewer than n + m stretches. */
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
            shmnd_copy_bytes(s.to, s.from, s.length);
            continue;
        }
        void *here = writing ? (void *)(uintptr_t)s.from : s.to;
        void *there = writing ? s.to : (void *)(uintptr_t)s.from;
        if (!s.fragile && shmnd_copy_is_close(s.to, s.from, s.length)) {
            /* In their order, as one call copies a list. */
            int error = shmnd_vm_run(process, &list, writing);
            list.count = 0;
            if (!error)
                error = shmnd_copy_by_stage(shmnd_vm_copy_range, process, here, there, s.length,
                                            writing);
            if (error)
                return error;
            continue;
        }
        list.here[list.count] = (struct iovec){here, s.length};
        list.there[list.count++] = (struct iovec){there, s.length};
    }
    return shmnd_vm_run(process, &list, writing);
}

/* Wake another process through a socket of which only this process holds this end. A full socket
 * means that the consumer was woken already; a closed one, that no consumer is left. Never waits,
 * whatever the process at the other end does. */
static inline void shmnd_ring_doorbell(int fd)
{
    const char ring = 0;
    if (fd >= 0)
        (void)send(fd, &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Wake another thread of this process through a non-blocking eventfd that no other process
 * holds. */
static inline void shmnd_ring_eventfd(int fd)
{
    const uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof one); /* full: the thread was woken already */
    (void)ignored;
}

#endif
