/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending half of a queue pair: executing requests in order, running prepared
 * copies, and failing requests that waited too long.
 *
 * Behind a Send that waits only further Sends are issued. All functions require the
 * lock of the queue pair, except shmnd_tx_run(), which copies and accesses only the
 * prepared job.
 */
#ifndef SHMND_SEND_TRANSMIT_H
#define SHMND_SEND_TRANSMIT_H

#include "send/read_write.h"
#include "send/send.h"

/* ---- running a prepared copy (without the interpreter's lock) ------------------------ */

/* Run the copy that shmnd_tx_advance() prepared, or its next piece. Its result is in the job. */
static inline void shmnd_tx_run(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->tx.job;
    struct shmnd_wqe *w = &qp->wq.entries[job->request & qp->wq.mask];
    /* A correct peer has withdrawn all memory in a segment that it released. */
    if (job->unmapped != qp->peer->unmapped) {
        job->result = SHMND_PENDING;
        return;
    }
    if (qp->peer->dead && job->kind == SHMND_JOB_RDMA && job->moved) {
        job->result = SHMND_IO_TIMEOUT; /* between two pieces: the other end is gone */
        return;
    }
    switch (job->kind) {
    case SHMND_JOB_RDMA: job->result = shmnd_run_rdma(qp, job); break;
    case SHMND_JOB_PLACE: job->result = shmnd_run_place(qp, job, w); break;
    case SHMND_JOB_CHUNKS:
        if (!shmnd_push_enter(qp, job->revision)) {
            job->result = SHMND_PENDING;
            break;
        }
        job->result = shmnd_run_chunks(qp->peer, job, false);
        shmnd_hazard_leave(&qp->link.mine->hazard);
        break;
    default: job->result = SHMND_SUCCESS;
    }
}

/* End a push of chunks of a large message, which was announced before: fail its Send if the copy
 * failed, and notify the receiver. */
static inline void shmnd_tx_finish_push(struct shmnd_qp *qp, const struct shmnd_job *job)
{
    if (job->request < qp->wq.oldest)
        return; /* the request has completed meanwhile */
    struct shmnd_wqe *w = &qp->wq.entries[job->request & qp->wq.mask];
    if (job->result != SHMND_SUCCESS && job->result != SHMND_PENDING)
        shmnd_tx_fail(w, job->result);
    shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
}

/* Mark a Send as sent whose message was copied into its receive, and notify the receiver. The copy
 * published the message in its one slot. */
static inline void shmnd_tx_finish_place(struct shmnd_qp *qp, struct shmnd_wqe *w, bool committed)
{
    shmnd_tx_assign_message(qp, w);
    w->slot_pos--; /* the slot was published before the lock was held again */
    qp->messages++;
    w->has_receive = w->committed = committed;
    shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
    shmnd_count_sent(qp, w->length);
    shmnd_tx_mark_sent(qp, w, false);
}

/* Finish the request of a copy that has run, or leave the next piece prepared. */
static inline void shmnd_tx_finish_job(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->tx.job;
    enum shmnd_job_kind kind = job->kind;
    qp->tx.started = false;
    if (shmnd_job_is_unfinished(job, false))
        return; /* still prepared: the next call runs another piece */
    qp->tx.busy = false;
    job->kind = SHMND_JOB_NONE;
    if (kind == SHMND_JOB_CHUNKS) {
        shmnd_tx_finish_push(qp, job);
        return;
    }
    if (job->result == SHMND_PENDING)
        return; /* its target was withdrawn: the request is issued again */
    struct shmnd_wqe *w = &qp->wq.entries[qp->wq.next & qp->wq.mask];
    if (kind == SHMND_JOB_PLACE && job->result == SHMND_SUCCESS) {
        shmnd_tx_finish_place(qp, w, job->committed);
        return;
    }
    if (job->result == SHMND_SUCCESS)
        shmnd_count_rdma(qp, w->type, w->length);
    shmnd_tx_end_copy(qp, w, job->result);
    qp->wq.next++;
}

/* Return whether the last issued request has failed. It ends the connection when those before it
 * are done, and no request behind it may reach the other side. */
static inline bool shmnd_tx_is_broken(const struct shmnd_qp *qp)
{
    const struct shmnd_wqe *last = &qp->wq.entries[(qp->wq.next - 1) & qp->wq.mask];
    return qp->wq.next != qp->wq.oldest && last->state == SHMND_WQE_DONE &&
           last->status != SHMND_SUCCESS && last->status != SHMND_CANCELED;
}

