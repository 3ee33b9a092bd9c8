/* SPDX-License-Identifier: Apache-2.0
 *
 * One direction between two ranks: records in a ring of lines, one producer, one consumer.
 *
 * A record begins at a line with its mark, and the mark says that it is there: the receiver reads
 * one line, and a small record is that line. Before a record is shown, the mark behind it is
 * cleared, so that what an earlier lap left there is never taken for a record.
 *
 * SYNC shown: the sender clears the mark behind, writes the record, then its mark with release; the
 * receiver loads the mark with acquire. A receiver that has seen a mark therefore sees the record,
 * and the next mark as empty or as written since.
 * SYNC room: the receiver returns room by read_pos with release, after its last load from the
 * records; the sender loads read_pos with acquire before it writes there again.
 * SYNC wants: the sender writes wants_room, fences, loads read_pos again; the receiver writes
 * read_pos, fences, loads wants_room. At least one sees the other.
 *
 * Never waits, makes no system call. A death leaves records that were shown whole.
 */
#ifndef SHMPI_LANE_H
#define SHMPI_LANE_H

#include "transport/job.h"
#include "wire/cache_lines.h"

enum shmpi_kind {
    SHMPI_EAGER = 1,   /* a whole message: b the bytes of its collective, or 0 */
    SHMPI_READY,       /* a message that waits at the sender: a its request, b its bytes; in the
                      * record its address, or its place with MAPPED, and the bytes of its
                      * collective, or 0; in the flags its share */
    SHMPI_CLEAR,       /* move it: a the sender's request, b the receiver's; in the record how many
                      * bytes, and 1 + the place of the buffer in the receiver's arena, or its
                      * address with ADDRESSED, or 0 */
    SHMPI_PIECE,       /* a the receiver's request, b the offset */
    SHMPI_TAKEN,       /* a the sender's request: all of it was copied; b: or it was refused */
    SHMPI_PADDING,     /* nothing up to the end of the ring */
    SHMPI_REVOKE,      /* a the first context of a communicator */
    SHMPI_PLACED,      /* a the receiver's request, b the bytes that its sender has placed */
    SHMPI_CALLED,      /* the collective that the sender waits in: a its context and, in the upper
                      * half, 1 + its root, or 0; b its number */
    SHMPI_CALLED_ELSE, /* the collective that the sender made in place of one that we wait in: the
                        * same words */
    SHMPI_DISPUTED,    /* a collective that failed at the sender: a its context, b its number, the
                      * tag the rank with other bytes, or -1; in the record those, and its own */
};

enum { SHMPI_REFUSED = 1 }; /* of TAKEN: the context is revoked */

enum { SHMPI_MAPPED = 0x80 }; /* flag of READY: the message lies in the arena of its sender */

enum {
    SHMPI_READS = 1,     /* flag of CLEAR: the receiver moves some of it itself */
    SHMPI_ADDRESSED = 2, /* flag of CLEAR: the sender may write into the buffer by the kernel */
};

enum { SHMPI_SYNC = 1 }; /* flag of EAGER: TAKEN is wanted, a is the request */

enum { SHMPI_SPOILS = 2 }; /* flag of EAGER: the message could not be made, and has no bytes */

struct shmpi_record {
    shmnd_word64 mark; /* kind, flags << 8, bytes << 32; 0: nothing is here yet */
    int32_t tag;
    uint32_t context;
    uint64_t a, b;
};

_Static_assert(sizeof(struct shmpi_record) == 32, "half a line for the head of a record");

/* The two ends, each private to its process. */
struct shmpi_out {
    char *data;
    struct shmpi_lane *lane;
    uint64_t size, write_pos, returned_pos;
};

struct shmpi_in {
    char *data;
    struct shmpi_lane *lane;
    uint64_t size, read_pos, returned_pos;
};

static inline uint64_t shmpi_record_bytes(uint64_t payload)
{
    return (sizeof(struct shmpi_record) + payload + SHMPI_LINE - 1) & ~(uint64_t)(SHMPI_LINE - 1);
}

/* Return the largest payload of one record. */
static inline uint64_t shmpi_lane_most(uint64_t size)
{
    return size / 4 - sizeof(struct shmpi_record);
}

/* ---- the sender ---------------------------------------------------------------------------- */

static inline bool shmpi_out_has(struct shmpi_out *out, uint64_t wanted)
{
    if (out->write_pos + wanted - out->returned_pos <= out->size)
        return true;
    uint64_t read_pos = shmnd_acquire64(&out->lane->read_pos); /* SYNC room: acquire */
    if (out->write_pos - read_pos > out->size)
        return false; /* no count that a receiver wrote */
    out->returned_pos = read_pos;
    return out->write_pos + wanted - read_pos <= out->size;
}

