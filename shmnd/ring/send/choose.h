/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of the protocol for a Send: by its length, its memory, the receive that it will match,
 * and the room in the ring. Nothing is sent here.
 */
#ifndef SHMND_SEND_CHOOSE_H
#define SHMND_SEND_CHOOSE_H

#include "send/bounce.h"

/* From this length a message is placed directly into its receive, when that is known: slots take
 * longer, since each is a cache line to transfer. Shorter ones stream faster through the ring. */
#define SHMND_PLACE_MIN 512u
/* Up to this length the ring is faster than a system call into a receive in private memory. */
#define SHMND_COPY_TWICE_MAX SHMND_EAGER_LONGEST
/* From this length a message in a segment to a shared receive queue is copied by its reader. */
#define SHMND_PULL_MIN 1024u
/* Up to this length the sender places a message from private memory alone: it copies without a
 * system call, of which the reader needs several, and waits for the reader's chunks longer than
 * they save. */
#define SHMND_PLACE_PRIVATE_MAX (384u << 10)

/* Return the chunk words for another large message, whose previous message was taken; NULL: the
 * other side has not taken so many large messages yet. */
static inline struct shmnd_share *shmnd_tx_next_share(const struct shmnd_qp *qp)
{
    uint32_t i = (uint32_t)(qp->shares.count % SHMND_SHARES);
    /* SYNC taken: acquire, pairs with release in shmnd_rx_publish_taken() */
    if (qp->shares.count >= SHMND_SHARES &&
        shmnd_acquire64(&qp->link.theirs->taken) <= qp->shares.message[i])
        return NULL;
    return &qp->link.mine->shares[i];
}

/* Return whether it is faster if the reader copies the message from its source than through the
 * ring. A shared receive queue advertises no receives, and one direct copy is faster than two
 * through many slots, unless it needs a system call. */
static inline bool shmnd_tx_prefers_pull(const struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                         const struct shmnd_sge *sges)
{
    return qp->link.their_srq && w->length >= SHMND_PULL_MIN &&
           !shmnd_tx_has_private_memory(qp, sges, w->sges);
}

/* Return the number of receives behind that of the next message, as of the last check of the
 * credit. */
static inline uint32_t shmnd_tx_known_receives(const struct shmnd_qp *qp)
{
    return qp->messages < qp->seen.credit ? (uint32_t)(qp->seen.credit - qp->messages - 1) : 0;
}

/* Return shmnd_tx_ring_fits() of a ring that has no room for all receives that the peer can
 * post. */
static __attribute__((noinline, cold, unused)) bool shmnd_tx_ring_just_fits(struct shmnd_qp *qp,
                                                                            uint32_t slots)
{
    if (!shmnd_slots_have_room(&qp->out, slots + shmnd_tx_known_receives(qp)))
        return false;
    uint64_t cancelled;
    shmnd_tx_update_credit(qp, &cancelled); /* some may have been posted since the last look */
    return shmnd_slots_have_room(&qp->out, slots + shmnd_tx_known_receives(qp));
}

/* Return whether the ring has room for a message, with one slot left for each further message whose
 * receive is posted, so that these can be placed. A message of one slot has no protocol that needs
 * less. */
static inline __attribute__((always_inline)) bool shmnd_tx_ring_fits(struct shmnd_qp *qp,
                                                                     uint32_t bytes)
{
    uint32_t slots = shmnd_slots_for(bytes);
    if (slots == 1)
        return shmnd_slots_have_room(&qp->out, 1);
    return shmnd_slots_have_room(&qp->out, slots + qp->link.their_posted_mask + 1) ||
           shmnd_tx_ring_just_fits(qp, slots);
}

/* Return the bytes in the ring that announce a large message. */
static inline uint32_t shmnd_tx_announced_bytes(const struct shmnd_wqe *w)
{
    uint32_t prefix = w->flags & SHMND_OP_INVALIDATE ? sizeof w->remote_token : 0;
    return prefix + 8 + w->sges * (uint32_t)sizeof(struct shmnd_extent);
}

