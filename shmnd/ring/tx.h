/* SPDX-License-Identifier: Apache-2.0
 *
 * The sending half of a queue pair: posting requests, carrying them out in
 * order, completing them.
 *
 * A Send completes at once when a receive is known to be posted for it and the
 * data is in the ring or placed: SYNC closing makes sure that the other side,
 * should it close at this moment, still takes it. Otherwise it waits in the
 * queue for `taken`, for a receive to be posted, or for its time to run out.
 * Behind a Send that waits only further Sends are issued.
 *
 * Argument for SYNC closing. The sender publishes a slot, fences, then reads
 * the other side's `closing`; the closer sets `closing`, fences, then looks at
 * the ring for the last time. At least one sees the other: a Send that found
 * `closing` unset is in the ring when the closer takes what arrived.
 *
 * Argument for SYNC placing. Before a sender writes into a posted receive it
 * sets its hazard word, fences, and looks whether `revision` (even) and
 * `closing` are as it knew them; a Flush or a Deregister makes `revision` odd,
 * fences, then looks at the hazard word. Either the sender finds the receive
 * withdrawn, or the owner finds the push and lets it finish.
 */
#ifndef SHMND_TX_H
#define SHMND_TX_H

#include "cq.h"

/* Copies up to this many bytes run where they stand; longer ones are jobs. */
#define SHMND_SHORT_COPY (16u << 10)
/* From here a message goes straight into its receive, when that is known. */
#define SHMND_PLACE_MIN 1024u
/* From here both sides may copy. */
#define SHMND_SHARE_MIN (64u << 10)

enum shmnd_progress {
    SHMND_IDLE = 0,   /* nothing to do here now */
    SHMND_RUN,        /* a job is prepared: call shmnd_tx_run() or shmnd_rx_run() */
    SHMND_NEEDS_MAP,  /* a segment of the peer must be mapped first */
};

/* ---- the beginning of the end -------------------------------------------------------- */

/* The connection ends: nothing new begins, and conn.h goes on from here. */
static inline void shmnd_qp_go_down(struct shmnd_qp *qp, enum shmnd_link_state state,
                                    uint32_t head_status)
{
    if (qp->state != SHMND_QP_CONNECTED)
        return;
    qp->state = SHMND_QP_DOWN;
    qp->going_down = true;
    qp->down_state = state;
    qp->down_status = head_status;
    shmnd_put32(&qp->link.mine->closing, 1);
    /* SYNC closing: fence, pairs with the fence in shmnd_notify_receiver() */
    shmnd_store_then_load();
    shmnd_qp_activate(qp);
}

/* ---- waking the other side --------------------------------------------------------- */

/* After the caller's publication: fence, then mark and ring as asked. */
static inline void shmnd_notify_receiver(struct shmnd_qp *qp, bool solicited)
{
    struct shmnd_link_end *l = &qp->link;
    /* SYNC arm, SYNC ready, SYNC closing: fence of the producer */
    shmnd_store_then_load();
    shmnd_bell_mark(l->receive_bell, l->receive_bit);
    if (shmnd_bell_wants(l->receive_bell, solicited, &l->receive_rung))
        shmnd_ring_doorbell(qp->peer->doorbell);
}

static inline void shmnd_notify_initiator(struct shmnd_qp *qp)
{
    struct shmnd_link_end *l = &qp->link;
    shmnd_store_then_load();
    shmnd_bell_mark(l->initiator_bell, l->initiator_bit);
    if (shmnd_bell_wants(l->initiator_bell, true, &l->initiator_rung))
        shmnd_ring_doorbell(qp->peer->doorbell);
}

/* After returning space or posting a receive: does a Send over there wait? */
static inline void shmnd_notify_waiting_sender(struct shmnd_qp *qp)
{
    /* SYNC credit: fence, pairs with the fence in shmnd_tx_want_credit() */
    shmnd_store_then_load();
    if (shmnd_relaxed32(&qp->link.theirs->wants_credit))
        shmnd_notify_initiator(qp);
}

/* ---- the peer's posted receives ------------------------------------------------------ */

static inline const struct shmnd_posted *shmnd_their_posted(const struct shmnd_qp *qp, uint64_t idx)
{
    const struct shmnd_link_end *l = &qp->link;
    return (const struct shmnd_posted *)(l->their_posted +
                                         (idx & l->their_posted_mask) * l->their_posted_stride);
}

/* The receive with this number holds messages shorter than `*below_p`. False when
 * its entry holds another one: it was met, or is not posted yet. */
static inline bool shmnd_their_capacity(const struct shmnd_qp *qp, uint64_t idx, uint64_t *below_p)
{
    /* SYNC entry: acquire, pairs with the fence in shmnd_rx_publish() */
    uint64_t word = shmnd_acquire64(&shmnd_their_posted(qp, idx)->capacity);
    *below_p = (uint32_t)word;
    return (uint32_t)(word >> 32) == (uint32_t)(idx + 1);
}

/* Looks again which receives are posted over there: receive numbers below
 * `qp->viewed`. Returns the revision the view belongs to; odd while the other
 * side flushes, and then grants nothing. */
