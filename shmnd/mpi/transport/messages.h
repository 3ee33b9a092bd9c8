/* SPDX-License-Identifier: Apache-2.0
 *
 * The heads of messages, and what records say.
 *
 * A message of at most `eager` bytes travels in its record. A longer one is announced (READY); when
 * it has its receive, both sides move its bytes (shared_copy.h).
 */
#ifndef SHMPI_MESSAGES_H
#define SHMPI_MESSAGES_H

#include "transport/collectives/calls.h"
#include "transport/copying/shared_receive.h"
#include "transport/copying/shared_send.h"

/* Note the head of a message in the receive that gets it. With `mapped` the message lies in its
 * sender's arena; `whole` are the bytes of its collective. */
static inline void shmpi_matched(struct shmpi_req *r, int source, int tag, uint64_t bytes,
                                 uint64_t whole, bool mapped)
{
    r->source = source;
    r->source_tag = tag;
    r->got = bytes;
    r->borrowed = r->borrows && mapped;
    if (r->borrowed)
        return;
    if (r->grows && (r->buffer = malloc(bytes ? bytes : 1))) {
        r->owns_buffer = true;
        r->bytes = bytes;
    } else if (r->grows) {
        r->fault = SHMPI_NO_MEMORY;
        r->got = 0;
    } else if (bytes > r->bytes) {
        r->fault = SHMPI_TRUNCATED;
        r->got = r->bytes;
        r->refused = bytes;
    }
    if (r->sched)
        shmpi_sched_compare(r, bytes, whole);
}

/* Note in its receive the head of a message that its sender could not make. */
static inline void shmpi_matched_spoiled(struct shmpi_req *r, int source, int tag)
{
    r->source = source;
    r->source_tag = tag;
    r->got = 0;
    r->fault = SHMPI_SPOILED;
}

/* ---- heads of messages ---------------------------------------------------------------------- */

/* Deliver a message that waited to its receive, and free it. */
static inline void shmpi_deliver(struct shmpi_engine *e, struct shmpi_message *m,
                                 struct shmpi_req *r)
{
    if (m->spoils)
        shmpi_matched_spoiled(r, m->source, m->tag);
    else
        shmpi_matched(r, m->source, m->tag, m->bytes, m->whole,
                      m->waits && m->share & SHMPI_MAPPED);
    if (m->self) {
        if (r->got)
            shmnd_copy_bytes(r->buffer, m->self->buffer, r->got);
        shmpi_finish(e, m->self);
        shmpi_finish(e, r);
    } else if (m->waits) {
        shmpi_begin_copy(e, r, m->theirs, m->address, m->share);
    } else {
        if (r->got)
            shmnd_copy_bytes(r->buffer, m->data, r->got);
        if (m->sync)
            shmpi_send_notice(e, m->source, SHMPI_TAKEN, m->theirs, 0);
        shmpi_finish(e, r);
    }
    free(m);
}

/* Keep a message that no receive waits for, with `stored` bytes inside it; return NULL without
 * memory. */
static inline struct shmpi_message *shmpi_keep(struct shmpi_engine *e, struct shmpi_context *c,
                                               int source, int tag, uint64_t stored)
{
    struct shmpi_message *m = malloc(sizeof *m + stored);
    if (!m)
        return NULL;
    memset(m, 0, sizeof *m);
    m->source = source;
    m->tag = tag;
    m->context = c->id;
    m->bytes = stored;
    shmpi_add_waiting(&e->matching, c, m);
    return m;
}

/* Refuse a message for a revoked context: its send ends, if it awaits an `answer`. */
static inline bool shmpi_refuse(struct shmpi_engine *e, int source, uint64_t theirs, bool answer)
{
    return !answer || shmpi_send_notice(e, source, SHMPI_TAKEN, theirs, SHMPI_REFUSED);
}

static inline bool shmpi_take_eager(struct shmpi_engine *e, int source, int tag, uint32_t context,
                                    uint32_t flags, uint64_t theirs, uint64_t whole,
                                    const char *data, uint64_t n)
{
    struct shmpi_context *c = shmpi_context(&e->matching, context);
    if (!c)
        return false;
    if (c->revoked)
        return shmpi_refuse(e, source, theirs, flags & SHMPI_SYNC);
    struct shmpi_req *r = shmpi_match_posted(c, source, tag);
    if (r) {
        if (flags & SHMPI_SPOILS)
            shmpi_matched_spoiled(r, source, tag);
        else
            shmpi_matched(r, source, tag, n, whole, false);
        if (r->got)
            shmnd_copy_bytes(r->buffer, data, r->got);
        if (flags & SHMPI_SYNC)
            shmpi_send_notice(e, source, SHMPI_TAKEN, theirs, 0);
        shmpi_finish(e, r);
        return true;
    }
    struct shmpi_message *m = shmpi_keep(e, c, source, tag, n);
    if (!m)
        return false;
    m->whole = whole;
    m->sync = flags & SHMPI_SYNC;
    m->spoils = flags & SHMPI_SPOILS;
    m->theirs = theirs;
    if (n)
        shmnd_copy_bytes(m->data, data, n);
    return true;
}

