/* SPDX-License-Identifier: Apache-2.0
 *
 * Notifying the other side: waking its consumer, waking its pending Sends, publishing
 * a batch, and beginning the teardown of a connection.
 *
 * Called by either half of a queue pair after it published a change for the other side.
 * Never waits: a doorbell that is full has woken its consumer already.
 *
 * Argument for SYNC closing. The sender publishes a slot, fences, then loads the other
 * side's `closing`; the closing side sets `closing`, fences, then checks the ring for the
 * last time. At least one sees the other's store: a message whose sender found `closing`
 * unset is in the ring when the closing side takes the messages that arrived.
 *
 * A batch defers small messages and receives: they are written one by one and published
 * together. It is a hint and never blocks progress: its contents are published when it is
 * submitted, when its ring is full, by a message that needs more than the ring, by a Flush or
 * a disconnect, by a call that fails, and by any poll of a queue of the queue pair, so a
 * thread that waits for a completion never waits for an unpublished request.
 */
#ifndef SHMND_ENGINE_WAKE_H
#define SHMND_ENGINE_WAKE_H

#include "engine/completion_queue.h"
#include "wire/futex.h"

/* ---- waking the other side ----------------------------------------------------------- */

/* Wake the thread that sleeps at the word of a bell. */
static inline void shmnd_wake_at_word(struct shmnd_marks *marks)
{
    shmnd_bell_change_word(marks);
    (void)shmnd_futex_wake((const void *)&marks->rings, 1);
}

/* Ring the peer for an arming of one of its bells, in the way in which its thread sleeps. */
static inline void shmnd_ring_peer(struct shmnd_qp *qp, uint64_t armed, struct shmnd_marks *marks)
{
    if (armed & SHMND_ARMED_AT_WORD)
        shmnd_wake_at_word(marks);
    else
        shmnd_ring_doorbell(qp->peer->doorbell);
}

/* Wake the thread that sleeps at the word of a bell of the peer, if one does. After a fence. */
static inline void shmnd_wake_peer_at_word(const struct shmnd_bell *bell, struct shmnd_marks *marks,
                                           uint64_t *rung)
{
    if (shmnd_relaxed64(&bell->armed) & SHMND_ARMED_AT_WORD &&
        shmnd_bell_must_ring(bell, true, rung))
        shmnd_wake_at_word(marks);
}

/* Fence, then mark the link, and ring if the bell requires it. The caller has published. */
static inline void shmnd_notify_receiver(struct shmnd_qp *qp, bool solicited)
{
    struct shmnd_link_end *l = &qp->link;
    /* SYNC arm, SYNC ready, SYNC closing: fence of the producer */
    shmnd_store_then_load();
    SHMND_KILL_POINT("receiver-notifying");
    shmnd_bell_mark_ready(l->receive_bell, l->receive_marks, l->receive_bit);
    if (shmnd_bell_must_ring(l->receive_bell, solicited, &l->receive_rung))
        shmnd_ring_peer(qp, l->receive_rung, l->receive_marks);
    SHMND_KILL_POINT("receiver-notified");
}

static inline void shmnd_notify_initiator(struct shmnd_qp *qp)
{
    struct shmnd_link_end *l = &qp->link;
    /* SYNC arm, SYNC ready: fence of the producer */
    shmnd_store_then_load();
    SHMND_KILL_POINT("initiator-notifying");
    shmnd_bell_mark_ready(l->initiator_bell, l->initiator_marks, l->initiator_bit);
    if (shmnd_bell_must_ring(l->initiator_bell, true, &l->initiator_rung))
        shmnd_ring_peer(qp, l->initiator_rung, l->initiator_marks);
}

/* Ask the peer for a poll at its next call, of whatever kind, and ring if it sleeps. For a message
 * that needs a call of the peer, which may be sleeping for another event or polling another
 * queue. */
