/* SPDX-License-Identifier: Apache-2.0
 *
 * The receiver's half of a long message: it takes pieces, and reads the sender's memory.
 * The argument is in shared_copy.h.
 */
#ifndef SHMPI_SHARED_RECEIVE_H
#define SHMPI_SHARED_RECEIVE_H

#include "transport/copying/shared_copy.h"

/* Ask the sender to move the message; with `reads`, the part that this side does not read itself.
 * Return false without memory. */
static inline bool shmpi_ask(struct shmpi_engine *e, struct shmpi_req *r, bool reads)
{
    struct shmpi_copy *c = &r->copy;
    struct shmpi_unsent o = {.kind = SHMPI_CLEAR, .payload = sizeof o.words};
    bool written;
    uint64_t at;
    if (!shmpi_req_name(e, r))
        return false;
    o.a = c->theirs;
    o.b = r->id;
    o.words[0] = c->low;
    if (reads) {
        o.flags = SHMPI_READS;
        c->placing = c->by_kernel || (c->mapped && shmpi_in_arena(e, r->buffer, c->low, &at));
        if (c->by_kernel) {
            o.flags |= SHMPI_ADDRESSED;
            o.words[1] = (uint64_t)(uintptr_t)r->buffer;
        } else if (c->placing) {
            o.words[1] = 1 + at;
        }
    }
    return shmpi_send_record(e, &e->peers[r->source], &o, &written);
}

/* Return whether both sides copy a message that begins now by the kernel; time it in a trial. */
static inline bool shmpi_choose_kernel(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_way *way = shmpi_way_of(&e->peers[r->source].ways, r->got);
    bool timed, by_kernel;
    if (!way)
        return true;
    by_kernel = shmpi_way_next(way, !e->copying, &timed);
    if (timed) {
        e->timed = r;
        e->timed_ns = shmpi_clock_ns();
    }
    return by_kernel;
}

static inline void shmpi_end_copy(struct shmpi_engine *e, struct shmpi_req *r, int fault,
                                  bool answer)
{
    struct shmpi_copy *c = &r->copy;
    if (c->moving)
        shmpi_list_out(&e->copying, r);
    if (e->timed == r && !fault)
        shmpi_way_took(shmpi_way_of(&e->peers[r->source].ways, r->got), c->by_kernel,
                       shmpi_clock_ns() - e->timed_ns);
    e->timed = NULL;
    r->fault = fault ? fault : r->fault;
    if (answer && !shmpi_send_notice(e, r->source, SHMPI_TAKEN, c->theirs, 0))
        r->fault = SHMPI_NO_MEMORY;
    shmpi_finish(e, r);
}

/* Return whether the kernel lets this rank read a peer's memory. The first byte is read to find
 * out: units that were taken are not given back. */
static inline bool shmpi_may_read(struct shmpi_engine *e, int source, uint64_t address)
{
    struct shmpi_peer *p = &e->peers[source];
    char byte;
    if (p->tried)
        return !p->no_reading;
    p->tried = true;
    int why = shmpi_copy_by_kernel(e, source, &byte, address, 1, false);
    p->no_reading = why == EPERM || why == ENOSYS || why == EACCES;
    return !p->no_reading;
}

/* Ask the sender to move [0, low) too, or all of it where this side cannot read. */
static inline void shmpi_begin_sharing(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_copy *c = &r->copy;
    struct shmpi_lane *lane = e->peers[r->source].in.lane;
    if (c->share) { /* before CLEAR, whose mark shows it. SYNC share: the receiver begins */
        shmnd_put64(&lane->shares[c->share - 1], shmpi_share_word(0, shmpi_share_units(e, c->low)));
        shmnd_put64(&lane->placed[c->share - 1], 0);
    }
    if (!shmpi_ask(e, r, c->share != 0))
        shmpi_end_copy(e, r, SHMPI_NO_MEMORY, false);
    SHMND_KILL_POINT("asked");
}

/* Take the buffer back from a sender that writes into it. Return true if there was one and it
 * lives. */
static inline bool shmpi_stop_placing(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_copy *c = &r->copy;
    struct shmpi_peer *p = &e->peers[r->source];
    if (!c->placing)
        return false;
    c->placing = false;
    shmnd_word64 *share = &p->in.lane->shares[c->share - 1];
    shmnd_word64 *placed = &p->in.lane->placed[c->share - 1];
    uint64_t seen = shmnd_relaxed64(share);
    while (!shmnd_swap64(share, &seen, shmpi_share_word((uint32_t)seen, 0))) {
    } /* SYNC placed: the receiver closes */
    while (shmnd_acquire64(placed) < (uint32_t)seen && !shmnd_relaxed32(&p->rank->dead))
        sched_yield(); /* SYNC placed: acquire */
    return !p->dead;
}

