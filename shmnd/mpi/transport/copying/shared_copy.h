/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a long message, which both of its ranks move at the same time.
 *
 * The sender moves units from the front, the receiver moves units from the back, and the message is
 * complete where they meet. So both cores copy, and a message whose sender computes is moved by its
 * receiver alone. The receiver reads the sender's memory by process_vm_readv. The sender writes
 * into the receiver's buffer by process_vm_writev; or it puts pieces into the lane, which the
 * receiver takes out, and the receiver reads only where none comes. The receiver decides which
 * (choose_way.h). Of long messages in both directions, each side reads its own.
 *
 * SYNC share: one word of the lane divides the message, in units: the low half counts those that
 * the sender has taken, the high half is the first that the receiver has. The receiver writes it
 * whole, before CLEAR; from then on both change it by compare-and-swap alone, the sender the low
 * half and the receiver the high one, and take only units between. So no unit is taken by both. The
 * two meet once; after that neither changes the word. If the receiver took nothing, the sender's
 * last swap makes sure that it never will, and the send ends there: its memory is not read again.
 * If it took something, the send ends by TAKEN, which follows the receiver's last read. The bytes
 * themselves are ordered by the lane (SYNC shown) and by the kernel.
 *
 * A word is in use from READY to the end of its send. One whose send was given up by an error is
 * not used again, because its receiver may still hold it. What the peer wrote there is checked
 * against our own half, so that a wrong word ends the message and touches no other memory.
 *
 * A death at any instruction: of the sender, a read by the kernel fails or pieces end, and the
 * death ends the receive; of the receiver, the death ends the send.
 *
 * Where the kernel does not let us read, the sender sends all in pieces. Where it does not let the
 * sender write, the sender sends in pieces what it takes. Where all words of a lane are in use, the
 * receiver reads all.
 *
 * A message in its sender's arena (arena.h) is mapped here: reading it is a copy without the
 * kernel. A short one the receiver copies alone. Of a longer one, whose receive lies in an arena as
 * well, the sender writes its units into the receiver's buffer, without the kernel.
 *
 * What a reduction receives from there (schedule.h) its receiver reads alone, as an operand of the
 * reduction.
 *
 * A sender that writes into the buffer says so after its last unit (PLACED).
 *
 * SYNC placed: a receive that ends by an error gives its buffer back while its sender may still be
 * writing a unit. So it first closes the word: it swaps the high half for 0, after which the sender
 * takes no unit, and learns from the low half how many were taken. The sender stores how many it
 * has written in `placed`, with release, after each; the receiver loads it with acquire until all
 * that were taken are written, or the sender is dead. A sender writes no further than to the end of
 * what it has taken, so the receiver waits for one copy of a stretch at most. A sender that the
 * kernel refused sends what it has taken in pieces; it stores SHMPI_PLACES_NO_MORE, so that nothing
 * waits for it. `placed` is cleared with the word, before CLEAR.
 */
#ifndef SHMPI_SHARED_COPY_H
#define SHMPI_SHARED_COPY_H

#include <sched.h>

#include "transport/copying/by_kernel.h"
#include "transport/wait_notes.h"
#include "wire/kill_point.h"

enum {
    SHMPI_COPY_AT_ONCE = 512 << 10, /* bytes that are read between two polls */
    SHMPI_UNIT_MOST = 32 << 10,
    SHMPI_PIECES_FIRST = 16, /* polls that took pieces and read nothing */
    SHMPI_PATIENCE = 400,    /* polls for a first piece before the receiver reads */
    SHMPI_STRETCH_MOST = 512 << 10,
    SHMPI_COPY_ALONE = 128 << 10, /* bytes of a mapped message that the receiver copies alone */
};

/* `placed` of a sender that writes nothing into the buffer any more. */
#define SHMPI_PLACES_NO_MORE UINT64_MAX

static inline uint64_t shmpi_share_word(uint64_t front, uint64_t back)
{
    return front | back << 32;
}

static inline uint64_t shmpi_share_units(const struct shmpi_engine *e, uint64_t bytes)
{
    return (bytes + e->unit - 1) / e->unit;
}

/* Return how many of the `left` units of a message of `whole` units one side takes for one call of
 * the kernel: half of them, so that the other side finds as much. Of a message of two stretches at
 * most, the side that finds half of it left takes all of that: each side makes one call. */
static inline uint64_t shmpi_stretch(const struct shmpi_engine *e, uint64_t left, uint64_t whole)
{
    uint64_t most = SHMPI_STRETCH_MOST / e->unit, units = (left + 1) / 2;
    if (whole <= 2 * most && left <= (whole + 1) / 2)
        units = left;
    return units < most ? units : most;
}

static inline void shmpi_list_out(struct shmpi_req **list, struct shmpi_req *r)
{
    r->copy.moving = false;
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
    r->copy.moving = true;
}

#endif
