/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of a queue pair's counters, one function for each event that is counted.
 *
 * Called under the lock of the queue pair, just after its private number has changed;
 * counters.h explains why plain stores are sufficient.
 */
#ifndef SHMND_ENGINE_COUNT_H
#define SHMND_ENGINE_COUNT_H

#include "engine/objects.h"

static inline void shmnd_qp_set_state(struct shmnd_qp *qp, enum shmnd_qp_state state)
{
    qp->state = state;
    shmnd_put64(&qp->counters->state, state);
}

/* Count a message that was sent. */
static inline void shmnd_count_sent(struct shmnd_qp *qp, uint64_t bytes)
{
    shmnd_put64(&qp->counters->sent, qp->messages);
    shmnd_counters_add(&qp->counters->sent_bytes, bytes);
}

static inline void shmnd_count_recalled(struct shmnd_qp *qp, uint64_t bytes)
{
    shmnd_put64(&qp->counters->recalled, qp->recalled);
    shmnd_counters_add(&qp->counters->sent_bytes, 0 - bytes);
}

/* Publish the number of receives posted to the queue pair's own queue. Those of a shared queue are
 * not counted. */
static inline void shmnd_count_posted(struct shmnd_qp *qp)
{
    shmnd_put64(&qp->counters->posted, qp->own.posted - qp->posted_base);
}

/* Count the bytes of a message that was received completely. */
static inline void shmnd_count_received(struct shmnd_qp *qp, uint64_t bytes)
{
    shmnd_counters_add(&qp->counters->received_bytes, bytes);
}

/* Publish the length of the initiator queue. */
static inline void shmnd_count_requests(struct shmnd_qp *qp)
{
    shmnd_put64(&qp->counters->outstanding, qp->wq.end - qp->wq.oldest);
}

/* Publish since when the oldest request waits for a receive; 0: it does not wait. */
static inline void shmnd_count_waiting(struct shmnd_qp *qp, struct shmnd_wqe *oldest,
                                       uint64_t since_ns)
{
    if (oldest->since_ns == since_ns)
        return;
    oldest->since_ns = since_ns;
    shmnd_put64(&qp->counters->waiting_ns, since_ns);
}

/* Count a Read or Write that copied its bytes. */
static inline void shmnd_count_rdma(struct shmnd_qp *qp, uint8_t type, uint64_t bytes)
{
    bool reading = type == SHMND_READ;
    shmnd_counters_add(reading ? &qp->counters->reads : &qp->counters->writes, 1);
    shmnd_counters_add(reading ? &qp->counters->read_bytes : &qp->counters->written_bytes, bytes);
}

/* Count a request that ended with another status than ND_SUCCESS. */
static inline void shmnd_count_failure(struct shmnd_qp *qp, uint32_t status)
{
    shmnd_counters_add(&qp->counters->failures, 1);
    shmnd_put64(&qp->counters->status, status);
}

/* Count a receive that ended with another status than ND_SUCCESS. */
static inline void shmnd_count_unfilled(struct shmnd_qp *qp, uint32_t status)
{
    shmnd_counters_add(&qp->counters->unfilled, 1);
    shmnd_count_failure(qp, status);
}

#endif
