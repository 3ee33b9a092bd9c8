/* SPDX-License-Identifier: Apache-2.0
 *
 * The sender's half of a long message: pieces into the lane, or stretches into the receiver's
 * buffer. The argument is in shared_copy.h.
 */
#ifndef SHMPI_SHARED_SEND_H
#define SHMPI_SHARED_SEND_H

#include "transport/copying/shared_copy.h"

/* Take a word of the lane for a send before its READY, if one is free. */
static inline void shmpi_share_take(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_peer *p = &e->peers[r->peer];
    uint32_t unused = ~p->shares & ((1u << SHMPI_SHARES) - 1);
    if (!unused || shmpi_share_units(e, r->bytes) > UINT32_MAX)
        return;
    r->copy.share = (uint32_t)__builtin_ctz(unused) + 1;
    p->shares |= 1u << (r->copy.share - 1);
}

static inline shmnd_word64 *shmpi_placed_word(const struct shmpi_engine *e,
                                              const struct shmpi_req *r)
{
    return &e->peers[r->peer].out.lane->placed[r->copy.share - 1];
}

/* Begin to move the words[0] bytes of a send that its receiver wants; with READS it takes some of
 * them itself, and then words[1] may name the place of its buffer. */
static inline void shmpi_begin_push(struct shmpi_engine *e, struct shmpi_req *r, uint64_t theirs,
                                    const uint64_t *words, uint32_t flags)
{
    struct shmpi_copy *c = &r->copy;
    uint64_t wanted = words[0], own;
    bool reads = flags & SHMPI_READS;
    if (c->moving || wanted > r->bytes || (reads && !c->share))
        return; /* no rank of ours asks so */
    c->mapped = NULL;
    c->by_kernel = reads && flags & SHMPI_ADDRESSED && !e->peers[r->peer].no_writing;
    if (c->by_kernel)
        c->address = words[1];
    else if (reads && flags & SHMPI_ADDRESSED)
        shmnd_release64(shmpi_placed_word(e, r), SHMPI_PLACES_NO_MORE); /* SYNC placed: never */
    else if (reads && words[1] && shmpi_in_arena(e, r->buffer, r->bytes, &own))
        c->mapped = shmpi_at_arena(e, r->peer, words[1] - 1, wanted);
    c->theirs = theirs;
    c->moved = 0;
    c->taken = 0;
    c->low = wanted;
    c->divided = reads;
    shmpi_list_in(&e->pushing, r);
    SHMND_KILL_POINT("cleared");
}

/* Take the next unit, or the next stretch of those that the kernel copies. Return false if there is
 * none, and in `*all` whether this side has taken all. */
static inline bool shmpi_push_next(struct shmpi_engine *e, struct shmpi_req *r, bool *all)
{
    struct shmpi_copy *c = &r->copy;
    *all = true;
    if (c->moved == c->low)
        return false;
    if (c->moved < c->taken)
        return true; /* taken for the kernel, which did not copy it */
    if (!c->divided) {
        c->taken = c->low;
        return true;
    }
    shmnd_word64 *share = &e->peers[r->peer].out.lane->shares[c->share - 1];
    uint64_t front = c->moved / e->unit, seen = shmnd_relaxed64(share), back, next;
    do {
        back = seen >> 32;
        if ((uint32_t)seen != front || back <= front) {
            *all = back >= shmpi_share_units(e, c->low);
            return false;
        }
        uint64_t whole = shmpi_share_units(e, c->low);
        next = front + (c->by_kernel ? shmpi_stretch(e, back - front, whole) : 1);
    } while (!shmnd_swap64(share, &seen, shmpi_share_word(next, back))); /* SYNC share: sender */
    c->taken = next * e->unit < c->low ? next * e->unit : c->low;
    return true;
}

/* Write pieces while there is room. Return true when this side has written its last one. */
static inline bool shmpi_push_one(struct shmpi_engine *e, struct shmpi_req *r, uint32_t *pushed,
                                  bool *all)
{
    struct shmpi_copy *c = &r->copy;
    struct shmpi_peer *p = &e->peers[r->peer];
    uint64_t most = c->divided ? e->unit : e->piece;
    for (;;) {
        uint64_t n = c->low - c->moved < most ? c->low - c->moved : most;
        struct shmpi_record *record = p->unsent ? NULL : shmpi_out_take(&p->out, n);
        if (!record) {
            if (!p->unsent && shmpi_out_want(&p->out, n))
                continue;
            return false;
        }
        if (!shmpi_push_next(e, r, all))
            return true;
        SHMND_KILL_POINT("unit-taken");
        record->a = c->theirs;
        record->b = c->moved;
        shmnd_copy_bytes(record + 1, r->buffer + c->moved, n);
        shmpi_out_show(&p->out, record, SHMPI_PIECE, 0, n);
        SHMND_KILL_POINT("piece-shown");
        shmpi_wake(p->rank);
        c->moved += n;
        ++*pushed;
    }
}

static inline void shmpi_send_placed(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (!shmpi_send_notice(e, r->peer, SHMPI_PLACED, r->copy.theirs, r->copy.moved))
        r->fault = SHMPI_NO_MEMORY;
}

/* Write the taken bytes into the receiver's buffer. Return false if the kernel does not permit it:
 * then they go by the lane, as do all that follow. */
static inline bool shmpi_place(struct shmpi_engine *e, struct shmpi_req *r, uint64_t n)
{
    struct shmpi_copy *c = &r->copy;
    struct shmpi_peer *p = &e->peers[r->peer];
    if (c->mapped) {
        shmnd_copy_bytes(c->mapped + c->moved, r->buffer + c->moved, n);
        return true;
    }
    int why =
        shmpi_copy_by_kernel(e, r->peer, r->buffer + c->moved, c->address + c->moved, n, true);
    if (!why)
        return true;
    p->no_writing = why == EPERM || why == ENOSYS || why == EACCES;
    c->by_kernel = false;
    shmpi_send_placed(e, r); /* before the pieces, which begin there */
    shmnd_release64(shmpi_placed_word(e, r), SHMPI_PLACES_NO_MORE); /* SYNC placed: never again */
    return false;
}

/* Write units into the receiver's buffer. Return true when this side has written its last one. */
static inline bool shmpi_place_one(struct shmpi_engine *e, struct shmpi_req *r, uint32_t *pushed,
                                   bool *all)
{
    struct shmpi_copy *c = &r->copy;
    for (uint64_t copied = 0, n; copied < SHMPI_COPY_AT_ONCE; copied += n, ++*pushed) {
        if (!shmpi_push_next(e, r, all)) {
            shmpi_send_placed(e, r);
            return true;
        }
        SHMND_KILL_POINT("unit-taken");
        n = c->taken - c->moved;
        if (!shmpi_place(e, r, n))
            return false;
        c->moved += n;
        /* SYNC placed: release, pairs with acquire in shmpi_stop_placing() */
        shmnd_release64(shmpi_placed_word(e, r), shmpi_share_units(e, c->moved));
        SHMND_KILL_POINT("unit-placed");
    }
    return false;
}

static inline uint32_t shmpi_push_some(struct shmpi_engine *e)
{
    uint32_t pushed = 0;
    for (struct shmpi_req *r = e->pushing, *next; r; r = next) {
        bool all = false;
        next = r->next;
        bool places = r->copy.mapped || r->copy.by_kernel;
        if (!(places ? shmpi_place_one : shmpi_push_one)(e, r, &pushed, &all))
            continue;
        shmpi_list_out(&e->pushing, r);
        if (all)
            shmpi_finish(e, r); /* else TAKEN ends it */
    }
    return pushed;
}

#endif
