/* SPDX-License-Identifier: Apache-2.0
 *
 * Polling a completion queue: which links its owner polls, and the order of the
 * completions.
 *
 * Up to SHMND_DIRECT_LINKS links are polled one by one. With more links, producers set a
 * bit, and only the links with a bit are polled. The last few links that had a message are
 * "hot": they are polled directly and their bits are left set, so the producer of a busy
 * link does not write the bitmap. The bitmap is read at every second poll, and at each that finds
 * less than it may return. The cost of a poll depends on the number of busy links, not on the
 * number of connected ones.
 *
 * Polling is fair. A visit takes at most SHMND_POLL_BUDGET messages of a link, and the next visit
 * begins at the link after the last one visited, in this poll or the next, whatever `max` is.
 * Messages that pass through the ring are taken only as far as this poll can return them, so
 * that a message of another link does not wait in the ring behind those of a busy one. When
 * completions from the ring fill `out`, links that have a message join the active ones. These
 * take turns as well: the next poll begins after the link that delivered last, and takes one
 * message even if completions of requests fill `out`. So a message is taken within two rounds,
 * where a round is one visit of each link that has a message.
 *
 * Causality (consume.h): while a request of any of the queue's links is pending, all
 * completions go through the ring. With no request pending and the ring empty, no completion
 * that could have caused a message is outstanding, and the message is taken directly.
 */
#ifndef SHMND_ENGINE_POLLING_H
#define SHMND_ENGINE_POLLING_H

#include "wire/clock.h"
#include "teardown/connection.h"

#define SHMND_SWEEP_POLLS 4096u
/* All links are polled for the sake of lost marks alone: at most once in so many nanoseconds for
 * each of them, of which that takes a fiftieth. */
#define SHMND_SWEEP_EACH_NS 10000ull
/* The most messages that a link delivers in one visit, if it is not the only one. */
#define SHMND_POLL_BUDGET 16u
/* How often parked queue pairs are progressed without a mark: for their time-outs, for peers that
 * died, and for marks that another peer has cleared. */
#define SHMND_PARKED_POLL_NS (10ull * 1000 * 1000)

/* A job or mapping that a poll leaves to its caller. */
struct shmnd_todo {
    struct shmnd_qp *qp;
    enum shmnd_progress what;
    bool receiving; /* the job is rx.job */
};

/* Store the first thing to do that a poll finds. A mapping for a message is requested once: only a
 * poll that reads the message again decides whether the message still lacks it. A poll that may not
 * take a message, since its queue is full, must not request it again: the segment would seem
 * impossible to map. */
static inline void shmnd_todo_set(struct shmnd_todo *todo, struct shmnd_qp *qp,
                                  enum shmnd_progress what, bool receiving)
{
    if (what == SHMND_NEEDS_MAP && receiving)
        qp->rx.needs_segment = false;
    if (todo->what == SHMND_IDLE)
        *todo = (struct shmnd_todo){qp, what, receiving};
}

/* Make progress on one queue pair and leave jobs to the caller, in `todo`. */
static inline void shmnd_qp_progress_todo(struct shmnd_qp *qp, uint64_t now_ns,
                                          struct shmnd_todo *todo)
{
    enum shmnd_progress p = shmnd_qp_progress(qp, now_ns);
    if (p == SHMND_IDLE)
        return;
    bool sending = qp->tx.busy && !qp->tx.started;
    bool receiving = p == SHMND_NEEDS_MAP ? qp->rx.needs_segment : !sending;
    shmnd_todo_set(todo, qp, p, receiving);
}

/* The state of one poll: the completions found, and how many messages each link may deliver. */
struct shmnd_poll {
    struct shmnd_cqe *out;
    uint32_t max, n;
    uint32_t budget; /* the most messages of one visit; 0: none, the link waits for its turn */
    uint64_t fill;   /* messages may enter the queue's ring while it has fewer entries */
    bool direct;     /* messages may go to `out` without passing through the ring */
    struct shmnd_todo *todo;
};

/* Take messages into the receive queue's ring, at most `most`, until it holds `fill` completions.
 * Return how many. */
