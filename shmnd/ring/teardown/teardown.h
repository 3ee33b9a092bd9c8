/* SPDX-License-Identifier: Apache-2.0
 *
 * Teardown: the steps from the beginning of a connection's end (shmnd_qp_begin_teardown in
 * wake.h) to the state that the other side reads.
 *
 * It first takes the messages that arrived, which are delivered, then cancels all
 * other requests, then publishes the new state. It may take several steps: it waits for
 * a copy of another thread or of the other side, and never interrupts one. It does not
 * wait for a dead process.
 */
#ifndef SHMND_TEARDOWN_TEARDOWN_H
#define SHMND_TEARDOWN_TEARDOWN_H

#include "receive/consume.h"

static inline enum shmnd_link_state shmnd_link_state_of(uint32_t word)
{
    uint32_t s = word & ~(uint32_t)SHMND_LINK_LISTS;
    return s <= SHMND_LINK_DEAD ? (enum shmnd_link_state)s : SHMND_LINK_FAULT;
}

/* Return the state of the other side, whose word is `word`. A side that ended the connection and
 * died afterwards has ended it: a program that polls only then finds the same as one that polled
 * before. */
static inline enum shmnd_link_state shmnd_peer_state_of(const struct shmnd_qp *qp, uint32_t word)
{
    enum shmnd_link_state s = shmnd_link_state_of(word);
    if (s <= SHMND_LINK_OPEN && qp->peer->dead)
        return SHMND_LINK_DEAD;
    return s == SHMND_LINK_DEAD ? SHMND_LINK_FAULT : s;
}

static inline enum shmnd_link_state shmnd_peer_state(const struct shmnd_qp *qp)
{
    /* SYNC state: acquire, pairs with release in shmnd_publish_state() */
    return shmnd_peer_state_of(qp, shmnd_acquire32(&qp->link.theirs->state));
}

static inline void shmnd_publish_state(struct shmnd_qp *qp, enum shmnd_link_state state)
{
    /* SYNC state: release, pairs with acquire in shmnd_peer_state() */
    shmnd_release32(&qp->link.mine->state, state);
    SHMND_KILL_POINT("state-published");
    /* SYNC arm, SYNC ready: fence of the producer */
    shmnd_store_then_load();
    shmnd_bell_mark_ready(qp->link.receive_bell, qp->link.receive_marks, qp->link.receive_bit);
    shmnd_bell_mark_ready(qp->link.initiator_bell, qp->link.initiator_marks,
                          qp->link.initiator_bit);
    shmnd_wake_peer_at_word(qp->link.receive_bell, qp->link.receive_marks, &qp->link.receive_rung);
    shmnd_wake_peer_at_word(qp->link.initiator_bell, qp->link.initiator_marks,
                            &qp->link.initiator_rung);
    shmnd_ring_doorbell(qp->peer->doorbell);
}

/* Return whether the other side accesses no memory of this side any more. After `closing`. A hazard
 * word that names memory that it cannot be accessing is ignored. */
static inline bool shmnd_peer_is_quiescent(const struct shmnd_qp *qp)
{
    /* SYNC hazard-clear: acquire, pairs with release in shmnd_hazard_leave() */
    uint64_t hazard = shmnd_acquire64(&qp->link.theirs->hazard);
    if (qp->peer->dead || hazard == 0)
        return true;
    return hazard != SHMND_HAZARD_PUSH &&
           (hazard >> 32 || shmnd_token_index((uint32_t)hazard) >= qp->registry->count);
}

/* After this time in one copy, a process is taken to be hostile or stopped. Long enough for the
 * longest copy on a busy machine. */
#define SHMND_STALL_TIMEOUT_NS (10ull * 1000 * 1000 * 1000)

/* Note that an operation waits since `*since_p` for the other side to end a copy. After
 * SHMND_STALL_TIMEOUT_NS end the connection; its teardown does not wait for the copy again. A
 * Deregister has one time for all its connections. */