static inline uint64_t shmnd_tx_look(struct shmnd_qp *qp, uint64_t *cancelled_p)
{
    const struct shmnd_side *theirs = qp->link.theirs;
    uint64_t revision = shmnd_acquire64(&theirs->revision);
    /* acquire: whoever sees a new count sees that `revision` moved on */
    uint64_t cancelled = shmnd_acquire64(&theirs->cancelled);
    /* SYNC posted: acquire, pairs with release in shmnd_rx_publish() */
    uint64_t posted = shmnd_acquire64(&theirs->posted);
    uint64_t met = qp->messages - qp->recalled;
    uint64_t first = met + cancelled; /* receive that the next message meets */
    *cancelled_p = cancelled;
    /* All entries, and the receive of a message in parts, which is met before
     * the message is counted here: more would be a lie. */
    uint64_t most = met + qp->link.their_posted_mask + 2;
    if ((revision & 1) || shmnd_relaxed64(&theirs->revision) != revision || cancelled > posted ||
        first < cancelled || posted - cancelled > most) {
        qp->credit = qp->messages < qp->credit ? qp->messages : qp->credit;
        return revision | 1;
    }
    uint64_t from = qp->viewed > first ? qp->viewed : first;
    uint64_t least = qp->viewed > first ? qp->below : UINT64_MAX;
    for (uint64_t i = from; i < posted; i++) {
        uint64_t below;
        if (shmnd_their_capacity(qp, i, &below) && below < least)
            least = below;
    }
    qp->viewed = posted;
    qp->seen_revision = revision;
    qp->seen_cancelled = cancelled;
    qp->below = least;
    qp->credit = posted - cancelled + qp->recalled;
    return revision;
}

/* Is a receive that holds `length` posted for message `message`, sent or the next?
 * `recalled` is how many before it met no receive. */
static inline bool shmnd_tx_met(struct shmnd_qp *qp, uint64_t message, uint64_t recalled,
                                uint64_t length)
{
    uint64_t cancelled, below;
    if (qp->link.their_srq || (shmnd_tx_look(qp, &cancelled) & 1))
        return false;
    uint64_t index = message - recalled + cancelled;
    return index < qp->viewed && shmnd_their_capacity(qp, index, &below) && length < below;
}

/* The same for the next message, without a look when the cached view suffices
 * (it says nothing about messages before the next). */
static inline bool shmnd_tx_proven(struct shmnd_qp *qp, uint64_t length)
{
    return (qp->messages < qp->credit && length < qp->below) ||
           shmnd_tx_met(qp, qp->messages, qp->recalled, length);
}

static inline void shmnd_tx_want_credit(struct shmnd_qp *qp, bool want)
{
    if (shmnd_relaxed32(&qp->link.mine->wants_credit) == (uint32_t)want)
        return;
    shmnd_put32(&qp->link.mine->wants_credit, want);
    /* SYNC credit: fence, pairs with the fence in shmnd_notify_waiting_sender() */
    shmnd_store_then_load();
}

/* ---- local memory ---------------------------------------------------------------------- */

static inline struct shmnd_sge *shmnd_wqe_sges(struct shmnd_qp *qp, uint64_t pos)
{
    return &qp->wqe_sges[(pos & qp->wq_mask) * qp->wq_stride];
}

static inline uint8_t *shmnd_wqe_inline(struct shmnd_qp *qp, uint64_t pos)
{
    return qp->wqe_inline + (pos & qp->wq_mask) * (uint64_t)qp->inline_size;
}

/* The stretches that `sges` name, if all lie in registered memory with one of
 * `rights`; false otherwise. */
static inline bool shmnd_local_spans(struct shmnd_registry *registry, const struct shmnd_sge *sges,
                                     uint32_t n, uint32_t rights, struct shmnd_spans *out)
{
    shmnd_spans_clear(out);
    for (uint32_t i = 0; i < n; i++) {
        if (!shmnd_sge_region(registry, &sges[i], rights))
            return false;
        shmnd_spans_add(out, sges[i].address, sges[i].length);
    }
    return true;
}

/* ---- the peer's memory ------------------------------------------------------------------ */

/* Where the peer's `offset` in `segment` lies for us. 0: not mapped here yet;
 * -1: not within what is mapped, or private and out of reach. */
static inline int shmnd_peer_span(const struct shmnd_peer *peer, uint32_t segment, uint64_t offset,
                                  uint64_t length, struct shmnd_spans *out)
{
    if (segment == SHMND_PRIVATE_MEMORY) {
        if (!peer->vm || (out->count && !out->remote))
            return -1;
        out->remote = true;
        shmnd_spans_add(out, offset, length);
        return 1;
    }
    if (segment >= SHMND_FIRST_BELL_SEGMENT || out->remote)
        return -1;
    if (segment >= peer->data_count || !peer->data[segment].base)
        return 0;
    const struct shmnd_mapping *m = &peer->data[segment];
    if (!shmnd_within(offset, length, 0, m->bytes))
        return -1;
    shmnd_spans_add(out, (uint64_t)(uintptr_t)m->base + offset, length);
    return 1;
}

/* ---- completing --------------------------------------------------------------------------- */

static inline void shmnd_tx_complete(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    struct shmnd_cqe e = {w->context, qp->context, w->status, 0, w->type, 0};
    if (w->status == SHMND_SUCCESS && (w->flags & SHMND_OP_SILENT_SUCCESS))
        e.flags = SHMND_CQE_SILENT;
    shmnd_cq_push(qp->initiator_cq, &e);
}