static inline uint32_t shmnd_qp_consume_into_ring(struct shmnd_qp *qp, uint32_t most, uint64_t fill)
{
    struct shmnd_cq *cq = qp->receive_cq;
    uint32_t n = 0;
    while (n < most && shmnd_cq_count(cq) < fill && shmnd_cq_has_room(cq) &&
           shmnd_qp_consume_one(qp))
        n++;
    /* Its bit was cleared, and it may cease to be hot before it is visited again. */
    if ((most == 0 || !shmnd_cq_has_room(cq) || cq->link_count > SHMND_DIRECT_LINKS) &&
        shmnd_rx_is_ready(qp))
        qp->rx.stalled = true;
    return n;
}

/* Poll one link and return the number of messages taken. They are stored in `out` if no completion
 * must precede them, otherwise in the ring. */
static inline uint32_t shmnd_cq_poll_link(struct shmnd_cq *cq, struct shmnd_qp *qp,
                                          struct shmnd_poll *p)
{
    uint32_t n = 0, left = p->max - p->n;
    shmnd_qp_check_peer(qp);
    if (qp->state == SHMND_QP_CONNECTED && !qp->rx.busy) {
        if (p->direct && left && qp->receive_cq == cq && shmnd_cq_count(cq) == 0) {
            n = shmnd_rx_poll(qp, p->out + p->n, p->budget < left ? p->budget : left);
            p->n += n;
        } else {
            n = shmnd_qp_consume_into_ring(qp, p->budget,
                                           qp->receive_cq == cq ? p->fill : UINT64_MAX);
        }
        if (qp->rx.needs_segment)
            shmnd_todo_set(p->todo, qp, SHMND_NEEDS_MAP, true);
        else if (qp->rx.job.kind != SHMND_JOB_NONE)
            shmnd_todo_set(p->todo, qp, SHMND_RUN, true);
    }
    if (qp->rx.fault || qp->going_down)
        shmnd_qp_progress_todo(qp, shmnd_coarse_ns(), p->todo);
    if (shmnd_qp_needs_polls(qp))
        shmnd_cq_activate(cq, qp);
    return n;
}

/* Poll links in turn, beginning after the last one visited, until `out` is full. When completions
 * from the ring have filled it, links that have messages join the active ones. */
static inline void shmnd_cq_poll_links(struct shmnd_cq *cq, struct shmnd_qp *const *links,
                                       uint32_t count, struct shmnd_poll *p)
{
    bool full = p->n == p->max, again;
    p->budget = full ? 0 : count == 1 ? p->max : SHMND_POLL_BUDGET;
    p->fill = p->max - p->n;
    do {
        again = false;
        for (uint32_t k = count; k > 0 && (full || p->n < p->max); k--) {
            if (cq->turn >= count)
                cq->turn = 0;
            struct shmnd_qp *qp = links[cq->turn++];
            if (qp && shmnd_cq_poll_link(cq, qp, p) == SHMND_POLL_BUDGET)
                again = p->direct;
        }
    } while (again && p->n < p->max);
}

/* Make a link that has a message one of the hot ones, in place of the oldest of these. */
static inline void shmnd_cq_make_hot(struct shmnd_cq *cq, struct shmnd_qp *qp, struct shmnd_poll *p)
{
    for (uint32_t i = 0; i < SHMND_HOT_LINKS; i++)
        if (cq->hot[i] == qp)
            return;
    uint32_t at = cq->hot_next++ % SHMND_HOT_LINKS;
    struct shmnd_qp *old = cq->hot[at];
    cq->hot[at] = qp;
    shmnd_marks_set(cq->arming.marks, shmnd_qp_bit(cq, qp));
    if (!old)
        return;
    uint32_t bit = shmnd_qp_bit(cq, old);
    shmnd_marks_clear(cq->arming.marks, bit / 64, 1ull << (bit % 64));
    shmnd_cq_poll_link(cq, old, p); /* messages published before its bit was cleared */
}

/* Return the marks in one word of the bitmap without those of hot links, which stay set. */
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

