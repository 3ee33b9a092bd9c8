/* SPDX-License-Identifier: Apache-2.0
 *
 * The backlog: Sends that cannot be sent now, listed in the link for their reader.
 *
 * A Send waits in the private queue of its sender when the ring has no room for it, when too many
 * large messages are already advertised, or behind another pending Send. The sender may compute
 * from then on and make no further call. So each pending Send is listed, with the extents of its
 * source, and the side that acts first executes it: the sender, once there is room, reclaims the
 * entry; or the reader, once it has taken all messages before it, claims the entry and copies the
 * bytes by itself. The Sends behind the last one that was sent are listed as far as the reader can
 * access their memory, but none behind a request of another type, which must be executed first.
 *
 * Argument. The entry of message k has a word with the number of the listing, which is never
 * reused, and its state. The sender reclaims it by a compare-and-swap from OPEN to NOT, the reader
 * claims it by one from OPEN to TAKEN; one succeeds (SYNC listed). An entry is written only while
 * its word is NOT or DONE, with the word last and by release. A reader that finds the same word
 * before and after its loads has read one listing, and if its swap succeeds the sender has not
 * reclaimed that listing. Order: the reader claims the entry of message k only when it has taken k
 * messages and none is in the ring. The sender sends k only when it has reclaimed the entry, and
 * k + 1 after it. So k is either in the ring before the reader takes k + 1, or the reader has it.
 *
 * The reader copies a long message piece by piece, each between a swap from TAKEN to COPYING and a
 * store back. A sender that ends the connection swaps TAKEN to CUT: no piece begins after that.
 * DONE is stored with the last piece, so both sides agree whether the message was whole. The
 * sender's memory is free again after `taken`, or after CUT.
 *
 * A flag in `state` (SHMND_LINK_LISTS), which the reader loads at each poll anyway, says that there
 * are listings: without any, a poll costs nothing more. A hostile peer gains nothing by writing a
 * word: the sender treats a word that it did not write as claimed, and the Send completes by
 * `taken`. A death at any instruction leaves a listing that is never done, and the connection ends.
 * Serves invariants 1, 2 and 3.
 */
#ifndef SHMND_SEND_BACKLOG_H
#define SHMND_SEND_BACKLOG_H

#include "send/match.h"

static inline struct shmnd_listed *shmnd_own_backlog_entry(const struct shmnd_qp *qp,
                                                           uint64_t message)
{
    const struct shmnd_link_end *l = &qp->link;
    return (struct shmnd_listed *)(l->my_listed +
                                   (message & l->my_listed_mask) * l->my_listed_stride);
}

/* Publish whether there are listings. */
static inline void shmnd_backlog_publish_state(struct shmnd_qp *qp)
{
    uint32_t state = shmnd_relaxed32(&qp->link.mine->state) & ~(uint32_t)SHMND_LINK_LISTS;
    if (qp->backlog.shown == (qp->backlog.count != 0))
        return;
    qp->backlog.shown = qp->backlog.count != 0;
    /* relaxed: the entries have an order of their own */
    shmnd_put32(&qp->link.mine->state, qp->backlog.shown ? state | SHMND_LINK_LISTS : state);
    SHMND_KILL_POINT("backlog-published");
}

/* Return the slot flags of a message with these request flags; with `ack` the reader must claim
 * it. */
static inline uint8_t shmnd_tx_slot_flags(uint32_t op_flags, bool ack)
{
    return (uint8_t)((op_flags & SHMND_OP_SOLICIT ? SHMND_SLOT_SOLICITED : 0) |
                     (op_flags & SHMND_OP_INVALIDATE ? SHMND_SLOT_INVALIDATE | SHMND_SLOT_ACK : 0) |
                     (ack ? SHMND_SLOT_ACK : 0));
}

/* ---- the source ------------------------------------------------------------------------ */

/* Return whether one of these SGEs is in private memory. */
static inline bool shmnd_tx_has_private_memory(const struct shmnd_qp *qp,
                                               const struct shmnd_sge *sges, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (sges[i].length &&
            shmnd_region_lookup(qp->registry, sges[i].token)->segment == SHMND_PRIVATE_MEMORY)
            return true;
    return false;
}

/* Return whether the other side can read the memory of these SGEs. */
static inline bool shmnd_tx_peer_can_read(const struct shmnd_qp *qp, const struct shmnd_sge *sges,
                                          uint32_t n)
{
    return shmnd_relaxed32(&qp->link.theirs->reaches) == 1 ||
           !shmnd_tx_has_private_memory(qp, sges, n);
}

