/* SPDX-License-Identifier: Apache-2.0
 *
 * Point to point: sends, receives, probes, cancelling, and progress.
 *
 * A send writes one record, or leaves it unsent. It is done with that record if it is short and not
 * synchronous; otherwise when all of its bytes were moved, or its receiver says that it has them. A
 * receive first takes a message that waits, and is posted only if there is none. No function waits
 * but shmpi_idle_for(), which yields or sleeps once.
 */
#ifndef SHMPI_POINT_TO_POINT_H
#define SHMPI_POINT_TO_POINT_H

#include <sched.h>
#include <stdio.h>

#include "transport/failures.h"
#include "transport/copying/receive_now.h"
#include "transport/wait_notes.h"

/* ---- sends ---------------------------------------------------------------------------------- */

/* Send a message to this rank itself. One that is short and not `sync` is copied. */
static inline bool shmpi_send_to_self(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_context *c = shmpi_context(&e->matching, r->context);
    if (!c)
        return false;
    struct shmpi_req *other = shmpi_match_posted(c, e->rank, r->tag);
    if (other) {
        if (r->spoils)
            shmpi_matched_spoiled(other, e->rank, r->tag);
        else
            shmpi_matched(other, e->rank, r->tag, r->bytes, shmpi_sched_whole(r), false);
        if (other->got)
            shmnd_copy_bytes(other->buffer, r->buffer, other->got);
        shmpi_finish(e, other);
        shmpi_finish(e, r);
        return true;
    }
    bool whole = !r->sync && r->bytes <= e->eager;
    struct shmpi_message *m = shmpi_keep(e, c, e->rank, r->tag, whole ? r->bytes : 0);
    if (!m)
        return false;
    m->bytes = r->bytes;
    m->whole = shmpi_sched_whole(r);
    m->spoils = r->spoils;
    if (whole) {
        if (r->bytes)
            shmnd_copy_bytes(m->data, r->buffer, r->bytes);
        shmpi_finish(e, r);
    } else {
        m->self = r;
    }
    return true;
}

/* Start a send. Return false without memory; then nothing was begun. */
static inline bool shmpi_start_send(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (e->peers[r->peer].dead || shmpi_revoked(e, r->context)) {
        r->fault = e->peers[r->peer].dead ? SHMPI_FAILED_PEER : SHMPI_REVOKED;
        shmpi_finish(e, r);
        return true;
    }
    if (r->spoils)
        r->bytes = 0;
    if (r->peer == e->rank)
        return shmpi_send_to_self(e, r);
    bool eager = r->bytes <= e->eager, written;
    struct shmpi_unsent o = {.tag = r->tag, .context = r->context, .req = r};
    if ((r->sync || !eager) && !shmpi_req_name(e, r))
        return false;
    o.a = r->id;
    r->copy.share = 0;
    if (eager) {
        o.kind = SHMPI_EAGER;
        o.flags = (r->sync ? SHMPI_SYNC : 0) | (r->spoils ? SHMPI_SPOILS : 0);
        o.payload = r->bytes;
        o.b = shmpi_sched_whole(r);
    } else {
        o.kind = SHMPI_READY;
        o.b = r->bytes;
        o.payload = sizeof o.words;
        o.words[1] = shmpi_sched_whole(r);
        shmpi_share_take(e, r);
        o.flags = r->copy.share;
        if (shmpi_in_arena(e, r->buffer, r->bytes, o.words))
            o.flags |= SHMPI_MAPPED;
        else
            o.words[0] = (uintptr_t)r->buffer;
    }
    if (!shmpi_send_record(e, &e->peers[r->peer], &o, &written)) {
        shmpi_req_unname(e, r);
        shmpi_share_return(e, r);
        return false;
    }
    if (written && eager)
        shmpi_sent(e, r);
    return true;
}

/* Send a short message at once, without a request. Return false if that needs one. */
static inline bool shmpi_send_now(struct shmpi_engine *e, int peer, uint32_t context, int tag,
                                  const void *data, uint64_t bytes)
{
    struct shmpi_peer *p = &e->peers[peer];
    if (bytes > e->eager || p->unsent || p->dead || peer == e->rank)
        return false;
    struct shmpi_record *r = shmpi_out_take(&p->out, bytes);
    if (!r)
        return false;
    r->tag = tag;
    r->context = context;
    r->b = 0;
    if (bytes)
        shmnd_copy_bytes(r + 1, data, bytes);
    shmpi_show(p, r, SHMPI_EAGER, 0, bytes);
    return true;
}

/* ---- receives ------------------------------------------------------------------------------- */

static inline bool shmpi_start_receive(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_context *c = shmpi_context(&e->matching, r->context);
    if (!c)
        return false;
    r->receives = true;
    struct shmpi_message *m = shmpi_find_waiting(&e->matching, c, r->peer, r->tag);
    if (m) {
        shmpi_take_waiting(c, m);
        shmpi_deliver(e, m, r);
    } else if (c->revoked || (r->peer >= 0 && e->peers[r->peer].dead)) {
        r->source = r->peer;
        r->source_tag = r->tag;
        r->fault = c->revoked ? SHMPI_REVOKED : SHMPI_FAILED_PEER;
        shmpi_finish(e, r);
    } else {
        shmpi_post(&e->matching, c, r);
    }
    return true;
}

