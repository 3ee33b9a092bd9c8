/* SPDX-License-Identifier: Apache-2.0
 *
 * The message at the front: that of the ring, or the first of the peer's backlog if none is there.
 *
 * It is skipped if its sender recalled it, then checked, then claimed. No receive is used for it
 * before it is claimed: it cannot be recalled from then on (SYNC recall in slots.h).
 */
#ifndef SHMND_RECEIVE_FRONT_H
#define SHMND_RECEIVE_FRONT_H

#include "receive/pull.h"
#include "receive/short.h"

/* Publish that the message was taken, and wake the sender if it waits for that. */
static inline void shmnd_rx_acknowledge(struct shmnd_qp *qp)
{
    shmnd_rx_publish_taken(qp);
    if (qp->rx.flags & SHMND_SLOT_ACK)
        shmnd_notify_waiting_sender(qp);
}

/* Return whether the message is well-formed, as far as its receive, extents or listing are
 * concerned. */
static inline bool shmnd_rx_is_well_formed(struct shmnd_qp *qp, struct shmnd_message_header *a)
{
    if (qp->rx.open)
        return a->kind == SHMND_KIND_PART;
    if (a->kind == SHMND_KIND_PLACED) {
        uint64_t index;
        struct shmnd_read_cursor drain = shmnd_slots_read_begin(&qp->in, a->flags);
        shmnd_slots_read_once(&drain, &index, sizeof index);
        return !qp->shared && index == qp->own.matched - qp->posted_base;
    }
    if (a->kind == SHMND_KIND_BOUNCED) {
        uint32_t at;
        struct shmnd_read_cursor drain = shmnd_slots_read_begin(&qp->in, a->flags);
        shmnd_slots_read_once(&drain, &at, sizeof at);
        qp->rx.bounced = qp->link.their_bounce + at;
        return at <= SHMND_BOUNCE_BYTES - a->length;
    }
    if (a->kind == SHMND_KIND_LISTED)
        return shmnd_rx_check_listed(qp, a);
    return a->kind != SHMND_KIND_LARGE || shmnd_rx_read_large(qp, a);
}

/* Skip a message that its sender recalled: it matches no receive, but has a number. Return false if
 * it is the last part of a message: then the sender is closing, and no message follows. */
static inline bool shmnd_rx_try_skip(struct shmnd_qp *qp, const struct shmnd_message_header *a)
{
    if (a->kind == SHMND_KIND_PART)
        return false;
    qp->rx.needs_segment = false;
    qp->rx.flags = 0;
    shmnd_counters_add(&qp->counters->skipped, 1);
    shmnd_rx_consume_slots(qp, a->slots);
    shmnd_rx_acknowledge(qp);
    return true;
}

/* Claim a message that can be recalled, before a receive is used for it; one in parts with its last
 * part. Return false if it was recalled. */
static inline bool shmnd_rx_claim(struct shmnd_qp *qp, const struct shmnd_message_header *a)
{
    if (a->kind == SHMND_KIND_LISTED)
        return shmnd_rx_claim_listed(qp);
    bool parts = a->kind == SHMND_KIND_PART;
    bool due = parts ? a->flags & SHMND_SLOT_LAST : !qp->rx.open && (a->flags & SHMND_SLOT_ACK);
    return !due || shmnd_slots_claim(&qp->in);
}

enum shmnd_front {
    SHMND_FRONT_WAITS = 0, /* none, or one that cannot be taken now */
    SHMND_FRONT_SKIPPED,   /* it was recalled: the next may be taken */
    SHMND_FRONT_CLAIMED,
};

/* Claim the message at the front. If the result is CLAIMED, `a` is its header, and a receive is
 * posted for it. */
static inline enum shmnd_front shmnd_rx_claim_front(struct shmnd_qp *qp,
                                                    struct shmnd_message_header *a)
{
    enum shmnd_peek peek = shmnd_slots_peek(&qp->in, a);
    if (peek == SHMND_PEEK_NONE && qp->rx.lists && !qp->rx.open)
        peek = shmnd_rx_read_listed(qp, a);
    if (peek == SHMND_PEEK_NONE)
        return SHMND_FRONT_WAITS;
    if (peek == SHMND_PEEK_RECALLED && (a->kind == SHMND_KIND_PART || !qp->rx.open))
        return shmnd_rx_try_skip(qp, a) ? SHMND_FRONT_SKIPPED : SHMND_FRONT_WAITS;
    if (peek == SHMND_PEEK_MALFORMED || !shmnd_rx_is_well_formed(qp, a)) {
        qp->rx.fault = true;
        return SHMND_FRONT_WAITS;
    }
    if (qp->rx.needs_segment)
        return SHMND_FRONT_WAITS;
    if (!qp->rx.open && !shmnd_receives_outstanding(qp->receives)) {
        qp->rx.stalled = qp->receives->starved = true;
        return SHMND_FRONT_WAITS;
    }
    if (shmnd_rx_claim(qp, a)) {
        SHMND_KILL_POINT("message-claimed");
        return SHMND_FRONT_CLAIMED;
    }
    /* A listed message that its sender reclaimed follows in the ring. */
    if (a->kind == SHMND_KIND_LISTED || shmnd_rx_try_skip(qp, a))
        return SHMND_FRONT_SKIPPED;
    return SHMND_FRONT_WAITS;
}

#endif
