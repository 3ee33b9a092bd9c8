/* SPDX-License-Identifier: Apache-2.0
 *
 * Executing a Send: through the ring, into the posted receive, or advertised for
 * both sides to copy.
 *
 * Called for the first request that is not issued, under the lock of the queue pair;
 * no function waits. A Send that cannot be executed now is left for the next call, and
 * a long copy is prepared as a job. After a death at any instruction the message was
 * never sent, or its chunks are not all done: the connection ends, with no other effect.
 *
 * A Send that invalidates a window of the peer carries its token before the payload, in
 * the last part if there are several. It never completes because of a posted receive: it
 * waits for `taken`, and can be recalled until its reader claims it. So can the messages
 * that are issued behind it until then.
 *
 * Argument for SYNC placing. Before a sender writes into a posted receive it sets its
 * hazard word, fences, and checks that `revision` is the even value it knows and that
 * `closing` is unset. A Flush or a Deregister makes `revision` odd, fences, then checks
 * the hazard word. At least one of the two sees the other's store: either the sender finds
 * the receive withdrawn, or the owner finds the push and lets it finish. A long copy is
 * pushed piece by piece, each with its own check; if the receive is withdrawn between two
 * of them, the whole message is issued again.
 */
#ifndef SHMND_SEND_SEND_H
#define SHMND_SEND_SEND_H

#include "send/choose.h"

/* ---- through the ring ---------------------------------------------------------------- */

/* Begin the next message and return its cursor, with `token` before the payload if `flags` have
 * INVALIDATE. */
static inline struct shmnd_write_cursor shmnd_tx_write_begin(struct shmnd_qp *qp, uint8_t flags,
                                                             uint32_t token)
{
    struct shmnd_write_cursor fill = shmnd_slots_write_begin(&qp->out);
    if (flags & SHMND_SLOT_INVALIDATE)
        shmnd_slots_write(&fill, &token, sizeof token);
    return fill;
}

/* Write a whole message to the ring. The caller has checked that there is room. With `defer` it is
 * published with its batch. */
static inline void shmnd_tx_write_eager(struct shmnd_qp *qp, const struct shmnd_sge *sges,
                                        uint32_t n, const uint8_t *inlined, uint32_t length,
                                        uint8_t flags, uint32_t token, bool defer)
{
    struct shmnd_write_cursor fill = shmnd_tx_write_begin(qp, flags, token);
    if (inlined) {
        shmnd_slots_write(&fill, inlined, length);
    } else {
        for (uint32_t i = 0; i < n; i++)
            if (sges[i].length)
                shmnd_slots_write(&fill, (const void *)(uintptr_t)sges[i].address, sges[i].length);
    }
    uint32_t slots = shmnd_slots_for(shmnd_slots_prefix(flags) + length);
    if (defer)
        shmnd_slots_defer(&qp->out, length, SHMND_KIND_EAGER, flags, slots,
                          !shmnd_batch_defer(qp, flags & SHMND_SLOT_SOLICITED));
    else
        shmnd_slots_publish(&qp->out, length, SHMND_KIND_EAGER, flags, slots);
    if (slots > 1 && qp->answered != (uint32_t)qp->in.read_pos) {
        qp->answered = (uint32_t)qp->in.read_pos;
        shmnd_slots_own_next(&qp->out, slots);
    }
    qp->messages++;
}

static inline void shmnd_tx_mark_sent(struct shmnd_qp *qp, struct shmnd_wqe *w, bool large)
{
    w->state = SHMND_WQE_SENT;
    w->large = large;
    qp->wq.next++;
    if (w->flags & SHMND_OP_INVALIDATE)
        qp->wq.uncommitted = qp->wq.next;
}

