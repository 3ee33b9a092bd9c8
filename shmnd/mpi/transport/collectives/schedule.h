/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules: a collective as rounds of sends, receives, copies and reductions.
 *
 * The steps of a round start together, and the next round begins when all of them have ended. Any
 * progress of the engine runs the schedules that are ready, so that a collective without a waiter
 * moves whenever its ranks call in. A schedule may be run again when it is done.
 */
#ifndef SHMPI_SCHEDULE_H
#define SHMPI_SCHEDULE_H

#include "transport/messages.h"

enum shmpi_step_kind { SHMPI_STEP_SEND, SHMPI_STEP_RECEIVE, SHMPI_STEP_COPY, SHMPI_STEP_REDUCE };

struct shmpi_step {
    uint8_t kind;
    bool ends_round;
    int peer;
    char *from, *to;
    uint64_t n;     /* bytes; REDUCE: items */
    uint64_t items; /* of a RECEIVE that is reduced with the items at `from`; 0: it is not */
    bool own_first; /* they are the left operand */
    bool into_from; /* the result belongs there, and not at `to` */
    bool due;       /* it was received, and is reduced when its round has ended */
};

/* Store left op right in `to`, which is `right`, or with an operation `to_any_place` also `left`,
 * or apart from both. Return 0, or another number if it failed: the caller's side knows why. */
typedef int (*shmpi_reduce)(void *arg, const void *left, const void *right, void *to,
                            uint64_t items);

struct shmpi_block {
    struct shmpi_block *next;
};

/* A message of a rank that is not as long as its receive, or of another number of bytes in all. */
struct shmpi_unequal {
    int peer;
    bool in_all;
    uint64_t came, expected;
};

struct shmpi_sched {
    struct shmpi_sched *next;
    struct shmpi_step *steps;
    uint32_t count, room, at, outstanding;
    uint32_t round; /* its first step */
    uint32_t context;
    int tag;
    bool started, running, queued, done, no_memory;
    bool stopped;  /* by a death, a revocation, or a dispute: no further step is made */
    bool copied;   /* it has read memory of another rank */
    bool pairwise; /* each receive is of one pair alone: a shorter message fits, as in Recv */
    int fault;
    uint64_t whole; /* bytes that all ranks have to name, if its shape depends on them; or 0 */
    struct shmpi_unequal unequal; /* of the last TRUNCATED part */
    shmpi_reduce reduce;
    bool to_any_place; /* its result may lie at either operand, or apart from both */
    void *arg;
    struct shmpi_block *blocks;
};

static inline struct shmpi_sched *shmpi_sched_new(void)
{
    return calloc(1, sizeof(struct shmpi_sched));
}

static inline void shmpi_sched_free(struct shmpi_sched *s)
{
    while (s->blocks) {
        struct shmpi_block *b = s->blocks;
        s->blocks = b->next;
        free(b);
    }
    free(s->steps);
    free(s);
}

/* Allocate memory that lives as long as the schedule; return NULL and note it without memory. */
static inline char *shmpi_sched_block(struct shmpi_sched *s, uint64_t bytes)
{
    struct shmpi_block *b = malloc(64 + bytes);
    if (!b) {
        s->no_memory = true;
        return NULL;
    }
    b->next = s->blocks;
    s->blocks = b;
    return (char *)b + 64;
}

static inline void shmpi_sched_add(struct shmpi_sched *s, uint8_t kind, int peer, const void *from,
                                   void *to, uint64_t n)
{
    if (s->count == s->room) {
        uint32_t room = s->room ? 2 * s->room : 8;
        struct shmpi_step *steps = realloc(s->steps, room * sizeof *steps);
        if (!steps) {
            s->no_memory = true;
            return;
        }
        s->steps = steps;
        s->room = room;
    }
    s->steps[s->count++] = (struct shmpi_step){
        kind, false, peer, (char *)(uintptr_t)from, (char *)to, n, 0, false, false, false};
}

static inline void shmpi_sched_send(struct shmpi_sched *s, int peer, const void *from, uint64_t n)
{
    shmpi_sched_add(s, SHMPI_STEP_SEND, peer, from, NULL, n);
}

