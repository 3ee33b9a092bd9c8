/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a message: at once, read from the sender's memory, or in pieces through the lane.
 *
 * A message of at most `eager` bytes travels in its record. A longer one is announced (READY), and
 * its receiver copies it from the sender's memory and says so (TAKEN). Where the kernel does not
 * allow that, the receiver asks for pieces (CLEAR, PIECE). A receive of a message in pieces ends
 * with the last one, its send when the last one is in the lane.
 */
#ifndef SHMPI_TRANSFER_H
#define SHMPI_TRANSFER_H

#include <errno.h>
#include <sys/uio.h>

#include "engine.h"

enum {
    SHMPI_COPY_AT_ONCE = 512 << 10, /* bytes of one receive between two polls */
};

static inline void shmpi_list_out(struct shmpi_req **list, struct shmpi_req *r)
{
    while (*list && *list != r)
        list = &(*list)->next;
    if (*list)
        *list = r->next;
}

/* The head of a message is with its receive. */
static inline void shmpi_meet(struct shmpi_req *r, int source, int tag, uint64_t bytes)
{
    r->source = source;
    r->source_tag = tag;
    r->got = bytes;
    if (r->grows && (r->buffer = malloc(bytes ? bytes : 1))) {
        r->owns_buffer = true;
        r->bytes = bytes;
    } else if (r->grows) {
        r->fault = SHMPI_NO_MEMORY;
        r->got = 0;
    } else if (bytes > r->bytes) {
        r->fault = SHMPI_TRUNCATED;
        r->got = r->bytes;
    }
}

static inline void shmpi_ask_for_pieces(struct shmpi_engine *e, struct shmpi_req *r)
{
    r->moved = 0;
    if (shmpi_req_name(e, r) && shmpi_tell(e, r->source, SHMPI_CLEAR, r->theirs, r->id))
        return;
    r->fault = SHMPI_NO_MEMORY;
    shmpi_finish(e, r);
}

/* A receive of a message in its sender's memory. `number` holds all its bytes. */
static inline void shmpi_begin_copy(struct shmpi_engine *e, struct shmpi_req *r, uint64_t theirs,
                                    uint64_t address, uint64_t bytes)
{
    r->theirs = theirs;
    r->address = address;
    r->number = bytes;
    r->moved = 0;
    if (e->peers[r->source].dead) {
        r->fault = SHMPI_FAILED_PEER;
        shmpi_finish(e, r);
    } else if (!r->got) {
        shmpi_tell(e, r->source, SHMPI_TAKEN, theirs, 0);
        shmpi_finish(e, r);
    } else if (e->peers[r->source].no_reading) {
        shmpi_ask_for_pieces(e, r);
    } else {
        r->next = e->copying;
        e->copying = r;
    }
}

/* Copies a stretch of it. True when it is over with copying. */
static inline bool shmpi_copy_one(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_peer *p = &e->peers[r->source];
    uint64_t n = r->got - r->moved;
    if (n > SHMPI_COPY_AT_ONCE)
        n = SHMPI_COPY_AT_ONCE;
    struct iovec here = {r->buffer + r->moved, n};
    struct iovec there = {(char *)(uintptr_t)r->address + r->moved, n};
    ssize_t got;
    do
        got = process_vm_readv((pid_t)shmnd_relaxed32(&p->rank->pid), &here, 1, &there, 1, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        r->moved += (uint64_t)got;
        if (r->moved < r->got)
            return false;
        shmpi_list_out(&e->copying, r);
        if (!shmpi_tell(e, r->source, SHMPI_TAKEN, r->theirs, 0))
            r->fault = SHMPI_NO_MEMORY;
        shmpi_finish(e, r);
        return true;
    }
    int why = got < 0 ? errno : EFAULT;
    shmpi_list_out(&e->copying, r);
    if (why == EPERM || why == ENOSYS || why == EACCES) {
        p->no_reading = true;
        shmpi_ask_for_pieces(e, r);
        return true;
    }
    r->fault = why == ESRCH ? SHMPI_FAILED_PEER : SHMPI_BROKEN;
    shmpi_tell(e, r->source, SHMPI_TAKEN, r->theirs, 0);
    shmpi_finish(e, r);
    return true;
}

