/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiving half of a queue pair: matching messages to receives, and copying the data.
 *
 * Message k matches receive k plus the number of receives that a Flush cancelled, so
 * matching needs no search and has no races. The header of a message is checked against
 * its receive; a message that breaks a rule ends the connection and has no other effect.
 * No function waits, but for a few microseconds to leave half of a large message to its sender: a
 * message without a receive, or one that its sender is still copying, is left for the next poll.
 *
 * A message that invalidates a window unbinds it when the message is whole, before its
 * receive completes: the grant is revoked and the sender's hazard word checked, as by
 * Invalidate (SYNC hazard in tokens.h). Only a sender that violates the order of its queue
 * still has the token in its hazard word then; its message waits, and so do all behind it.
 * Then the receive completes and, if the window's owner wants one, a completion for the
 * window follows.
 */
#ifndef SHMND_RECEIVE_RECEIVE_H
#define SHMND_RECEIVE_RECEIVE_H

#include "engine/contexts.h"
#include "receive/front.h"
#include "send/transmit.h"

/* ---- matching ---------------------------------------------------------------------------- */

/* Match the message at the front to the next receive, which is copied to rx.rqe and rx.sges. */
static inline void shmnd_rx_match(struct shmnd_qp *qp)
{
    struct shmnd_receives *r = qp->receives;
    struct shmnd_rqe *e = &r->entries[r->matched & r->mask];
    struct shmnd_sge *sges = shmnd_rqe_sges(r, r->matched);
    shmnd_rx_unpin(qp, e, sges);
    qp->rx.rqe = *e;
    memcpy(qp->rx.sges, sges, e->sges * sizeof sges[0]);
    r->matched++;
    SHMND_KILL_POINT("receive-matched");
}

static inline void shmnd_rx_cqe(struct shmnd_qp *qp, uint32_t status, uint64_t bytes,
                                struct shmnd_cqe *out)
{
    *out = (struct shmnd_cqe){qp->rx.rqe.context, qp->context,   status,
                              (uint32_t)bytes,    SHMND_RECEIVE, 0};
    if (status != SHMND_SUCCESS)
        shmnd_count_unfilled(qp, status);
    if (qp->rx.flags & SHMND_SLOT_SOLICITED)
        out->flags = SHMND_CQE_SOLICITED;
}

/* Fail the receive with `status`, the Send with `fault`, and the connection. No message is taken
 * from now on. With SHMND_SUCCESS the receive is not the cause: it is canceled, as all others are.
 * The sender may be copying into the receive: it completes when that copy has ended
 * (shmnd_teardown_step). After a copy that found the sender dead, the receive is canceled, as all
 * others are. */
static inline void shmnd_rx_refuse(struct shmnd_qp *qp, uint32_t status, uint32_t fault)
{
    /* SYNC refused: release, pairs with acquire in shmnd_peer_has_refused() */
    shmnd_release32(&qp->link.mine->fault, fault);
    SHMND_KILL_POINT("message-refused");
    qp->rx.refused = status == SHMND_IO_TIMEOUT ? SHMND_CANCELED : status;
    qp->rx.open = true;
    qp->rx.fault = true;
}

/* Unbind the window of the message. Return false if an access is in progress; then call again. If
 * there is no such window, set the token to 0 and return true. */
static inline bool shmnd_rx_unbind(struct shmnd_qp *qp)
{
    if (!qp->rx.unbinding) {
        struct shmnd_region *window = shmnd_window_unbind(qp->registry, qp->rx.token, qp->serial);
        if (!window) {
            qp->rx.token = 0;
            return true;
        }
        qp->rx.unbinding = true;
        qp->rx.extra =
            (struct shmnd_cqe){.context = shmnd_window_take_context(qp->registry, window),
                               .qp_context = qp->context,
                               .status = SHMND_SUCCESS,
                               .type = SHMND_INVALIDATE};
    }
    return qp->peer->dead || shmnd_hazard_is_clear_of(&qp->link.theirs->hazard, qp->rx.token);
}

