/* SPDX-License-Identifier: Apache-2.0
 *
 * Advertising posted receives to the sender, and withdrawing them.
 *
 * Only the owner writes the entries. Before it reuses or withdraws a receive whose entry a
 * sender may be reading, or whose memory it may be writing, it makes `revision` odd; then
 * it waits for a push in progress by the hazard word (SYNC placing in send.h).
 * Serves invariants 1 and 2.
 */
#ifndef SHMND_RECEIVE_ADVERTISE_H
#define SHMND_RECEIVE_ADVERTISE_H

#include "engine/access.h"
#include "engine/wake.h"

static inline struct shmnd_sge *shmnd_rqe_sges(struct shmnd_receives *r, uint64_t pos)
{
    return &r->sges[(pos & r->mask) * r->stride];
}

static inline uint32_t shmnd_receives_outstanding(const struct shmnd_receives *r)
{
    return (uint32_t)(r->posted - r->matched);
}

/* ---- advertising ----------------------------------------------------------------------- */

static inline void shmnd_rx_unpin(struct shmnd_qp *qp, struct shmnd_rqe *e, struct shmnd_sge *sges)
{
    if (!e->pinned)
        return;
    e->pinned = false;
    for (uint32_t i = 0; i < e->sges; i++) {
        struct shmnd_region *region = shmnd_region_lookup(qp->registry, sges[i].token);
        if (region && region->posted)
            region->posted--;
    }
}

static inline struct shmnd_posted *shmnd_own_receive_entry(struct shmnd_qp *qp, uint64_t idx)
{
    return (struct shmnd_posted *)(qp->link.my_posted +
                                   (idx & qp->link.my_posted_mask) * qp->link.my_posted_stride);
}

/* Store the regions of a list in `regions`. Return false unless all are writable and none is
 * fragile. */
static inline bool shmnd_rx_regions(const struct shmnd_qp *qp, const struct shmnd_sge *sges,
                                    uint32_t n, struct shmnd_region **regions)
{
    for (uint32_t i = 0; i < n; i++) {
        regions[i] = shmnd_sge_region(qp->registry, &sges[i], SHMND_MR_LOCAL_WRITE);
        if (!regions[i])
            return false;
    }
    return true;
}

/* Store the regions of a list in `regions`, as above, also fragile ones. */
static __attribute__((noinline, cold, unused)) bool
shmnd_rx_fragile_regions(const struct shmnd_qp *qp, const struct shmnd_sge *sges, uint32_t n,
                         struct shmnd_region **regions)
{
    for (uint32_t i = 0; i < n; i++) {
        regions[i] = shmnd_sge_region(qp->registry, &sges[i], SHMND_MR_LOCAL_WRITE);
        if (!regions[i])
            regions[i] = shmnd_fragile_region(qp->registry, &sges[i], SHMND_MR_LOCAL_WRITE);
        if (!regions[i])
            return false;
    }
    return true;
}

/* Write the extents of a receive and return their number; 0: they are too many, or the owner copies
 * by itself. */
static inline uint32_t shmnd_rx_write_extents(const struct shmnd_qp *qp,
                                              struct shmnd_shared_extent *x,
                                              const struct shmnd_sge *sges,
                                              struct shmnd_region *const *regions, uint32_t n)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct shmnd_region *r = regions[i];
        if (sges[i].length == 0)
            continue;
        if (r->rights & SHMND_MR_SEALED)
            return 0; /* its owner copies messages from the ring, or pulls them */
        if (used == qp->link.my_extents)
            return 0;
        bool shared = r->segment != SHMND_PRIVATE_MEMORY;
        shmnd_put64(&x[used].offset,
                    shared ? r->offset + (sges[i].address - r->base) : sges[i].address);
        shmnd_put64(&x[used].place, (uint64_t)r->segment << 32 | sges[i].length);
        used++;
    }
    return used;
}

/* Write the entry of the receive at `pos`, which is not advertised yet. */
static inline void shmnd_rx_write_entry(struct shmnd_qp *qp, uint64_t pos)
{
    struct shmnd_rqe *e = &qp->own.entries[pos & qp->own.mask];
    const struct shmnd_sge *sges = shmnd_rqe_sges(&qp->own, pos);
    struct shmnd_posted *entry = shmnd_own_receive_entry(qp, pos - qp->posted_base);
    struct shmnd_region *regions[SHMND_MAX_SGE];
    uint32_t n = e->sges, extents = 0;
    bool plain = shmnd_rx_regions(qp, sges, n, regions);
    bool writable = plain || shmnd_rx_fragile_regions(qp, sges, n, regions);
    uint64_t below = writable ? e->capacity + 1 : 0;
    shmnd_put64(&entry->capacity, (pos - qp->posted_base + 1) << 32 | below);
    SHMND_KILL_POINT("receive-writing");
    /* SYNC entry: fence, pairs with acquire in shmnd_peer_receive_capacity() */
    shmnd_stores_before();
    if (plain)
        extents =
            shmnd_rx_write_extents(qp, (struct shmnd_shared_extent *)(entry + 1), sges, regions, n);
    shmnd_put64(&entry->extents, extents);
    if (writable) {
        /* Also without extents: a sender completes its Send because of the capacity, which a
         * Deregister has to withdraw. */
        e->pinned = true;
        for (uint32_t i = 0; i < n; i++)
            regions[i]->posted++;
    }
    SHMND_KILL_POINT("receive-written");
}

/* Advertise the receive at `pos` and all before it. */
static inline void shmnd_rx_advertise(struct shmnd_qp *qp, uint64_t pos)
{
    shmnd_rx_write_entry(qp, pos);
    /* SYNC posted: release, pairs with acquire in shmnd_tx_update_credit() */
    shmnd_release64(&qp->link.mine->posted, pos - qp->posted_base + 1);
    SHMND_KILL_POINT("receive-advertised");
}

/* Make `revision` odd, so that no push begins after this. Return true if none is in progress
 * either; otherwise call again. */
static inline bool shmnd_rx_withdraw(struct shmnd_qp *qp)
{
    if (!(qp->revision & 1)) {
        qp->revision++;
        shmnd_put64(&qp->link.mine->revision, qp->revision);
        SHMND_KILL_POINT("receives-withdrawn");
        /* SYNC placing: fence, pairs with the fence in shmnd_push_enter() */
        shmnd_store_then_load();
    }
    return qp->peer->dead || shmnd_hazard_is_clear_of(&qp->link.theirs->hazard, SHMND_HAZARD_PUSH);
}

static inline void shmnd_rx_readvertise(struct shmnd_qp *qp)
{
    qp->revision++;
    /* SYNC flush: release, pairs with acquire in shmnd_tx_update_credit() */
    shmnd_release64(&qp->link.mine->revision, qp->revision);
    SHMND_KILL_POINT("receives-readvertised");
    shmnd_notify_waiting_sender(qp);
}

#endif