/* Begin to receive a message in its sender's memory: `share` as in the flags of READY. */
static inline void shmpi_begin_copy(struct shmpi_engine *e, struct shmpi_req *r, uint64_t theirs,
                                    uint64_t address, uint32_t share)
{
    struct shmpi_copy *c = &r->copy;
    struct shmpi_peer *p = &e->peers[r->source];
    e->timed = NULL; /* it is not alone any more */
    c->theirs = theirs;
    c->address = address;
    c->moved = 0;
    c->low = r->got;
    c->share = 0;
    c->patience = e->crowded ? 0 : SHMPI_PATIENCE;
    if (p->dead || !r->got) {
        r->borrowed = false;
        shmpi_end_copy(e, r, p->dead ? SHMPI_FAILED_PEER : SHMPI_OK, !p->dead);
        return;
    }
    bool mapped = share & SHMPI_MAPPED;
    share &= ~(uint32_t)SHMPI_MAPPED;
    c->mapped = mapped ? shmpi_at_arena(e, r->source, address, r->got) : NULL;
    c->placing = false;
    if (mapped && !c->mapped) {
        r->borrowed = false;
        shmpi_end_copy(e, r, SHMPI_BROKEN, true);
        return;
    }
    if (r->borrowed) {
        r->buffer = c->mapped;
        shmpi_finish(e, r);
        return;
    }
    bool reads = mapped || shmpi_may_read(e, r->source, address);
    c->by_pieces = mapped && shmpi_merges_all(r);
    bool alone = mapped && (e->crowded || r->got <= SHMPI_COPY_ALONE || c->by_pieces);
    c->share = reads && !alone && share <= SHMPI_SHARES ? share : 0;
    c->by_kernel = c->share && !mapped && shmpi_choose_kernel(e, r);
    if (c->by_kernel && p->shares)
        c->share = 0; /* messages in both directions: each side reads its own, with fewer calls */
    c->patience = mapped || c->by_kernel ? 0 : c->patience;
    if (reads)
        shmpi_list_in(&e->copying, r);
    if (c->share || !reads)
        shmpi_begin_sharing(e, r);
}

/* Take a stretch from the back for this side. Return its bytes; 0 where the sender has the rest. */
static inline uint64_t shmpi_read_next(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_copy *c = &r->copy;
    uint64_t n;
    if (!c->share) {
        n = c->by_pieces ? shmpi_whole_items(r, SHMPI_COPY_AT_ONCE) : SHMPI_COPY_AT_ONCE;
        n = c->low < n ? c->low : n;
        c->low -= n;
        return n;
    }
    shmnd_word64 *share = &e->peers[r->source].in.lane->shares[c->share - 1];
    uint64_t seen = shmnd_relaxed64(share), back = shmpi_share_units(e, c->low), next;
    do {
        uint64_t front = (uint32_t)seen;
        if (seen >> 32 != back || front >= back)
            return 0;
        next = back - shmpi_stretch(e, back - front, shmpi_share_units(e, r->got));
    } while (!shmnd_swap64(share, &seen, shmpi_share_word((uint32_t)seen, next)));
    /* SYNC share: receiver */
    n = c->low - next * e->unit;
    c->low = next * e->unit;
    return n;
}

/* Read [low, low + n) of the message, or reduce it. Return 0, or an errno value. */
static inline int shmpi_read(struct shmpi_engine *e, struct shmpi_req *r, uint64_t n)
{
    struct shmpi_copy *c = &r->copy;
    if (!c->mapped)
        return shmpi_copy_by_kernel(e, r->source, r->buffer + c->low, c->address + c->low, n,
                                    false);
    if (c->by_pieces)
        shmpi_merge_piece(r, c->mapped + c->low, c->low, n);
    else
        shmnd_copy_bytes(r->buffer + c->low, c->mapped + c->low, n);
    return 0;
}

static inline bool shmpi_is_whole(const struct shmpi_req *r)
{
    return r->copy.moved >= r->copy.low;
}

/* Read a stretch of the message. Return its bytes, or 0 where the sender has the rest. */
static inline uint64_t shmpi_copy_one(struct shmpi_engine *e, struct shmpi_req *r)
{
    uint64_t n = shmpi_read_next(e, r);
    if (!n) {
        shmpi_list_out(&e->copying, r);
        return 0;
    }
    SHMND_KILL_POINT("stretch-taken");
    int why = shmpi_read(e, r, n);
    SHMND_KILL_POINT("stretch-read");
    if (why)
        shmpi_end_copy(e, r, why == ESRCH ? SHMPI_FAILED_PEER : SHMPI_BROKEN, true);
    else if (shmpi_is_whole(r))
        shmpi_end_copy(e, r, SHMPI_OK, true);
    return n;
}

/* Read messages of which no pieces come, the oldest first, and return how many. While pieces come
 * from anywhere, those go before, for a while. */
static inline uint32_t shmpi_copy_some(struct shmpi_engine *e)
{
    uint32_t moved = 0;
    uint64_t bytes = 0;
    if (e->came && e->passed_over++ < SHMPI_PIECES_FIRST) {
        e->came = false;
        return 0;
    }
    e->came = false;
    e->passed_over = 0;
    for (struct shmpi_req *r = e->copying, *next; r && bytes < SHMPI_COPY_AT_ONCE; r = next) {
        next = r->next;
        if (r->copy.share && r->copy.patience) {
            r->copy.patience--;
            continue;
        }
        bytes += shmpi_copy_one(e, r);
        moved++;
    }
    return moved;
}

/* Take the notice that the sender has written `n` bytes, its last ones, into the buffer. */
static inline void shmpi_take_placed(struct shmpi_engine *e, int source, uint64_t id, uint64_t n)
{
    struct shmpi_req *r = shmpi_req_named(e, id, source);
    if (!r || !r->receives || !r->copy.placing || r->copy.moved || n > r->got)
        return;
    r->copy.moved = n;
    if (shmpi_is_whole(r))
        shmpi_end_copy(e, r, SHMPI_OK, r->copy.low < r->got);
}

static inline void shmpi_take_piece(struct shmpi_engine *e, int source, uint64_t id,
                                    uint64_t offset, const char *data, uint64_t n)
{
    struct shmpi_req *r = shmpi_req_named(e, id, source);
    if (!r || !r->receives || offset != r->copy.moved || r->copy.moved > r->copy.low ||
        n > r->copy.low - r->copy.moved)
        return;
    shmnd_copy_bytes(r->buffer + offset, data, n);
    r->copy.moved += n;
    e->came = true;
    if (shmpi_is_whole(r))
        shmpi_end_copy(e, r, SHMPI_OK, r->copy.low < r->got);
}

#endif