/* Complete a message of which all bytes have arrived. Return true if `out` was filled. */
static inline bool shmnd_rx_finish(struct shmnd_qp *qp, uint64_t bytes, struct shmnd_cqe *out)
{
    if (qp->rx.flags & SHMND_SLOT_INVALIDATE) {
        qp->rx.got = bytes;
        qp->rx.open = !shmnd_rx_unbind(qp);
        if (qp->rx.open)
            return false;
        if (qp->rx.token == 0) {
            shmnd_rx_refuse(qp, SHMND_INVALID_DEVICE_REQUEST, SHMND_INVALID_DEVICE_REQUEST);
            return false;
        }
        qp->rx.unbinding = false;
        SHMND_KILL_POINT("window-unbound");
        qp->rx.extra_ready = qp->rx.extra.context != NULL;
    }
    shmnd_rx_cqe(qp, SHMND_SUCCESS, bytes, out);
    qp->rx.open = false;
    shmnd_rx_acknowledge(qp);
    shmnd_count_received(qp, bytes);
    return true;
}

/* Return whether the matched receive can hold `length` bytes; otherwise refuse the message. */
static inline bool shmnd_rx_check_receive(struct shmnd_qp *qp, uint64_t length)
{
    if (!shmnd_local_spans(qp->registry, qp->rx.sges, qp->rx.rqe.sges, SHMND_MR_LOCAL_WRITE,
                           &qp->rx.to)) {
        shmnd_rx_refuse(qp, SHMND_ACCESS_VIOLATION, SHMND_REMOTE_ERROR);
        return false;
    }
    if (length > qp->rx.rqe.capacity) {
        shmnd_rx_refuse(qp, SHMND_BUFFER_OVERFLOW, SHMND_REMOTE_ERROR);
        return false;
    }
    return true;
}

/* Copy from slots to memory that may have been truncated, through a staging buffer. Return a
 * status. Not inlined, since its frame is large. */
static __attribute__((noinline, unused)) uint32_t shmnd_rx_copy_staged(
    struct shmnd_qp *qp, struct shmnd_read_cursor *drain, const struct shmnd_spans *part)
{
    uint8_t staged[SHMND_EAGER_LONGEST];
    shmnd_slots_read_bytes(drain, staged, (uint32_t)part->total);
    return shmnd_copy_staged(qp->peer, part, staged, true);
}

/* Copy from slots to the receive, from its byte `off` on. Return a status. */
static inline uint32_t shmnd_rx_copy_out(struct shmnd_qp *qp, uint64_t off, uint32_t length)
{
    struct shmnd_read_cursor drain = shmnd_slots_read_begin(&qp->in, qp->rx.flags);
    /* With length 0, `off + length - 1` may wrap, and then exceeds every length. */
    if (!qp->rx.to.remote && off + length - 1 < qp->rx.to.v[0].length) {
        shmnd_slots_read_bytes(&drain, (void *)(uintptr_t)(qp->rx.to.v[0].at + off), length);
        return SHMND_SUCCESS;
    }
    struct shmnd_spans part;
    shmnd_spans_slice(&qp->rx.to, off, length, &part);
    if (part.remote)
        return shmnd_rx_copy_staged(qp, &drain, &part);
    for (uint32_t i = 0; i < part.count; i++)
        shmnd_slots_read_bytes(&drain, (void *)(uintptr_t)part.v[i].at, (uint32_t)part.v[i].length);
    return SHMND_SUCCESS;
}

/* Copy from the bounce area of the sender to the receive. Return a status. */
static __attribute__((noinline, unused)) uint32_t shmnd_rx_copy_bounced(struct shmnd_qp *qp,
                                                                        uint32_t length)
{
    struct shmnd_spans part;
    shmnd_spans_slice(&qp->rx.to, 0, length, &part);
    /* The copy only reads what it is given: the area is mapped for writing. */
    return shmnd_copy_staged(qp->peer, &part, (void *)(uintptr_t)qp->rx.bounced, true);
}

/* ---- large messages -------------------------------------------------------------------------- */

