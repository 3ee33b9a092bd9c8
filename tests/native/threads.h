/* SPDX-License-Identifier: Apache-2.0
 *
 * A process of world.h that runs by itself: one thread holds a lock in place of the
 * interpreter's, posts, polls and sleeps; another runs copies without it, as the compiled
 * classes let a second thread do.
 *
 * Both processes have the same memory at the same addresses, so the thread sanitizer sees the
 * accesses of both. It does not model fences; the words that only fences order are atomic on
 * both sides, and it reports none of them. It does not see bytes that the kernel copies
 * (process_memory.h).
 *
 * A thread arms its queue before it checks it for the last time and sleeps. Every change on a
 * link must wake it then; a sleep of a minute is a lost wake-up and fails.
 */
#ifndef SHMND_TEST_THREADS_H
#define SHMND_TEST_THREADS_H

#include <pthread.h>

#include "world.h"

#define T_SLEEP_MS 60000

struct runner {
    struct proc *proc;
    struct queue *queue;
    struct runner *other;
    void (*took)(void *user, const struct shmnd_cqe *e); /* a completion */
    bool (*turn)(void *user);                            /* something was posted */
    bool (*done)(void *user);
    void *user;
    pthread_t engine, copier;
    pthread_mutex_t lock;
    pthread_cond_t handed;
    struct shmnd_qp *job; /* for the copier */
    bool job_receives, over;
    struct chance chance;
    uint64_t jobs, slept;
    shmnd_word32 finished;
};

/* ---- copies ----------------------------------------------------------------------------- */

static inline bool runner_begin(struct shmnd_qp *q, bool receiving)
{
    if (receiving ? !shmnd_rx_job_is_prepared(q) : !q->tx.busy || q->tx.started)
        return false;
    if (!receiving) {
        q->tx.started = true;
        return true;
    }
    q->rx.busy = true;
    shmnd_rx_resolve_again(q);
    return true;
}

/* Without the lock. */
static inline void runner_run(struct shmnd_qp *q, bool receiving)
{
    if (receiving)
        shmnd_rx_run(q);
    else
        shmnd_tx_run(q);
}

static inline void runner_ran(struct shmnd_qp *q, bool receiving)
{
    if (receiving)
        shmnd_rx_run_done(q);
    else
        shmnd_tx_run_done(q);
}

