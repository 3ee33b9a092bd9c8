/* SPDX-License-Identifier: Apache-2.0
 *
 * Which way a Send goes now, by its length, its memory, the receive it will meet and the room there
 * is. Nothing is sent here.
 */
#ifndef SHMND_CHOOSE_H
#define SHMND_CHOOSE_H

#include "send/retire.h"

/* From here a message goes straight into its receive, when that is known: its slots would take
 * longer, each being a line to hand over. Streams of shorter ones are faster through the ring. */
#define SHMND_PLACE_MIN 512u
/* Up to here the ring is faster than the kernel, which reaches a receive in private memory. */
#define SHMND_COPY_TWICE_MAX SHMND_EAGER_LONGEST
/* From here a message to a shared receive queue, in a segment, waits there to be read. */
#define SHMND_PULL_MIN 1024u
/* From here both sides may copy. */
#define SHMND_SHARE_MIN (64u << 10)

/* Words for the chunks of one more large message: those whose last message was
 * taken. NULL: the other side has that many still to take. */
static inline struct shmnd_share *shmnd_tx_next_share(const struct shmnd_qp *qp)
{
    uint32_t i = (uint32_t)(qp->larges % SHMND_SHARES);
    /* SYNC taken: acquire, pairs with release in shmnd_rx_acknowledge() */
    if (qp->larges >= SHMND_SHARES &&
        shmnd_acquire64(&qp->link.theirs->taken) <= qp->share_message[i])
        return NULL;
    return &qp->link.mine->shares[i];
}

/* Is it read by the other side sooner than from the ring? A shared receive queue never
 * lets a sender write into its receives, and one reader copies faster than two through
 * many slots; not so if it took a system call. */
static inline bool shmnd_tx_prefers_pull(const struct shmnd_qp *qp, const struct shmnd_wqe *w,
                                         const struct shmnd_sge *sges)
{
    return qp->link.their_srq && w->length >= SHMND_PULL_MIN &&
           !shmnd_tx_has_private_memory(qp, sges, w->sges);
}

enum shmnd_protocol {
    SHMND_PROTOCOL_NONE = 0, /* not now */
    SHMND_PROTOCOL_EAGER,
    SHMND_PROTOCOL_PLACE,
    SHMND_PROTOCOL_LARGE,
    SHMND_PROTOCOL_PARTS,
    SHMND_PROTOCOL_MAP, /* when a segment of the peer is mapped */
};

/* Has the ring room for a message, with one slot left for each further message whose receive is
 * known, so that these can be placed? Those of one slot have no other way that needs less. */
static inline bool shmnd_tx_ring_fits(struct shmnd_qp *qp, uint32_t bytes)
{
    uint32_t slots = shmnd_slots_for(bytes);
    uint64_t known = qp->messages < qp->credit ? qp->credit - qp->messages - 1 : 0;
    return shmnd_slots_have_room(&qp->out, slots == 1 ? 1 : slots + (uint32_t)known);
}

/* The way of a Send that is in registered memory and not sent in parts. `aim`: whether its receive
 * can be written from here, as shmnd_tx_resolve_receive() has it; it is known then. */
static inline enum shmnd_protocol shmnd_tx_choose_for_memory(struct shmnd_qp *qp,
                                                             const struct shmnd_wqe *w,
                                                             const struct shmnd_sge *sges, int aim,
                                                             const struct shmnd_share *share)
{
    uint32_t prefix = w->flags & SHMND_OP_INVALIDATE ? sizeof w->remote_token : 0;
    uint64_t bytes = prefix + w->length;
    bool fits = bytes <= shmnd_eager_longest(&qp->out) && shmnd_tx_ring_fits(qp, (uint32_t)bytes);
    if (aim > 0) {
        /* Sooner copied twice, through the ring, than once by the kernel? */
        if (fits && (w->length < SHMND_PLACE_MIN ||
                     (qp->tx_job.to.remote && bytes <= SHMND_COPY_TWICE_MAX)))
            return SHMND_PROTOCOL_EAGER;
        if (w->length < SHMND_SHARE_MIN || (!share && w->length <= SHMND_PIECE))
            return shmnd_slots_have_room(&qp->out, 1) ? SHMND_PROTOCOL_PLACE : SHMND_PROTOCOL_NONE;
    } else if (bytes <= shmnd_eager_max(&qp->out) &&
               !(share && shmnd_tx_prefers_pull(qp, w, sges))) {
        bool room = shmnd_slots_have_room(&qp->out, shmnd_slots_for((uint32_t)bytes));
        return room ? SHMND_PROTOCOL_EAGER : SHMND_PROTOCOL_NONE;
    } else if (!shmnd_tx_peer_can_read(qp, sges, w->sges)) {
        /* Wait for a receive, which may be one that can be written from here. One
         * that is too small is for its owner to refuse. */
        return qp->link.their_srq || qp->messages < qp->credit ? SHMND_PROTOCOL_PARTS
                                                               : SHMND_PROTOCOL_NONE;
    }
    uint32_t payload = 8 + w->sges * (uint32_t)sizeof(struct shmnd_extent);
    return share && shmnd_slots_have_room(&qp->out, shmnd_slots_for(prefix + payload))
               ? SHMND_PROTOCOL_LARGE
               : SHMND_PROTOCOL_NONE;
}

/* The same for any Send that is not sent yet, or not wholly. */
static inline enum shmnd_protocol shmnd_tx_choose_protocol(struct shmnd_qp *qp,
                                                           const struct shmnd_wqe *w,
                                                           const struct shmnd_sge *sges, int *aim_p,
                                                           struct shmnd_share **share_p)
{
    uint32_t prefix = w->flags & SHMND_OP_INVALIDATE ? sizeof w->remote_token : 0;
    if (w->moved)
        return SHMND_PROTOCOL_PARTS;
    if (w->flags & SHMND_OP_INLINE) {
        bool room = shmnd_slots_have_room(&qp->out, shmnd_slots_for(prefix + (uint32_t)w->length));
        return room ? SHMND_PROTOCOL_EAGER : SHMND_PROTOCOL_NONE;
    }
    if (w->length < SHMND_PLACE_MIN && shmnd_tx_ring_fits(qp, prefix + (uint32_t)w->length))
        return SHMND_PROTOCOL_EAGER;
    *aim_p = qp->link.their_srq
                 ? -1
                 : shmnd_tx_resolve_receive(qp, qp->messages, qp->recalled, w->length, &qp->tx_job);
    if (*aim_p == 0)
        return SHMND_PROTOCOL_MAP;
    *share_p = shmnd_tx_next_share(qp);
    return shmnd_tx_choose_for_memory(qp, w, sges, *aim_p, *share_p);
}

#endif
