/* SPDX-License-Identifier: Apache-2.0
 *
 * The death of other ranks, revoked communicators, and operations that end by them.
 *
 * The launcher marks a rank as dead, counts the death, and wakes all. SYNC death: it writes `dead`,
 * then `failures` with release; a rank loads `failures` with acquire, and then sees every `dead`
 * that is counted. Records that the dead rank had shown whole still arrive first.
 *
 * An operation with a dead rank ends by SHMPI_FAILED_PEER. Nothing is copied from the memory of a
 * rank that is known to be dead: its process id may be another's.
 *
 * In a revoked context receives end by SHMPI_REVOKED, and messages are answered as
 * refused, so that their sends end and no sender's memory is read after its program got it back.
 */
#ifndef SHMPI_FAILURES_H
#define SHMPI_FAILURES_H

#include <sys/mman.h>

#include "transport/collectives/schedule.h"

/* Return whether an operation is one of those that end, which `what` names. */
typedef bool (*shmpi_choice)(const struct shmpi_req *r, uint64_t what);

/* Free the unsent records of a send to a peer, or with NULL all those of the peer. */
static inline void shmpi_drop_unsent(struct shmpi_engine *e, struct shmpi_peer *p,
                                     const struct shmpi_req *r)
{
    struct shmpi_unsent **at = &p->unsent, *last = NULL;
    while (*at) {
        struct shmpi_unsent *o = *at;
        if (!r || o->req == r) {
            *at = o->next;
            free(o);
        } else {
            last = o;
            at = &o->next;
        }
    }
    if (p->unsent_last && !p->unsent)
        e->unsent_peers--;
    p->unsent_last = last;
}

/* Free the message of a send to this rank itself. Return false if a receive has it. */
static inline bool shmpi_drop_self(struct shmpi_engine *e, const struct shmpi_req *r)
{
    struct shmpi_context *c = shmpi_context(&e->matching, r->context);
    struct shmpi_message *m = c->waiting[e->rank].first;
    while (m && m->self != r)
        m = m->next;
    if (!m)
        return false;
    shmpi_take_waiting(c, m);
    free(m);
    return true;
}

/* End an operation that is under way. */
static inline void shmpi_give_up(struct shmpi_engine *e, struct shmpi_req *r, int fault)
{
    if (r->receives && r->posted) {
        shmpi_unpost(shmpi_context(&e->matching, r->context), r);
        r->source = r->peer;
        r->source_tag = r->tag;
    } else if (r->receives) {
        if (shmpi_stop_placing(e, r)) /* no other word ends the send */
            shmpi_send_notice(e, r->source, SHMPI_TAKEN, r->copy.theirs, 0);
        shmpi_list_out(&e->copying, r);
    } else if (r->peer == e->rank) {
        if (!shmpi_drop_self(e, r))
            return;
    } else {
        struct shmpi_peer *p = &e->peers[r->peer];
        if (p->unsent)
            shmpi_drop_unsent(e, p, r);
        shmpi_list_out(&e->pushing, r);
    }
    r->fault = fault;
    r->got = 0;
    shmpi_finish(e, r);
}

static inline void shmpi_give_up_list(struct shmpi_engine *e, struct shmpi_req *r,
                                      shmpi_choice choice, uint64_t what, int fault)
{
    for (struct shmpi_req *next; r; r = next) {
        next = r->next;
        if (choice(r, what))
            shmpi_give_up(e, r, fault);
    }
}

static inline void shmpi_give_up_context(struct shmpi_engine *e, struct shmpi_context *c,
                                         shmpi_choice choice, uint64_t what, int fault)
{
    shmpi_give_up_list(e, c->any.first, choice, what, fault);
    for (int i = 0; i < e->size; i++)
        shmpi_give_up_list(e, c->posted[i].first, choice, what, fault);
    struct shmpi_message *m = c->waiting[e->rank].first, *next;
    for (; m; m = next) {
        next = m->next;
        if (m->self && choice(m->self, what))
            shmpi_give_up(e, m->self, fault);
    }
}

/* End all operations that `choice` takes. */
static inline void shmpi_give_up_all(struct shmpi_engine *e, shmpi_choice choice, uint64_t what,
                                     int fault)
{
    for (int b = 0; b < SHMPI_BUCKETS; b++)
        for (struct shmpi_context *c = e->matching.buckets[b]; c; c = c->next)
            shmpi_give_up_context(e, c, choice, what, fault);
    shmpi_give_up_list(e, e->copying, choice, what, fault);
    shmpi_give_up_list(e, e->pushing, choice, what, fault);
    for (uint32_t i = 0; i < e->table_size; i++)
        if (e->table[i] && choice(e->table[i], what))
            shmpi_give_up(e, e->table[i], fault);
    for (int i = 0; i < e->size; i++)
        for (struct shmpi_unsent *o = e->peers[i].unsent; o;)
            if (o->req && choice(o->req, what)) {
                shmpi_give_up(e, o->req, fault);
                o = e->peers[i].unsent; /* the list is another now */
            } else {
                o = o->next;
            }
}

static inline bool shmpi_with_peer(const struct shmpi_req *r, uint64_t peer)
{
    int with = r->receives && !r->posted ? r->source : r->peer;
    return with == (int)peer;
}

static inline bool shmpi_of_sched(const struct shmpi_req *r, uint64_t sched)
{
    return (uintptr_t)r->sched == sched;
}

