/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's engine: its lanes, its requests, and its unsent records.
 *
 * A record that does not fit into a full lane is unsent: it waits in a list of its peer, in order,
 * and is written by a later call. While a peer has unsent records, all further ones for it are
 * unsent, too.
 *
 * One thread at a time calls in (the caller holds the interpreter's lock); shmpi_idle() alone may
 * run at the same time, since it only reads.
 */
#ifndef SHMPI_ENGINE_H
#define SHMPI_ENGINE_H

#include "transport/copying/arena.h"
#include "transport/copying/choose_way.h"
#include "transport/lane.h"
#include "transport/match.h"
#include "wire/copy_bytes.h"

/* What could not be written to a full lane, in order. */
struct shmpi_unsent {
    struct shmpi_unsent *next;
    uint32_t kind, flags;
    int tag;
    uint32_t context;
    uint64_t a, b, payload;
    struct shmpi_req *req; /* whose buffer is the payload; its send ends here if it is EAGER */
    uint64_t words[2];     /* the payload of all but EAGER */
};

/* A collective: its number in the communicator and, in the low bits, which call it is. */
struct shmpi_call {
    uint32_t context; /* 0: none */
    int root;         /* -1: it has none */
    uint64_t number;  /* 0: none */
};

/* A collective that failed at a rank, since the lengths of two ranks, or their calls, disagree. */
struct shmpi_dispute {
    struct shmpi_call call; /* without its root */
    int with;               /* which rank sent `came` bytes where it expected others; -1: none */
    uint64_t came, expected;
};

struct shmpi_peer {
    struct shmpi_in in;
    struct shmpi_out out;
    uint64_t answered; /* in.read_pos when shmpi_show() last found an answer */
    struct shmpi_unsent *unsent, *unsent_last;
    struct shmpi_rank *rank;
    bool tried, no_reading; /* whether the kernel lets us read its memory: it does not */
    bool no_writing;        /* it does not let us write there */
    bool broken;
    bool dead;
    bool left;                    /* as seen at our end: leaving.h */
    uint32_t shares;              /* words of our lane to it that are in use */
    struct shmpi_call call;       /* in which it has waited for us for long */
    struct shmpi_call answer;     /* the last one that it made in place of one of ours: calls.h */
    struct shmpi_dispute dispute; /* the last one that it sent */
    struct shmpi_ways ways;
};

struct shmpi_engine {
    struct shmpi_job *job;
    struct shmpi_rank *mine;
    int rank, size;
    uint64_t eager;        /* the largest payload that goes at once */
    uint64_t piece;        /* of one record */
    uint64_t unit;         /* by which both sides divide a message */
    uint32_t unsent_peers; /* peers with unsent records */
    bool crowded, in_schedules;
    bool came;            /* a piece, since the last poll that read memory */
    uint32_t passed_over; /* polls that read nothing, for that reason */
    struct shmpi_matching matching;
    struct shmpi_peer *peers;
    struct shmpi_arena arena; /* our own */
    char *arenas;             /* that of rank 0, where they are mapped here; NULL: there are none */
    uint64_t arena_bytes;
    struct shmpi_req **table; /* by id */
    uint32_t *generations;
    uint32_t table_size, table_free;
    struct shmpi_req *pool;
    struct shmpi_req *copying, *pushing; /* receives that read memory; sends in pieces: in order */
    struct shmpi_req *timed;             /* a receive that was alone since `timed_ns` */
    uint64_t timed_ns;
    struct shmpi_sched *ready; /* schedules that are ready */
    struct shmpi_req *ended;   /* done, whose holders are not yet notified */
    uint32_t active_sends;     /* detached, not done */
    uint64_t completions;
    uint32_t awake_polls; /* of a wait, before it yields */
    uint32_t yields;      /* of a wait, before it sleeps */
    shmnd_word32 idlers;  /* threads in shmpi_idle() */
    uint32_t failures;    /* deaths seen so far */
    uint32_t revocations; /* not 0: communicators are revoked, or none may be used any more */
    uint32_t disputes;    /* that other ranks sent */
    struct shmpi_calls *calls;
};

/* Forget `count` contexts from `first` on, whose communicator has ended. */
static inline void shmpi_forget_contexts(struct shmpi_engine *e, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; e && i < count; i++)
        shmpi_forget_context(&e->matching, first + i);
}

/* ---- requests ------------------------------------------------------------------------------ */

