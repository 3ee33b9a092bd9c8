/* SPDX-License-Identifier: Apache-2.0
 *
 * A completion queue: a private ring of completions, and the sets of queue
 * pairs that its owner polls.
 *
 * The completion of a request enters the ring when the request ends; a silent success has
 * none. The completion of a receive is made when the owner polls, directly from the link,
 * and passes through the ring only where order or a Notify requires it.
 *
 * Why it cannot overrun (invariant 5). Let R be the number of requests and receives that
 * the queue pairs of this queue can have outstanding. The ring has room for `bound` + R
 * completions, and `bound` is at least `limit` + R. A completion was outstanding before, so
 * only a post increases the sum of both, and a post is accepted only while at most `bound`
 * completions are in the ring. A receive of a shared queue counts for R when a message
 * takes it: one at a time below `limit`, and at teardown at most as many as a link's ring
 * holds.
 */
#ifndef SHMND_ENGINE_COMPLETION_QUEUE_H
#define SHMND_ENGINE_COMPLETION_QUEUE_H

#include "engine/count.h"

static inline uint64_t shmnd_cq_count(const struct shmnd_cq *cq)
{
    return cq->write_pos - cq->read_pos;
}

static inline bool shmnd_cq_has_room(const struct shmnd_cq *cq)
{
    return shmnd_cq_count(cq) < cq->limit;
}

/* Return whether another request that completes here may be posted. */
static inline bool shmnd_cq_can_post(const struct shmnd_cq *cq)
{
    return shmnd_cq_count(cq) <= cq->bound;
}

static inline void shmnd_cq_push(struct shmnd_cq *cq, const struct shmnd_cqe *e)
{
    cq->ring[cq->write_pos++ & cq->mask] = *e;
}

static inline uint32_t shmnd_cq_pop(struct shmnd_cq *cq, struct shmnd_cqe *out, uint32_t max)
{
    uint32_t n = 0;
    while (n < max && cq->read_pos != cq->write_pos)
        out[n++] = cq->ring[cq->read_pos++ & cq->mask];
    return n;
}

/* Put completions that were popped last back to the front. Return false if the ring would hold more
 * than `bound`: requests may have been posted since. */
static inline bool shmnd_cq_put_back(struct shmnd_cq *cq, const struct shmnd_cqe *e, uint32_t n)
{
    if (shmnd_cq_count(cq) + n > cq->bound)
        return false;
    while (n)
        cq->ring[--cq->read_pos & cq->mask] = e[--n];
    return true;
}

static inline bool shmnd_cqe_satisfies(const struct shmnd_cqe *e, uint32_t mode)
{
    return mode == SHMND_ARMED_ANY || e->status != SHMND_SUCCESS ||
           (e->flags & SHMND_CQE_SOLICITED);
}

/* Return whether a completion in the ring that is newer than the last trigger satisfies `mode`. If
 * so, make all completions in the ring old: they will satisfy no later Notify. */
static inline bool shmnd_cq_trigger(struct shmnd_cq *cq, uint32_t mode)
{
    uint64_t pos = cq->triggered_pos > cq->read_pos ? cq->triggered_pos : cq->read_pos;
    for (; pos != cq->write_pos; pos++) {
        if (shmnd_cqe_satisfies(&cq->ring[pos & cq->mask], mode)) {
            cq->triggered_pos = cq->write_pos;
            return true;
        }
    }
    return false;
}

/* ---- the queue pairs to poll ---------------------------------------------------- */

static inline bool *shmnd_cq_active_flag(const struct shmnd_cq *cq, struct shmnd_qp *qp)
{
    return cq == qp->receive_cq ? &qp->active_at_receive : &qp->active_at_initiator;
}

static inline void shmnd_cq_activate(struct shmnd_cq *cq, struct shmnd_qp *qp)
{
    bool *flag = shmnd_cq_active_flag(cq, qp);
    if (*flag)
        return;
    *flag = true;
    cq->active[cq->active_count++] = qp;
    cq->unsettled++;
    if (qp->parked) {
        qp->parked = false;
        cq->parked_count--;
        cq->unsettled--;
    }
}

static inline void shmnd_cq_deactivate(struct shmnd_cq *cq, struct shmnd_qp *qp)
{
    bool *flag = shmnd_cq_active_flag(cq, qp);
    if (!*flag)
        return;
    *flag = false;
    cq->unsettled--;
    for (uint32_t i = 0; i < cq->active_count; i++) {
        if (cq->active[i] == qp) {
            cq->active[i] = cq->active[--cq->active_count];
            return;
        }
    }
}

/* ---- requests that wait for the peer ------------------------------------------------ */

/* A queue pair whose requests can only continue when the peer acts is parked, if the peer marks it
 * then (SYNC credit and SYNC ready): polls skip it until the mark. */

