/* SPDX-License-Identifier: Apache-2.0
 *
 * Deregister: when does nobody touch the memory of a region any more?
 *
 * Before it asks, the owner withdraws the region under its lock: no SGE lies in it and
 * its grant is revoked, so nothing is prepared for this memory from then on. Of what was
 * prepared before, and of what runs, each connection is asked here (shmnd_qp_lets_go):
 *
 * - A Read or Write of the peer's shows the token in its hazard word (SYNC hazard and
 *   hazard-clear in tokens.h).
 * - A push into a posted receive relies on `revision`, and shows itself in the hazard
 *   word (SYNC placing in send.h): taking the receive back turns away what has not
 *   begun and waits for what has.
 * - A large message that has met its receive is copied by both sides, and the sender may
 *   begin at any time. Its receive is posted no more and cannot be taken back; it is let
 *   go when all chunks are copied (SYNC chunk-done in scattered_copy.h), for then none is left to
 *   claim.
 * - A Send of ours that has met no receive is taken back by a swap that its reader would
 *   have to win, and fails. A large one that its reader has, and reads, is waited for as
 *   above; of a small one the bytes are in the ring, and it ends as it would have.
 * - A copy of our own is let go when its thread has the lock back, whatever the peer
 *   says of it meanwhile.
 * - What goes through the ring is copied under the lock.
 *
 * A connection that goes down waits for all of them before it has (teardown.h); one that is
 * down is not asked. Serves invariant 1.
 */
#ifndef SHMND_TEARDOWN_DEREGISTER_H
#define SHMND_TEARDOWN_DEREGISTER_H

#include "teardown/teardown.h"

static inline bool shmnd_sges_name(const struct shmnd_sge *sges, uint32_t n, uint32_t token)
{
    bool names = false;
    for (uint32_t i = 0; i < n; i++)
        names = names || sges[i].token == token;
    return names;
}

/* ---- requests ---------------------------------------------------------------------- */

/* Has the request at `pos` an element in the region? Inline data has none. */
static inline bool shmnd_wqe_names(struct shmnd_qp *qp, uint64_t pos, uint32_t token)
{
    return shmnd_sges_name(shmnd_wqe_sges(qp, pos), qp->wqes[pos & qp->wq_mask].sges, token);
}

/* Is a message in parts on its way? What was sent before it must not be sent anew. */
static inline bool shmnd_tx_is_amid_parts(const struct shmnd_qp *qp)
{
    return qp->wq_next != qp->wq_tail && qp->wqes[qp->wq_next & qp->wq_mask].moved;
}

/* No message under way has its source in the region. One that waits for a receive fails;
 * a large one that met it is waited for (false: ask again). */
static inline bool shmnd_tx_drop_region(struct shmnd_qp *qp, uint32_t token)
{
    bool settled = true;
    shmnd_tx_retire(qp); /* what is over is not taken back */
    if (qp->state != SHMND_QP_CONNECTED)
        return true;
    shmnd_list_withdraw(qp);
    for (uint64_t i = qp->wq_head; i != qp->wq_next; i++) {
        struct shmnd_wqe *w = &qp->wqes[i & qp->wq_mask];
        if (w->moved || w->state != SHMND_WQE_SENT || !shmnd_wqe_names(qp, i, token))
            continue;
        if (!qp->tx_busy && !shmnd_tx_is_amid_parts(qp) && shmnd_tx_unsend_after(qp, i) &&
            shmnd_tx_recall(qp, w))
            shmnd_tx_fail(w, SHMND_ACCESS_VIOLATION);
        else if (w->large || w->pulled)
            settled = false;
    }
    shmnd_tx_retire(qp);
    shmnd_tx_leave(qp);
    return settled;
}

/* Is a copy of ours from or to the region prepared, or running? The request of a large
 * Send may have ended meanwhile, and its place be another's. */
static inline bool shmnd_tx_is_copying(struct shmnd_qp *qp, uint32_t token)
{
    return qp->tx_busy &&
           (qp->tx_job.request < qp->wq_head || shmnd_wqe_names(qp, qp->tx_job.request, token));
}