/* Has the Send at `w` come to its end? */
static inline bool shmnd_tx_send_finished(struct shmnd_qp *qp, struct shmnd_wqe *w, uint64_t taken)
{
    if (w->message < taken)
        return true;
    /* One that was closed upon is finished only by `taken`. */
    if (shmnd_relaxed32(&qp->link.theirs->closing))
        return false;
    if (!w->large) {
        w->proven = w->proven || shmnd_tx_met(qp, w->message, w->recalled, w->length);
        return w->proven;
    }
    struct shmnd_chunks c = shmnd_chunks_of(w->length, w->message);
    return w->moved == 0 && shmnd_chunks_finished(&qp->link.mine->shares[w->share], &c);
}

/* Completes what is finished, oldest first, in order. */
static inline void shmnd_tx_retire(struct shmnd_qp *qp)
{
    if (qp->wq_head == qp->wq_next || !qp->link.theirs)
        return;
    /* SYNC taken: acquire, pairs with release in shmnd_rx_took() */
    uint64_t taken = shmnd_acquire64(&qp->link.theirs->taken);
    if (taken > qp->messages)
        taken = qp->messages; /* more than was sent: a lie that helps nobody */
    while (qp->wq_head != qp->wq_next && shmnd_cq_has_room(qp->initiator_cq)) {
        struct shmnd_wqe *w = &qp->wqes[qp->wq_head & qp->wq_mask];
        if (w->state == SHMND_WQE_SENT) {
            if (qp->tx_busy && w->large && qp->wq_head + 1 == qp->wq_next)
                break; /* its copy is running */
            if (!shmnd_tx_send_finished(qp, w, taken))
                break;
            w->state = SHMND_WQE_DONE;
            w->status = SHMND_SUCCESS;
        }
        if (w->state != SHMND_WQE_DONE)
            break;
        if (w->large)
            qp->large_in_flight = false;
        if (w->status != SHMND_SUCCESS && w->status != SHMND_CANCELED) {
            shmnd_qp_go_down(qp, SHMND_LINK_FAULT, w->status);
            return;
        }
        shmnd_tx_complete(qp, w);
        qp->wq_head++;
    }
    if (qp->wq_head == qp->wq_tail)
        shmnd_tx_want_credit(qp, false);
}

static inline void shmnd_tx_fail(struct shmnd_wqe *w, uint32_t status)
{
    w->state = SHMND_WQE_DONE;
    w->status = status;
}

/* ---- carrying out: Send -------------------------------------------------------------------- */

/* The request gets the next message's number and place. */
static inline void shmnd_tx_number(const struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    w->message = qp->messages;
    w->recalled = qp->recalled;
    w->slot_pos = qp->out.write_pos;
}

/* Takes a Send back that waits for a receive: it is as if it was never sent.
 * False: it has met one, or may have. Later ones must be taken back before
 * earlier ones, so that what stays keeps its number of receives. */
static inline bool shmnd_tx_recall(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    if (w->state != SHMND_WQE_SENT || w->proven || w->moved)
        return false;
    if (!shmnd_slots_recall(&qp->out, w->slot_pos))
        return false;
    qp->recalled++;
    return true;
}

/* Puts a whole message into the ring. The caller saw that there is room. */
static inline void shmnd_tx_write_eager(struct shmnd_qp *qp, const struct shmnd_sge *sges,
                                        uint32_t n, const uint8_t *inlined, uint32_t length,
                                        uint8_t flags)
{
    struct shmnd_slots_fill fill = shmnd_slots_begin(&qp->out);
    if (inlined) {
        shmnd_slots_add(&fill, inlined, length);
    } else {
        for (uint32_t i = 0; i < n; i++)
            if (sges[i].length)
                shmnd_slots_add(&fill, (const void *)(uintptr_t)sges[i].address, sges[i].length);
    }
    shmnd_slots_publish(&qp->out, length, SHMND_KIND_EAGER, flags, shmnd_slots_for(length));
    qp->messages++;
}

static inline uint8_t shmnd_tx_slot_flags(uint32_t op_flags, bool ack)
{
    return (uint8_t)((op_flags & SHMND_OP_SOLICIT ? SHMND_SLOT_SOLICITED : 0) |
                     (ack ? SHMND_SLOT_ACK : 0));
}

/* Can the receive that a message meets, sent or the next, be written from here?
 * Fills the job's target. 1 yes, 0 a segment is missing, -1 no. */
static inline int shmnd_tx_aim(struct shmnd_qp *qp, uint64_t message, uint64_t recalled,
                               uint64_t length, struct shmnd_job *job)
{
    uint64_t below, cancelled = qp->seen_cancelled, revision = qp->seen_revision;
    uint64_t index = message - recalled + cancelled;
    /* The view in hand serves as long as nothing was withdrawn; this spares the
     * line that the other side writes with every receive. */
    if (index >= qp->viewed || shmnd_relaxed64(&qp->link.theirs->revision) != revision) {
        revision = shmnd_tx_look(qp, &cancelled);
        index = message - recalled + cancelled;
        if ((revision & 1) || index >= qp->viewed)
            return -1;
    }
    const struct shmnd_posted *entry = shmnd_their_posted(qp, index);
    shmnd_prefetch(shmnd_their_posted(qp, index + 1));
    if (!shmnd_their_capacity(qp, index, &below) || length >= below)
        return -1;
    uint64_t extents = shmnd_relaxed64(&entry->extents);
    if (extents == 0 || extents > qp->link.their_extents)
        return -1;
    const struct shmnd_shared_extent *x = (const struct shmnd_shared_extent *)(entry + 1);
    struct shmnd_spans all;
    shmnd_spans_clear(&all);
    for (uint64_t i = 0; i < extents; i++) {
        uint64_t place = shmnd_relaxed64(&x[i].place);
        int got = shmnd_peer_span(qp->peer, (uint32_t)(place >> 32), shmnd_relaxed64(&x[i].offset),
                                  (uint32_t)place, &all);
        if (got <= 0)
            return got;
    }
    /* SYNC entry: fence, pairs with the fence in shmnd_rx_publish() */
    shmnd_loads_before();
    if (!shmnd_their_capacity(qp, index, &below) || all.total < length)
        return -1;
    shmnd_spans_cut(&all, 0, length, &job->to);
    job->revision = revision;
    job->index = index;
    return 1;
}

