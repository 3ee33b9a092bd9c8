/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that the reader copies from the sender's memory: large ones, of which the sender copies
 * chunks too, and those that it claims from the backlog, piece by piece. backlog.h says which Sends
 * are listed there, and why exactly one side executes each.
 *
 * No function waits. An entry is read once and checked like the slots of a message.
 */
#ifndef SHMND_RECEIVE_PULL_H
#define SHMND_RECEIVE_PULL_H

#include "send/backlog.h"

static inline struct shmnd_listed *shmnd_peer_backlog_entry(const struct shmnd_qp *qp,
                                                            uint64_t message)
{
    const struct shmnd_link_end *l = &qp->link;
    return (struct shmnd_listed *)(l->their_listed +
                                   (message & l->their_listed_mask) * l->their_listed_stride);
}

/* Resolve the extents of a large message to local addresses. Return their total length; UINT64_MAX:
 * they are malformed. A source that this process cannot read is left to the sender (`from` stays
 * empty). */
static inline uint64_t shmnd_rx_resolve_source(struct shmnd_qp *qp)
{
    struct shmnd_spans *from = &qp->rx.job.from;
    uint64_t total = 0;
    shmnd_spans_clear(from);
    qp->rx.needs_segment = false;
    qp->rx.job.unmapped = qp->peer->unmapped;
    for (uint32_t i = 0; i < qp->rx.extent_count; i++) {
        const struct shmnd_extent *x = &qp->rx.extents[i];
        total += x->length;
        int got = shmnd_peer_add_span(qp->peer, x->segment, x->offset, x->length, false, from);
        if (got == 0)
            qp->rx.needs_segment = true;
        if (got < 0 && x->segment != SHMND_PRIVATE_MEMORY)
            return UINT64_MAX;
    }
    if (from->total != total)
        shmnd_spans_clear(from);
    return total;
}

/* Return whether this side may still copy a chunk of the large message. If not, the sender copies
 * or withdraws the rest. It may have done so, completed its Send and released the source: then the
 * message is whole, or never will be, and needs no source. */
static inline bool shmnd_rx_reads_large(const struct shmnd_share *share,
                                        const struct shmnd_chunks *c)
{
    /* relaxed: the sender claims before it releases a segment, which this side hears of later */
    return shmnd_chunks_unclaimed(shmnd_relaxed64(&share->claim), c);
}

/* Read the extents of a large message. Return false if they are malformed. */
static inline bool shmnd_rx_read_large(struct shmnd_qp *qp, const struct shmnd_message_header *a)
{
    uint32_t head[2];
    struct shmnd_extent *x = qp->rx.extents;
    struct shmnd_read_cursor drain = shmnd_slots_read_begin(&qp->in, a->flags);
    shmnd_slots_read_once(&drain, head, sizeof head);
    if (head[0] > SHMND_MAX_SGE || head[1] >= SHMND_SHARES ||
        shmnd_slots_for(shmnd_slots_prefix(a->flags) + 8 + head[0] * (uint32_t)sizeof x[0]) !=
            a->slots)
        return false;
    shmnd_slots_read_once(&drain, x, head[0] * (uint32_t)sizeof x[0]);
    qp->rx.extent_count = head[0];
    qp->rx.job.share = &qp->link.theirs->shares[head[1]];
    uint64_t total = shmnd_rx_resolve_source(qp);
    if (qp->rx.needs_segment) {
        struct shmnd_chunks c = shmnd_chunks_of(a->length, qp->taken);
        qp->rx.needs_segment = shmnd_rx_reads_large(qp->rx.job.share, &c);
    }
    return total == a->length;
}

/* Return whether the prepared copy may still read from its source. */
static inline bool shmnd_rx_job_reads(const struct shmnd_qp *qp)
{
    const struct shmnd_job *job = &qp->rx.job;
    if (job->kind == SHMND_JOB_CHUNKS)
        return shmnd_rx_reads_large(job->share, &job->chunks);
    /* relaxed: as above; the sender cuts the listing before it releases a segment */
    return shmnd_relaxed64(&shmnd_peer_backlog_entry(qp, qp->taken)->word) ==
           (qp->rx.listing | SHMND_LISTED_TAKEN);
}

/* Resolve the extents again if the peer has released a segment since. Under the lock, just before
 * the copy. A correct peer releases no segment from which this side may still copy; a copy that
 * reads nothing more is not run. */
static inline void shmnd_rx_resolve_again(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->rx.job;
    if (job->unmapped == qp->peer->unmapped)
        return;
    if (shmnd_rx_resolve_source(qp) != job->chunks.length || job->from.total != job->chunks.length)
        job->result = shmnd_rx_job_reads(qp) ? SHMND_REMOTE_ERROR : SHMND_PENDING;
    qp->rx.needs_segment = false;
}

/* Read the listing of the next message. Return SHMND_PEEK_NONE if it is not listed, or was
 * reclaimed; also during teardown and Flush. */