/* Send a message through the ring, which has room. Its payload is in `sges`, or at `bytes`. */
static __attribute__((noinline, unused)) void shmnd_tx_issue_eager(struct shmnd_qp *qp,
                                                                   struct shmnd_wqe *w,
                                                                   const struct shmnd_sge *sges,
                                                                   const uint8_t *bytes)
{
    uint32_t length = (uint32_t)w->length;
    uint8_t flags = shmnd_tx_slot_flags(w->flags, false);
    w->has_receive = shmnd_tx_may_commit(qp, w) && shmnd_tx_has_credit(qp, length);
    shmnd_tx_assign_message(qp, w);
    shmnd_tx_write_eager(qp, sges, w->sges, bytes, length,
                         w->has_receive ? flags : flags | SHMND_SLOT_ACK, w->remote_token,
                         qp->batch);
    if (!qp->batch)
        shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
    shmnd_count_sent(qp, length);
    /* SYNC closing: the fence in shmnd_notify_receiver() pairs with the closer's */
    w->committed = w->has_receive && !qp->batch && !shmnd_relaxed32(&qp->link.theirs->closing);
    shmnd_tx_mark_sent(qp, w, false);
}

/* Send a message through the bounce area, which has room. */
static __attribute__((noinline, unused)) void shmnd_tx_issue_bounced(struct shmnd_qp *qp,
                                                                     struct shmnd_wqe *w)
{
    uint32_t length = (uint32_t)w->length, at = shmnd_bounce_take(qp, length);
    uint8_t flags = shmnd_tx_slot_flags(w->flags, false);
    uint32_t status = shmnd_copy_staged(qp->peer, &qp->tx.job.from, qp->link.my_bounce + at, false);
    if (status != SHMND_SUCCESS) {
        qp->bounces.count--;
        shmnd_tx_fail(w, status);
        qp->wq.next++;
        return;
    }
    SHMND_KILL_POINT("message-bounced");
    w->has_receive = shmnd_tx_may_commit(qp, w) && shmnd_tx_has_credit(qp, length);
    flags = w->has_receive ? flags : flags | SHMND_SLOT_ACK;
    shmnd_tx_assign_message(qp, w);
    struct shmnd_write_cursor fill = shmnd_tx_write_begin(qp, flags, w->remote_token);
    shmnd_slots_write(&fill, &at, sizeof at);
    shmnd_slots_publish(&qp->out, length, SHMND_KIND_BOUNCED, flags, 1);
    qp->messages++;
    shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
    shmnd_count_sent(qp, length);
    /* SYNC closing: the fence in shmnd_notify_receiver() pairs with the closer's */
    w->committed = w->has_receive && !shmnd_relaxed32(&qp->link.theirs->closing);
    shmnd_tx_mark_sent(qp, w, false);
}

/* Send a message through the ring from memory that may have been truncated, through a staging
 * buffer. Not inlined, since its frame is large. */
static __attribute__((noinline, unused)) void shmnd_tx_issue_staged(struct shmnd_qp *qp,
                                                                    struct shmnd_wqe *w)
{
    uint8_t staged[SHMND_EAGER_LONGEST];
    uint32_t status = shmnd_copy_staged(qp->peer, &qp->tx.job.from, staged, false);
    if (status == SHMND_SUCCESS) {
        shmnd_tx_issue_eager(qp, w, NULL, staged);
        return;
    }
    shmnd_tx_fail(w, status);
    qp->wq.next++;
}