static __attribute__((noinline, cold, unused)) void shmnd_tx_list_waiting(struct shmnd_qp *qp)
{
    if (qp->state != SHMND_QP_CONNECTED || shmnd_tx_is_broken(qp))
        return;
    uint8_t flags = shmnd_backlog_add_waiting(qp);
    shmnd_backlog_publish_state(qp);
    if (!flags)
        return;
    shmnd_batch_publish(qp);
    shmnd_notify_receiver(qp, flags & SHMND_SLOT_SOLICITED);
}

/* List the Sends that could not be sent, before the call returns to the program. */
static inline void shmnd_tx_update_backlog(struct shmnd_qp *qp)
{
    if (qp->wq.next != qp->wq.end || qp->backlog.shown)
        shmnd_tx_list_waiting(qp);
}

/* Ask the peer to poll at its next call, of whatever kind, for requests that were just posted or
 * issued and are not complete: the sender may make no further call. A message that was issued since
 * needs a poll of its own, since a peer that has polled may sleep again. Not again for the same
 * ones: repeated requests would wake a peer that cannot make progress on them. */
static __attribute__((noinline, cold, unused)) void shmnd_tx_request_poll(struct shmnd_qp *qp)
{
    if (qp->wq.poll_requested == qp->wq.end && qp->wq.poll_issued == qp->wq.next)
        return;
    if (qp->state != SHMND_QP_CONNECTED || qp->deferred)
        return;
    qp->wq.poll_requested = qp->wq.end;
    qp->wq.poll_issued = qp->wq.next;
    shmnd_tx_set_wants_credit(qp, true);
    shmnd_notify_request_poll(qp);
}

/* End a run, under the lock again. The call may end here, so requests that were posted meanwhile
 * are listed, and the peer is asked to copy the other chunks of a large message. */
static inline void shmnd_tx_run_done(struct shmnd_qp *qp)
{
    qp->tx.again = qp->tx.job.kind == SHMND_JOB_CHUNKS;
    shmnd_tx_finish_job(qp);
    shmnd_tx_update_backlog(qp);
    if (qp->tx.busy && qp->tx.job.kind == SHMND_JOB_CHUNKS)
        shmnd_tx_request_poll(qp);
}

/* ---- advancing the queue ------------------------------------------------------------- */

/* Issue a Bind, or an Invalidate once the peer's accesses to the window have ended. Return false if
 * they have not. */
static inline bool shmnd_tx_issue_window(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    if (w->type == SHMND_INVALIDATE && w->status == SHMND_SUCCESS && !qp->peer->dead &&
        !shmnd_hazard_is_clear_of(&qp->link.theirs->hazard, w->remote_token))
        return false;
    qp->stalled_since_ns = 0;
    w->state = SHMND_WQE_DONE;
    qp->wq.next++;
    return true;
}

/* Return whether an Invalidate waits for the peer's access to the window to end. */
static inline bool shmnd_tx_awaits_peer(const struct shmnd_qp *qp)
{
    const struct shmnd_wqe *w = &qp->wq.entries[qp->wq.oldest & qp->wq.mask];
    return qp->wq.oldest == qp->wq.next && qp->wq.oldest != qp->wq.end &&
           w->type == SHMND_INVALIDATE && w->state != SHMND_WQE_DONE;
}

static inline enum shmnd_progress shmnd_tx_issue(struct shmnd_qp *qp)
{
    while (!qp->tx.busy && qp->state == SHMND_QP_CONNECTED && !qp->going_down) {
        shmnd_tx_retire(qp);
        if (qp->state != SHMND_QP_CONNECTED || qp->wq.oldest == qp->wq.end)
            return SHMND_IDLE;
        if (qp->wq.next == qp->wq.end)
            return shmnd_tx_prepare_push(qp);
        if (shmnd_tx_is_broken(qp))
            return SHMND_IDLE;
        struct shmnd_wqe *w = &qp->wq.entries[qp->wq.next & qp->wq.mask];
        uint64_t before = qp->wq.next;
        enum shmnd_progress p = SHMND_IDLE;
        qp->tx.job.request = before;
        if (w->state == SHMND_WQE_DONE)
            qp->wq.next++; /* cancelled before it was issued */
        else if (w->type == SHMND_SEND)
            p = shmnd_tx_issue_send(qp, w);
        else if (qp->wq.oldest != qp->wq.next)
            return shmnd_tx_prepare_push(qp); /* it waits behind a Send that waits */
        else if (w->type == SHMND_READ || w->type == SHMND_WRITE)
            p = shmnd_tx_issue_rdma(qp, w);
        else if (!shmnd_tx_issue_window(qp, w))
            return SHMND_IDLE;
        if (p != SHMND_IDLE)
            return p;
        if (qp->wq.next == before)
            return shmnd_tx_prepare_push(qp);
    }
    return SHMND_IDLE;
}

