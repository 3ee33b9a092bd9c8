/* SPDX-License-Identifier: Apache-2.0
 *
 * Deregister: has every access to the memory of a region ended?
 *
 * The owner first withdraws the region under its lock: lookups of an SGE in it fail and its
 * grant is revoked, so no new copy to or from this memory is prepared. shmnd_qp_has_released()
 * then checks each connection for copies that were prepared before or are running:
 *
 * - A Read or Write of the peer sets the token in its hazard word (SYNC hazard and
 *   hazard-clear in tokens.h).
 * - A push into a posted receive depends on `revision` and sets the hazard word (SYNC placing
 *   in send.h): withdrawing the receive rejects a push that has not begun, and the owner waits
 *   for one that has.
 * - A large message that is matched is copied by both sides, and the sender may begin at any
 *   time. Its receive is no longer posted and cannot be withdrawn; the region is released when
 *   all chunks are copied (SYNC chunk-done in scattered_copy.h), since none is left to claim.
 * - A Send of this side that is not matched is recalled by a compare-and-swap, which succeeds
 *   only if the reader has not claimed the message, and fails. If the reader has claimed a
 *   large one, the owner waits as above; the bytes of a small one are in the ring, and it
 *   completes as usual.
 * - A copy by a thread of this process holds the region until that thread has the lock again,
 *   whatever the peer reports meanwhile.
 * - A message that goes through the ring is copied under the lock.
 *
 * A connection in teardown waits for all of these before it is down (teardown.h); a connection
 * that is down is not checked. Serves invariant 1.
 */
#ifndef SHMND_TEARDOWN_DEREGISTER_H
#define SHMND_TEARDOWN_DEREGISTER_H

#include "teardown/teardown.h"

static inline bool shmnd_sges_use_region(const struct shmnd_sge *sges, uint32_t n, uint32_t token)
{
    bool names = false;
    for (uint32_t i = 0; i < n; i++)
        names = names || sges[i].token == token;
    return names;
}

/* ---- requests ---------------------------------------------------------------------- */

/* Return whether the request at `pos` has an element in the region. Inline data has no elements. */
static inline bool shmnd_wqe_uses_region(struct shmnd_qp *qp, uint64_t pos, uint32_t token)
{
    return shmnd_sges_use_region(shmnd_wqe_sges(qp, pos), qp->wq.entries[pos & qp->wq.mask].sges,
                                 token);
}

/* Return whether a message in parts is being sent. Then the messages before it must not be recalled
 * and sent again. */
static inline bool shmnd_tx_is_sending_parts(const struct shmnd_qp *qp)
{
    return qp->wq.next != qp->wq.end && qp->wq.entries[qp->wq.next & qp->wq.mask].moved;
}

/* End the use of the region as the source of messages. A message that waits for a receive fails.
 * Return false if a large one is being copied; check again later. */
static inline bool shmnd_tx_drop_region(struct shmnd_qp *qp, uint32_t token)
{
    bool settled = true;
    shmnd_tx_retire(qp); /* finished requests are not recalled */
    if (qp->state != SHMND_QP_CONNECTED)
        return true;
    shmnd_backlog_withdraw(qp);
    for (uint64_t i = qp->wq.oldest; i != qp->wq.next; i++) {
        struct shmnd_wqe *w = &qp->wq.entries[i & qp->wq.mask];
        if (w->moved || w->state != SHMND_WQE_SENT || !shmnd_wqe_uses_region(qp, i, token))
            continue;
        if (!qp->tx.busy && !shmnd_tx_is_sending_parts(qp) && shmnd_tx_recall_after(qp, i) &&
            shmnd_tx_recall(qp, w))
            shmnd_tx_fail(w, SHMND_ACCESS_VIOLATION);
        else if (w->large || w->pulled)
            settled = false;
    }
    shmnd_tx_retire(qp);
    shmnd_tx_update_backlog(qp);
    return settled;
}

/* Return whether a copy of this process from or to the region is prepared or running. The request
 * of a large Send may have ended meanwhile, and its entry may hold another request: then return
 * true. */
static inline bool shmnd_tx_is_copying(struct shmnd_qp *qp, uint32_t token)
{
    return qp->tx.busy && (qp->tx.job.request < qp->wq.oldest ||
                           shmnd_wqe_uses_region(qp, qp->tx.job.request, token));
}

