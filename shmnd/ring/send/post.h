/* SPDX-License-Identifier: Apache-2.0
 *
 * Posting: the immediate checks of the interface, in its order (flags, SGE count,
 * length, connection, depth), and the immediate execution of small requests.
 *
 * A call that fails has no effect. `*kept_p` says whether the context is kept: an
 * immediate silent success needs none.
 */
#ifndef SHMND_SEND_POST_H
#define SHMND_SEND_POST_H

#include "engine/polling.h"

static inline uint64_t shmnd_sges_length(const struct shmnd_sge *sges, uint32_t n)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += sges[i].length;
    return total;
}

/* Return ND_SUCCESS, or the status with which the call fails. */
static inline uint32_t shmnd_check_data(const struct shmnd_qp *qp, uint32_t n, uint32_t most,
                                        uint64_t total, uint32_t flags)
{
    bool inlined = flags & SHMND_OP_INLINE;
    if (!inlined && n > most)
        return SHMND_DATA_OVERRUN;
    if (total > (inlined ? qp->inline_size : qp->max_transfer))
        return SHMND_BUFFER_OVERFLOW;
    return SHMND_SUCCESS;
}

/* Return the number of entries of the initiator queue that are not free. */
static inline uint64_t shmnd_requests_taken(const struct shmnd_qp *qp)
{
    return qp->wq.end + qp->wq.held - qp->wq.released;
}

/* Return whether the initiator queue is full, also after a batch was published. */
static inline bool shmnd_requests_full(struct shmnd_qp *qp)
{
    if (shmnd_requests_taken(qp) < qp->wq.depth)
        return false;
    if (qp->deferred && qp->wq.end + qp->wq.held - qp->wq.oldest >= qp->wq.depth) {
        shmnd_batch_publish(qp);
        shmnd_tx_retire(qp);
    }
    return shmnd_requests_taken(qp) >= qp->wq.depth;
}

static inline uint32_t shmnd_check_connected(struct shmnd_qp *qp)
{
    if (qp->state == SHMND_QP_ATTACHED)
        shmnd_qp_check_peer(qp);
    if (qp->state != SHMND_QP_CONNECTED && qp->state != SHMND_QP_DOWN)
        return SHMND_CONNECTION_INVALID;
    if (shmnd_requests_full(qp) || !shmnd_cq_can_post(qp->initiator_cq))
        return SHMND_NO_MORE_ENTRIES;
    /* On an ended connection requests complete when they are posted, so only the completion queue
     * limits them. */
    if (qp->state == SHMND_QP_DOWN && !qp->going_down &&
        (qp->wq.depth == 0 || !shmnd_cq_has_room(qp->initiator_cq)))
        return SHMND_NO_MORE_ENTRIES;
    return SHMND_SUCCESS;
}

/* Hold an entry for a call that runs code of Python before it posts: other threads post meanwhile.
 * Return the status of the checks for a connection and room. shmnd_post_window() takes the entry,
 * shmnd_release_entry() returns it. */
static inline uint32_t shmnd_hold_entry(struct shmnd_qp *qp)
{
    uint32_t status = shmnd_check_connected(qp);
    if (status == SHMND_SUCCESS)
        qp->wq.held++;
    return status;
}

static inline void shmnd_release_entry(struct shmnd_qp *qp)
{
    qp->wq.held--;
}

/* Queue a request and return its entry. The caller advances the queue. */
static inline struct shmnd_wqe *shmnd_enqueue(struct shmnd_qp *qp, void *context, uint8_t type,
                                              const struct shmnd_sge *sges, uint32_t n,
                                              uint64_t total, uint32_t flags)
{
    struct shmnd_wqe *w = &qp->wq.entries[qp->wq.end & qp->wq.mask];
    *w = (struct shmnd_wqe){
        .context = context, .length = total, .type = type, .flags = (uint8_t)flags};
    if (flags & SHMND_OP_INLINE) {
        uint8_t *to = shmnd_wqe_inline(qp, qp->wq.end);
        for (uint32_t i = 0; i < n; i++) {
            memcpy(to, (const void *)(uintptr_t)sges[i].address, sges[i].length);
            to += sges[i].length;
        }
    } else {
        w->sges = (uint16_t)n;
        for (uint32_t i = 0; i < n; i++)
            shmnd_wqe_sges(qp, qp->wq.end)[i] = sges[i];
    }
    qp->wq.end++;
    if (qp->state == SHMND_QP_DOWN && !qp->going_down) {
        w->status = SHMND_CANCELED;
        shmnd_tx_complete(qp, w, qp->down_cause);
        shmnd_tx_pop_request(qp);
        qp->wq.next = qp->wq.end;
    } else {
        shmnd_qp_activate(qp);
    }
    shmnd_count_requests(qp);
    return w;
}