static inline uint32_t shmpi_copy_some(struct shmpi_engine *e)
{
    uint32_t n = 0;
    for (struct shmpi_req *r = e->copying, *next; r; r = next, n++) {
        next = r->next;
        shmpi_copy_one(e, r);
    }
    return n;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Writes pieces while there is room. True when the last one is written. */
static inline bool shmpi_push_one(struct shmpi_engine *e, struct shmpi_req *r, uint32_t *pushed)
{
    struct shmpi_peer *p = &e->peers[r->peer];
    while (r->moved < r->bytes) {
        uint64_t n = r->bytes - r->moved;
        if (n > e->piece)
            n = e->piece;
        struct shmpi_record *record = p->owed ? NULL : shmpi_out_take(&p->out, n);
        if (!record) {
            if (!p->owed && shmpi_out_want(&p->out, n))
                continue;
            return false;
        }
        record->a = r->theirs;
        record->b = r->moved;
        memcpy(record + 1, r->buffer + r->moved, n);
        shmpi_out_show(&p->out, record, SHMPI_PIECE, 0, n);
        shmpi_wake(p->rank);
        r->moved += n;
        ++*pushed;
    }
    return true;
}

static inline uint32_t shmpi_push_some(struct shmpi_engine *e)
{
    uint32_t pushed = 0;
    for (struct shmpi_req *r = e->pushing, *next; r; r = next) {
        next = r->next;
        if (shmpi_push_one(e, r, &pushed)) {
            shmpi_list_out(&e->pushing, r);
            shmpi_finish(e, r);
        }
    }
    return pushed;
}

static inline void shmpi_take_piece(struct shmpi_engine *e, int source, uint64_t id,
                                    uint64_t offset, const char *data, uint64_t n)
{
    struct shmpi_req *r = shmpi_req_named(e, id, source);
    if (!r || !r->receives || offset != r->moved || n > r->number - r->moved)
        return;
    if (offset < r->got)
        memcpy(r->buffer + offset, data, n < r->got - offset ? n : r->got - offset);
    r->moved += n;
    if (r->moved == r->number)
        shmpi_finish(e, r);
}

/* ---- heads of messages ---------------------------------------------------------------------- */

/* Gives a message that waited to its receive, and frees it. */
static inline void shmpi_give(struct shmpi_engine *e, struct shmpi_message *m, struct shmpi_req *r)
{
    shmpi_meet(r, m->source, m->tag, m->bytes);
    if (m->self) {
        if (r->got)
            memmove(r->buffer, m->self->buffer, r->got);
        shmpi_finish(e, m->self);
        shmpi_finish(e, r);
    } else if (m->waits) {
        shmpi_begin_copy(e, r, m->theirs, m->address, m->bytes);
    } else {
        if (r->got)
            memcpy(r->buffer, m->data, r->got);
        if (m->sync)
            shmpi_tell(e, m->source, SHMPI_TAKEN, m->theirs, 0);
        shmpi_finish(e, r);
    }
    free(m);
}

/* Keeps a message that no receive waits for. `stored`: bytes inside it. */
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

/* A message for a context that is revoked: nothing receives it, and its send ends. */
static inline bool shmpi_refuse(struct shmpi_engine *e, int source, uint64_t theirs, bool answer)
{
    return !answer || shmpi_tell(e, source, SHMPI_TAKEN, theirs, SHMPI_REFUSED);
}

static inline bool shmpi_take_eager(struct shmpi_engine *e, int source, int tag, uint32_t context,
                                    uint32_t flags, uint64_t theirs, const char *data, uint64_t n)
{
    struct shmpi_context *c = shmpi_context(&e->matching, context);
    if (!c)
        return false;
    if (c->revoked)
        return shmpi_refuse(e, source, theirs, flags & SHMPI_SYNC);
    struct shmpi_req *r = shmpi_match_posted(c, source, tag);
    if (r) {
        shmpi_meet(r, source, tag, n);
        if (r->got)
            memcpy(r->buffer, data, r->got);
        if (flags & SHMPI_SYNC)
            shmpi_tell(e, source, SHMPI_TAKEN, theirs, 0);
        shmpi_finish(e, r);
        return true;
    }
    struct shmpi_message *m = shmpi_keep(e, c, source, tag, n);
    if (!m)
        return false;
    m->sync = flags & SHMPI_SYNC;
    m->theirs = theirs;
    if (n)
        memcpy(m->data, data, n);
    return true;
}

static inline bool shmpi_take_ready(struct shmpi_engine *e, int source, int tag, uint32_t context,
                                    uint64_t theirs, uint64_t bytes, uint64_t address)
{
    struct shmpi_context *c = shmpi_context(&e->matching, context);
    if (!c)
        return false;
    if (c->revoked)
        return shmpi_refuse(e, source, theirs, true);
    struct shmpi_req *r = shmpi_match_posted(c, source, tag);
    if (r) {
        shmpi_meet(r, source, tag, bytes);
        shmpi_begin_copy(e, r, theirs, address, bytes);
        return true;
    }
    struct shmpi_message *m = shmpi_keep(e, c, source, tag, 0);
    if (!m)
        return false;
    m->waits = true;
    m->bytes = bytes;
    m->theirs = theirs;
    m->address = address;
    return true;
}

/* ---- records -------------------------------------------------------------------------------- */

static inline bool shmpi_revoke(struct shmpi_engine *e, uint32_t first);

/* What a record says to us. False if there is no memory for it now, so that it stays. */
static inline bool shmpi_take_record(struct shmpi_engine *e, int source, uint64_t mark,
                                     struct shmpi_record *record)
{
    uint64_t payload = mark >> 32, address;
    char *data = (char *)(record + 1);
    struct shmpi_req *r;
    switch (mark & 0xff) {
    case SHMPI_EAGER:
        return shmpi_take_eager(e, source, record->tag, record->context,
                                (uint32_t)(mark >> 8 & 0xff), record->a, data, payload);
    case SHMPI_READY:
        memcpy(&address, data, sizeof address);
        return payload < sizeof address || shmpi_take_ready(e, source, record->tag, record->context,
                                                            record->a, record->b, address);
    case SHMPI_PIECE: shmpi_take_piece(e, source, record->a, record->b, data, payload); return true;
    case SHMPI_CLEAR:
        r = shmpi_req_named(e, record->a, source);
        if (r && !r->receives) {
            r->theirs = record->b;
            r->moved = 0;
            shmpi_req_unname(e, r);
            r->next = e->pushing;
            e->pushing = r;
        }
        return true;
    case SHMPI_TAKEN:
        r = shmpi_req_named(e, record->a, source);
        if (r && !r->receives) {
            if (record->b == SHMPI_REFUSED)
                r->fault = SHMPI_REVOKED;
            shmpi_finish(e, r);
        }
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
    while (n < SHMPI_RECORDS_AT_ONCE && (mark = shmpi_in_look(&p->in))) {
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