static inline bool shmnd_cq_is_hot(const struct shmnd_cq *cq, const struct shmnd_qp *qp)
{
    bool hot = false;
    for (uint32_t i = 0; i < SHMND_HOT_LINKS; i++)
        hot = hot || cq->hot[i] == qp;
    return hot;
}

/* Return whether the queue pair may leave the active ones until the peer marks it. `wanted`:
 * `wants_credit` was set before the receives, the room and the taken messages of the peer were
 * checked just now, so the peer marks the queue pair for every change since. */
static inline bool shmnd_cq_may_park(const struct shmnd_cq *cq, const struct shmnd_qp *qp,
                                     bool wanted)
{
    const struct shmnd_wqe *w = &qp->wq.entries[qp->wq.oldest & qp->wq.mask];
    if (!wanted || cq->link_count <= SHMND_DIRECT_LINKS || qp->receive_cq != qp->initiator_cq)
        return false;
    if (qp->wq.oldest == qp->wq.end || w->type != SHMND_SEND || w->state == SHMND_WQE_DONE ||
        shmnd_cq_count(cq) >= cq->limit)
        return false;
    return qp->state == SHMND_QP_CONNECTED && !qp->going_down && !qp->flush.pending &&
           !qp->tx.busy && !qp->deferred && !qp->deferred_receives && !qp->rx.stalled &&
           !qp->rx.open && !qp->rx.extra_ready && !qp->rx.busy && !qp->rx.fault &&
           !shmnd_cq_is_hot(cq, qp);
}

static inline void shmnd_cq_park(struct shmnd_cq *cq, struct shmnd_qp *qp)
{
    shmnd_cq_deactivate(cq, qp);
    qp->parked = true;
    cq->parked_count++;
    cq->unsettled++;
}

static inline void shmnd_cq_unpark_all(struct shmnd_cq *cq)
{
    for (uint32_t i = 0; i < cq->link_count && cq->parked_count; i++)
        if (cq->links[i]->parked)
            shmnd_cq_activate(cq, cq->links[i]);
}

static inline uint32_t shmnd_qp_bit(const struct shmnd_cq *cq, const struct shmnd_qp *qp)
{
    return cq == qp->receive_cq ? qp->receive_bit : qp->initiator_bit;
}

/* Add `qp` to the queue pairs that the queue polls. The caller has made room in the arrays. */
static inline void shmnd_cq_add_qp(struct shmnd_cq *cq, struct shmnd_qp *qp)
{
    for (uint32_t i = 0; i < cq->link_count; i++)
        if (cq->links[i] == qp)
            return;
    cq->links[cq->link_count++] = qp;
    cq->receiving_count += cq == qp->receive_cq;
    cq->by_bit[shmnd_qp_bit(cq, qp)] = qp;
    uint32_t words = shmnd_qp_bit(cq, qp) / 64 + 1;
    cq->bit_words = words > cq->bit_words ? words : cq->bit_words;
    if (cq->link_count == SHMND_DIRECT_LINKS + 1)
        shmnd_bell_use_bitmap(cq->arming.bell, true);
    cq->polls = SHMND_SWEEP_NOW; /* the next poll polls all links */
}

static inline void shmnd_cq_remove_qp(struct shmnd_cq *cq, struct shmnd_qp *qp)
{
    if (qp->parked)
        shmnd_cq_activate(cq, qp);
    shmnd_cq_deactivate(cq, qp);
    for (uint32_t i = 0; i < SHMND_HOT_LINKS; i++)
        if (cq->hot[i] == qp)
            cq->hot[i] = NULL;
    if (cq->by_bit && cq->by_bit[shmnd_qp_bit(cq, qp)] == qp)
        cq->by_bit[shmnd_qp_bit(cq, qp)] = NULL;
    for (uint32_t i = 0; i < cq->link_count; i++) {
        if (cq->links[i] == qp) {
            cq->links[i] = cq->links[--cq->link_count];
            cq->receiving_count -= cq == qp->receive_cq;
            break;
        }
    }
    if (cq->link_count <= SHMND_DIRECT_LINKS && shmnd_relaxed32(&cq->arming.bell->use_bitmap)) {
        shmnd_cq_unpark_all(cq); /* peers set no marks from now on */
        shmnd_bell_use_bitmap(cq->arming.bell, false);
    }
}

/* Return whether an operation of this queue pair ends only by polls. */
static inline bool shmnd_qp_needs_polls(const struct shmnd_qp *qp)
{
    return qp->wq.oldest != qp->wq.end || qp->rx.stalled || qp->rx.open || qp->rx.extra_ready ||
           qp->going_down || qp->flush.pending;
}

static inline void shmnd_qp_activate(struct shmnd_qp *qp)
{
    shmnd_cq_activate(qp->receive_cq, qp);
    shmnd_cq_activate(qp->initiator_cq, qp);
}

#endif
