/* SPDX-License-Identifier: Apache-2.0
 *
 * A copy that is prepared under the lock of its queue pair and run without it. One thread runs it,
 * and no other function changes what the run needs meanwhile (objects.h).
 */
#ifndef SHMND_ENGINE_JOB_H
#define SHMND_ENGINE_JOB_H

#include "wire/scattered_copy.h"
#include "wire/tokens.h"

enum shmnd_job_kind {
    SHMND_JOB_NONE = 0,
    SHMND_JOB_RDMA,
    SHMND_JOB_PLACE,
    SHMND_JOB_CHUNKS,
    SHMND_JOB_PULL, /* a listed message, copied by its reader */
};

struct shmnd_job {
    enum shmnd_job_kind kind;
    struct shmnd_spans to, from;
    const struct shmnd_grant *grant; /* RDMA */
    uint32_t token;
    uint64_t revision; /* PLACE and the sender's CHUNKS: `revision` of the receive it writes to */
    uint64_t index;    /* PLACE: the number of the receive */
    bool committed;    /* PLACE: once it is published it will not be recalled */
    bool writes;       /* RDMA: a Write */
    uint64_t request;  /* of the sender: position of the request */
    uint32_t unmapped; /* the peer's `unmapped` when the addresses were resolved */
    uint64_t moved;    /* RDMA, PLACE, PULL: bytes copied so far */
    uint64_t piece;    /* bytes that the last run copied */
    struct shmnd_chunks chunks;
    struct shmnd_share *share; /* of the chunks */
    bool takes_over;           /* CHUNKS: this side also copies the half of the other side, */
    bool left_alone;           /* which stayed away when it was last waited for */
    uint32_t result;           /* a status; SHMND_PENDING: try again later */
};

#endif
