/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between the memory of this rank and that of another one, by a call of the kernel.
 *
 * The number of a process that has ended may be given to another process, whose memory must not be
 * touched. So the launcher clears the number of a rank while its process is still a zombie
 * (`forget_process` in job_memory.pyx), and a copy from or to that rank ends with ESRCH.
 */
#ifndef SHMPI_BY_KERNEL_H
#define SHMPI_BY_KERNEL_H

#include <errno.h>
#include <sys/uio.h>

#include "transport/engine.h"

struct shmpi_by_kernel {
    const struct shmpi_engine *engine;
    int rank;
};

/* Copy one range between this rank and another one, to that one if it `writes`. Return 0, or an
 * errno value. */
static inline int shmpi_copy_range(void *ranks, uint8_t *here, uint8_t *there, uint64_t n,
                                   bool writes)
{
    const struct shmpi_by_kernel *r = ranks;
    pid_t pid = (pid_t)shmnd_relaxed32(&r->engine->peers[r->rank].rank->pid);
    for (uint64_t done = 0; done < n;) {
        struct iovec ours = {here + done, n - done};
        struct iovec theirs = {there + done, n - done};
        ssize_t copied = writes ? process_vm_writev(pid, &ours, 1, &theirs, 1, 0)
                                : process_vm_readv(pid, &ours, 1, &theirs, 1, 0);
        if (copied < 0 && errno == EINTR)
            continue;
        if (copied <= 0)
            return copied < 0 ? errno : EFAULT;
        done += (uint64_t)copied;
    }
    return 0;
}

/* Copy `n` bytes that are at `there` in the memory of a rank, from it or to it; by way of a stage
 * where the kernel would copy byte by byte (wire/copy_bytes.h). Return 0, or an errno value. */
static inline int shmpi_copy_by_kernel(const struct shmpi_engine *e, int rank, char *here,
                                       uint64_t there, uint64_t n, bool writes)
{
    struct shmpi_by_kernel ranks = {e, rank};
    uint8_t *near = (uint8_t *)here, *far = (uint8_t *)(uintptr_t)there;
    if (shmnd_copy_is_close(writes ? far : near, writes ? near : far, n))
        return shmnd_copy_by_stage(shmpi_copy_range, &ranks, near, far, n, writes);
    return shmpi_copy_range(&ranks, near, far, n, writes);
}

#endif