/* Words for the chunks of one more large message: those whose last message was
 * taken. NULL: the other side has that many still to take. */
static inline struct shmnd_share *shmnd_tx_free_share(const struct shmnd_qp *qp)
{
    uint32_t i = (uint32_t)(qp->larges % SHMND_SHARES);
    /* SYNC taken: acquire, pairs with release in shmnd_rx_took() */
    if (qp->larges >= SHMND_SHARES &&
        shmnd_acquire64(&qp->link.theirs->taken) <= qp->share_message[i])
        return NULL;
    return &qp->link.mine->shares[i];
}

/* Announces a large message: the extents of its source, for a reader that helps.
 * The payload is {u32 extents, u32 share, extents...}. */
static inline void shmnd_tx_write_large(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                        const struct shmnd_sge *sges)
{
    struct shmnd_extent x[SHMND_MAX_SGE];
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->sges; i++) {
        struct shmnd_region *region = shmnd_region_of(qp->registry, sges[i].token);
        bool shared = region->segment != SHMND_PRIVATE_MEMORY;
        if (sges[i].length == 0)
            continue;
        x[n].segment = region->segment;
        x[n].offset = shared ? region->offset + (sges[i].address - region->base) : sges[i].address;
        x[n].length = sges[i].length;
        n++;
    }
    uint32_t head[2] = {n, w->share};
    struct shmnd_slots_fill fill = shmnd_slots_begin(&qp->out);
    shmnd_slots_add(&fill, head, sizeof head);
    shmnd_slots_add(&fill, x, n * (uint32_t)sizeof x[0]);
    shmnd_slots_publish(&qp->out, (uint32_t)w->length, SHMND_KIND_LARGE,
                        shmnd_tx_slot_flags(w->flags, true),
                        shmnd_slots_for(8 + n * (uint32_t)sizeof x[0]));
}

/* Can the other side read the memory of these SGEs? All in segments, or all
 * private and within its reach; one copy never mixes the two. */
static inline bool shmnd_tx_pullable(const struct shmnd_qp *qp, const struct shmnd_sge *sges,
                                     uint32_t n)
{
    uint32_t shared = 0, private = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct shmnd_region *region = shmnd_region_of(qp->registry, sges[i].token);
        if (sges[i].length == 0)
            continue;
        if (region->segment == SHMND_PRIVATE_MEMORY)
            private++;
        else
            shared++;
    }
    return private == 0 || (shared == 0 && shmnd_relaxed32(&qp->link.theirs->reaches) == 1);
}

static inline void shmnd_tx_sent(struct shmnd_qp *qp, struct shmnd_wqe *w, bool large)
{
    w->state = SHMND_WQE_SENT;
    w->large = large;
    qp->large_in_flight = qp->large_in_flight || large;
    qp->wq_next++;
}

static inline enum shmnd_progress shmnd_tx_issue_eager(struct shmnd_qp *qp, struct shmnd_wqe *w,
                                                       const struct shmnd_sge *sges)
{
    uint32_t length = (uint32_t)w->length;
    if (!shmnd_slots_room(&qp->out, shmnd_slots_for(length)))
        return SHMND_IDLE;
    w->proven = shmnd_tx_proven(qp, length);
    const uint8_t *inlined =
        w->flags & SHMND_OP_INLINE ? shmnd_wqe_inline(qp, qp->wq_next) : NULL;
    shmnd_tx_number(qp, w);
    shmnd_tx_write_eager(qp, sges, w->sges, inlined, length,
                         shmnd_tx_slot_flags(w->flags, !w->proven));
    shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
    shmnd_tx_sent(qp, w, false);
    return SHMND_IDLE;
}