/* Return the message that a receive would get now, or NULL. */
static inline struct shmpi_message *shmpi_probe(struct shmpi_engine *e, uint32_t context,
                                                int source, int tag)
{
    struct shmpi_context *c = shmpi_context(&e->matching, context);
    return c ? shmpi_find_waiting(&e->matching, c, source, tag) : NULL;
}

/* Take a probed message out of matching: only shmpi_deliver() of its owner gets it now. */
static inline void shmpi_claim(struct shmpi_engine *e, struct shmpi_message *m)
{
    shmpi_take_waiting(shmpi_context(&e->matching, m->context), m);
}

/* Cancel a posted receive, or a send to this rank that no receive has taken. */
static inline void shmpi_cancel(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (r->done)
        return;
    if (r->receives) {
        if (!r->posted)
            return;
        shmpi_unpost(shmpi_context(&e->matching, r->context), r);
        r->cancelled = true;
        r->source = SHMPI_ANY;
        r->source_tag = SHMPI_ANY;
        shmpi_finish(e, r);
        return;
    }
    if (r->peer == e->rank) {
        struct shmpi_context *c = shmpi_context(&e->matching, r->context);
        struct shmpi_message *m = c->waiting[e->rank].first;
        while (m && m->self != r)
            m = m->next;
        if (!m)
            return;
        shmpi_take_waiting(c, m);
        free(m);
        r->cancelled = true;
        shmpi_finish(e, r);
    }
}

/* Leave a request to the engine, which frees it when it is done, unless it has a holder. */
static inline void shmpi_let_go(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (r->done) {
        shmpi_req_free(e, r);
        return;
    }
    r->detached = true;
    e->active_sends++;
}

/* ---- what the binding asks ------------------------------------------------------------------ */

static inline void shmpi_refresh(struct shmpi_engine *e)
{
    if (shmnd_relaxed32(&e->job->failures) != e->failures)
        shmpi_see_failures(e);
}

static inline uint32_t shmpi_death_of(struct shmpi_engine *e, int rank)
{
    return e->peers[rank].dead ? shmnd_relaxed32(&e->peers[rank].rank->dead) : 0;
}

static inline bool shmpi_send_revoked(struct shmpi_engine *e, int peer, uint32_t first)
{
    return shmpi_send_notice(e, peer, SHMPI_REVOKE, first, 0);
}

static inline void shmpi_mark_aborted(struct shmpi_engine *e)
{
    shmnd_release32(&e->job->aborted, 1);
}

static inline void shmpi_note_mine(struct shmpi_engine *e, uint32_t count, int peer, int tag,
                                   const char *call, const char *comm)
{
    shmpi_note(e->mine, count, peer, tag, call, comm);
}

static inline void shmpi_note_mine_end(struct shmpi_engine *e)
{
    shmpi_note_end(e->mine);
}

/* Return a rank that a schedule waits for: one whose message it misses, else one that has not taken
 * a message yet; -1 if there is none. */
static inline int shmpi_sched_peer(struct shmpi_engine *e, const struct shmpi_sched *s)
{
    struct shmpi_context *c = shmpi_context(&e->matching, s->context);
    for (int i = 0; c && i < e->size; i++)
        for (struct shmpi_req *r = c->posted[i].first; r; r = r->next)
            if (r->sched == s)
                return i;
    for (uint32_t i = 0; i < e->table_size; i++)
        if (e->table[i] && e->table[i]->sched == s)
            return e->table[i]->receives ? e->table[i]->source : e->table[i]->peer;
    return -1;
}

/* Return the first of `count` numbers of contexts that no communicator of this job has. At the end
 * of the numbers it is SHMPI_CONTEXTS_END, of which no communicator is made: each number is used
 * once. The numbers that ranks add there at the same time stay below 2^32. */
static inline uint32_t shmpi_contexts(struct shmpi_engine *e, uint32_t count)
{
    uint32_t first = shmnd_add32(&e->job->contexts, count);
    if (first < SHMPI_CONTEXTS_END)
        return first;
    shmnd_put32(&e->job->contexts, SHMPI_CONTEXTS_END);
    return SHMPI_CONTEXTS_END;
}

/* ---- progress ------------------------------------------------------------------------------- */

static inline uint32_t shmpi_progress(struct shmpi_engine *e)
{
    uint32_t n = 0;
    if (shmnd_relaxed32(&e->job->failures) != e->failures)
        shmpi_see_failures(e);
    for (int i = 0; i < e->size; i++)
        if (i != e->rank)
            n += shmpi_drain(e, i);
    if (e->unsent_peers)
        n += shmpi_send_unsent(e);
    if (e->copying)
        n += shmpi_copy_some(e);
    if (e->pushing)
        n += shmpi_push_some(e);
    if (e->ready)
        n += shmpi_sched_run(e);
    return n;
}

