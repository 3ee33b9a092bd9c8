/* SPDX-License-Identifier: Apache-2.0
 *
 * How a process takes the place of a rank, and how it comes to its end: it stays until what it
 * began has ended, or can no longer end.
 *
 * A program between the launcher and the rank, such as a script of a shell, may start several
 * processes with one place. Two of them at once would both read the records for that rank, and one
 * that begins anew at lanes in use would read records again. So a process takes the place only if
 * none has it and nothing was read or written there: the one before it has asked for the size, for
 * example, and is finalized.
 *
 * First it waits for its sends, because others may read them from its memory. Then it marks itself
 * as left: its program sends nothing more. After that it stays while a receive is posted whose
 * sender has not left. A message for such a receive has no other receiver.
 *
 * SYNC left: a rank shows its records, then stores `left` with release; one that stays loads `left`
 * with acquire, and drains its lanes after that. So no message is to come from a rank that is seen
 * to have left once a drain has found nothing. The launcher marks a process that has ended on its
 * behalf. Both then count in `departures`, which the ranks that stay sleep for: SYNC bell.
 *
 * A schedule may need messages that ranks send after they have left, because their part of it
 * still waits. It ends where it can. When all ranks have left, no rank needs it.
 */
#ifndef SHMPI_LEAVING_H
#define SHMPI_LEAVING_H

#include "transport/point_to_point.h"

/* What a rank at its end waits for: `peer` is -1 where there is nothing. */
struct shmpi_remains {
    int peer, tag;
    bool others;     /* ranks other than `peer` may end it, too */
    bool collective; /* some of it is part of a collective, and may still send */
};

/* Note that a rank has left, and wake those that wait for it. For the rank, once its sends have
 * ended, or for the launcher after the end of its process. */
static inline void shmpi_job_leave(struct shmpi_job *job, uint32_t rank)
{
    shmnd_release32(&shmpi_job_rank(job, rank)->left, 1); /* SYNC left: release */
    shmnd_add64(&job->departures, 1);
    shmnd_store_then_load(); /* SYNC bell: fence of the one that leaves */
    for (uint32_t i = 0; i < job->size; i++) {
        uint32_t asleep = shmnd_relaxed32(&shmpi_job_rank(job, i)->asleep);
        if (asleep == SHMPI_ASLEEP_LEFT || asleep == SHMPI_ASLEEP_ALL)
            shmpi_ring_bell(shmpi_job_rank(job, i));
    }
}

static inline void shmpi_leave(struct shmpi_engine *e)
{
    shmpi_job_leave(e->job, (uint32_t)e->rank);
}

/* Return the word for which a rank at its end sleeps in addition to records: of further departures.
 * To be called before shmpi_see_left(). */
static inline struct shmpi_awaited shmpi_await_left(const struct shmpi_engine *e)
{
    uint64_t seen = shmnd_acquire64(&e->job->departures);
    return (struct shmpi_awaited){&e->job->departures, seen + 1, SHMPI_ASLEEP_LEFT};
}

/* Read which ranks have left. Return how many have not, without this one and the dead. To be
 * followed by a drain before the answer of shmpi_remaining() counts. */
static inline int shmpi_see_left(struct shmpi_engine *e)
{
    int running = 0;
    for (int i = 0; i < e->size; i++) {
        struct shmpi_peer *p = &e->peers[i];
        if (!p->left && i != e->rank)
            p->left = shmnd_acquire32(&p->rank->left); /* SYNC left: acquire */
        running += i != e->rank && !p->left && !p->dead;
    }
    return running;
}

static inline int shmpi_first_running(const struct shmpi_engine *e)
{
    for (int i = 0; i < e->size; i++)
        if (i != e->rank && !e->peers[i].left && !e->peers[i].dead)
            return i;
    return -1;
}

/* Add an operation that keeps this rank. A part of a collective does so while a rank runs. */
static inline void shmpi_remains_add(struct shmpi_remains *rest, const struct shmpi_req *r,
                                     int peer, bool others, int running)
{
    bool collective = r && r->sched;
    if (collective && running < 0)
        return;
    rest->collective |= collective;
    if (rest->peer >= 0)
        return;
    rest->peer = peer;
    rest->tag = r && !collective ? r->tag : SHMPI_ANY;
    rest->others = others || collective;
}

/* Add the operations under way with a peer: records that it has no room for, copies, and sends. */
static inline void shmpi_add_begun(const struct shmpi_engine *e, struct shmpi_remains *rest,
                                   int running)
{
    for (int i = 0; e->unsent_peers && i < e->size; i++)
        for (const struct shmpi_unsent *o = e->peers[i].unsent; o; o = o->next)
            shmpi_remains_add(rest, o->req, i, false, running);
    for (const struct shmpi_req *r = e->copying; r; r = r->next)
        shmpi_remains_add(rest, r, r->source, false, running);
    for (uint32_t i = 0; i < e->table_size; i++) {
        const struct shmpi_req *r = e->table[i];
        if (r)
            shmpi_remains_add(rest, r, r->receives ? r->source : r->peer, false, running);
    }
}

