/* SPDX-License-Identifier: Apache-2.0
 *
 * The slot ring: messages of one direction of one link.
 *
 * One writer process, one reader process, each serialising its own threads.
 * The functions of the writer never wait and fail only when the ring is full; those
 * of the reader never wait and trust no length that they read.
 *
 * Argument. The writer writes a slot only while its position is below the reader's
 * `read_pos` plus the ring size; the reader has finished with that slot (SYNC
 * slot-free). The reader reads a slot only once its `ready_pos` equals its position
 * plus one, which the writer stores after all payload (SYNC slot-ready). Positions
 * never repeat: the upper two of the 64 bits are flags, and at one slot a nanosecond
 * 2^62 slots last more than a century. So a value left from an earlier lap never
 * matches.
 *
 * A message with SHMND_SLOT_ACK ends in one of two ways: the reader claims it when a
 * receive is posted for it, or the writer recalls it before that. Both use
 * compare-and-swap on `ready_pos`, so exactly one succeeds (SYNC recall).
 *
 * A death at any instruction: if the writer dies before the store of `ready_pos`, the
 * message was never sent; if the reader dies, its slots are never returned. Neither
 * affects another link. Serves invariants 1, 2 and 3.
 */
#ifndef SHMND_WIRE_SLOTS_H
#define SHMND_WIRE_SLOTS_H

#include <string.h>

#include "wire/layout.h"

struct shmnd_slots_writer {
    uint8_t *ring;
    const shmnd_word64 *read_pos; /* on the reader's side of the link */
    uint64_t mask;                /* slots of the ring less one; a power of two */
    uint64_t write_pos;
    uint64_t room_pos; /* write_pos may grow up to here, by the last load of read_pos */
};

struct shmnd_slots_reader {
    uint8_t *ring;                 /* written only to claim a message */
    shmnd_word64 *read_pos_shared; /* on our side of the link */
    uint64_t mask;
    uint64_t read_pos;
    uint64_t returned_pos;
};

static inline struct shmnd_slot *shmnd_writer_slot(const struct shmnd_slots_writer *w, uint64_t pos)
{
    return (struct shmnd_slot *)(w->ring + (pos & w->mask) * SHMND_SLOT_BYTES);
}

static inline struct shmnd_slot *shmnd_reader_slot(const struct shmnd_slots_reader *r, uint64_t pos)
{
    return (struct shmnd_slot *)(r->ring + (pos & r->mask) * SHMND_SLOT_BYTES);
}

/* Return the number of slots for `bytes` of payload; `bytes` is at most SHMND_EAGER_LONGEST. */
static inline uint32_t shmnd_slots_for(uint32_t bytes)
{
    if (bytes <= SHMND_HEAD_PAYLOAD)
        return 1;
    return 1 + (bytes - SHMND_HEAD_PAYLOAD + SHMND_TAIL_PAYLOAD - 1) / SHMND_TAIL_PAYLOAD;
}

/* ---- writer --------------------------------------------------------------- */

/* Return the number of slots from which the limits of one message are computed. */
static inline uint32_t shmnd_slots_usable(const struct shmnd_slots_writer *w)
{
    return w->mask < SHMND_RING_USUAL ? (uint32_t)w->mask + 1 : SHMND_RING_USUAL;
}

/* Return the bytes of the longest message that may wait for room. */
static inline uint32_t shmnd_eager_max(const struct shmnd_slots_writer *w)
{
    return SHMND_SLOTS_HOLD(shmnd_slots_usable(w) / 4);
}

/* Return the bytes of the longest message that is written if there is room at once. */
static inline uint32_t shmnd_eager_longest(const struct shmnd_slots_writer *w)
{
    return SHMND_SLOTS_HOLD(shmnd_slots_usable(w) / 4 * 3);
}