/* A piece of a message that no memory can be shared for, as room permits. */
static inline enum shmnd_progress shmnd_tx_issue_parts(struct shmnd_qp *qp, struct shmnd_wqe *w,
                                                       const struct shmnd_spans *source)
{
    while (w->moved < w->length) {
        uint64_t left = w->length - w->moved;
        uint32_t n = left < SHMND_EAGER_MAX ? (uint32_t)left : SHMND_EAGER_MAX;
        if (!shmnd_slots_room(&qp->out, shmnd_slots_for(n)))
            return SHMND_IDLE;
        struct shmnd_spans part;
        shmnd_spans_cut(source, w->moved, n, &part);
        struct shmnd_slots_fill fill = shmnd_slots_begin(&qp->out);
        for (uint32_t i = 0; i < part.count; i++)
            shmnd_slots_add(&fill, (const void *)(uintptr_t)part.v[i].at,
                            (uint32_t)part.v[i].length);
        w->moved += n;
        uint8_t last = w->moved == w->length ? SHMND_SLOT_LAST : 0;
        shmnd_slots_publish(&qp->out, n, SHMND_KIND_PART,
                            (uint8_t)(shmnd_tx_slot_flags(w->flags, true) | last),
                            shmnd_slots_for(n));
        shmnd_notify_receiver(qp, last && (w->flags & SHMND_OP_SOLICIT));
    }
    w->message = qp->messages++;
    shmnd_tx_sent(qp, w, true);
    return SHMND_IDLE;
}

static inline void shmnd_tx_announce(struct shmnd_qp *qp, struct shmnd_wqe *w,
                                     const struct shmnd_sge *sges, struct shmnd_share *share)
{
    qp->tx_job.chunks = shmnd_chunks_of(w->length, qp->messages);
    shmnd_chunks_offer(share, &qp->tx_job.chunks);
    w->share = (uint8_t)(qp->larges++ % SHMND_SHARES);
    qp->share_message[w->share] = qp->messages;
    shmnd_tx_number(qp, w);
    shmnd_tx_write_large(qp, w, sges);
    qp->messages++;
    shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
    shmnd_tx_sent(qp, w, true);
    qp->tx_job.share = share;
}

static inline enum shmnd_progress shmnd_tx_issue_send(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    const struct shmnd_sge *sges = shmnd_wqe_sges(qp, qp->wq_next);
    struct shmnd_job *job = &qp->tx_job;
    if (w->flags & SHMND_OP_INLINE)
        return shmnd_tx_issue_eager(qp, w, sges);
    if (!shmnd_local_spans(qp->registry, sges, w->sges, 0, &job->from)) {
        shmnd_tx_fail(w, SHMND_ACCESS_VIOLATION);
        qp->wq_next++;
        return SHMND_IDLE;
    }
    if (w->length < SHMND_PLACE_MIN)
        return shmnd_tx_issue_eager(qp, w, sges);
    if (w->moved)
        return shmnd_tx_issue_parts(qp, w, &job->from);
    if (qp->large_in_flight || !shmnd_slots_room(&qp->out, SHMND_RING_SLOTS / 4))
        return SHMND_IDLE;
    int aim = qp->link.their_srq ? -1 : shmnd_tx_aim(qp, qp->messages, qp->recalled, w->length, job);
    if (aim == 0)
        return SHMND_NEEDS_MAP;
    if (aim < 0 && w->length <= SHMND_EAGER_MAX)
        return shmnd_tx_issue_eager(qp, w, sges);
    struct shmnd_share *share = shmnd_tx_free_share(qp);
    if (aim > 0 && (w->length < SHMND_SHARE_MIN || !share)) {
        job->kind = SHMND_JOB_PLACE;
        qp->tx_busy = true;
        return SHMND_RUN;
    }
    if (aim < 0 && !shmnd_tx_pullable(qp, sges, w->sges)) {
        /* Wait for a receive, which may be one that can be written from here. One
         * that is too small is for its owner to refuse. */
        if (!qp->link.their_srq && qp->messages >= qp->credit)
            return SHMND_IDLE;
        return shmnd_tx_issue_parts(qp, w, &job->from);
    }
    if (!share)
        return SHMND_IDLE; /* until the other side has taken more */
    shmnd_tx_announce(qp, w, sges, share);
    if (aim < 0)
        return SHMND_IDLE;
    job->kind = SHMND_JOB_CHUNKS;
    qp->tx_busy = true;
    return SHMND_RUN;
}

/* A large message was announced before its receive was posted: has one come? */
static inline enum shmnd_progress shmnd_tx_push_late(struct shmnd_qp *qp)
{
    struct shmnd_wqe *w = &qp->wqes[qp->wq_head & qp->wq_mask];
    struct shmnd_job *job = &qp->tx_job;
    if (qp->wq_head == qp->wq_next || w->state != SHMND_WQE_SENT || !w->large || w->moved ||
        qp->link.their_srq)
        return SHMND_IDLE;
    job->chunks = shmnd_chunks_of(w->length, w->message);
    job->share = &qp->link.mine->shares[w->share];
    if ((uint32_t)shmnd_relaxed64(&job->share->claim) >= job->chunks.count)
        return SHMND_IDLE;
    int aim = shmnd_tx_aim(qp, w->message, w->recalled, w->length, job);
    if (aim <= 0)
        return aim == 0 ? SHMND_NEEDS_MAP : SHMND_IDLE;
    if (!shmnd_local_spans(qp->registry, shmnd_wqe_sges(qp, qp->wq_head), w->sges, 0, &job->from))
        return SHMND_IDLE; /* deregistered meanwhile: whoever claims ends with it */
    job->kind = SHMND_JOB_CHUNKS;
    qp->tx_busy = true;
    return SHMND_RUN;
}

/* ---- carrying out: Read and Write -------------------------------------------------------------- */

static inline const struct shmnd_grant *shmnd_their_grant(const struct shmnd_qp *qp, uint32_t token)
{
    uint32_t idx = shmnd_token_index(token);
    const struct shmnd_mapping *m = &qp->peer->tables[idx / SHMND_TABLE_ENTRIES];
    return m->base ? &((const struct shmnd_grant *)m->base)[idx % SHMND_TABLE_ENTRIES] : NULL;
}