static inline void shmnd_qp_check_stall(struct shmnd_qp *qp, uint64_t *since_p, uint64_t now_ns)
{
    if (*since_p == 0)
        *since_p = now_ns;
    else if (now_ns - *since_p > SHMND_STALL_TIMEOUT_NS && qp->state == SHMND_QP_CONNECTED) {
        shmnd_qp_begin_teardown(qp, SHMND_LINK_FAULT, SHMND_IO_TIMEOUT, SHMND_CAUSE_STALL);
        qp->down_since_ns = *since_p;
    }
}

/* Take the messages that arrived into the receive queue's ring. Return SHMND_IDLE if no more can be
 * taken now, otherwise the job or mapping that the next one needs. */
static inline enum shmnd_progress shmnd_teardown_drain(struct shmnd_qp *qp)
{
    while (qp->rx.extra_ready || ((shmnd_receives_outstanding(qp->receives) || qp->rx.open) &&
                                  qp->in.read_pos < qp->drain_end))
        if (!shmnd_qp_consume_one(qp))
            break;
    if (qp->rx.fault)
        return SHMND_IDLE;
    if (qp->rx.needs_segment)
        return SHMND_NEEDS_MAP;
    return qp->rx.job.kind != SHMND_JOB_NONE ? SHMND_RUN : SHMND_IDLE;
}

/* Return whether all of a Send that the reader copies, or helps to copy, has been copied. */
static inline bool shmnd_teardown_is_whole(const struct shmnd_qp *qp, const struct shmnd_wqe *w)
{
    if (w->pulled)
        return shmnd_pull_state(qp, w) == SHMND_LISTED_DONE;
    struct shmnd_chunks c = shmnd_chunks_of(w->length, w->message);
    return w->large && !w->moved && shmnd_chunks_finished(&qp->link.mine->shares[w->share], &c);
}

/* Stop the other side from reading further chunks of this large message. Return false if it is
 * reading a chunk now. */
static inline bool shmnd_teardown_withdraw_large(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    struct shmnd_chunks c = shmnd_chunks_of(w->length, w->message);
    struct shmnd_share *share = &qp->link.mine->shares[w->share];
    if (shmnd_chunks_finished(share, &c))
        return true;
    /* Claim the other chunks without copying them, so the other side can begin none. They are never
     * counted, so the message cannot appear finished. */
    for (uint32_t i = 0; i < c.count && shmnd_chunks_claim_one(share, &c, false) >= 0; i++)
        w->withheld++;
    /* SYNC chunk-done: acquire, pairs with release in shmnd_chunks_complete() */
    return shmnd_acquire64(&share->done) + w->withheld >= c.count;
}

/* Stop the other side from reading further from any message that it copies. Return false if it is
 * reading now. */
static inline bool shmnd_teardown_withdraw(struct shmnd_qp *qp)
{
    bool quiet = true;
    for (uint64_t i = qp->wq.oldest; i != qp->wq.next && !qp->peer->dead; i++) {
        struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        if (w->state != SHMND_WQE_SENT)
            continue;
        if (w->pulled)
            quiet = shmnd_pull_cut(qp, w) && quiet;
        else if (w->large && !w->moved)
            quiet = shmnd_teardown_withdraw_large(qp, w) && quiet;
    }
    return quiet;
}

/* Return whether a receive was posted for this Send and the other side did not close before it was
 * published. */
static inline bool shmnd_teardown_is_committed(const struct shmnd_qp *qp, const struct shmnd_wqe *w)
{
    return w->committed || (w->has_receive && !shmnd_relaxed32(&qp->link.theirs->closing));
}

/* Return whether a Send before the one at `pos` is not known to be matched, and so will be
 * recalled. */
static inline bool shmnd_teardown_recalls_before(const struct shmnd_qp *qp, uint64_t pos,
                                                 uint64_t taken)
{
    for (uint64_t i = qp->wq.oldest; i != pos; i++) {
        const struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        bool stays =
            w->has_receive || (!(w->flags & SHMND_OP_INVALIDATE) && shmnd_teardown_is_whole(qp, w));
        if (w->state == SHMND_WQE_SENT && w->message >= taken && !stays)
            return true;
    }
    return false;
}

/* Mark the Sends up to the one at `pos`, which are published and have receives, as sure. They
 * remain so if the other side closes now, since it takes all messages published before. */
