/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a long message, which both of its ranks move at the same time.
 *
 * The sender puts pieces into the lane, from the front; the receiver takes them out, and whenever
 * there is none it reads a stretch of the sender's memory by process_vm_readv, from the back. The
 * message is complete where they meet. So both cores copy, pieces stay in the caches, and a message
 * whose sender computes is moved by its receiver alone.
 *
 * SYNC share: one word of the lane divides the message, in units: the low half counts those that the sender
 * has taken, the high half is the first that the receiver has. The receiver writes it whole, before
 * CLEAR; from then on both change it by compare-and-swap alone, the sender the low half and the
 * receiver the high one, and take only units between. So no unit is taken by both. The two meet
 * once; after that neither changes the word. If the receiver took nothing, the sender's last swap
 * makes sure that it never will, and the send ends there: its memory is not read again. If it took
 * something, the send ends by TAKEN, which follows the receiver's last read.
 * The bytes themselves are ordered by the lane (SYNC shown) and by the kernel.
 *
 * A word is in use from READY to the end of its send. One whose send was given up by an error is not
 * used again, because its receiver may still hold it. What the peer wrote there is checked against
 * our own half, so that a wrong word ends the message and touches no other memory.
 *
 * A death at any instruction: of the sender, a read by the kernel fails or pieces end, and the
 * death ends the receive; of the receiver, the death ends the send.
 *
 * From 2 MiB on a message may lie in huge pages, which the kernel copies as fast as this process could
 * take pieces out of the lane. So the receiver reads the first stretch before it asks for pieces, and
 * where that was fast it reads all.
 *
 * Where the kernel does not let us read, the sender sends all in pieces. Where all words of a lane
 * are in use, the receiver reads all.
 */
#ifndef SHMPI_SHARE_H
#define SHMPI_SHARE_H

#include <errno.h>
#include <sys/uio.h>

#include "transport/engine.h"
#include "transport/wait_notes.h"
#include "wire/kill_point.h"

enum {
    SHMPI_COPY_AT_ONCE = 512 << 10, /* bytes that are read between two polls */
    SHMPI_UNIT_MOST = 32 << 10,
    SHMPI_PIECES_FIRST = 16, /* polls that took pieces and read nothing */
    SHMPI_PATIENCE = 400,    /* polls for a first piece before the receiver reads */
    SHMPI_STRETCH_LEAST = 64 << 10,
    SHMPI_STRETCH_MOST = 256 << 10,
    SHMPI_TRIED_FIRST = 2 << 20, /* bytes of a message whose first stretch is timed */
    SHMPI_FAST_READ = 20,        /* bytes in a nanosecond */
};

static inline uint64_t shmpi_share_word(uint64_t front, uint64_t back)
{
    return front | back << 32;
}

static inline uint64_t shmpi_share_units(const struct shmpi_engine *e, uint64_t bytes)
{
    return (bytes + e->unit - 1) / e->unit;
}

static inline void shmpi_list_out(struct shmpi_req **list, struct shmpi_req *r)
{
    r->moving = false;
    while (*list && *list != r)
        list = &(*list)->next;
    if (*list)
        *list = r->next;
}

static inline void shmpi_list_in(struct shmpi_req **list, struct shmpi_req *r)
{
    while (*list)
        list = &(*list)->next;
    *list = r;
    r->next = NULL;
    r->moving = true;
}

/* ---- the sender ----------------------------------------------------------------------------- */

/* A word of the lane for a send, before its READY. */
static inline void shmpi_share_take(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_peer *p = &e->peers[r->peer];
    uint32_t unused = ~p->shares & ((1u << SHMPI_SHARES) - 1);
    if (!unused || shmpi_share_units(e, r->bytes) > UINT32_MAX)
        return;
    r->share = (uint32_t)__builtin_ctz(unused) + 1;
    p->shares |= 1u << (r->share - 1);
}

/* The receiver wants `wanted` bytes of this send; with `reads` it takes some of them itself. */
static inline void shmpi_begin_push(struct shmpi_engine *e, struct shmpi_req *r, uint64_t theirs,
                                    uint64_t wanted, bool reads)
{
    if (r->moving || wanted > r->bytes || (reads && !r->share))
        return; /* no rank of ours asks so */
    r->theirs = theirs;
    r->moved = 0;
    r->low = wanted;
    r->divided = reads;
    shmpi_list_in(&e->pushing, r);
    SHMND_KILL_POINT("cleared");
}

