/* SPDX-License-Identifier: Apache-2.0
 *
 * Taking a message into its queue's ring, behind what it may have been caused by.
 *
 * Causality: the completion of a Send comes out before anything that its delivery
 * caused on the same completion queue. Whoever answers has shown before that it took
 * the Send (SYNC taken), so when an answer is here, a look at the requests that wait
 * finds the Send finished: it is looked for after the answer was taken from its link
 * and before the answer is told. A Send whose copy another thread has still to return
 * from is no exception (shmnd_tx_complete_placed).
 *
 * Those completions must find room, also in a queue that is full up to `limit`: they
 * go on to `bound`. A message is taken only below `limit`, and at most all that was
 * outstanding then completes before it, so they never reach `bound`; then nothing is
 * taken until the owner has polled. A queue pair that goes down tells its end whatever
 * the queue holds; only where one after another goes down and nobody takes anything
 * could `bound` be reached, and what is finished then is told later.
 */
#ifndef SHMND_RECEIVE_CONSUME_H
#define SHMND_RECEIVE_CONSUME_H

#include "receive/receive.h"

/* Completes what is finished of all that waits on this queue, before something is told
 * that it may have caused. On another queue there is no order to keep. */
static inline void shmnd_cq_complete_finished(struct shmnd_cq *cq)
{
    for (uint32_t i = cq->active_count; i-- > 0;) {
        struct shmnd_qp *qp = cq->active[i];
        if (qp->initiator_cq == cq)
            shmnd_tx_retire_up_to(qp, cq->bound);
        else
            shmnd_tx_retire(qp);
    }
    /* Not by their marks, which other peers can wipe away. */
    for (uint32_t i = 0; cq->parked_count && i < cq->link_count; i++) {
        struct shmnd_qp *qp = cq->links[i];
        if (!qp->parked)
            continue;
        shmnd_tx_retire_up_to(qp, cq->bound);
        if (qp->wq_head == qp->wq_tail || qp->going_down)
            shmnd_cq_activate(cq, qp);
    }
}

/* False: there is none, or it is not whole yet. */
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