static inline struct shmpi_req *shmpi_req_new(struct shmpi_engine *e)
{
    struct shmpi_req *r = e->pool;
    if (r)
        e->pool = r->next;
    else if (!(r = malloc(sizeof *r)))
        return NULL;
    memset(r, 0, sizeof *r);
    return r;
}

static inline bool shmpi_return_borrowed(struct shmpi_engine *e, struct shmpi_req *r);

static inline void shmpi_req_free(struct shmpi_engine *e, struct shmpi_req *r)
{
    shmpi_return_borrowed(e, r);
    if (r->owns_buffer)
        free(r->buffer);
    r->next = e->pool;
    e->pool = r;
}

enum { SHMPI_ID_BITS = 20 };

/* Number a request, so that a peer may name it. Return false without memory. */
static inline bool shmpi_req_name(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (r->id)
        return true;
    uint32_t at = e->table_free;
    while (at < e->table_size && e->table[at])
        at++;
    if (at == e->table_size) {
        uint32_t more = e->table_size ? 2 * e->table_size : 64;
        if (more > 1u << SHMPI_ID_BITS)
            return false;
        struct shmpi_req **table = realloc(e->table, more * sizeof *table);
        if (!table)
            return false;
        e->table = table;
        uint32_t *generations = realloc(e->generations, more * sizeof *generations);
        if (!generations)
            return false;
        e->generations = generations;
        memset(table + e->table_size, 0, (more - e->table_size) * sizeof *table);
        memset(generations + e->table_size, 0, (more - e->table_size) * sizeof *generations);
        e->table_size = more;
    }
    e->table_free = at + 1;
    e->table[at] = r;
    r->id = (e->generations[at]++ << SHMPI_ID_BITS | at) + 1;
    if (!r->id)
        r->id = (e->generations[at]++ << SHMPI_ID_BITS | at) + 1;
    return true;
}

static inline void shmpi_req_unname(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (!r->id)
        return;
    uint32_t at = (r->id - 1) & ((1u << SHMPI_ID_BITS) - 1);
    e->table[at] = NULL;
    if (at < e->table_free)
        e->table_free = at;
    r->id = 0;
}

/* Return the request that a peer names, if that peer takes part in it; else NULL. */
static inline struct shmpi_req *shmpi_req_named(struct shmpi_engine *e, uint64_t id, int peer)
{
    uint32_t at = ((uint32_t)id - 1) & ((1u << SHMPI_ID_BITS) - 1);
    if (!id || id > UINT32_MAX || at >= e->table_size || !e->table[at])
        return NULL;
    struct shmpi_req *r = e->table[at];
    int with = r->receives ? r->source : r->peer;
    return r->id == id && with == peer ? r : NULL;
}

static inline void shmpi_sched_part_done(struct shmpi_engine *e, struct shmpi_req *r);
static inline void shmpi_sched_compare(struct shmpi_req *r, uint64_t bytes, uint64_t whole);
static inline uint64_t shmpi_sched_whole(const struct shmpi_req *r);
static inline bool shmpi_merges_all(const struct shmpi_req *r);
static inline uint64_t shmpi_whole_items(const struct shmpi_req *r, uint64_t most);
static inline void shmpi_merge_piece(struct shmpi_req *r, const char *came, uint64_t at,
                                     uint64_t n);

/* Free the word of the lane of a send that ends. One that failed leaves the word to its receiver
 * for good (shared_copy.h). */
static inline void shmpi_share_return(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (!r->copy.share || r->receives || r->fault)
        return;
    e->peers[r->peer].shares &= ~(1u << (r->copy.share - 1));
    r->copy.share = 0;
}

/* End a request: nothing of the engine points to it afterwards, but the list of the ended. */
static inline void shmpi_finish(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (r->id)
        shmpi_req_unname(e, r);
    shmpi_share_return(e, r);
    r->done = true;
    e->completions++;
    if (r->sched) {
        shmpi_sched_part_done(e, r);
        return;
    }
    if (r->detached)
        e->active_sends--;
    if (r->holder) {
        r->next = e->ended;
        e->ended = r;
    } else if (r->detached) {
        shmpi_req_free(e, r);
    }
}

/* ---- arenas --------------------------------------------------------------------------------- */

