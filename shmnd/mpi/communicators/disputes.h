/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that do not agree on a collective: on the call, its root, or the number of bytes.
 *
 * What ranks tell of their calls is compared (calls.h), and the messages that wait: their tags have
 * the low 31 bits of the number, which come again after 2^24 collectives.
 *
 * Numbers of bytes are compared where a message is matched (schedule.h). A rank at which a
 * collective fails for such a reason sends its number to all members: some of them may wait for a
 * message that no rank sends, because the shape of a collective depends on its bytes.
 */
#ifndef SHMPI_DISPUTES_H
#define SHMPI_DISPUTES_H

#include "transport/collectives/shapes.h"

enum { SHMPI_CALLS_LOOKED_AT = 64 };

/* Find a rank that made another call in the place of this one, or named another root. Return it,
 * and in `*theirs` its call: one that waits, that answered, or whose message came. Return -1 if
 * none is known, or this call has no number. */
static inline int shmpi_find_other_call(struct shmpi_engine *e, struct shmpi_call mine,
                                        struct shmpi_call *theirs)
{
    uint64_t tag = mine.number & INT32_MAX;
    struct shmpi_context *c = shmpi_context(&e->matching, mine.context);
    for (int i = 0; c && mine.number && i < e->size; i++) {
        const struct shmpi_message *m = c->waiting[i].first;
        *theirs = e->peers[i].call;
        if (shmpi_disagrees(mine, *theirs))
            return i;
        *theirs = e->peers[i].answer;
        if (shmpi_disagrees(mine, *theirs))
            return i;
        *theirs = (struct shmpi_call){.context = mine.context, .root = -1};
        for (int n = 0; m && n < SHMPI_CALLS_LOOKED_AT; m = m->next, n++) {
            theirs->number = (mine.number & ~(uint64_t)INT32_MAX) | (uint64_t)(uint32_t)m->tag;
            if (m->tag >= 0 && shmpi_is_other_call(tag, (uint64_t)m->tag))
                return i;
        }
    }
    return -1;
}

/* ---- collectives that failed ---------------------------------------------------------------- */

static inline void shmpi_send_dispute(struct shmpi_engine *e, int peer,
                                      const struct shmpi_dispute *d)
{
    struct shmpi_unsent o = {.kind = SHMPI_DISPUTED,
                             .tag = d->with,
                             .a = d->call.context,
                             .b = d->call.number,
                             .payload = sizeof o.words,
                             .words = {d->came, d->expected}};
    bool written;
    shmpi_send_record(e, &e->peers[peer], &o, &written); /* without memory: not sent */
}

/* Return a rank at which this collective failed, or -1. Of each rank the last failure alone is
 * known. */
static inline int shmpi_find_dispute(const struct shmpi_engine *e, struct shmpi_call mine,
                                     struct shmpi_dispute *found)
{
    for (int i = 0; e->disputes && mine.number && i < e->size; i++) {
        *found = e->peers[i].dispute;
        if (found->call.context == mine.context &&
            found->call.number >> SHMPI_CALL_BITS == mine.number >> SHMPI_CALL_BITS)
            return i;
    }
    return -1;
}

#endif
