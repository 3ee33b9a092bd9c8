/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends that wait for the other side: completing the finished ones in order, and
 * recalling those that have matched no receive.
 *
 * A Send completes at once when a receive is known to be posted for it and its data
 * is in the ring or placed: SYNC closing ensures that the other side takes it even
 * if it closes at this moment. Otherwise it waits in the queue for `taken`, for a
 * receive, or for its time-out.
 */
#ifndef SHMND_SEND_RETIRE_H
#define SHMND_SEND_RETIRE_H

#include "send/backlog.h"

/* ---- completing ---------------------------------------------------------------------- */

/* Write the completion of a request. */
static inline void shmnd_tx_push_completion(struct shmnd_qp *qp, void *context, uint8_t type,
                                            uint32_t status, uint32_t bytes, enum shmnd_cause cause)
{
    struct shmnd_cqe e = {context, qp->context, status,
                          bytes,   type,        (uint32_t)cause << SHMND_CQE_CAUSE_SHIFT};
    shmnd_cq_push(qp->initiator_cq, &e);
}

/* Complete a request. A silent success has no completion: its context stays in the queue. */
static inline void shmnd_tx_complete(struct shmnd_qp *qp, struct shmnd_wqe *w,
                                     enum shmnd_cause cause)
{
    uint32_t bytes = 0;
    if (w->reported)
        return;
    if (w->status == SHMND_SUCCESS) {
        if (w->flags & SHMND_OP_SILENT_SUCCESS)
            return;
        bytes = (uint32_t)w->length;
    } else {
        shmnd_count_failure(qp, w->status);
    }
    shmnd_tx_push_completion(qp, w->context, w->type, w->status, bytes, cause);
    w->context = NULL;
}

/* Remove the oldest request, which has completed. The owner releases the context of a silent
 * success soon, outside of the engine: the finaliser of an object may run any code. */
static inline void shmnd_tx_pop_request(struct shmnd_qp *qp)
{
    struct shmnd_wqe *w = &qp->wq.entries[qp->wq.oldest & qp->wq.mask];
    if (!w->context && qp->wq.released == qp->wq.oldest) {
        qp->wq.released++;
    } else if (!qp->has_unreleased) {
        qp->has_unreleased = true;
        qp->next_unreleased = qp->registry->unreleased;
        qp->registry->unreleased = qp;
    }
    qp->wq.oldest++;
}

/* Remove and return a context that the caller must release; NULL: there is none. Releasing it may
 * call this function again. */
static inline void *shmnd_pop_unreleased_context(struct shmnd_registry *registry)
{
    struct shmnd_qp *qp;
    while ((qp = registry->unreleased) != NULL) {
        while (qp->wq.released != qp->wq.oldest) {
            struct shmnd_wqe *w = &qp->wq.entries[qp->wq.released++ & qp->wq.mask];
            void *context = w->context;
            w->context = NULL;
            if (context)
                return context;
        }
        registry->unreleased = qp->next_unreleased;
        qp->has_unreleased = false;
    }
    return NULL;
}

/* Return whether this request completes silently, if it is finished. */
static inline bool shmnd_tx_is_silent(const struct shmnd_wqe *w)
{
    return (w->flags & SHMND_OP_SILENT_SUCCESS) &&
           (w->state == SHMND_WQE_SENT || w->status == SHMND_SUCCESS);
}

/* Return whether the Send at `w` is finished. */
static inline bool shmnd_tx_send_finished(struct shmnd_qp *qp, struct shmnd_wqe *w, uint64_t taken)
{
    if (w->message < taken || w->committed)
        return true;
    /* A Send that invalidates a window finishes only when the window is gone: requests behind it
     * must find it gone, and a token that names no window must fail the Send. A Send to a side that
     * was closing, and one that only its reader copies, also finish only by `taken`. */
    if ((w->flags & SHMND_OP_INVALIDATE) || w->pulled || shmnd_relaxed32(&qp->link.theirs->closing))
        return false;
    if (!w->large) {
        w->has_receive =
            w->has_receive || shmnd_tx_has_receive(qp, w->message, w->recalled, w->length);
        return w->has_receive;
    }
    struct shmnd_chunks c = shmnd_chunks_of(w->length, w->message);
    return w->moved == 0 && shmnd_chunks_finished(&qp->link.mine->shares[w->share], &c);
}

/* Complete a Send that another thread is placing, if the peer has taken it. Its message is
 * published before that thread has the lock again, so it may have been taken, and answered,
 * already. It stays in the queue until the thread returns. Even if the peer's count is false, it
 * completes only once. */
static inline void shmnd_tx_complete_placed(struct shmnd_qp *qp)
{
    struct shmnd_wqe *w = &qp->wq.entries[qp->wq.next & qp->wq.mask];
    /* SYNC taken: acquire, pairs with release in shmnd_rx_publish_taken() */
    if (w->reported || shmnd_acquire64(&qp->link.theirs->taken) <= qp->messages)
        return;
    shmnd_tx_complete(qp, w, SHMND_CAUSE_NONE);
    w->reported = true;
}

