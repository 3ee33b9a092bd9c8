/* SPDX-License-Identifier: Apache-2.0
 *
 * The peer's advertised receives as the sender sees them: their number, the capacity of
 * the next one, and whether it can be written from here.
 *
 * The sender caches the result of its last check (`credit`, `below`, `viewed`) and checks
 * again only when that no longer suffices: so a small Send loads no line that the other
 * side writes with every receive. No function waits, and values that contradict the
 * private state of this side yield no credit (invariant 1).
 */
#ifndef SHMND_SEND_MATCH_H
#define SHMND_SEND_MATCH_H

#include "engine/access.h"
#include "engine/wake.h"

/* ---- the peer's posted receives ------------------------------------------------------ */

static inline const struct shmnd_posted *shmnd_peer_receive_entry(const struct shmnd_qp *qp,
                                                                  uint64_t idx)
{
    const struct shmnd_link_end *l = &qp->link;
    return (const struct shmnd_posted *)(l->their_posted +
                                         (idx & l->their_posted_mask) * l->their_posted_stride);
}

/* Store in `*below_p` the length below which messages fit into the receive with this number. Return
 * false if its entry holds another receive: it was matched, or is not posted yet. */
static inline bool shmnd_peer_receive_capacity(const struct shmnd_qp *qp, uint64_t idx,
                                               uint64_t *below_p)
{
    /* SYNC entry: acquire, pairs with the fence in shmnd_rx_write_entry() */
    uint64_t word = shmnd_acquire64(&shmnd_peer_receive_entry(qp, idx)->capacity);
    *below_p = (uint32_t)word;
    return (uint32_t)(word >> 32) == (uint32_t)(idx + 1);
}

/* Check which receives the peer has advertised: those with numbers below `qp->seen.entries`. Return
 * the revision of this check; odd during a Flush of the peer, which yields no credit. */
static inline uint64_t shmnd_tx_update_credit(struct shmnd_qp *qp, uint64_t *cancelled_p)
{
    const struct shmnd_side *theirs = qp->link.theirs;
    /* SYNC flush: acquire, pairs with release in shmnd_rx_readvertise(): with an even revision the
     * load of `cancelled` returns its count. And with release in shmnd_flush_step(): after a load
     * of a new count, the second load of `revision` returns a new value. */
    uint64_t revision = shmnd_acquire64(&theirs->revision);
    uint64_t cancelled = shmnd_acquire64(&theirs->cancelled);
    /* SYNC posted: acquire, pairs with release in shmnd_rx_advertise() */
    uint64_t posted = shmnd_acquire64(&theirs->posted);
    uint64_t met = qp->messages - qp->recalled;
    uint64_t first = met + cancelled; /* the receive that the next message matches */
    *cancelled_p = cancelled;
    /* All entries, and the receive of a message in parts, which is matched before the message is
     * counted here. A hostile peer may claim more. */
    uint64_t most = met + qp->link.their_posted_mask + 2;
    if ((revision & 1) || shmnd_relaxed64(&theirs->revision) != revision || cancelled > posted ||
        first < cancelled || posted - cancelled > most || posted < qp->seen.entries) {
        qp->seen.credit = qp->messages < qp->seen.credit ? qp->messages : qp->seen.credit;
        return revision | 1;
    }
    /* A change of `revision` says that entries which were read before may have been withdrawn. */
    bool known = qp->seen.entries > first && qp->seen.revision == revision;
    uint64_t from = known ? qp->seen.entries : first;
    uint64_t least = known ? qp->seen.below : UINT64_MAX;
    for (uint64_t i = from; i < posted; i++) {
        uint64_t below;
        if (shmnd_peer_receive_capacity(qp, i, &below) && below < least)
            least = below;
    }
    qp->seen.entries = posted;
    qp->seen.revision = revision;
    qp->seen.cancelled = cancelled;
    qp->seen.below = least;
    qp->seen.credit = posted - cancelled + qp->recalled;
    return revision;
}