/* Send parts of a message, as room permits: neither side can access the memory of the other. */
static __attribute__((noinline, unused)) enum shmnd_progress
shmnd_tx_issue_parts(struct shmnd_qp *qp, struct shmnd_wqe *w, const struct shmnd_spans *source)
{
    uint8_t flags = shmnd_tx_slot_flags(w->flags, true);
    uint32_t prefix = shmnd_slots_prefix(flags), most = shmnd_eager_max(&qp->out) - prefix;
    while (w->moved < w->length) {
        uint64_t left = w->length - w->moved;
        uint32_t n = left < most ? (uint32_t)left : most;
        bool last = left <= most;
        uint8_t part_flags = last ? flags | SHMND_SLOT_LAST : flags & ~SHMND_SLOT_INVALIDATE;
        uint32_t slots = shmnd_slots_for(shmnd_slots_prefix(part_flags) + n);
        if (!shmnd_slots_have_room(&qp->out, slots))
            return SHMND_IDLE;
        struct shmnd_spans part;
        shmnd_spans_slice(source, w->moved, n, &part);
        uint8_t staged[SHMND_EAGER_MAX];
        if (part.remote) {
            uint32_t status = shmnd_copy_staged(qp->peer, &part, staged, false);
            if (status != SHMND_SUCCESS) {
                shmnd_tx_fail(w, status);
                qp->wq.next++;
                return SHMND_IDLE;
            }
            shmnd_spans_clear(&part);
            shmnd_spans_add(&part, (uint64_t)(uintptr_t)staged, n);
        }
        struct shmnd_write_cursor fill = shmnd_tx_write_begin(qp, part_flags, w->remote_token);
        for (uint32_t i = 0; i < part.count; i++)
            shmnd_slots_write(&fill, (const void *)(uintptr_t)part.v[i].at,
                              (uint32_t)part.v[i].length);
        w->moved += n;
        w->slot_pos = qp->out.write_pos;
        shmnd_slots_publish(&qp->out, n, SHMND_KIND_PART, part_flags, slots);
        SHMND_KILL_POINT("part-sent");
        shmnd_notify_receiver(qp, last && (w->flags & SHMND_OP_SOLICIT));
    }
    w->message = qp->messages++;
    w->recalled = qp->recalled;
    shmnd_count_sent(qp, w->length);
    shmnd_tx_mark_sent(qp, w, true);
    return SHMND_IDLE;
}

/* ---- advertised: both sides copy ----------------------------------------------------- */

/* Write the header of a large message: the extents of its source, from which the reader copies
 * chunks. The payload is {u32 extents, u32 share, extents...}. */
static inline void shmnd_tx_write_large(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                        const struct shmnd_sge *sges)
{
    struct shmnd_extent x[SHMND_MAX_SGE];
    uint32_t n = shmnd_tx_extents(qp, sges, w->sges, x);
    uint32_t head[2] = {n, w->share};
    uint8_t flags = shmnd_tx_slot_flags(w->flags, true);
    uint32_t payload = (uint32_t)sizeof head + n * (uint32_t)sizeof x[0];
    struct shmnd_write_cursor fill = shmnd_tx_write_begin(qp, flags, w->remote_token);
    shmnd_slots_write(&fill, head, sizeof head);
    shmnd_slots_write(&fill, x, n * (uint32_t)sizeof x[0]);
    shmnd_slots_publish(&qp->out, (uint32_t)w->length, SHMND_KIND_LARGE, flags,
                        shmnd_slots_for(shmnd_slots_prefix(flags) + payload));
}

static inline void shmnd_tx_advertise_large(struct shmnd_qp *qp, struct shmnd_wqe *w,
                                            const struct shmnd_sge *sges, struct shmnd_share *share)
{
    qp->tx.job.chunks = shmnd_chunks_of(w->length, qp->messages);
    shmnd_chunks_advertise(share, &qp->tx.job.chunks);
    w->share = (uint8_t)(qp->shares.count++ % SHMND_SHARES);
    qp->shares.message[w->share] = qp->messages;
    shmnd_tx_assign_message(qp, w);
    shmnd_tx_write_large(qp, w, sges);
    qp->messages++;
    SHMND_KILL_POINT("large-announced");
    shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
    shmnd_count_sent(qp, w->length);
    shmnd_tx_mark_sent(qp, w, true);
    qp->tx.job.share = share;
}

static inline enum shmnd_progress shmnd_tx_begin_push(struct shmnd_qp *qp, bool takes_over)
{
    qp->tx.job.kind = SHMND_JOB_CHUNKS;
    qp->tx.job.takes_over = takes_over;
    qp->tx.busy = true;
    return SHMND_RUN;
}

/* ---- issuing ------------------------------------------------------------------------- */

/* Store the ranges of the source of a Send in `from`. Return false if its memory is not
 * registered. */
static inline bool shmnd_tx_source(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                   const struct shmnd_sge *sges, struct shmnd_spans *from)
{
    if (!(w->flags & SHMND_OP_INLINE))
        return shmnd_local_spans(qp->registry, sges, w->sges, 0, from);
    shmnd_spans_clear(from);
    shmnd_spans_add(from, (uint64_t)(uintptr_t)shmnd_wqe_inline(qp, qp->wq.next), w->length);
    return true;
}