/* Return whether a Send can be written to the ring now, for a receive that is posted. */
static inline bool shmnd_send_can_be_immediate(struct shmnd_qp *qp, const struct shmnd_sge *sges,
                                               uint32_t n, uint32_t length, uint32_t flags)
{
    if (qp->state != SHMND_QP_CONNECTED || length >= SHMND_PLACE_MIN || qp->link.their_srq)
        return false;
    if (!(flags & SHMND_OP_INLINE))
        for (uint32_t i = 0; i < n; i++)
            if (!shmnd_sge_region(qp->registry, &sges[i], 0))
                return false;
    return shmnd_tx_ring_fits(qp, length) && shmnd_tx_has_credit(qp, length);
}

/* Queue a Send that is already in the ring and has a receive, so that it is not recalled: it
 * completes later. */
static inline void shmnd_enqueue_sent(struct shmnd_qp *qp, void *context, uint64_t slot_pos,
                                      uint32_t length, uint32_t flags)
{
    qp->wq.entries[qp->wq.end++ & qp->wq.mask] = (struct shmnd_wqe){.context = context,
                                                                    .message = qp->messages - 1,
                                                                    .recalled = qp->recalled,
                                                                    .slot_pos = slot_pos,
                                                                    .length = length,
                                                                    .type = SHMND_SEND,
                                                                    .flags = (uint8_t)flags,
                                                                    .has_receive = true,
                                                                    .state = SHMND_WQE_SENT};
    qp->wq.next = qp->wq.end;
    shmnd_count_requests(qp);
    shmnd_qp_activate(qp);
}

/* Write a Send to the ring, which has room, for a receive that is posted. Store in `*kept_p`
 * whether the queue or a completion keeps its context. */
static inline void shmnd_send_now(struct shmnd_qp *qp, void *context, const struct shmnd_sge *sges,
                                  uint32_t n, uint32_t length, uint32_t flags, bool *kept_p)
{
    uint64_t slot_pos = qp->out.write_pos;
    shmnd_tx_write_eager(qp, sges, n, NULL, length, shmnd_tx_slot_flags(flags, false), 0, false);
    shmnd_notify_receiver(qp, flags & SHMND_OP_SOLICIT);
    shmnd_count_sent(qp, length);
    bool closed_upon = shmnd_relaxed32(&qp->link.theirs->closing);
    *kept_p = closed_upon || !(flags & SHMND_OP_SILENT_SUCCESS);
    if (closed_upon)
        shmnd_enqueue_sent(qp, context, slot_pos, length,
                           flags); /* `taken` will show whether it was taken */
    else if (*kept_p)
        shmnd_tx_push_completion(qp, context, SHMND_SEND, SHMND_SUCCESS, length, SHMND_CAUSE_NONE);
}

/* Execute a Send that fits, with no request before it. Return false if it must be queued. */
static inline bool shmnd_send_immediate(struct shmnd_qp *qp, void *context,
                                        const struct shmnd_sge *sges, uint32_t n, uint32_t length,
                                        uint32_t flags, bool *kept_p)
{
    if (qp->wq.oldest != qp->wq.end || !shmnd_cq_has_room(qp->initiator_cq) ||
        !shmnd_send_can_be_immediate(qp, sges, n, length, flags))
        return false;
    shmnd_send_now(qp, context, sges, n, length, flags, kept_p);
    return true;
}

/* Execute the usual Send of one element, with all checks of shmnd_post_send() in one pass. Return
 * false if nothing was done, and shmnd_post_send() decides. A completion queue that has room also
 * accepts a post (`bound` is above `limit`). */
static inline bool shmnd_send_short(struct shmnd_qp *qp, void *context, const struct shmnd_sge *sge,
                                    uint32_t flags, bool *kept_p)
{
    uint32_t length = sge->length;
    /* The line of `revision` and `closing`. Between two calls an interpreter takes it out of the
     * nearest cache; it comes back during the checks. Without this a ping-pong took 1.6 to
     * 4.4 % longer (virtual AMD EPYC, 2026-12-01). */
    shmnd_prefetch(qp->link.theirs);
    if (qp->state != SHMND_QP_CONNECTED || qp->batch || (flags & SHMND_OP_INLINE) ||
        qp->wq.oldest != qp->wq.end || shmnd_requests_taken(qp) >= qp->wq.depth ||
        length >= SHMND_PLACE_MIN || length > qp->max_transfer || qp->link.their_srq ||
        !shmnd_cq_has_room(qp->initiator_cq) || !shmnd_sge_region(qp->registry, sge, 0) ||
        !shmnd_tx_ring_fits(qp, length) || !shmnd_tx_has_credit(qp, length))
        return false;
    shmnd_send_now(qp, context, sge, 1, length, flags, kept_p);
    return true;
}

/* Write a Send within a batch, to be published with it, so that it completes later. Return false if
 * it must be queued. All requests before it are issued. */