/* Checks both ends of a Read or Write and prepares its copy. A status,
 * SHMND_PENDING for "map a segment first". */
static inline uint32_t shmnd_tx_aim_rdma(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                         const struct shmnd_sge *sges, const uint8_t *inlined,
                                         struct shmnd_job *job)
{
    bool reading = w->type == SHMND_READ;
    struct shmnd_spans *local = reading ? &job->to : &job->from;
    struct shmnd_spans *remote = reading ? &job->from : &job->to;
    uint32_t rights = reading ? SHMND_MR_LOCAL_WRITE | SHMND_MR_READ_SINK : 0;
    if (reading && qp->outbound_read_limit == 0)
        return SHMND_INVALID_DEVICE_REQUEST;
    if (inlined) {
        shmnd_spans_clear(local);
        shmnd_spans_add(local, (uint64_t)(uintptr_t)inlined, w->length);
    } else if (!shmnd_local_spans(qp->registry, sges, w->sges, rights, local)) {
        return SHMND_ACCESS_VIOLATION;
    }
    job->kind = SHMND_JOB_NONE;
    if (w->length == 0)
        return SHMND_SUCCESS;
    const struct shmnd_grant *grant = shmnd_their_grant(qp, w->remote_token);
    if (!grant)
        return SHMND_PENDING;
    struct shmnd_target target;
    uint32_t right = reading ? SHMND_ALLOW_READ : SHMND_ALLOW_WRITE;
    if (!shmnd_grant_read(grant, w->remote_token, right, w->remote_address, w->length,
                          qp->link.connection, &target))
        return SHMND_ACCESS_VIOLATION;
    shmnd_spans_clear(remote);
    int got = shmnd_peer_span(qp->peer, target.segment, target.offset, w->length, remote);
    if (got <= 0)
        return got == 0 ? SHMND_PENDING : SHMND_ACCESS_VIOLATION;
    job->kind = SHMND_JOB_RDMA;
    job->grant = grant;
    job->token = w->remote_token;
    return SHMND_SUCCESS;
}

/* ---- running a prepared copy (without the interpreter's lock) ------------------------------------ */

static inline uint32_t shmnd_copy_status(int error)
{
    return error == 0        ? SHMND_SUCCESS
           : error == ESRCH  ? SHMND_IO_TIMEOUT
           : error == EFAULT ? SHMND_ACCESS_VIOLATION
                             : SHMND_INTERNAL_ERROR;
}

static inline uint32_t shmnd_move(const struct shmnd_peer *peer, const struct shmnd_spans *to,
                                  const struct shmnd_spans *from)
{
    if (to->remote || from->remote)
        return shmnd_copy_status(shmnd_vm_copy(peer->pid, to, from));
    shmnd_spans_copy_mapped(to, from);
    return SHMND_SUCCESS;
}

/* A Write whose target may be spun upon: its last byte becomes visible last. */
static inline uint32_t shmnd_move_in_order(const struct shmnd_peer *peer,
                                           const struct shmnd_spans *to,
                                           const struct shmnd_spans *from)
{
    if (to->remote || from->count != 1 || to->count != 1)
        return shmnd_move(peer, to, from);
    uint8_t *dst = (uint8_t *)(uintptr_t)to->v[0].at;
    const uint8_t *src = (const uint8_t *)(uintptr_t)from->v[0].at;
    uint64_t n = to->v[0].length;
    if (n == 8 && !(to->v[0].at & 7)) {
        uint64_t word;
        memcpy(&word, src, 8);
        shmnd_stores_before();
        shmnd_put64((shmnd_word64 *)(void *)dst, word);
        return SHMND_SUCCESS;
    }
    uint8_t last = src[n - 1]; /* before, in case the two overlap */
    memmove(dst, src, n - 1);
    shmnd_stores_before();
    shmnd_put_byte(dst + n - 1, last);
    return SHMND_SUCCESS;
}

static inline bool shmnd_push_enter(struct shmnd_qp *qp, uint64_t revision)
{
    shmnd_put64(&qp->link.mine->hazard, SHMND_HAZARD_PUSH);
    /* SYNC placing: fence, pairs with the fence in shmnd_rx_withdraw() */
    shmnd_store_then_load();
    if (shmnd_relaxed64(&qp->link.theirs->revision) == revision &&
        !shmnd_relaxed32(&qp->link.theirs->closing))
        return true;
    shmnd_hazard_leave(&qp->link.mine->hazard);
    return false;
}

static inline uint32_t shmnd_run_rdma(struct shmnd_qp *qp, struct shmnd_job *job)
{
    if (!shmnd_hazard_enter(&qp->link.mine->hazard, job->grant, job->token))
        return SHMND_ACCESS_VIOLATION;
    /* SYNC closing: the fence in shmnd_hazard_enter() pairs with the closer's */
    if (shmnd_relaxed32(&qp->link.theirs->closing)) {
        shmnd_hazard_leave(&qp->link.mine->hazard);
        return SHMND_CANCELED;
    }
    uint32_t status = job->to.remote || job->from.remote
                          ? shmnd_move(qp->peer, &job->to, &job->from)
                          : shmnd_move_in_order(qp->peer, &job->to, &job->from);
    shmnd_hazard_leave(&qp->link.mine->hazard);
    return status;
}