/* Takes the next unit. False: there is none, and `*all` says whether this side has taken all. */
static inline bool shmpi_push_next(struct shmpi_engine *e, struct shmpi_req *r, bool *all)
{
    *all = true;
    if (r->moved == r->low)
        return false;
    if (!r->divided)
        return true;
    shmnd_word64 *share = &e->peers[r->peer].out.lane->shares[r->share - 1];
    uint64_t front = r->moved / e->unit, seen = shmnd_relaxed64(share), back;
    do {
        back = seen >> 32;
        if ((uint32_t)seen != front || back <= front) {
            *all = back >= shmpi_share_units(e, r->low);
            return false;
        }
    } while (
        !shmnd_swap64(share, &seen, shmpi_share_word(front + 1, back))); /* SYNC share: sender */
    return true;
}

/* Writes pieces while there is room. True when the last one is written. */
static inline bool shmpi_push_one(struct shmpi_engine *e, struct shmpi_req *r, uint32_t *pushed,
                                  bool *all)
{
    struct shmpi_peer *p = &e->peers[r->peer];
    uint64_t most = r->divided ? e->unit : e->piece;
    for (;;) {
        uint64_t n = r->low - r->moved < most ? r->low - r->moved : most;
        struct shmpi_record *record = p->owed ? NULL : shmpi_out_take(&p->out, n);
        if (!record) {
            if (!p->owed && shmpi_out_want(&p->out, n))
                continue;
            return false;
        }
        if (!shmpi_push_next(e, r, all))
            return true;
        SHMND_KILL_POINT("unit-taken");
        record->a = r->theirs;
        record->b = r->moved;
        memcpy(record + 1, r->buffer + r->moved, n);
        shmpi_out_show(&p->out, record, SHMPI_PIECE, 0, n);
        SHMND_KILL_POINT("piece-shown");
        shmpi_wake(p->rank);
        r->moved += n;
        ++*pushed;
    }
}

static inline uint32_t shmpi_push_some(struct shmpi_engine *e)
{
    uint32_t pushed = 0;
    for (struct shmpi_req *r = e->pushing, *next; r; r = next) {
        bool all = false;
        next = r->next;
        if (!shmpi_push_one(e, r, &pushed, &all))
            continue;
        shmpi_list_out(&e->pushing, r);
        if (all)
            shmpi_finish(e, r); /* else TAKEN ends it */
    }
    return pushed;
}

/* ---- the receiver --------------------------------------------------------------------------- */

/* Asks for pieces; with `reads`, of what this side does not read itself. */
static inline bool shmpi_ask_for_pieces(struct shmpi_engine *e, struct shmpi_req *r, bool reads)
{
    struct shmpi_owed o = {.kind = SHMPI_CLEAR, .flags = reads, .payload = sizeof o.word};
    bool written;
    if (!shmpi_req_name(e, r))
        return false;
    o.a = r->theirs;
    o.b = r->id;
    o.word = r->low;
    return shmpi_owe(e, &e->peers[r->source], &o, &written);
}

static inline void shmpi_end_copy(struct shmpi_engine *e, struct shmpi_req *r, int fault, bool tell)
{
    if (r->moving)
        shmpi_list_out(&e->copying, r);
    r->fault = fault ? fault : r->fault;
    if (tell && !shmpi_tell(e, r->source, SHMPI_TAKEN, r->theirs, 0))
        r->fault = SHMPI_NO_MEMORY;
    shmpi_finish(e, r);
}

/* Does the kernel let us read? Found out by the first byte: units that were taken are not given
 * back. */
static inline bool shmpi_may_read(struct shmpi_peer *p, uint64_t address)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(char *)(uintptr_t)address, 1};
    if (p->tried)
        return !p->no_reading;
    p->tried = true;
    if (process_vm_readv((pid_t)shmnd_relaxed32(&p->rank->pid), &here, 1, &there, 1, 0) < 0)
        p->no_reading = errno == EPERM || errno == ENOSYS || errno == EACCES;
    return !p->no_reading;
}

/* The sender is to move [0, low) too, or all of it where this side cannot read. */
static inline void shmpi_begin_pieces(struct shmpi_engine *e, struct shmpi_req *r)
{
    struct shmpi_peer *p = &e->peers[r->source];
    if (r->share) /* before CLEAR, whose mark shows it. SYNC share: the receiver begins */
        shmnd_put64(&p->in.lane->shares[r->share - 1],
                    shmpi_share_word(0, shmpi_share_units(e, r->low)));
    if (!shmpi_ask_for_pieces(e, r, r->share != 0))
        shmpi_end_copy(e, r, SHMPI_NO_MEMORY, false);
    SHMND_KILL_POINT("asked");
}