static inline bool shmpi_take_ready(struct shmpi_engine *e, int source, int tag, uint32_t context,
                                    uint64_t theirs, uint64_t bytes, const uint64_t *words,
                                    uint32_t share)
{
    struct shmpi_context *c = shmpi_context(&e->matching, context);
    if (!c)
        return false;
    if (c->revoked)
        return shmpi_refuse(e, source, theirs, true);
    struct shmpi_req *r = shmpi_match_posted(c, source, tag);
    if (r) {
        shmpi_matched(r, source, tag, bytes, words[1], share & SHMPI_MAPPED);
        shmpi_begin_copy(e, r, theirs, words[0], share);
        return true;
    }
    struct shmpi_message *m = shmpi_keep(e, c, source, tag, 0);
    if (!m)
        return false;
    m->waits = true;
    m->bytes = bytes;
    m->theirs = theirs;
    m->address = words[0];
    m->whole = words[1];
    m->share = share;
    return true;
}

/* ---- records -------------------------------------------------------------------------------- */

static inline bool shmpi_revoke(struct shmpi_engine *e, uint32_t first);

/* Act on a record of a peer. Return false if there is no memory for it now, so that it stays. */
static inline bool shmpi_take_record(struct shmpi_engine *e, int source, uint64_t mark,
                                     struct shmpi_record *record)
{
    uint64_t payload = mark >> 32, words[2] = {0, 0};
    uint32_t flags = (uint32_t)(mark >> 8 & 0xff);
    char *data = (char *)(record + 1);
    struct shmpi_req *r;
    if (payload >= sizeof *words)
        memcpy(words, data, payload < sizeof words ? sizeof *words : sizeof words);
    switch (mark & 0xff) {
    case SHMPI_EAGER:
        return shmpi_take_eager(e, source, record->tag, record->context, flags, record->a,
                                record->b, data, payload);
    case SHMPI_READY:
        return payload < sizeof *words || shmpi_take_ready(e, source, record->tag, record->context,
                                                           record->a, record->b, words, flags);
    case SHMPI_PIECE: shmpi_take_piece(e, source, record->a, record->b, data, payload); return true;
    case SHMPI_CLEAR:
        r = shmpi_req_named(e, record->a, source);
        if (r && !r->receives && payload >= sizeof words)
            shmpi_begin_push(e, r, record->b, words, flags);
        return true;
    case SHMPI_PLACED: shmpi_take_placed(e, source, record->a, record->b); return true;
    case SHMPI_TAKEN:
        r = shmpi_req_named(e, record->a, source);
        if (r && !r->receives) {
            if (r->copy.moving)
                shmpi_list_out(&e->pushing, r);
            shmpi_share_return(e, r); /* its receiver has done with the word */
            if (record->b == SHMPI_REFUSED)
                r->fault = SHMPI_REVOKED;
            shmpi_finish(e, r);
        }
        return true;
    case SHMPI_CALLED: shmpi_take_called(e, source, shmpi_call_of(record)); return true;
    case SHMPI_CALLED_ELSE: e->peers[source].answer = shmpi_call_of(record); return true;
    case SHMPI_DISPUTED:
        e->peers[source].dispute = (struct shmpi_dispute){
            {.context = (uint32_t)record->a, .root = -1, .number = record->b},
            record->tag,
            words[0],
            words[1]};
        e->disputes++;
        return true;
    case SHMPI_REVOKE: return shmpi_revoke(e, (uint32_t)record->a);
    default: return true;
    }
}

enum { SHMPI_RECORDS_AT_ONCE = 64 };

static inline uint32_t shmpi_drain(struct shmpi_engine *e, int source)
{
    struct shmpi_peer *p = &e->peers[source];
    uint32_t n = 0;
    uint64_t mark;
    while (n < SHMPI_RECORDS_AT_ONCE && (mark = shmpi_in_poll(&p->in))) {
        struct shmpi_record *record = shmpi_in_record(&p->in, mark);
        if (!record) {
            p->broken = true;
            break;
        }
        if (!shmpi_take_record(e, source, mark, record))
            break;
        if (shmpi_in_pass(&p->in, mark))
            shmpi_wake(p->rank);
        n++;
    }
    return n;
}

#endif
