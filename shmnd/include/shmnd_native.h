/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs of the interface for compiled modules, shmnd.native. Their layout stays as it is.
 */
#ifndef SHMND_NATIVE_H
#define SHMND_NATIVE_H

#include <stdint.h>

/* One element of a scatter/gather list: memory of this process, with the region's local token. */
struct shmnd_native_sge {
    uint64_t address;
    uint32_t length;
    uint32_t token;
};

/* What a request ended with. Both contexts are objects of Python, and references of the holder. */
struct shmnd_native_result {
    void *request_context;
    void *queue_pair_context;
    uint32_t status;            /* as shmnd.Status */
    uint32_t bytes_transferred; /* by a Receive that succeeded */
    uint32_t request_type;      /* as shmnd.RequestType */
    uint32_t reserved;
};

#endif