static inline uint32_t shmnd_run_place(struct shmnd_qp *qp, struct shmnd_job *job,
                                       const struct shmnd_wqe *w)
{
    if (!shmnd_push_enter(qp, job->revision))
        return SHMND_PENDING;
    /* The line that the reader watches comes over while the copy runs. */
    shmnd_prefetch_to_write(shmnd_slot_at(qp->out.ring, qp->out.write_pos));
    uint32_t status = shmnd_move(qp->peer, &job->to, &job->from);
    if (status == SHMND_SUCCESS) {
        struct shmnd_slots_fill fill = shmnd_slots_begin(&qp->out);
        shmnd_slots_add(&fill, &job->index, sizeof job->index);
        shmnd_slots_publish(&qp->out, (uint32_t)w->length, SHMND_KIND_PLACED,
                            shmnd_tx_slot_flags(w->flags, false), 1);
    }
    shmnd_hazard_leave(&qp->link.mine->hazard);
    return status;
}

/* Claims and copies chunks until none is left. Used by both sides. */
static inline uint32_t shmnd_run_chunks(const struct shmnd_peer *peer, struct shmnd_job *job)
{
    uint32_t status = SHMND_SUCCESS;
    for (uint32_t i = 0; i < job->chunks.count; i++) {
        int chunk = shmnd_chunks_claim(job->share, &job->chunks);
        if (chunk < 0)
            break;
        struct shmnd_spans to, from;
        uint64_t off = (uint64_t)chunk * job->chunks.size;
        uint64_t n = shmnd_chunk_bytes(&job->chunks, chunk);
        shmnd_spans_cut(&job->to, off, n, &to);
        shmnd_spans_cut(&job->from, off, n, &from);
        uint32_t now = shmnd_move(peer, &to, &from);
        if (now != SHMND_SUCCESS)
            return now; /* the chunk stays claimed and undone; the connection ends */
        shmnd_chunks_set_done(job->share, chunk);
    }
    return status;
}

/* The copy prepared by shmnd_tx_advance(). */
static inline void shmnd_tx_run(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->tx_job;
    struct shmnd_wqe *w = &qp->wqes[qp->wq_next & qp->wq_mask];
    switch (job->kind) {
    case SHMND_JOB_RDMA:
        job->result = shmnd_run_rdma(qp, job);
        break;
    case SHMND_JOB_PLACE:
        job->result = shmnd_run_place(qp, job, w);
        break;
    case SHMND_JOB_CHUNKS:
        if (!shmnd_push_enter(qp, job->revision)) {
            job->result = SHMND_PENDING;
            break;
        }
        job->result = shmnd_run_chunks(qp->peer, job);
        shmnd_hazard_leave(&qp->link.mine->hazard);
        break;
    default:
        job->result = SHMND_SUCCESS;
    }
}

/* Under the lock again: what the copy came to. */
static inline void shmnd_tx_ran(struct shmnd_qp *qp)
{
    struct shmnd_job *job = &qp->tx_job;
    enum shmnd_job_kind kind = job->kind;
    qp->tx_busy = qp->tx_started = false;
    job->kind = SHMND_JOB_NONE;
    if (kind == SHMND_JOB_CHUNKS) {
        struct shmnd_wqe *head = &qp->wqes[qp->wq_head & qp->wq_mask];
        if (job->result != SHMND_SUCCESS && job->result != SHMND_PENDING)
            shmnd_tx_fail(head, job->result);
        shmnd_notify_receiver(qp, head->flags & SHMND_OP_SOLICIT);
        return;
    }
    struct shmnd_wqe *w = &qp->wqes[qp->wq_next & qp->wq_mask];
    if (kind == SHMND_JOB_PLACE) {
        if (job->result == SHMND_PENDING)
            return; /* the receive was withdrawn: issued anew */
        if (job->result == SHMND_SUCCESS) {
            shmnd_tx_number(qp, w);
            qp->messages++;
            w->proven = true;
            shmnd_notify_receiver(qp, w->flags & SHMND_OP_SOLICIT);
            shmnd_tx_sent(qp, w, false);
            return;
        }
    }
    shmnd_tx_fail(w, job->result);
    qp->wq_next++;
}

/* ---- advancing the queue ----------------------------------------------------------------------- */

static inline enum shmnd_progress shmnd_tx_issue_rdma(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    const uint8_t *inlined =
        w->flags & SHMND_OP_INLINE ? shmnd_wqe_inline(qp, qp->wq_next) : NULL;
    uint32_t status =
        shmnd_tx_aim_rdma(qp, w, shmnd_wqe_sges(qp, qp->wq_next), inlined, &qp->tx_job);
    if (status == SHMND_PENDING)
        return SHMND_NEEDS_MAP;
    if (status == SHMND_SUCCESS && qp->tx_job.kind != SHMND_JOB_NONE) {
        qp->tx_busy = true;
        return SHMND_RUN;
    }
    shmnd_tx_fail(w, status);
    qp->wq_next++;
    return SHMND_IDLE;
}