static inline void shmpi_sched_receive(struct shmpi_sched *s, int peer, void *to, uint64_t n)
{
    shmpi_sched_add(s, SHMPI_STEP_RECEIVE, peer, NULL, to, n);
}

/* Add a step that receives items and reduces them with own ones, by an operation `to_any_place`.
 * The bytes are received at `to`; the result is there, or with `into_own` in place of the own
 * items. It is there when the round has ended: a rank that reduced earlier could let another one
 * wait for its part of a copy. */
static inline void shmpi_sched_merge(struct shmpi_sched *s, int peer, const void *own, void *to,
                                     uint64_t items, uint64_t bytes, bool own_first, bool into_own)
{
    uint32_t count = s->count;
    shmpi_sched_add(s, SHMPI_STEP_RECEIVE, peer, own, to, bytes);
    if (s->count == count)
        return;
    s->steps[count].items = items;
    s->steps[count].own_first = own_first;
    s->steps[count].into_from = into_own;
}

static inline void shmpi_sched_copy(struct shmpi_sched *s, const void *from, void *to, uint64_t n)
{
    if (n && from != to)
        shmpi_sched_add(s, SHMPI_STEP_COPY, 0, from, to, n);
}

/* Add the reduction `left` op `right`. The result replaces the right operand, or with `into_left`
 * the left one, by an operation `to_any_place`. */
static inline void shmpi_sched_reduce_to(struct shmpi_sched *s, const void *left, void *right,
                                         uint64_t items, bool into_left)
{
    uint32_t count = s->count;
    if (items)
        shmpi_sched_add(s, SHMPI_STEP_REDUCE, 0, left, right, items);
    if (s->count > count)
        s->steps[count].into_from = into_left;
}

static inline void shmpi_sched_reduce(struct shmpi_sched *s, const void *left, void *right,
                                      uint64_t items)
{
    shmpi_sched_reduce_to(s, left, right, items, false);
}

static inline void shmpi_sched_round(struct shmpi_sched *s)
{
    if (s->count)
        s->steps[s->count - 1].ends_round = true;
}

/* ---- running -------------------------------------------------------------------------------- */

static inline bool shmpi_start_send(struct shmpi_engine *e, struct shmpi_req *r);
static inline bool shmpi_start_receive(struct shmpi_engine *e, struct shmpi_req *r);

static inline void shmpi_sched_queue(struct shmpi_engine *e, struct shmpi_sched *s)
{
    if (s->queued)
        return;
    s->queued = true;
    s->next = e->ready;
    e->ready = s;
}

/* Return whether a receive is reduced with own items, and has the bytes of all of them. */
static inline bool shmpi_merges_all(const struct shmpi_req *r)
{
    return r->merges && r->got == r->merges->n;
}

/* Return the bytes of as many whole items as fit into `most`, and of one at least. */
static inline uint64_t shmpi_whole_items(const struct shmpi_req *r, uint64_t most)
{
    uint64_t extent = r->merges->n / r->merges->items;
    return most < extent ? extent : most - most % extent;
}

/* Reduce [at, at + n) of the bytes that a step received: those at `came`. */
static inline void shmpi_merge(struct shmpi_sched *s, const struct shmpi_step *step,
                               const char *came, uint64_t at, uint64_t n)
{
    uint64_t items = n / (step->n / step->items);
    char *own = step->from + at, *to = step->into_from ? own : step->to + at;
    int failed = step->own_first ? s->reduce(s->arg, own, came, to, items)
                                 : s->reduce(s->arg, came, own, to, items);
    if (failed && !s->fault)
        s->fault = SHMPI_CALLBACK;
}

static inline void shmpi_merge_piece(struct shmpi_req *r, const char *came, uint64_t at, uint64_t n)
{
    shmpi_merge(r->sched, r->merges, came, at, n);
}

static inline uint64_t shmpi_sched_whole(const struct shmpi_req *r)
{
    return r->sched ? r->sched->whole : 0;
}

/* Fail a receive whose message has another length than it expects. MPI demands equal lengths of
 * both; where nothing else depends on them, programs name larger buffers. */