static inline bool shmnd_send_deferred(struct shmnd_qp *qp, void *context,
                                       const struct shmnd_sge *sges, uint32_t n, uint32_t length,
                                       uint32_t flags)
{
    if (qp->wq.next != qp->wq.end || qp->wq.uncommitted > qp->wq.oldest || qp->tx.busy ||
        shmnd_tx_is_broken(qp) || !shmnd_send_can_be_immediate(qp, sges, n, length, flags))
        return false;
    uint64_t slot_pos = qp->out.write_pos;
    shmnd_tx_write_eager(qp, sges, n, NULL, length, shmnd_tx_slot_flags(flags, false), 0, true);
    shmnd_count_sent(qp, length);
    shmnd_enqueue_sent(qp, context, slot_pos, length, flags);
    return true;
}

static inline uint32_t shmnd_post_send(struct shmnd_qp *qp, void *context,
                                       const struct shmnd_sge *sges, uint32_t n, uint32_t flags,
                                       bool *kept_p)
{
    *kept_p = false;
    if (flags & ~(uint32_t)SHMND_SEND_FLAGS)
        return SHMND_INVALID_PARAMETER_4;
    if (n == 1 && shmnd_send_short(qp, context, sges, flags, kept_p))
        return SHMND_SUCCESS;
    uint64_t total = shmnd_sges_length(sges, n);
    uint32_t status = shmnd_check_data(qp, n, qp->wq.stride, total, flags);
    if (status == SHMND_SUCCESS)
        status = shmnd_check_connected(qp);
    if (status != SHMND_SUCCESS)
        return status;
    if (!qp->batch && shmnd_send_immediate(qp, context, sges, n, (uint32_t)total, flags, kept_p))
        return SHMND_SUCCESS;
    *kept_p = true;
    if (qp->batch && shmnd_send_deferred(qp, context, sges, n, (uint32_t)total, flags))
        return SHMND_SUCCESS;
    shmnd_enqueue(qp, context, SHMND_SEND, sges, n, total, flags);
    return SHMND_SUCCESS;
}

/* Publish a batch and complete the Sends that have receives. If no request is left pending, the
 * queue pair need not stay active. */
static inline void shmnd_batch_submit(struct shmnd_qp *qp)
{
    qp->batch = false;
    shmnd_batch_publish(qp);
    shmnd_tx_retire(qp);
    if (!shmnd_qp_needs_polls(qp)) {
        shmnd_cq_deactivate(qp->receive_cq, qp);
        shmnd_cq_deactivate(qp->initiator_cq, qp);
    }
}

/* Queue a Send that invalidates the peer's window of that token. Return a status. It waits for the
 * other side, so it is never immediate. */
static inline uint32_t shmnd_post_send_invalidate(struct shmnd_qp *qp, void *context,
                                                  const struct shmnd_sge *sges, uint32_t n,
                                                  uint32_t token, uint32_t flags)
{
    uint64_t total = shmnd_sges_length(sges, n);
    uint32_t status = shmnd_check_data(qp, n, qp->wq.stride, total, flags);
    if (status == SHMND_SUCCESS)
        status = shmnd_check_connected(qp);
    if (status != SHMND_SUCCESS)
        return status;
    shmnd_enqueue(qp, context, SHMND_SEND, sges, n, total, flags | SHMND_OP_INVALIDATE)
        ->remote_token = token;
    return SHMND_SUCCESS;
}

/* Execute a short Read or Write with no request before it. Return false if it must be queued; its
 * errors are found when it is issued. */
static inline bool shmnd_rdma_immediate(struct shmnd_qp *qp, struct shmnd_wqe *w,
                                        const struct shmnd_sge *sges, bool *kept_p)
{
    struct shmnd_job *job = &qp->tx.job;
    if (qp->wq.oldest != qp->wq.end || qp->state != SHMND_QP_CONNECTED || qp->tx.busy ||
        w->length > SHMND_SHORT_COPY || (w->flags & SHMND_OP_INLINE) ||
        !shmnd_cq_has_room(qp->initiator_cq))
        return false;
    if (shmnd_tx_resolve_rdma(qp, w, sges, NULL, job) != SHMND_SUCCESS)
        return false;
    bool here = !job->to.remote && !job->from.remote;
    bool done = job->kind == SHMND_JOB_NONE || (here && shmnd_run_rdma(qp, job) == SHMND_SUCCESS);
    job->kind = SHMND_JOB_NONE;
    if (done)
        shmnd_count_rdma(qp, w->type, w->length);
    if (!done || (w->flags & SHMND_OP_SILENT_SUCCESS))
        return done;
    *kept_p = true;
    shmnd_tx_complete(qp, w, SHMND_CAUSE_NONE);
    return true;
}

