/* SPDX-License-Identifier: Apache-2.0
 *
 * Which collectives a rank has begun in a communicator, so that ranks which do not agree hear of
 * it.
 *
 * A collective is known by its number in the communicator and, in the low bits, which call it is.
 * Two ranks with another call under one number disagree, or with another root of one call, which is
 * an error of the program. A rank whose wait for another one lasts sends it what it waits in
 * (SHMPI_CALLED). The other one compares that with the calls that it made last, and answers with
 * its own (SHMPI_CALLED_ELSE) if they disagree: it may have left that call long ago, wait in
 * another one or in none, and send no message. A call that it has not yet made is compared when it
 * makes it.
 */
#ifndef SHMPI_CALLS_H
#define SHMPI_CALLS_H

#include "transport/engine.h"

enum { SHMPI_CALL_BITS = 7, SHMPI_CALLS_KEPT = 64 };

struct shmpi_calls {
    uint64_t begun;   /* collectives */
    uint64_t awaited; /* the last one in which a rank is known to wait that has not begun here */
    uint32_t context;
    struct shmpi_calls *next, **to; /* of the engine's */
    struct shmpi_call kept[SHMPI_CALLS_KEPT];
};

/* Take the calls out of the engine's list, if they are there. */
static inline void shmpi_calls_close(struct shmpi_calls *c)
{
    if (!c->to)
        return;
    *c->to = c->next;
    if (c->next)
        c->next->to = c->to;
    c->to = NULL;
}

static inline void shmpi_calls_open(struct shmpi_engine *e, struct shmpi_calls *c, uint32_t context)
{
    shmpi_calls_close(c);
    *c = (struct shmpi_calls){.context = context, .next = e->calls, .to = &e->calls};
    if (c->next)
        c->next->to = &c->next;
    e->calls = c;
}

static inline bool shmpi_is_other_call(uint64_t mine, uint64_t theirs)
{
    return mine != theirs && mine >> SHMPI_CALL_BITS == theirs >> SHMPI_CALL_BITS;
}

static inline bool shmpi_disagrees(struct shmpi_call mine, struct shmpi_call theirs)
{
    if (mine.context != theirs.context)
        return false;
    if (mine.number == theirs.number)
        return mine.root >= 0 && theirs.root >= 0 && mine.root != theirs.root;
    return shmpi_is_other_call(mine.number, theirs.number);
}

/* ---- records --------------------------------------------------------------------------------- */

static inline void shmpi_send_call_as(struct shmpi_engine *e, int peer, uint32_t kind,
                                      struct shmpi_call call)
{
    uint64_t root = (uint32_t)(call.root + 1);
    shmpi_send_notice(e, peer, kind, root << 32 | call.context, call.number);
    /* without memory: not sent */
}

static inline void shmpi_send_call(struct shmpi_engine *e, int peer, struct shmpi_call mine)
{
    shmpi_send_call_as(e, peer, SHMPI_CALLED, mine);
}

static inline struct shmpi_call shmpi_call_of(const struct shmpi_record *record)
{
    return (struct shmpi_call){
        .context = (uint32_t)record->a, .root = (int)(record->a >> 32) - 1, .number = record->b};
}

static inline void shmpi_answer_call(struct shmpi_engine *e, int peer, struct shmpi_call mine)
{
    if (shmpi_disagrees(mine, e->peers[peer].call))
        shmpi_send_call_as(e, peer, SHMPI_CALLED_ELSE, mine);
}

/* Take a rank's call, which waits for this rank: await its number, or answer one that disagrees. */
static inline void shmpi_take_called(struct shmpi_engine *e, int source, struct shmpi_call theirs)
{
    uint64_t number = theirs.number >> SHMPI_CALL_BITS;
    struct shmpi_calls *c = e->calls;
    e->peers[source].call = theirs;
    while (c && c->context != theirs.context)
        c = c->next;
    if (c && number > c->begun)
        c->awaited = number > c->awaited ? number : c->awaited;
    else if (c) /* one that is not kept any more has another number, and does not disagree */
        shmpi_answer_call(e, source, c->kept[number % SHMPI_CALLS_KEPT]);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Count a collective that begins, and return its call. The root is negative if it has none. */
static inline struct shmpi_call shmpi_calls_begin(struct shmpi_engine *e, struct shmpi_calls *c,
                                                  unsigned int kind, int root)
{
    uint64_t number = ++c->begun;
    struct shmpi_call mine = {.context = c->context,
                              .root = root < 0 ? -1 : root,
                              .number = number << SHMPI_CALL_BITS | kind};
    c->kept[number % SHMPI_CALLS_KEPT] = mine;
    for (int i = 0; number <= c->awaited && i < e->size; i++)
        shmpi_answer_call(e, i, mine);
    return mine;
}

/* Return the collective that began last. */
static inline struct shmpi_call shmpi_calls_last(const struct shmpi_calls *c)
{
    return c->kept[c->begun % SHMPI_CALLS_KEPT];
}

/* Take back the last collective: it was interrupted before another rank could see any of it. */
static inline void shmpi_calls_undo(struct shmpi_calls *c)
{
    c->kept[c->begun-- % SHMPI_CALLS_KEPT] = (struct shmpi_call){0};
}

#endif