static inline void shmnd_notify_request_poll(struct shmnd_qp *qp)
{
    struct shmnd_link_end *l = &qp->link;
    /* SYNC asked: fence of the producer */
    shmnd_store_then_load();
    if (shmnd_bell_request_poll(l->receive_bell, l->receive_marks, &l->receive_rung))
        shmnd_ring_peer(qp, l->receive_rung, l->receive_marks);
}

/* Wake the peer if one of its Sends waits. After space was returned or a receive posted. */
static inline void shmnd_notify_waiting_sender(struct shmnd_qp *qp)
{
    /* SYNC credit: fence, pairs with the fence in shmnd_tx_set_wants_credit() */
    shmnd_store_then_load();
    if (shmnd_relaxed32(&qp->link.theirs->wants_credit))
        shmnd_notify_initiator(qp);
}

/* ---- batches -------------------------------------------------------------------------- */

/* Check before a batch is published whether a Deregister or a Flush of the other side has withdrawn
 * receives since its messages were written. Then each of them waits until it is taken, or a receive
 * is known for it. relaxed: one that runs at the same time may come a moment later. */
static inline void shmnd_batch_check(struct shmnd_qp *qp)
{
    if (shmnd_relaxed64(&qp->link.theirs->revision) == qp->deferred_revision)
        return;
    for (uint64_t i = qp->wq.oldest; i != qp->wq.next; i++) {
        struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        if (w->state != SHMND_WQE_SENT || w->message < qp->deferred_message || !w->has_receive)
            continue;
        w->has_receive = w->committed = false;
        shmnd_writer_slot(&qp->out, w->slot_pos)->flags |= SHMND_SLOT_ACK;
    }
}

/* Publish the batch, by one store for all messages and one for all receives, each followed by one
 * notification. Sends that have a receive complete at the next shmnd_tx_retire(). */
static inline void shmnd_batch_publish(struct shmnd_qp *qp)
{
    if (qp->deferred) {
        qp->deferred = false;
        shmnd_batch_check(qp);
        shmnd_slots_publish_deferred(&qp->out, qp->deferred_pos);
        shmnd_notify_receiver(qp, qp->deferred_solicited);
    }
    if (qp->deferred_receives) {
        qp->deferred_receives = false;
        /* SYNC posted: release, pairs with acquire in shmnd_tx_update_credit() */
        shmnd_release64(&qp->link.mine->posted, qp->own.posted - qp->posted_base);
        shmnd_notify_waiting_sender(qp);
    }
}

/* Defer the message that is written next. Return true if it is the first of the batch. */
static inline bool shmnd_batch_defer(struct shmnd_qp *qp, bool solicited)
{
    bool first = !qp->deferred;
    if (first) {
        qp->deferred = true;
        qp->deferred_solicited = false;
        qp->deferred_pos = qp->out.write_pos;
        qp->deferred_message = qp->messages;
        qp->deferred_revision = qp->seen.revision;
    }
    qp->deferred_solicited = qp->deferred_solicited || solicited;
    return first;
}

/* ---- the beginning of teardown -------------------------------------------------------- */

/* Begin to end the connection: no new operation begins, and teardown.h continues. */
static inline void shmnd_qp_begin_teardown(struct shmnd_qp *qp, enum shmnd_link_state state,
                                           uint32_t head_status, enum shmnd_cause cause)
{
    if (qp->state != SHMND_QP_CONNECTED)
        return;
    shmnd_qp_set_state(qp, SHMND_QP_DOWN);
    qp->going_down = true;
    qp->down_state = state;
    qp->down_status = head_status;
    qp->down_since_ns = 0;
    qp->down_cause = cause;
    qp->drain_end = qp->in.read_pos + qp->in.mask + 1;
    shmnd_put32(&qp->link.mine->closing, 1);
    SHMND_KILL_POINT("closing-set");
    /* SYNC closing: fence, pairs with the fence in shmnd_notify_receiver() */
    shmnd_store_then_load();
    shmnd_qp_activate(qp);
}

#endif