/* Return whether the ring has room for the announcement and for the messages behind it. */
static __attribute__((noinline, unused)) bool shmnd_tx_can_announce(struct shmnd_qp *qp,
                                                                    const struct shmnd_wqe *w)
{
    return shmnd_tx_ring_fits(qp, shmnd_tx_announced_bytes(w));
}

/* Return whether the sender copies the message, whose receive it can write, rather than both sides.
 * It does so, too, where the announcement of a long list would take the slots of further messages:
 * those could not be sent before their receiver makes a call. */
static inline bool shmnd_tx_prefers_place(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                          const struct shmnd_sge *sges,
                                          const struct shmnd_share *share)
{
    if (w->length < SHMND_SHARE_MIN)
        return true;
    bool announces = share && shmnd_tx_can_announce(qp, w);
    if (!announces && w->length <= SHMND_PIECE)
        return true;
    return w->length <= SHMND_PLACE_PRIVATE_MAX && !qp->tx.job.to.remote &&
           shmnd_tx_has_private_memory(qp, sges, w->sges);
}

enum shmnd_protocol {
    SHMND_PROTOCOL_NONE = 0, /* not now */
    SHMND_PROTOCOL_EAGER,    /* its bytes are in the slots of the ring */
    SHMND_PROTOCOL_BOUNCE,   /* they are in the bounce area (bounce.h) */
    SHMND_PROTOCOL_PLACE,    /* the sender writes them into the posted receive */
    SHMND_PROTOCOL_LARGE,    /* it advertises the source, and both sides copy chunks */
    SHMND_PROTOCOL_PARTS,    /* several messages of the ring: neither side can access the other's */
    SHMND_PROTOCOL_MAP,      /* a segment of the peer must be mapped first */
};

/* Return whether both sides copy a message faster by the kernel. For one whose receive is known and
 * which the bounce area could take. */
static inline bool shmnd_tx_prefers_kernel(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                           const struct shmnd_sge *sges,
                                           const struct shmnd_share *share)
{
    const struct shmnd_way *way = shmnd_way_of(&qp->ways, w->length);
    return w->length >= SHMND_SHARE_MIN && way && shmnd_way_is_kernel(way) && share &&
           shmnd_tx_peer_can_read(qp, sges, w->sges);
}

/* Count a message into private memory by this protocol, and time it if it may go either way. */
static inline void shmnd_tx_count_way(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                      enum shmnd_protocol protocol)
{
    struct shmnd_way *way = shmnd_way_of(&qp->ways, w->length);
    bool either = protocol == SHMND_PROTOCOL_BOUNCE || protocol == SHMND_PROTOCOL_LARGE;
    if (either && w->length >= SHMND_SHARE_MIN && way && shmnd_way_count(way))
        shmnd_way_note(way, shmnd_now_ns());
}

/* Return whether the bounce area has room and saves a copy by the kernel. `in_ring`: the ring
 * would, too. */
static inline bool shmnd_tx_prefers_bounce(struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                           const struct shmnd_sge *sges, int aim, bool in_ring,
                                           const struct shmnd_share *share)
{
    if (w->length < (in_ring ? SHMND_BOUNCE_MIN : SHMND_PLACE_MIN) || w->length > SHMND_BOUNCE_MAX)
        return false;
    bool is_private =
        aim > 0 ? qp->tx.job.to.remote : shmnd_tx_has_private_memory(qp, sges, w->sges);
    return is_private && !(aim > 0 && shmnd_tx_prefers_kernel(qp, w, sges, share)) &&
           shmnd_bounce_has_room(qp, w->length);
}

/* Return the protocol of a Send from registered memory that is not being sent in parts. `aim` is
 * the result of shmnd_tx_resolve_receive(): 1 if the receive can be written from here. */
