/* SPDX-License-Identifier: Apache-2.0
 *
 * A receive that takes its message straight from the lane: no request, no queue.
 *
 * It may where the next record of the sender is a short message for it, and no earlier message of
 * the sender and no earlier receive waits in the context: then matching has nothing to decide.
 * Any other record of the sender, and all work but the records of other ranks, is for
 * shmpi_start_receive() and shmpi_progress().
 */
#ifndef SHMPI_RECEIVE_NOW_H
#define SHMPI_RECEIVE_NOW_H

#include "transport/messages.h"

/* Before it takes a request: a message that comes later gains nothing without one. */
enum { SHMPI_NOW_POLLS = 100 };

/* The message that was received. */
struct shmpi_came {
    int tag;
    uint64_t bytes;
};

/* Return whether the next short message of the context from `source` belongs to a receive that
 * begins now, if the tags agree. */
static inline bool shmpi_is_next(const struct shmpi_engine *e, const struct shmpi_context *c,
                                 int source)
{
    const struct shmpi_peer *p = &e->peers[source];
    return !c->waiting[source].first && !c->posted[source].first && !c->any.first && !c->revoked &&
           !p->dead && !p->broken;
}

/* Return whether there is work that only shmpi_progress() does, or the caller before it. */
static inline bool shmpi_has_work(const struct shmpi_engine *e)
{
    return e->unsent_peers || e->copying || e->pushing || e->ready || e->ended ||
           shmnd_relaxed32(&e->job->failures) != e->failures;
}

static inline void shmpi_drain_others(struct shmpi_engine *e, int source)
{
    for (int i = 0; i < e->size; i++)
        if (i != e->rank && i != source)
            shmpi_drain(e, i);
}

/* Return the mark of the next record of `source`, after some polls; 0 if none came, or it is not
 * for a receive without a request. Each turn first takes the records of other ranks. */
static inline uint64_t shmpi_await_record(struct shmpi_engine *e, const struct shmpi_context *c,
                                          int source)
{
    uint32_t polls = e->crowded ? 0 : SHMPI_NOW_POLLS;
    for (;;) {
        shmpi_drain_others(e, source);
        if (shmpi_has_work(e) || !shmpi_is_next(e, c, source))
            return 0;
        uint64_t mark = shmpi_in_poll(&e->peers[source].in);
        if (mark || !polls--)
            return mark;
        shmnd_pause();
    }
}

/* Receive a short message at once, without a request. Return false if nothing was taken: a receive
 * needs a request then. */
static inline bool shmpi_receive_now(struct shmpi_engine *e, int source, uint32_t context, int tag,
                                     char *buffer, uint64_t bytes, struct shmpi_came *came)
{
    if (source < 0 || source == e->rank)
        return false;
    struct shmpi_context *c = shmpi_context(&e->matching, context);
    if (!c)
        return false;
    struct shmpi_in *in = &e->peers[source].in;
    uint64_t mark = shmpi_await_record(e, c, source), payload = mark >> 32;
    if ((uint32_t)mark != SHMPI_EAGER || payload > bytes) /* with a flag, it is for others too */
        return false;
    const struct shmpi_record *record = shmpi_in_record(in, mark);
    if (!record || record->context != context)
        return false;
    came->tag = record->tag;
    came->bytes = payload;
    if (!shmpi_tags_agree(tag, came->tag))
        return false;
    if (payload)
        shmnd_copy_bytes(buffer, record + 1, payload);
    if (shmpi_in_pass(in, mark))
        shmpi_wake(e->peers[source].rank);
    return true;
}

#endif
