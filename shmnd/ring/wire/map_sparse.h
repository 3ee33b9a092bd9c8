/* SPDX-License-Identifier: Apache-2.0
 *
 * Mapping a file whose pages are committed later.
 *
 * Where the program locks all memory to come (mlockall), a mapping with rights is filled at once,
 * its holes too, and such a file can be as large as the machine.
 */
#ifndef SHMND_WIRE_MAP_SPARSE_H
#define SHMND_WIRE_MAP_SPARSE_H

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/* Map a file without filling its pages, even if the program locks all memory to come. Return
 * MAP_FAILED and set errno, as mmap does. */
static inline void *shmnd_map_sparse(size_t nbytes, int protection, int fd)
{
    void *at = mmap(NULL, nbytes, PROT_NONE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return at;
    munlock(at, nbytes);
    if (mprotect(at, nbytes, protection) == 0)
        return at;
    int failure = errno;
    munmap(at, nbytes);
    errno = failure;
    return MAP_FAILED;
}

#endif