/* Postpone the chunks of a large message until all posted requests are issued. Return false if a
 * job is prepared or running that cannot be postponed. */
static inline bool shmnd_tx_postpone_copy(struct shmnd_qp *qp)
{
    if (!qp->tx.busy)
        return true;
    if (qp->tx.started || qp->tx.job.kind != SHMND_JOB_CHUNKS || qp->wq.next == qp->wq.end)
        return false;
    qp->tx.busy = false;
    qp->tx.job.kind = SHMND_JOB_NONE;
    return true;
}

/* Issue all requests that can be issued. Return SHMND_RUN if the caller must run the job
 * (shmnd_tx_run, then shmnd_tx_run_done) and call again; SHMND_NEEDS_MAP: map the segment and call
 * again. */
static inline enum shmnd_progress shmnd_tx_advance(struct shmnd_qp *qp)
{
    if (!shmnd_tx_postpone_copy(qp))
        return qp->tx.started ? SHMND_IDLE : SHMND_RUN;
    enum shmnd_progress p = shmnd_tx_issue(qp);
    shmnd_tx_update_backlog(qp);
    if (p == SHMND_IDLE) {
        qp->tx.again = false;
        if (qp->wq.oldest != qp->wq.end)
            shmnd_tx_request_poll(qp);
    }
    return p;
}

/* Recall the messages sent after the request at `pos`, to send them again. Return false if one of
 * them is matched, and so are those before it. */
static inline bool shmnd_tx_recall_after(struct shmnd_qp *qp, uint64_t pos)
{
    while (qp->wq.next - pos > 1) {
        struct shmnd_wqe *w = &qp->wq.entries[(qp->wq.next - 1) & qp->wq.mask];
        if (w->state == SHMND_WQE_SENT && !shmnd_tx_recall(qp, w))
            return false;
        if (w->state == SHMND_WQE_SENT) {
            w->state = SHMND_WQE_QUEUED;
            w->large = false;
        }
        qp->wq.next--;
        qp->wq.push = qp->wq.push < qp->wq.next ? qp->wq.push : qp->wq.next;
        qp->wq.whole = qp->wq.whole < qp->wq.next ? qp->wq.whole : qp->wq.next;
    }
    return true;
}

/* Fail the oldest Send, which has waited too long, unless it was matched meanwhile. */
static inline void shmnd_tx_time_out(struct shmnd_qp *qp, struct shmnd_wqe *oldest)
{
    shmnd_backlog_withdraw(qp);
    if (oldest->state == SHMND_WQE_SENT && oldest->pulled)
        return;
    if (!shmnd_tx_recall_after(qp, qp->wq.oldest))
        return;
    if (oldest->state == SHMND_WQE_SENT && !shmnd_tx_recall(qp, oldest))
        return;
    qp->tx.timed_out = true;
    shmnd_tx_fail(oldest, SHMND_IO_TIMEOUT);
    if (qp->wq.next == qp->wq.oldest)
        qp->wq.next++;
    shmnd_tx_retire(qp);
}

/* Check whether the oldest Send waits for a receive, and fail it after its time-out. */
static inline void shmnd_tx_check_rnr(struct shmnd_qp *qp, uint64_t now_ns)
{
    if (qp->wq.oldest == qp->wq.end || qp->tx.busy || qp->state != SHMND_QP_CONNECTED)
        return;
    struct shmnd_wqe *w = &qp->wq.entries[qp->wq.oldest & qp->wq.mask];
    shmnd_tx_set_wants_credit(qp, true);
    if (w->type != SHMND_SEND || w->state == SHMND_WQE_DONE || qp->link.their_srq)
        return;
    uint64_t cancelled;
    bool sent = w->state == SHMND_WQE_SENT;
    uint64_t met = sent ? w->message - w->recalled : qp->messages - qp->recalled;
    if (!(shmnd_tx_update_credit(qp, &cancelled) & 1) && met + cancelled < qp->seen.entries)
        shmnd_count_waiting(qp, w, 0); /* a receive is posted; only the copy is missing */
    else if (w->since_ns == 0)
        shmnd_count_waiting(qp, w, now_ns);
    else if (now_ns - w->since_ns > qp->rnr_ns)
        shmnd_tx_time_out(qp, w);
}

#endif