static inline uint32_t shmnd_post_rdma(struct shmnd_qp *qp, void *context, uint8_t type,
                                       const struct shmnd_sge *sges, uint32_t n, uint64_t address,
                                       uint32_t token, uint32_t flags, bool *kept_p)
{
    *kept_p = false;
    if (flags & ~(uint32_t)(type == SHMND_READ ? SHMND_READ_FLAGS : SHMND_WRITE_FLAGS))
        return SHMND_INVALID_PARAMETER_6;
    uint64_t total = shmnd_sges_length(sges, n);
    uint32_t most =
        type == SHMND_READ && qp->max_read_sge < qp->wq.stride ? qp->max_read_sge : qp->wq.stride;
    uint32_t status = shmnd_check_data(qp, n, most, total, flags);
    if (status == SHMND_SUCCESS)
        status = shmnd_check_connected(qp);
    if (status != SHMND_SUCCESS)
        return status;
    struct shmnd_wqe now = {.context = context,
                            .length = total,
                            .remote_address = address,
                            .remote_token = token,
                            .sges = (uint16_t)n,
                            .type = type,
                            .flags = (uint8_t)flags};
    if (shmnd_rdma_immediate(qp, &now, sges, kept_p))
        return SHMND_SUCCESS;
    *kept_p = true;
    struct shmnd_wqe *w = shmnd_enqueue(qp, context, type, sges, n, total, flags);
    w->remote_address = address;
    w->remote_token = token;
    return SHMND_SUCCESS;
}

/* Queue a Bind or Invalidate, which has taken effect already, in the entry that was held for it;
 * `outcome` is its status, `token` the token that Invalidate revoked. Return
 * SHMND_CONNECTION_INVALID if the queue pair was closed since. */
static inline uint32_t shmnd_post_window(struct shmnd_qp *qp, void *context, uint8_t type,
                                         uint32_t token, uint32_t outcome, uint32_t flags)
{
    shmnd_release_entry(qp);
    if (qp->state != SHMND_QP_CONNECTED && qp->state != SHMND_QP_DOWN)
        return SHMND_CONNECTION_INVALID;
    struct shmnd_wqe *w = shmnd_enqueue(qp, context, type, NULL, 0, 0, flags);
    w->remote_token = token;
    if (w->status == SHMND_SUCCESS)
        w->status = outcome;
    return SHMND_SUCCESS;
}

/* ---- receives ----------------------------------------------------------------------------- */

static inline uint32_t shmnd_check_receive(const struct shmnd_qp *qp,
                                           const struct shmnd_receives *r,
                                           const struct shmnd_sge *sges, uint32_t n)
{
    if (n > r->stride)
        return SHMND_DATA_OVERRUN;
    if (shmnd_sges_length(sges, n) > qp->max_transfer)
        return SHMND_BUFFER_OVERFLOW;
    if (qp->state == SHMND_QP_CLOSED)
        return SHMND_CONNECTION_INVALID;
    if (shmnd_receives_outstanding(r) >= r->depth)
        return SHMND_NO_MORE_ENTRIES;
    return SHMND_SUCCESS;
}

static inline void shmnd_receives_add(struct shmnd_receives *r, void *context,
                                      const struct shmnd_sge *sges, uint32_t n)
{
    r->entries[r->posted & r->mask] =
        (struct shmnd_rqe){context, shmnd_sges_length(sges, n), n, false};
    struct shmnd_sge *to = shmnd_rqe_sges(r, r->posted);
    for (uint32_t i = 0; i < n; i++)
        to[i] = sges[i];
    r->posted++;
}

static inline uint32_t shmnd_post_receive(struct shmnd_qp *qp, void *context,
                                          const struct shmnd_sge *sges, uint32_t n)
{
    uint32_t status = shmnd_check_receive(qp, &qp->own, sges, n);
    if (status != SHMND_SUCCESS)
        return status;
    bool down = qp->state == SHMND_QP_DOWN && !qp->going_down;
    /* Completions of flushed requests occupy the queue until its owner takes them. */
    if (!(down ? shmnd_cq_has_room(qp->receive_cq) : shmnd_cq_can_post(qp->receive_cq)))
        return SHMND_NO_MORE_ENTRIES;
    shmnd_receives_add(&qp->own, context, sges, n);
    shmnd_count_posted(qp);
    if (down) {
        shmnd_cancel_receives(qp, qp->own.posted, qp->down_cause);
    } else if (qp->link.mine && !qp->rx.fault && !qp->going_down) {
        if (qp->batch) {
            shmnd_rx_write_entry(qp, qp->own.posted - 1);
            qp->deferred_receives = true;
            shmnd_qp_activate(qp);
            return SHMND_SUCCESS;
        }
        shmnd_rx_advertise(qp, qp->own.posted - 1);
        shmnd_notify_waiting_sender(qp);
    }
    return SHMND_SUCCESS;
}

#endif