/* Invalidate waits until the peer touches nothing of the window any more. */
static inline bool shmnd_tx_issue_window(struct shmnd_qp *qp, struct shmnd_wqe *w)
{
    if (w->type == SHMND_INVALIDATE && w->status == SHMND_SUCCESS && !qp->peer->dead &&
        !shmnd_hazard_clear_of(&qp->link.theirs->hazard, w->remote_token))
        return false;
    w->state = SHMND_WQE_DONE;
    qp->wq_next++;
    return true;
}

/* Issues what may be issued. SHMND_RUN: run the job (shmnd_tx_run, then
 * shmnd_tx_ran) and call again; SHMND_NEEDS_MAP: map and call again. */
static inline enum shmnd_progress shmnd_tx_advance(struct shmnd_qp *qp)
{
    if (qp->tx_busy)
        return qp->tx_started ? SHMND_IDLE : SHMND_RUN;
    while (!qp->tx_busy && qp->state == SHMND_QP_CONNECTED && !qp->going_down) {
        shmnd_tx_retire(qp);
        if (qp->state != SHMND_QP_CONNECTED || qp->wq_head == qp->wq_tail)
            return SHMND_IDLE;
        enum shmnd_progress late = shmnd_tx_push_late(qp);
        if (late != SHMND_IDLE)
            return late;
        if (qp->wq_next == qp->wq_tail)
            return SHMND_IDLE;
        struct shmnd_wqe *w = &qp->wqes[qp->wq_next & qp->wq_mask];
        uint64_t before = qp->wq_next;
        enum shmnd_progress p = SHMND_IDLE;
        if (w->state == SHMND_WQE_DONE)
            qp->wq_next++; /* cancelled before it was issued */
        else if (w->type == SHMND_SEND)
            p = shmnd_tx_issue_send(qp, w);
        else if (qp->wq_head != qp->wq_next)
            return SHMND_IDLE; /* behind a Send that waits */
        else if (w->type == SHMND_READ || w->type == SHMND_WRITE)
            p = shmnd_tx_issue_rdma(qp, w);
        else if (!shmnd_tx_issue_window(qp, w))
            return SHMND_IDLE;
        if (p != SHMND_IDLE)
            return p;
        if (qp->wq_next == before)
            return SHMND_IDLE;
    }
    return SHMND_IDLE;
}

/* The oldest Send has waited too long: it fails, unless it has just met a receive.
 * What was sent after it is taken back first, and sent anew if it did. */
static inline void shmnd_tx_time_out(struct shmnd_qp *qp, struct shmnd_wqe *oldest)
{
    while (qp->wq_next - qp->wq_head > 1) {
        struct shmnd_wqe *w = &qp->wqes[(qp->wq_next - 1) & qp->wq_mask];
        if (w->state == SHMND_WQE_SENT && !shmnd_tx_recall(qp, w))
            return;
        if (w->state == SHMND_WQE_SENT) {
            w->state = SHMND_WQE_QUEUED;
            qp->large_in_flight = qp->large_in_flight && !w->large;
            w->large = false;
        }
        qp->wq_next--;
    }
    if (oldest->state == SHMND_WQE_SENT && !shmnd_tx_recall(qp, oldest))
        return;
    shmnd_tx_fail(oldest, SHMND_IO_TIMEOUT);
    if (qp->wq_next == qp->wq_head)
        qp->wq_next++;
    shmnd_tx_retire(qp);
}

/* The oldest Send waits for a receive: since when, and is that too long? */
static inline void shmnd_tx_check_time(struct shmnd_qp *qp, uint64_t now_ns)
{
    if (qp->wq_head == qp->wq_tail || qp->tx_busy || qp->state != SHMND_QP_CONNECTED)
        return;
    struct shmnd_wqe *w = &qp->wqes[qp->wq_head & qp->wq_mask];
    shmnd_tx_want_credit(qp, true);
    if (w->type != SHMND_SEND || w->state == SHMND_WQE_DONE || qp->link.their_srq)
        return;
    uint64_t cancelled;
    bool sent = w->state == SHMND_WQE_SENT;
    uint64_t met = sent ? w->message - w->recalled : qp->messages - qp->recalled;
    if (!(shmnd_tx_look(qp, &cancelled) & 1) && met + cancelled < qp->viewed)
        w->since_ns = 0; /* a receive is there; the rest is a matter of copying */
    else if (w->since_ns == 0)
        w->since_ns = now_ns;
    else if (now_ns - w->since_ns > qp->rnr_ns)
        shmnd_tx_time_out(qp, w);
}

/* For Deregister: no message under way has its source in `token`. One that waits
 * for a receive fails; one that met it is waited for (false: ask again). */
static inline bool shmnd_tx_forget_region(struct shmnd_qp *qp, uint32_t token)
{
    bool settled = true;
    if (!qp->large_in_flight || qp->state != SHMND_QP_CONNECTED)
        return true;
    for (uint64_t i = qp->wq_head; i != qp->wq_next; i++) {
        struct shmnd_wqe *w = &qp->wqes[i & qp->wq_mask];
        bool names = false;
        for (uint32_t k = 0; w->large && w->state == SHMND_WQE_SENT && k < w->sges; k++)
            names = names || shmnd_wqe_sges(qp, i)[k].token == token;
        if (!names || w->moved)
            continue;
        if (!qp->tx_busy && shmnd_tx_recall(qp, w))
            shmnd_tx_fail(w, SHMND_ACCESS_VIOLATION);
        else
            settled = false;
    }
    shmnd_tx_retire(qp);
    return settled;
}

#endif