/* Begin a matched message that is copied from the sender's memory. */
static inline void shmnd_rx_begin_copy(struct shmnd_qp *qp, const struct shmnd_message_header *a)
{
    struct shmnd_job *job = &qp->rx.job;
    job->chunks = shmnd_chunks_of(a->length, qp->taken);
    shmnd_spans_slice(&qp->rx.to, 0, a->length, &job->to);
    job->moved = 0;
    job->takes_over = qp->shared; /* senders do not see the receives of a shared queue */
    job->kind = a->kind == SHMND_KIND_LISTED   ? SHMND_JOB_PULL
                : job->from.total == a->length ? SHMND_JOB_CHUNKS
                                               : SHMND_JOB_NONE;
    qp->rx.open = true;
}

/* Return the status with which the oldest request of this side ends after rx.fault. */
static inline uint32_t shmnd_rx_fault_status(const struct shmnd_qp *qp)
{
    return qp->rx.refused == SHMND_CANCELED ? SHMND_IO_TIMEOUT : SHMND_CANCELED;
}

/* Return whether a copy is prepared that no thread is running. */
static inline bool shmnd_rx_job_is_prepared(const struct shmnd_qp *qp)
{
    return qp->rx.job.kind != SHMND_JOB_NONE && !qp->rx.busy;
}

/* Run the prepared copy, without the interpreter's lock. */
static inline void shmnd_rx_run(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->rx.job;
    if (job->result == SHMND_SUCCESS)
        job->result = job->kind == SHMND_JOB_PULL ? shmnd_run_pull(qp, job)
                                                  : shmnd_run_chunks(qp->peer, job, true);
}

/* End a run of the copy. The sender may have made no call since it announced the message, and make
 * none: then its half is left to this side, and stays prepared. */
static inline void shmnd_rx_run_done(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->rx.job;
    qp->rx.busy = false;
    if (shmnd_job_is_unfinished(job, true))
        return;
    if (job->kind == SHMND_JOB_CHUNKS && job->result == SHMND_SUCCESS && !job->takes_over)
        job->takes_over = shmnd_job_is_left_alone(job);
    else
        job->takes_over = false;
    if (!job->takes_over)
        job->kind = SHMND_JOB_NONE;
}

/* ---- polling -------------------------------------------------------------------------------- */

/* Complete the open message if it is finished now. Return true if `out` was filled. */
static inline bool shmnd_rx_continue(struct shmnd_qp *qp, struct shmnd_cqe *out)
{
    struct shmnd_job *job = &qp->rx.job;
    if (qp->rx.unbinding)
        return shmnd_rx_finish(qp, qp->rx.got, out);
    if (job->result != SHMND_SUCCESS && job->result != SHMND_PENDING) {
        if (job->result == SHMND_REMOTE_ERROR)
            shmnd_rx_refuse(qp, SHMND_SUCCESS, SHMND_ACCESS_VIOLATION);
        else
            shmnd_rx_refuse(qp, job->result, SHMND_REMOTE_ERROR);
        return false;
    }
    if (qp->rx.kind == SHMND_KIND_LISTED ? job->result != SHMND_SUCCESS
                                         : !shmnd_chunks_finished(job->share, &job->chunks))
        return false;
    return shmnd_rx_finish(qp, job->chunks.length, out);
}

/* Consume one part of a message in parts. Return true if `out` was filled. */
static inline bool shmnd_rx_consume_part(struct shmnd_qp *qp, const struct shmnd_message_header *a,
                                         struct shmnd_cqe *out)
{
    if (!shmnd_rx_check_receive(qp, qp->rx.got + a->length))
        return false;
    uint32_t status = shmnd_rx_copy_out(qp, qp->rx.got, a->length);
    if (status != SHMND_SUCCESS) {
        shmnd_rx_refuse(qp, status, SHMND_REMOTE_ERROR);
        return false;
    }
    SHMND_KILL_POINT("part-taken");
    qp->rx.got += a->length;
    qp->rx.open = !(a->flags & SHMND_SLOT_LAST);
    shmnd_rx_consume_slots(qp, a->slots);
    if (qp->rx.open)
        return false;
    return shmnd_rx_finish(qp, qp->rx.got, out);
}