static inline bool shmpi_is_req(const struct shmpi_req *r, uint64_t req)
{
    return (uintptr_t)r == req;
}

/* ---- death ---------------------------------------------------------------------------------- */

/* Take the last records of the ranks that have died since, and end the operations with them. */
static inline void shmpi_see_failures(struct shmpi_engine *e)
{
    e->failures = shmnd_acquire32(&e->job->failures); /* SYNC death: acquire */
    for (int i = 0; i < e->size; i++) {
        struct shmpi_peer *p = &e->peers[i];
        if (i == e->rank || p->dead || !shmnd_relaxed32(&p->rank->dead))
            continue;
        while (shmpi_drain(e, i)) {
        }
        p->dead = true;
        shmpi_give_up_all(e, shmpi_with_peer, (uint64_t)i, SHMPI_FAILED_PEER);
        if (p->unsent)
            shmpi_drop_unsent(e, p, NULL);
    }
}

/* End a collective that needs a dead rank, or of a revoked communicator. */
static inline void shmpi_sched_stop(struct shmpi_engine *e, struct shmpi_sched *s, int fault)
{
    s->stopped = true;
    s->fault = fault;
    shmpi_give_up_all(e, shmpi_of_sched, (uintptr_t)s, fault);
    if (!s->outstanding && !s->running)
        shmpi_sched_queue(e, s);
    shmpi_sched_run(e);
}

/* End a single operation of the caller. */
static inline void shmpi_stop(struct shmpi_engine *e, struct shmpi_req *r, int fault)
{
    shmpi_give_up_all(e, shmpi_is_req, (uintptr_t)r, fault);
}

/* Mark a rank as dead, and return the number of the death. For the launcher, once for each. */
static inline uint32_t shmpi_job_mark_dead(struct shmpi_job *job, uint32_t rank)
{
    uint32_t number = shmnd_relaxed32(&job->failures) + 1;
    shmnd_put32(&shmpi_job_rank(job, rank)->dead, number);
    shmnd_release32(&job->failures, number); /* SYNC death: release */
    for (uint32_t i = 0; i < job->size; i++)
        shmpi_wake(shmpi_job_rank(job, i));
    return number;
}

/* ---- revoked contexts ----------------------------------------------------------------------- */

static inline bool shmpi_revoked(struct shmpi_engine *e, uint32_t context)
{
    if (!e->revocations)
        return false;
    struct shmpi_context *c = shmpi_context(&e->matching, context);
    return c && c->revoked;
}

static inline bool shmpi_in_context(const struct shmpi_req *r, uint64_t context)
{
    return r->context == context && r->posted;
}

/* Answer and free the messages that no receive will take. */
static inline void shmpi_refuse_waiting(struct shmpi_engine *e, struct shmpi_context *c)
{
    for (int i = 0; i < e->size; i++)
        for (struct shmpi_message *m = c->waiting[i].first, *next; m; m = next) {
            next = m->next;
            if (m->self) {
                shmpi_give_up(e, m->self, SHMPI_REVOKED);
                continue;
            }
            if (m->waits || m->sync)
                shmpi_send_notice(e, m->source, SHMPI_TAKEN, m->theirs, SHMPI_REFUSED);
            shmpi_take_waiting(c, m);
            free(m);
        }
}

/* Revoke the contexts of a communicator, here alone. Return false without memory. */
static inline bool shmpi_revoke(struct shmpi_engine *e, uint32_t first)
{
    if (!shmpi_remember_revoked(&e->matching, first))
        return false;
    e->revocations++;
    for (uint32_t k = 0; k < SHMPI_REVOKED_AT_ONCE; k++) {
        /* One that has no context of its own here, since it was freed or not made yet, gets
         * none. */
        struct shmpi_context *c = shmpi_context(&e->matching, first + k);
        if (c->revoked)
            continue;
        c->revoked = true;
        shmpi_give_up_context(e, c, shmpi_in_context, c->id, SHMPI_REVOKED);
        shmpi_refuse_waiting(e, c);
    }
    return true;
}

/* ---- a forked child of a rank ---------------------------------------------------------------
 *
 * The memory of the job, but for the arena of the rank, becomes zeroed pages of the child's own: no
 * store of it reaches another rank, and no record does come. The arena is for the owner of the
 * arrays in it to make the child's own (shared_arrays.pyx). Waits ask at once why, and
 * communicators look for a revocation, where the binding refuses them, so that the path of a
 * message reads nothing new. The operations under way are those of the rank. */

/* Map zeroed pages of this process to a place. Return false if the kernel refuses. */
static inline bool shmpi_zero_pages(char *begin, char *end)
{
    const int flags = MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS;
    return begin == end ||
           mmap(begin, (size_t)(end - begin), PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

/* Detach a forked child from the job. Return false without pages for it: the child must end. */
static inline bool shmpi_become_inert(struct shmpi_engine *e, uint64_t bytes)
{
    char *begin = (char *)e->job, *end = begin + bytes;
    char *own = e->arena.base ? e->arena.base : end;
    if (!shmpi_zero_pages(begin, own) ||
        (own != end && !shmpi_zero_pages(own + e->arena.bytes, end)))
        return false;
    shmnd_release32(&e->job->failures, e->failures);
    e->unsent_peers = e->active_sends = 0;
    e->copying = e->pushing = NULL;
    e->ready = NULL;
    e->ended = NULL;
    e->awake_polls = 0;
    e->revocations = 1;
    return true;
}

#endif