/* Return whether a receive that holds `length` is posted for message `message`, sent or the next.
 * `recalled` is how many before it met no receive. */
static inline bool shmnd_tx_has_receive(struct shmnd_qp *qp, uint64_t message, uint64_t recalled,
                                        uint64_t length)
{
    uint64_t cancelled, below;
    if (qp->link.their_srq || (shmnd_tx_update_credit(qp, &cancelled) & 1))
        return false;
    uint64_t index = message - recalled + cancelled;
    return index < qp->seen.entries && shmnd_peer_receive_capacity(qp, index, &below) &&
           length < below;
}

/* Return whether a receive that holds `length` is posted for the next message, without a check when
 * the cached values suffice (they do not apply to messages before the next). They are valid as long
 * as no receive was withdrawn, by a Flush or a Deregister; relaxed: one that runs at the same time
 * may come a moment later. */
static inline bool shmnd_tx_has_credit(struct shmnd_qp *qp, uint64_t length)
{
    return (qp->messages < qp->seen.credit && length < qp->seen.below &&
            shmnd_relaxed64(&qp->link.theirs->revision) == qp->seen.revision) ||
           shmnd_tx_has_receive(qp, qp->messages, qp->recalled, length);
}

static inline void shmnd_tx_set_wants_credit(struct shmnd_qp *qp, bool want)
{
    if (shmnd_relaxed32(&qp->link.mine->wants_credit) == (uint32_t)want)
        return;
    shmnd_put32(&qp->link.mine->wants_credit, want);
    SHMND_KILL_POINT("credit-wanted");
    /* SYNC credit: fence, pairs with the fence in shmnd_notify_waiting_sender() */
    shmnd_store_then_load();
}

/* Store the ranges of the receive that a message matches, sent or the next, in the job. Return 1;
 * 0: a segment must be mapped first; -1: the receive cannot be written from here. */
static inline int shmnd_tx_resolve_receive(struct shmnd_qp *qp, uint64_t message, uint64_t recalled,
                                           uint64_t length, struct shmnd_job *job)
{
    uint64_t below, cancelled = qp->seen.cancelled, revision = qp->seen.revision;
    uint64_t index = message - recalled + cancelled;
    /* The cached values are valid as long as no receive was withdrawn; this avoids a load of the
     * line that the other side writes with every receive. */
    if (index >= qp->seen.entries || shmnd_relaxed64(&qp->link.theirs->revision) != revision) {
        revision = shmnd_tx_update_credit(qp, &cancelled);
        index = message - recalled + cancelled;
        if ((revision & 1) || index >= qp->seen.entries)
            return -1;
    }
    const struct shmnd_posted *entry = shmnd_peer_receive_entry(qp, index);
    shmnd_prefetch(shmnd_peer_receive_entry(qp, index + 1));
    if (!shmnd_peer_receive_capacity(qp, index, &below) || length >= below)
        return -1;
    uint64_t extents = shmnd_relaxed64(&entry->extents);
    if (extents == 0 || extents > qp->link.their_extents)
        return -1;
    const struct shmnd_shared_extent *x = (const struct shmnd_shared_extent *)(entry + 1);
    struct shmnd_spans all;
    shmnd_spans_clear(&all);
    for (uint64_t i = 0; i < extents; i++) {
        uint64_t place = shmnd_relaxed64(&x[i].place);
        int got = shmnd_peer_add_span(qp->peer, (uint32_t)(place >> 32),
                                      shmnd_relaxed64(&x[i].offset), (uint32_t)place, true, &all);
        if (got <= 0)
            return got;
    }
    /* SYNC entry: fence, pairs with the fence in shmnd_rx_write_entry() */
    shmnd_loads_before();
    if (!shmnd_peer_receive_capacity(qp, index, &below) || all.total < length)
        return -1;
    shmnd_spans_slice(&all, 0, length, &job->to);
    job->revision = revision;
    job->index = index;
    job->unmapped = qp->peer->unmapped;
    return 1;
}

#endif