/* Consume the matched message at the front. Return true if `out` was filled. */
static inline bool shmnd_rx_consume(struct shmnd_qp *qp, const struct shmnd_message_header *a,
                                    struct shmnd_cqe *out)
{
    if (a->kind == SHMND_KIND_PART)
        return shmnd_rx_consume_part(qp, a, out);
    if (!shmnd_rx_check_receive(qp, a->length))
        return false;
    if (a->kind == SHMND_KIND_LARGE || a->kind == SHMND_KIND_LISTED) {
        shmnd_rx_begin_copy(qp, a);
        if (a->kind == SHMND_KIND_LARGE)
            shmnd_rx_consume_slots(qp, a->slots);
        return false;
    }
    uint32_t status = a->kind == SHMND_KIND_EAGER     ? shmnd_rx_copy_out(qp, 0, a->length)
                      : a->kind == SHMND_KIND_BOUNCED ? shmnd_rx_copy_bounced(qp, a->length)
                                                      : SHMND_SUCCESS;
    if (status != SHMND_SUCCESS) {
        shmnd_rx_refuse(qp, status, SHMND_REMOTE_ERROR);
        return false;
    }
    SHMND_KILL_POINT("message-copied-out");
    shmnd_rx_consume_slots(qp, a->slots);
    return shmnd_rx_finish(qp, a->length, out);
}

/* Begin a claimed message, or a further part of the one that is open. */
static inline void shmnd_rx_begin(struct shmnd_qp *qp, const struct shmnd_message_header *a)
{
    if (!qp->rx.open) {
        shmnd_rx_match(qp);
        qp->rx.got = 0;
    }
    qp->rx.kind = a->kind;
    qp->rx.flags = a->flags;
    if (a->flags & SHMND_SLOT_INVALIDATE)
        qp->rx.token = a->kind == SHMND_KIND_LISTED ? a->token : shmnd_slots_token(&qp->in);
    qp->rx.job.result = SHMND_SUCCESS;
}

/* Return whether an open message waits for a copy, or for the last access to its window. */
static inline bool shmnd_rx_awaits_end(const struct shmnd_qp *qp)
{
    return qp->rx.open && (qp->rx.kind != SHMND_KIND_PART || qp->rx.unbinding);
}

/* Take up to `max` messages and return the number of completions stored in `out`. Stop at a message
 * that needs a job (rx.job.kind), a segment (rx.needs_segment) or a receive (rx.stalled).
 *
 * Each turn ends one thing, in this order: the second completion of the message before; the message
 * that is open, if it is not one in parts; a short message; any other message. */
static inline uint32_t shmnd_rx_poll(struct shmnd_qp *qp, struct shmnd_cqe *out, uint32_t max)
{
    uint32_t n = 0;
    /* Decided anew: the sender may have reclaimed a listed message that needed a segment. */
    qp->rx.stalled = qp->rx.needs_segment = false;
    /* At most once through the ring, even if the sender keeps writing. */
    for (uint32_t turn = 0; turn < SHMND_RING_USUAL && n < max; turn++) {
        if (qp->rx.extra_ready) {
            qp->rx.extra_ready = false;
            out[n++] = qp->rx.extra;
            continue;
        }
        if (qp->rx.busy || qp->rx.fault)
            break;
        if (shmnd_rx_awaits_end(qp)) {
            if (qp->rx.job.kind != SHMND_JOB_NONE || !shmnd_rx_continue(qp, &out[n]))
                break;
            n++;
            continue;
        }
        if (!qp->rx.open && shmnd_rx_take_short(qp, &out[n])) {
            n++;
            continue;
        }
        struct shmnd_message_header a;
        enum shmnd_front front = shmnd_rx_claim_front(qp, &a);
        if (front == SHMND_FRONT_WAITS)
            break;
        if (front == SHMND_FRONT_SKIPPED)
            continue;
        shmnd_rx_begin(qp, &a);
        if (shmnd_rx_consume(qp, &a, &out[n]))
            n++;
    }
    return n;
}

#endif