static __attribute__((noinline, cold, unused)) enum shmnd_peek
shmnd_rx_read_listed(struct shmnd_qp *qp, struct shmnd_message_header *a)
{
    const struct shmnd_listed *entry = shmnd_peer_backlog_entry(qp, qp->taken);
    const struct shmnd_shared_extent *from = (const struct shmnd_shared_extent *)(entry + 1);
    /* SYNC listed: acquire, pairs with release in shmnd_backlog_add() */
    uint64_t word = shmnd_acquire64(&entry->word), shape = shmnd_relaxed64(&entry->shape);
    uint32_t n = shape & 0xff;
    bool sensible = n <= qp->link.their_elements && n <= SHMND_MAX_SGE;
    if (qp->going_down || qp->flush.pending || (word & SHMND_LISTED_MASK) != SHMND_LISTED_OPEN ||
        (uint16_t)(shape >> 16) != (uint16_t)qp->taken)
        return SHMND_PEEK_NONE;
    for (uint32_t i = 0; sensible && i < n; i++) {
        uint64_t place = shmnd_relaxed64(&from[i].place);
        qp->rx.extents[i] = (struct shmnd_extent){.offset = shmnd_relaxed64(&from[i].offset),
                                                  .segment = (uint32_t)(place >> 32),
                                                  .length = (uint32_t)place};
    }
    /* SYNC listed: fence, pairs with the fence in shmnd_backlog_add() */
    shmnd_loads_before();
    if (shmnd_relaxed64(&entry->word) != word)
        return SHMND_PEEK_NONE;
    qp->rx.extent_count = n;
    qp->rx.listing = word & ~(uint64_t)SHMND_LISTED_MASK;
    *a = (struct shmnd_message_header){.kind = SHMND_KIND_LISTED,
                                       .flags = (uint8_t)(shape >> 8),
                                       .token = (uint32_t)(shape >> 32)};
    return sensible ? SHMND_PEEK_MESSAGE : SHMND_PEEK_MALFORMED;
}

/* Set the length of the message and return whether its listing is well-formed. */
static inline bool shmnd_rx_check_listed(struct shmnd_qp *qp, struct shmnd_message_header *a)
{
    uint32_t known = SHMND_SLOT_SOLICITED | SHMND_SLOT_ACK | SHMND_SLOT_INVALIDATE;
    uint64_t total = shmnd_rx_resolve_source(qp);
    if (total > UINT32_MAX || (a->flags & ~known))
        return false;
    a->length = (uint32_t)total;
    return qp->rx.needs_segment || qp->rx.job.from.total == total;
}

/* Claim the message for the reader. Return false if the sender has reclaimed it. */
static inline bool shmnd_rx_claim_listed(struct shmnd_qp *qp)
{
    uint64_t word = qp->rx.listing | SHMND_LISTED_OPEN;
    /* SYNC listed: compare-and-swap, pairs with the one in shmnd_backlog_swap_back() */
    bool ours = shmnd_swap64(&shmnd_peer_backlog_entry(qp, qp->taken)->word, &word,
                             qp->rx.listing | SHMND_LISTED_TAKEN);
    SHMND_KILL_POINT("listing-claimed");
    return ours;
}

/* Copy the next piece of the listed message that is open, without the interpreter's lock. Return a
 * status; SHMND_PENDING: the sender has cut it short. */
static inline uint32_t shmnd_run_pull(struct shmnd_qp *qp, struct shmnd_job *job)
{
    struct shmnd_listed *entry = shmnd_peer_backlog_entry(qp, qp->taken);
    uint64_t word = qp->rx.listing | SHMND_LISTED_TAKEN;
    /* SYNC listed: compare-and-swap, pairs with the one in shmnd_pull_cut() */
    if (!shmnd_swap64(&entry->word, &word, qp->rx.listing | SHMND_LISTED_COPYING))
        return SHMND_PENDING; /* cut short: it stays unfinished until the connection has ended */
    SHMND_KILL_POINT("pull-begun");
    uint32_t status = shmnd_copy_piece(qp->peer, job);
    SHMND_KILL_POINT("piece-pulled");
    bool whole = status == SHMND_SUCCESS && job->moved == job->to.total;
    /* SYNC listed: release, pairs with acquire in shmnd_pull_state(), shmnd_backlog_add(), and with
     * the swap in shmnd_pull_cut() */
    shmnd_release64(&entry->word,
                    qp->rx.listing | (whole ? SHMND_LISTED_DONE : SHMND_LISTED_TAKEN));
    SHMND_KILL_POINT("pull-published");
    if (status == SHMND_SUCCESS)
        return status;
    struct shmnd_spans from;
    shmnd_spans_slice(&job->from, job->moved - job->piece, job->piece, &from);
    return shmnd_reader_status(qp->peer, &from, status);
}

/* Return whether the next message has arrived, in a slot or in the backlog. A hint. */
static inline bool shmnd_rx_is_ready(const struct shmnd_qp *qp)
{
    if (shmnd_slots_ready(&qp->in))
        return true;
    /* relaxed: shmnd_rx_read_listed() checks again */
    return qp->rx.lists && (shmnd_relaxed64(&shmnd_peer_backlog_entry(qp, qp->taken)->word) &
                            SHMND_LISTED_MASK) == SHMND_LISTED_OPEN;
}

#endif
