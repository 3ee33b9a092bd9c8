/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress of a connected queue pair: changes of the other side's state, Flush,
 * disconnect. The steps of its teardown are in teardown.h.
 */
#ifndef SHMND_TEARDOWN_CONNECTION_H
#define SHMND_TEARDOWN_CONNECTION_H

#include "teardown/deregister.h"

/* ---- Flush ---------------------------------------------------------------------------------- */

static inline void shmnd_flush_request(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    /* A Bind takes effect when it is posted; a cancelled one must have no effect. */
    if (w->type == SHMND_BIND && w->status == SHMND_SUCCESS)
        shmnd_window_unbind(qp->registry, w->remote_token, qp->serial);
    shmnd_tx_fail(w, SHMND_CANCELED);
}

static inline void shmnd_flush_requests(struct shmnd_qp *qp)
{
    /* Newest first: messages are recalled in that order, as far as possible. A message that stays
     * is matched to a receive by counting, so the messages before it must stay too. */
    bool stays = false;
    for (uint64_t i = qp->wq.end; i-- != qp->wq.oldest;) {
        struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        bool running = qp->tx.busy && i == qp->tx.job.request;
        bool canceled = w->state == SHMND_WQE_DONE && w->status != SHMND_SUCCESS;
        /* A request whose message is matched, or that a copy of this process is using, is left to
         * complete; the others are cancelled behind it, in order. */
        if (w->state == SHMND_WQE_DONE || w->moved || running)
            stays = stays || (w->type == SHMND_SEND && !canceled);
        else if (w->state == SHMND_WQE_QUEUED || (!stays && shmnd_tx_recall(qp, w)))
            shmnd_flush_request(qp, w);
        else
            stays = true;
    }
}

static inline enum shmnd_progress shmnd_flush_step(struct shmnd_qp *qp, uint64_t now_ns)
{
    if (qp->rx.busy)
        return SHMND_IDLE;
    if (!shmnd_rx_withdraw(qp)) {
        shmnd_qp_check_stall(qp, &qp->stalled_since_ns, now_ns);
        return SHMND_IDLE;
    }
    qp->stalled_since_ns = 0;
    /* Receives of a shared queue are not cancelled: later messages match them. */
    enum shmnd_progress drain = qp->shared ? SHMND_IDLE : shmnd_teardown_drain(qp);
    if (drain != SHMND_IDLE || qp->rx.open || qp->rx.fault)
        return drain;
    uint64_t before = qp->own.matched;
    if (qp->own.matched < qp->flush.receives)
        shmnd_cancel_receives(qp, qp->flush.receives, SHMND_CAUSE_FLUSH);
    qp->cancelled += qp->own.matched - before;
    /* SYNC flush: release, pairs with acquire in shmnd_tx_update_credit() */
    shmnd_release64(&qp->link.mine->cancelled, qp->cancelled);
    SHMND_KILL_POINT("flush-counted");
    qp->flush.pending = false;
    shmnd_rx_readvertise(qp);
    return SHMND_IDLE;
}

/* Cancel all requests that are posted now. On an open connection the caller continues with
 * shmnd_qp_progress(). */
static inline void shmnd_qp_flush(struct shmnd_qp *qp)
{
    if (qp->state != SHMND_QP_CONNECTED) {
        if (qp->state != SHMND_QP_ATTACHED && !qp->going_down)
            shmnd_cancel_receives(qp, qp->own.posted, SHMND_CAUSE_FLUSH);
        if (qp->state != SHMND_QP_ATTACHED)
            return;
    }
    shmnd_batch_publish(qp);
    shmnd_tx_retire(qp);
    shmnd_backlog_withdraw(qp);
    shmnd_flush_requests(qp);
    qp->flush.pending = true;
    qp->flush.receives = qp->own.posted;
    qp->drain_end = qp->in.read_pos + qp->in.mask + 1;
    shmnd_qp_activate(qp);
}

/* ---- connection attempts that fail ---------------------------------------------------------- */

/* End an attempt before both ends were open: no push begins after this. */
static inline void shmnd_abort_attempt(struct shmnd_qp *qp, enum shmnd_link_state state)
{
    shmnd_put32(&qp->link.mine->closing, 1);
    /* SYNC closing, SYNC placing: fence, as in shmnd_qp_begin_teardown() */
    shmnd_store_then_load();
    shmnd_publish_state(qp, state);
}

static inline void shmnd_rx_unpin_all(struct shmnd_qp *qp)
{
    for (uint64_t pos = qp->own.matched; pos != qp->own.posted; pos++)
        shmnd_rx_unpin(qp, &qp->own.entries[pos & qp->own.mask], shmnd_rqe_sges(&qp->own, pos));
}

