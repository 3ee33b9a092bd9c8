/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounce area: messages of up to 1 MiB whose receive is private memory, unless the kernel
 * copies them faster (engine/copy_way.h), or whose source is while the receive is unknown. Their
 * sender copies them to shared memory and their receiver out of it, which takes two copies and no
 * system call; the ring would be too short for them, and a copy by the kernel costs about 2 us
 * before its first byte.
 *
 * The area of each side belongs to the link and is sparse. Pages are committed when they are first
 * needed, so a connection that sends nothing of this kind has none. Messages are in it one behind
 * the other. When the peer has taken all of them, the next one is at the beginning again if it is
 * short. A long one is behind the last long one, up to the end of the area: lines that the peer
 * has just read are in its cache, which each store to them waits for. Lines that were used 2 MiB
 * ago have left the caches of both cores, and are written and read several times as fast.
 *
 * Argument. The bytes of a message are written before its slot is published (SYNC slot-ready), so
 * the receiver reads all of them. They are written again only when `taken` has passed their
 * message, which the receiver stores after its copy (SYNC taken). A message that was recalled has a
 * number, too, and its bytes stay until the receiver has skipped it. Nothing of the receiver
 * is trusted but `taken`: a value too large harms only the messages to the peer that stored it.
 *
 * A death at any instruction: of the sender before the slot is published, there is no message; of
 * the receiver, the area ends with the link.
 */
#ifndef SHMND_SEND_BOUNCE_H
#define SHMND_SEND_BOUNCE_H

#include "send/retire.h"

/* From here a message is in the bounce area rather than in the ring, if either is possible. */
#define SHMND_BOUNCE_MIN 2048u
/* Longer ones have left the caches, and both sides copy by the kernel as fast. */
#define SHMND_BOUNCE_MAX (1u << 20)
/* From here a message does not use the bytes of the last one again, even if they are free. */
#define SHMND_BOUNCE_LONG (16u << 10)
/* All areas of an adapter together: a mesh of many connections keeps the rest of its memory. */
#define SHMND_BOUNCE_BUDGET (64ull << 20)
/* An area exceeds this only while all together have at most half of that. */
#define SHMND_BOUNCE_SHARE (512u << 10)
/* Pages are committed by so many bytes. */
#define SHMND_BOUNCE_COMMIT (16u << 10)
#define SHMND_BOUNCE_NONE UINT32_MAX

/* Forget the messages that the peer has taken. */
static inline void shmnd_bounce_reclaim(struct shmnd_qp *qp)
{
    struct shmnd_bounces *b = &qp->bounces;
    if (b->first == b->count)
        return;
    /* SYNC taken: acquire, pairs with release in shmnd_rx_publish_taken() */
    uint64_t taken = shmnd_acquire64(&qp->link.theirs->taken);
    while (b->first != b->count && b->used[b->first % SHMND_BOUNCES].message < taken)
        b->first++;
}

/* Return where `length` bytes may lie; SHMND_BOUNCE_NONE: there is no room. */
static inline uint32_t shmnd_bounce_place(const struct shmnd_bounces *b, uint32_t length)
{
    uint32_t next = length >= SHMND_BOUNCE_LONG ? b->next : 0;
    if (b->first == b->count)
        return length <= SHMND_BOUNCE_BYTES - next ? next : 0;
    if (b->count - b->first == SHMND_BOUNCES)
        return SHMND_BOUNCE_NONE;
    uint32_t oldest = b->used[b->first % SHMND_BOUNCES].begin;
    uint32_t newest = b->used[(b->count - 1) % SHMND_BOUNCES].begin;
    uint32_t end = b->used[(b->count - 1) % SHMND_BOUNCES].end;
    uint32_t limit = newest < oldest ? oldest : SHMND_BOUNCE_BYTES;
    if (next > end && next <= limit && length <= limit - next)
        return next;
    if (length <= limit - end)
        return end;
    return newest >= oldest && length <= oldest ? 0 : SHMND_BOUNCE_NONE;
}

/* Commit the pages up to `end`. Return false if there is no memory, or the budget is spent. */
static __attribute__((noinline, cold, unused)) bool shmnd_bounce_commit(struct shmnd_qp *qp,
                                                                        uint32_t end)
{
    struct shmnd_bounces *b = &qp->bounces;
    uint32_t whole = (end + SHMND_BOUNCE_COMMIT - 1) & ~(SHMND_BOUNCE_COMMIT - 1);
    uint64_t more = whole - b->committed;
    uint64_t most = whole > SHMND_BOUNCE_SHARE ? SHMND_BOUNCE_BUDGET / 2 : SHMND_BOUNCE_BUDGET;
    if (b->refused || qp->registry->bounce_bytes + more > most)
        return false;
    if (!shmnd_commit_pages(qp->link.my_bounce + b->committed, more)) {
        b->refused = true;
        return false;
    }
    b->committed = whole;
    qp->registry->bounce_bytes += more;
    return true;
}

/* Return whether there is room for a message of this length. Only then may the next one be
 * bounced. */
static inline bool shmnd_bounce_has_room(struct shmnd_qp *qp, uint64_t length)
{
    if (length > SHMND_BOUNCE_BYTES || !shmnd_slots_have_room(&qp->out, 1))
        return false;
    shmnd_bounce_reclaim(qp);
    uint32_t at = shmnd_bounce_place(&qp->bounces, (uint32_t)length);
    if (at == SHMND_BOUNCE_NONE)
        return false;
    uint32_t end = at + (uint32_t)length;
    if (end <= qp->bounces.committed || shmnd_bounce_commit(qp, end))
        return true;
    /* No more pages: a long message begins again with those that there are. */
    qp->bounces.next = 0;
    return qp->bounces.first == qp->bounces.count && at && length <= qp->bounces.committed;
}

/* Take the place of the next message and return where it begins. The caller has checked for
 * room. */
static inline uint32_t shmnd_bounce_take(struct shmnd_qp *qp, uint32_t length)
{
    struct shmnd_bounces *b = &qp->bounces;
    uint32_t at = shmnd_bounce_place(b, length);
    uint32_t i = b->count++ % SHMND_BOUNCES;
    b->used[i].message = qp->messages;
    b->used[i].begin = at;
    b->used[i].end = (at + length + 127) & ~127u;
    if (length >= SHMND_BOUNCE_LONG)
        b->next = b->used[i].end;
    return at;
}

/* Forget the area of a link that is released. */
static inline void shmnd_bounce_release(struct shmnd_qp *qp)
{
    qp->registry->bounce_bytes -= qp->bounces.committed;
    qp->bounces = (struct shmnd_bounces){.first = 0};
}

#endif