static __attribute__((noinline, unused)) enum shmnd_progress
shmnd_tx_issue_send(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    const struct shmnd_sge *sges = shmnd_wqe_sges(qp, qp->wq.next);
    struct shmnd_job *job = &qp->tx.job;
    struct shmnd_share *share = NULL;
    int aim = -1;
    /* No message is sent to a side that closes: until it is down, a copy into its receives would be
     * rejected again and again. */
    if (shmnd_relaxed32(&qp->link.theirs->closing))
        return SHMND_IDLE;
    if (!shmnd_tx_source(qp, w, sges, &job->from)) {
        if (shmnd_backlog_reclaim(qp, w)) {
            shmnd_tx_fail(w, SHMND_ACCESS_VIOLATION);
            qp->wq.next++;
        }
        return SHMND_IDLE;
    }
    enum shmnd_protocol way = shmnd_tx_choose_protocol(qp, w, sges, &aim, &share);
    if (way != SHMND_PROTOCOL_EAGER)
        shmnd_batch_publish(qp); /* also where the reader has to make room */
    if (way == SHMND_PROTOCOL_MAP)
        return SHMND_NEEDS_MAP;
    if (way == SHMND_PROTOCOL_NONE || !shmnd_backlog_reclaim(qp, w))
        return SHMND_IDLE;
    if (way == SHMND_PROTOCOL_PARTS)
        return shmnd_tx_issue_parts(qp, w, &job->from);
    if (aim > 0 && job->to.remote)
        shmnd_tx_count_way(qp, w, way);
    if (way == SHMND_PROTOCOL_LARGE) {
        shmnd_tx_advertise_large(qp, w, sges, share);
        if (aim < 0)
            return SHMND_IDLE;
        return shmnd_tx_begin_push(qp, false);
    }
    if (way == SHMND_PROTOCOL_PLACE) {
        job->kind = SHMND_JOB_PLACE;
        job->moved = 0;
        job->committed = shmnd_tx_may_commit(qp, w);
        qp->tx.busy = true;
        return SHMND_RUN;
    }
    if (way == SHMND_PROTOCOL_BOUNCE)
        shmnd_tx_issue_bounced(qp, w);
    else if (job->from.remote)
        shmnd_tx_issue_staged(qp, w);
    else
        shmnd_tx_issue_eager(qp, w, sges,
                             w->flags & SHMND_OP_INLINE ? shmnd_wqe_inline(qp, qp->wq.next) : NULL);
    return SHMND_IDLE;
}

/* Return the next large message from `*at` on that both sides copy, and set up the job for it;
 * NULL: there is none. */
static inline struct shmnd_wqe *shmnd_tx_next_large(struct shmnd_qp *qp, uint64_t *at)
{
    struct shmnd_job *job = &qp->tx.job;
    if (*at < qp->wq.oldest)
        *at = qp->wq.oldest;
    for (; *at < qp->wq.next; ++*at) {
        struct shmnd_wqe *w = &qp->wq.entries[*at & qp->wq.mask];
        if (w->state != SHMND_WQE_SENT || !w->large || w->moved)
            continue;
        job->chunks = shmnd_chunks_of(w->length, w->message);
        job->share = &qp->link.mine->shares[w->share];
        job->request = *at;
        job->takes_over = false;
        return w;
    }
    return NULL;
}

/* Return SHMND_RUN if the chunks of this message can be pushed, SHMND_NEEDS_MAP if a segment must
 * be mapped first, otherwise SHMND_IDLE. */
static inline enum shmnd_progress shmnd_tx_aim_push(struct shmnd_qp *qp, const struct shmnd_wqe *w)
{
    struct shmnd_job *job = &qp->tx.job;
    if (qp->link.their_srq || shmnd_relaxed32(&qp->link.theirs->closing))
        return SHMND_IDLE;
    int aim = shmnd_tx_resolve_receive(qp, w->message, w->recalled, w->length, job);
    if (aim <= 0)
        return aim == 0 ? SHMND_NEEDS_MAP : SHMND_IDLE;
    /* A source that was deregistered meanwhile is left to the receiver, or the Send is recalled. */
    const struct shmnd_sge *sges = shmnd_wqe_sges(qp, job->request);
    return shmnd_local_spans(qp->registry, sges, w->sges, 0, &job->from) ? SHMND_RUN : SHMND_IDLE;
}