static inline __attribute__((always_inline)) bool
shmnd_slots_have_room(struct shmnd_slots_writer *w, uint32_t slots)
{
    if (w->write_pos + slots <= w->room_pos)
        return true;
    /* SYNC slot-free: acquire, pairs with release in shmnd_slots_release() */
    uint64_t read_pos = shmnd_acquire64(w->read_pos);
    /* A hostile reader may claim to have read more than was written, or less than it reported
     * before. Its link stops; nothing else happens. */
    if (read_pos > w->write_pos || read_pos + w->mask + 1 < w->room_pos)
        return false;
    w->room_pos = read_pos + w->mask + 1;
    return w->write_pos + slots <= w->room_pos;
}

/* Where the next payload byte of the message being written goes. A message of several pieces is
 * written by several calls. */
struct shmnd_write_cursor {
    struct shmnd_slots_writer *w;
    uint64_t pos; /* slot being filled */
    uint8_t *at;
    uint32_t left; /* bytes free in that slot */
};

static inline struct shmnd_write_cursor shmnd_slots_write_begin(struct shmnd_slots_writer *w)
{
    struct shmnd_slot *head = shmnd_writer_slot(w, w->write_pos);
    return (struct shmnd_write_cursor){w, w->write_pos, head->payload, SHMND_HEAD_PAYLOAD};
}

static inline void shmnd_slots_write(struct shmnd_write_cursor *f, const void *data, uint32_t bytes)
{
    const uint8_t *from = data;
    while (bytes > f->left) {
        memcpy(f->at, from, f->left);
        from += f->left;
        bytes -= f->left;
        f->pos++;
        struct shmnd_tail_slot *tail = (struct shmnd_tail_slot *)shmnd_writer_slot(f->w, f->pos);
        shmnd_put64(&tail->ready_pos, 0); /* relaxed: ordered by the head's release */
        f->at = tail->payload;
        f->left = SHMND_TAIL_PAYLOAD;
        /* Whole slots, of constant length for the compiler: most of the time is spent here. */
        while (bytes > SHMND_TAIL_PAYLOAD) {
            memcpy(f->at, from, SHMND_TAIL_PAYLOAD);
            from += SHMND_TAIL_PAYLOAD;
            bytes -= SHMND_TAIL_PAYLOAD;
            f->pos++;
            tail = (struct shmnd_tail_slot *)shmnd_writer_slot(f->w, f->pos);
            shmnd_put64(&tail->ready_pos, 0);
            f->at = tail->payload;
        }
    }
    memcpy(f->at, from, bytes);
    SHMND_KILL_POINT("slot-filling");
    f->at += bytes;
    f->left -= bytes;
}

/* Fetch the slots of a next message that is as long as the last one. For a message of several slots
 * whose sender waits for an answer; the fetches would delay the messages of a stream. */
static inline void shmnd_slots_own_next(const struct shmnd_slots_writer *w, uint64_t slots)
{
    uint64_t room = w->room_pos - w->write_pos;
    shmnd_lines_own(w->ring, (w->mask + 1) * SHMND_SLOT_BYTES - 1, w->write_pos * SHMND_SLOT_BYTES,
                    (slots < room ? slots : room) * SHMND_SLOT_BYTES);
}

static inline void shmnd_slots_publish(struct shmnd_slots_writer *w, uint32_t length, uint8_t kind,
                                       uint8_t flags, uint32_t slots)
{
    struct shmnd_slot *head = shmnd_writer_slot(w, w->write_pos);
    head->length = length;
    head->kind = kind;
    head->flags = flags;
    SHMND_KILL_POINT("slot-filled");
    /* SYNC slot-ready: release, pairs with acquire in shmnd_slots_peek() */
    shmnd_release64(&head->ready_pos, w->write_pos + 1);
    SHMND_KILL_POINT("slot-published");
    w->write_pos += slots;
}

/* Write the header without publishing the message: for the first message of a batch (`ready` false)
 * and the messages behind it. No reader gets past the first, so the release store that publishes it
 * publishes all behind it. */