/* ---- receives ---------------------------------------------------------------------- */

/* No published receive names the region any more. False: ask again. */
static inline bool shmnd_rx_drop_region(struct shmnd_qp *qp, uint32_t token)
{
    if (qp->flush_pending)
        return false;
    if (qp->shared)
        return true;
    if (!shmnd_rx_withdraw(qp))
        return false;
    for (uint64_t pos = qp->own.matched; pos != qp->own.posted; pos++) {
        struct shmnd_rqe *e = &qp->own.entries[pos & qp->own.mask];
        struct shmnd_sge *sges = shmnd_rqe_sges(&qp->own, pos);
        if (e->pinned && shmnd_sges_name(sges, e->sges, token)) {
            struct shmnd_posted *entry = shmnd_own_posted(qp, pos - qp->posted_base);
            shmnd_put64(&entry->extents, 0);
            shmnd_put64(&entry->capacity, (pos - qp->posted_base + 1) << 32);
            shmnd_rx_unpin(qp, e, sges);
        }
    }
    shmnd_rx_reoffer(qp);
    return true;
}

/* Is a message open that is copied from its sender's memory, and whose receive names the region? */
static inline bool shmnd_rx_is_filling(const struct shmnd_qp *qp, uint32_t token)
{
    return qp->rx_open && (qp->rx_kind == SHMND_KIND_LARGE || qp->rx_kind == SHMND_KIND_LISTED) &&
           shmnd_sges_name(qp->rx_sges, qp->rx_rqe.sges, token);
}

/* Is its copy by us prepared, or running? */
static inline bool shmnd_rx_is_copying(const struct shmnd_qp *qp, uint32_t token)
{
    return qp->rx_job.kind != SHMND_JOB_NONE && shmnd_rx_is_filling(qp, token);
}

/* May its sender still write there? */
static inline bool shmnd_rx_is_pushed_to(const struct shmnd_qp *qp, uint32_t token)
{
    return shmnd_rx_is_filling(qp, token) && qp->rx_kind == SHMND_KIND_LARGE && !qp->peer->dead &&
           !shmnd_chunks_finished(qp->rx_job.share, &qp->rx_job.chunks);
}

/* ---- both -------------------------------------------------------------------------- */

/* Is there something prepared, or on its way to the end, that a Deregister may wait for?
 * Then progress is to be made before it asks. */
static inline bool shmnd_qp_has_to_go_on(const struct shmnd_qp *qp)
{
    return (qp->tx_busy && !qp->tx_started) || shmnd_rx_is_prepared(qp) || qp->rx_fault ||
           qp->going_down;
}

/* Does nothing of this connection touch the memory of a withdrawn token any more? A peer that
 * does not let go of it for too long, as `*since_p` tells, ends the connection. Nothing new can
 * touch that memory, so the clock is of the token: all connections are asked with it each time. */
static inline bool shmnd_qp_lets_go(struct shmnd_qp *qp, uint32_t token, uint64_t *since_p,
                                    uint64_t now_ns)
{
    if (qp->going_down)
        return false;
    if (qp->state != SHMND_QP_CONNECTED && qp->state != SHMND_QP_ATTACHED)
        return true;
    if (qp->rx_fault)
        return false; /* it will go down, and the sender may be in the refused receive */
    const struct shmnd_region *region = shmnd_region_of(qp->registry, token);
    bool sent = shmnd_tx_drop_region(qp, token);
    if (qp->going_down)
        return false; /* a Send that lost its memory has ended the connection */
    bool posted = region && region->posted && !shmnd_rx_drop_region(qp, token);
    if (shmnd_tx_is_copying(qp, token) || shmnd_rx_is_copying(qp, token))
        return false;
    if (!sent || posted || shmnd_rx_is_pushed_to(qp, token) ||
        (!qp->peer->dead && !shmnd_hazard_clear_of(&qp->link.theirs->hazard, token))) {
        shmnd_qp_held_up(qp, since_p, now_ns);
        return false;
    }
    return true;
}

#endif