/* Prepare a push of the receiver's half of the oldest message that is not whole, unless the
 * receiver copies it. A receiver that has taken a message since the last wait is waited for
 * again. */
static inline enum shmnd_progress shmnd_tx_prepare_takeover(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->tx.job;
    struct shmnd_wqe *w;
    uint64_t taken = shmnd_relaxed64(&qp->link.theirs->taken);
    /* The share of a message that was taken may be that of a later one by now. */
    while ((w = shmnd_tx_next_large(qp, &qp->wq.whole)) &&
           (w->message < taken || shmnd_chunks_finished(job->share, &job->chunks)))
        qp->wq.whole++;
    if (!w || !shmnd_chunks_unclaimed(shmnd_relaxed64(&job->share->claim), &job->chunks))
        return SHMND_IDLE;
    enum shmnd_progress p = shmnd_tx_aim_push(qp, w);
    if (p != SHMND_RUN)
        return p;
    job->left_alone = job->left_alone && taken == qp->tx.taken_then;
    qp->tx.taken_then = taken;
    return shmnd_job_is_left_alone(job) ? shmnd_tx_begin_push(qp, true) : SHMND_IDLE;
}

/* Prepare a push of the first advertised large message of which this side has chunks to copy, if it
 * has a receive by now: this side's half, and only then the chunks that the receiver leaves to
 * it. */
static inline enum shmnd_progress shmnd_tx_prepare_push(struct shmnd_qp *qp)
{
    for (struct shmnd_wqe *w; (w = shmnd_tx_next_large(qp, &qp->wq.push)); qp->wq.push++) {
        if (!shmnd_job_has_chunks(&qp->tx.job, false))
            continue;
        enum shmnd_progress p = shmnd_tx_aim_push(qp, w);
        if (p == SHMND_RUN)
            return shmnd_tx_begin_push(qp, false);
        if (p == SHMND_NEEDS_MAP)
            return p;
        break; /* its receive is unknown or not to be written now; mostly so are those behind it */
    }
    return shmnd_tx_prepare_takeover(qp);
}

/* ---- placing (without the interpreter's lock) ---------------------------------------- */

static inline bool shmnd_push_enter(struct shmnd_qp *qp, uint64_t revision)
{
    /* SYNC hazard-clear: release, for an owner that waits for the previous value to go */
    shmnd_release64(&qp->link.mine->hazard, SHMND_HAZARD_PUSH);
    SHMND_KILL_POINT("push-entered");
    /* SYNC placing: fence, pairs with the fence in shmnd_rx_withdraw() */
    shmnd_store_then_load();
    if (shmnd_relaxed64(&qp->link.theirs->revision) == revision &&
        !shmnd_relaxed32(&qp->link.theirs->closing))
        return true;
    shmnd_hazard_leave(&qp->link.mine->hazard);
    return false;
}

static inline uint32_t shmnd_run_place(struct shmnd_qp *qp, struct shmnd_job *job,
                                       const struct shmnd_wqe *w)
{
    if (!shmnd_push_enter(qp, job->revision))
        return SHMND_PENDING;
    /* The cache line that the reader polls is fetched while the copy runs. */
    shmnd_prefetch_to_write(shmnd_writer_slot(&qp->out, qp->out.write_pos));
    uint32_t status = shmnd_copy_piece(qp->peer, job);
    SHMND_KILL_POINT("message-placed");
    if (status == SHMND_SUCCESS && job->moved == job->to.total) {
        uint8_t flags = shmnd_tx_slot_flags(w->flags, !job->committed);
        struct shmnd_write_cursor fill = shmnd_tx_write_begin(qp, flags, w->remote_token);
        shmnd_slots_write(&fill, &job->index, sizeof job->index);
        shmnd_slots_publish(&qp->out, (uint32_t)w->length, SHMND_KIND_PLACED, flags, 1);
    }
    shmnd_hazard_leave(&qp->link.mine->hazard);
    return status;
}

#endif