static inline void shmpi_sched_compare(struct shmpi_req *r, uint64_t bytes, uint64_t whole)
{
    struct shmpi_sched *s = r->sched;
    bool in_all = whole != s->whole;
    if (!in_all && (s->pairwise ? bytes <= r->bytes : bytes == r->bytes))
        return;
    r->fault = SHMPI_TRUNCATED;
    s->unequal = (struct shmpi_unequal){r->source, in_all, in_all ? whole : bytes,
                                        in_all ? s->whole : r->bytes};
}

/* Note that a send or receive of a schedule has ended; queue the schedule after the last one. */
static inline void shmpi_sched_part_done(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_sched *s = r->sched;
    if (shmpi_merges_all(r))
        r->merges->due = !r->fault && !r->copy.by_pieces;
    if (r->fault && !s->fault)
        s->fault = r->fault;
    if (r->fault == SHMPI_FAILED_PEER || r->fault == SHMPI_REVOKED)
        s->stopped = true;
    s->copied |= r->receives && r->got > e->eager;
    shmpi_req_free(e, r);
    if (!--s->outstanding && !s->running)
        shmpi_sched_queue(e, s);
}

static inline void shmpi_sched_step(struct shmpi_engine *e, struct shmpi_sched *s,
                                    struct shmpi_step *step)
{
    struct shmpi_req *r;
    switch (step->kind) {
    case SHMPI_STEP_COPY: shmnd_copy_bytes(step->to, step->from, step->n); return;
    case SHMPI_STEP_REDUCE:
        if (s->reduce(s->arg, step->from, step->to, step->into_from ? step->from : step->to,
                      step->n) &&
            !s->fault)
            s->fault = SHMPI_CALLBACK;
        return;
    default:
        if (!(r = shmpi_req_new(e))) {
            s->fault = SHMPI_NO_MEMORY;
            return;
        }
        r->sched = s;
        r->peer = step->peer;
        r->context = s->context;
        r->tag = s->tag;
        r->bytes = step->n;
        r->receives = step->kind == SHMPI_STEP_RECEIVE;
        r->buffer = r->receives ? step->to : step->from;
        r->merges = step->items ? step : NULL;
        step->due = false;
        r->spoils = !r->receives && s->fault; /* its bytes may depend on what failed */
        s->outstanding++;
        if (!(r->receives ? shmpi_start_receive(e, r) : shmpi_start_send(e, r))) {
            r->fault = SHMPI_NO_MEMORY;
            shmpi_finish(e, r);
        }
    }
}

/* Reduce the items that the round received, at its end. */
static inline void shmpi_sched_merge_due(struct shmpi_sched *s)
{
    for (uint32_t i = s->round; i < s->at; i++)
        if (s->steps[i].due) {
            s->steps[i].due = false;
            shmpi_merge(s, &s->steps[i], s->steps[i].to, 0, s->steps[i].n);
        }
    s->round = s->at;
}

/* Run as many rounds as possible without waiting. */
static inline void shmpi_sched_advance(struct shmpi_engine *e, struct shmpi_sched *s)
{
    s->running = true;
    while (!s->stopped && !s->outstanding) {
        struct shmpi_step *step;
        shmpi_sched_merge_due(s);
        if (s->at == s->count)
            break;
        do {
            step = &s->steps[s->at++];
            shmpi_sched_step(e, s, step);
        } while (!step->ends_round && s->at < s->count);
    }
    if (s->stopped)
        s->at = s->count;
    s->running = false;
    if (!s->outstanding && s->at == s->count && !s->done) {
        s->done = true;
        e->completions++;
    }
}

static inline void shmpi_sched_start(struct shmpi_engine *e, struct shmpi_sched *s)
{
    s->at = s->round = 0;
    s->done = s->stopped = s->copied = false;
    s->fault = 0;
    s->started = true;
    shmpi_sched_advance(e, s);
}

/* Run every schedule that is ready, and return how many did. A reduction may call back into the
 * interpreter and from there into the engine: the inner call leaves schedules alone. */
static inline uint32_t shmpi_sched_run(struct shmpi_engine *e)
{
    uint32_t n = 0;
    if (e->in_schedules)
        return 0;
    e->in_schedules = true;
    while (e->ready) {
        struct shmpi_sched *s = e->ready;
        e->ready = s->next;
        s->queued = false;
        if (!s->running)
            shmpi_sched_advance(e, s);
        n++;
    }
    e->in_schedules = false;
    return n;
}

#endif