static inline void shmnd_teardown_commit(struct shmnd_qp *qp, uint64_t pos)
{
    for (uint64_t i = qp->wq.oldest; i <= pos; i++) {
        struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        w->committed = w->committed || (w->state == SHMND_WQE_SENT && w->has_receive && !w->large);
    }
}

/* Prevent a Send that needs more than its slots from ever becoming whole at the other side; its
 * reader cannot get past it. Return false if it is whole, or the other side is copying a piece. */
static inline bool shmnd_teardown_cut_short(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    if (w->moved) {
        w->cut = w->cut || shmnd_slots_recall(&qp->out, w->slot_pos);
        return w->cut;
    }
    return (w->pulled ? shmnd_pull_cut(qp, w) : shmnd_teardown_withdraw_large(qp, w)) &&
           !shmnd_teardown_is_whole(qp, w);
}

/* Return the position of the oldest sent and unfinished Send before `pos` that needs more than its
 * slots, if it could be cut short and no Send before it will be recalled; otherwise `pos`. */
static inline uint64_t shmnd_teardown_cut_before(struct shmnd_qp *qp, uint64_t pos, uint64_t taken)
{
    for (uint64_t i = qp->wq.oldest; i != pos; i++) {
        struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        if (w->state != SHMND_WQE_SENT || w->message < taken || !(w->large || w->pulled) ||
            shmnd_teardown_is_whole(qp, w))
            continue;
        bool cut = !shmnd_teardown_recalls_before(qp, i, taken) && shmnd_teardown_cut_short(qp, w);
        return cut ? i : pos;
    }
    return pos;
}

/* Return whether both sides agree on a Send that cannot be recalled, since the other side has
 * claimed it or is sure to, and on all Sends before it. For a large one, its chunks decide; for a
 * large one that invalidates, both agree once it can never become whole. */
static inline bool shmnd_teardown_agreed(struct shmnd_qp *qp, struct shmnd_wqe *w, uint64_t pos,
                                         uint64_t taken)
{
    /* SYNC taken: acquire, pairs with release in shmnd_rx_publish_taken() */
    if (shmnd_acquire64(&qp->link.theirs->taken) > w->message)
        return true;
    if ((!w->large && !w->pulled) || w->moved) {
        if (!shmnd_teardown_is_committed(qp, w) || shmnd_teardown_recalls_before(qp, pos, taken))
            return false;
        shmnd_teardown_commit(qp, pos);
        return true;
    }
    return !(w->flags & SHMND_OP_INVALIDATE) || shmnd_teardown_cut_short(qp, w);
}

/* Recall the Sends that wait for a receive, are not whole at the other side, or invalidate a
 * window, so that both sides agree on them. A large message was written for one receive: it is
 * recalled before an earlier one whose recall would leave it another receive. A message that is
 * sure of its receive is recalled with a longer one before it, if that one was cut short: the other
 * side takes no message from there on. Return false if the other side has matched a message and not
 * published that yet. */
static inline bool shmnd_teardown_recall(struct shmnd_qp *qp)
{
    /* SYNC taken: acquire, pairs with release in shmnd_rx_publish_taken() */
    uint64_t taken = shmnd_acquire64(&qp->link.theirs->taken);
    for (uint64_t i = qp->wq.next; i-- != qp->wq.oldest;) {
        struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        bool parts = w->moved != 0, shared = (w->large || w->pulled) && !parts;
        if (w->state != SHMND_WQE_SENT || w->message < taken)
            continue;
        if (shared && !(w->flags & SHMND_OP_INVALIDATE) &&
            !shmnd_teardown_recalls_before(qp, i, taken))
            continue;
        if (parts ? shmnd_slots_recall(&qp->out, w->slot_pos) : shmnd_tx_recall(qp, w)) {
            w->state = SHMND_WQE_RECALLED;
            continue;
        }
        uint64_t at = shmnd_teardown_cut_before(qp, i, taken);
        if (at == i)
            return shmnd_teardown_agreed(qp, w, i, taken);
        i = at;
    }
    return true;
}

static inline bool shmnd_is_refusal(uint32_t fault)
{
    return fault == SHMND_REMOTE_ERROR || fault == SHMND_INVALID_DEVICE_REQUEST ||
           fault == SHMND_ACCESS_VIOLATION;
}

