/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays that do not speak the buffer protocol: DLPack's structures, and whether memory that is
 * claimed to be a device's is memory of this process at all.
 *
 * The layout is DLPack's, versions 0 and 1. A capsule stays the producer's: it is read, kept as
 * long as its memory is used, and not consumed, so the same array can be sent again.
 */
#ifndef SHMPI_ARRAY_INTERFACES_H
#define SHMPI_ARRAY_INTERFACES_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DL_CPU = 1, DL_CUDA_HOST = 3, DL_ROCM_HOST = 11 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct {
    void *data;
    struct {
        int32_t type;
        int32_t id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code;
        uint8_t bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct {
    struct {
        uint32_t major;
        uint32_t minor;
    } version;
    void *context;
    void (*deleter)(void *);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;

#define DL_READ_ONLY 1ULL

/* Return 1 if each dimension with more than one item follows the next at once, in the order of C or
 * of Fortran. */
static inline int foreign_in_a_row(int32_t ndim, const int64_t *shape, const int64_t *strides,
                                   int fortran)
{
    int64_t expected = 1;
    for (int32_t step = 0; step < ndim; step++) {
        int32_t dim = fortran ? step : ndim - 1 - step;
        if (shape[dim] != 1 && strides[dim] != expected)
            return 0;
        expected *= shape[dim];
    }
    return 1;
}

/* Return 1 if the first and the last byte can be read, or the kernel does not answer; else 0. */
static inline int foreign_readable(const char *data, size_t nbytes)
{
    char byte;
    struct iovec here = {&byte, 1};
    if (!nbytes)
        return 1;
    for (int end = 0; end < 2; end++) {
        struct iovec there = {(void *)(data + (end ? nbytes - 1 : 0)), 1};
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) < 0 && errno == EFAULT)
            return 0;
    }
    return 1;
}

#endif
