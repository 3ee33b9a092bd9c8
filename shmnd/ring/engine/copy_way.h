/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a message into private memory goes through the bounce area or by the kernel, learned from
 * the messages before it.
 *
 * Through the bounce area its bytes are copied twice, by cheap copies; by the kernel once, half by
 * each side, with a system call. The faster way depends on what the two cores share, and on what
 * the program does with its buffers: between cores that take 140 ns to exchange a line the kernel
 * takes a third of the time for 128 KiB, and between near ones the area is faster. A side cannot
 * tell from its own copies, since much of the time is the other side's. So the sender times blocks
 * of messages, from one to another, by either way in turn: the rate of a stream, or of questions
 * and answers. Then it takes the faster way for some messages, and tries again: for twice as many
 * after each trial with the same result, and few after a change. The first trial of a queue pair
 * times the pages of its bounce area, too, as they are committed.
 *
 * Private memory of the sender: a wrong guess costs time and nothing else.
 */
#ifndef SHMND_ENGINE_COPY_WAY_H
#define SHMND_ENGINE_COPY_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* The end of the first range, in bytes; each next range ends at twice as many. */
    SHMND_WAYS_LEAST = 64 << 10,
    SHMND_WAYS_RANGES = 5,
    SHMND_WAY_BLOCK = 64,   /* messages of a block; the first ones, which wait for others that */
    SHMND_WAY_SETTLES = 16, /* went the other way, are not timed */
    SHMND_WAY_TRIAL = 4 * SHMND_WAY_BLOCK,
    /* Messages until the next trial, after a change and at most. */
    SHMND_WAY_STAYS_LEAST = 4 * SHMND_WAY_TRIAL,
    SHMND_WAY_STAYS_MOST = 32 * SHMND_WAY_TRIAL,
};

/* The times of one range of lengths. All zero at first: a trial begins. */
struct shmnd_way {
    uint64_t began_ns;
    uint64_t least_ns[2]; /* of a block of the present trial, by the bounce area, by the kernel */
    uint16_t messages;    /* since the trial began */
    uint16_t stays;       /* messages from its end to the next one */
    bool by_kernel;
};

_Static_assert(SHMND_WAY_TRIAL + SHMND_WAY_STAYS_MOST <= UINT16_MAX, "messages");

struct shmnd_ways {
    struct shmnd_way ranges[SHMND_WAYS_RANGES];
};

/* Return the range of a message of `bytes`; NULL: it is longer than those of the last range. */
static inline struct shmnd_way *shmnd_way_of(struct shmnd_ways *ways, uint64_t bytes)
{
    for (int i = 0; i < SHMND_WAYS_RANGES; i++)
        if (bytes <= (uint64_t)SHMND_WAYS_LEAST << i)
            return &ways->ranges[i];
    return NULL;
}

/* Return whether the next message goes by the kernel. */
static inline bool shmnd_way_is_kernel(const struct shmnd_way *w)
{
    return w->messages < SHMND_WAY_TRIAL ? w->messages / SHMND_WAY_BLOCK % 2 : w->by_kernel;
}

/* Count a message that is issued. Return true if the caller must call shmnd_way_note() with the
 * time. */
static inline bool shmnd_way_count(struct shmnd_way *w)
{
    if (++w->messages > SHMND_WAY_TRIAL && w->messages == SHMND_WAY_TRIAL + w->stays)
        *w = (struct shmnd_way){.by_kernel = w->by_kernel, .stays = w->stays};
    uint32_t of_block = w->messages % SHMND_WAY_BLOCK;
    bool on_trial = w->messages && w->messages <= SHMND_WAY_TRIAL;
    return on_trial && (of_block == SHMND_WAY_SETTLES || of_block == 0);
}

/* Begin or end the timing of a block. The last block of a trial chooses the way. */
static inline void shmnd_way_note(struct shmnd_way *w, uint64_t now_ns)
{
    if (w->messages % SHMND_WAY_BLOCK) {
        w->began_ns = now_ns;
        return;
    }
    uint64_t *least = &w->least_ns[(w->messages / SHMND_WAY_BLOCK - 1) % 2];
    uint64_t ns = now_ns - w->began_ns;
    if (*least == 0 || ns < *least)
        *least = ns;
    if (w->messages < SHMND_WAY_TRIAL)
        return;
    bool by_kernel = w->least_ns[1] < w->least_ns[0];
    if (!w->stays || by_kernel != w->by_kernel)
        w->stays = SHMND_WAY_STAYS_LEAST;
    else if (w->stays < SHMND_WAY_STAYS_MOST)
        w->stays *= 2;
    w->by_kernel = by_kernel;
}

#endif
