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
 *
 * A message in its sender's arena (arena.h) is mapped here: reading it is a copy without the kernel. A
 * short one the receiver copies alone. Of a longer one, whose receive lies in an arena as well, the
 * sender writes its units into the receiver's buffer, without a lane between, and says so at its end
 * (PLACED).
 *
 * SYNC placed: a receive that ends by an error gives its buffer back while its sender may still be writing a
 * unit. So it first closes the word: it swaps the high half for 0, after which the sender takes no
 * unit, and learns from the low half how many were taken. The sender stores how many it has written
 * in `placed`, with release, after each; the receiver loads it with acquire until all that were
 * taken are written, or the sender is dead. A sender writes no further than to the end of the unit that
 * it has taken, so the receiver waits for one copy of a unit at most. `placed` is cleared
 * with the word, before CLEAR.
 */
#ifndef SHMPI_SHARE_H
#define SHMPI_SHARE_H

#include <errno.h>
#include <sched.h>
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
    SHMPI_TRIED_FIRST = 2 << 20,  /* bytes of a message whose first stretch is timed */
    SHMPI_FAST_READ = 20,         /* bytes in a nanosecond */
    SHMPI_COPY_ALONE = 128 << 10, /* bytes of a mapped message that the receiver copies alone */
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

#endif