static inline void shmnd_slots_defer(struct shmnd_slots_writer *w, uint32_t length, uint8_t kind,
                                     uint8_t flags, uint32_t slots, bool ready)
{
    struct shmnd_slot *head = shmnd_writer_slot(w, w->write_pos);
    head->length = length;
    head->kind = kind;
    head->flags = flags;
    if (ready)
        shmnd_put64(&head->ready_pos, w->write_pos + 1);
    w->write_pos += slots;
}

/* Publish the deferred message at `pos` and all that were written behind it. */
static inline void shmnd_slots_publish_deferred(struct shmnd_slots_writer *w, uint64_t pos)
{
    /* SYNC slot-ready: release, pairs with acquire in shmnd_slots_peek() */
    shmnd_release64(&shmnd_writer_slot(w, pos)->ready_pos, pos + 1);
}

/* Recall the message that begins at `pos`. Return false if the reader has claimed it. */
static inline bool shmnd_slots_recall(struct shmnd_slots_writer *w, uint64_t pos)
{
    uint64_t ready = pos + 1;
    /* SYNC recall: compare-and-swap, pairs with the one in shmnd_slots_claim() */
    return shmnd_swap64(&shmnd_writer_slot(w, pos)->ready_pos, &ready, ready | SHMND_POS_RECALLED);
}

/* ---- reader --------------------------------------------------------------- */

/* The header of a message, read once. */
struct shmnd_message_header {
    uint32_t length;
    uint32_t slots;
    uint32_t token; /* of a listed message */
    uint8_t kind;
    uint8_t flags;
};

enum shmnd_peek {
    SHMND_PEEK_NONE = 0,
    SHMND_PEEK_MESSAGE,
    SHMND_PEEK_RECALLED, /* a message that its sender recalled */
    SHMND_PEEK_MALFORMED,
};

/* Return the payload bytes in the slots of a message. For the kinds that carry extents or an index
 * this is not its length. 0xffffffff for a header that no correct writer publishes. */
static inline uint32_t shmnd_slots_payload(uint8_t kind, uint32_t length, uint32_t extents)
{
    switch (kind) {
    case SHMND_KIND_EAGER:
    case SHMND_KIND_PART: return length <= SHMND_EAGER_LONGEST ? length : 0xffffffffu;
    case SHMND_KIND_PLACED: return sizeof(uint64_t);
    case SHMND_KIND_BOUNCED:
        return length <= SHMND_BOUNCE_BYTES ? (uint32_t)sizeof(uint32_t) : 0xffffffffu;
    case SHMND_KIND_LARGE:
        return extents <= 16 ? 8 + extents * (uint32_t)sizeof(struct shmnd_extent) : 0xffffffffu;
    default: return 0xffffffffu;
    }
}

/* Return the bytes before the payload: the token of a message that invalidates a window. */
static inline uint32_t shmnd_slots_prefix(uint8_t flags)
{
    return flags & SHMND_SLOT_INVALIDATE ? (uint32_t)sizeof(uint32_t) : 0;
}

static inline bool shmnd_slots_ready(const struct shmnd_slots_reader *r)
{
    const struct shmnd_slot *head = shmnd_reader_slot(r, r->read_pos);
    /* relaxed: only a hint, shmnd_slots_peek() checks again */
    return shmnd_relaxed64(&head->ready_pos) == r->read_pos + 1;
}

static inline enum shmnd_peek shmnd_slots_peek(const struct shmnd_slots_reader *r,
                                               struct shmnd_message_header *a)
{
    const struct shmnd_slot *head = shmnd_reader_slot(r, r->read_pos);
    /* SYNC slot-ready: acquire, pairs with release in shmnd_slots_publish() */
    uint64_t ready_pos = shmnd_acquire64(&head->ready_pos);
    if ((ready_pos & ~SHMND_POS_RECALLED) != r->read_pos + 1)
        return SHMND_PEEK_NONE;
    /* Read once, through volatile: a hostile writer may change them meanwhile. */
    const volatile struct shmnd_slot *once = head;
    a->length = once->length;
    a->kind = once->kind;
    a->flags = once->flags;
    uint32_t prefix = shmnd_slots_prefix(a->flags);
    uint32_t extents = 0;
    if (a->kind == SHMND_KIND_LARGE)
        extents = *(const volatile uint32_t *)(head->payload + prefix);
    uint32_t payload = shmnd_slots_payload(a->kind, a->length, extents);
    if (payload > SHMND_EAGER_LONGEST - prefix)
        return SHMND_PEEK_MALFORMED;
    a->slots = shmnd_slots_for(prefix + payload);
    return ready_pos & SHMND_POS_RECALLED ? SHMND_PEEK_RECALLED : SHMND_PEEK_MESSAGE;
}

