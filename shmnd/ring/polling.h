/* SPDX-License-Identifier: Apache-2.0
 *
 * Polling a completion queue: what its owner looks at, and in which order
 * completions come out.
 *
 * A few links are looked at one by one. Beyond SHMND_DIRECT_LINKS producers set
 * a bit, and only the links with a bit are visited; the last few that had
 * something stay "hot": they are polled directly and their bits are left set,
 * so a busy link costs its producer no write to the bitmap. A poll costs what
 * the busy links cost, not the connected ones.
 *
 * Causality (take.h): while a request waits on any of the queue's links, all
 * completions go through the ring. With none waiting and the ring empty, a message
 * can have been caused by nothing that is still to be told, and is taken directly.
 */
#ifndef SHMND_POLLING_H
#define SHMND_POLLING_H

#include "clock.h"
#include "conn.h"

#define SHMND_SWEEP_POLLS 4096u

/* What a poll could not do itself. */
struct shmnd_todo {
    struct shmnd_qp *qp;
    enum shmnd_progress what;
    bool receiving; /* the job is rx_job */
};

static inline void shmnd_todo_set(struct shmnd_todo *todo, struct shmnd_qp *qp,
                                  enum shmnd_progress what, bool receiving)
{
    if (todo->what == SHMND_IDLE)
        *todo = (struct shmnd_todo){qp, what, receiving};
}

/* Progress of one queue pair; jobs are left for the caller. */
static inline void shmnd_qp_tend(struct shmnd_qp *qp, uint64_t now_ns, struct shmnd_todo *todo)
{
    enum shmnd_progress p = shmnd_qp_progress(qp, now_ns);
    if (p == SHMND_IDLE)
        return;
    bool sending = qp->tx_busy && !qp->tx_started;
    bool receiving = p == SHMND_NEEDS_MAP ? qp->rx_needs_segment : !sending;
    shmnd_todo_set(todo, qp, p, receiving);
}

/* Takes messages into the receive queue's ring, as many as it has room for. */
static inline void shmnd_qp_take_into_ring(struct shmnd_qp *qp)
{
    while (shmnd_cq_has_room(qp->receive_cq) && shmnd_qp_take_one(qp))
        ;
    /* Its bit was taken and its turn as a hot link may pass before there is room. */
    if (!shmnd_cq_has_room(qp->receive_cq) && shmnd_slots_ready(&qp->in))
        qp->rx_stalled = true;
}

/* Looks at one link. Completions go to `out` when nothing stands before them. */
static inline uint32_t shmnd_cq_visit(struct shmnd_cq *cq, struct shmnd_qp *qp, bool direct,
                                      struct shmnd_cqe *out, uint32_t max, struct shmnd_todo *todo)
{
    uint32_t n = 0;
    shmnd_qp_look(qp);
    if (qp->state == SHMND_QP_CONNECTED && !qp->rx_busy) {
        if (direct && qp->receive_cq == cq && shmnd_cq_count(cq) == 0)
            n = shmnd_rx_poll(qp, out, max);
        else
            shmnd_qp_take_into_ring(qp);
        if (qp->rx_needs_segment)
            shmnd_todo_set(todo, qp, SHMND_NEEDS_MAP, true);
        else if (qp->rx_job.kind != SHMND_JOB_NONE)
            shmnd_todo_set(todo, qp, SHMND_RUN, true);
    }
    if (qp->rx_fault || qp->going_down)
        shmnd_qp_tend(qp, shmnd_coarse_ns(), todo);
    if (shmnd_qp_wants_polls(qp))
        shmnd_cq_activate(cq, qp);
    return n;
}

static inline void shmnd_cq_make_hot(struct shmnd_cq *cq, struct shmnd_qp *qp,
                                     struct shmnd_todo *todo)
{
    for (uint32_t i = 0; i < SHMND_HOT_LINKS; i++)
        if (cq->hot[i] == qp)
            return;
    uint32_t at = cq->hot_next++ % SHMND_HOT_LINKS;
    struct shmnd_qp *old = cq->hot[at];
    cq->hot[at] = qp;
    shmnd_marks_keep(cq->arming.marks, shmnd_qp_bit(cq, qp));
    if (!old)
        return;
    uint32_t bit = shmnd_qp_bit(cq, old);
    shmnd_marks_take(cq->arming.marks, bit / 64, 1ull << (bit % 64));
    shmnd_cq_visit(cq, old, false, NULL, 0, todo); /* what came before its bit was taken */
}

static inline uint64_t shmnd_cq_ready_bits(const struct shmnd_cq *cq, uint32_t word)
{
    /* relaxed: a bit seen late is seen at the next poll */
    uint64_t bits = shmnd_relaxed64(&cq->arming.marks->ready[word]);
    for (uint32_t i = 0; bits && i < SHMND_HOT_LINKS; i++) {
        if (!cq->hot[i])
            continue;
        uint32_t bit = shmnd_qp_bit(cq, cq->hot[i]);
        if (bit / 64 == word)
            bits &= ~(1ull << (bit % 64));
    }
    return bits;
}