/* Return whether the other side has refused a message. Then it takes neither this one nor any after
 * it, and its `taken` is the last one. Both sides may do so at once: neither must wait for the
 * other to take more. */
static inline bool shmnd_peer_has_refused(const struct shmnd_qp *qp)
{
    /* SYNC refused: acquire, pairs with release in shmnd_rx_refuse() */
    return shmnd_is_refusal(shmnd_acquire32(&qp->link.theirs->fault));
}

/* Return whether this is the Send that the other side refused. One in parts may have been refused
 * before its last part was sent, and has no number yet. */
static inline bool shmnd_teardown_refused(const struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                          uint64_t taken, uint32_t fault)
{
    if (w->type != SHMND_SEND || !shmnd_is_refusal(fault))
        return false;
    if (w->state == SHMND_WQE_SENT)
        return w->message == taken;
    return w->state == SHMND_WQE_QUEUED && w->moved && qp->messages == taken;
}

/* Return whether this Send is matched to its receive, or will be when the other side takes the
 * messages that arrived. It may be incomplete only because its completion queue was full. */
static inline bool shmnd_teardown_delivered(const struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                            uint64_t taken, bool peer_continues)
{
    if (w->type != SHMND_SEND || w->state != SHMND_WQE_SENT)
        return false;
    if (w->message < taken && taken <= qp->messages)
        return true;
    if (!peer_continues || (w->flags & SHMND_OP_INVALIDATE))
        return false;
    if ((!w->large && !w->pulled) || w->moved)
        return shmnd_teardown_is_committed(qp, w);
    return shmnd_teardown_is_whole(qp, w);
}

/* Return whether this Invalidate has taken effect. An access to its window since it was posted may
 * be the reason why the connection ends, and its completion must come first. */
static inline bool shmnd_teardown_invalidated(const struct shmnd_qp *qp, const struct shmnd_wqe *w)
{
    return w->type == SHMND_INVALIDATE && w->state == SHMND_WQE_QUEUED &&
           w->status == SHMND_SUCCESS && !qp->peer->dead &&
           shmnd_hazard_is_clear_of(&qp->link.theirs->hazard, w->remote_token);
}

static inline void shmnd_teardown_cancel_requests(struct shmnd_qp *qp, bool peer_continues)
{
    /* SYNC taken: acquire, pairs with release in shmnd_rx_publish_taken() */
    uint64_t taken = shmnd_acquire64(&qp->link.theirs->taken);
    uint32_t fault = shmnd_relaxed32(&qp->link.theirs->fault);
    uint32_t status = qp->down_status;
    bool failed = false; /* requests after a failed one were recalled, or never sent */
    while (qp->wq.oldest != qp->wq.end) {
        struct shmnd_wqe *w = &qp->wq.entries[qp->wq.oldest & qp->wq.mask];
        enum shmnd_cause cause = qp->down_cause;
        if (!failed && (shmnd_teardown_invalidated(qp, w) ||
                        shmnd_teardown_delivered(qp, w, taken, peer_continues))) {
            w->status = SHMND_SUCCESS;
        } else if (w->state == SHMND_WQE_DONE &&
                   (w->status == SHMND_SUCCESS || w->status == SHMND_CANCELED)) {
            cause = shmnd_tx_done_cause(w); /* only its completion is missing */
        } else {
            bool refused = shmnd_teardown_refused(qp, w, taken, fault);
            w->status = refused && status == SHMND_CANCELED ? fault : status;
            status = SHMND_CANCELED;
            failed = true;
        }
        shmnd_tx_complete(qp, w, cause);
        shmnd_tx_pop_request(qp);
    }
    qp->wq.next = qp->wq.oldest;
    shmnd_count_requests(qp);
    shmnd_put64(&qp->counters->waiting_ns, 0);
}