/* Return whether a record of another rank waits for this one. */
static inline bool shmpi_any_incoming(const struct shmpi_engine *e)
{
    for (int i = 0; i < e->size; i++)
        if (i != e->rank && !e->peers[i].broken && shmpi_in_poll(&e->peers[i].in))
            return true;
    return false;
}

enum {
    SHMPI_AWAKE_POLLS_CROWDED = 20,
    SHMPI_AWAKE_POLLS = 2000,
    SHMPI_YIELDS_CROWDED = 16,
    SHMPI_YIELDS = 200,
    SHMPI_SLEEP_NS = 50000000,
    SHMPI_FIRST_SLEEP_NS = 10000000, /* then the wait is a long one, and is published */
};

/* Take one turn of a wait after its polls were in vain: yield, later sleep at the bell. The engine
 * may be used by another thread meanwhile. `a` is the word that the wait is for, in addition to
 * records; or NULL. */
static inline void shmpi_idle_for(struct shmpi_engine *e, uint32_t turn,
                                  const struct shmpi_awaited *a)
{
    if (e->copying)
        return;
    if (turn < e->yields) {
        sched_yield();
        return;
    }
    uint32_t seen = shmnd_relaxed32(&e->mine->bell);
    uint32_t what = a ? a->asleep : SHMPI_ASLEEP;
    shmnd_put32(&e->mine->asleep, shmnd_relaxed32(&e->idlers) > 1 ? SHMPI_ASLEEP_ALL : what);
    shmnd_store_then_load(); /* SYNC bell: fence of the sleeper */
    if (!shmpi_any_incoming(e) && !(a && shmpi_arrived(a)) &&
        shmnd_relaxed32(&e->job->failures) == e->failures)
        shmpi_sleep(e->mine, seen, turn == e->yields ? SHMPI_FIRST_SLEEP_NS : SHMPI_SLEEP_NS);
}

/* Count a thread that is about to call shmpi_idle_for(). With the interpreter's lock, as
 * shmpi_idle_end(). */
static inline void shmpi_idle_begin(struct shmpi_engine *e)
{
    shmnd_add32(&e->idlers, 1);
}

static inline void shmpi_idle_end(struct shmpi_engine *e)
{
    if (shmnd_add32(&e->idlers, UINT32_MAX) == 1)
        shmnd_put32(&e->mine->asleep, 0);
}

static inline void shmpi_idle(struct shmpi_engine *e, uint32_t turn)
{
    shmpi_idle_begin(e);
    shmpi_idle_for(e, turn, NULL);
    shmpi_idle_end(e);
}

/* ---- making --------------------------------------------------------------------------------- */

/* Return the engine of a rank on the memory of its job; NULL without memory. */
static inline struct shmpi_engine *shmpi_engine_new(struct shmpi_job *job, int rank)
{
    struct shmpi_engine *e = calloc(1, sizeof *e);
    uint32_t size = job->size;
    uint64_t lane = job->lane_bytes;
    if (!e || !(e->peers = calloc(size, sizeof *e->peers))) {
        free(e);
        return NULL;
    }
    e->job = job;
    e->rank = rank;
    e->size = (int)size;
    e->matching.size = size;
    e->crowded = job->crowded;
    e->awake_polls = e->crowded ? SHMPI_AWAKE_POLLS_CROWDED : SHMPI_AWAKE_POLLS;
    e->yields = e->crowded ? SHMPI_YIELDS_CROWDED : SHMPI_YIELDS;
    e->piece = shmpi_lane_most(lane);
    e->eager = e->piece < 8192 ? e->piece : 8192;
    e->unit =
        (e->piece < SHMPI_UNIT_MOST ? e->piece : SHMPI_UNIT_MOST) & ~(uint64_t)(SHMPI_LINE - 1);
    e->mine = shmpi_job_rank(job, (uint32_t)rank);
    for (uint32_t i = 0; i < size; i++) {
        struct shmpi_peer *p = &e->peers[i];
        struct shmpi_lane *in = shmpi_job_lane(job, size, lane, i, (uint32_t)rank);
        struct shmpi_lane *out = shmpi_job_lane(job, size, lane, (uint32_t)rank, i);
        p->rank = shmpi_job_rank(job, i);
        p->in = (struct shmpi_in){(char *)(in + 1), in, lane, 0, 0};
        p->out = (struct shmpi_out){(char *)(out + 1), out, lane, 0, 0};
        shmpi_ways_begin(&p->ways);
    }
    if (job->arena_bytes && size > 1) {
        e->arena_bytes = job->arena_bytes;
        e->arenas = (char *)job + shmpi_arena_at(size, lane, e->arena_bytes, 0);
        if (!shmpi_arena_open(&e->arena, shmpi_at_arena(e, rank, 0, e->arena_bytes),
                              e->arena_bytes)) {
            free(e->peers);
            free(e);
            return NULL;
        }
    }
    shmnd_put32(&e->mine->pid, (uint32_t)getpid());
    return e;
}

#endif