/* Store the extents of a source, as the other side can access them, and return their number. */
static inline uint32_t shmnd_tx_extents(const struct shmnd_qp *qp, const struct shmnd_sge *sges,
                                        uint32_t n, struct shmnd_extent *x)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct shmnd_region *region = shmnd_region_lookup(qp->registry, sges[i].token);
        bool shared = region->segment != SHMND_PRIVATE_MEMORY;
        if (sges[i].length == 0)
            continue;
        x[used].segment = region->segment;
        x[used].offset =
            shared ? region->offset + (sges[i].address - region->base) : sges[i].address;
        x[used].length = sges[i].length;
        used++;
    }
    return used;
}

/* Store the extents of the Send at `pos` and return their number; -1: the other side cannot read
 * them. */
static inline int shmnd_backlog_extents(struct shmnd_qp *qp, uint64_t pos, struct shmnd_extent *x)
{
    const struct shmnd_wqe *w = &qp->wq.entries[pos & qp->wq.mask];
    const struct shmnd_sge *sges = shmnd_wqe_sges(qp, pos);
    struct shmnd_spans from;
    if (w->flags & SHMND_OP_INLINE) {
        x[0].segment = SHMND_PRIVATE_MEMORY;
        x[0].offset = (uint64_t)(uintptr_t)shmnd_wqe_inline(qp, pos);
        x[0].length = (uint32_t)w->length;
        return w->length == 0 ? 0 : shmnd_relaxed32(&qp->link.theirs->reaches) == 1 ? 1 : -1;
    }
    if (!shmnd_local_spans(qp->registry, sges, w->sges, 0, &from) ||
        !shmnd_tx_peer_can_read(qp, sges, w->sges))
        return -1;
    return (int)shmnd_tx_extents(qp, sges, w->sges, x);
}

/* ---- listing ------------------------------------------------------------------------------ */

/* List the Send at `pos`, which will have the number `message`. Return false if it cannot be listed
 * now. */
static __attribute__((noinline, cold, unused)) bool
shmnd_backlog_add(struct shmnd_qp *qp, uint64_t pos, uint64_t message)
{
    struct shmnd_wqe *w = &qp->wq.entries[pos & qp->wq.mask];
    struct shmnd_listed *entry = shmnd_own_backlog_entry(qp, message);
    struct shmnd_shared_extent *to = (struct shmnd_shared_extent *)(entry + 1);
    struct shmnd_extent x[SHMND_MAX_SGE];
    /* SYNC listed: acquire, pairs with release in shmnd_run_pull() */
    uint32_t state = shmnd_acquire64(&entry->word) & SHMND_LISTED_MASK;
    if (w->state != SHMND_WQE_QUEUED || w->moved ||
        (state != SHMND_LISTED_NOT && state != SHMND_LISTED_DONE))
        return false;
    int n = shmnd_backlog_extents(qp, pos, x);
    if (n < 0)
        return false;
    uint64_t flags = shmnd_tx_slot_flags(w->flags, true);
    /* SYNC listed: fence, pairs with the fence in shmnd_rx_read_listed() */
    shmnd_stores_before();
    for (int i = 0; i < n; i++) {
        shmnd_put64(&to[i].offset, x[i].offset);
        shmnd_put64(&to[i].place, (uint64_t)x[i].segment << 32 | x[i].length);
    }
    shmnd_put64(&entry->shape, (uint64_t)w->remote_token << 32 | (message & 0xffff) << 16 |
                                   flags << 8 | (uint64_t)n);
    w->message = message;
    w->listing = ++qp->backlog.listings << 3 | SHMND_LISTED_OPEN;
    qp->backlog.count++;
    SHMND_KILL_POINT("listing-written");
    /* SYNC listed: release, pairs with acquire in shmnd_rx_read_listed() */
    shmnd_release64(&entry->word, w->listing);
    SHMND_KILL_POINT("send-listed");
    return true;
}

/* List the pending Sends that are not listed yet: the request at `wq.next`, unless a job for it is
 * prepared, and the Sends behind it. Return the flags of the new listings, with SHMND_SLOT_ACK; 0:
 * there is none. */
