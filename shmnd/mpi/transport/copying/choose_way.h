/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a message in private memory goes through the lane or by the kernel.
 *
 * Through the lane its bytes are copied twice, by cheap copies; by the kernel once, with a call on
 * each side. The faster way depends on what the two cores share: 64 KiB take 3 us through the lane
 * between two threads of one core, 9 between two cores with a common cache, and 21 between others,
 * where the kernel takes 7 to 10. It also depends on whether the program writes its buffers between
 * two messages. So the receiver times a few messages of each way, per peer and range of lengths,
 * takes the faster way for a while, and times again.
 *
 * Only a message that is alone is timed: of several in progress, each time contains those of
 * others. Longer messages go by the kernel, which is never much slower there.
 */
#ifndef SHMPI_CHOOSE_WAY_H
#define SHMPI_CHOOSE_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* The end of the first range, in bytes; each next range ends at twice as many. */
    SHMPI_WAYS_LEAST = 16 << 10,
    SHMPI_WAYS_RANGES = 7,
    SHMPI_WAYS_MOST = SHMPI_WAYS_LEAST << (SHMPI_WAYS_RANGES - 1), /* longer ones: by the kernel */
    SHMPI_WAYS_LANE = 32 << 10, /* bytes that go through the lane before anything is known */
    SHMPI_WAY_TRIALS = 4,       /* messages that are timed, half of them each way */
    SHMPI_WAY_STAYS = 250,      /* messages until the next trial */
};

/* What the receiver knows of one range. */
struct shmpi_way {
    uint32_t least_ns[2]; /* of the present trial: through the lane, by the kernel */
    uint16_t messages;    /* since the trial began; those of the trial that were timed */
    bool by_kernel;
};

struct shmpi_ways {
    struct shmpi_way ranges[SHMPI_WAYS_RANGES];
};

static inline struct shmpi_way *shmpi_way_of(struct shmpi_ways *ways, uint64_t bytes)
{
    for (int i = 0; i < SHMPI_WAYS_RANGES; i++)
        if (bytes <= (uint64_t)SHMPI_WAYS_LEAST << i)
            return &ways->ranges[i];
    return NULL;
}

static inline void shmpi_ways_begin(struct shmpi_ways *ways)
{
    for (int i = 0; i < SHMPI_WAYS_RANGES; i++)
        ways->ranges[i] = (struct shmpi_way){
            .least_ns = {UINT32_MAX, UINT32_MAX},
            .by_kernel = (uint64_t)SHMPI_WAYS_LEAST << i > SHMPI_WAYS_LANE,
        };
}

/* Return whether the next message goes by the kernel. Set `*timed` for one of a trial that is
 * `alone`. */
static inline bool shmpi_way_next(struct shmpi_way *w, bool alone, bool *timed)
{
    *timed = false;
    if (w->messages >= SHMPI_WAY_TRIALS && ++w->messages > SHMPI_WAY_TRIALS + SHMPI_WAY_STAYS) {
        w->messages = 0;
        w->least_ns[0] = w->least_ns[1] = UINT32_MAX;
    }
    if (w->messages >= SHMPI_WAY_TRIALS || !alone)
        return w->by_kernel;
    *timed = true;
    return w->messages % 2; /* by turns, so that no way has all the cold ones */
}

static inline void shmpi_way_took(struct shmpi_way *w, bool by_kernel, uint64_t ns)
{
    if (ns < w->least_ns[by_kernel])
        w->least_ns[by_kernel] = (uint32_t)ns;
    if (++w->messages == SHMPI_WAY_TRIALS)
        w->by_kernel = w->least_ns[1] < w->least_ns[0];
}

#endif