static inline void shmnd_cq_visit_marked(struct shmnd_cq *cq, struct shmnd_todo *todo)
{
    for (uint32_t word = 0; word < cq->bit_words; word++) {
        uint64_t bits = shmnd_cq_ready_bits(cq, word);
        if (!bits)
            continue;
        shmnd_marks_take(cq->arming.marks, word, bits);
        for (; bits; bits &= bits - 1) {
            struct shmnd_qp *qp = cq->by_bit[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            if (!qp)
                continue;
            shmnd_cq_make_hot(cq, qp, todo);
            shmnd_cq_visit(cq, qp, false, NULL, 0, todo);
        }
    }
}

static inline void shmnd_cq_sweep(struct shmnd_cq *cq, struct shmnd_todo *todo)
{
    cq->polls = 0;
    for (uint32_t i = cq->link_count; i-- > 0;)
        if (i < cq->link_count)
            shmnd_cq_visit(cq, cq->links[i], false, NULL, 0, todo);
}

/* Requests in progress, stalled and closing links. True: a request waits, so
 * receives must not overtake its completion. */
static inline bool shmnd_cq_tend_active(struct shmnd_cq *cq, struct shmnd_todo *todo)
{
    bool waiting = false;
    uint64_t now_ns = shmnd_coarse_ns();
    for (uint32_t i = cq->active_count; i-- > 0;) {
        if (i >= cq->active_count)
            continue; /* some left meanwhile */
        struct shmnd_qp *qp = cq->active[i];
        shmnd_qp_tend(qp, now_ns, todo);
        if (qp->state == SHMND_QP_CONNECTED)
            shmnd_cq_visit(cq, qp, false, NULL, 0, todo);
        waiting = waiting || qp->wq_head != qp->wq_tail;
        if (!shmnd_qp_wants_polls(qp))
            shmnd_cq_deactivate(cq, qp);
    }
    return waiting;
}

/* Up to `max` completions, oldest first. `todo` says what must be run or mapped
 * before all was looked at; then poll again. Never waits. */
static inline uint32_t shmnd_cq_poll(struct shmnd_cq *cq, struct shmnd_cqe *out, uint32_t max,
                                     struct shmnd_todo *todo)
{
    todo->what = SHMND_IDLE;
    bool direct = !cq->active_count || !shmnd_cq_tend_active(cq, todo);
    uint32_t n = shmnd_cq_pop(cq, out, max);
    if (cq->link_count <= SHMND_DIRECT_LINKS) {
        for (uint32_t i = cq->link_count; i-- > 0 && n < max;)
            if (i < cq->link_count)
                n += shmnd_cq_visit(cq, cq->links[i], direct, out + n, max - n, todo);
    } else {
        for (uint32_t i = 0; i < SHMND_HOT_LINKS && n < max; i++)
            if (cq->hot[i])
                n += shmnd_cq_visit(cq, cq->hot[i], direct, out + n, max - n, todo);
        shmnd_cq_visit_marked(cq, todo);
        if (++cq->polls > SHMND_SWEEP_POLLS)
            shmnd_cq_sweep(cq, todo);
    }
    return n + shmnd_cq_pop(cq, out + n, max - n);
}

/* What ends without ringing anybody: a copy that the other side makes, or another thread. */
static inline bool shmnd_qp_ends_unheard(const struct shmnd_qp *qp)
{
    return qp->going_down || qp->flush_pending || qp->rx_unbinding || shmnd_tx_awaits_peer(qp);
}

/* When what is in progress wants a look though nobody rings: `soon_ns` from now for what ends
 * unheard, and for a Send that waits for a receive when its time is over. 0: no such thing. */
static inline uint64_t shmnd_cq_due_ns(const struct shmnd_cq *cq, uint64_t soon_ns)
{
    uint64_t due = 0;
    for (uint32_t i = 0; i < cq->active_count; i++) {
        const struct shmnd_qp *qp = cq->active[i];
        const struct shmnd_wqe *w = &qp->wqes[qp->wq_head & qp->wq_mask];
        uint64_t at = 0;
        if (shmnd_qp_ends_unheard(qp))
            at = shmnd_now_ns() + soon_ns;
        else if (qp->wq_head != qp->wq_tail && w->since_ns)
            at = w->since_ns + qp->rnr_ns + SHMND_COARSE_STEP_NS; /* when that clock says so */
        if (at && (!due || at < due))
            due = at;
    }
    return due;
}

/* Takes all that arrived into the ring: for Notify, Resize and a queue about to
 * sleep, which must know what there is. */
static inline void shmnd_cq_gather(struct shmnd_cq *cq, struct shmnd_todo *todo)
{
    todo->what = SHMND_IDLE;
    if (cq->active_count)
        shmnd_cq_tend_active(cq, todo);
    shmnd_cq_sweep(cq, todo);
}

#endif