/* Claim the message at the front for the reader. Return false if it was recalled. */
static inline bool shmnd_slots_claim(struct shmnd_slots_reader *r)
{
    uint64_t ready = r->read_pos + 1;
    /* SYNC recall: compare-and-swap, pairs with the one in shmnd_slots_recall() */
    return shmnd_swap64(&shmnd_reader_slot(r, r->read_pos)->ready_pos, &ready,
                        ready | SHMND_POS_CLAIMED);
}

/* Where the next payload byte of the message at the front is read. */
struct shmnd_read_cursor {
    const struct shmnd_slots_reader *r;
    uint64_t pos;
    const uint8_t *at;
    uint32_t left;
};

static inline struct shmnd_read_cursor shmnd_slots_read_begin(const struct shmnd_slots_reader *r,
                                                              uint8_t flags)
{
    const struct shmnd_slot *head = shmnd_reader_slot(r, r->read_pos);
    uint32_t prefix = shmnd_slots_prefix(flags);
    return (struct shmnd_read_cursor){r, r->read_pos, head->payload + prefix,
                                      SHMND_HEAD_PAYLOAD - prefix};
}

/* Return the window token of the message at the front, read once. */
static inline uint32_t shmnd_slots_token(const struct shmnd_slots_reader *r)
{
    return *(const volatile uint32_t *)shmnd_reader_slot(r, r->read_pos)->payload;
}

static inline void shmnd_slots_read_bytes(struct shmnd_read_cursor *d, void *data, uint32_t bytes)
{
    uint8_t *to = data;
    while (bytes > d->left) {
        memcpy(to, d->at, d->left);
        to += d->left;
        bytes -= d->left;
        d->pos++;
        d->at = ((const struct shmnd_tail_slot *)shmnd_reader_slot(d->r, d->pos))->payload;
        d->left = SHMND_TAIL_PAYLOAD;
        while (bytes > SHMND_TAIL_PAYLOAD) {
            memcpy(to, d->at, SHMND_TAIL_PAYLOAD);
            to += SHMND_TAIL_PAYLOAD;
            bytes -= SHMND_TAIL_PAYLOAD;
            d->pos++;
            d->at = ((const struct shmnd_tail_slot *)shmnd_reader_slot(d->r, d->pos))->payload;
        }
    }
    memcpy(to, d->at, bytes);
    d->at += bytes;
    d->left -= bytes;
}

/* Copy payload that is used for decisions: read it once. */
static inline void shmnd_slots_read_once(struct shmnd_read_cursor *d, void *data, uint32_t bytes)
{
    shmnd_slots_read_bytes(d, data, bytes);
    shmnd_read_once(data);
}

static inline void shmnd_slots_release(struct shmnd_slots_reader *r)
{
    r->returned_pos = r->read_pos;
    SHMND_KILL_POINT("slots-returning");
    /* SYNC slot-free: release, pairs with acquire in shmnd_slots_have_room() */
    shmnd_release64(r->read_pos_shared, r->read_pos);
}

/* Consume the message at the front. Return true if this returned more than a quarter of the ring to
 * the writer, which may be waiting for room. */
static inline bool shmnd_slots_consume(struct shmnd_slots_reader *r, uint32_t slots)
{
    r->read_pos += slots;
    if (r->read_pos - r->returned_pos <= r->mask / 4)
        return false;
    shmnd_slots_release(r);
    return true;
}

#endif