/* A receive of a message in its sender's memory. */
static inline void shmpi_begin_copy(struct shmpi_engine *e, struct shmpi_req *r, uint64_t theirs,
                                    uint64_t address, uint32_t share)
{
    struct shmpi_peer *p = &e->peers[r->source];
    r->theirs = theirs;
    r->address = address;
    r->moved = 0;
    r->low = r->got;
    r->share = 0;
    r->patience = e->crowded ? 0 : SHMPI_PATIENCE;
    if (p->dead || !r->got) {
        shmpi_end_copy(e, r, p->dead ? SHMPI_FAILED_PEER : SHMPI_OK, !p->dead);
        return;
    }
    bool reads = shmpi_may_read(p, address);
    r->share = reads && share <= SHMPI_SHARES ? share : 0;
    r->tries = r->share && r->got >= SHMPI_TRIED_FIRST;
    if (reads)
        shmpi_list_in(&e->copying, r);
    if (!r->tries && (r->share || !reads))
        shmpi_begin_pieces(e, r);
}

/* Takes a stretch from the back for this side, and returns its bytes: 0: the sender has the rest. */
static inline uint64_t shmpi_read_next(struct shmpi_engine *e, struct shmpi_req *r)
{
    uint64_t most = SHMPI_COPY_AT_ONCE, n;
    if (!r->share) {
        n = r->low < most ? r->low : most;
        r->low -= n;
        return n;
    }
    shmnd_word64 *share = &e->peers[r->source].in.lane->shares[r->share - 1];
    uint64_t seen = shmnd_relaxed64(share), back = shmpi_share_units(e, r->low), next;
    do {
        uint64_t front = (uint32_t)seen;
        if (seen >> 32 != back || front >= back)
            return 0;
        most = (back - front) * e->unit / 4;
        most = most > SHMPI_STRETCH_MOST ? SHMPI_STRETCH_MOST : most;
        most = most < SHMPI_STRETCH_LEAST ? SHMPI_STRETCH_LEAST : most;
        n = most / e->unit < back - front ? most / e->unit : back - front;
        next = back - n;
    } while (!shmnd_swap64(share, &seen, shmpi_share_word((uint32_t)seen, next)));
    /* SYNC share: receiver */
    n = r->low - next * e->unit;
    r->low = next * e->unit;
    return n;
}

/* Reads [low, low + n) of the message. 0, or an errno value. */
static inline int shmpi_read(struct shmpi_engine *e, struct shmpi_req *r, uint64_t n)
{
    pid_t pid = (pid_t)shmnd_relaxed32(&e->peers[r->source].rank->pid);
    for (uint64_t done = 0; done < n;) {
        struct iovec here = {r->buffer + r->low + done, n - done};
        struct iovec there = {(char *)(uintptr_t)r->address + r->low + done, n - done};
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? errno : EFAULT;
        done += (uint64_t)got;
    }
    return 0;
}

static inline bool shmpi_is_whole(const struct shmpi_req *r)
{
    return r->moved >= r->low;
}

/* Reads the first stretch, and decides who moves the rest. Returns its bytes. */
static inline uint64_t shmpi_try_one(struct shmpi_engine *e, struct shmpi_req *r)
{
    uint64_t begin = shmpi_clock_ns(), n = r->low;
    r->low = (r->low - SHMPI_STRETCH_MOST) / e->unit * e->unit;
    n -= r->low;
    r->tries = false;
    int why = shmpi_read(e, r, n);
    if (why)
        shmpi_end_copy(e, r, why == ESRCH ? SHMPI_FAILED_PEER : SHMPI_BROKEN, true);
    else if ((shmpi_clock_ns() - begin) * SHMPI_FAST_READ > n)
        shmpi_begin_pieces(e, r);
    else
        r->share = 0;
    return n;
}

/* Reads a stretch of it. Returns its bytes, 0 where the sender has the rest. */
static inline uint64_t shmpi_copy_one(struct shmpi_engine *e, struct shmpi_req *r)
{
    if (r->tries)
        return shmpi_try_one(e, r);
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

/* Reads where no pieces come, oldest message first. While some come from anywhere, those go before,
 * for a while. */
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
        if (r->share && r->patience && !r->tries) {
            r->patience--;
            continue;
        }
        bytes += shmpi_copy_one(e, r);
        moved++;
    }
    return moved;
}

static inline void shmpi_take_piece(struct shmpi_engine *e, int source, uint64_t id,
                                    uint64_t offset, const char *data, uint64_t n)
{
    struct shmpi_req *r = shmpi_req_named(e, id, source);
    if (!r || !r->receives || offset != r->moved || r->moved > r->low || n > r->low - r->moved)
        return;
    memcpy(r->buffer + offset, data, n);
    r->moved += n;
    e->came = true;
    if (shmpi_is_whole(r))
        shmpi_end_copy(e, r, SHMPI_OK, r->low < r->got);
}

#endif