/* ---- receives ---------------------------------------------------------------------- */

/* Withdraw the advertised receives in the region: no Send completes because of them, and no push
 * begins. Return false if a push may be in progress; check again later. */
static inline bool shmnd_rx_drop_region(struct shmnd_qp *qp, uint32_t token)
{
    if (qp->flush.pending)
        return false;
    if (qp->shared)
        return true;
    if (!shmnd_rx_withdraw(qp))
        return false;
    for (uint64_t pos = qp->own.matched; pos != qp->own.posted; pos++) {
        struct shmnd_rqe *e = &qp->own.entries[pos & qp->own.mask];
        struct shmnd_sge *sges = shmnd_rqe_sges(&qp->own, pos);
        if (e->pinned && shmnd_sges_use_region(sges, e->sges, token)) {
            struct shmnd_posted *entry = shmnd_own_receive_entry(qp, pos - qp->posted_base);
            shmnd_put64(&entry->extents, 0);
            shmnd_put64(&entry->capacity, (pos - qp->posted_base + 1) << 32);
            shmnd_rx_unpin(qp, e, sges);
        }
    }
    shmnd_rx_readvertise(qp);
    return true;
}

/* Return whether a message is open that is copied from its sender's memory to a receive in the
 * region. */
static inline bool shmnd_rx_is_filling(const struct shmnd_qp *qp, uint32_t token)
{
    return qp->rx.open && (qp->rx.kind == SHMND_KIND_LARGE || qp->rx.kind == SHMND_KIND_LISTED) &&
           shmnd_sges_use_region(qp->rx.sges, qp->rx.rqe.sges, token);
}

/* Return whether this process's copy of such a message is prepared or running. */
static inline bool shmnd_rx_is_copying(const struct shmnd_qp *qp, uint32_t token)
{
    return qp->rx.job.kind != SHMND_JOB_NONE && shmnd_rx_is_filling(qp, token);
}

/* Return whether the sender of such a message may still write to the region. */
static inline bool shmnd_rx_is_pushed_to(const struct shmnd_qp *qp, uint32_t token)
{
    return shmnd_rx_is_filling(qp, token) && qp->rx.kind == SHMND_KIND_LARGE && !qp->peer->dead &&
           !shmnd_chunks_finished(qp->rx.job.share, &qp->rx.job.chunks);
}

/* ---- both -------------------------------------------------------------------------- */

/* Return whether a job is prepared, or a teardown in progress, that a Deregister may have to wait
 * for. The caller then makes progress on the queue pair before it checks. */
static inline bool shmnd_qp_needs_progress(const struct shmnd_qp *qp)
{
    return (qp->tx.busy && !qp->tx.started) || shmnd_rx_job_is_prepared(qp) || qp->rx.fault ||
           qp->going_down;
}

/* Return whether every access of this connection to the memory of a withdrawn token has ended. If
 * the peer's access does not end for too long (`*since_p` is when the wait began), end the
 * connection. No new access can begin, so `*since_p` is one time for the token and all
 * connections. */
static inline bool shmnd_qp_has_released(struct shmnd_qp *qp, uint32_t token, uint64_t *since_p,
                                         uint64_t now_ns)
{
    if (qp->going_down)
        return false;
    if (qp->state != SHMND_QP_CONNECTED && qp->state != SHMND_QP_ATTACHED)
        return true;
    if (qp->rx.fault)
        return false; /* teardown follows, and the sender may be writing to the refused receive */
    const struct shmnd_region *region = shmnd_region_lookup(qp->registry, token);
    bool sent = shmnd_tx_drop_region(qp, token);
    if (qp->going_down)
        return false; /* a Send that failed has begun teardown */
    bool posted = region && region->posted && !shmnd_rx_drop_region(qp, token);
    if (shmnd_tx_is_copying(qp, token) || shmnd_rx_is_copying(qp, token))
        return false;
    if (!sent || posted || shmnd_rx_is_pushed_to(qp, token) ||
        (!qp->peer->dead && !shmnd_hazard_is_clear_of(&qp->link.theirs->hazard, token))) {
        shmnd_qp_check_stall(qp, since_p, now_ns);
        return false;
    }
    return true;
}

#endif