static inline void shmnd_cancel_receives(struct shmnd_qp *qp, uint64_t up_to,
                                         enum shmnd_cause cause)
{
    if (qp->shared)
        return;
    while (qp->own.matched != up_to) {
        struct shmnd_rqe *e = &qp->own.entries[qp->own.matched & qp->own.mask];
        struct shmnd_cqe c = {e->context, qp->context,   SHMND_CANCELED,
                              0,          SHMND_RECEIVE, (uint32_t)cause << SHMND_CQE_CAUSE_SHIFT};
        shmnd_rx_unpin(qp, e, shmnd_rqe_sges(&qp->own, qp->own.matched));
        qp->own.matched++;
        shmnd_cq_push(qp->receive_cq, &c);
        shmnd_count_unfilled(qp, SHMND_CANCELED);
    }
}

/* Complete the receive of a message that was refused, or will never be whole. */
static inline void shmnd_teardown_end_open(struct shmnd_qp *qp)
{
    struct shmnd_cqe e;
    if (!qp->rx.open)
        return;
    shmnd_rx_cqe(qp, qp->rx.refused ? qp->rx.refused : SHMND_CANCELED, 0, &e);
    e.flags |= (uint32_t)qp->down_cause << SHMND_CQE_CAUSE_SHIFT;
    shmnd_cq_push(qp->receive_cq, &e);
    qp->rx.open = false;
    qp->rx.refused = SHMND_SUCCESS;
    if (!qp->rx.unbinding)
        return;
    /* The sender stayed in the window that it invalidated, and is not waited for any longer. */
    qp->rx.unbinding = false;
    qp->rx.extra.status = SHMND_CANCELED;
    qp->rx.extra.flags = (uint32_t)qp->down_cause << SHMND_CQE_CAUSE_SHIFT;
    if (qp->rx.extra.context)
        shmnd_cq_push(qp->receive_cq, &qp->rx.extra);
}

/* Execute one step of teardown. Return the job or mapping that it needs, or SHMND_IDLE. While
 * `going_down` is set, call again later. */
static inline enum shmnd_progress shmnd_teardown_step(struct shmnd_qp *qp, uint64_t now_ns)
{
    if (qp->down_since_ns == 0)
        qp->down_since_ns = now_ns;
    bool patient = now_ns - qp->down_since_ns <= SHMND_STALL_TIMEOUT_NS;
    if (qp->tx.busy || qp->rx.busy)
        return SHMND_IDLE;
    /* SYNC closing, SYNC placing: `closing` was stored and fenced; wait for a copy into or out of
     * the memory of this side that is in progress. */
    if (patient && !shmnd_peer_is_quiescent(qp))
        return SHMND_IDLE;
    enum shmnd_progress drain = shmnd_teardown_drain(qp);
    if (drain != SHMND_IDLE)
        return drain;
    bool peer_continues =
        !qp->peer->dead && shmnd_peer_state(qp) <= SHMND_LINK_OPEN && !shmnd_peer_has_refused(qp);
    /* A large message that is not whole now stays so: its sender copies under its hazard word, and
     * begins no copy towards a side that closes. */
    if (qp->rx.unbinding && patient)
        return SHMND_IDLE; /* the sender is still accessing the window that it invalidated */
    shmnd_tx_retire_up_to(qp, qp->initiator_cq->bound); /* Sends with a receive by now succeed */
    shmnd_backlog_withdraw(qp);
    if (peer_continues && (!shmnd_teardown_recall(qp) || !shmnd_teardown_withdraw(qp)) && patient)
        return SHMND_IDLE;
    SHMND_KILL_POINT("down-recalled");
    /* The other side may have ended the connection because of a message that it took. */
    shmnd_cq_complete_finished(qp->receive_cq);
    shmnd_cq_complete_finished(qp->initiator_cq);
    shmnd_teardown_end_open(qp);
    shmnd_teardown_cancel_requests(qp, peer_continues);
    if (qp->flush.pending && qp->own.matched < qp->flush.receives)
        shmnd_cancel_receives(qp, qp->flush.receives, SHMND_CAUSE_FLUSH);
    shmnd_cancel_receives(qp, qp->own.posted, qp->down_cause);
    qp->going_down = false;
    qp->flush.pending = false;
    qp->rx.stalled = false;
    SHMND_KILL_POINT("down-cancelled");
    shmnd_publish_state(qp, qp->down_state);
    shmnd_cq_remove_qp(qp->receive_cq, qp);
    shmnd_cq_remove_qp(qp->initiator_cq, qp);
    return SHMND_IDLE;
}

#endif