/* Fail the request or message for which the peer named a segment that it never announced. */
static inline void shmnd_fail_unmapped(struct shmnd_qp *qp, bool receiving)
{
    if (receiving) {
        qp->rx.needs_segment = false;
        qp->rx.fault = true;
        return;
    }
    struct shmnd_wqe *w = &qp->wq.entries[qp->tx.job.request & qp->wq.mask];
    if (qp->tx.job.request < qp->wq.oldest)
        return; /* the request has ended meanwhile */
    if (qp->tx.job.request == qp->wq.next && qp->wq.next != qp->wq.end) {
        if (!shmnd_backlog_reclaim(qp, w))
            return;
        qp->wq.next++;
    }
    shmnd_tx_end_copy(qp, w, w->type == SHMND_SEND ? SHMND_ACCESS_VIOLATION : shmnd_tx_refused(qp));
}

/* End the connection for its owner. The contents of a batch are sent first. */
static inline void shmnd_qp_disconnect(struct shmnd_qp *qp)
{
    shmnd_batch_publish(qp);
    shmnd_tx_retire(qp);
    shmnd_qp_begin_teardown(qp, SHMND_LINK_CLOSED, SHMND_CANCELED, SHMND_CAUSE_HERE);
}

/* Return the word by which a side returns the slots that it has read. */
static inline shmnd_word64 *shmnd_read_pos_of(struct shmnd_side *side)
{
    return &side->read_pos;
}

/* ---- progress ------------------------------------------------------------------------------- */

/* Check the state of the other side, and follow its changes. */
static inline void shmnd_qp_check_peer(struct shmnd_qp *qp)
{
    /* SYNC state: acquire, pairs with release in shmnd_publish_state() */
    uint32_t word = shmnd_acquire32(&qp->link.theirs->state);
    if (word <= SHMND_LINK_OPEN && qp->state == SHMND_QP_CONNECTED && !qp->peer->dead)
        return; /* the usual case */
    qp->rx.lists = (word & SHMND_LINK_LISTS) && !qp->peer->dead;
    enum shmnd_link_state s = shmnd_peer_state_of(qp, word);
    /* An end that opened and closed since the last check did connect. */
    if (qp->state == SHMND_QP_ATTACHED && shmnd_relaxed32(&qp->link.theirs->opened))
        shmnd_qp_set_state(qp, SHMND_QP_CONNECTED);
    if (s <= SHMND_LINK_OPEN || qp->state != SHMND_QP_CONNECTED)
        return;
    bool died = s == SHMND_LINK_DEAD;
    shmnd_qp_begin_teardown(qp, SHMND_LINK_CLOSED, died ? SHMND_IO_TIMEOUT : SHMND_CANCELED,
                            died ? SHMND_CAUSE_DEATH : SHMND_CAUSE_PEER);
}

/* Make progress on everything but arriving messages. The caller executes the returned job or
 * mapping and calls again. */
static inline enum shmnd_progress shmnd_qp_progress(struct shmnd_qp *qp, uint64_t now_ns)
{
    if (!qp->link.theirs)
        return SHMND_IDLE;
    shmnd_qp_check_peer(qp);
    if (qp->rx.fault && !qp->going_down)
        shmnd_qp_begin_teardown(qp, SHMND_LINK_FAULT, shmnd_rx_fault_status(qp),
                                shmnd_tx_cause(qp, shmnd_rx_fault_status(qp)));
    shmnd_batch_publish(qp); /* a caller that polls waits for its requests */
    /* A poll returns one job; a second one that it prepared is returned now. */
    if ((qp->tx.busy && !qp->tx.started) || shmnd_rx_job_is_prepared(qp))
        return SHMND_RUN;
    enum shmnd_progress p = SHMND_IDLE;
    if (qp->flush.pending && !qp->going_down)
        p = shmnd_flush_step(qp, now_ns);
    if (p == SHMND_IDLE && qp->wq.oldest != qp->wq.end) {
        p = shmnd_tx_advance(qp);
        if (p == SHMND_IDLE)
            shmnd_tx_check_rnr(qp, now_ns);
        if (shmnd_tx_awaits_peer(qp))
            shmnd_qp_check_stall(qp, &qp->stalled_since_ns, now_ns);
    }
    if (p == SHMND_IDLE && qp->going_down)
        p = shmnd_teardown_step(qp, now_ns);
    shmnd_batch_publish(qp); /* and for those issued just now */
    return p;
}

#endif