static void *runner_copies(void *arg)
{
    struct runner *r = arg;
    pthread_mutex_lock(&r->lock);
    while (r->job || !r->over) {
        struct shmnd_qp *q = r->job;
        bool receiving = r->job_receives;
        if (!q) {
            pthread_cond_wait(&r->handed, &r->lock);
            continue;
        }
        pthread_mutex_unlock(&r->lock);
        runner_run(q, receiving);
        pthread_mutex_lock(&r->lock);
        runner_ran(q, receiving);
        r->job = NULL;
        r->jobs++;
        shmnd_ring_doorbell(r->proc->rung_by); /* the engine may sleep for it */
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* Runs the job that a poll or a post left, here or in the other thread. */
static inline void runner_serve(struct runner *r, struct shmnd_qp *q, enum shmnd_progress what,
                                bool receiving)
{
    EQUAL(what, SHMND_RUN); /* all segments are mapped */
    if (!runner_begin(q, receiving))
        return;
    if (!r->job && chance_below(&r->chance, 2)) {
        r->job = q;
        r->job_receives = receiving;
        pthread_cond_signal(&r->handed);
        return;
    }
    runner_run(q, receiving);
    runner_ran(q, receiving);
}

static inline void runner_advance(struct runner *r, struct pair *e)
{
    enum shmnd_progress p;
    while ((p = shmnd_tx_advance(&e->q)) != SHMND_IDLE)
        runner_serve(r, &e->q, p, false);
}

/* ---- polling and sleeping --------------------------------------------------------------- */

/* As the garbage collector: reads all contexts under the lock, while a copy may run without it. */
static inline void runner_visits(struct runner *r)
{
    struct world *w = r->proc->world;
    for (uint32_t i = 0; i < w->pair_count; i++) {
        struct shmnd_contexts_walk walk = {0};
        if (w->pairs[i].proc != r->proc)
            continue;
        for (void **at; (at = shmnd_qp_next_context(&w->pairs[i].q, &walk)) != NULL;)
            CHECK(*at);
    }
}

static inline bool runner_poll(struct runner *r)
{
    struct shmnd_cqe out[16];
    struct shmnd_todo todo;
    uint32_t n = shmnd_cq_poll(&r->queue->cq, out, 16, &todo);
    if (todo.what != SHMND_IDLE)
        runner_serve(r, todo.qp, todo.what, todo.receiving);
    if (chance_below(&r->chance, 32) == 0)
        runner_visits(r);
    for (uint32_t i = 0; i < n; i++)
        r->took(r->user, &out[i]);
    /* A silent request has succeeded when its context is released. */
    for (void *context; (context = shmnd_pop_unreleased_context(&r->proc->registry)) != NULL; n++)
        r->took(r->user, &(struct shmnd_cqe){.context = context, .status = SHMND_SUCCESS});
    return n || todo.what != SHMND_IDLE;
}

/* Does an operation wait for the peer to end a copy? No doorbell rings for that. */
static inline bool runner_is_held_up(const struct runner *r)
{
    const struct shmnd_cq *cq = &r->queue->cq;
    bool held_up = false;
    for (uint32_t i = 0; i < cq->active_count; i++) {
        const struct shmnd_qp *q = cq->active[i];
        held_up = held_up || q->flush.pending || q->going_down || q->rx.unbinding ||
                  shmnd_tx_awaits_peer(q);
    }
    return held_up;
}

/* How many connections of this side have ended? An end after the last completion brings none, and
 * no doorbell rings for it: the next turn has to see it. */
static inline uint32_t runner_ended(const struct runner *r)
{
    const struct world *w = r->proc->world;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < w->pair_count; i++) {
        const struct shmnd_qp *q = &w->pairs[i].q;
        ended += w->pairs[i].proc == r->proc && q->state == SHMND_QP_DOWN && !q->going_down;
    }
    return ended;
}

/* Sleeps, unless something has come, or more connections have ended than the last turn saw. */
static inline void runner_sleep(struct runner *r, uint32_t seen)
{
    struct pollfd bell = {.fd = r->proc->doorbell, .events = POLLIN};
    struct shmnd_todo todo;
    char rings[256];
    shmnd_bell_arm(&r->queue->cq.arming, SHMND_ARMED_ANY);
    shmnd_cq_drain_links(&r->queue->cq, &todo);
    if (todo.what != SHMND_IDLE)
        runner_serve(r, todo.qp, todo.what, todo.receiving);
    if (runner_poll(r) || todo.what != SHMND_IDLE || runner_ended(r) != seen)
        return;
    bool held_up = runner_is_held_up(r);
    pthread_mutex_unlock(&r->lock);
    int woken = poll(&bell, 1, held_up ? 1 : T_SLEEP_MS);
    CHECK(woken == 1 || held_up);
    if (woken == 1)
        CHECK(read(bell.fd, rings, sizeof rings) > 0);
    pthread_mutex_lock(&r->lock);
    r->slept++;
}

static void *runner_goes(void *arg)
{
    struct runner *r = arg;
    bool told = false;
    pthread_mutex_lock(&r->lock);
    while (!told || !shmnd_acquire32(&r->other->finished)) {
        pthread_mutex_unlock(&r->lock); /* as the interpreter lets other threads run */
        pthread_mutex_lock(&r->lock);
        uint32_t ended = runner_ended(r);
        bool did = r->turn(r->user);
        did = runner_poll(r) || did;
        if (!told && r->done(r->user)) {
            told = true;
            shmnd_release32(&r->finished, 1);
            shmnd_ring_doorbell(r->other->proc->rung_by);
        } else if (!did) {
            runner_sleep(r, ended);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- both ------------------------------------------------------------------------------- */

static inline void runners_start(struct runner r[2], uint64_t seed)
{
    for (int i = 0; i < 2; i++) {
        r[i].other = &r[1 - i];
        r[i].chance.state = seed * 2 + (uint64_t)i;
        CHECK(pthread_mutex_init(&r[i].lock, NULL) == 0);
        CHECK(pthread_cond_init(&r[i].handed, NULL) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&r[i].copier, NULL, runner_copies, &r[i]) == 0);
        CHECK(pthread_create(&r[i].engine, NULL, runner_goes, &r[i]) == 0);
    }
}

static inline void runners_join(struct runner r[2])
{
    for (int i = 0; i < 2; i++)
        CHECK(pthread_join(r[i].engine, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        pthread_mutex_lock(&r[i].lock);
        r[i].over = true;
        pthread_cond_signal(&r[i].handed);
        pthread_mutex_unlock(&r[i].lock);
        CHECK(pthread_join(r[i].copier, NULL) == 0);
        CHECK(!r[i].job);
        pthread_mutex_destroy(&r[i].lock);
        pthread_cond_destroy(&r[i].handed);
    }
}

#endif
