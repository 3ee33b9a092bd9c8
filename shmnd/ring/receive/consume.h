/* SPDX-License-Identifier: Apache-2.0
 *
 * Consuming a message into its queue's ring, after the completions that may have caused it.
 *
 * Causality: the completion of a Send comes before all completions that its delivery caused
 * on the same completion queue. A peer that answers a Send has published before that it took
 * the Send (SYNC taken). So after an answer was taken from its link, a check of the pending
 * requests finds the Send finished, and its completion is written before that of the answer.
 * This includes a Send whose copy another thread is still running (shmnd_tx_complete_placed).
 *
 * Those completions need room also in a queue that is full up to `limit`: they may fill it up
 * to `bound`. A message is taken only below `limit`, and at most the requests that are
 * outstanding then complete before it, so they never reach `bound`; after that no message is
 * taken until the owner has polled. A queue pair in teardown completes its requests whatever
 * the queue holds. Only if several of them go down and the owner does not poll, `bound` may
 * be reached; requests that finish then complete later.
 */
#ifndef SHMND_RECEIVE_CONSUME_H
#define SHMND_RECEIVE_CONSUME_H

#include "receive/receive.h"

/* Complete the finished requests of all queue pairs of this queue, before a completion is written
 * that they may have caused. Requests that complete to another queue need no order. */
static inline void shmnd_cq_complete_finished(struct shmnd_cq *cq)
{
    for (uint32_t i = cq->active_count; i-- > 0;) {
        struct shmnd_qp *qp = cq->active[i];
        if (qp->initiator_cq == cq)
            shmnd_tx_retire_up_to(qp, cq->bound);
        else
            shmnd_tx_retire(qp);
    }
    /* Without relying on marks, which other peers can clear. */
    for (uint32_t i = 0; cq->parked_count && i < cq->link_count; i++) {
        struct shmnd_qp *qp = cq->links[i];
        if (!qp->parked)
            continue;
        shmnd_tx_retire_up_to(qp, cq->bound);
        if (qp->wq.oldest == qp->wq.end || qp->going_down)
            shmnd_cq_activate(cq, qp);
    }
}

/* Take one message into the ring. Return false if there is none, or it is not whole yet. */
static inline bool shmnd_qp_consume_one(struct shmnd_qp *qp)
{
    struct shmnd_cqe e;
    if (!shmnd_rx_poll(qp, &e, 1))
        return false;
    shmnd_cq_complete_finished(qp->receive_cq);
    shmnd_cq_push(qp->receive_cq, &e);
    return true;
}

#endif