/* Return whether the bytes lie in this rank's arena; then `*at` is their place in it. */
static inline bool shmpi_in_arena(const struct shmpi_engine *e, const char *p, uint64_t n,
                                  uint64_t *at)
{
    *at = (uint64_t)((uintptr_t)p - (uintptr_t)e->arena.base);
    return e->arenas && *at < e->arena_bytes && n <= e->arena_bytes - *at;
}

/* Return the address of `n` bytes at a place in the arena of a rank; NULL if they lie outside. */
static inline char *shmpi_at_arena(const struct shmpi_engine *e, int rank, uint64_t at, uint64_t n)
{
    if (!e->arenas || at >= e->arena_bytes || n > e->arena_bytes - at)
        return NULL;
    return e->arenas + (uint64_t)rank * e->arena_bytes + at;
}

/* ---- what goes to a peer ------------------------------------------------------------------- */

/* Show a record to a peer, and wake it. A peer that has answered since the record before waits for
 * this one; in a stream the work of moving its lines would delay the records behind it. */
static inline void shmpi_show(struct shmpi_peer *p, struct shmpi_record *r, uint32_t kind,
                              uint32_t flags, uint64_t payload)
{
    shmpi_out_show(&p->out, r, kind, flags, payload);
    if (p->answered != p->in.read_pos) {
        p->answered = p->in.read_pos;
        shmpi_out_demote(&p->out, payload);
    }
    shmpi_wake(p->rank);
    shmpi_out_own(&p->out, payload);
}

static inline bool shmpi_write(struct shmpi_peer *p, const struct shmpi_unsent *o)
{
    struct shmpi_record *r = shmpi_out_take(&p->out, o->payload);
    if (!r)
        return false;
    r->tag = o->tag;
    r->context = o->context;
    r->a = o->a;
    r->b = o->b;
    if (o->payload)
        shmnd_copy_bytes(r + 1, o->kind == SHMPI_EAGER ? (const void *)o->req->buffer : o->words,
                         o->payload);
    shmpi_show(p, r, o->kind, o->flags, o->payload);
    return true;
}

/* Write a record now, or keep it until there is room. Return false without memory. */
static inline bool shmpi_send_record(struct shmpi_engine *e, struct shmpi_peer *p,
                                     const struct shmpi_unsent *what, bool *written)
{
    *written = p->dead || (!p->unsent && shmpi_write(p, what));
    if (*written)
        return true;
    struct shmpi_unsent *o = malloc(sizeof *o);
    if (!o)
        return false;
    *o = *what;
    o->next = NULL;
    if (p->unsent)
        p->unsent_last->next = o;
    else {
        p->unsent = o;
        e->unsent_peers++;
    }
    p->unsent_last = o;
    return true;
}

static inline bool shmpi_send_notice(struct shmpi_engine *e, int peer, uint32_t kind, uint64_t a,
                                     uint64_t b)
{
    struct shmpi_unsent o = {.kind = kind, .a = a, .b = b};
    bool written;
    return shmpi_send_record(e, &e->peers[peer], &o, &written);
}

/* Return a borrowed message to its sender, whose send ends. Return false without memory: the sender
 * still waits. */
static inline bool shmpi_return_borrowed(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (!r->borrowed)
        return true;
    r->borrowed = false;
    r->buffer = NULL;
    return shmpi_send_notice(e, r->source, SHMPI_TAKEN, r->copy.theirs, 0);
}

/* End an EAGER send whose record is written, unless it is `sync`: then TAKEN ends it. */
static inline void shmpi_sent(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (!r->sync)
        shmpi_finish(e, r);
}

static inline uint32_t shmpi_send_unsent_to(struct shmpi_engine *e, struct shmpi_peer *p)
{
    uint32_t sent = 0;
    while (p->unsent) {
        struct shmpi_unsent *o = p->unsent;
        if (!shmpi_write(p, o) && !(shmpi_out_want(&p->out, o->payload) && shmpi_write(p, o)))
            break;
        p->unsent = o->next;
        if (!p->unsent)
            e->unsent_peers--;
        if (o->kind == SHMPI_EAGER && o->req)
            shmpi_sent(e, o->req);
        free(o);
        sent++;
    }
    return sent;
}

static inline uint32_t shmpi_send_unsent(struct shmpi_engine *e)
{
    uint32_t sent = 0;
    for (int i = 0; e->unsent_peers && i < e->size; i++)
        if (e->peers[i].unsent)
            sent += shmpi_send_unsent_to(e, &e->peers[i]);
    return sent;
}

#endif