static inline void shmpi_out_clear(struct shmpi_out *out, uint64_t pos)
{
    struct shmpi_record *r = (struct shmpi_record *)(out->data + (pos & (out->size - 1)));
    shmnd_put64(&r->mark, 0); /* relaxed: the release of the mark before it covers it */
}

/* Take room for a record, or return NULL. It is to be filled and shown before the next is taken. */
static inline struct shmpi_record *shmpi_out_take(struct shmpi_out *out, uint64_t payload)
{
    uint64_t bytes = shmpi_record_bytes(payload);
    uint64_t at = out->write_pos & (out->size - 1), rest = out->size - at;
    uint64_t skip = bytes > rest ? rest : 0;
    if (!shmpi_out_has(out, skip + bytes + SHMPI_LINE))
        return NULL;
    struct shmpi_record *r = (struct shmpi_record *)(out->data + at);
    if (skip) {
        shmpi_out_clear(out, out->write_pos + skip);
        shmnd_release64(&r->mark, SHMPI_PADDING | (skip - sizeof *r) << 32); /* SYNC shown */
        out->write_pos += skip;
        r = (struct shmpi_record *)out->data;
    }
    return r;
}

static inline void shmpi_out_show(struct shmpi_out *out, struct shmpi_record *r, uint32_t kind,
                                  uint32_t flags, uint64_t payload)
{
    uint64_t next = out->write_pos + shmpi_record_bytes(payload);
    shmpi_out_clear(out, next);
    /* SYNC shown: release, pairs with acquire in shmpi_in_poll() */
    shmnd_release64(&r->mark, kind | flags << 8 | payload << 32);
    out->write_pos = next;
}

/* Fetch the lines of the next record to write them: it is perhaps as long, and clears a mark as
 * well. The receiver has these lines since the last lap: a copy would wait for them, and the fence
 * of a wake. */
static inline void shmpi_out_own(const struct shmpi_out *out, uint64_t payload)
{
    uint64_t wanted = shmpi_record_bytes(payload) + SHMPI_LINE;
    uint64_t room = out->returned_pos + out->size - out->write_pos;
    shmnd_lines_own(out->data, out->size - 1, out->write_pos, wanted < room ? wanted : room);
}

/* Move the record that was shown last towards its receiver. */
static inline void shmpi_out_demote(const struct shmpi_out *out, uint64_t payload)
{
    uint64_t bytes = shmpi_record_bytes(payload);
    shmnd_lines_demote(out->data, out->size - 1, out->write_pos - bytes, bytes);
}

/* Ask to be woken, after a poll that found no room. Return true if there is room by now. */
static inline bool shmpi_out_want(struct shmpi_out *out, uint64_t payload)
{
    shmnd_put32(&out->lane->wants_room, 1);
    shmnd_store_then_load(); /* SYNC wants: fence of the sender */
    return shmpi_out_has(out, 2 * shmpi_record_bytes(payload) + SHMPI_LINE);
}

/* ---- the receiver -------------------------------------------------------------------------- */

/* Return the mark of the next record; 0 if there is none. */
static inline uint64_t shmpi_in_poll(const struct shmpi_in *in)
{
    struct shmpi_record *r = (struct shmpi_record *)(in->data + (in->read_pos & (in->size - 1)));
    return shmnd_acquire64(&r->mark); /* SYNC shown: acquire, pairs with shmpi_out_show() */
}

/* Return the record of a mark; NULL if it does not fit, so that no rank of ours wrote it. */
static inline struct shmpi_record *shmpi_in_record(const struct shmpi_in *in, uint64_t mark)
{
    uint64_t at = in->read_pos & (in->size - 1);
    if (shmpi_record_bytes(mark >> 32) > in->size - at)
        return NULL;
    return (struct shmpi_record *)(in->data + at);
}

/* Move past the record. Return true if the sender waits for the room and is to be woken. */
static inline bool shmpi_in_pass(struct shmpi_in *in, uint64_t mark)
{
    in->read_pos += shmpi_record_bytes(mark >> 32);
    if (in->read_pos - in->returned_pos < in->size / 4)
        return false;
    in->returned_pos = in->read_pos;
    shmnd_release64(&in->lane->read_pos, in->read_pos); /* SYNC room: release */
    shmnd_store_then_load();                            /* SYNC wants: fence of the receiver */
    if (!shmnd_relaxed32(&in->lane->wants_room))
        return false;
    shmnd_put32(&in->lane->wants_room, 0);
    return true;
}

#endif
