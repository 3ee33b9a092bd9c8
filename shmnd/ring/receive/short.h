/* SPDX-License-Identifier: Apache-2.0
 *
 * The short message: it is in the ring, its sender cannot recall it, and its receive is one element
 * of plain registered memory. Most messages are of this kind, and their latency is what programs
 * notice, so one function takes them in one pass.
 *
 * Argument. The function checks everything that receive.h checks for such a message, in the same
 * order where the order matters, and reads each byte of the header once. Until all checks have
 * passed it stores nothing; a message that fails one of them is left to receive.h, which finds it
 * as if this function had not run. After the checks it stores what receive.h stores: the receive is
 * matched, the bytes are copied, the slots are returned, and then the message is acknowledged. The
 * fields of an open message (`rx.rqe`, `rx.kind`, `rx.job`) are not set, since no message is open
 * before or after. Serves invariants 1 and 2.
 */
#ifndef SHMND_RECEIVE_SHORT_H
#define SHMND_RECEIVE_SHORT_H

#include "receive/advertise.h"

/* Publish that a message was taken. */
static inline void shmnd_rx_publish_taken(struct shmnd_qp *qp)
{
    qp->taken++;
    shmnd_put64(&qp->counters->taken, qp->taken);
    SHMND_KILL_POINT("message-taken");
    /* SYNC taken: release, pairs with acquire in shmnd_tx_retire() */
    shmnd_release64(&qp->link.mine->taken, qp->taken);
    SHMND_KILL_POINT("taking-shown");
}

static inline void shmnd_rx_consume_slots(struct shmnd_qp *qp, uint32_t slots)
{
    if (shmnd_slots_consume(&qp->in, slots))
        shmnd_notify_waiting_sender(qp);
}

/* Take the message at the front if it is short; no message may be open. Return true if `out` was
 * filled. */
static inline bool shmnd_rx_take_short(struct shmnd_qp *qp, struct shmnd_cqe *out)
{
    struct shmnd_receives *r = qp->receives;
    const struct shmnd_slot *head = shmnd_reader_slot(&qp->in, qp->in.read_pos);
    /* SYNC slot-ready: acquire, pairs with release in shmnd_slots_publish() */
    if (shmnd_acquire64(&head->ready_pos) != qp->in.read_pos + 1 || r->posted == r->matched)
        return false;
    /* Read once, through volatile: a hostile writer may change them meanwhile. */
    const volatile struct shmnd_slot *once = head;
    uint32_t length = once->length;
    uint8_t kind = once->kind, flags = once->flags;
    struct shmnd_rqe *e = &r->entries[r->matched & r->mask];
    if (kind != SHMND_KIND_EAGER || (flags & ~SHMND_SLOT_SOLICITED) || e->sges != 1 ||
        length > e->capacity || length > SHMND_EAGER_LONGEST)
        return false;
    const struct shmnd_sge *sge = shmnd_rqe_sges(r, r->matched);
    struct shmnd_region *region = shmnd_sge_region(qp->registry, sge, SHMND_MR_LOCAL_WRITE);
    if (!region)
        return false;
    SHMND_KILL_POINT("message-claimed");
    if (e->pinned) {
        e->pinned = false;
        if (region->posted)
            region->posted--;
    }
    *out = (struct shmnd_cqe){.context = e->context,
                              .qp_context = qp->context,
                              .status = SHMND_SUCCESS,
                              .bytes = length,
                              .type = SHMND_RECEIVE,
                              .flags = flags ? SHMND_CQE_SOLICITED : 0};
    r->matched++;
    SHMND_KILL_POINT("receive-matched");
    struct shmnd_read_cursor drain = shmnd_slots_read_begin(&qp->in, 0);
    shmnd_slots_read_bytes(&drain, (void *)(uintptr_t)sge->address, length);
    SHMND_KILL_POINT("message-copied-out");
    shmnd_rx_consume_slots(qp, shmnd_slots_for(length));
    shmnd_rx_publish_taken(qp);
    shmnd_count_received(qp, length);
    return true;
}

#endif