static inline enum shmnd_protocol shmnd_tx_choose_for_memory(struct shmnd_qp *qp,
                                                             const struct shmnd_wqe *w,
                                                             const struct shmnd_sge *sges, int aim,
                                                             const struct shmnd_share *share)
{
    uint32_t prefix = w->flags & SHMND_OP_INVALIDATE ? sizeof w->remote_token : 0;
    uint64_t bytes = prefix + w->length;
    bool fits = bytes <= shmnd_eager_longest(&qp->out) && shmnd_tx_ring_fits(qp, (uint32_t)bytes);
    bool in_ring = fits && (aim > 0 || bytes <= shmnd_eager_max(&qp->out));
    if (shmnd_tx_prefers_bounce(qp, w, sges, aim, in_ring, share))
        return SHMND_PROTOCOL_BOUNCE;
    if (aim > 0) {
        /* Is copying twice, through the ring, faster than once by a system call? */
        if (fits && (w->length < SHMND_PLACE_MIN ||
                     (qp->tx.job.to.remote && bytes <= SHMND_COPY_TWICE_MAX)))
            return SHMND_PROTOCOL_EAGER;
        if (shmnd_tx_prefers_place(qp, w, sges, share))
            return shmnd_slots_have_room(&qp->out, 1) ? SHMND_PROTOCOL_PLACE : SHMND_PROTOCOL_NONE;
    } else if (bytes <= shmnd_eager_max(&qp->out) &&
               !(share && shmnd_tx_prefers_pull(qp, w, sges))) {
        bool room = shmnd_slots_have_room(&qp->out, shmnd_slots_for((uint32_t)bytes));
        return room ? SHMND_PROTOCOL_EAGER : SHMND_PROTOCOL_NONE;
    } else if (!shmnd_tx_peer_can_read(qp, sges, w->sges)) {
        /* Wait for a receive, which may be one that can be written from here. If it is too small,
         * its owner refuses the message. */
        return qp->link.their_srq || qp->messages < qp->seen.credit ? SHMND_PROTOCOL_PARTS
                                                                    : SHMND_PROTOCOL_NONE;
    }
    return share && shmnd_slots_have_room(&qp->out, shmnd_slots_for(shmnd_tx_announced_bytes(w)))
               ? SHMND_PROTOCOL_LARGE
               : SHMND_PROTOCOL_NONE;
}

/* Return the protocol of a Send whose bytes are in its request, when the ring has no room for it
 * and for the messages behind it. */
static inline enum shmnd_protocol shmnd_tx_choose_for_inline(struct shmnd_qp *qp, uint32_t bytes,
                                                             int aim)
{
    if (aim > 0)
        return shmnd_slots_have_room(&qp->out, 1) ? SHMND_PROTOCOL_PLACE : SHMND_PROTOCOL_NONE;
    bool room = shmnd_slots_have_room(&qp->out, shmnd_slots_for(bytes));
    return room ? SHMND_PROTOCOL_EAGER : SHMND_PROTOCOL_NONE;
}

/* Return the protocol of any Send that is not yet sent completely. */
static inline enum shmnd_protocol shmnd_tx_choose_protocol(struct shmnd_qp *qp,
                                                           const struct shmnd_wqe *w,
                                                           const struct shmnd_sge *sges, int *aim_p,
                                                           struct shmnd_share **share_p)
{
    uint32_t prefix = w->flags & SHMND_OP_INVALIDATE ? sizeof w->remote_token : 0;
    uint32_t bytes = prefix + (uint32_t)w->length;
    bool inlined = w->flags & SHMND_OP_INLINE;
    if (w->moved)
        return SHMND_PROTOCOL_PARTS;
    if ((inlined || w->length < SHMND_PLACE_MIN) && shmnd_tx_ring_fits(qp, bytes))
        return SHMND_PROTOCOL_EAGER;
    *aim_p = qp->link.their_srq
                 ? -1
                 : shmnd_tx_resolve_receive(qp, qp->messages, qp->recalled, w->length, &qp->tx.job);
    if (*aim_p == 0)
        return SHMND_PROTOCOL_MAP;
    if (inlined)
        return shmnd_tx_choose_for_inline(qp, bytes, *aim_p);
    *share_p = shmnd_tx_next_share(qp);
    return shmnd_tx_choose_for_memory(qp, w, sges, *aim_p, *share_p);
}

#endif