static __attribute__((noinline, cold, unused)) uint8_t
shmnd_backlog_add_waiting(struct shmnd_qp *qp)
{
    uint8_t flags = 0;
    for (uint64_t pos = qp->wq.next; pos != qp->wq.end; pos++) {
        struct shmnd_wqe *w = &qp->wq.entries[pos & qp->wq.mask];
        bool running = pos == qp->wq.next && qp->tx.busy && qp->tx.job.request == pos;
        if (w->type != SHMND_SEND)
            break;
        if (!w->listing && !running) {
            if (!shmnd_backlog_add(qp, pos, qp->messages + (pos - qp->wq.next)))
                break;
            flags |= shmnd_tx_slot_flags(w->flags, true);
        }
        if (qp->backlog.end > pos + 1)
            pos = qp->backlog.end - 1; /* all up to there are listed */
        qp->backlog.end = pos + 1;
    }
    return flags;
}

/* Mark the Send at `wq.next`, which the reader has claimed, as sent: it completes when taken. */
static inline void shmnd_backlog_concede(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    w->recalled = qp->recalled;
    w->pulled = true;
    w->state = SHMND_WQE_SENT;
    qp->messages++;
    qp->backlog.count--;
    qp->wq.next++;
    if (w->flags & SHMND_OP_INVALIDATE)
        qp->wq.uncommitted = qp->wq.next;
    shmnd_count_sent(qp, w->length);
}

/* Reclaim a listing by compare-and-swap. Return false if the reader has claimed it. */
static inline bool shmnd_backlog_swap_back(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    uint64_t word = w->listing;
    /* SYNC listed: compare-and-swap, pairs with the one in shmnd_rx_claim_listed() */
    if (!shmnd_swap64(&shmnd_own_backlog_entry(qp, w->message)->word, &word,
                      w->listing & ~(uint64_t)SHMND_LISTED_MASK))
        return false;
    SHMND_KILL_POINT("listing-reclaimed");
    w->listing = 0;
    qp->backlog.count--;
    return true;
}

/* Reclaim the request at `wq.next` for the sender to execute. Return false if the reader has
 * claimed it. */
static inline bool shmnd_backlog_reclaim(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    if (!w->listing || shmnd_backlog_swap_back(qp, w))
        return true;
    shmnd_backlog_concede(qp, w);
    return false;
}

/* Mark the Sends that the reader has claimed as sent. */
static __attribute__((noinline, cold, unused)) void shmnd_backlog_check(struct shmnd_qp *qp)
{
    while (qp->wq.next != qp->wq.end) {
        struct shmnd_wqe *w = &qp->wq.entries[qp->wq.next & qp->wq.mask];
        /* relaxed: `taken`, or another load of the word, orders the reader's accesses */
        if (!w->listing ||
            shmnd_relaxed64(&shmnd_own_backlog_entry(qp, w->message)->word) == w->listing)
            break;
        shmnd_backlog_concede(qp, w);
    }
}

/* Reclaim all listings that the reader has not claimed: after this every request belongs to the
 * sender alone, or is sent. */
static __attribute__((noinline, cold, unused)) void shmnd_backlog_withdraw(struct shmnd_qp *qp)
{
    if (!qp->backlog.count)
        return;
    /* Newest first: listings that the reader claims meanwhile precede all that are reclaimed. */
    for (uint64_t pos = qp->backlog.end; pos-- != qp->wq.next;) {
        struct shmnd_wqe *w = &qp->wq.entries[pos & qp->wq.mask];
        if (w->listing && !shmnd_backlog_swap_back(qp, w))
            break;
    }
    shmnd_backlog_check(qp);
    qp->backlog.end = qp->wq.next;
    shmnd_backlog_publish_state(qp);
}

/* ---- a message that the reader copies --------------------------------------------------- */

/* Return the state in the word of a Send's listing. */
static inline enum shmnd_listed_state shmnd_pull_state(const struct shmnd_qp *qp,
                                                       const struct shmnd_wqe *w)
{
    /* SYNC listed: acquire, pairs with release in shmnd_run_pull() */
    return shmnd_acquire64(&shmnd_own_backlog_entry(qp, w->message)->word) & SHMND_LISTED_MASK;
}

/* Stop the reader from copying further pieces. Return false if it is copying one now. */
static inline bool shmnd_pull_cut(struct shmnd_qp *qp, const struct shmnd_wqe *w)
{
    uint64_t number = w->listing & ~(uint64_t)SHMND_LISTED_MASK;
    uint64_t word = number | SHMND_LISTED_TAKEN;
    /* SYNC listed: compare-and-swap, pairs with the one in shmnd_run_pull() */
    if (shmnd_swap64(&shmnd_own_backlog_entry(qp, w->message)->word, &word,
                     number | SHMND_LISTED_CUT))
        return true;
    return word != (number | SHMND_LISTED_COPYING);
}

#endif