/* Return why a request of this status ends the connection: a copy that found the peer dead, and a
 * Send without a Receive, end with IO_TIMEOUT. */
static inline enum shmnd_cause shmnd_tx_cause(const struct shmnd_qp *qp, uint32_t status)
{
    if (status != SHMND_IO_TIMEOUT)
        return SHMND_CAUSE_HERE;
    return qp->tx.timed_out ? SHMND_CAUSE_NO_RECEIVE : SHMND_CAUSE_DEATH;
}

/* Return why a request that is done ended: without success it was flushed, unless it failed. */
static inline enum shmnd_cause shmnd_tx_done_cause(const struct shmnd_wqe *w)
{
    return w->status == SHMND_SUCCESS ? SHMND_CAUSE_NONE : SHMND_CAUSE_FLUSH;
}

/* Complete finished requests, oldest first, until the queue holds `most` completions. Silent
 * successes need no room in it. */
static inline void shmnd_tx_retire_up_to(struct shmnd_qp *qp, uint64_t most)
{
    if (qp->wq.oldest == qp->wq.end || !qp->link.theirs)
        return;
    /* SYNC taken: acquire, pairs with release in shmnd_rx_publish_taken() */
    uint64_t taken = shmnd_acquire64(&qp->link.theirs->taken);
    if (qp->backlog.count)
        shmnd_backlog_check(qp);
    if (taken > qp->messages)
        taken = qp->messages; /* a hostile peer may report more than was sent */
    while (qp->wq.oldest != qp->wq.next) {
        struct shmnd_wqe *w = &qp->wq.entries[qp->wq.oldest & qp->wq.mask];
        if (shmnd_cq_count(qp->initiator_cq) >= most && !shmnd_tx_is_silent(w))
            break;
        if (w->state == SHMND_WQE_SENT) {
            if (qp->deferred && w->message >= qp->deferred_message)
                break;
            if (!shmnd_tx_send_finished(qp, w, taken))
                break;
            w->state = SHMND_WQE_DONE;
            w->status = SHMND_SUCCESS;
        }
        if (w->state != SHMND_WQE_DONE)
            break;
        if (w->status != SHMND_SUCCESS && w->status != SHMND_CANCELED) {
            shmnd_qp_begin_teardown(qp, SHMND_LINK_FAULT, w->status, shmnd_tx_cause(qp, w->status));
            return;
        }
        shmnd_tx_complete(qp, w, shmnd_tx_done_cause(w));
        shmnd_count_waiting(qp, w, 0);
        shmnd_tx_pop_request(qp);
        shmnd_count_requests(qp);
    }
    if (qp->tx.started && qp->tx.job.kind == SHMND_JOB_PLACE && qp->wq.oldest == qp->wq.next &&
        shmnd_cq_count(qp->initiator_cq) < most)
        shmnd_tx_complete_placed(qp);
    if (qp->wq.oldest == qp->wq.end)
        shmnd_tx_set_wants_credit(qp, false);
}

static inline void shmnd_tx_retire(struct shmnd_qp *qp)
{
    shmnd_tx_retire_up_to(qp, qp->initiator_cq->limit);
}

static inline void shmnd_tx_fail(struct shmnd_wqe *w, uint32_t status)
{
    w->state = SHMND_WQE_DONE;
    w->status = status;
}

/* End a request with the status of its copy. CANCELED: the other side closes. Then the connection
 * ends here too, and the request stays unfinished: the teardown cancels it and all behind it, so
 * that none of them succeeds. */
static inline void shmnd_tx_end_copy(struct shmnd_qp *qp, struct shmnd_wqe *w, uint32_t status)
{
    if (status == SHMND_CANCELED)
        shmnd_qp_begin_teardown(qp, SHMND_LINK_CLOSED, SHMND_CANCELED, SHMND_CAUSE_PEER);
    else
        shmnd_tx_fail(w, status);
}

/* Return whether the next request to issue may be committed when its receive is known. Not behind a
 * Send that invalidates, which can be recalled until it is taken: requests after that one complete
 * later anyway, and are recalled with it. */
static inline bool shmnd_tx_may_commit(const struct shmnd_qp *qp, const struct shmnd_wqe *w)
{
    return !(w->flags & SHMND_OP_INVALIDATE) && qp->wq.uncommitted <= qp->wq.oldest;
}

/* Assign the number and ring position of the next message to a request. */
static inline void shmnd_tx_assign_message(const struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    w->message = qp->messages;
    w->recalled = qp->recalled;
    w->slot_pos = qp->out.write_pos;
}

/* Recall a Send that waits for a receive, as if it was never sent. Return false if it is matched,
 * or may be. Later Sends must be recalled before earlier ones, so that those that stay match the
 * same receives. */
static inline bool shmnd_tx_recall(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    if (w->state != SHMND_WQE_SENT || w->has_receive || w->moved || w->pulled)
        return false;
    if (!shmnd_slots_recall(&qp->out, w->slot_pos))
        return false;
    qp->recalled++;
    shmnd_count_recalled(qp, w->length);
    SHMND_KILL_POINT("send-recalled");
    return true;
}

#endif