/* Add the posted receives that a message may still come for. */
static inline void shmpi_add_posted(const struct shmpi_engine *e, struct shmpi_remains *rest,
                                    int running)
{
    for (int b = 0; running >= 0 && b < SHMPI_BUCKETS; b++)
        for (const struct shmpi_context *c = e->matching.buckets[b]; c; c = c->next) {
            if (c->any.first)
                shmpi_remains_add(rest, c->any.first, running, true, running);
            for (int i = 0; i < e->size; i++) {
                bool runs = i != e->rank && !e->peers[i].left && !e->peers[i].dead;
                for (const struct shmpi_req *r = c->posted[i].first; r; r = r->next)
                    if (runs || r->sched)
                        shmpi_remains_add(rest, r, runs ? i : running, false, running);
            }
        }
}

/* Release a rank at its end that another one waits for in vain: it stays no longer, and its exit
 * code is the result. For the launcher. The word orders nothing: a rank that misses the
 * bell reads it after SHMPI_SLEEP_NS. */
static inline void shmpi_job_release(struct shmpi_job *job, uint32_t rank)
{
    shmnd_put32(&shmpi_job_rank(job, rank)->released, 1);
    shmpi_wake(shmpi_job_rank(job, rank));
}

/* Return the operations that keep a rank at its end. Before it has left only sends do, without
 * those of collectives: ranks may each wait for the other's. */
static inline struct shmpi_remains shmpi_remaining(const struct shmpi_engine *e, bool has_left)
{
    struct shmpi_remains rest = {-1, SHMPI_ANY, false, false};
    int running = has_left ? shmpi_first_running(e) : -1;
    if (shmnd_relaxed32(&e->mine->released))
        return rest;
    shmpi_add_begun(e, &rest, running);
    shmpi_add_posted(e, &rest, running);
    return rest;
}

/* ---- the place ------------------------------------------------------------------------------ */

/* What `left` of a rank is after its process has given up the place. */
enum { SHMPI_GIVEN_UP = 2 };

/* Show the positions read by a rank that is finalized, then that it has given up its place. */
static inline void shmpi_give_place(struct shmpi_engine *e)
{
    for (int i = 0; i < e->size; i++)
        shmnd_put64(&e->peers[i].in.lane->read_pos, e->peers[i].in.read_pos);
    shmnd_release32(&e->mine->left, SHMPI_GIVEN_UP); /* SYNC place: release */
}

/* Return whether a rank that has given up its place has read or written. */
static inline bool shmpi_place_used(struct shmpi_job *job, uint32_t rank)
{
    uint64_t lane = job->lane_bytes;
    for (uint32_t i = 0; i < job->size; i++) {
        struct shmpi_lane *in = shmpi_job_lane(job, job->size, lane, i, rank);
        struct shmpi_lane *out = shmpi_job_lane(job, job->size, lane, rank, i);
        uint64_t went = shmnd_relaxed64((shmnd_word64 *)(out + 1));
        if (shmnd_relaxed64(&in->read_pos) || went || shmnd_relaxed64(&out->read_pos))
            return true;
    }
    for (uint32_t slot = 0; slot < SHMPI_LINE_SLOTS; slot++) {
        struct shmpi_ring *ring = shmpi_job_ring(job, job->size, slot, rank);
        bool used = shmnd_relaxed64(&ring->finished);
        for (int i = 0; i < SHMPI_LINE_ENTRIES; i++)
            used |= shmnd_relaxed64(&ring->entries[i].mark) != 0;
        if (used)
            return true;
    }
    return false;
}

/* Take the place of a rank for this process. Return 0, or the process that has it, or had it. */
static inline uint32_t shmpi_take_place(struct shmpi_job *job, uint32_t rank)
{
    struct shmpi_rank *mine = shmpi_job_rank(job, rank);
    uint32_t process = (uint32_t)getpid(), holder = 0;
    if (shmnd_swap32(&mine->pid, &holder, process))
        return 0;
    bool given_up = shmnd_acquire32(&mine->left) == SHMPI_GIVEN_UP; /* SYNC place: acquire */
    if (!given_up || shmpi_place_used(job, rank))
        return holder;
    uint32_t seen = holder;
    if (!shmnd_swap32(&mine->pid, &seen, process))
        return seen;
    shmnd_put32(&mine->left, 0);
    return 0;
}

#endif