/* Poll the links that have a mark, and make them hot. */
static inline void shmnd_cq_poll_marked(struct shmnd_cq *cq, struct shmnd_poll *p)
{
    p->direct = false;
    for (uint32_t word = 0; word < cq->bit_words; word++) {
        uint64_t bits = shmnd_cq_ready_bits(cq, word);
        if (!bits)
            continue;
        shmnd_marks_clear(cq->arming.marks, word, bits);
        for (; bits; bits &= bits - 1) {
            struct shmnd_qp *qp = cq->by_bit[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            if (!qp)
                continue;
            shmnd_cq_make_hot(cq, qp, p);
            if (qp->parked) {
                shmnd_cq_activate(cq, qp);
                shmnd_qp_progress_todo(qp, shmnd_coarse_ns(), p->todo);
            }
            shmnd_cq_poll_link(cq, qp, p);
        }
    }
}

/* Poll every link, with or without a mark. A visit may remove its link, and the last one then takes
 * its place, so begin at the end. */
static inline void shmnd_cq_poll_all(struct shmnd_cq *cq, struct shmnd_poll *p)
{
    cq->polls = 0;
    p->direct = false;
    for (uint32_t i = cq->link_count; i-- > 0;)
        if (i < cq->link_count)
            shmnd_cq_poll_link(cq, cq->links[i], p);
}

/* Return whether all links must be polled again. For a queue that was polled many times since. */
static inline bool shmnd_cq_sweep_is_due(struct shmnd_cq *cq)
{
    uint64_t now_ns = shmnd_coarse_ns();
    if (cq->polls < SHMND_SWEEP_NOW &&
        now_ns - cq->swept_ns < cq->link_count * SHMND_SWEEP_EACH_NS) {
        cq->polls = 0;
        return false;
    }
    cq->swept_ns = now_ns;
    return true;
}

/* Make progress on pending requests, and on stalled and closing links. Return true if a request is
 * pending, so that receives must not overtake its completion. The next poll begins after the link
 * that delivered last. */
static inline bool shmnd_cq_progress_active(struct shmnd_cq *cq, struct shmnd_poll *p, bool parking)
{
    bool waiting = false;
    uint64_t now_ns = shmnd_coarse_ns();
    if (cq->parked_count && (!parking || now_ns - cq->parked_polled_ns > SHMND_PARKED_POLL_NS)) {
        cq->parked_polled_ns = now_ns;
        shmnd_cq_unpark_all(cq);
    }
    uint32_t at = cq->active_turn, next = at;
    uint64_t queued = shmnd_cq_count(cq);
    if (p->fill <= queued)
        p->fill = queued + 1; /* one message gets in even if completions of requests fill `out` */
    for (uint32_t k = cq->active_count; k > 0 && cq->active_count; k--) {
        if (at >= cq->active_count)
            at = 0;
        struct shmnd_qp *qp = cq->active[at];
        bool wanted = qp->link.mine && shmnd_relaxed32(&qp->link.mine->wants_credit);
        shmnd_qp_progress_todo(qp, now_ns, p->todo);
        if (qp->state == SHMND_QP_CONNECTED && shmnd_cq_poll_link(cq, qp, p))
            next = at + 1;
        waiting = waiting || qp->wq.oldest != qp->wq.end;
        if (!shmnd_qp_needs_polls(qp))
            shmnd_cq_deactivate(cq, qp); /* the last active one moves to its place */
        else if (parking && shmnd_cq_may_park(cq, qp, wanted))
            shmnd_cq_park(cq, qp);
        else
            at++;
    }
    cq->active_turn = next;
    return waiting || cq->parked_count;
}

/* Store up to `max` completions in `out`, oldest first, and return how many. If `todo` names a job
 * or a mapping, the caller executes it and polls again. Never waits. */
static inline uint32_t shmnd_cq_poll(struct shmnd_cq *cq, struct shmnd_cqe *out, uint32_t max,
                                     struct shmnd_todo *todo)
{
    struct shmnd_poll p = {out, max, 0, SHMND_POLL_BUDGET, max, false, todo};
    todo->what = SHMND_IDLE;
    if (cq->link_count == 1 && !cq->unsettled && shmnd_cq_count(cq) == 0) {
        /* The usual queue. What follows does the same, with more steps. */
        p.direct = true;
        p.budget = max;
        shmnd_cq_poll_link(cq, cq->links[0], &p);
        return shmnd_cq_count(cq) == 0 ? p.n : p.n + shmnd_cq_pop(cq, out + p.n, max - p.n);
    }
    p.direct = !cq->unsettled || !shmnd_cq_progress_active(cq, &p, true);
    p.n = shmnd_cq_pop(cq, out, max);
    if (cq->link_count <= SHMND_DIRECT_LINKS) {
        shmnd_cq_poll_links(cq, cq->links, cq->link_count, &p);
    } else {
        shmnd_cq_poll_links(cq, cq->hot, SHMND_HOT_LINKS, &p);
        if (p.n < max || cq->polls % 2)
            shmnd_cq_poll_marked(cq, &p);
        if (++cq->polls > SHMND_SWEEP_POLLS && shmnd_cq_sweep_is_due(cq))
            shmnd_cq_poll_all(cq, &p);
    }
    return p.n + shmnd_cq_pop(cq, out + p.n, max - p.n);
}

/* Return whether a poll may find something. It costs less than a poll, and is a hint: messages
 * whose mark was lost are found by the sweep alone. */
static inline bool shmnd_cq_may_find(const struct shmnd_cq *cq)
{
    bool few = cq->link_count <= SHMND_DIRECT_LINKS;
    struct shmnd_qp *const *links = few ? cq->links : cq->hot;
    uint32_t count = few ? cq->link_count : SHMND_HOT_LINKS;
    if (cq->unsettled || shmnd_cq_count(cq))
        return true;
    for (uint32_t i = 0; i < count; i++)
        if (links[i] && shmnd_slots_ready(&links[i]->in))
            return true;
    if (few)
        return false;
    for (uint32_t word = 0; word < cq->bit_words; word++)
        if (shmnd_cq_ready_bits(cq, word))
            return true;
    return cq->polls > SHMND_SWEEP_POLLS; /* the next poll polls all links */
}

/* Return whether an operation here ends without a wake-up, by a copy of the peer or of another
 * thread. */
static inline bool shmnd_qp_ends_without_wakeup(const struct shmnd_qp *qp)
{
    return qp->going_down || qp->flush.pending || qp->rx.unbinding || shmnd_tx_awaits_peer(qp);
}

/* Return whether a piece of a copy is left, which the next poll runs. */
static inline bool shmnd_qp_has_unfinished_copy(const struct shmnd_qp *qp)
{
    return (qp->tx.busy && !qp->tx.started) || shmnd_rx_job_is_prepared(qp) ||
           (qp->tx.again && qp->wq.oldest != qp->wq.end);
}

/* Return whether a piece of a copy is left for any active queue pair of this queue. */
static inline bool shmnd_cq_has_unfinished_copy(const struct shmnd_cq *cq)
{
    bool some = false;
    for (uint32_t i = 0; i < cq->active_count; i++)
        some = some || shmnd_qp_has_unfinished_copy(cq->active[i]);
    return some;
}

/* Return when this queue must be polled although no doorbell rings: now for a copy of which a piece
 * is left, in `soon_ns` for an operation that ends without a wake-up, and at its time-out for a
 * Send that waits for a receive. 0: there is no such time. */
static inline uint64_t shmnd_cq_next_poll_ns(const struct shmnd_cq *cq, uint64_t soon_ns)
{
    uint64_t due = 0;
    uint32_t count = cq->parked_count ? cq->link_count : cq->active_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct shmnd_qp *qp = cq->parked_count ? cq->links[i] : cq->active[i];
        const struct shmnd_wqe *w = &qp->wq.entries[qp->wq.oldest & qp->wq.mask];
        uint64_t at = 0;
        if (shmnd_qp_has_unfinished_copy(qp))
            at = shmnd_now_ns();
        else if (shmnd_qp_ends_without_wakeup(qp))
            at = shmnd_now_ns() + soon_ns;
        else if (qp->wq.oldest != qp->wq.end && w->since_ns)
            at = w->since_ns + qp->rnr_ns + SHMND_COARSE_STEP_NS; /* a step of the coarse clock */
        if (at && (!due || at < due))
            due = at;
    }
    return due;
}

/* Take all messages that arrived into the ring: for Notify, Resize and a thread about to sleep,
 * which need the number of completions. */
static inline void shmnd_cq_drain_links(struct shmnd_cq *cq, struct shmnd_todo *todo)
{
    struct shmnd_poll p = {NULL, 0, 0, UINT32_MAX, UINT64_MAX, false, todo};
    todo->what = SHMND_IDLE;
    if (cq->unsettled)
        shmnd_cq_progress_active(cq, &p, false);
    shmnd_cq_poll_all(cq, &p);
}

#endif
