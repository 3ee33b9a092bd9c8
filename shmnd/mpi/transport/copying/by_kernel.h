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

/* Copies `n` bytes that are at `there` in the memory of a rank, from it or to it. 0, or an errno
 * value. */
static inline int shmpi_copy_by_kernel(const struct shmpi_engine *e, int rank, char *here,
                                       uint64_t there, uint64_t n, bool writes);

/* The same by way of a stage, where the kernel would copy byte by byte (wire/copy_bytes.h). */
static __attribute__((noinline, unused)) int shmpi_copy_close(const struct shmpi_engine *e,
                                                              int rank, char *here, char *there,
                                                              uint64_t n, bool writes)
{
    struct shmnd_stage stage;
    int why = 0;
    for (uint64_t done = 0, part; done < n && !why; done += part) {
        part = n - done < SHMND_STAGE_BYTES ? n - done : SHMND_STAGE_BYTES;
        char *staged = (char *)shmnd_stage_at(&stage, there + done);
        if (writes)
            shmnd_copy_bytes(staged, here + done, part);
        why = shmpi_copy_by_kernel(e, rank, staged, (uintptr_t)(there + done), part, writes);
        if (!writes && !why)
            shmnd_copy_bytes(here + done, staged, part);
    }
    return why;
}

static inline int shmpi_copy_by_kernel(const struct shmpi_engine *e, int rank, char *here,
                                       uint64_t there, uint64_t n, bool writes)
{
    char *far = (char *)(uintptr_t)there;
    if (shmnd_copy_is_close(writes ? far : here, writes ? here : far, n))
        return shmpi_copy_close(e, rank, here, far, n, writes);
    pid_t pid = (pid_t)shmnd_relaxed32(&e->peers[rank].rank->pid);
    for (uint64_t done = 0; done < n;) {
        struct iovec ours = {here + done, n - done};
        struct iovec theirs = {far + done, n - done};
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

#endif
